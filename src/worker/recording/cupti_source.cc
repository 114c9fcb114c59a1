// SPDX-License-Identifier: Apache-2.0
// See cupti_source.h.
#include "worker/recording/cupti_source.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "worker/device/log.h"

namespace openmps::worker {

struct CuptiFunctions {
  cuptiActivityEnable_t enable;
  cuptiActivityDisable_t disable;
  CUptiResult (*subscribe)(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                           void* userdata);
  CUptiResult (*unsubscribe)(CUpti_SubscriberHandle subscriber);
  CUptiResult (*enable_callback)(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                 CUpti_CallbackDomain domain, CUpti_CallbackId function);
  cuptiActivityRegisterCallbacks_t register_callbacks;
  cuptiActivityFlushAll_t flush_all;
  cuptiActivityGetNextRecord_t next_record;
  cuptiActivityGetNumDroppedRecords_t dropped;
  cuptiActivityRegisterTimestampCallback_t register_clock;
  cuptiGetResultString_t result_string;
  cuptiFinalize_t finalize;
};

namespace {

// Some 20,000 kernels: a full one comes back by itself, without being asked for.
constexpr size_t kBufferBytes = 4u << 20;
// CUPTI's buffers are aligned like the largest member of a record.
constexpr size_t kBufferAlignment = 8;

// cuptiFinalize() ends some time after it has returned, and until then nothing can be started.
constexpr int kMostStarts = 50;
constexpr auto kStartPause = std::chrono::milliseconds(20);

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

// The functions by which the worker gives work, by their numbers in cupti_driver_cbid.h.
constexpr CUpti_CallbackId kGiving[] = {
    307, 652, 514,                // cuLaunchKernel, cuLaunchKernelEx, cuGraphLaunch
    306, 319, 291, 321,           // cuMemcpyAsync, Peer; cuMemcpy3DAsync_v2, Peer
    216, 218, 220, 222, 224, 226  // cuMemsetD8Async, D16, D32, D2D8, D2D16, D2D32
};

// What a callback of a call points to (cupti_callbacks.h: CUpti_CallbackData).
struct CallData {
  uint32_t site;  // 0: the call begins
  const char* function_name;
  const void* parameters;
  void* result;
  const char* symbol_name;
  CUcontext context;
  uint32_t context_number;
  uint64_t* own_data;
  uint32_t correlation;
};

// The functions for buffers have no argument for an owner.
std::atomic<CuptiSource*> the_source{nullptr};

void on_buffer_wanted(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

uint64_t clock_ns() { return now_ns(); }

template <typename F>
bool find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

bool find_all(void* library, CuptiFunctions* f) {
  return find(library, "cuptiActivityEnable", &f->enable) &&
         find(library, "cuptiActivityDisable", &f->disable) &&
         find(library, "cuptiSubscribe", &f->subscribe) &&
         find(library, "cuptiUnsubscribe", &f->unsubscribe) &&
         find(library, "cuptiEnableCallback", &f->enable_callback) &&
         find(library, "cuptiActivityRegisterCallbacks", &f->register_callbacks) &&
         find(library, "cuptiActivityFlushAll", &f->flush_all) &&
         find(library, "cuptiActivityGetNextRecord", &f->next_record) &&
         find(library, "cuptiActivityGetNumDroppedRecords", &f->dropped) &&
         find(library, "cuptiActivityRegisterTimestampCallback", &f->register_clock) &&
         find(library, "cuptiGetResultString", &f->result_string) &&
         find(library, "cuptiFinalize", &f->finalize);
}

// What all records have. The layouts are prefixes of those of all CUPTIs since CUDA 12.0
// (cupti/abi.h).
template <typename Record>
cupti::Activity activity_of(cupti::ActivityKind kind, const Record& record, uint32_t device) {
  return {.kind = kind,
          .device = device,
          .stream = record.streamId,
          .correlation = record.correlationId,
          .graph = record.graphId,
          .graph_node = record.graphNodeId,
          .begin_ns = record.start,
          .end_ns = record.end};
}

cupti::Activity activity_of(const CUpti_ActivityKernel10& kernel) {
  cupti::Activity activity = activity_of(cupti::ActivityKind::kKernel, kernel, kernel.deviceId);
  const int32_t grid[] = {kernel.gridX, kernel.gridY, kernel.gridZ};
  const int32_t block[] = {kernel.blockX, kernel.blockY, kernel.blockZ};
  for (int i = 0; i < 3; ++i) {
    activity.grid[i] = static_cast<uint32_t>(grid[i]);
    activity.block[i] = static_cast<uint32_t>(block[i]);
  }
  activity.registers = kernel.registersPerThread;
  activity.static_shared_bytes = static_cast<uint32_t>(kernel.staticSharedMemory);
  activity.dynamic_shared_bytes = static_cast<uint32_t>(kernel.dynamicSharedMemory);
  activity.local_bytes = kernel.localMemoryPerThread;
  return activity;
}

cupti::Activity activity_of(const CUpti_ActivityMemcpy6& copy) {
  cupti::Activity activity = activity_of(cupti::ActivityKind::kCopy, copy, copy.deviceId);
  activity.bytes = copy.bytes;
  activity.from = static_cast<cupti::MemoryKind>(copy.srcKind);
  activity.to = static_cast<cupti::MemoryKind>(copy.dstKind);
  return activity;
}

cupti::Activity activity_of(const CUpti_ActivityMemcpyPtoP4& copy) {
  cupti::Activity activity = activity_of(cupti::ActivityKind::kCopy, copy, copy.srcDeviceId);
  activity.bytes = copy.bytes;
  activity.from = activity.to = cupti::MemoryKind::kDevice;
  activity.is_peer = 1;
  activity.peer = copy.dstDeviceId;
  return activity;
}

cupti::Activity activity_of(const CUpti_ActivityMemset4& fill) {
  cupti::Activity activity = activity_of(cupti::ActivityKind::kFill, fill, fill.deviceId);
  activity.bytes = fill.bytes;
  activity.value = fill.value;
  activity.to = static_cast<cupti::MemoryKind>(fill.memoryKind);
  return activity;
}

template <typename Record>
cupti::Activity read_as(const CUpti_Activity* record) {
  return activity_of(*reinterpret_cast<const Record*>(record));
}

}  // namespace

CuptiSource::CuptiSource(std::vector<std::string> places) : places_(std::move(places)) {
  the_source.store(this, std::memory_order_release);
}

CuptiSource::~CuptiSource() { the_source.store(nullptr, std::memory_order_release); }

Status CuptiSource::load() {
  if (functions_ != nullptr) return Status();
  std::string tried;
  for (const std::string& place : places_) {
    tried += (tried.empty() ? "" : ", ") + place;
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);  // for good
    if (library == nullptr) continue;
    static CuptiFunctions functions;
    if (!find_all(library, &functions)) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, place + " is no CUPTI, or one before CUDA 12.0");
    }
    functions_ = &functions;
    log("Recording by " + place);
    return Status();
  }
  return Status(CUDA_ERROR_NOT_SUPPORTED,
                "there is no CUPTI, a part of the CUDA toolkit (tried " + tried +
                    "); OPENMPS_CUPTI in the daemon's environment says where it is");
}

