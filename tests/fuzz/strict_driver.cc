// SPDX-License-Identifier: Apache-2.0
// The driver that checks every call. See strict_driver.h.
#include "strict_driver.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>

#include "strict_calls.h"

namespace openmps::worker {
namespace {

using namespace strict;

constexpr int kDevices = 2;

StrictDriver* g_driver = nullptr;
// ---- Work on memory -----------------------------------------------------------------------------

CUresult fill(CUdeviceptr to, uint64_t pitch, uint64_t element, uint64_t n, uint64_t rows,
              CUstream stream) {
  must_be_live("streams", number(stream));
  self().must_own({to, rows_span(pitch, element, n, rows), true});
  return call("fill");
}

// Only the registered channel is real memory. Values for device memory are not written.
template <typename T>
CUresult write_value(CUstream stream, CUdeviceptr at, uint64_t value) {
  must_be_live("streams", number(stream));
  self().must_own({at, sizeof(T), true});
  const auto next = self().mapped.upper_bound(at);
  if (next != self().mapped.begin() && std::prev(next)->second.physical == 0 &&
      std::prev(next)->second.end > at) {
    reinterpret_cast<std::atomic<T>*>(at)->store(static_cast<T>(value));
  }
  return call("write");
}
CUresult wait_value(CUstream stream, CUdeviceptr at, uint64_t bytes) {
  must_be_live("streams", number(stream));
  self().must_own({at, bytes, false});
  return call("await");
}

void fill_work(DriverTable& t) {
  t.cuEventRecord = [](CUevent event, CUstream stream) {
    must_be_live("events", number(event));
    must_be_live("streams", number(stream));
    return call("record");
  };
  t.cuEventSynchronize = [](CUevent event) {
    must_be_live("events", number(event));
    return call("synchronize");
  };
  t.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    must_be_live("events", number(event));
    must_be_live("streams", number(stream));
    return call("wait");
  };
  t.cuStreamWriteValue64_v2 = [](CUstream s, CUdeviceptr at, cuuint64_t value, unsigned) {
    return write_value<uint64_t>(s, at, value);
  };
  t.cuStreamWriteValue32_v2 = [](CUstream s, CUdeviceptr at, cuuint32_t value, unsigned) {
    return write_value<uint32_t>(s, at, value);
  };
  t.cuStreamWaitValue64_v2 = [](CUstream s, CUdeviceptr at, cuuint64_t, unsigned) {
    return wait_value(s, at, 8);
  };
  t.cuStreamWaitValue32_v2 = [](CUstream s, CUdeviceptr at, cuuint32_t, unsigned) {
    return wait_value(s, at, 4);
  };
  t.cuStreamBatchMemOp_v2 = [](CUstream s, unsigned count, CUstreamBatchMemOpParams* operations,
                               unsigned) {
    must_be_live("streams", number(s));
    CUresult result = CUDA_SUCCESS;
    for (const CUstreamBatchMemOpParams& one : std::span(operations, count)) {
      switch (one.operation) {
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
          result = write_value<uint32_t>(s, one.writeValue.address, one.writeValue.value);
          break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
          result = write_value<uint64_t>(s, one.writeValue.address, one.writeValue.value64);
          break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
          result = wait_value(s, one.waitValue.address, 4);
          break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
          result = wait_value(s, one.waitValue.address, 8);
          break;
        default: break;
      }
      if (result != CUDA_SUCCESS) return result;
    }
    return result;
  };
  t.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    must_be_live("streams", number(stream));
    self().must_own({to, bytes, true});
    self().must_own({from, bytes, false});
    return call("copy");
  };
  t.cuMemcpy3DAsync_v2 = [](const CUDA_MEMCPY3D* box, CUstream stream) {
    must_be_live("streams", number(stream));
    self().must_run(copy_of(*box));
    return call("copy");
  };
  // In the legacy stream.
  t.cuStreamSynchronize = [](CUstream stream) {
    if (stream != nullptr) must_be_live("streams", number(stream));
    return call("synchronize");
  };
  t.cuMemsetD8_v2 = [](CUdeviceptr to, unsigned char, size_t bytes) {
    self().must_own({to, bytes, true});
    return call("fill");
  };
  t.cuMemcpyHtoD_v2 = [](CUdeviceptr to, const void* from, size_t bytes) {
    self().must_own({to, bytes, true});
    touch(from, bytes);
    return call("copy");
  };
  t.cuMemcpyDtoD_v2 = [](CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    self().must_own({to, bytes, true});
    self().must_own({from, bytes, false});
    return call("copy");
  };
  t.cuMemsetD8Async = [](CUdeviceptr to, unsigned char, size_t n, CUstream s) {
    return fill(to, 0, 1, n, 1, s);
  };
  t.cuMemsetD16Async = [](CUdeviceptr to, unsigned short, size_t n, CUstream s) {
    return fill(to, 0, 2, n, 1, s);
  };
  t.cuMemsetD32Async = [](CUdeviceptr to, unsigned, size_t n, CUstream s) {
    return fill(to, 0, 4, n, 1, s);
  };
  t.cuMemsetD2D8Async = [](CUdeviceptr to, size_t pitch, unsigned char, size_t n, size_t rows,
                           CUstream s) { return fill(to, pitch, 1, n, rows, s); };
  t.cuMemsetD2D16Async = [](CUdeviceptr to, size_t pitch, unsigned short, size_t n, size_t rows,
                            CUstream s) { return fill(to, pitch, 2, n, rows, s); };
  t.cuMemsetD2D32Async = [](CUdeviceptr to, size_t pitch, unsigned, size_t n, size_t rows,
                            CUstream s) { return fill(to, pitch, 4, n, rows, s); };
  t.cuLaunchKernel = [](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, unsigned, CUstream stream, void**, void** extra) {
    must_be_live("streams", number(stream));
    self().must_be_function(number(function));
    touch_extra(extra);
    return call("launch");
  };
  t.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void**, void** extra) {
    must_be_live("streams", number(config->hStream));
    self().must_be_function(number(function));
    touch(config->attrs, config->numAttrs * sizeof(CUlaunchAttribute));
    touch_extra(extra);
    return call("launch");
  };
}

