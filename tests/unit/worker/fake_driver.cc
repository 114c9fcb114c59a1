// SPDX-License-Identifier: Apache-2.0
// The worker's test driver. See fake_driver.h.
#include "fake_driver.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "wire/layout.h"

namespace openmps::worker {
namespace {

FakeDriver* g_driver = nullptr;

template <typename Handle>
uint64_t number(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}
template <typename Handle>
Handle handle(uint64_t value) {
  return reinterpret_cast<Handle>(value);
}
std::string name(const char* letter, uint64_t value) { return letter + std::to_string(value); }

// The primary context, and the one that can be made beside it. What is made in the other one has
// its mark, by which calls that mix the two are refused, as NVIDIA's driver does.
constexpr uint64_t kMainContext = 0xc0;
constexpr uint64_t kOtherContext = 0xc1;
constexpr uint64_t kOtherMark = 0x1000'0000;
thread_local uint64_t g_current = kMainContext;
// The kernel node that was added last had its parameters all at once.
thread_local bool g_packed_node = false;
thread_local std::vector<uint64_t> g_pushed;

template <typename Function>
uint64_t context_of(Function function) {
  return (number(function) & kOtherMark) != 0 ? kOtherContext : kMainContext;
}
std::map<int, size_t>& current_limits() {
  FakeDriver& driver = FakeDriver::current();
  return g_current == kOtherContext ? driver.other_limits : driver.limits;
}
std::string in_context(uint64_t context) { return context == kOtherContext ? " cold" : ""; }

CUresult call(const std::string& call_name, const std::string& text = "") {
  return FakeDriver::current().call(call_name, text);
}

// A call that makes an object and gives it out by `out`.
template <typename Handle>
CUresult create(const char* call_name, const char* kind, Handle* out) {
  if (CUresult error = call(call_name)) return error;
  *out = handle<Handle>(FakeDriver::current().make(kind));
  return CUDA_SUCCESS;
}
template <typename Handle>
CUresult destroy(const char* call_name, const char* kind, Handle object) {
  if (!FakeDriver::current().drop(kind, number(object))) return CUDA_ERROR_INVALID_HANDLE;
  return call(call_name);
}
CUresult submit(const char* call_name, const std::string& text, CUstream stream,
                std::function<bool()> operation) {
  if (!FakeDriver::current().exists("streams", number(stream))) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult error = call(call_name, text)) return error;
  FakeDriver::current().push(number(stream), std::move(operation));
  return CUDA_SUCCESS;
}
const auto kNothing = [] { return true; };

// A name that has "missing" in it is in no module.
bool missing(const char* symbol) { return strstr(symbol, "missing") != nullptr; }

void fill_devices(DriverTable& t) {
  t.cuInit = [](unsigned) { return CUDA_SUCCESS; };
  t.cuDriverGetVersion = [](int* version) { return *version = 13000, CUDA_SUCCESS; };
  t.cuDeviceGetCount = [](int* count) {
    return *count = FakeDriver::current().devices, CUDA_SUCCESS;
  };
  t.cuDeviceGet = [](CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; };
  t.cuDeviceGetName = [](char* text, int bytes, CUdevice) {
    return strncpy(text, "Fake GPU", static_cast<size_t>(bytes)), CUDA_SUCCESS;
  };
  t.cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice) {
    return memset(uuid, 7, sizeof(*uuid)), CUDA_SUCCESS;
  };
  t.cuDeviceGetPCIBusId = [](char* text, int bytes, CUdevice) {
    return strncpy(text, "0000:00:06.0", static_cast<size_t>(bytes)), CUDA_SUCCESS;
  };
  t.cuDeviceTotalMem_v2 = [](size_t* bytes, CUdevice) {
    return *bytes = kFakeTotalMemory, CUDA_SUCCESS;
  };
  t.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    if (attribute == 0 || attribute > 150) return CUDA_ERROR_INVALID_VALUE;
    const bool counts_sms = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    return *value = counts_sms ? static_cast<int>(FakeDriver::current().sms) : 1, CUDA_SUCCESS;
  };
  t.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    return *context = handle<CUcontext>(kMainContext), CUDA_SUCCESS;
  };
  t.cuCtxSetCurrent = [](CUcontext context) {
    if (CUresult error = FakeDriver::current().poisoned()) return error;
    return g_current = number(context), CUDA_SUCCESS;
  };
  t.cuCtxGetCurrent = [](CUcontext* context) {
    return *context = handle<CUcontext>(g_current), CUDA_SUCCESS;
  };
  // The other one.
  t.cuCtxCreate_v2 = [](CUcontext* context, unsigned, CUdevice) {
    if (CUresult error = call("context")) return error;
    g_pushed.push_back(g_current);
    return *context = handle<CUcontext>(g_current = kOtherContext), CUDA_SUCCESS;
  };
  t.cuCtxDestroy_v2 = [](CUcontext) { return call("destroy context"); };
  t.cuCtxPushCurrent_v2 = [](CUcontext context) {
    g_pushed.push_back(g_current);
    return g_current = number(context), CUDA_SUCCESS;
  };
  t.cuCtxPopCurrent_v2 = [](CUcontext* context) {
    *context = handle<CUcontext>(g_current);
    g_current = g_pushed.back();
    return g_pushed.pop_back(), CUDA_SUCCESS;
  };
  t.cuCtxGetLimit = [](size_t* value, CUlimit limit) {
    const auto& limits = current_limits();
    const auto found = limits.find(limit);
    if (found == limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    return *value = found->second, CUDA_SUCCESS;
  };
  t.cuCtxSetLimit = [](CUlimit limit, size_t value) {
    if (CUresult error = call("limit", "limit " + std::to_string(limit))) return error;
    return current_limits()[limit] = value, CUDA_SUCCESS;
  };
  t.cuCtxGetStreamPriorityRange = [](int* least, int* greatest) {
    return *least = 0, *greatest = -5, CUDA_SUCCESS;
  };
  t.cuMemGetAllocationGranularity = [](size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
    return *bytes = 2u << 20, CUDA_SUCCESS;
  };
  t.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
}

