// SPDX-License-Identifier: Apache-2.0
// CUPTI's activity functions: which records a profiler gets, and how. What they do is Recorder's.
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/mutex.h"
#include "cupti/call.h"
#include "cupti/external_ids.h"
#include "cupti/recorder.h"
#include "cupti/subscriber.h"

namespace openmps::cupti {
namespace {

// Of buffers on the device, which this library has none of, and of who clears a buffer. A profiler
// may set and get them.
struct Attribute {
  size_t bytes;
  uint64_t value;
};

struct Attributes {
  Mutex lock{LockRank::kCuptiRecords};
  // By CUpti_ActivityAttribute, with the values that CUPTI's documentation says they begin with.
  std::array<Attribute, 11> all GUARDED_BY(lock) = {{{sizeof(size_t), 3'200'000},
                                                     {sizeof(size_t), 8'388'608},
                                                     {sizeof(size_t), 250},
                                                     {sizeof(size_t), 25'000},
                                                     {sizeof(size_t), 250},
                                                     {sizeof(uint8_t), 0},
                                                     {sizeof(size_t), 3},
                                                     {sizeof(size_t), 3},
                                                     {sizeof(uint8_t), 0},
                                                     {sizeof(uint8_t), 1},
                                                     {sizeof(size_t), 16'777'216}}};
};

Attributes& attributes() {
  static auto* const all = new Attributes;
  return *all;
}

// change(attribute) if there is such an attribute and a place for its value.
template <typename Change>
CUptiResult with_attribute(CUpti_ActivityAttribute which, size_t* bytes, void* value,
                           Change&& change) {
  if (bytes == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  Attributes& known = attributes();
  const MutexLock guard(known.lock);
  if (which >= known.all.size()) return CUPTI_ERROR_INVALID_PARAMETER;
  Attribute& attribute = known.all[which];
  if (*bytes < attribute.bytes) {
    *bytes = attribute.bytes;
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  change(attribute);
  return CUPTI_SUCCESS;
}

// Something that this library never does may be switched off.
CUptiResult only_off(uint8_t enable) {
  return call([&] { return enable == 0 ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_SUPPORTED; });
}

CUpti_ActivityKind kind_at(const uint8_t* record) {
  CUpti_ActivityKind kind{};
  memcpy(&kind, record, sizeof kind);
  return kind;
}

// The record behind *record, or the first one.
CUptiResult next_record(uint8_t* buffer, size_t bytes, CUpti_Activity** record) {
  if (buffer == nullptr || record == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  uint8_t* next = buffer;
  if (*record != nullptr) {
    auto* const last = reinterpret_cast<uint8_t*>(*record);
    if (last < buffer || last >= buffer + bytes) return CUPTI_ERROR_INVALID_PARAMETER;
    const size_t length = record_bytes(kind_at(last));
    if (length == 0) return CUPTI_ERROR_INVALID_KIND;
    next = last + length;
  }
  const size_t left = static_cast<size_t>(buffer + bytes - next);
  if (next >= buffer + bytes || left < sizeof(CUpti_ActivityKind)) {
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  }
  const size_t length = record_bytes(kind_at(next));
  if (length == 0) return CUPTI_ERROR_INVALID_KIND;
  if (left < length) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

}  // namespace
}  // namespace openmps::cupti

using namespace openmps::cupti;  // NOLINT: what follows is the C interface of these functions

#pragma GCC visibility push(default)
extern "C" {

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  return call([&] { return recorder().set_callbacks(requested, completed); });
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc now) {
  return call([&] { return recorder().set_clock(now); });
}
CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  return call([&] {
    return timestamp == nullptr ? CUPTI_ERROR_INVALID_PARAMETER
                                : give(recorder().timestamp(), timestamp);
  });
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  return call([&] { return recorder().enable(kind); });
}
// What exists already has no records of the kinds that are recorded.
CUptiResult cuptiActivityEnableAndDump(CUpti_ActivityKind kind) {
  return call([&] { return recorder().enable(kind); });
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return call([&] { return recorder().disable(kind); });
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId function, uint8_t enable) {
  return call([&] { return recorder().enable_call(function, enable != 0); });
}
// There are no records of the runtime's functions to switch.
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId, uint8_t) { return CUPTI_SUCCESS; }

// The older function is about one stream's buffer. All have one.
CUptiResult cuptiActivityFlush(CUcontext, uint32_t, uint32_t) {
  return call([] { return recorder().flush(); });
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
  return call([] { return recorder().flush(); });
}
// A full buffer is handed over at once, and CUPTI's periodic flush is about full ones.
CUptiResult cuptiActivityFlushPeriod(uint32_t) { return CUPTI_SUCCESS; }

CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t validBufferSizeBytes,
                                       CUpti_Activity** record) {
  // The end of a buffer is no failure to remember.
  return next_record(buffer, validBufferSizeBytes, record);
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  return call([&] {
    return dropped == nullptr ? CUPTI_ERROR_INVALID_PARAMETER
                              : give(size_t{recorder().take_dropped()}, dropped);
  });
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute which, size_t* bytes, void* value) {
  return call([&] {
    return with_attribute(which, bytes, value, [&](Attribute& attribute) {
      attribute.value = 0;
      memcpy(&attribute.value, value, attribute.bytes);
    });
  });
}
CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute which, size_t* bytes, void* value) {
  return call([&] {
    return with_attribute(which, bytes, value, [&](const Attribute& attribute) {
      memcpy(value, &attribute.value, attribute.bytes);
      *bytes = attribute.bytes;
    });
  });
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                   uint64_t id) {
  return call([&] { return push_external_id(kind, id); });
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t* last) {
  return call([&] { return pop_external_id(kind, last); });
}

CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  return call([&] {
    if (type >= CUPTI_ACTIVITY_THREAD_ID_TYPE_SIZE) return CUPTI_ERROR_INVALID_PARAMETER;
    recorder().set_thread_ids(type);
    return CUPTI_SUCCESS;
  });
}
CUptiResult cuptiGetThreadIdType(CUpti_ActivityThreadIdType* type) {
  return call([&] { return give(recorder().thread_ids(), type); });
}

CUptiResult cuptiActivityConfigureUnifiedMemoryCounter(void*, uint32_t) {
  return call([] { return CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED; });
}
CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t enable) { return only_off(enable); }
CUptiResult cuptiActivityEnableLaunchAttributes(uint8_t enable) { return only_off(enable); }
CUptiResult cuptiActivityEnableDeviceGraph(uint8_t enable) { return only_off(enable); }
CUptiResult cuptiActivityEnableHWTrace(uint8_t enable) { return only_off(enable); }
CUptiResult cuptiActivityEnableAllocationSource(uint8_t enable) { return only_off(enable); }
CUptiResult cuptiActivityEnableAllSyncRecords(uint8_t enable) { return only_off(enable); }
CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable) {
  return only_off(enable);
}

CUptiResult cuptiFinalize() {
  return call([] {
    forget_subscriber();
    return recorder().finalize();
  });
}

}  // extern "C"
#pragma GCC visibility pop
