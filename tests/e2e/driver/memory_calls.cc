// SPDX-License-Identifier: Apache-2.0
// Fills of every width, in rows and in streams, copies in batches and between contexts by older
// versions of the calls, flags of host memory, hints about managed memory, pools by location,
// pointer attributes. Run by run_e2e.py. usage: drv_memory_calls
// fills|copies|places|pointers|managed|bad
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr auto kInvalid = CUDA_ERROR_INVALID_VALUE;
constexpr size_t kMiB = size_t{1} << 20;

struct Stream {
  CUstream handle = nullptr;
  Stream() { CHECK_CU(cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING)); }
  Stream(const Stream&) = delete;
  ~Stream() { CHECK_CU(cuStreamDestroy_v2(handle)); }
  void wait() const { CHECK_CU(cuStreamSynchronize(handle)); }
};

// ---- Fills -------------------------------------------------------------------------------------

constexpr size_t kPitch = 64, kRows = 6, kBegin = 8;
constexpr size_t kFillBytes = kBegin + kPitch * kRows;

// Fills of `width` elements in each of four rows.
template <typename T>
std::vector<unsigned char> filled(T value, size_t width, size_t rows) {
  std::vector<unsigned char> bytes(kFillBytes, 0xee);
  for (size_t y = 0; y < rows; y++) {
    for (size_t x = 0; x < width; x++) {
      memcpy(&bytes[kBegin + y * kPitch + x * sizeof(T)], &value, sizeof(T));
    }
  }
  return bytes;
}

void fills() {
  Stream stream;
  e2e::Buffer<unsigned char> memory(kFillBytes);
  const CUdeviceptr at = memory.address + kBegin;
  const auto check = [&](const char* what, CUresult result,
                         const std::vector<unsigned char>& wanted) {
    CHECK_CU(result);
    stream.wait();
    CHECK_CU(cuStreamSynchronize(nullptr));
    expect(memory.get() == wanted, "%s", what);
    memory.put(std::vector<unsigned char>(kFillBytes, 0xee));
  };
  memory.put(std::vector<unsigned char>(kFillBytes, 0xee));
  check("rows of 16 bits", cuMemsetD2D16_v2(at, kPitch, 0x1234, 9, 4),
        filled<uint16_t>(0x1234, 9, 4));
  check("rows of 32 bits", cuMemsetD2D32_v2(at, kPitch, 0x12345678, 7, 5),
        filled<uint32_t>(0x12345678, 7, 5));
  check("a row of 16 bits in a stream", cuMemsetD16Async(at, 0xabcd, 21, stream.handle),
        filled<uint16_t>(0xabcd, 21, 1));
  check("rows of bytes in a stream", cuMemsetD2D8Async(at, kPitch, 0x5c, 11, 6, stream.handle),
        filled<uint8_t>(0x5c, 11, 6));
  check("rows of 16 bits in a stream", cuMemsetD2D16Async(at, kPitch, 0x4321, 32, 3, stream.handle),
        filled<uint16_t>(0x4321, 32, 3));
  check("rows of 32 bits in a stream",
        cuMemsetD2D32Async(at, kPitch, 0x87654321, 3, 6, stream.handle),
        filled<uint32_t>(0x87654321, 3, 6));
  expect_result("16 bits at an odd address", cuMemsetD16Async(at + 1, 1, 2, stream.handle),
                kInvalid);
  expect_result("32 bits in rows of an odd pitch", cuMemsetD2D32_v2(at, kPitch + 2, 1, 2, 2),
                kInvalid);
  expect_result("rows longer than their pitch", cuMemsetD2D16_v2(at, 8, 1, 9, 2), kInvalid);
  std::vector<unsigned char> ordinary(64);
  expect_result(
      "memory of the program",
      cuMemsetD16Async(reinterpret_cast<CUdeviceptr>(ordinary.data()), 1, 2, stream.handle),
      kInvalid);
  stream.wait();
  expect(memory.get() == std::vector<unsigned char>(kFillBytes, 0xee),
         "what is refused writes nothing");
}

// ---- Copies ------------------------------------------------------------------------------------

