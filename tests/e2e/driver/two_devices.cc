// SPDX-License-Identifier: Apache-2.0
// Two devices in one process: copies between them by every call, kernels that access the other
// device's memory, managed and pinned memory used by both, and order across devices by events. Run
// by run_e2e.py; natively only on a machine with two GPUs.
// usage: drv_two_devices copies|kernels|order
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr uint32_t kWords = 5000;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr uint32_t kThreads = 128;

// A device's primary context with the kernels, a stream and some memory.
struct Side {
  CUdevice device;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction mix = nullptr;
  CUfunction hold = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr words = 0;

  explicit Side(CUdevice ordinal) : device(ordinal) {
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    enter();
    CHECK_CU(cuModuleLoadData(&module, e2e::kernels_ptx()));
    CHECK_CU(cuModuleGetFunction(&mix, module, "mix"));
    CHECK_CU(cuModuleGetFunction(&hold, module, "hold"));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemAlloc_v2(&words, kBytes));
  }
  Side(const Side&) = delete;
  ~Side() {
    enter();
    CHECK_CU(cuMemFree_v2(words));
    CHECK_CU(cuStreamDestroy_v2(stream));
    CHECK_CU(cuModuleUnload(module));
    CHECK_CU(cuDevicePrimaryCtxRelease_v2(device));
  }
  void enter() const { CHECK_CU(cuCtxSetCurrent(context)); }
  void fill(uint32_t value) const {
    enter();
    CHECK_CU(cuMemsetD32_v2(words, value, kWords));
    CHECK_CU(cuCtxSynchronize());
  }
  // Runs `mix` with `key` on any memory, in this side's stream.
  void run(CUdeviceptr memory, uint32_t key) const {
    enter();
    e2e::launch(mix, e2e::blocks_for(kWords, kThreads), kThreads, 0, stream, memory, kWords, key);
  }
  void finish() const {
    enter();
    CHECK_CU(cuStreamSynchronize(stream));
  }
  bool holds(uint32_t value) const {
    std::vector<uint32_t> seen(kWords);
    enter();
    CHECK_CU(cuMemcpyDtoH_v2(seen.data(), words, kBytes));
    return seen == std::vector<uint32_t>(kWords, value);
  }
};

std::vector<uint32_t> mixed(uint32_t start, std::initializer_list<uint32_t> keys) {
  std::vector<uint32_t> words(kWords, start);
  for (uint32_t key : keys) e2e::mix_on_host(words, key);
  return words;
}

// ---- Copies -------------------------------------------------------------------------------------

template <typename Copy>
void copy_by(const char* what, const Side& one, const Side& other, uint32_t value, Copy&& copy) {
  one.fill(value);
  other.fill(0);
  one.enter();
  CHECK_CU(copy());
  one.finish();
  CHECK_CU(cuCtxSynchronize());
  expect(other.holds(value), "%s", what);
}

void copies(const Side& one, const Side& other) {
  copy_by("a copy between contexts", one, other, 1,
          [&] { return cuMemcpyPeer(other.words, other.context, one.words, one.context, kBytes); });
  copy_by("in stream order", one, other, 2, [&] {
    return cuMemcpyPeerAsync(other.words, other.context, one.words, one.context, kBytes,
                             one.stream);
  });
  copy_by("by addresses alone", one, other, 3,
          [&] { return cuMemcpy(other.words, one.words, kBytes); });
  copy_by("as between device memory", one, other, 4,
          [&] { return cuMemcpyDtoDAsync_v2(other.words, one.words, kBytes, one.stream); });
  CUDA_MEMCPY3D_PEER box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = one.words;
  box.srcContext = one.context;
  box.dstDevice = other.words;
  box.dstContext = other.context;
  box.WidthInBytes = kBytes;
  box.Height = box.Depth = 1;
  copy_by("a box", one, other, 5, [&] { return cuMemcpy3DPeer(&box); });
  copy_by("a box in stream order", one, other, 6,
          [&] { return cuMemcpy3DPeerAsync(&box, one.stream); });
  expect_result("no context",
                cuMemcpyPeer(other.words, other.context, one.words,
                             reinterpret_cast<CUcontext>(uintptr_t{64}), kBytes),
                {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT});

  int device = -1;
  CHECK_CU(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, other.words));
  expect(device == other.device, "whose memory it is");
  size_t before = 0, after = 0, total = 0;
  CUdeviceptr large = 0;
  one.enter();
  CHECK_CU(cuMemGetInfo_v2(&before, &total));
  other.enter();
  CHECK_CU(cuMemAlloc_v2(&large, size_t{64} << 20));
  one.enter();
  CHECK_CU(cuMemGetInfo_v2(&after, &total));
  expect(before == after, "each has its own memory");
  CHECK_CU(cuMemFree_v2(large));
}

