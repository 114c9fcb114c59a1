// SPDX-License-Identifier: Apache-2.0
// Reservations, physical memory, mappings, and sharing by descriptor.
#include "device_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace openmps::softgpu::testing {
namespace {

constexpr size_t kUnit = 2 << 20;

class VmmTest : public DeviceTest {
 protected:
  static CUmemAllocationProp properties() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
  }
  static CUmemGenericAllocationHandle create(size_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop = properties();
    EXPECT_CU(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
  }
  static CUresult access(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags) {
    CUmemAccessDesc description = {};
    description.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    description.flags = flags;
    return cuMemSetAccess(address, bytes, &description, 1);
  }
};

TEST_F(VmmTest, MapAccessUnmapRemap) {
  size_t unit = 0;
  CUmemAllocationProp prop = properties();
  EXPECT_CU(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(unit, kUnit);
  CUdeviceptr base = 0;
  ASSERT_CU(cuMemAddressReserve(&base, 4 * kUnit, 0, 0, 0));
  auto handle = create(2 * kUnit);
  ASSERT_CU(cuMemMap(base + kUnit, 2 * kUnit, 0, handle, 0));
  // Without access the device does not reach it.
  EXPECT_EQ(cuMemsetD8_v2(base + kUnit, 1, 16), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(access(base + kUnit, 2 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_CU(cuMemsetD32_v2(base + kUnit, 11, 1));
  launch(nullptr, FakeAction::kAdd, base + kUnit, 4);
  EXPECT_CU(cuCtxSynchronize());
  // The contents belong to the physical memory: seen through another mapping after the unmap.
  ASSERT_CU(cuMemUnmap(base + kUnit, 2 * kUnit));
  EXPECT_EQ(cuMemMap(base, kUnit, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);  // a part
  ASSERT_CU(cuMemMap(base, 2 * kUnit, 0, handle, 0));
  ASSERT_CU(access(base, 2 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READ));
  uint32_t value = 0;
  EXPECT_CU(cuMemcpyDtoH_v2(&value, base, 4));
  EXPECT_EQ(value, 15u);
  EXPECT_EQ(cuMemsetD8_v2(base, 1, 1), CUDA_ERROR_INVALID_VALUE);  // read-only
  EXPECT_CU(cuMemRelease(handle));                                 // the mapping keeps it
  EXPECT_CU(cuMemcpyDtoH_v2(&value, base, 4));
  EXPECT_CU(cuMemUnmap(base, 2 * kUnit));
  EXPECT_CU(cuMemAddressFree(base, 4 * kUnit));
}

TEST_F(VmmTest, FixedAddressesAndHints) {
  CUdeviceptr first = 0;
  ASSERT_CU(cuMemAddressReserve(&first, kUnit, 0, 0, 0));
  EXPECT_CU(cuMemAddressFree(first, kUnit));
  CUdeviceptr again = 0;
  ASSERT_CU(cuMemAddressReserve(&again, kUnit, 0, first, 0));
  EXPECT_EQ(again, first);
  CUdeviceptr elsewhere = 0;
  ASSERT_CU(cuMemAddressReserve(&elsewhere, kUnit, 0, first, 0));
  EXPECT_NE(elsewhere, first);
  EXPECT_CU(cuMemAddressFree(again, kUnit));
  EXPECT_CU(cuMemAddressFree(elsewhere, kUnit));
  CUdeviceptr aligned = 0;
  ASSERT_CU(cuMemAddressReserve(&aligned, kUnit, 1 << 30, 0, 0));
  EXPECT_EQ(aligned % (1 << 30), 0u);
  EXPECT_CU(cuMemAddressFree(aligned, kUnit));
}

TEST_F(VmmTest, CopiesRunAcrossAdjacentMappings) {
  CUdeviceptr base = 0;
  ASSERT_CU(cuMemAddressReserve(&base, 2 * kUnit, 0, 0, 0));
  auto one = create(kUnit);
  auto two = create(kUnit);
  ASSERT_CU(cuMemMap(base, kUnit, 0, one, 0));
  ASSERT_CU(cuMemMap(base + kUnit, kUnit, 0, two, 0));
  ASSERT_CU(access(base, 2 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_CU(cuMemsetD8_v2(base, 5, 2 * kUnit));
  EXPECT_EQ(cuMemsetD8_v2(base, 5, 2 * kUnit + 1), CUDA_ERROR_INVALID_VALUE);
  uint8_t edge[2] = {};
  EXPECT_CU(cuMemcpyDtoH_v2(edge, base + kUnit - 1, 2));
  EXPECT_EQ(edge[0] + edge[1], 10);
  EXPECT_CU(cuMemUnmap(base, 2 * kUnit));
  EXPECT_CU(cuMemRelease(one));
  EXPECT_CU(cuMemRelease(two));
  EXPECT_CU(cuMemAddressFree(base, 2 * kUnit));
}

TEST_F(VmmTest, ADescriptorCarriesTheMemoryOn) {
  CUdeviceptr base = 0;
  ASSERT_CU(cuMemAddressReserve(&base, 2 * kUnit, 0, 0, 0));
  auto handle = create(kUnit);
  int descriptor = -1;
  ASSERT_CU(cuMemExportToShareableHandle(&descriptor, handle,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT_NE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
  void* host = mmap(nullptr, kUnit, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  ASSERT_NE(host, MAP_FAILED);
  EXPECT_NE(ftruncate(descriptor, 0), 0);  // sealed
  *static_cast<uint32_t*>(host) = 77;
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_CU(cuMemImportFromShareableHandle(
      &imported, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  EXPECT_CU(cuMemRelease(handle));
  ASSERT_CU(cuMemMap(base, kUnit, 0, imported, 0));
  ASSERT_CU(access(base, kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  uint32_t value = 0;
  EXPECT_CU(cuMemcpyDtoH_v2(&value, base, 4));
  EXPECT_EQ(value, 77u);
  CUmemGenericAllocationHandle retained = 0;
  EXPECT_CU(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(base + 4096)));
  EXPECT_EQ(retained, imported);
  CUmemAllocationProp prop = {};
  EXPECT_CU(cuMemGetAllocationPropertiesFromHandle(&prop, retained));
  EXPECT_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_CU(cuMemRelease(retained));
  EXPECT_CU(cuMemRelease(imported));
  EXPECT_EQ(cuMemRelease(imported), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemUnmap(base, kUnit));
  EXPECT_CU(cuMemAddressFree(base, 2 * kUnit));
  munmap(host, kUnit);
}

TEST_F(VmmTest, PhysicalMemoryIsCounted) {
  size_t before = 0;
  size_t total = 0;
  size_t after = 0;
  EXPECT_CU(cuMemGetInfo_v2(&before, &total));
  auto handle = create(4 * kUnit);
  EXPECT_CU(cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(after, before - 4 * kUnit);
  EXPECT_CU(cuMemRelease(handle));
  EXPECT_CU(cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(after, before);
  CUmemAllocationProp prop = properties();
  EXPECT_EQ(cuMemCreate(&handle, 1ull << 30, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(VmmTest, CompressibleMemoryIsGrantedAsAsked) {
  int supported = 0;
  EXPECT_CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, 0));
  EXPECT_EQ(supported, 1);
  for (const auto wanted : {CU_MEM_ALLOCATION_COMP_GENERIC, CU_MEM_ALLOCATION_COMP_NONE}) {
    CUmemAllocationProp prop = properties();
    prop.allocFlags.compressionType = static_cast<unsigned char>(wanted);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(cuMemCreate(&handle, kUnit, &prop, 0));
    CUmemAllocationProp granted{};
    EXPECT_CU(cuMemGetAllocationPropertiesFromHandle(&granted, handle));
    EXPECT_EQ(granted.allocFlags.compressionType, wanted);
    EXPECT_CU(cuMemRelease(handle));
  }
}

TEST_F(VmmTest, UnmapFromUnderARunningKernelFaultsIt) {
  CUdeviceptr base = 0;
  ASSERT_CU(cuMemAddressReserve(&base, kUnit, 0, 0, 0));
  auto handle = create(kUnit);
  ASSERT_CU(cuMemMap(base, kUnit, 0, handle, 0));
  ASSERT_CU(access(base, kUnit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_CU(cuMemsetD32_v2(base, 0, 1));
  EXPECT_CU(cuCtxSynchronize());  // the stream would not wait for the fill
  CUstream s = stream();
  CUevent before = event();
  ASSERT_CU(cuEventRecord(before, s));
  launch(s, FakeAction::kWait, base, 1);
  EXPECT_CU(cuEventSynchronize(before));  // the kernel is next, or runs
  EXPECT_CU(cuMemUnmap(base, kUnit));     // returns, although the kernel would run for ever
  EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_CU(cuMemRelease(handle));
  EXPECT_CU(cuMemAddressFree(base, kUnit));
}

TEST_F(VmmTest, BadArguments) {
  CUdeviceptr base = 0;
  EXPECT_EQ(cuMemAddressReserve(&base, 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemAddressReserve(&base, 2 * kUnit, 0, 0, 0));
  auto handle = create(kUnit);
  EXPECT_EQ(cuMemMap(base, 4096, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemMap(base, 2 * kUnit, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemMap(base + 2 * kUnit, kUnit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, kUnit, 0, 12345, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemMap(base, kUnit, 0, handle, 0));
  EXPECT_EQ(cuMemMap(base, kUnit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(access(base, 2 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemUnmap(base + kUnit, kUnit));  // nothing
  EXPECT_EQ(cuMemUnmap(base + 2 * kUnit, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(base, kUnit / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(base, 2 * kUnit), CUDA_ERROR_INVALID_VALUE);  // still mapped
  EXPECT_CU(cuMemUnmap(base, kUnit));
  EXPECT_EQ(cuMemAddressFree(base, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemAddressFree(base, 2 * kUnit));
  EXPECT_CU(cuMemRelease(handle));
  CUmemGenericAllocationHandle imported = 0;
  EXPECT_EQ(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{0}),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace openmps::softgpu::testing