// ---- Memory -------------------------------------------------------------------------------------

bool overlaps(const std::map<uint64_t, uint64_t>& ranges, uint64_t begin, uint64_t end) {
  const auto next = ranges.lower_bound(begin);
  if (next != ranges.end() && next->first < end) return true;
  return next != ranges.begin() && std::prev(next)->second > begin;
}
void map_range(uint64_t begin, uint64_t bytes, uint64_t physical, CUmemAccess_flags access) {
  auto& mapped = self().mapped;
  const uint64_t end = begin + bytes;
  if (bytes == 0 || end < begin) abort();
  const auto next = mapped.lower_bound(begin);
  if (next != mapped.end() && next->first < end) abort();
  if (next != mapped.begin() && std::prev(next)->second.end > begin) abort();
  mapped[begin] = {end, self().session(), physical,
                   std::vector<CUmemAccess_flags>(kDevices, access)};
}
void unmap_range(uint64_t begin, uint64_t end) {
  const auto found = self().mapped.find(begin);
  if (found == self().mapped.end() || found->second.end != end) abort();
  if (found->second.session != self().session()) abort();
  self().mapped.erase(found);
}

void fill_memory(DriverTable& t) {
  t.cuMemHostRegister_v2 = [](void* start, size_t bytes, unsigned) {
    if (const CUresult error = call("register")) return error;
    return map_range(number(start), bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS;
  };
  t.cuMemHostUnregister = [](void* start) {
    const auto found = self().mapped.find(number(start));
    if (found == self().mapped.end() || found->second.physical != 0) abort();
    return unmap_range(number(start), found->second.end), CUDA_SUCCESS;
  };
  t.cuMemAddressReserve = [](CUdeviceptr* got, size_t bytes, size_t, CUdeviceptr wanted,
                             unsigned long long) {
    if (const CUresult error = call("reserve")) return error;
    if (bytes == 0 || wanted + bytes < wanted) abort();
    if (overlaps(self().reserved, wanted, wanted + bytes)) abort();
    self().reserved[wanted] = wanted + bytes;
    return *got = wanted, CUDA_SUCCESS;
  };
  t.cuMemAddressFree = [](CUdeviceptr begin, size_t bytes) {
    const auto found = self().reserved.find(begin);
    if (found == self().reserved.end() || found->second != begin + bytes) abort();
    const auto next = self().mapped.lower_bound(begin);
    if (next != self().mapped.end() && next->first < begin + bytes) abort();
    return self().reserved.erase(found), CUDA_SUCCESS;
  };
  t.cuMemCreate = [](CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp*,
                     unsigned long long) {
    if (const CUresult error = call("create")) return error;
    self().physical[*out = self().fake().make("physical")] = bytes;
    return CUDA_SUCCESS;
  };
  t.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* out, void*,
                                        CUmemAllocationHandleType) {
    if (const CUresult error = call("import")) return error;
    self().physical[*out = self().fake().make("physical")] = 0;
    return CUDA_SUCCESS;
  };
  t.cuMemRelease = [](CUmemGenericAllocationHandle physical) {
    self().fake().drop("physical", physical);
    return self().physical.erase(physical), CUDA_SUCCESS;
  };
  t.cuMemMap = [](CUdeviceptr begin, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle physical, unsigned long long) {
    must_be_live("physical", physical);
    const uint64_t whole = self().physical[physical];
    if (whole != 0 && (offset > whole || bytes > whole - offset)) abort();
    const auto next = self().reserved.upper_bound(begin);
    if (next == self().reserved.begin() || std::prev(next)->second < begin + bytes) abort();
    if (const CUresult error = call("map")) return error;
    return map_range(begin, bytes, physical, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_SUCCESS;
  };
  t.cuMemUnmap = [](CUdeviceptr begin, size_t bytes) {
    return unmap_range(begin, begin + bytes), CUDA_SUCCESS;
  };
  t.cuMemSetAccess = [](CUdeviceptr begin, size_t bytes, const CUmemAccessDesc* desc,
                        size_t count) {
    if (const CUresult error = call("access")) return error;
    for (uint64_t at = begin; at < begin + bytes;) {
      const auto found = self().mapped.find(at);
      if (found == self().mapped.end() || found->second.session != self().session()) abort();
      if (found->second.end > begin + bytes) abort();
      for (const CUmemAccessDesc& one : std::span(desc, count)) {
        found->second.access.at(static_cast<size_t>(one.location.id)) = one.flags;
      }
      at = found->second.end;
    }
    return CUDA_SUCCESS;
  };
  t.cuMemGetHandleForAddressRange = [](void* out, CUdeviceptr begin, size_t bytes,
                                       CUmemRangeHandleType, unsigned long long) {
    if (const CUresult error = call("dma-buf")) return error;
    if (bytes == 0) abort();
    for (uint64_t at = begin; at < begin + bytes;) {
      auto found = self().mapped.upper_bound(at);
      if (found == self().mapped.begin()) abort();
      --found;
      if (found->second.end <= at || found->second.session != self().session()) abort();
      at = found->second.end;
    }
    const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return memcpy(out, &descriptor, sizeof(descriptor)), CUDA_SUCCESS;
  };
  t.cuMemGetInfo_v2 = [](size_t* free, size_t* total) {
    return *free = *total = kFakeTotalMemory, CUDA_SUCCESS;
  };
}

// ---- Images -------------------------------------------------------------------------------------

using Logs = std::vector<std::pair<char*, size_t>>;
Logs logs_of(unsigned count, const CUjit_option* options, void** values) {
  Logs logs;
  for (unsigned i = 0; i + 1 < count; ++i) {
    if (options[i] != CU_JIT_ERROR_LOG_BUFFER && options[i] != CU_JIT_INFO_LOG_BUFFER) continue;
    logs.emplace_back(static_cast<char*>(values[i]), number(values[i + 1]));
  }
  return logs;
}
// Fills the log buffers completely.
void fill_logs(const Logs& logs) {
  for (const auto& [text, bytes] : logs) memset(text, 'x', bytes);
}

// Finds the variables in PTX text. Packed images have none here.
CUresult load(const void* image, const Logs& logs, uint64_t* loaded) {
  touch(image, 1);
  fill_logs(logs);
  if (const CUresult error = call("load")) return error;
  *loaded = self().fake().make("libraries");
  const char* text = static_cast<const char*>(image);
  const bool is_text = *text == '.' || *text == '/';
  const bool variables = is_text && (strstr(text, ".global") || strstr(text, ".const"));
  if (variables) self().owners[*loaded] = self().session();
  return CUDA_SUCCESS;
}
CUresult unload(uint64_t library) {
  self().fake().drop("libraries", library);
  self().owners.erase(library);
  return call("unload");
}
// `library` may be a module: a library's module has the same number.
CUresult find_global(uint64_t library, const char* symbol, CUdeviceptr* address, size_t* bytes) {
  must_be_live("libraries", library);
  must_be_text(symbol);
  if (const CUresult error = call("global")) return error;
  if (!self().owners.contains(library)) return CUDA_ERROR_NOT_FOUND;
  *address = kStrictGlobals + library * kStrictGlobalStride;
  return *bytes = kFakeGlobalBytes, CUDA_SUCCESS;
}
template <typename Function>
CUresult find_function(uint64_t library, const char* symbol, Function* function) {
  must_be_live("libraries", library);
  must_be_text(symbol);
  if (const CUresult error = call("function")) return error;
  *function = handle<Function>(self().make_function("libraries", library));
  return CUDA_SUCCESS;
}
template <typename Function>
CUresult list_functions(uint64_t library, Function* functions, unsigned count) {
  must_be_live("libraries", library);
  if (const CUresult error = call("list")) return error;
  for (unsigned i = 0; i < count; ++i) {
    functions[i] = handle<Function>(self().make_function("libraries", library));
  }
  return CUDA_SUCCESS;
}
CUresult about(uint64_t function) {
  self().must_be_function(function);
  return call("about");
}
CUresult number_about(uint64_t function, int* value) {
  if (const CUresult error = about(function)) return error;
  return *value = 7, CUDA_SUCCESS;
}
CUresult parameter_of(uint64_t function, size_t index, size_t* offset, size_t* bytes) {
  self().must_be_function(function);
  if (index > 1) return CUDA_ERROR_INVALID_VALUE;
  return *offset = 8 * index, *bytes = 8, CUDA_SUCCESS;
}

void fill_modules(DriverTable& t) {
  t.cuLibraryLoadData = [](CUlibrary* library, const void* image, CUjit_option* options,
                           void** values, unsigned count, CUlibraryOption*, void**, unsigned) {
    uint64_t made = 0;
    const CUresult result = load(image, logs_of(count, options, values), &made);
    return *library = handle<CUlibrary>(made), result;
  };
  // A library's module has the number of the library, since there is one context.
  t.cuLibraryGetModule = [](CUmodule* module, CUlibrary library) {
    must_be_live("libraries", number(library));
    return *module = handle<CUmodule>(number(library)), CUDA_SUCCESS;
  };
  t.cuModuleGetFunctionCount = [](unsigned* count, CUmodule module) {
    must_be_live("libraries", number(module));
    return *count = 2, call("count");
  };
  t.cuLibraryGetKernelCount = [](unsigned* count, CUlibrary library) {
    must_be_live("libraries", number(library));
    return *count = 2, call("count");
  };
  t.cuModuleEnumerateFunctions = [](CUfunction* functions, unsigned count, CUmodule module) {
    return list_functions(number(module), functions, count);
  };
  t.cuLibraryEnumerateKernels = [](CUkernel* kernels, unsigned count, CUlibrary library) {
    return list_functions(number(library), kernels, count);
  };
  t.cuFuncGetName = [](const char** name, CUfunction function) {
    return *name = "kernel", about(number(function));
  };
  t.cuKernelGetName = [](const char** name, CUkernel kernel) {
    return *name = "kernel", about(number(kernel));
  };
  t.cuFuncLoad = [](CUfunction function) { return about(number(function)); };
  t.cuLibraryUnload = [](CUlibrary library) { return unload(number(library)); };
  t.cuPointerGetAttribute = [](void* value, CUpointer_attribute attribute, CUdeviceptr) {
    if (attribute != CU_POINTER_ATTRIBUTE_IS_MANAGED) return CUDA_ERROR_INVALID_VALUE;
    return *static_cast<int*>(value) = 0, CUDA_SUCCESS;
  };
  t.cuModuleGetGlobal_v2 = [](CUdeviceptr* address, size_t* bytes, CUmodule m, const char* symbol) {
    return find_global(number(m), symbol, address, bytes);
  };
  t.cuLibraryGetGlobal = [](CUdeviceptr* address, size_t* bytes, CUlibrary l, const char* symbol) {
    return find_global(number(l), symbol, address, bytes);
  };
  t.cuLibraryGetManaged = t.cuLibraryGetGlobal;
  t.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char* symbol) {
    return find_function(number(module), symbol, function);
  };
  t.cuLibraryGetKernel = [](CUkernel* kernel, CUlibrary library, const char* symbol) {
    return find_function(number(library), symbol, kernel);
  };
  t.cuKernelGetFunction = [](CUfunction* function, CUkernel kernel) {
    self().must_be_function(number(kernel));
    return *function = handle<CUfunction>(number(kernel)), CUDA_SUCCESS;
  };
  t.cuFuncGetAttribute = [](int* value, CUfunction_attribute, CUfunction function) {
    return number_about(number(function), value);
  };
  t.cuKernelGetAttribute = [](int* value, CUfunction_attribute, CUkernel kernel, CUdevice) {
    return number_about(number(kernel), value);
  };
  t.cuFuncSetAttribute = [](CUfunction f, CUfunction_attribute, int) { return about(number(f)); };
  t.cuKernelSetAttribute = [](CUfunction_attribute, int, CUkernel kernel, CUdevice) {
    return about(number(kernel));
  };
  t.cuFuncSetCacheConfig = [](CUfunction f, CUfunc_cache) { return about(number(f)); };
  t.cuKernelSetCacheConfig = [](CUkernel k, CUfunc_cache, CUdevice) { return about(number(k)); };
  t.cuFuncSetSharedMemConfig = [](CUfunction f, CUsharedconfig) { return about(number(f)); };
  t.cuFuncGetParamInfo = [](CUfunction f, size_t i, size_t* offset, size_t* bytes) {
    return parameter_of(number(f), i, offset, bytes);
  };
  t.cuKernelGetParamInfo = [](CUkernel k, size_t i, size_t* offset, size_t* bytes) {
    return parameter_of(number(k), i, offset, bytes);
  };
  t.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags = [](int* blocks, CUfunction f, int,
                                                              size_t, unsigned) {
    return number_about(number(f), blocks);
  };
  t.cuOccupancyMaxActiveClusters = [](int* clusters, CUfunction f, const CUlaunchConfig* config) {
    touch(config->attrs, config->numAttrs * sizeof(CUlaunchAttribute));
    return number_about(number(f), clusters);
  };
  t.cuOccupancyMaxPotentialClusterSize = [](int* size, CUfunction f, const CUlaunchConfig* config) {
    touch(config->attrs, config->numAttrs * sizeof(CUlaunchAttribute));
    return number_about(number(f), size);
  };
  t.cuOccupancyAvailableDynamicSMemPerBlock = [](size_t* bytes, CUfunction f, int, int) {
    return *bytes = 1024, about(number(f));
  };
}

