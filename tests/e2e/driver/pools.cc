// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation and memory pools: the order of free and reuse, pools of the program,
// the current pool, limits, attributes and errors. Run by run_e2e.py. usage: drv_pools
// use|numbers|errors
#include <algorithm>
#include <set>
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr size_t kMiB = size_t{1} << 20;

CUmemPoolProps pool_properties(size_t most = 0) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  props.maxSize = most;
  return props;
}

CUmemoryPool make_pool(size_t most = 0) {
  const CUmemPoolProps props = pool_properties(most);
  CUmemoryPool pool = nullptr;
  CHECK_CU(cuMemPoolCreate(&pool, &props));
  return pool;
}

uint64_t number(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  CHECK_CU(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

CUdeviceptr allocate(CUmemoryPool pool, size_t bytes, CUstream stream) {
  CUdeviceptr address = 0;
  CHECK_CU(cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
  return address;
}

// Every block keeps its own pattern during its lifetime, in the order of its stream.
void use(const e2e::Session& session) {
  const CUfunction mix = session.function("mix");
  CUmemoryPool pools[2] = {make_pool(), nullptr};
  CHECK_CU(cuDeviceGetDefaultMemPool(&pools[1], 0));
  CUmemoryPool current = nullptr;
  CHECK_CU(cuDeviceGetMemPool(&current, 0));
  expect(current == pools[1], "the current pool is the default one");
  CHECK_CU(cuDeviceSetMemPool(0, pools[0]));
  CHECK_CU(cuDeviceGetMemPool(&current, 0));
  expect(current == pools[0], "the current pool is the program's");

  CUstream streams[3];
  for (CUstream& stream : streams) CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  e2e::Buffer<uint32_t> results(60 * 64);
  e2e::Random random(11);
  std::vector<uint32_t> expected(results.count);
  for (uint32_t round = 0; round < 60; ++round) {
    const CUstream stream = streams[round % 3];
    const uint32_t words = 64 + random.below(3 * kMiB / 4);
    CUdeviceptr block = 0;
    if (round % 2 == 0) {
      CHECK_CU(cuMemAllocAsync(&block, words * 4, stream));
    } else {
      block = allocate(pools[1], words * 4, stream);
    }
    CHECK_CU(cuMemsetD32Async(block, round, words, stream));
    e2e::launch(mix, e2e::blocks_for(words, 128), 128, 0, stream, block, words, round * 3);
    CHECK_CU(cuMemcpyDtoDAsync_v2(results.address + round * 256, block, 256, stream));
    CHECK_CU(cuMemFreeAsync(block, stream));
    std::vector<uint32_t> row(64, round);
    e2e::mix_on_host(row, round * 3);
    std::copy(row.begin(), row.end(), expected.begin() + round * 64);
  }
  for (CUstream stream : streams) CHECK_CU(cuStreamSynchronize(stream));
  expect(results.get() == expected, "sixty blocks in three streams, hash %016llx",
         static_cast<unsigned long long>(e2e::hash(expected.data(), expected.size() * 4)));

  const CUdeviceptr kept = allocate(pools[0], kMiB, streams[0]);
  CHECK_CU(cuMemsetD32Async(kept, 5, kMiB / 4, streams[0]));
  CHECK_CU(cuMemPoolDestroy(pools[0]));
  CHECK_CU(cuDeviceGetMemPool(&current, 0));
  expect(current == pools[1], "after its end the default pool is the current one");
  uint32_t word = 0;
  CHECK_CU(cuMemcpyDtoHAsync_v2(&word, kept + kMiB - 4, 4, streams[0]));
  CHECK_CU(cuStreamSynchronize(streams[0]));
  expect(word == 5, "what is allocated outlives its pool");
  CHECK_CU(cuMemFree_v2(kept));
  CUdeviceptr nothing = 1;
  CHECK_CU(cuMemAllocAsync(&nothing, 0, streams[0]));
  CHECK_CU(cuMemFreeAsync(nothing, streams[0]));
  for (CUstream stream : streams) CHECK_CU(cuStreamDestroy_v2(stream));
}

void numbers(const e2e::Session& session) {
  CUmemoryPool pool = make_pool();
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  expect(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0, "a new pool is empty");
  const CUdeviceptr large = allocate(pool, 6 * kMiB, stream);
  const CUdeviceptr small = allocate(pool, 1000, stream);
  const uint64_t used = number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  expect(used >= 6 * kMiB + 1000 && used <= 8 * kMiB, "what is used is counted");
  expect(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= used, "and is reserved");
  CHECK_CU(cuMemFreeAsync(large, stream));
  CHECK_CU(cuMemFreeAsync(small, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  expect(number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0, "all is free");
  expect(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == used, "the mark stays");
  cuuint64_t zero = 0;
  CHECK_CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  expect(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0, "the mark is set back");
  CHECK_CU(cuMemPoolTrimTo(pool, 0));
  expect(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0, "trimmed to nothing");

  // With a release threshold the pool keeps freed memory.
  cuuint64_t threshold = 1ull << 40;
  CHECK_CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  expect(number(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == threshold, "the threshold is kept");
  const CUdeviceptr kept = allocate(pool, 200 * kMiB, stream);
  CHECK_CU(cuMemFreeAsync(kept, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  const CUdeviceptr again = allocate(pool, 200 * kMiB, stream);
  expect(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) < 300 * kMiB, "freed memory is reused");
  CHECK_CU(cuMemFreeAsync(again, stream));

  // Memory freed in a stream can be allocated again in that stream before the GPU reaches the free.
  e2e::Buffer<uint32_t> busy(1);
  std::set<CUdeviceptr> places;
  e2e::launch(session.function("spin"), 1, 32, 0, stream, busy.address, 3000000u);
  for (int i = 0; i < 50; ++i) {
    const CUdeviceptr block = allocate(pool, 300 * kMiB, stream);
    places.insert(block);
    CHECK_CU(cuMemFreeAsync(block, stream));
  }
  expect(places.size() <= 2, "fifty blocks behind a busy kernel share their memory");
  CHECK_CU(cuStreamSynchronize(stream));
  int value = 0;
  CHECK_CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &value));
  value = 7;
  CHECK_CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &value));
  expect(value == 0, "a switch is kept");
  CHECK_CU(cuMemPoolDestroy(pool));

  CUmemoryPool limited = make_pool(16 * kMiB);
  CUdeviceptr block = 0;
  expect_result("more than the pool may have",
                cuMemAllocFromPoolAsync(&block, 32 * kMiB, limited, stream),
                CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_CU(cuMemAllocFromPoolAsync(&block, 10 * kMiB, limited, stream));
  CHECK_CU(cuMemFreeAsync(block, stream));
  CHECK_CU(cuMemPoolDestroy(limited));
  CHECK_CU(cuStreamDestroy_v2(stream));
}

void errors(const e2e::Session&) {
  CUmemPoolProps props = pool_properties();
  CUmemoryPool pool = nullptr;
  expect_result("a pool without properties", cuMemPoolCreate(&pool, nullptr),
                CUDA_ERROR_INVALID_VALUE);
  props.location.id = 99;
  expect_result("a pool on no device", cuMemPoolCreate(&pool, &props),
                {CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE});
  CUmemoryPool standard = nullptr;
  CHECK_CU(cuDeviceGetDefaultMemPool(&standard, 0));
  expect_result("destroy the default pool", cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr address = 0;
  auto* no_pool = reinterpret_cast<CUmemoryPool>(uintptr_t{0x1234});
  expect_result("allocate from no pool", cuMemAllocFromPoolAsync(&address, 100, no_pool, nullptr),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("destroy no pool", cuMemPoolDestroy(no_pool), CUDA_ERROR_INVALID_VALUE);
  expect_result("free no allocation", cuMemFreeAsync(0x1234000, nullptr), CUDA_ERROR_INVALID_VALUE);
  cuuint64_t value = 1;
  expect_result("set a number that can't be set",
                cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("set a mark to something else",
                cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value),
                CUDA_ERROR_INVALID_VALUE);
  int descriptor = -1;
  expect_result("export a pool that is not for it",
                cuMemPoolExportToShareableHandle(&descriptor, standard,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED});
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK_CU(cuMemPoolGetAccess(&flags, standard, &location));
  expect(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "its own device has access");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  e2e::Session session;
  if (group == "use") {
    use(session);
  } else if (group == "numbers") {
    numbers(session);
  } else if (group == "errors") {
    errors(session);
  } else {
    return 2;
  }
  return e2e::finish();
}