void copies(const e2e::Session& session) {
  Stream stream;
  std::vector<uint32_t> data(48);
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<uint32_t>(i * 3 + 1);
  e2e::Buffer<uint32_t> from(data);
  e2e::Buffer<uint32_t> to(std::vector<uint32_t>(data.size(), 0));
  CHECK_CU(cuMemcpyPeerAsync(to.address, session.context, from.address, session.context, 100,
                             stream.handle));
  stream.wait();
  std::vector<uint32_t> wanted(data.size(), 0);
  std::copy(data.begin(), data.begin() + 25, wanted.begin());
  expect(to.get() == wanted, "a copy between contexts in a stream");

  // A box with rows of two words, out of rows of four, in two layers.
  to.put(std::vector<uint32_t>(data.size(), 0));
  CUDA_MEMCPY3D_PEER box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = from.address;
  box.dstDevice = to.address;
  box.srcContext = box.dstContext = session.context;
  box.srcPitch = box.dstPitch = 16;
  box.srcHeight = box.dstHeight = 4;
  box.srcXInBytes = 4;
  box.WidthInBytes = 8;
  box.Height = 3;
  box.Depth = 2;
  CHECK_CU(cuMemcpy3DPeer(&box));
  wanted.assign(data.size(), 0);
  for (size_t z = 0; z < 2; z++) {
    for (size_t y = 0; y < 3; y++) {
      for (size_t x = 0; x < 2; x++) wanted[z * 16 + y * 4 + x] = data[z * 16 + y * 4 + x + 1];
    }
  }
  expect(to.get() == wanted, "a box between contexts");

  // CUDA 12's version of batches, which report the copy that failed.
  to.put(std::vector<uint32_t>(data.size(), 0));
  CUdeviceptr dsts[] = {to.address, to.address + 40}, srcs[] = {from.address + 8, from.address};
  size_t sizes[] = {20, 12}, first = 0, failed = 77;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  CHECK_CU(
      cuMemcpyBatchAsync(dsts, srcs, sizes, 2, &attributes, &first, 1, &failed, stream.handle));
  stream.wait();
  wanted.assign(data.size(), 0);
  std::copy(data.begin() + 2, data.begin() + 7, wanted.begin());
  std::copy(data.begin(), data.begin() + 3, wanted.begin() + 10);
  expect(to.get() == wanted, "a batch of two copies");
  expect_result(
      "a batch of nothing",
      cuMemcpyBatchAsync(dsts, srcs, sizes, 0, &attributes, &first, 1, &failed, stream.handle),
      kInvalid);
  to.put(std::vector<uint32_t>(data.size(), 0));
  CUDA_MEMCPY3D_BATCH_OP operation{};
  operation.src.type = operation.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operation.src.op.ptr = {from.address, 16, 4, {}};
  operation.dst.op.ptr = {to.address, 16, 4, {}};
  operation.extent = {8, 3, 2};
  operation.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  CHECK_CU(cuMemcpy3DBatchAsync(1, &operation, &failed, 0, stream.handle));
  stream.wait();
  wanted.assign(data.size(), 0);
  for (size_t z = 0; z < 2; z++) {
    for (size_t y = 0; y < 3; y++) {
      for (size_t x = 0; x < 2; x++) wanted[z * 16 + y * 4 + x] = data[z * 16 + y * 4 + x];
    }
  }
  expect(to.get() == wanted, "a batch of one box");
}

// Calls on which NVIDIA's driver (580) crashes.
void bad(const e2e::Session& session) {
  e2e::Buffer<uint32_t> words(48);
  expect_result("a copy between no contexts",
                cuMemcpyPeerAsync(words.address, reinterpret_cast<CUcontext>(&words),
                                  words.address + 100, session.context, 50, nullptr),
                {CUDA_ERROR_INVALID_CONTEXT, kInvalid});
}

// ---- Places ------------------------------------------------------------------------------------

void host_flags() {
  void *mapped = nullptr, *combined = nullptr;
  CHECK_CU(cuMemHostAlloc(&mapped, 4096, CU_MEMHOSTALLOC_PORTABLE));
  CHECK_CU(
      cuMemHostAlloc(&combined, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED));
  unsigned first = 0, second = 0;
  CHECK_CU(cuMemHostGetFlags(&first, mapped));
  CHECK_CU(cuMemHostGetFlags(&second, combined));
  expect((first & CU_MEMHOSTALLOC_PORTABLE) != 0 && (first & CU_MEMHOSTALLOC_WRITECOMBINED) == 0,
         "flags of portable memory");
  expect((second & CU_MEMHOSTALLOC_WRITECOMBINED) != 0, "flags of write-combined memory");
  int ordinary = 0;
  expect_result("flags of memory of the program", cuMemHostGetFlags(&first, &ordinary), kInvalid);
  CHECK_CU(cuMemFreeHost(mapped));
  CHECK_CU(cuMemFreeHost(combined));
}

