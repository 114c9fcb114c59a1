// SPDX-License-Identifier: Apache-2.0
// A stream waits for a value that the program writes later. Calls that the program makes meanwhile
// in other streams are unrelated to that wait, and must return: allocations, frees, textures,
// mappings of unused memory. A call that waited for the stream would never return. `leave`: prints
// "ready" when the stream waits, after many waits that were satisfied, and waits to be killed.
// usage: drv_unrelated_waits free|pool|texture|mapping|leave
#include <unistd.h>

#include <cstring>

#include "driver.h"

namespace {

struct Blocked {
  CUstream waiting = nullptr;  // the stream that waits for `value`
  CUstream other = nullptr;
  e2e::Buffer<uint32_t> value{1};

  Blocked() {
    CHECK_CU(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemsetD32_v2(value.address, 0, 1));
    CHECK_CU(cuCtxSynchronize());
  }
  void block() {
    CHECK_CU(cuStreamWaitValue32_v2(waiting, value.address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void unblock(const char* what) {
    const bool open = cuStreamQuery(waiting) == CUDA_ERROR_NOT_READY;
    e2e::expect(open, "%s: the other stream still waits", what);
    CHECK_CU(cuStreamWriteValue32_v2(other, value.address, 1, 0));
    CHECK_CU(cuStreamSynchronize(waiting));
  }
  ~Blocked() {
    CHECK_CU(cuStreamDestroy_v2(waiting));
    CHECK_CU(cuStreamDestroy_v2(other));
  }
};

// So large that freed memory is returned to the device and not kept for reuse.
constexpr size_t kLarge = 96 << 20;

void free_async(const e2e::Session&) {
  Blocked streams;
  CUdeviceptr large = 0;
  CUdeviceptr small = 0;
  CHECK_CU(cuMemAllocAsync(&large, kLarge, streams.other));
  CHECK_CU(cuStreamSynchronize(streams.other));
  streams.block();
  CHECK_CU(cuMemFreeAsync(large, streams.other));
  CHECK_CU(cuStreamSynchronize(streams.other));
  CHECK_CU(cuMemAllocAsync(&small, 4096, streams.other));
  CHECK_CU(cuMemsetD8Async(small, 7, 4096, streams.other));
  CHECK_CU(cuStreamSynchronize(streams.other));
  CHECK_CU(cuMemFreeAsync(small, streams.other));
  CHECK_CU(cuMemAlloc_v2(&large, kLarge));
  streams.unblock("stream-ordered free");
  CHECK_CU(cuMemFree_v2(large));
}

void trim_pool(const e2e::Session& session) {
  Blocked streams;
  CUmemPoolProps shape{};
  shape.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  shape.location = {CU_MEM_LOCATION_TYPE_DEVICE, session.device};
  CUmemoryPool pool = nullptr;
  CHECK_CU(cuMemPoolCreate(&pool, &shape));
  CUdeviceptr block = 0;
  CHECK_CU(cuMemAllocFromPoolAsync(&block, 8 << 20, pool, streams.other));
  CHECK_CU(cuStreamSynchronize(streams.other));
  streams.block();
  CHECK_CU(cuMemFreeAsync(block, streams.other));
  CHECK_CU(cuStreamSynchronize(streams.other));
  CHECK_CU(cuMemPoolTrimTo(pool, 0));
  CHECK_CU(cuMemPoolDestroy(pool));
  streams.unblock("pool");
}

void drop_texture(const e2e::Session&) {
  Blocked streams;
  const CUDA_ARRAY_DESCRIPTOR shape{64, 64, CU_AD_FORMAT_FLOAT, 1};
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  CHECK_CU(cuArrayCreate_v2(&resource.res.array.hArray, &shape));
  const CUDA_TEXTURE_DESC description{};
  CUtexObject texture = 0;
  CHECK_CU(cuTexObjectCreate(&texture, &resource, &description, nullptr));
  streams.block();
  CHECK_CU(cuTexObjectDestroy(texture));
  CHECK_CU(cuTexObjectCreate(&texture, &resource, &description, nullptr));
  CHECK_CU(cuTexObjectDestroy(texture));
  streams.unblock("texture object");
  CHECK_CU(cuArrayDestroy(resource.res.array.hArray));
}

void map_again(const e2e::Session& session) {
  Blocked streams;
  CUmemAllocationProp shape{};
  shape.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  shape.location = {CU_MEM_LOCATION_TYPE_DEVICE, session.device};
  const CUmemAccessDesc access{shape.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  constexpr size_t kBytes = 4 << 20;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle memory = 0;
  CHECK_CU(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
  CHECK_CU(cuMemCreate(&memory, kBytes, &shape, 0));
  CHECK_CU(cuMemMap(address, kBytes, 0, memory, 0));
  CHECK_CU(cuMemSetAccess(address, kBytes, &access, 1));
  streams.block();
  CHECK_CU(cuMemUnmap(address, kBytes));
  CHECK_CU(cuMemMap(address, kBytes, 0, memory, 0));
  CHECK_CU(cuMemSetAccess(address, kBytes, &access, 1));
  CHECK_CU(cuMemsetD8Async(address, 7, kBytes, streams.other));
  CHECK_CU(cuStreamSynchronize(streams.other));
  streams.unblock("mapping");
  CHECK_CU(cuMemUnmap(address, kBytes));
  CHECK_CU(cuMemRelease(memory));
  CHECK_CU(cuMemAddressFree(address, kBytes));
}

void leave_open(const e2e::Session&) {
  Blocked streams;
  e2e::Buffer<uint32_t> passed(64);
  CHECK_CU(cuMemsetD32_v2(passed.address, 0, 64));
  streams.block();
  for (unsigned i = 0; i < 6000; i++) {
    CHECK_CU(cuStreamWaitValue32_v2(streams.other, passed.address + i % 64 * 4, 0,
                                    CU_STREAM_WAIT_VALUE_EQ));
  }
  CHECK_CU(cuStreamSynchronize(streams.other));
  printf("ready\n");
  fflush(stdout);
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const char* group = argc > 1 ? argv[1] : "free";
  e2e::Session session;
  if (strcmp(group, "free") == 0) free_async(session);
  if (strcmp(group, "pool") == 0) trim_pool(session);
  if (strcmp(group, "texture") == 0) drop_texture(session);
  if (strcmp(group, "mapping") == 0) map_again(session);
  if (strcmp(group, "leave") == 0) leave_open(session);
  printf("%s: nothing waited\n", group);
  return e2e::finish();
}