// A word in host memory, or what stands for one in the device's.
void* word_at(CUdeviceptr address) {
  auto& words = FakeDriver::current().words;
  const auto word = words.find(address);
  return word == words.end() ? reinterpret_cast<void*>(address) : &word->second;
}
std::atomic<uint32_t>* narrow(CUdeviceptr address) {
  return static_cast<std::atomic<uint32_t>*>(word_at(address));
}
std::atomic<uint64_t>* wide(CUdeviceptr address) {
  return static_cast<std::atomic<uint64_t>*>(word_at(address));
}

// Of a batch. False: it waits.
bool operate(const CUstreamBatchMemOpParams& operation) {
  const auto& write = operation.writeValue;
  const auto& wait = operation.waitValue;
  const bool equal = wait.flags == CU_STREAM_WAIT_VALUE_EQ;
  const auto met = [equal](auto now, auto value) { return equal ? now == value : now >= value; };
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32: narrow(write.address)->store(write.value); return true;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: wide(write.address)->store(write.value64); return true;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32: return met(narrow(wait.address)->load(), wait.value);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: return met(wide(wait.address)->load(), wait.value64);
    default: return true;
  }
}

void fill_streams(DriverTable& t) {
  t.cuStreamCreateWithPriority = [](CUstream* stream, unsigned flags, int priority) {
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = call("stream", "stream " + std::to_string(priority))) return error;
    return *stream = handle<CUstream>(FakeDriver::current().make("streams")), CUDA_SUCCESS;
  };
  t.cuStreamDestroy_v2 = [](CUstream s) { return destroy("destroy stream", "streams", s); };
  t.cuStreamQuery = [](CUstream s) {
    if (CUresult error = FakeDriver::current().poisoned()) return error;
    if (!FakeDriver::current().exists("streams", number(s))) return CUDA_ERROR_INVALID_HANDLE;
    if (FakeDriver::current().idle(number(s))) return CUDA_SUCCESS;
    if (const auto f = std::exchange(FakeDriver::current().after_query, nullptr)) f();
    return CUDA_ERROR_NOT_READY;
  };
  t.cuEventCreate = [](CUevent* e, unsigned) { return create("event", "events", e); };
  t.cuEventDestroy_v2 = [](CUevent e) { return destroy("destroy event", "events", e); };
  t.cuEventRecord = [](CUevent e, CUstream s) {
    FakeDriver& driver = FakeDriver::current();
    if (driver.context_of("events", number(e)) != driver.context_of("streams", number(s))) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    const uint64_t record = FakeDriver::current().begin_record(number(e));
    return submit("record", "record " + name("e", number(e)) + " " + name("s", number(s)), s,
                  [=] { return FakeDriver::current().end_record(number(e), record), true; });
  };
  t.cuEventQuery = [](CUevent e) {
    if (CUresult error = FakeDriver::current().poisoned()) return error;
    if (!FakeDriver::current().exists("events", number(e))) return CUDA_ERROR_INVALID_HANDLE;
    if (FakeDriver::current().reached(number(e))) return CUDA_SUCCESS;
    if (const auto f = std::exchange(FakeDriver::current().after_query, nullptr)) f();
    return CUDA_ERROR_NOT_READY;
  };
  // Only of what has been reached.
  t.cuEventSynchronize = [](CUevent) { return CUDA_SUCCESS; };
  t.cuEventElapsedTime = [](float* ms, CUevent, CUevent) { return *ms = 1.5f, CUDA_SUCCESS; };
  t.cuStreamWaitEvent = [](CUstream s, CUevent e, unsigned) {
    return submit("wait", "wait " + name("s", number(s)) + " " + name("e", number(e)), s,
                  FakeDriver::current().wait_for(number(e)));
  };
  t.cuLaunchHostFunc = [](CUstream s, CUhostFn function, void* data) {
    return submit("host", "host " + name("s", number(s)), s, [=] { return function(data), true; });
  };
  t.cuStreamWriteValue64_v2 = [](CUstream s, CUdeviceptr at, cuuint64_t value, unsigned) {
    return submit("write", "write " + name("s", number(s)) + " " + std::to_string(value), s,
                  [=] { return wide(at)->store(value), true; });
  };
  t.cuStreamWriteValue32_v2 = [](CUstream s, CUdeviceptr at, cuuint32_t value, unsigned) {
    return submit("write", "write " + name("s", number(s)) + " " + std::to_string(value), s,
                  [=] { return narrow(at)->store(value), true; });
  };
  t.cuStreamBatchMemOp_v2 = [](CUstream s, unsigned count, CUstreamBatchMemOpParams* batch,
                               unsigned) {
    FakeDriver::current().last_batch.assign(batch, batch + count);
    return submit("batch", "batch of " + std::to_string(count) + " " + name("s", number(s)), s,
                  [todo = std::vector(batch, batch + count)]() mutable {
                    while (!todo.empty() && operate(todo.front())) todo.erase(todo.begin());
                    return todo.empty();
                  });
  };
  t.cuStreamWaitValue64_v2 = [](CUstream s, CUdeviceptr at, cuuint64_t value, unsigned) {
    return submit("await", "await " + name("s", number(s)), s,
                  [=] { return wide(at)->load() >= value; });
  };
  t.cuStreamWaitValue32_v2 = [](CUstream s, CUdeviceptr at, cuuint32_t value, unsigned flags) {
    return submit("await", "await " + name("s", number(s)), s, [=] {
      const uint32_t now = narrow(at)->load();
      return flags == CU_STREAM_WAIT_VALUE_EQ ? now == value : now >= value;
    });
  };
}

// SMs from `first` on.
CUdevResource fake_resource(unsigned first, unsigned count) {
  CUdevResource resource{};
  resource.type = count == 0 ? CU_DEV_RESOURCE_TYPE_INVALID : CU_DEV_RESOURCE_TYPE_SM;
  resource._internal_padding[0] = static_cast<unsigned char>(first);
  resource.sm = {count, FakeDriver::current().sm_step, FakeDriver::current().sm_step};
  return resource;
}