// ---- Kernels ------------------------------------------------------------------------------------

void kernels(const Side& one, const Side& other) {
  int able = 0, back = 0;
  CHECK_CU(cuDeviceCanAccessPeer(&able, one.device, other.device));
  CHECK_CU(cuDeviceCanAccessPeer(&back, other.device, one.device));
  int attribute = 0;
  for (CUdevice_P2PAttribute which :
       {CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
        CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
        CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED}) {
    CHECK_CU(cuDeviceGetP2PAttribute(&attribute, which, one.device, other.device));
  }
  expect_result("no such attribute",
                cuDeviceGetP2PAttribute(&attribute, static_cast<CUdevice_P2PAttribute>(99),
                                        one.device, other.device),
                CUDA_ERROR_INVALID_VALUE);
  expect(able == 1 && back == 1, "each reaches the other");
  one.enter();
  CHECK_CU(cuCtxEnablePeerAccess(other.context, 0));
  other.fill(7);
  one.run(other.words, 1);
  one.finish();
  std::vector<uint32_t> seen(kWords);
  CHECK_CU(cuMemcpyDtoH_v2(seen.data(), other.words, kBytes));
  expect(seen == mixed(7, {1}), "a kernel works on the other's memory");
  CHECK_CU(cuCtxDisablePeerAccess(other.context));

  // Managed and pinned memory can be used by both devices.
  CUdeviceptr managed = 0;
  uint32_t* pinned = nullptr;
  CUdeviceptr mapped = 0;
  CHECK_CU(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  CHECK_CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, CU_MEMHOSTALLOC_PORTABLE));
  auto* in_managed = reinterpret_cast<uint32_t*>(managed);
  for (uint32_t i = 0; i < kWords; i++) in_managed[i] = pinned[i] = 8;
  CHECK_CU(cuMemHostGetDevicePointer_v2(&mapped, pinned, 0));
  for (const Side* side : {&one, &other}) {
    side->run(managed, 2);
    side->run(mapped, 3);
    side->finish();
  }
  expect(std::vector<uint32_t>(in_managed, in_managed + kWords) == mixed(8, {2, 2}),
         "managed memory, by one after the other");
  expect(std::vector<uint32_t>(pinned, pinned + kWords) == mixed(8, {3, 3}), "pinned memory");
  one.enter();
  CHECK_CU(cuMemFree_v2(managed));
  CHECK_CU(cuMemFreeHost(pinned));
}

// ---- Order --------------------------------------------------------------------------------------

// One device's stream waits until the host releases it; the other device waits for it by an event.
void order(const Side& one, const Side& other) {
  uint32_t* flag = nullptr;
  CHECK_CU(cuMemHostAlloc(reinterpret_cast<void**>(&flag), sizeof *flag, CU_MEMHOSTALLOC_PORTABLE));
  *flag = 0;
  CUdeviceptr seen_flag = 0;
  CHECK_CU(cuMemHostGetDevicePointer_v2(&seen_flag, flag, 0));
  one.fill(9);
  other.fill(0);
  CUevent event = nullptr;
  one.enter();
  CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  e2e::launch(one.hold, 1, 1, 0, one.stream, seen_flag);
  one.run(one.words, 4);
  CHECK_CU(cuEventRecord(event, one.stream));
  expect_result("a record in the other's stream", cuEventRecord(event, other.stream),
                CUDA_ERROR_INVALID_HANDLE);
  other.enter();
  CHECK_CU(cuStreamWaitEvent(other.stream, event, 0));
  CHECK_CU(
      cuMemcpyPeerAsync(other.words, other.context, one.words, one.context, kBytes, other.stream));
  other.run(other.words, 5);
  expect_result("the other waits", cuStreamQuery(other.stream), CUDA_ERROR_NOT_READY);
  expect_result("asked from the other's context", cuEventQuery(event), CUDA_ERROR_NOT_READY);
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  CHECK_CU(cuEventSynchronize(event));
  other.finish();
  std::vector<uint32_t> seen(kWords);
  CHECK_CU(cuMemcpyDtoH_v2(seen.data(), other.words, kBytes));
  expect(seen == mixed(9, {4, 5}), "one after the other");
  CHECK_CU(cuEventDestroy_v2(event));
  CHECK_CU(cuMemFreeHost(flag));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "copies";
  setvbuf(stdout, nullptr, _IOLBF, 0);
  CHECK_CU(cuInit(0));
  const Side one(0), other(1);
  if (group == "copies") {
    copies(one, other);
  } else if (group == "kernels") {
    kernels(one, other);
  } else {
    order(one, other);
  }
  return e2e::finish();
}