Status CuptiSource::attach() {
  const CuptiFunctions& cupti = *functions_;
  const auto failed = [&](const char* what, CUptiResult result) {
    const char* name = nullptr;
    cupti.result_string(result, &name);
    return Status(CUDA_ERROR_NOT_SUPPORTED,
                  std::string(what) + ": " + (name != nullptr ? name : std::to_string(result)));
  };
  CUptiResult set = cupti.subscribe(&subscriber_, on_call, this);
  for (int i = 1; set == CUPTI_ERROR_NOT_INITIALIZED && i < kMostStarts; ++i) {
    std::this_thread::sleep_for(kStartPause);
    set = cupti.subscribe(&subscriber_, on_call, this);
  }
  if (set != CUPTI_SUCCESS) return failed("cuptiSubscribe", set);
  for (const CUpti_CallbackId function : kGiving) {
    set = cupti.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, function);
    if (set != CUPTI_SUCCESS) return failed("cuptiEnableCallback", set);
  }
  set = cupti.register_clock(clock_ns);
  if (set != CUPTI_SUCCESS) return failed("cuptiActivityRegisterTimestampCallback", set);
  set = cupti.register_callbacks(on_buffer_wanted, on_buffer_full);
  if (set != CUPTI_SUCCESS) return failed("cuptiActivityRegisterCallbacks", set);
  for (const CUpti_ActivityKind kind : kKinds) {
    set = cupti.enable(kind);
    if (set != CUPTI_SUCCESS) return failed("cuptiActivityEnable", set);
  }
  return Status();
}