void fill_green(DriverTable& t) {
  t.cuDeviceGetDevResource = [](CUdevice, CUdevResource* resource, CUdevResourceType type) {
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    return *resource = fake_resource(0, FakeDriver::current().sms), call("resource");
  };
  t.cuGreenCtxGetDevResource = [](CUgreenCtx green, CUdevResource* resource,
                                  CUdevResourceType type) {
    if (!FakeDriver::current().exists("greens", number(green))) return CUDA_ERROR_INVALID_CONTEXT;
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = fake_resource(0, FakeDriver::current().green_sms[number(green)]);
    resource->_internal_padding[1] = static_cast<unsigned char>(number(green));
    return call("resource");
  };
  t.cuDevSmResourceSplitByCount = [](CUdevResource* result, unsigned* count,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned flags, unsigned wanted) {
    if (CUresult error = call("split")) return error;
    const FakeDriver& fake = FakeDriver::current();
    const unsigned sms = input->sm.smCount, step = fake.sm_step;
    const unsigned group = (wanted + step - 1) / step * step, first = input->_internal_padding[0];
    if (flags != 0 || group == 0 || group > sms) return CUDA_ERROR_INVALID_VALUE;
    // Those in no group are found out when the whole device is split into many.
    const unsigned most = (group == step ? sms - fake.ungrouped_sms : sms) / group;
    *count = result == nullptr || *count > most ? most : *count;
    for (unsigned i = 0; result != nullptr && i < *count; ++i) {
      result[i] = fake_resource(first + i * group, group);
    }
    if (remaining != nullptr) {
      *remaining = fake_resource(first + *count * group, sms - *count * group);
    }
    return CUDA_SUCCESS;
  };
  t.cuDevResourceGenerateDesc = [](CUdevResourceDesc* made, CUdevResource* of, unsigned count) {
    unsigned sms = 0;
    for (unsigned i = 0; i < count; ++i) sms += of[i].sm.smCount;
    *made = handle<CUdevResourceDesc>(sms);
    return call("describe");
  };
  t.cuGreenCtxCreate = [](CUgreenCtx* green, CUdevResourceDesc of, CUdevice, unsigned flags) {
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    const CUresult made = create("green", "greens", green);
    if (made == CUDA_SUCCESS) {
      FakeDriver::current().green_sms[number(*green)] = static_cast<unsigned>(number(of));
    }
    return made;
  };
  t.cuCtxFromGreenCtx = [](CUcontext* context, CUgreenCtx green) {
    return *context = handle<CUcontext>(kFakeGreenContexts + number(green)), CUDA_SUCCESS;
  };
  t.cuGreenCtxDestroy = [](CUgreenCtx green) {
    FakeDriver::current().must_be_unused(number(green));
    return destroy("destroy green", "greens", green);
  };
  t.cuGreenCtxStreamCreate = [](CUstream* stream, CUgreenCtx green, unsigned flags, int) {
    if (!FakeDriver::current().exists("greens", number(green))) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = call("stream", "stream in " + name("g", number(green)))) return error;
    *stream = handle<CUstream>(FakeDriver::current().make("streams"));
    FakeDriver::current().put_in_green(number(*stream), number(green));
    return CUDA_SUCCESS;
  };
}

bool is_cold_global(CUdeviceptr address) {
  return address >= kFakeColdGlobal && address < kFakeColdGlobal + kFakeGlobalBytes;
}

CUresult fill(CUdeviceptr to, const std::string& what, const std::string& size, CUstream s) {
  const uint64_t context = FakeDriver::current().context_of("streams", number(s));
  if (is_cold_global(to) && context != kOtherContext) return CUDA_ERROR_INVALID_VALUE;
  return submit("fill", what + name("s", number(s)) + size, s, kNothing);
}

