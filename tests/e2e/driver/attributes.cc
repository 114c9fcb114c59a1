// SPDX-License-Identifier: Apache-2.0
// Device attributes about optional features agree with the functions of these features, since
// libraries query an attribute before they use a feature: dma-bufs of device memory, multicast
// objects, sparse arrays, host memory in pools and mappings. Run by run_e2e.py.
#include <fcntl.h>
#include <unistd.h>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPage = 4096;
constexpr auto kDmaBuf = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;

int attribute(CUdevice_attribute which) {
  int value = -1;
  CHECK_CU(cuDeviceGetAttribute(&value, which, 0));
  printf("# attribute %d is %d\n", static_cast<int>(which), value);
  return value;
}

// Expects CUDA_ERROR_NOT_SUPPORTED if, and only if, the device does not have the feature.
void expect_as_said(const char* what, bool has, CUresult got) {
  printf("# %s: %s\n", what, e2e::name(got));
  expect(has == (got != CUDA_ERROR_NOT_SUPPORTED), "%s: as the attribute says", what);
}

// Expects a dma-buf of the range, with its size, if the device has the feature.
void expect_dma_buf(const char* what, bool has, CUdeviceptr address, size_t bytes) {
  int descriptor = -1;
  expect_as_said(what, has, cuMemGetHandleForAddressRange(&descriptor, address, bytes, kDmaBuf, 0));
  if (!has) return;
  const off_t size = lseek(descriptor, 0, SEEK_END);
  if (size != static_cast<off_t>(bytes)) expect(false, "%s: %ld bytes", what, size);
  close(descriptor);
}

void dma_bufs() {
  const bool has = attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0;
  e2e::Buffer<uint8_t> memory(4 * kMiB);
  expect_dma_buf("a dma-buf of an allocation", has, memory.address, memory.bytes());
  expect_dma_buf("a dma-buf of a part", has, memory.address + 8 * kPage, 2 * kPage);
  e2e::Buffer<uint8_t> small(64 * 1024);
  expect_dma_buf("a dma-buf of a small allocation", has, small.address / kPage * kPage,
                 small.bytes());

  // Physical memory can be exported only if it is created for that.
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.allocFlags.gpuDirectRDMACapable =
      attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0 ? 1 : 0;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr mapped = 0;
  CHECK_CU(cuMemCreate(&handle, 2 * kMiB, &prop, 0));
  CHECK_CU(cuMemAddressReserve(&mapped, 4 * kMiB, 0, 0, 0));
  CHECK_CU(cuMemMap(mapped, 2 * kMiB, 0, handle, 0));
  const CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK_CU(cuMemSetAccess(mapped, 2 * kMiB, &access, 1));
  expect_dma_buf("a dma-buf of a mapping", has, mapped, 2 * kMiB);

  int descriptor = -1;
  const auto refused = [&](const char* what, void* out, CUdeviceptr address, size_t bytes,
                           CUmemRangeHandleType type, unsigned long long flags) {
    // A driver without dma-bufs may check for the feature before the arguments.
    const CUresult got = cuMemGetHandleForAddressRange(out, address, bytes, type, flags);
    const bool none = !has && got == CUDA_ERROR_NOT_SUPPORTED;
    expect_result(what, none ? CUDA_ERROR_INVALID_VALUE : got, CUDA_ERROR_INVALID_VALUE);
  };
  refused("no place for the handle", nullptr, memory.address, kPage, kDmaBuf, 0);
  refused("an unknown handle", &descriptor, memory.address, kPage,
          static_cast<CUmemRangeHandleType>(77), 0);
  refused("unknown flags", &descriptor, memory.address, kPage, kDmaBuf, 0x100);
  refused("no bytes", &descriptor, memory.address, 0, kDmaBuf, 0);
  refused("half a page", &descriptor, memory.address, kPage / 2, kDmaBuf, 0);
  refused("from the middle of a page", &descriptor, memory.address + 512, kPage, kDmaBuf, 0);
  refused("beyond the mapping", &descriptor, mapped + kMiB, 2 * kMiB, kDmaBuf, 0);
  std::vector<uint8_t> ordinary(4 * kPage);
  const auto page = reinterpret_cast<CUdeviceptr>(ordinary.data() + kPage) / kPage * kPage;
  refused("memory of the program", &descriptor, page, kPage, kDmaBuf, 0);
  expect(descriptor == -1, "nothing is written where it fails");
  CHECK_CU(cuMemUnmap(mapped, 2 * kMiB));
  refused("what was unmapped", &descriptor, mapped, 2 * kMiB, kDmaBuf, 0);
  CHECK_CU(cuMemRelease(handle));
  CHECK_CU(cuMemAddressFree(mapped, 4 * kMiB));
}

void multicast() {
  const bool has = attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) != 0;
  CUmulticastObjectProp prop{};
  prop.numDevices = 1;
  prop.size = 2 * kMiB;
  prop.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granularity = 0;
  expect_as_said(
      "multicast objects", has,
      cuMulticastGetGranularity(&granularity, &prop, CU_MULTICAST_GRANULARITY_RECOMMENDED));
}

void sparse_arrays() {
  const bool has = attribute(CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED) != 0;
  CUDA_ARRAY3D_DESCRIPTOR wanted{};
  wanted.Width = 1024;
  wanted.Height = 1024;
  wanted.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  wanted.NumChannels = 4;
  wanted.Flags = CUDA_ARRAY3D_SPARSE;
  CUarray array = nullptr;
  const CUresult result = cuArray3DCreate_v2(&array, &wanted);
  expect_as_said("sparse arrays", has, result);
  if (result == CUDA_SUCCESS) CHECK_CU(cuArrayDestroy(array));
}

// The attribute of the decompression engine is the mask of its formats.
void decompression() {
  const bool has = attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK) != 0;
  const bool any = attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH) != 0;
  expect(has == any, "decompression: both attributes agree");
}

void host_memory() {
  const bool has =
      attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = cuMemCreate(&handle, 2 * kMiB, &prop, 0);
  expect_as_said("physical memory of the host", has, result);
  if (result == CUDA_SUCCESS) CHECK_CU(cuMemRelease(handle));
}

}  // namespace

int main() {
  e2e::Session session;
  dma_bufs();
  multicast();
  sparse_arrays();
  decompression();
  host_memory();
  return e2e::finish();
}
