// SPDX-License-Identifier: Apache-2.0
// Device enumeration: attributes, properties, memory, names and IDs agree with each other. Only
// text that is equal on all devices is printed. Run by run_e2e.py. usage: device_enum
#include "e2e.h"

static int attribute(cudaDeviceAttr which, int device) {
  int value = -1;
  CHECK_CUDA(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

static void check_device(int ordinal) {
  CHECK_CUDA(cudaSetDevice(ordinal));
  int current = -1;
  CHECK_CUDA(cudaGetDevice(&current));
  e2e::expect(current == ordinal, "device is current");
  cudaDeviceProp p;
  CHECK_CUDA(cudaGetDeviceProperties(&p, ordinal));
  printf("# %s, compute capability %d.%d, %d SMs, %zu MiB\n", p.name, p.major, p.minor,
         p.multiProcessorCount, p.totalGlobalMem >> 20);
  e2e::expect(p.name[0] != 0 && strnlen(p.name, sizeof p.name) < sizeof p.name, "name");
  e2e::expect(p.warpSize == 32 && attribute(cudaDevAttrWarpSize, ordinal) == 32, "warp size 32");
  e2e::expect(p.maxThreadsPerBlock == 1024, "1024 threads per block");
  e2e::expect(p.maxThreadsDim[0] == 1024 && p.maxThreadsDim[1] == 1024 && p.maxThreadsDim[2] == 64,
              "block limits");
  e2e::expect(
      p.maxGridSize[0] == 2147483647 && p.maxGridSize[1] == 65535 && p.maxGridSize[2] == 65535,
      "grid limits");
  e2e::expect(p.major == attribute(cudaDevAttrComputeCapabilityMajor, ordinal) &&
                  p.minor == attribute(cudaDevAttrComputeCapabilityMinor, ordinal) &&
                  p.major * 10 + p.minor >= 75,
              "compute capability");
  e2e::expect(p.multiProcessorCount == attribute(cudaDevAttrMultiProcessorCount, ordinal) &&
                  p.multiProcessorCount >= 1,
              "multiprocessors");
  e2e::expect(p.sharedMemPerBlock == 48 * 1024, "48 KiB of shared memory per block");
  e2e::expect(p.sharedMemPerBlockOptin >= 64 * 1024 &&
                  p.sharedMemPerMultiprocessor >= p.sharedMemPerBlockOptin,
              "opt-in shared memory");
  e2e::expect(p.regsPerBlock == 65536 && p.regsPerMultiprocessor == 65536, "registers");
  e2e::expect(p.totalConstMem == 65536, "constant memory");
  e2e::expect(p.unifiedAddressing == 1 && p.canMapHostMemory == 1,
              "unified addresses, mapped host memory");
  e2e::expect(p.asyncEngineCount >= 1 && p.concurrentKernels == 1, "copies and kernels overlap");
  e2e::expect(p.maxThreadsPerMultiProcessor >= 1024 && p.maxThreadsPerMultiProcessor % 32 == 0,
              "threads per multiprocessor");
  e2e::expect(p.memoryBusWidth > 0 && p.l2CacheSize >= 0, "memory figures");
  unsigned char any = 0;
  for (char byte : p.uuid.bytes) any |= static_cast<unsigned char>(byte);
  e2e::expect(any != 0, "UUID");
  char bus[32];
  int found = -1;
  CHECK_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal));
  CHECK_CUDA(cudaDeviceGetByPCIBusId(&found, bus));
  e2e::expect(found == ordinal, "PCI bus id leads back to the device");
  size_t free_bytes, total_bytes, before;
  CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  e2e::expect(total_bytes == p.totalGlobalMem && free_bytes <= total_bytes && free_bytes > 0,
              "memory information");
  void* block;
  before = free_bytes;
  CHECK_CUDA(cudaMalloc(&block, 64 << 20));
  CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  // Other processes may allocate, too, so the exact amount is not compared.
  e2e::expect(free_bytes < before, "an allocation takes free memory");
  CHECK_CUDA(cudaFree(block));
  unsigned flags = ~0u;
  CHECK_CUDA(cudaGetDeviceFlags(&flags));
  e2e::expect((flags & cudaDeviceScheduleMask) <= cudaDeviceScheduleBlockingSync, "device flags");
  size_t stack = 0;
  CHECK_CUDA(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
  e2e::expect(stack > 0, "stack limit");
}

int main() {
  int driver = 0, runtime = 0, count = 0;
  CHECK_CUDA(cudaDriverGetVersion(&driver));
  CHECK_CUDA(cudaRuntimeGetVersion(&runtime));
  e2e::expect(driver >= runtime, "the driver is as new as the run time");
  CHECK_CUDA(cudaGetDeviceCount(&count));
  e2e::expect(count >= 1, "there is a device");
  if (count < 1) return e2e::finish();
  check_device(0);
  int chosen = -1;
  cudaDeviceProp wish = {};
  CHECK_CUDA(cudaChooseDevice(&chosen, &wish));
  e2e::expect(chosen >= 0 && chosen < count, "a device can be chosen");
  int peer = -1;
  CHECK_CUDA(cudaDeviceCanAccessPeer(&peer, 0, 0));
  e2e::expect(peer == 0, "a device is no peer of itself");
  e2e::expect_error("device beyond the last", cudaSetDevice(count), cudaErrorInvalidDevice);
  e2e::expect_error("device -1", cudaSetDevice(-1), cudaErrorInvalidDevice);
  cudaDeviceProp p;
  e2e::expect_error("properties of no device", cudaGetDeviceProperties(&p, count),
                    cudaErrorInvalidDevice);
  e2e::expect_error("attribute that does not exist",
                    cudaDeviceGetAttribute(&peer, static_cast<cudaDeviceAttr>(9999), 0),
                    cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK_CUDA(cudaDeviceReset());
  void* again;
  CHECK_CUDA(cudaMalloc(&again, 1));
  CHECK_CUDA(cudaFree(again));
  return e2e::finish();
}