void fill_memory(DriverTable& t) {
  t.cuMemHostRegister_v2 = [](void*, size_t, unsigned) {
    if (CUresult error = call("register")) return error;
    FakeDriver::current().make("registrations");
    return CUDA_SUCCESS;
  };
  t.cuMemHostUnregister = [](void*) {
    return FakeDriver::current().drop("registrations", 0) ? call("unregister")
                                                          : CUDA_ERROR_INVALID_VALUE;
  };
  t.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* device, void* host, unsigned) {
    return *device = reinterpret_cast<CUdeviceptr>(host), CUDA_SUCCESS;
  };
  t.cuMemAddressReserve = [](CUdeviceptr* got, size_t, size_t, CUdeviceptr wanted,
                             unsigned long long) {
    if (CUresult error = call("reserve")) return error;
    FakeDriver::current().make("reservations");
    uint32_t& holes = FakeDriver::current().holes;
    return *got = holes == 0 ? wanted : wanted + (uint64_t{holes--} << 40), CUDA_SUCCESS;
  };
  t.cuMemAddressFree = [](CUdeviceptr, size_t) {
    return FakeDriver::current().drop("reservations", 0) ? call("free addresses")
                                                         : CUDA_ERROR_INVALID_VALUE;
  };
  t.cuMemCreate = [](CUmemGenericAllocationHandle* physical, size_t bytes,
                     const CUmemAllocationProp* prop, unsigned long long) {
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool rdma = prop->allocFlags.gpuDirectRDMACapable != 0;
    if (CUresult error = call("create", rdma ? "create rdma" : "create")) return error;
    if (!FakeDriver::current().add_physical(static_cast<int64_t>(bytes))) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return *physical = FakeDriver::current().make("physical"), CUDA_SUCCESS;
  };
  t.cuMemRelease = [](CUmemGenericAllocationHandle physical) {
    return FakeDriver::current().drop("physical", physical) ? call("release")
                                                            : CUDA_ERROR_INVALID_VALUE;
  };
  // A descriptor of it is any; importing one makes another reference.
  t.cuMemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle physical,
                                      CUmemAllocationHandleType, unsigned long long) {
    if (!FakeDriver::current().exists("physical", physical)) return CUDA_ERROR_INVALID_VALUE;
    const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    memcpy(out, &descriptor, sizeof(descriptor));
    return call("export");
  };
  t.cuMemGetHandleForAddressRange = [](void* out, CUdeviceptr, size_t bytes, CUmemRangeHandleType,
                                       unsigned long long flags) {
    const std::string text = "dma-buf " + std::to_string(bytes) + " " + std::to_string(flags);
    if (CUresult error = call("dma-buf", text)) return error;
    const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return memcpy(out, &descriptor, sizeof(descriptor)), CUDA_SUCCESS;
  };
  t.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* physical, void*,
                                        CUmemAllocationHandleType) {
    if (CUresult error = call("import")) return error;
    return *physical = FakeDriver::current().make("physical"), CUDA_SUCCESS;
  };
  t.cuMemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle) {
    *prop = CUmemAllocationProp{};
    return CUDA_SUCCESS;
  };
  t.cuMemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
    if (CUresult error = call("map")) return error;
    FakeDriver::current().make("mappings");
    return CUDA_SUCCESS;
  };
  t.cuMemUnmap = [](CUdeviceptr, size_t bytes) {
    FakeDriver::current().add_physical(-static_cast<int64_t>(bytes));
    return FakeDriver::current().drop("mappings", 0) ? call("unmap") : CUDA_ERROR_INVALID_VALUE;
  };
  t.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return call("access");
  };
  t.cuMemGetAccess = [](unsigned long long* flags, const CUmemLocation*, CUdeviceptr) {
    return *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS;
  };
  t.cuMemGetInfo_v2 = [](size_t* free, size_t* total) {
    *total = kFakeTotalMemory;
    *free = kFakeTotalMemory - FakeDriver::current().physical_bytes();
    return CUDA_SUCCESS;
  };
  t.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    return submit("copy", "copy " + name("s", number(s)) + " " + std::to_string(bytes), s, [=] {
      void* word = word_at(from);
      if (word != reinterpret_cast<void*>(from)) memcpy(reinterpret_cast<void*>(to), word, bytes);
      return true;
    });
  };
  t.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t bytes, CUstream s) {
    return submit("to host", "to host " + std::to_string(bytes), s, kNothing);
  };
  t.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t bytes, CUstream s) {
    return submit("to device", "to device " + std::to_string(bytes), s, kNothing);
  };
  t.cuMemcpy3DAsync_v2 = [](const CUDA_MEMCPY3D*, CUstream s) {
    return submit("copy", "copy3d " + name("s", number(s)), s, kNothing);
  };
  t.cuMemsetD8Async = [](CUdeviceptr to, unsigned char, size_t n, CUstream s) {
    return fill(to, "fill8 ", " " + std::to_string(n), s);
  };
  t.cuMemsetD16Async = [](CUdeviceptr to, unsigned short, size_t n, CUstream s) {
    return fill(to, "fill16 ", " " + std::to_string(n), s);
  };
  t.cuMemsetD32Async = [](CUdeviceptr to, unsigned, size_t n, CUstream s) {
    return fill(to, "fill32 ", " " + std::to_string(n), s);
  };
  t.cuMemsetD2D8Async = [](CUdeviceptr to, size_t, unsigned char, size_t, size_t, CUstream s) {
    return fill(to, "fill2d ", "", s);
  };
  t.cuMemsetD2D16Async = [](CUdeviceptr to, size_t, unsigned short, size_t, size_t, CUstream s) {
    return fill(to, "fill2d ", "", s);
  };
  t.cuMemsetD2D32Async = [](CUdeviceptr to, size_t, unsigned, size_t, size_t, CUstream s) {
    return fill(to, "fill2d ", "", s);
  };
}

// The text in each container that a wrapper with a list names: of the linked code, then of the
// inputs. Containers of one entry, with headers of 16 bytes.
std::string contents_of(const void* wrapper) {
  struct {
    uint32_t magic, version;
    const char* linked;
    const char* const* inputs;
  } seen{};
  memcpy(&seen, wrapper, sizeof(seen));
  const auto text = [](const char* container) {
    uint64_t bytes = 0;
    memcpy(&bytes, container + 24, sizeof(bytes));
    return " " + std::string(container + 16 + 64, bytes);
  };
  std::string all = text(seen.linked);
  for (; *seen.inputs != nullptr; ++seen.inputs) all += text(*seen.inputs);
  return all;
}

// An image is any bytes; one that begins with "bad" is refused with a log.
CUresult load(const void* image, unsigned count, CUjit_option* options, void** values) {
  constexpr uint32_t kWrapperMagic = 0x466243b1;
  if (memcmp(image, &kWrapperMagic, sizeof(kWrapperMagic)) == 0) {
    return call("load", "load" + contents_of(image));
  }
  if (memcmp(image, "bad", 3) != 0) return call("load");
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) strcpy(static_cast<char*>(values[i]), "line 1: bad");
  }
  return CUDA_ERROR_INVALID_PTX;
}

CUresult parameter(size_t index, size_t* offset, size_t* bytes) {
  if (index > 1) return CUDA_ERROR_INVALID_VALUE;
  *offset = 8 * index;
  *bytes = 8;
  return CUDA_SUCCESS;
}

CUresult function_name(const char** name, uint64_t function) {
  static const std::string kNames[] = {std::string(wire::kMaxReplyBytes / 2, 'a'),
                                       std::string(wire::kMaxReplyBytes / 2 - 18, 'b'), "c", "d"};
  *name = kNames[function - 1].c_str();
  return CUDA_SUCCESS;
}

// Beside the numbers of kernels.
constexpr uint64_t kLibraryCode = 0x10'0000;

CUresult find_global(CUdeviceptr* address, size_t* bytes) {
  *address = g_current == kOtherContext ? kFakeColdGlobal : kFakeGlobal;
  return *bytes = kFakeGlobalBytes, CUDA_SUCCESS;
}