void fill_links(DriverTable& t) {
  t.cuLinkCreate_v2 = [](unsigned count, CUjit_option* options, void** values, CUlinkState* link) {
    if (const CUresult error = call("link")) return error;
    const uint64_t made = self().fake().make("links");
    self().links[made].logs = logs_of(count, options, values);
    return *link = handle<CUlinkState>(made), CUDA_SUCCESS;
  };
  t.cuLinkAddData_v2 = [](CUlinkState link, CUjitInputType, void* data, size_t bytes,
                          const char* name, unsigned, CUjit_option*, void**) {
    must_be_live("links", number(link));
    touch(data, bytes);
    must_be_text(name);
    fill_logs(self().links[number(link)].logs);
    return call("add");
  };
  t.cuLinkComplete = [](CUlinkState link, void** cubin, size_t* bytes) {
    must_be_live("links", number(link));
    fill_logs(self().links[number(link)].logs);
    if (const CUresult error = call("complete")) return error;
    auto& result = self().links[number(link)].result;
    result.assign(kStrictGlobalStride, 1);
    return *cubin = result.data(), *bytes = result.size(), CUDA_SUCCESS;
  };
  t.cuLinkDestroy = [](CUlinkState link) {
    self().fake().drop("links", number(link));
    return self().links.erase(number(link)), CUDA_SUCCESS;
  };
}

