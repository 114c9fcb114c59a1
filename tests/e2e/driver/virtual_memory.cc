// SPDX-License-Identifier: Apache-2.0
// Memory that the program maps by itself: several reservations larger than the device (as by an
// allocator with expandable segments), physical memory mapped twice, in part, and for reading only,
// exported and imported as a descriptor, and errors. Run by run_e2e.py. usage:
// drv_virtual_memory segments [GIB] | aliases | errors
#include <unistd.h>

#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGiB = size_t{1} << 30;
constexpr size_t kGranule = 2 * kMiB;

CUmemAllocationProp device_memory(int handle_types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return prop;
}

CUmemGenericAllocationHandle create(size_t bytes, int handle_types = CU_MEM_HANDLE_TYPE_NONE) {
  const CUmemAllocationProp prop = device_memory(handle_types);
  CUmemGenericAllocationHandle handle = 0;
  CHECK_CU(cuMemCreate(&handle, bytes, &prop, 0));
  return handle;
}

CUdeviceptr reserve(size_t bytes) {
  CUdeviceptr address = 0;
  CHECK_CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  return address;
}

CUresult set_access(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
  return cuMemSetAccess(address, bytes, &access, 1);
}

void open_access(CUdeviceptr address, size_t bytes) {
  CHECK_CU(set_access(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

// Writes words, runs a kernel on them, and compares with the result computed on the host.
bool computes(const e2e::Session& session, CUdeviceptr address, size_t words, uint32_t key) {
  std::vector<uint32_t> data(words);
  for (size_t i = 0; i < words; ++i) data[i] = static_cast<uint32_t>(i * 7 + key);
  CHECK_CU(cuMemcpyHtoD_v2(address, data.data(), words * 4));
  e2e::launch(session.function("mix"), e2e::blocks_for(words, 128), 128, 0, nullptr, address,
              static_cast<uint32_t>(words), key);
  e2e::mix_on_host(data, key);
  std::vector<uint32_t> got(words);
  CHECK_CU(cuMemcpyDtoH_v2(got.data(), address, words * 4));
  return got == data;
}

// A growing segment of an allocator: pieces mapped one after the other in a huge reservation.
struct Segment {
  size_t reserved;
  size_t piece;
  CUdeviceptr address;
  std::vector<CUmemGenericAllocationHandle> handles;

  Segment(size_t reserved_in, size_t piece_in)
      : reserved(reserved_in), piece(piece_in), address(reserve(reserved_in)) {}
  size_t bytes() const { return handles.size() * piece; }
  void grow() {
    const CUmemGenericAllocationHandle handle =
        create(piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_CU(cuMemMap(address + bytes(), piece, 0, handle, 0));
    open_access(address + bytes(), piece);
    handles.push_back(handle);
  }
  void shrink() {
    const CUdeviceptr last = address + bytes() - piece;
    CHECK_CU(cuMemUnmap(last, piece));
    CHECK_CU(cuMemRelease(handles.back()));
    handles.pop_back();
  }
  void end() {
    while (!handles.empty()) shrink();
    CHECK_CU(cuMemAddressFree(address, reserved));
  }
};

void segments(const e2e::Session& session, size_t reserved) {
  size_t free_before = 0;
  size_t total = 0;
  CHECK_CU(cuMemGetInfo_v2(&free_before, &total));
  // As for two pools and two streams, each segment nine eighths of a device of 141 GB.
  std::vector<Segment> all;
  for (size_t i = 0; i < 4; ++i) all.emplace_back(reserved, i % 2 == 0 ? kGranule : 20 * kMiB);
  for (size_t round = 0; round < 3; ++round) {
    for (Segment& segment : all) segment.grow();
  }
  for (size_t i = 0; i < all.size(); ++i) {
    // Words on both sides of the boundary between two pieces.
    const size_t words = 5000;
    const CUdeviceptr at = all[i].address + all[i].piece - words * 2;
    expect(computes(session, at, words, static_cast<uint32_t>(i)), "segment %zu computes", i);
  }
  size_t free_now = 0;
  CHECK_CU(cuMemGetInfo_v2(&free_now, &total));
  size_t mapped = 0;
  for (const Segment& segment : all) mapped += segment.bytes();
  expect(free_before - free_now >= mapped, "what is mapped is counted");
  e2e::Buffer<uint32_t> source(std::vector<uint32_t>(1000, 42));
  CHECK_CU(cuMemcpyDtoD_v2(all[1].address, source.address, source.bytes()));
  CHECK_CU(cuMemcpyDtoD_v2(all[0].address, all[1].address, source.bytes()));
  std::vector<uint32_t> got(source.count);
  CHECK_CU(cuMemcpyDtoH_v2(got.data(), all[0].address, source.bytes()));
  expect(got == source.get(), "copies between segments");
  all[0].shrink();
  all[0].grow();
  expect(computes(session, all[0].address, 3 * kGranule / 4, 9), "a segment that shrank and grew");
  for (Segment& segment : all) segment.end();
  size_t free_after = 0;
  CHECK_CU(cuMemGetInfo_v2(&free_after, &total));
  expect(free_after >= free_before - 64 * kMiB, "the memory is free again");
}

void aliases(const e2e::Session& session) {
  const CUmemGenericAllocationHandle handle =
      create(3 * kGranule, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUdeviceptr one = reserve(3 * kGranule);
  const CUdeviceptr again = reserve(3 * kGranule);
  CHECK_CU(cuMemMap(one, 3 * kGranule, 0, handle, 0));
  CHECK_CU(cuMemMap(again, 3 * kGranule, 0, handle, 0));
  open_access(one, 3 * kGranule);
  CHECK_CU(set_access(again, 3 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  unsigned long long flags = 0;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK_CU(cuMemGetAccess(&flags, &location, one + kGranule));
  expect(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "one mapping can be written");
  CHECK_CU(cuMemGetAccess(&flags, &location, again));
  expect(flags == CU_MEM_ACCESS_FLAGS_PROT_READ, "the other can be read");

  expect(computes(session, one, 5000, 3), "the memory computes");
  std::vector<uint32_t> through_one(1000);
  std::vector<uint32_t> through_other(1000);
  CHECK_CU(cuMemcpyDtoH_v2(through_one.data(), one, 4000));
  CHECK_CU(cuMemcpyDtoH_v2(through_other.data(), again, 4000));
  expect(through_one == through_other, "the other mapping shows the same memory");

  CUmemAllocationProp prop{};
  CHECK_CU(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
  expect(prop.type == CU_MEM_ALLOCATION_TYPE_PINNED && prop.location.id == 0, "properties");
  CUmemGenericAllocationHandle retained = 0;
  CHECK_CU(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(again)));

  // A descriptor gives access to the same memory, also after the handles have been released.
  int descriptor = -1;
  CHECK_CU(cuMemExportToShareableHandle(&descriptor, handle,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK_CU(cuMemRelease(handle));
  CHECK_CU(cuMemUnmap(one, 3 * kGranule));
  CHECK_CU(cuMemUnmap(again, 3 * kGranule));
  CHECK_CU(cuMemRelease(retained));
  CUmemGenericAllocationHandle imported = 0;
  CHECK_CU(cuMemImportFromShareableHandle(
      &imported, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  CHECK_CU(cuMemMap(again, 3 * kGranule, 0, imported, 0));
  CHECK_CU(cuMemRelease(imported));  // the mapping keeps the memory
  open_access(again, 3 * kGranule);
  CHECK_CU(cuMemcpyDtoH_v2(through_other.data(), again, 4000));
  expect(through_one == through_other, "the imported memory has its contents");
  expect(computes(session, again, 2000, 8), "the imported memory computes");
  CHECK_CU(cuMemUnmap(again, 3 * kGranule));
  CHECK_CU(cuMemAddressFree(again, 3 * kGranule));
  CHECK_CU(cuMemAddressFree(one, 3 * kGranule));
}

void errors(const e2e::Session& session) {
  CUdeviceptr address = 0;
  expect_result("reserve no bytes", cuMemAddressReserve(&address, 0, 0, 0, 0),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("reserve half a granule", cuMemAddressReserve(&address, kMiB, 0, 0, 0),
                CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp prop = device_memory();
  CUmemGenericAllocationHandle handle = 0;
  expect_result("create half a granule", cuMemCreate(&handle, kMiB, &prop, 0),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("create more than the device has", cuMemCreate(&handle, 4096 * kGiB, &prop, 0),
                CUDA_ERROR_OUT_OF_MEMORY);
  prop.location.id = 99;
  expect_result("create on no device", cuMemCreate(&handle, kGranule, &prop, 0),
                {CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE});
  handle = create(2 * kGranule);
  address = reserve(4 * kGranule);
  expect_result("map beyond the memory", cuMemMap(address, 3 * kGranule, 0, handle, 0),
                CUDA_ERROR_NOT_SUPPORTED);
  expect_result("map beyond the reservation",
                cuMemMap(address + 3 * kGranule, 2 * kGranule, 0, handle, 0),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("map from the middle", cuMemMap(address, kGranule, kGranule, handle, 0),
                CUDA_ERROR_NOT_SUPPORTED);
  expect_result("map a part", cuMemMap(address, kGranule, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  expect_result("map where nothing is reserved", cuMemMap(kGranule, kGranule, 0, handle, 0),
                CUDA_ERROR_NOT_SUPPORTED);
  expect_result("map no handle", cuMemMap(address, kGranule, 0, 0xdead, 0),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("access to nothing",
                set_access(address, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemMap(address, 2 * kGranule, 0, handle, 0));
  expect_result("map twice at one place", cuMemMap(address + kGranule, kGranule, 0, handle, 0),
                CUDA_ERROR_NOT_SUPPORTED);
  uint32_t word = 7;
  expect_result("copy to mapped memory without access", cuMemcpyHtoD_v2(address, &word, 4),
                CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(set_access(address, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  expect_result("copy to memory for reading", cuMemcpyHtoD_v2(address, &word, 4),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("fill memory for reading", cuMemsetD32_v2(address, 1, 1), CUDA_ERROR_INVALID_VALUE);
  expect_result("copy from memory for reading", cuMemcpyDtoH_v2(&word, address, 4), CUDA_SUCCESS);
  open_access(address, 2 * kGranule);
  expect_result("copy beyond the mapping", cuMemcpyDtoH_v2(&word, address + 2 * kGranule - 2, 4),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("unmap a part", cuMemUnmap(address, kGranule), CUDA_ERROR_INVALID_VALUE);
  expect_result("free addresses in use", cuMemAddressFree(address, 4 * kGranule),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("cuMemFree of a mapping", cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  int descriptor = -1;
  expect_result("export what was not made for it",
                cuMemExportToShareableHandle(&descriptor, handle,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                CUDA_ERROR_INVALID_VALUE);
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) exit(2);
  CUmemGenericAllocationHandle imported = 0;
  expect_result("import a pipe",
                cuMemImportFromShareableHandle(
                    &imported, reinterpret_cast<void*>(static_cast<intptr_t>(ends[0])),
                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_OPERATING_SYSTEM});
  close(ends[0]);
  close(ends[1]);
  CHECK_CU(cuMemRelease(handle));
  expect_result("map a released handle", cuMemMap(address + 2 * kGranule, kGranule, 0, handle, 0),
                CUDA_ERROR_INVALID_VALUE);
  expect(computes(session, address, 1000, 5), "the mapping outlives the handle");
  CHECK_CU(cuMemUnmap(address, 2 * kGranule));
  expect_result("release twice", cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemAddressFree(address, 4 * kGranule));
  expect_result("free addresses twice", cuMemAddressFree(address, 4 * kGranule),
                CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  e2e::Session session;
  if (group == "segments") {
    segments(session, e2e::argument(argc, argv, 2, 160) * kGiB);
  } else if (group == "aliases") {
    aliases(session);
  } else if (group == "errors") {
    errors(session);
  } else {
    return 2;
  }
  return e2e::finish();
}