void fill_modules(DriverTable& t) {
  t.cuLibraryLoadData = [](CUlibrary* library, const void* image, CUjit_option* options,
                           void** values, unsigned count, CUlibraryOption*, void**, unsigned) {
    while (FakeDriver::current().hold_compiling) std::this_thread::yield();
    if (CUresult error = load(image, count, options, values)) return error;
    return *library = handle<CUlibrary>(FakeDriver::current().make("libraries")), CUDA_SUCCESS;
  };
  t.cuLibraryUnload = [](CUlibrary l) { return destroy("unload", "libraries", l); };
  t.cuLibraryGetModule = [](CUmodule* module, CUlibrary library) {
    if (!FakeDriver::current().exists("libraries", number(library))) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    FakeDriver::current().load_code(g_current, kLibraryCode + number(library));
    if (CUresult error = call("place", "place" + in_context(g_current))) return error;
    return *module = handle<CUmodule>(number(library)), CUDA_SUCCESS;
  };
  t.cuFuncLoad = [](CUfunction function) {
    return call("load function", "load function" + in_context(context_of(function)));
  };
  t.cuLinkCreate_v2 = [](unsigned, CUjit_option*, void**, CUlinkState* link) {
    if (CUresult error = call("link")) return error;
    return *link = handle<CUlinkState>(FakeDriver::current().make("links")), CUDA_SUCCESS;
  };
  t.cuLinkAddData_v2 = [](CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned,
                          CUjit_option*, void**) { return call("add"); };
  t.cuLinkDestroy = [](CUlinkState l) { return destroy("destroy link", "links", l); };
  t.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* symbol) {
    if (missing(symbol)) return CUDA_ERROR_NOT_FOUND;
    return *function = handle<CUfunction>(0xf1), CUDA_SUCCESS;
  };
  t.cuLibraryGetKernel = [](CUkernel* kernel, CUlibrary, const char* symbol) {
    if (missing(symbol)) return CUDA_ERROR_NOT_FOUND;
    // "ker3" is the third, "kern" the first; their names are in function_name().
    const char last = symbol[strlen(symbol) - 1];
    uint64_t named = last >= '1' && last <= '4' ? static_cast<uint64_t>(last - '0') : 1;
    if (last >= 'a' && last <= 'd') named = static_cast<uint64_t>(last - 'a') + 1;
    return *kernel = handle<CUkernel>(named), CUDA_SUCCESS;
  };
  t.cuKernelGetFunction = [](CUfunction* function, CUkernel kernel) {
    FakeDriver::current().load_code(g_current, number(kernel));
    const uint64_t mark = g_current == kOtherContext ? kOtherMark : 0;
    return *function = handle<CUfunction>(number(kernel) + mark), CUDA_SUCCESS;
  };
  t.cuModuleGetGlobal_v2 = [](CUdeviceptr* address, size_t* bytes, CUmodule, const char* symbol) {
    if (missing(symbol)) return CUDA_ERROR_NOT_FOUND;
    FakeDriver::current().global_is_managed = strcmp(symbol, "managed") == 0;
    return find_global(address, bytes);
  };
  t.cuPointerGetAttribute = [](void* value, CUpointer_attribute attribute, CUdeviceptr) {
    if (attribute != CU_POINTER_ATTRIBUTE_IS_MANAGED) return CUDA_ERROR_INVALID_VALUE;
    return *static_cast<int*>(value) = FakeDriver::current().global_is_managed, CUDA_SUCCESS;
  };
  t.cuLibraryGetGlobal = [](CUdeviceptr* address, size_t* bytes, CUlibrary, const char* symbol) {
    if (missing(symbol)) return CUDA_ERROR_NOT_FOUND;
    return find_global(address, bytes);
  };
  t.cuLibraryGetManaged = t.cuLibraryGetGlobal;
  t.cuModuleGetFunctionCount = [](unsigned* n, CUmodule) { return *n = 3, CUDA_SUCCESS; };
  t.cuLibraryGetKernelCount = [](unsigned* n, CUlibrary) { return *n = 4, CUDA_SUCCESS; };
  // Functions are numbers from 1 on, with names of which two fill a reply.
  t.cuModuleEnumerateFunctions = [](CUfunction* functions, unsigned n, CUmodule) {
    for (unsigned i = 0; i < n; ++i) functions[i] = handle<CUfunction>(i + 1);
    return CUDA_SUCCESS;
  };
  t.cuLibraryEnumerateKernels = [](CUkernel* kernels, unsigned n, CUlibrary) {
    for (unsigned i = 0; i < n; ++i) kernels[i] = handle<CUkernel>(i + 1);
    return CUDA_SUCCESS;
  };
  t.cuFuncGetName = [](const char** name, CUfunction f) { return function_name(name, number(f)); };
  t.cuKernelGetName = [](const char** name, CUkernel k) { return function_name(name, number(k)); };
  t.cuFuncGetAttribute = [](int* value, CUfunction_attribute name_of, CUfunction) {
    if (name_of == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) {
      return *value = FakeDriver::current().cluster_width, CUDA_SUCCESS;
    }
    return *value = 100 + static_cast<int>(name_of), CUDA_SUCCESS;
  };
  t.cuKernelGetAttribute = [](int* value, CUfunction_attribute name_of, CUkernel, CUdevice) {
    return *value = 200 + static_cast<int>(name_of), CUDA_SUCCESS;
  };
  t.cuFuncSetAttribute = [](CUfunction function, CUfunction_attribute name_of, int value) {
    return call("attribute", "attribute " + std::to_string(name_of) + "=" + std::to_string(value) +
                                 in_context(context_of(function)));
  };
  t.cuKernelSetAttribute = [](CUfunction_attribute, int, CUkernel, CUdevice) {
    return call("kernel attribute");
  };
  t.cuFuncSetCacheConfig = [](CUfunction, CUfunc_cache) { return call("cache"); };
  t.cuKernelSetCacheConfig = [](CUkernel, CUfunc_cache, CUdevice) { return call("kernel cache"); };
  t.cuFuncSetSharedMemConfig = [](CUfunction, CUsharedconfig) { return call("banks"); };
  t.cuFuncGetParamInfo = [](CUfunction, size_t i, size_t* offset, size_t* bytes) {
    return parameter(i, offset, bytes);
  };
  t.cuKernelGetParamInfo = [](CUkernel, size_t i, size_t* offset, size_t* bytes) {
    return parameter(i, offset, bytes);
  };
  t.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags =
      [](int* blocks, CUfunction, int, size_t, unsigned) { return *blocks = 5, CUDA_SUCCESS; };
  t.cuOccupancyMaxActiveClusters = [](int* clusters, CUfunction, const CUlaunchConfig* config) {
    *clusters = static_cast<int>(config->gridDimX / config->attrs[0].value.clusterDim.x);
    return CUDA_SUCCESS;
  };
  t.cuOccupancyMaxPotentialClusterSize = [](int* size, CUfunction, const CUlaunchConfig* config) {
    return *size = config->numAttrs == 0 ? 8 : 16, CUDA_SUCCESS;
  };
  t.cuOccupancyAvailableDynamicSMemPerBlock = [](size_t* bytes, CUfunction, int n, int) {
    return *bytes = 1000u * static_cast<unsigned>(n), CUDA_SUCCESS;
  };
}