// ---- Arrays -------------------------------------------------------------------------------------

void fill_arrays(DriverTable& t) {
  t.cuArray3DCreate_v2 = [](CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR*) {
    if (const CUresult error = call("array")) return error;
    return *array = handle<CUarray>(self().fake().make("arrays")), CUDA_SUCCESS;
  };
  t.cuMipmappedArrayCreate = [](CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned) {
    if (const CUresult error = call("mipmapped")) return error;
    return *array = handle<CUmipmappedArray>(self().fake().make("mipmapped")), CUDA_SUCCESS;
  };
  t.cuArrayDestroy = [](CUarray a) { return self().destroy_array("arrays", number(a)); };
  t.cuMipmappedArrayDestroy = [](CUmipmappedArray a) {
    return self().destroy_array("mipmapped", number(a));
  };
  t.cuMipmappedArrayGetLevel = [](CUarray* level, CUmipmappedArray whole, unsigned) {
    must_be_live("mipmapped", number(whole));
    if (const CUresult error = call("level")) return error;
    return *level = self().make_part("mipmapped", number(whole)), CUDA_SUCCESS;
  };
  t.cuArrayGetPlane = [](CUarray* plane, CUarray whole, unsigned) {
    self().must_be_array(whole);
    if (const CUresult error = call("plane")) return error;
    return *plane = self().make_part("arrays", number(whole)), CUDA_SUCCESS;
  };
  t.cuArray3DGetDescriptor_v2 = [](CUDA_ARRAY3D_DESCRIPTOR* shape, CUarray array) {
    self().must_be_array(array);
    *shape = CUDA_ARRAY3D_DESCRIPTOR{};
    return call("shape");
  };
  t.cuTexObjectCreate = [](CUtexObject* texture, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* description,
                           const CUDA_RESOURCE_VIEW_DESC* view) {
    touch(description, sizeof(*description));
    if (view != nullptr) touch(view, sizeof(*view));
    if (const CUresult error = call("texture")) return error;
    *texture = self().fake().make("textures");
    return self().show(*texture, *resource), CUDA_SUCCESS;
  };
  t.cuSurfObjectCreate = [](CUsurfObject* surface, const CUDA_RESOURCE_DESC* resource) {
    if (const CUresult error = call("surface")) return error;
    *surface = self().fake().make("surfaces");
    return self().show(~*surface, *resource), CUDA_SUCCESS;
  };
  t.cuTexObjectDestroy = [](CUtexObject texture) {
    self().shown.erase(texture);
    return self().fake().drop("textures", texture), CUDA_SUCCESS;
  };
  t.cuSurfObjectDestroy = [](CUsurfObject surface) {
    self().shown.erase(~surface);
    return self().fake().drop("surfaces", surface), CUDA_SUCCESS;
  };
}

