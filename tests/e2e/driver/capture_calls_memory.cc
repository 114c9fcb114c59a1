// SPDX-License-Identifier: Apache-2.0
// Calls about copies, fills and memory of every kind that are made while a stream captures. See
// capture_calls.h.
#include "capture_calls.h"

namespace e2e {

namespace {

CUDA_MEMCPY2D box(CUmemorytype destination_type, CUmemorytype source_type) {
  CUDA_MEMCPY2D copy{};
  copy.dstMemoryType = destination_type;
  copy.srcMemoryType = source_type;
  copy.dstPitch = copy.srcPitch = 32;
  copy.WidthInBytes = 16;
  copy.Height = 4;
  return copy;
}

}  // namespace

const std::vector<Call> kCopyCalls = {
    {"cuMemcpyHtoD(pageable)",
     [](Stage& s) { return cuMemcpyHtoD_v2(s.more, s.pageable, kBytes); }},
    {"cuMemcpyHtoD(pinned)", [](Stage& s) { return cuMemcpyHtoD_v2(s.more, s.pinned, kBytes); }},
    {"cuMemcpyDtoH(pageable)",
     [](Stage& s) { return cuMemcpyDtoH_v2(s.pageable, s.more, kBytes); }},
    {"cuMemcpyDtoH(pinned)", [](Stage& s) { return cuMemcpyDtoH_v2(s.pinned, s.more, kBytes); }},
    {"cuMemcpyDtoD", [](Stage& s) { return cuMemcpyDtoD_v2(s.more, s.memory, kBytes); }},
    {"cuMemcpy(host, host)",
     [](Stage& s) {
       return cuMemcpy(reinterpret_cast<CUdeviceptr>(s.pageable),
                       reinterpret_cast<CUdeviceptr>(s.pageable_too), kBytes);
     }},
    {"cuMemcpy(device, device)", [](Stage& s) { return cuMemcpy(s.more, s.memory, kBytes); }},
    {"cuMemcpy2D(device, pageable)",
     [](Stage& s) {
       CUDA_MEMCPY2D copy = box(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST);
       copy.dstDevice = s.more;
       copy.srcHost = s.pageable;
       return cuMemcpy2D_v2(&copy);
     }},
    {"cuMemcpyHtoA", [](Stage& s) { return cuMemcpyHtoA_v2(s.array, 0, s.pageable, 64); }},
    {"cuMemcpyDtoA", [](Stage& s) { return cuMemcpyDtoA_v2(s.array, 0, s.memory, 64); }},
    {"cuMemcpyHtoDAsync(origin, pageable)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pageable, kBytes, s.origin); }},
    {"cuMemcpyHtoDAsync(origin, pinned)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pinned, kBytes, s.origin); }},
    {"cuMemcpyDtoHAsync(origin, pageable)",
     [](Stage& s) { return cuMemcpyDtoHAsync_v2(s.pageable, s.more, kBytes, s.origin); }},
    {"cuMemcpyDtoDAsync(origin)",
     [](Stage& s) { return cuMemcpyDtoDAsync_v2(s.more, s.memory, kBytes, s.origin); }},
    {"cuMemcpyAsync(origin, host, host)",
     [](Stage& s) {
       return cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(s.pageable),
                            reinterpret_cast<CUdeviceptr>(s.pageable_too), kBytes, s.origin);
     }},
    {"cuMemcpyHtoDAsync(legacy, pageable)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pageable, kBytes, nullptr); }},
    {"cuMemcpyHtoDAsync(legacy, pinned)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pinned, kBytes, nullptr); }},
    {"cuMemcpyDtoDAsync(legacy)",
     [](Stage& s) { return cuMemcpyDtoDAsync_v2(s.more, s.memory, kBytes, nullptr); }},
    {"cuMemcpyHtoDAsync(free, pageable)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pageable, kBytes, s.free); }},
    {"cuMemcpyDtoHAsync(free, pageable)",
     [](Stage& s) { return cuMemcpyDtoHAsync_v2(s.pageable, s.more, kBytes, s.free); }},
    {"cuMemcpyHtoDAsync(origin, nothing)",
     [](Stage& s) { return cuMemcpyHtoDAsync_v2(s.more, s.pageable, 0, s.origin); }},
    {"cuMemsetD8", [](Stage& s) { return cuMemsetD8_v2(s.more, 1, kBytes); }},
    {"cuMemsetD32", [](Stage& s) { return cuMemsetD32_v2(s.more, 1, kBytes / 4); }},
    {"cuMemsetD2D8", [](Stage& s) { return cuMemsetD2D8_v2(s.more, 32, 1, 16, 4); }},
    {"cuMemsetD8Async(legacy)",
     [](Stage& s) { return cuMemsetD8Async(s.more, 1, kBytes, nullptr); }},
    {"cuMemsetD8Async(free)", [](Stage& s) { return cuMemsetD8Async(s.more, 1, kBytes, s.free); }},
};

const std::vector<Call> kMemoryCalls = {
    {"cuMemFree(nothing)", [](Stage&) { return cuMemFree_v2(0); }},
    {"cuMemPoolDestroy",
     [](Stage& s) {
       CUmemPoolProps wanted{};
       wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
       wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.session.device};
       CUmemoryPool made = nullptr;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       const CUresult created = cuMemPoolCreate(&made, &wanted);
       exchange_mode(before);
       return created != CUDA_SUCCESS ? created : cuMemPoolDestroy(made);
     }},
    {"cuMemPoolGetAttribute",
     [](Stage& s) {
       CUmemoryPool pool = nullptr;
       CHECK_CU(cuDeviceGetDefaultMemPool(&pool, s.session.device));
       cuuint64_t value = 0;
       return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
     }},
    {"cuMemHostUnregister",
     [](Stage& s) {
       void* block = aligned_alloc(4096, 4096);
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       const CUresult registered = cuMemHostRegister_v2(block, 4096, 0);
       exchange_mode(before);
       if (registered != CUDA_SUCCESS) return registered;
       const CUresult result = cuMemHostUnregister(block);
       s.later([=] {
         if (result != CUDA_SUCCESS) CHECK_CU(cuMemHostUnregister(block));
         ::free(block);
       });
       return result;
     }},
    {"cuMipmappedArrayCreate",
     [](Stage& s) {
       CUmipmappedArray made = nullptr;
       CUDA_ARRAY3D_DESCRIPTOR shape{16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0};
       const CUresult result = cuMipmappedArrayCreate(&made, &shape, 2);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMipmappedArrayDestroy(made)); });
       return result;
     }},
    {"cuMemAllocAsync(blocking)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAllocAsync(&made, kBytes, s.blocking);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemFreeAsync(free)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuMemAllocAsync(&made, kBytes, s.free));
       exchange_mode(before);
       const CUresult result = cuMemFreeAsync(made, s.free);
       if (result != CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemFreeAsync(legacy)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuMemAllocAsync(&made, kBytes, s.free));
       exchange_mode(before);
       const CUresult result = cuMemFreeAsync(made, nullptr);
       if (result != CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuPointerSetAttribute(SYNC_MEMOPS)",
     [](Stage& s) {
       unsigned on = 1;
       return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, s.more);
     }},
    {"cuMemAlloc",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAlloc_v2(&made, kBytes);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemAlloc, large",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAlloc_v2(&made, 8 << 20);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemAllocPitch",
     [](Stage& s) {
       CUdeviceptr made = 0;
       size_t pitch = 0;
       const CUresult result = cuMemAllocPitch_v2(&made, &pitch, 100, 4, 4);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemFree",
     [](Stage& s) {
       const CUresult result = cuMemFree_v2(s.more);
       if (result == CUDA_SUCCESS) s.more = 0;
       return result;
     }},
    {"cuMemHostAlloc",
     [](Stage& s) {
       void* made = nullptr;
       const CUresult result = cuMemHostAlloc(&made, kBytes, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFreeHost(made)); });
       return result;
     }},
    {"cuMemFreeHost",
     [](Stage& s) {
       const CUresult result = cuMemFreeHost(s.pinned);
       if (result == CUDA_SUCCESS) s.pinned = nullptr;
       return result;
     }},
    {"cuMemAllocManaged",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAllocManaged(&made, kBytes, CU_MEM_ATTACH_GLOBAL);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemHostRegister",
     [](Stage& s) {
       void* block = aligned_alloc(4096, 4096);
       const CUresult result = cuMemHostRegister_v2(block, 4096, 0);
       s.later([=] {
         if (result == CUDA_SUCCESS) CHECK_CU(cuMemHostUnregister(block));
         ::free(block);
       });
       return result;
     }},
    {"cuMemGetInfo",
     [](Stage&) {
       size_t available = 0, total = 0;
       return cuMemGetInfo_v2(&available, &total);
     }},
    {"cuMemGetAddressRange",
     [](Stage& s) {
       CUdeviceptr base = 0;
       size_t bytes = 0;
       return cuMemGetAddressRange_v2(&base, &bytes, s.memory);
     }},
    {"cuPointerGetAttribute",
     [](Stage& s) {
       unsigned type = 0;
       return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s.memory);
     }},
    {"cuMemHostGetDevicePointer",
     [](Stage& s) {
       CUdeviceptr seen = 0;
       return cuMemHostGetDevicePointer_v2(&seen, s.pinned, 0);
     }},
    {"cuArrayCreate",
     [](Stage& s) {
       CUarray made = nullptr;
       CUDA_ARRAY_DESCRIPTOR shape{16, 4, CU_AD_FORMAT_FLOAT, 1};
       const CUresult result = cuArrayCreate_v2(&made, &shape);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuArrayDestroy(made)); });
       return result;
     }},
    {"cuArrayDestroy",
     [](Stage& s) {
       const CUresult result = cuArrayDestroy(s.array);
       if (result == CUDA_SUCCESS) s.array = nullptr;
       return result;
     }},
    {"cuTexObjectCreate",
     [](Stage& s) {
       CUDA_RESOURCE_DESC resource{};
       resource.resType = CU_RESOURCE_TYPE_ARRAY;
       resource.res.array.hArray = s.array;
       CUDA_TEXTURE_DESC texture{};
       CUtexObject made = 0;
       const CUresult result = cuTexObjectCreate(&made, &resource, &texture, nullptr);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuTexObjectDestroy(made)); });
       return result;
     }},
    {"cuMemAddressReserve",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAddressReserve(&made, 2 << 20, 0, 0, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemAddressFree(made, 2 << 20)); });
       return result;
     }},
    {"cuMemCreate",
     [](Stage& s) {
       CUmemAllocationProp wanted{};
       wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
       wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.session.device};
       CUmemGenericAllocationHandle made = 0;
       const CUresult result = cuMemCreate(&made, 2 << 20, &wanted, 0);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemRelease(made)); });
       return result;
     }},
    {"cuMemPoolCreate",
     [](Stage& s) {
       CUmemPoolProps wanted{};
       wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
       wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.session.device};
       CUmemoryPool made = nullptr;
       const CUresult result = cuMemPoolCreate(&made, &wanted);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemPoolDestroy(made)); });
       return result;
     }},
    {"cuMemPoolTrimTo",
     [](Stage& s) {
       CUmemoryPool pool = nullptr;
       CHECK_CU(cuDeviceGetDefaultMemPool(&pool, s.session.device));
       return cuMemPoolTrimTo(pool, 0);
     }},
    {"cuMemAllocAsync(legacy)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAllocAsync(&made, kBytes, nullptr);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
    {"cuMemAllocAsync(free)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAllocAsync(&made, kBytes, s.free);
       if (result == CUDA_SUCCESS) s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return result;
     }},
};