// A box must lie in the array, as NVIDIA's driver has it.
CUresult judge(CUarray array, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D& copy) {
  if (!FakeDriver::current().is_live("arrays", number(array))) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR* shape = FakeDriver::current().shape_of(number(array));
  const bool inside = x + copy.WidthInBytes <= shape->Width && y + copy.Height <= shape->Height &&
                      z + copy.Depth <= std::max<size_t>(shape->Depth, 1);
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Both sides, and a text of them: "a1 at 16,2,0", "memory".
CUresult describe(const CUDA_MEMCPY3D& copy, std::string* text) {
  const auto side = [&](CUmemorytype type, CUarray array, size_t x, size_t y, size_t z) {
    if (type != CU_MEMORYTYPE_ARRAY) return *text += "memory", CUDA_SUCCESS;
    *text += name("a", number(array)) + " at " + std::to_string(x) + "," + std::to_string(y) + "," +
             std::to_string(z);
    return judge(array, x, y, z, copy);
  };
  if (copy.srcMemoryType != CU_MEMORYTYPE_ARRAY && copy.dstMemoryType != CU_MEMORYTYPE_ARRAY) {
    return CUDA_SUCCESS;
  }
  *text += " of " + std::to_string(copy.WidthInBytes) + "x" + std::to_string(copy.Height) + "x" +
           std::to_string(copy.Depth) + " from ";
  if (CUresult error =
          side(copy.srcMemoryType, copy.srcArray, copy.srcXInBytes, copy.srcY, copy.srcZ)) {
    return error;
  }
  *text += " to ";
  return side(copy.dstMemoryType, copy.dstArray, copy.dstXInBytes, copy.dstY, copy.dstZ);
}

void fill_arrays(DriverTable& t) {
  t.cuArray3DCreate_v2 = [](CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
    if (CUresult error = create("array", "arrays", array)) return error;
    return FakeDriver::current().shape_array(number(*array), *shape), CUDA_SUCCESS;
  };
  t.cuArrayDestroy = [](CUarray array) { return destroy("destroy array", "arrays", array); };
  t.cuTexObjectCreate = [](CUtexObject* texture, const CUDA_RESOURCE_DESC*,
                           const CUDA_TEXTURE_DESC*, const CUDA_RESOURCE_VIEW_DESC*) {
    if (CUresult error = call("texture")) return error;
    return *texture = FakeDriver::current().make("textures"), CUDA_SUCCESS;
  };
  t.cuTexObjectDestroy = [](CUtexObject texture) {
    return FakeDriver::current().drop("textures", texture) ? call("destroy texture")
                                                           : CUDA_ERROR_INVALID_VALUE;
  };
}

CUresult add_graph_node(const std::string& what, size_t edges, CUgraphNode* node) {
  *node = handle<CUgraphNode>(0xd0);
  return call("node", what + " behind " + std::to_string(edges));
}

// A function runs in streams of its context.
bool is_for(CUfunction function, CUstream stream) {
  return context_of(function) == FakeDriver::current().context_of("streams", number(stream));
}

// How many there are.
size_t note_parameters(void** extra) {
  std::string& parameters = FakeDriver::current().parameters;
  parameters.clear();
  if (extra == nullptr) return 0;
  parameters.assign(static_cast<const char*>(extra[1]), *static_cast<size_t*>(extra[3]));
  return parameters.size();
}

// Which green context is current.
std::string in_green() {
  return g_current < kFakeGreenContexts ? "" : " in " + name("g", g_current - kFakeGreenContexts);
}

void fill_work(DriverTable& t) {
  t.cuLaunchKernel = [](CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream s, void**, void** extra) {
    if (!is_for(f, s)) return CUDA_ERROR_INVALID_HANDLE;
    const size_t bytes = note_parameters(extra);
    return submit("launch", "launch " + name("s", number(s)) + " " + std::to_string(bytes), s,
                  kNothing);
  };
  t.cuLaunchKernelEx = [](const CUlaunchConfig* c, CUfunction f, void**, void** extra) {
    if (!is_for(f, c->hStream)) return CUDA_ERROR_INVALID_HANDLE;
    note_parameters(extra);
    std::string text = "launch-ex " + name("s", number(c->hStream));
    for (unsigned i = 0; i < c->numAttrs; ++i) text += " a" + std::to_string(c->attrs[i].id);
    return submit("launch", text, c->hStream, kNothing);
  };
  t.cuGraphCreate = [](CUgraph* g, unsigned) { return create("graph", "graphs", g); };
  t.cuGraphDestroy = [](CUgraph g) { return destroy("destroy graph", "graphs", g); };
  t.cuGraphConditionalHandleCreate = [](CUgraphConditionalHandle* made, CUgraph, CUcontext,
                                        unsigned initial, unsigned) {
    static CUgraphConditionalHandle next = 0x7000;
    return *made = next++, call("handle", "handle " + std::to_string(initial));
  };
  t.cuGraphAddNode_v2 = [](CUgraphNode* node, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                           size_t edges, CUgraphNodeParams* params) {
    static std::vector<CUgraph> bodies;
    bodies.assign(params->conditional.size, handle<CUgraph>(0xb0));
    params->conditional.phGraph_out = bodies.data();
    return add_graph_node("conditional " + std::to_string(params->conditional.size), edges, node);
  };
  t.cuGraphMemsetNodeSetParams = [](CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*) {
    return call("refresh fill");
  };
  t.cuGraphMemcpyNodeSetParams = [](CUgraphNode, const CUDA_MEMCPY3D*) {
    return call("refresh copy");
  };
  t.cuGraphKernelNodeGetParams_v2 = [](CUgraphNode, CUDA_KERNEL_NODE_PARAMS*) {
    return call("read kernel");
  };
  t.cuGraphKernelNodeSetParams_v2 = [](CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*) {
    return call("refresh kernel", "refresh kernel" + in_green());
  };
  t.cuGraphBatchMemOpNodeSetParams = [](CUgraphNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS*) {
    return call("refresh values");
  };
  t.cuGraphEventRecordNodeSetEvent = [](CUgraphNode, CUevent) { return call("refresh record"); };
  t.cuGraphEventWaitNodeSetEvent = [](CUgraphNode, CUevent) { return call("refresh wait"); };
  t.cuGraphAddEmptyNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t edges) {
    return add_graph_node("empty", edges, node);
  };
  t.cuGraphAddKernelNode_v2 = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t edges,
                                 const CUDA_KERNEL_NODE_PARAMS* params) {
    g_packed_node = params->extra != nullptr;
    return add_graph_node("kernel" + in_green(), edges, node);
  };
  t.cuGraphAddMemcpyNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t edges,
                              const CUDA_MEMCPY3D* copy, CUcontext) {
    std::string text = "copy";
    if (CUresult error = describe(*copy, &text)) return error;
    return add_graph_node(text, edges, node);
  };
  t.cuGraphAddMemsetNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t edges,
                              const CUDA_MEMSET_NODE_PARAMS*,
                              CUcontext) { return add_graph_node("fill", edges, node); };
  t.cuGraphAddHostNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t edges,
                            const CUDA_HOST_NODE_PARAMS*) {
    return add_graph_node("host", edges, node);
  };
  t.cuGraphAddEventRecordNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t edges,
                                   CUevent) { return add_graph_node("record", edges, node); };
  t.cuGraphAddEventWaitNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t edges,
                                 CUevent) { return add_graph_node("wait", edges, node); };
  t.cuGraphAddBatchMemOpNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t edges,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
    return add_graph_node("values " + std::to_string(p->count), edges, node);
  };
  t.cuGraphAddDependencies_v2 = [](CUgraph, const CUgraphNode*, const CUgraphNode*,
                                   const CUgraphEdgeData* data, size_t) {
    return call("edge", "edge of type " + std::to_string(data->type));
  };
  t.cuGraphKernelNodeSetAttribute = [](CUgraphNode, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue*) {
    // An H100 wants the parameters of a cooperative node one by one.
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && g_packed_node) return CUDA_ERROR_INVALID_VALUE;
    return call("attribute", "attribute " + std::to_string(id));
  };
  t.cuGraphExecKernelNodeSetParams_v2 = [](CUgraphExec, CUgraphNode,
                                           const CUDA_KERNEL_NODE_PARAMS*) {
    return call("set kernel", "set kernel" + in_green());
  };
  t.cuGraphExecMemcpyNodeSetParams = [](CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D* copy,
                                        CUcontext) {
    std::string text = "set copy";
    if (CUresult error = describe(*copy, &text)) return error;
    return call("set copy", text);
  };
  t.cuGraphExecMemsetNodeSetParams = [](CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*,
                                        CUcontext) { return call("set fill"); };
  t.cuGraphExecEventRecordNodeSetEvent = [](CUgraphExec, CUgraphNode, CUevent) {
    return call("set record");
  };
  t.cuGraphExecEventWaitNodeSetEvent = [](CUgraphExec, CUgraphNode, CUevent) {
    return call("set wait");
  };
  t.cuGraphExecBatchMemOpNodeSetParams = [](CUgraphExec, CUgraphNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS*) {
    return call("set values");
  };
  t.cuGraphNodeSetEnabled = [](CUgraphExec, CUgraphNode, unsigned enabled) {
    return call("enable", "enable " + std::to_string(enabled));
  };
  t.cuGraphExecUpdate_v2 = [](CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo* info) {
    *info = {};
    return call("update");
  };
  t.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph, unsigned long long) {
    return create("instantiate", "execs", exec);
  };
  t.cuGraphExecDestroy = [](CUgraphExec exec) {
    FakeDriver::current().wait_for_all();
    return destroy("destroy exec", "execs", exec);
  };
  t.cuGraphLaunch = [](CUgraphExec, CUstream s) {
    return submit("launch", "graph " + name("s", number(s)), s, kNothing);
  };
  t.cuGraphUpload = [](CUgraphExec, CUstream s) {
    return submit("upload", "upload " + name("s", number(s)), s, kNothing);
  };
}