// ---- Devices, and the calls of generated commands -----------------------------------------------

template <typename... Arrays>
void touch_arrays(size_t count, const Arrays*... arrays) {
  (touch(arrays, arrays == nullptr ? 0 : count * sizeof(*arrays)), ...);
}
// Handles are numbers here. The functions that use them check them.
void fill_devices(DriverTable& t) {
  t.cuDeviceGetCount = [](int* count) { return *count = kDevices, CUDA_SUCCESS; };
  t.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    return *context = handle<CUcontext>(0xc0 + static_cast<uint64_t>(device)), CUDA_SUCCESS;
  };
  t.cuDeviceCanAccessPeer = [](int* can, CUdevice, CUdevice) { return *can = 1, CUDA_SUCCESS; };
  t.cuDeviceGetP2PAttribute = [](int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
    return *value = 1, call("peer");
  };
  t.cuDeviceGetHostAtomicCapabilities = [](unsigned* out, const CUatomicOperation* operations,
                                           unsigned count, CUdevice) {
    touch_arrays(count, operations);
    return memset(out, 1, count * sizeof(*out)), call("atomics");
  };
  t.cuDeviceGetP2PAtomicCapabilities = [](unsigned* out, const CUatomicOperation* operations,
                                          unsigned count, CUdevice, CUdevice) {
    touch_arrays(count, operations);
    return memset(out, 1, count * sizeof(*out)), call("atomics");
  };
  t.cuDeviceGetTexture1DLinearMaxWidth = [](size_t* width, CUarray_format, unsigned, CUdevice) {
    return *width = 1024, call("width");
  };
  t.cuFlushGPUDirectRDMAWrites = [](CUflushGPUDirectRDMAWritesTarget,
                                    CUflushGPUDirectRDMAWritesScope) { return call("flush"); };
  t.cuCtxSynchronize = [] { return call("synchronize"); };
  t.cuCtxResetPersistingL2Cache = [] { return call("reset"); };
  t.cuTensorMapEncodeTiled = [](CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void*,
                                const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
    touch_arrays(rank, sizes, box, steps);
    touch_arrays(rank - 1, strides);
    return memset(map, 1, sizeof(*map)), call("tensor");
  };
  t.cuTensorMapEncodeIm2col = [](CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void*,
                                 const cuuint64_t* sizes, const cuuint64_t* strides,
                                 const int* lower, const int* upper, cuuint32_t, cuuint32_t,
                                 const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    touch_arrays(rank, sizes, steps);
    touch_arrays(rank - 1, strides);
    touch_arrays(rank - 2, lower, upper);
    return memset(map, 1, sizeof(*map)), call("tensor");
  };
  t.cuTensorMapEncodeIm2colWide =
      [](CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void*, const cuuint64_t* sizes,
         const cuuint64_t* strides, int, int, cuuint32_t, cuuint32_t, const cuuint32_t* steps,
         CUtensorMapInterleave, CUtensorMapIm2ColWideMode, CUtensorMapSwizzle,
         CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
        touch_arrays(rank, sizes, steps);
        touch_arrays(rank - 1, strides);
        return memset(map, 1, sizeof(*map)), call("tensor");
      };
  t.cuTensorMapReplaceAddress = [](CUtensorMap* map, void*) {
    return memset(map, 2, sizeof(*map)), call("tensor");
  };
}

}  // namespace