const std::vector<Call> kNodeCalls = {
    {"cuMemAllocAsync(origin)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUresult result = cuMemAllocAsync(&made, kBytes, s.origin);
       return result;
     }},
    {"cuMemcpyPeerAsync(origin)",
     [](Stage& s) {
       return cuMemcpyPeerAsync(s.more, s.session.context, s.memory, s.session.context, kBytes,
                                s.origin);
     }},
    {"cuMemcpy2DAsync(origin)",
     [](Stage& s) {
       CUDA_MEMCPY2D copy = box(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
       copy.dstDevice = s.more;
       copy.srcDevice = s.memory;
       return cuMemcpy2DAsync_v2(&copy, s.origin);
     }},
    {"cuMemPrefetchAsync(origin)",
     [](Stage& s) {
       CUdeviceptr made = 0;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuMemAllocManaged(&made, kBytes, CU_MEM_ATTACH_GLOBAL));
       exchange_mode(before);
       s.later([=] { CHECK_CU(cuMemFree_v2(made)); });
       return cuMemPrefetchAsync_v2(made, kBytes, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, s.origin);
     }},
    {"cuGraphLaunch(origin) of a kernel",
     [](Stage& s) {
       CUgraph graph = nullptr;
       CUgraphNode node = nullptr;
       CUgraphExec exec = nullptr;
       CUDA_KERNEL_NODE_PARAMS kernel{};
       kernel.func = s.session.function("empty");
       kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
       kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
       void* none[] = {nullptr};
       kernel.kernelParams = none;
       const CUstreamCaptureMode before = exchange_mode(kRelaxed);
       CHECK_CU(cuGraphCreate(&graph, 0));
       CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &kernel));
       CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
       exchange_mode(before);
       s.later([=] {
         CHECK_CU(cuGraphExecDestroy(exec));
         CHECK_CU(cuGraphDestroy(graph));
       });
       return cuGraphLaunch(exec, s.origin);
     }},
    {"cuGraphLaunch(origin)", [](Stage& s) { return cuGraphLaunch(s.exec, s.origin); }},
};

}  // namespace e2e