void CuptiSource::detach() {
  const CuptiFunctions& cupti = *functions_;
  for (const CUpti_ActivityKind kind : kKinds) cupti.disable(kind);
  cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  if (subscriber_ != nullptr) cupti.unsubscribe(std::exchange(subscriber_, nullptr));
  listener_.store(nullptr, std::memory_order_release);
  if (const CUptiResult ended = cupti.finalize(); ended != CUPTI_SUCCESS) {
    log("cuptiFinalize: CUPTI error " + std::to_string(ended) +
        "; launches stay slower until the next worker");
  }
}

Status CuptiSource::start(Listener& listener) {
  OPENMPS_RETURN_IF_ERROR(load());
  if (calls_ == nullptr) calls_ = std::make_unique<RecordedCalls>();
  lost_ = 0;
  listener_.store(&listener, std::memory_order_release);
  Status status = attach();
  if (!status.ok()) detach();
  return status;
}

void CuptiSource::stop() {
  detach();
  calls_.reset();
}

void CuptiSource::flush(Flush how) {
  functions_->flush_all(how == Flush::kAll ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
                                           : CUPTI_ACTIVITY_FLAG_NONE);
}

void CuptiSource::on_call(void* self, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  constexpr uint32_t kBegins = 0;
  const auto& call = *static_cast<const CallData*>(data);
  if (call.site != kBegins || current_work.session == 0) return;
  static_cast<CuptiSource*>(self)->calls_->note(call.correlation);
}

void CuptiSource::on_buffer_full(CUcontext context, uint32_t stream, uint8_t* buffer, size_t,
                                 size_t used) {
  CuptiSource* const self = the_source.load(std::memory_order_acquire);
  if (self != nullptr && buffer != nullptr) {
    size_t dropped = 0;
    self->functions_->dropped(context, stream, &dropped);
    self->lost_.fetch_add(dropped, std::memory_order_relaxed);
    try {
      self->read(buffer, used);
    } catch (const std::bad_alloc&) {  // CUPTI's code knows no exceptions
      self->lost_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  free(buffer);
}

void CuptiSource::read(uint8_t* buffer, size_t bytes) {
  Listener* const listener = listener_.load(std::memory_order_acquire);
  if (listener == nullptr) return;
  std::vector<Ended> found;
  // A call begins before its work ends. What has not ended has no time.
  const auto take = [&](const cupti::Activity& activity, const char* name) {
    GivenWork work;
    if (activity.end_ns != 0 && calls_->find(activity.correlation, &work)) {
      found.push_back({work, activity, name});
    }
  };
  for (CUpti_Activity* record = nullptr;
       functions_->next_record(buffer, bytes, &record) == CUPTI_SUCCESS;) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      case CUPTI_ACTIVITY_KIND_KERNEL:
        take(read_as<CUpti_ActivityKernel10>(record),
             reinterpret_cast<const CUpti_ActivityKernel10*>(record)->name);
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY: take(read_as<CUpti_ActivityMemcpy6>(record), nullptr); break;
      case CUPTI_ACTIVITY_KIND_MEMCPY2:
        take(read_as<CUpti_ActivityMemcpyPtoP4>(record), nullptr);
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET: take(read_as<CUpti_ActivityMemset4>(record), nullptr); break;
      default: break;
    }
  }
  if (!found.empty()) listener->take(found);
}

}  // namespace openmps::worker