void hints() {
  Stream stream;
  CUdeviceptr managed = 0;
  CHECK_CU(cuMemAllocManaged(&managed, kMiB, CU_MEM_ATTACH_GLOBAL));
  auto* words = reinterpret_cast<uint32_t*>(managed);
  words[5] = 50;
  CHECK_CU(cuMemAdvise(managed, kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
  CHECK_CU(cuMemAdvise(managed, kMiB, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0));
  CHECK_CU(cuMemPrefetchAsync(managed, kMiB, 0, stream.handle));
  CHECK_CU(cuMemsetD32Async(managed, 7, 2, stream.handle));
  CHECK_CU(cuMemPrefetchAsync(managed, kMiB, CU_DEVICE_CPU, stream.handle));
  stream.wait();
  expect(words[0] == 7 && words[1] == 7 && words[5] == 50, "hints do not change memory");
  expect_result("a hint about nothing", cuMemAdvise(managed, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, 0),
                kInvalid);
  expect_result("a hint that is none", cuMemAdvise(managed, kMiB, static_cast<CUmem_advise>(77), 0),
                kInvalid);
  e2e::Buffer<uint32_t> device(64);
  expect_result("a hint about device memory",
                cuMemAdvise(device.address, 256, CU_MEM_ADVISE_SET_READ_MOSTLY, 0), kInvalid);
  expect_result("a prefetch of device memory",
                cuMemPrefetchAsync(device.address, 256, 0, stream.handle), kInvalid);
  expect_result("a prefetch to no device", cuMemPrefetchAsync(managed, kMiB, 99, stream.handle),
                CUDA_ERROR_INVALID_DEVICE);
  CHECK_CU(cuMemFree_v2(managed));
}

void pools() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CHECK_CU(cuMemPoolCreate(&pool, &props));
  CUmemAccessDesc access{props.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK_CU(cuMemPoolSetAccess(pool, &access, 1));
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CHECK_CU(cuMemPoolGetAccess(&flags, pool, &props.location));
  expect(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "a pool's own device has access");
  CHECK_CU(cuMemPoolDestroy(pool));

  CUmemAllocationProp physical{};
  physical.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical.location = props.location;
  size_t minimum = 0, recommended = 0;
  CHECK_CU(cuMemGetAllocationGranularity(&minimum, &physical, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK_CU(
      cuMemGetAllocationGranularity(&recommended, &physical, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  expect(minimum >= 4096 && (minimum & (minimum - 1)) == 0 && recommended % minimum == 0,
         "granularities of physical memory");
  expect_result("a granularity on no device",
                [&] {
                  physical.location.id = 99;
                  return cuMemGetAllocationGranularity(&minimum, &physical,
                                                       CU_MEM_ALLOC_GRANULARITY_MINIMUM);
                }(),
                // NVIDIA's driver (580) does not check the device.
                {CUDA_ERROR_INVALID_DEVICE, CUDA_SUCCESS});
}

// ---- Pointers ----------------------------------------------------------------------------------

template <typename T>
T asked(CUpointer_attribute attribute, CUdeviceptr address) {
  T answer{};
  CHECK_CU(cuPointerGetAttribute(&answer, attribute, address));
  return answer;
}

bool is_synchronous(CUdeviceptr address) {
  return asked<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address) == 1;
}

CUresult make_synchronous(CUdeviceptr address, unsigned on) {
  return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
}

// Whether an operation behind a kernel returns only when the operation, and so the kernel, has
// ended.
template <typename Operation>
bool waits(CUfunction spin, CUdeviceptr result, Operation&& operation) {
  e2e::launch(spin, 1, 32, 0, nullptr, result, 3000000u);
  CHECK_CU(operation());
  const CUresult state = cuStreamQuery(nullptr);
  CHECK_CU(cuStreamSynchronize(nullptr));
  return state == CUDA_SUCCESS;
}

void synchronous_pointers(const e2e::Session& session) {
  const CUfunction spin = session.function("spin");
  e2e::Buffer<uint32_t> busy(1), memory(64), other(64);
  const auto fill = [&] { return cuMemsetD32_v2(memory.address, 3, 64); };
  const uint32_t word = 5;
  CUevent before = nullptr;
  CHECK_CU(cuEventCreate(&before, 0));
  e2e::launch(spin, 1, 32, 0, nullptr, busy.address, 3000000u);
  CHECK_CU(cuEventRecord(before, nullptr));
  CHECK_CU(cuMemcpyHtoD_v2(memory.address, &word, sizeof(word)));
  expect(cuEventQuery(before) == CUDA_SUCCESS,
         "a copy of pageable memory waits for what is before it");
  CHECK_CU(cuEventDestroy_v2(before));

  expect(!is_synchronous(memory.address), "an allocation begins without");
  CHECK_CU(make_synchronous(memory.address + 4, 2));
  expect(is_synchronous(memory.address), "set anywhere in it, to anything but zero");
  expect(waits(spin, busy.address, fill), "a fill of such memory has ended");
  expect(
      waits(spin, busy.address, [&] { return cuMemcpyDtoD_v2(memory.address, other.address, 64); }),
      "so has a copy to it");
  expect(
      waits(spin, busy.address, [&] { return cuMemcpyDtoD_v2(other.address, memory.address, 64); }),
      "and one from it");
  CHECK_CU(make_synchronous(memory.address, 0));
  expect(!is_synchronous(memory.address), "taken back");

  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CHECK_CU(cuCtxCreate_v2(&context, CU_CTX_SYNC_MEMOPS, session.device));
  CHECK_CU(cuModuleLoadData(&module, e2e::kernels_ptx()));
  CHECK_CU(cuModuleGetFunction(&function, module, "spin"));
  {
    e2e::Buffer<uint32_t> result(1), filled(64);
    expect(waits(function, result.address, [&] { return cuMemsetD32_v2(filled.address, 3, 64); }),
           "a fill in such a context has ended");
    expect(!is_synchronous(filled.address), "of which its memory says nothing");
  }
  CHECK_CU(cuCtxDestroy_v2(context));
}

void pointers(const e2e::Session& session) {
  synchronous_pointers(session);

  void* host = nullptr;
  CUdeviceptr shared = 0, pooled = 0;
  CHECK_CU(cuMemHostAlloc(&host, kMiB, 0));
  const auto pinned = reinterpret_cast<CUdeviceptr>(host);
  expect(!is_synchronous(pinned), "pinned memory begins without");
  CHECK_CU(make_synchronous(pinned, 1));
  expect(is_synchronous(pinned), "pinned memory can be told");
  CHECK_CU(cuMemAllocManaged(&shared, kMiB, CU_MEM_ATTACH_GLOBAL));
  expect(is_synchronous(shared), "managed memory begins with it");
  CHECK_CU(cuMemFreeHost(host));
  CHECK_CU(cuMemFree_v2(shared));

  Stream stream;
  CUmemoryPool pool = nullptr, own = nullptr;
  CHECK_CU(cuDeviceGetDefaultMemPool(&pool, session.device));
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, session.device};
  CHECK_CU(cuMemPoolCreate(&own, &props));
  CHECK_CU(cuMemAllocAsync(&pooled, kMiB, stream.handle));
  CHECK_CU(cuMemAllocFromPoolAsync(&shared, kMiB, own, stream.handle));
  stream.wait();
  expect(asked<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pooled) == pool &&
             asked<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, shared) == own,
         "the pool that memory is from");
  expect(asked<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, pooled) == nullptr &&
             asked<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pooled) == session.device,
         "it belongs to a device, to no context");
  CHECK_CU(make_synchronous(pooled, 1));
  expect(is_synchronous(pooled), "it can be told, too");
  CHECK_CU(cuMemFreeAsync(pooled, stream.handle));
  CHECK_CU(cuMemFreeAsync(shared, stream.handle));
  CHECK_CU(cuMemPoolDestroy(own));
  stream.wait();

  e2e::Buffer<uint32_t> plain(64);
  unsigned on = 1;
  expect(asked<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, plain.address) == session.context &&
             asked<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, plain.address) == nullptr,
         "what cuMemAlloc gives belongs to a context, to no pool");
  expect_result("another attribute can't be set",
                cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain.address),
                kInvalid);
  expect_result("nor that of the program's own memory",
                make_synchronous(reinterpret_cast<CUdeviceptr>(&on), 1), kInvalid);
}