thread_local int t_calls = 0;  // that the thread is in
struct InCall {
  InCall() { ++t_calls; }
  ~InCall() { --t_calls; }
};

// The table's functions, each behind one that says that the thread is in a call.
DriverTable g_functions;
template <auto Function>
struct Counted;
template <typename Result, typename... Arguments, Result (*DriverTable::*Function)(Arguments...)>
struct Counted<Function> {
  static Result call(Arguments... arguments) {
    const InCall counted;
    return (g_functions.*Function)(arguments...);
  }
};
void count_calls(DriverTable& t) {
  g_functions = t;
#define OPENMPS_COUNT(name) \
  if (t.name != nullptr) t.name = Counted<&DriverTable::name>::call;
  OPENMPS_DRIVER_SYMBOLS(OPENMPS_COUNT)
#undef OPENMPS_COUNT
}

}  // namespace

bool FakeDriver::is_in_call() { return t_calls != 0; }

FakeDriver::FakeDriver() {
  assert(g_driver == nullptr && "one fake driver at a time");
  g_driver = this;
  fill_devices(table_);
  fill_streams(table_);
  fill_green(table_);
  fill_memory(table_);
  fill_modules(table_);
  fill_arrays(table_);
  fill_work(table_);
  count_calls(table_);
}

FakeDriver::~FakeDriver() { g_driver = nullptr; }

