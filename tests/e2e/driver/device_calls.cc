// SPDX-License-Identifier: Apache-2.0
// The older device queries, contexts and their settings, peers, and queries of arrays and textures.
// Run by run_e2e.py.
// usage: drv_device_calls devices|contexts|attached|peers|arrays
#include <algorithm>
#include <string>
#include <vector>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr auto kInvalid = CUDA_ERROR_INVALID_VALUE;

int attribute(CUdevice_attribute which) {
  int value = -1;
  CHECK_CU(cuDeviceGetAttribute(&value, which, 0));
  return value;
}

// ---- Devices -----------------------------------------------------------------------------------

void devices() {
  CUdevprop properties{};
  CHECK_CU(cuDeviceGetProperties(&properties, 0));
  expect(properties.maxThreadsPerBlock == attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
             properties.maxThreadsDim[2] == attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) &&
             properties.maxGridSize[0] == attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) &&
             properties.sharedMemPerBlock ==
                 attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) &&
             properties.SIMDWidth == attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE) &&
             properties.regsPerBlock == attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
         "properties are what the attributes say");
  int major = 0, minor = 0;
  CHECK_CU(cuDeviceComputeCapability(&major, &minor, 0));
  expect(major == attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) &&
             minor == attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
         "so is the compute capability");
  expect_result("properties of no device", cuDeviceGetProperties(&properties, 99),
                CUDA_ERROR_INVALID_DEVICE);
  expect_result("the capability of no device", cuDeviceComputeCapability(&major, &minor, 99),
                CUDA_ERROR_INVALID_DEVICE);
  int value = 0;
  expect_result("a device as its own peer",
                cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 0),
                CUDA_ERROR_INVALID_DEVICE);
  value = 77;
  CHECK_CU(cuDeviceGetExecAffinitySupport(&value, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
  expect(value == 0 || value == 1, "affinity is there or not");
  size_t narrow = 0, wide = 0;
  CHECK_CU(cuDeviceGetTexture1DLinearMaxWidth(&narrow, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0));
  CHECK_CU(cuDeviceGetTexture1DLinearMaxWidth(&wide, CU_AD_FORMAT_FLOAT, 4, 0));
  expect(narrow >= wide && wide > 0, "widths of linear textures");
  const auto target = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX;
  const bool flushes = (attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
                        CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0;
  const CUresult flushed =
      cuFlushGPUDirectRDMAWrites(target, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  printf("# flushing remote writes, %s: %s\n", flushes ? "an option" : "no option",
         e2e::name(flushed));
  expect(flushed == CUDA_SUCCESS || (!flushes && flushed == CUDA_ERROR_NOT_SUPPORTED),
         "flushing remote writes");
  expect_result("flushing them to nobody",
                cuFlushGPUDirectRDMAWrites(target, static_cast<CUflushGPUDirectRDMAWritesScope>(9)),
                {kInvalid, CUDA_ERROR_NOT_SUPPORTED});
  CHECK_CU(cuProfilerStart());
  CHECK_CU(cuProfilerStop());
}

// ---- Contexts ----------------------------------------------------------------------------------

CUcontext current() {
  CUcontext context = nullptr;
  CHECK_CU(cuCtxGetCurrent(&context));
  return context;
}

void contexts(const e2e::Session& session) {
  unsigned flags = 0;
  int active = 0;
  CHECK_CU(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
  CHECK_CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
  expect((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC && active == 1,
         "flags of the primary context");
  expect_result("two ways of waiting",
                cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD), kInvalid);
  CUcontext third = nullptr, fourth = nullptr;
  CHECK_CU(cuCtxCreate_v3(&third, nullptr, 0, CU_CTX_SCHED_YIELD, session.device));
  expect(current() == third && third != session.context, "a context of the third kind");
  CHECK_CU(cuCtxGetFlags(&flags));
  expect((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD, "with its flags");
  CHECK_CU(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
  CHECK_CU(cuCtxGetFlags(&flags));
  expect((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_SPIN, "and others");
  CUctxCreateParams params{};
  CHECK_CU(cuCtxCreate_v4(&fourth, &params, 0, session.device));
  expect(current() == fourth && fourth != third, "a context of the fourth kind");
  CHECK_CU(cuCtxDestroy_v2(fourth));
  expect(current() == third, "the third is back");

  CHECK_CU(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_SHARED));
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_EQUAL;
  CHECK_CU(cuCtxGetCacheConfig(&cache));
  expect(cache == CU_FUNC_CACHE_PREFER_SHARED || cache == CU_FUNC_CACHE_PREFER_NONE,
         "the preference, or that there is none");
  expect_result("no such preference", cuCtxSetCacheConfig(static_cast<CUfunc_cache>(9)), kInvalid);
  CHECK_CU(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE));
  CUsharedconfig banks = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  CHECK_CU(cuCtxGetSharedMemConfig(&banks));
  expect(banks == CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE, "banks of four bytes");
  constexpr size_t kText = 3 << 20;
  size_t bytes = 0;
  CHECK_CU(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, kText));
  CHECK_CU(cuCtxGetLimit(&bytes, CU_LIMIT_PRINTF_FIFO_SIZE));
  expect(bytes >= kText, "room for printing");
  expect_result("no such limit", cuCtxSetLimit(static_cast<CUlimit>(99), 1),
                {CUDA_ERROR_UNSUPPORTED_LIMIT, kInvalid});
  expect_result("lines of the cache", cuCtxResetPersistingL2Cache(), CUDA_SUCCESS);
  CUexecAffinityParam affinity{};
  const CUresult known = cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT);
  expect(known == CUDA_SUCCESS
             ? affinity.param.smCount.val ==
                   static_cast<unsigned>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))
             : known == CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
         "all multiprocessors, or no affinity at all");
  CHECK_CU(cuCtxDestroy_v2(third));
}

void attached(const e2e::Session& session) {
  CUcontext made = nullptr, again = nullptr;
  CHECK_CU(cuCtxCreate_v2(&made, 0, session.device));
  CHECK_CU(cuCtxAttach(&again, 0));
  expect(again == made, "the current context is attached to");
  expect_result("flags of it", cuCtxAttach(&again, 1), kInvalid);
  CHECK_CU(cuCtxDetach(made));
  unsigned version = 0;
  CHECK_CU(cuCtxGetApiVersion(made, &version));
  expect(current() == made, "it outlives one of two users");
  CHECK_CU(cuCtxSetCurrent(session.context));
  expect_result("detaching what is not current", cuCtxDetach(made), CUDA_ERROR_INVALID_CONTEXT);
  CHECK_CU(cuCtxSetCurrent(made));
  CHECK_CU(cuCtxDetach(made));
  expect(current() != made, "but not both");
}

// ---- Peers -------------------------------------------------------------------------------------

// Copies between two devices work without peer access.
void copies_without_peers(const e2e::Session& session, CUcontext other) {
  constexpr uint32_t kWords = 1000;
  CUdeviceptr here = 0, there = 0;
  CUstream stream = nullptr;
  CHECK_CU(cuCtxPushCurrent_v2(other));
  CHECK_CU(cuMemAlloc_v2(&there, kWords * 4));
  CHECK_CU(cuMemsetD32_v2(there, 7, kWords));
  CHECK_CU(cuCtxSynchronize());
  CHECK_CU(cuCtxPopCurrent_v2(nullptr));
  CHECK_CU(cuMemAlloc_v2(&here, kWords * 4));
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<uint32_t> seen(kWords);
  const auto holds = [&](CUdeviceptr address, uint32_t value, const char* what) {
    CHECK_CU(cuMemcpyDtoHAsync_v2(seen.data(), address, kWords * 4, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    expect(std::count(seen.begin(), seen.end(), value) == kWords, "%s", what);
  };
  holds(there, 7, "the other device's memory is read");
  CHECK_CU(cuMemcpyDtoDAsync_v2(here, there, kWords * 4, stream));
  holds(here, 7, "a copy from there");
  CHECK_CU(cuMemsetD32Async(here, 8, kWords, stream));
  CHECK_CU(cuMemcpyPeerAsync(there, other, here, session.context, kWords * 4, stream));
  holds(there, 8, "a copy to there");
  CHECK_CU(cuMemsetD32Async(here, 9, kWords, stream));
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.srcDevice = here;
  box.dstDevice = there;
  box.srcPitch = box.dstPitch = box.WidthInBytes = 40;
  box.srcHeight = box.dstHeight = box.Height = kWords / 10;
  box.Depth = 1;
  CHECK_CU(cuMemcpy3DAsync_v2(&box, stream));
  holds(there, 9, "a box to there");
  CHECK_CU(cuMemsetD32Async(here, 10, kWords, stream));
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CHECK_CU(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &box, session.context));
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CU(cuGraphLaunch(exec, stream));
  holds(there, 10, "a graph's copy to there");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuStreamDestroy_v2(stream));
  CHECK_CU(cuMemFree_v2(here));
  CHECK_CU(cuMemFree_v2(there));
}

// A kernel on one device writes to memory of another device.
void peers(const e2e::Session& session) {
  CUcontext other = nullptr;
  CHECK_CU(cuDevicePrimaryCtxRetain(&other, 1));
  int can = 0, supported = 0;
  CHECK_CU(cuDeviceCanAccessPeer(&can, 0, 1));
  CHECK_CU(cuDeviceGetP2PAttribute(&supported, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  expect(can == 1 && supported == 1, "each reaches the other");
  copies_without_peers(session, other);
  expect_result("access that nobody enabled", cuCtxDisablePeerAccess(other),
                CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  expect_result("flags of access", cuCtxEnablePeerAccess(other, 1), kInvalid);
  CHECK_CU(cuCtxEnablePeerAccess(other, 0));
  expect_result("access once more", cuCtxEnablePeerAccess(other, 0),
                CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CHECK_CU(cuCtxPushCurrent_v2(other));
  CUdeviceptr there = 0;
  CHECK_CU(cuMemAlloc_v2(&there, 4));
  CHECK_CU(cuCtxPopCurrent_v2(nullptr));
  e2e::launch(session.function("store_at"), 1, 1, 0, nullptr, there, 55u);
  CHECK_CU(cuCtxSynchronize());
  uint32_t seen = 0;
  CHECK_CU(cuMemcpyDtoH_v2(&seen, there, 4));
  expect(seen == 55, "a kernel writes to the other device");
  CHECK_CU(cuCtxDisablePeerAccess(other));
  expect_result("access that was disabled", cuCtxDisablePeerAccess(other),
                CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  CHECK_CU(cuMemFree_v2(there));
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(1));
}

// ---- Arrays ------------------------------------------------------------------------------------

void arrays() {
  CUDA_ARRAY3D_DESCRIPTOR wanted{};
  wanted.Width = wanted.Height = 64;
  wanted.Format = CU_AD_FORMAT_FLOAT;
  wanted.NumChannels = 1;
  CUarray array = nullptr, plane = nullptr;
  CHECK_CU(cuArray3DCreate_v2(&array, &wanted));
  expect_result("a plane of an array without planes", cuArrayGetPlane(&plane, array, 0), kInvalid);
  CUDA_ARRAY_SPARSE_PROPERTIES sparse{};
  expect_result("sparse properties of an ordinary array",
                cuArrayGetSparseProperties(&sparse, array), kInvalid);
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  expect_result("requirements of an array with memory",
                cuArrayGetMemoryRequirements(&needs, array, 0), kInvalid);

  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC texture{}, seen{};
  texture.addressMode[0] = texture.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
  texture.addressMode[2] = CU_TR_ADDRESS_MODE_WRAP;
  texture.filterMode = CU_TR_FILTER_MODE_LINEAR;
  CUtexObject object = 0;
  CHECK_CU(cuTexObjectCreate(&object, &resource, &texture, nullptr));
  CHECK_CU(cuTexObjectGetTextureDesc(&seen, object));
  expect(seen.addressMode[0] == CU_TR_ADDRESS_MODE_CLAMP &&
             seen.addressMode[1] == CU_TR_ADDRESS_MODE_CLAMP &&
             seen.filterMode == CU_TR_FILTER_MODE_LINEAR && seen.flags == 0,
         "how a texture reads");
  CUDA_RESOURCE_VIEW_DESC view{};
  // NVIDIA's driver (580) returns an empty view.
  expect_result("the view of a texture without one", cuTexObjectGetResourceViewDesc(&view, object),
                {kInvalid, CUDA_SUCCESS});
  CHECK_CU(cuTexObjectDestroy(object));
  CHECK_CU(cuArrayDestroy(array));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "devices";
  e2e::Session session;
  if (group == "devices") {
    devices();
  } else if (group == "contexts") {
    contexts(session);
  } else if (group == "attached") {
    attached(session);
  } else if (group == "peers") {
    peers(session);
  } else {
    arrays();
  }
  return e2e::finish();
}