// ---- Features that softgpu by itself does not have ---------------------------------------------

// Memory that the program maps and could export, with the given access.
void mapped(CUmemAccess_flags access) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0, device = 0;
  CHECK_CU(cuMemCreate(&handle, 2 * kMiB, &prop, 0));
  CHECK_CU(cuMemAddressReserve(&address, 2 * kMiB, 0, 0, 0));
  CHECK_CU(cuMemMap(address, 2 * kMiB, 0, handle, 0));
  if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
    const CUmemAccessDesc desc{prop.location, access};
    CHECK_CU(cuMemSetAccess(address, 2 * kMiB, &desc, 1));
  }
  const CUdeviceptr inside = address + 4096;
  expect(
      asked<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside) == static_cast<unsigned>(access) &&
          asked<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside) ==
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
          asked<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside) == nullptr &&
          asked<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) == address &&
          asked<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) == 2 * kMiB,
      "what mapped memory with access %d is asked", static_cast<int>(access));
  expect_result("where the device finds it",
                cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside),
                access == CU_MEM_ACCESS_FLAGS_PROT_NONE ? kInvalid : CUDA_SUCCESS);
  expect_result("it can't be made synchronous", make_synchronous(inside, 1),
                CUDA_ERROR_NOT_SUPPORTED);
  CHECK_CU(cuMemUnmap(address, 2 * kMiB));
  CHECK_CU(cuMemAddressFree(address, 2 * kMiB));
  CHECK_CU(cuMemRelease(handle));
}