FakeDriver& FakeDriver::current() { return *g_driver; }

std::vector<std::string> FakeDriver::take_calls() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> calls;
  calls.swap(calls_);
  return calls;
}

std::string FakeDriver::live() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [kind, objects] : live_) {
    if (objects.empty()) continue;
    text += (text.empty() ? "" : " ") + kind + " " + std::to_string(objects.size());
  }
  return text;
}

void FakeDriver::fail(const std::string& name_of, CUresult result) {
  const std::lock_guard lock(mutex_);
  failures_[name_of] = result;
}

void FakeDriver::fail_after(uint32_t more, CUresult result) {
  const std::lock_guard lock(mutex_);
  calls_to_failure_ = more + 1;
  coming_failure_ = result;
}

void FakeDriver::hold(uint32_t stream, bool held) {
  const std::lock_guard lock(mutex_);
  queues_[stream].held = held;
  advance_locked();
}

void FakeDriver::shape_array(uint64_t array, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const std::lock_guard lock(mutex_);
  shapes_[array] = shape;
}

const CUDA_ARRAY3D_DESCRIPTOR* FakeDriver::shape_of(uint64_t array) {
  const std::lock_guard lock(mutex_);
  const auto found = shapes_.find(array);
  return found == shapes_.end() ? nullptr : &found->second;
}

void FakeDriver::poison(CUresult result) {
  const std::lock_guard lock(mutex_);
  poison_ = result;
  if (result == CUDA_SUCCESS) return;
  // What had not run will never run.
  for (auto& [stream, queue] : queues_) queue.operations.clear();
}

CUresult FakeDriver::poisoned() {
  const std::lock_guard lock(mutex_);
  return poison_;
}

uint64_t FakeDriver::physical_bytes() {
  const std::lock_guard lock(mutex_);
  return physical_bytes_;
}

bool FakeDriver::add_physical(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t sum = physical_bytes_ + static_cast<uint64_t>(bytes);
  if (bytes > 0 && sum > physical_limit_) return false;
  physical_bytes_ = sum;
  return true;
}

void FakeDriver::limit_physical(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  physical_limit_ = bytes;
}

CUresult FakeDriver::call(const std::string& name_of, const std::string& text) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(text.empty() ? name_of : text);
  if (poison_ != CUDA_SUCCESS) return poison_;
  if (calls_to_failure_ != 0 && --calls_to_failure_ == 0) return coming_failure_;
  const auto failure = failures_.find(name_of);
  return failure == failures_.end() ? CUDA_SUCCESS : failure->second;
}

uint64_t FakeDriver::make(const char* kind) {
  const std::lock_guard lock(mutex_);
  const uint64_t made = ++made_[kind];
  live_[kind].insert(made);
  contexts_[{kind, made}] = g_current;
  return made;
}

// Handle 0: any of the kind (what the driver names by address).
bool FakeDriver::drop(const char* kind, uint64_t handle_of) {
  const std::lock_guard lock(mutex_);
  std::set<uint64_t>& objects = live_[kind];
  if (requires_live_ && !objects.contains(handle_of)) abort();
  if (objects.empty()) return false;
  if (handle_of == 0) return objects.erase(objects.begin()), true;
  return objects.erase(handle_of) == 1;
}

bool FakeDriver::exists(const char* kind, uint64_t handle_of) {
  const bool live = is_live(kind, handle_of);
  if (requires_live_ && !live) abort();
  return live;
}

bool FakeDriver::is_live(const char* kind, uint64_t handle_of) {
  const std::lock_guard lock(mutex_);
  return live_[kind].contains(handle_of);
}

void FakeDriver::push(uint64_t stream, std::function<bool()> operation) {
  const std::lock_guard lock(mutex_);
  queues_[stream].operations.push_back(std::move(operation));
  advance_locked();
}

bool FakeDriver::idle(uint64_t stream) {
  const std::lock_guard lock(mutex_);
  advance_locked();
  return queues_[stream].operations.empty();
}

uint64_t FakeDriver::context_of(const char* kind, uint64_t handle_of) {
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find({kind, handle_of});
  return found == contexts_.end() ? kMainContext : found->second;
}

bool FakeDriver::busy_locked(uint64_t context) {
  advance_locked();
  return std::any_of(queues_.begin(), queues_.end(), [&](const auto& queue) {
    return !queue.second.operations.empty() && contexts_[{"streams", queue.first}] == context;
  });
}

void FakeDriver::load_code(uint64_t context, uint64_t code) {
  const std::lock_guard lock(mutex_);
  if (!loaded_.insert({context, code}).second) return;
  if (busy_locked(context)) ++waited;
}

void FakeDriver::wait_for_all() {
  const std::lock_guard lock(mutex_);
  if (busy_locked(kMainContext)) ++waited;
}

std::function<bool()> FakeDriver::wait_for(uint64_t event) {
  const std::lock_guard lock(mutex_);
  return [this, event, record = records_[event].first] { return records_[event].second >= record; };
}

uint64_t FakeDriver::begin_record(uint64_t event) {
  const std::lock_guard lock(mutex_);
  return ++records_[event].first;
}

void FakeDriver::end_record(uint64_t event, uint64_t record) {
  const std::lock_guard lock(mutex_);
  records_[event].second = std::max(records_[event].second, record);
}

bool FakeDriver::reached(uint64_t event) {
  const std::lock_guard lock(mutex_);
  advance_locked();
  return records_[event].first == records_[event].second;
}

void FakeDriver::put_in_green(uint64_t stream, uint64_t green) {
  const std::lock_guard lock(mutex_);
  green_of_[stream] = green;
}

void FakeDriver::must_be_unused(uint64_t green) {
  const std::lock_guard lock(mutex_);
  for (const uint64_t stream : live_["streams"]) {
    const auto found = green_of_.find(stream);
    if (found != green_of_.end() && found->second == green) abort();
  }
}

void FakeDriver::advance_locked() {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& [stream, queue] : queues_) {
      while (!queue.held && !queue.operations.empty() && queue.operations.front()()) {
        queue.operations.pop_front();
        moved = true;
      }
    }
  }
}

}  // namespace openmps::worker