StrictDriver::StrictDriver() : table_(fake_.table()) {
  g_driver = this;
  fake_.require_live_handles();
  fill_devices(table_);
  fill_work(table_);
  fill_memory(table_);
  fill_modules(table_);
  fill_links(table_);
  fill_arrays(table_);
  strict::fill_graphs(table_);
}

StrictDriver& StrictDriver::current() { return *g_driver; }

StrictDriver::~StrictDriver() { g_driver = nullptr; }

void StrictDriver::must_be_empty() {
  if (fake_.live().empty() && mapped.empty() && reserved.empty()) return;
  fprintf(stderr, "left behind: %s; %zu mapped, %zu reserved\n", fake_.live().c_str(),
          mapped.size(), reserved.size());
  abort();
}

void StrictDriver::must_own(const Operand& operand) {
  if (operand.bytes == 0) return;
  const uint64_t end = operand.address + operand.bytes;
  if (end < operand.address) abort();
  const uint64_t module = (operand.address - kStrictGlobals) / kStrictGlobalStride;
  if (operand.address >= kStrictGlobals && owners.contains(module)) {
    if (owners[module] != session_) abort();
    if (end > kStrictGlobals + module * kStrictGlobalStride + kFakeGlobalBytes) abort();
    return;
  }
  const CUmemAccess_flags least =
      operand.writes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  for (uint64_t at = operand.address; at < end;) {
    const auto next = mapped.upper_bound(at);
    if (next == mapped.begin()) abort();
    const Mapping& mapping = std::prev(next)->second;
    if (mapping.end <= at || mapping.session != session_) abort();
    if (*std::max_element(mapping.access.begin(), mapping.access.end()) < least) abort();
    at = mapping.end;
  }
}