void managed() {
  Stream stream;
  CUdeviceptr memory = 0;
  CHECK_CU(cuMemAllocManaged(&memory, kMiB, CU_MEM_ATTACH_GLOBAL));
  auto* words = reinterpret_cast<uint32_t*>(memory);
  words[0] = 3;
  int mostly = 7, preferred = 7;
  void* places[] = {&mostly, &preferred};
  size_t sizes[] = {sizeof(mostly), sizeof(preferred)};
  CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                   CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
  CHECK_CU(cuMemRangeGetAttributes(places, sizes, which, 2, memory, kMiB));
  expect(mostly == 0 && preferred == CU_DEVICE_INVALID, "memory without hints");
  expect_result("no attributes", cuMemRangeGetAttributes(places, sizes, which, 0, memory, kMiB),
                kInvalid);

  // The first half is prefetched to the device and back; the contents of the second half are
  // discarded.
  CUdeviceptr halves[] = {memory, memory + kMiB / 2};
  size_t bytes[] = {kMiB / 2, kMiB / 2}, first = 0;
  CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK_CU(cuMemPrefetchBatchAsync(halves, bytes, 2, &device, &first, 1, 0, stream.handle));
  CHECK_CU(cuMemDiscardBatchAsync(&halves[1], &bytes[1], 1, 0, stream.handle));
  CHECK_CU(cuMemDiscardAndPrefetchBatchAsync(&halves[1], &bytes[1], 1, &device, &first, 1, 0,
                                             stream.handle));
  CHECK_CU(cuMemsetD32Async(halves[1], 9, 4, stream.handle));
  stream.wait();
  expect(words[0] == 3 && words[kMiB / 8] == 9, "what was kept, and what was written since");
  expect_result("a batch of nothing",
                cuMemPrefetchBatchAsync(halves, bytes, 0, &device, &first, 1, 0, stream.handle),
                kInvalid);
  expect_result("unknown flags", cuMemDiscardBatchAsync(halves, bytes, 1, 7, stream.handle),
                kInvalid);
  e2e::Buffer<uint32_t> other(64);
  size_t small = other.bytes();
  expect_result("discarding device memory",
                cuMemDiscardBatchAsync(&other.address, &small, 1, 0, stream.handle), kInvalid);
  CHECK_CU(cuMemFree_v2(memory));

  CUmemoryPool by_place = nullptr, by_device = nullptr, pool = nullptr;
  CHECK_CU(cuMemGetDefaultMemPool(&by_place, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK_CU(cuDeviceGetDefaultMemPool(&by_device, 0));
  expect(by_place == by_device, "the default pool by its place");
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = device;
  CHECK_CU(cuMemPoolCreate(&pool, &props));
  CHECK_CU(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
  CHECK_CU(cuMemGetMemPool(&by_place, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK_CU(cuDeviceGetMemPool(&by_device, 0));
  expect(by_place == pool && by_device == pool, "another pool for the place");
  CHECK_CU(cuMemPoolDestroy(pool));
  CHECK_CU(cuMemGetMemPool(&by_place, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK_CU(cuDeviceGetDefaultMemPool(&by_device, 0));
  expect(by_place == by_device, "the default pool once that is gone");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "fills";
  e2e::Session session;
  if (group == "fills") {
    fills();
  } else if (group == "copies") {
    copies(session);
  } else if (group == "bad") {
    bad(session);
  } else if (group == "pointers") {
    pointers(session);
  } else if (group == "managed") {
    managed();
    for (const CUmemAccess_flags access :
         {CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ,
          CU_MEM_ACCESS_FLAGS_PROT_READWRITE}) {
      mapped(access);
    }
  } else {
    host_flags();
    hints();
    pools();
  }
  return e2e::finish();
}