void StrictDriver::must_run(const Node& node) {
  if (node.function != 0) must_be_function(node.function);
  if (node.event != 0) must_be_live("events", node.event);
  for (const Operand& operand : node.operands) must_own(operand);
}

uint64_t StrictDriver::make_function(const char* kind, uint64_t module) {
  functions_[++next_handle_] = {kind, module};
  return next_handle_;
}

void StrictDriver::must_be_function(uint64_t function) {
  const auto found = functions_.find(function);
  if (found == functions_.end()) abort();
  must_be_live(found->second.kind, found->second.whole);
}

CUarray StrictDriver::make_part(const char* kind, uint64_t whole) {
  const auto found = parts_.find(whole);  // a plane of a level is part of the whole, too
  parts_[++next_handle_] = found == parts_.end() ? Part{kind, whole} : found->second;
  return handle<CUarray>(next_handle_);
}

void StrictDriver::must_be_array(CUarray array) {
  const auto found = parts_.find(number(array));
  if (found == parts_.end()) return must_be_live("arrays", number(array));
  must_be_live(found->second.kind, found->second.whole);
}

void StrictDriver::show(uint64_t image, const CUDA_RESOURCE_DESC& resource) {
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const uint64_t array = number(resource.res.array.hArray);
      must_be_array(resource.res.array.hArray);
      const auto part = parts_.find(array);
      shown[image] = part == parts_.end() ? std::pair("arrays", array)
                                          : std::pair(part->second.kind, part->second.whole);
      break;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      must_be_live("mipmapped", number(resource.res.mipmap.hMipmappedArray));
      shown[image] = {"mipmapped", number(resource.res.mipmap.hMipmappedArray)};
      break;
    case CU_RESOURCE_TYPE_LINEAR:
      must_own({resource.res.linear.devPtr, resource.res.linear.sizeInBytes, false});
      break;
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& pitched = resource.res.pitch2D;
      must_own({pitched.devPtr, rows_span(pitched.pitchInBytes, 1, pitched.width, pitched.height),
                false});
      break;
    }
    default: abort();
  }
}

CUresult StrictDriver::destroy_array(const char* kind, uint64_t array) {
  for (const auto& [image, of] : shown) {
    if (of.second == array && strcmp(of.first, kind) == 0) abort();
  }
  fake_.drop(kind, array);
  return CUDA_SUCCESS;
}

}  // namespace openmps::worker
