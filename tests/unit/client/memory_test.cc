// SPDX-License-Identifier: Apache-2.0
// Device and pinned memory against a fake worker: which allocations make calls, what is remembered.
#include "client/memory/memory.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "client/memory/pinned.h"
#include "client/memory/virtual_memory.h"
#include "client/objects.h"
#include "fake_channel.h"
#include "wire/commands/device.h"

namespace openmps::client {
namespace {

constexpr uint64_t kBase = wire::window_base(0);
constexpr uint64_t kExtentBase = wire::window_base(wire::kMaxWindows / 2);

class DeviceMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.start_worker([this](FakeChannel& worker, const wire::Record& record) {
      const auto range = body_of<wire::MemoryMap>(record);
      if (record.opcode == wire::Opcode::kMemoryMap) {
        const bool fits = mapped_ + range.bytes <= limit_;
        const bool busy = refuse_ == range.address;
        if (fits && !busy) mapped_ += range.bytes;
        ++maps_;
        while (hold_map_.load()) std::this_thread::yield();
        worker.reply(record.reply_slot, busy   ? CUDA_ERROR_NOT_READY
                                        : fits ? CUDA_SUCCESS
                                               : CUDA_ERROR_OUT_OF_MEMORY);
      }
      if (record.opcode == wire::Opcode::kMemoryUnmap) {
        mapped_ -= range.bytes;
        if (!keep_unmapped_.load()) worker.view().header().unmapped.fetch_add(1);
      }
      if (record.opcode == wire::Opcode::kAddressReserve) {
        const wire::AddressReserve::Reply reply{next_extent_};
        if (body_of<wire::AddressReserve>(record).bytes > longest_extent_) {
          worker.reply(record.reply_slot, CUDA_ERROR_OUT_OF_MEMORY);
          return;
        }
        next_extent_ += body_of<wire::AddressReserve>(record).bytes;
        ++extents_;
        worker.reply(record.reply_slot, CUDA_SUCCESS, &reply, sizeof(reply));
      }
      if (record.opcode == wire::Opcode::kAddressFree) --extents_;
      if (record.opcode == wire::Opcode::kMemoryPublish) {
        const wire::MemoryPublish::Reply key{{{1, 2, 3}}};
        worker.reply(record.reply_slot, CUDA_SUCCESS, &key, sizeof(key));
      }
      if (record.opcode == wire::Opcode::kMemoryWithdraw) ++withdrawn_;
      if (record.opcode == wire::Opcode::kPing) worker.reply(record.reply_slot, CUDA_SUCCESS);
    });
  }
  CUdeviceptr allocate(uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory_.allocate(context_, bytes, false, &address), CUDA_SUCCESS) << bytes;
    return address;
  }
  void free(CUdeviceptr address) {
    DeviceMemory::Entry entry;
    ASSERT_EQ(memory_.forget(address, &entry), CUDA_SUCCESS);
    memory_.release(entry);
  }
  // Everything pushed so far has been handled.
  void drain() { ASSERT_EQ(fake_.channel().call(wire::Ping{}), CUDA_SUCCESS); }

  std::atomic<uint64_t> mapped_{0};
  std::atomic<uint64_t> maps_{0};
  std::atomic<uint64_t> limit_{wire::kGiB};
  std::atomic<uint64_t> next_extent_{kExtentBase};
  std::atomic<uint64_t> extents_{0};
  std::atomic<uint64_t> longest_extent_{wire::kMaxExtentBytes};
  std::atomic<uint64_t> withdrawn_{0};
  std::atomic<bool> hold_map_{false};       // the worker keeps its answer
  std::atomic<bool> keep_unmapped_{false};  // the worker is never done with a range
  std::atomic<uint64_t> refuse_{0};         // an address that is not to be had
  Context context_;
  FakeChannel fake_;
  Fences fences_{fake_.channel()};
  DeviceMemory memory_{fake_.channel(), fences_, kBase};
};

TEST_F(DeviceMemoryTest, AProgramMapsItsOwnMemory) {
  constexpr uint64_t kUnit = wire::kMemoryGranularity;
  const CUdeviceptr before = allocate(kUnit);
  uint64_t base = 0;
  ASSERT_EQ(memory_.reserve(4 * kUnit, 8 * kUnit, &base), CUDA_SUCCESS);
  EXPECT_EQ(base % (8 * kUnit), 0u);
  EXPECT_FALSE(memory_.contains(base, 1)) << "reserved is not mapped";
  memory_.add_mapping(&context_, base, kUnit, AllocationKind::kMapped, true);
  memory_.add_mapping(&context_, base + kUnit, 2 * kUnit, AllocationKind::kMapped, false);
  EXPECT_TRUE(memory_.contains(base + 1, 3 * kUnit - 1)) << "neighbours count as one";
  EXPECT_FALSE(memory_.contains(base + 1, 3 * kUnit));
  EXPECT_TRUE(memory_.contains(base, kUnit, true));
  EXPECT_FALSE(memory_.contains(base, kUnit + 1, true)) << "the second is for reading";
  EXPECT_FALSE(memory_.contains(before, kUnit + 1)) << "allocations don't";
  DeviceMemory::Entry entry;
  EXPECT_EQ(memory_.forget(base, &entry), CUDA_ERROR_INVALID_VALUE) << "cuMemFree";
  EXPECT_EQ(memory_.forget_all(nullptr).size(), 1u) << "a context's end leaves mappings";
  memory_.remove_mapping(base);
  EXPECT_FALSE(memory_.contains(base, 1));
  memory_.remove_mapping(base + kUnit);
  memory_.unreserve(base, 4 * kUnit);
}

TEST_F(DeviceMemoryTest, LargeReservationsAreExtents) {
  uint64_t first = 0;
  uint64_t second = 0;
  ASSERT_EQ(memory_.reserve(8 * kOwnExtentBytes, 0, &first), CUDA_SUCCESS);
  ASSERT_EQ(memory_.reserve(8 * kOwnExtentBytes, 0, &second), CUDA_SUCCESS);
  EXPECT_EQ(extents_.load(), 2u);
  EXPECT_TRUE(memory_.in_window(first));
  EXPECT_TRUE(memory_.in_window(second + 8 * kOwnExtentBytes - 1));
  EXPECT_FALSE(memory_.in_window(second + 8 * kOwnExtentBytes));
  memory_.unreserve(first, 8 * kOwnExtentBytes);
  EXPECT_FALSE(memory_.in_window(first));
  drain();
  EXPECT_EQ(extents_.load(), 1u);
}

TEST_F(DeviceMemoryTest, AllocationsThatTheWindowHasNoRoomForShareExtents) {
  limit_ = ~0ull;
  allocate(wire::kDeviceBytes);
  EXPECT_EQ(extents_.load(), 0u);
  const uint64_t half = wire::kExtentBytes / 2 - wire::kMemoryGranularity;
  const CUdeviceptr blocks[] = {allocate(half), allocate(half), allocate(half), allocate(half)};
  EXPECT_EQ(extents_.load(), 2u);
  for (const CUdeviceptr block : blocks) {
    EXPECT_TRUE(memory_.in_window(block + half - 1));
    free(block);
  }
  drain();
  // The two are neighbours, as the worker gives them out: no allocation lies in both.
  allocate(wire::kExtentBytes);
  EXPECT_EQ(extents_.load(), 3u);
}

TEST_F(DeviceMemoryTest, WhereAddressesAreShortAnExtentIsSmall) {
  limit_ = ~0ull;
  allocate(wire::kDeviceBytes);
  longest_extent_ = wire::kExtentBytes / 4;
  const CUdeviceptr block = allocate(8 * wire::kMiB);
  EXPECT_EQ(extents_.load(), 1u);
  EXPECT_FALSE(memory_.in_window(block + 16 * wire::kMiB));
}

TEST_F(DeviceMemoryTest, AnExtentAvoidsWhatTheProgramHasThere) {
  next_extent_ = kExtentBase;
  Result<Mapping> taken = reserve_addresses(kExtentBase, 4096);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  uint64_t base = 0;
  ASSERT_EQ(memory_.reserve(kOwnExtentBytes, 0, &base), CUDA_SUCCESS);
  EXPECT_NE(base, kExtentBase);
  drain();
  EXPECT_EQ(extents_.load(), 1u) << "the unusable one is given back";
}

TEST_F(DeviceMemoryTest, PoolsCountForThemselves) {
  Stream stream;
  stream.fence_slot = 5;
  Arena* pool = memory_.add_arena(0, 64 * wire::kMiB);
  CUdeviceptr block = 0;
  ASSERT_EQ(memory_.allocate_async(context_, *pool, 7, stream, 10 * wire::kMiB, &block),
            CUDA_SUCCESS);
  EXPECT_EQ(memory_.use_of(*pool).used, 10 * wire::kMiB);
  EXPECT_EQ(memory_.use_of(*pool).reserved, 10 * wire::kMiB);
  CUdeviceptr more = 0;
  EXPECT_EQ(memory_.allocate_async(context_, *pool, 7, stream, 60 * wire::kMiB, &more),
            CUDA_ERROR_OUT_OF_MEMORY)
      << "the pool's own limit";
  DeviceMemory::Entry entry;
  ASSERT_EQ(memory_.forget(block, &entry), CUDA_SUCCESS);
  EXPECT_EQ(memory_.use_of(*pool).used, 0u);
  EXPECT_EQ(memory_.use_of(*pool).used_high, 10 * wire::kMiB);
  // Freed behind work that has not come so far: the same stream may have it, another may not.
  memory_.release_after(entry, FencePoint(5, 1));
  Stream other;
  other.fence_slot = 6;
  CUdeviceptr again = 0;
  ASSERT_EQ(memory_.allocate_async(context_, *pool, 7, other, 10 * wire::kMiB, &more),
            CUDA_SUCCESS);
  EXPECT_NE(more, block);
  ASSERT_EQ(memory_.allocate_async(context_, *pool, 7, stream, 10 * wire::kMiB, &again),
            CUDA_SUCCESS);
  EXPECT_EQ(again, block);
  for (const CUdeviceptr address : {more, again}) {
    ASSERT_EQ(memory_.forget(address, &entry), CUDA_SUCCESS);
    memory_.release(entry);
  }
  memory_.trim(*pool, 0);
  EXPECT_EQ(memory_.use_of(*pool).reserved, 0u);
  drain();
  EXPECT_EQ(mapped_.load(), 0u);
  memory_.abandon(pool);
}

TEST_F(DeviceMemoryTest, PublishedMemoryIsNotReused) {
  const CUdeviceptr block = allocate(4 * wire::kMiB);
  DeviceMemory::Published published;
  DeviceMemory::Entry entry;
  ASSERT_EQ(memory_.publish(block, false, &published, &entry), CUDA_SUCCESS);
  EXPECT_EQ(published.bytes, 4 * wire::kMiB);
  EXPECT_EQ(memory_.publish(block, true, &published, &entry), CUDA_ERROR_INVALID_VALUE)
      << "it is of no pool";
  const uint64_t before = mapped_.load();
  free(block);
  drain();
  EXPECT_EQ(mapped_.load(), before - 4 * wire::kMiB) << "unmapped, not kept";
  EXPECT_EQ(withdrawn_.load(), 1u);
}

TEST(PinnedHeapTest, EndsWithItsAddresses) {
  constexpr uint64_t kBytes = wire::kHostBytes - wire::kPinnedOffset;
  static_assert(kBytes % kPinnedChunkBytes == 0);
  constexpr uint64_t kStart = kBase + wire::kDeviceBytes + wire::kPinnedOffset;
  FakeChannel fake;
  fake.start_worker([](FakeChannel& worker, const wire::Record& record) {
    if (record.opcode == wire::Opcode::kHostRegister) {
      worker.reply(record.reply_slot, CUDA_SUCCESS);
    } else if (record.opcode == wire::Opcode::kHostUnregister) {
      worker.view().header().unregistered.fetch_add(1);
    }
  });
  PinnedHeap heap(fake.channel(), kStart, kStart + kBytes);
  Context context;
  void* all = nullptr;
  void* more = nullptr;
  EXPECT_EQ(heap.allocate(&context, kBytes + 1, 0, &more), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(heap.allocate(&context, kBytes, 0, &all), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<uint64_t>(all), kStart);
  EXPECT_EQ(heap.allocate(&context, 1, 0, &more), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(heap.release(all), CUDA_SUCCESS);
  EXPECT_EQ(heap.allocate(&context, 1, 0, &more), CUDA_SUCCESS);
}

TEST(VirtualMemoryTest, RangesAndMappings) {
  VirtualMemory owner;
  VirtualMemory::Locked memory(owner);
  memory->reserved.insert(100, 50, {});
  EXPECT_TRUE(memory->is_reserved(100, 50));
  EXPECT_TRUE(memory->is_reserved(120, 30));
  EXPECT_FALSE(memory->is_reserved(120, 31));
  EXPECT_FALSE(memory->is_reserved(99, 2));
  EXPECT_FALSE(memory->is_reserved(120, ~0ull)) << "an end that wraps";
  memory->mappings.insert(110, 10, {});
  memory->mappings.insert(120, 5, {});
  EXPECT_TRUE(memory->mappings.overlaps(119, 5));
  EXPECT_TRUE(memory->mappings.overlaps(100, 50));
  EXPECT_FALSE(memory->mappings.overlaps(125, 5));
  EXPECT_FALSE(memory->mappings.overlaps(100, 10));
  EXPECT_TRUE(memory->is_whole(110, 15));
  EXPECT_TRUE(memory->is_whole(120, 5));
  EXPECT_FALSE(memory->is_whole(110, 12)) << "a part";
  EXPECT_FALSE(memory->is_whole(111, 14));
  EXPECT_FALSE(memory->is_whole(110, 20)) << "beyond the last";
  EXPECT_FALSE(memory->is_whole(110, 0));
}

TEST_F(DeviceMemoryTest, SmallBlocksShareASlab) {
  std::set<CUdeviceptr> blocks;
  for (int i = 0; i < 1000; ++i) {
    const CUdeviceptr block = allocate(1 + i % 700);
    EXPECT_EQ(block % kBlockBytes, 0u);
    EXPECT_TRUE(blocks.insert(block).second);
  }
  EXPECT_EQ(maps_.load(), 1u);
}

TEST_F(DeviceMemoryTest, RepeatedUseMakesNoCall) {
  free(allocate(100));
  free(allocate(10 * wire::kMiB));
  const uint64_t maps = maps_.load();
  for (int i = 0; i < 100; ++i) {
    free(allocate(100));
    free(allocate(10 * wire::kMiB));
  }
  EXPECT_EQ(maps_.load(), maps);
}

TEST_F(DeviceMemoryTest, OnlyStartsOfLiveAllocationsAreFreed) {
  const CUdeviceptr block = allocate(1000);
  DeviceMemory::Entry entry;
  EXPECT_EQ(memory_.forget(block + 1, &entry), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory_.forget(block + kBlockBytes, &entry), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory_.forget(0x1234, &entry), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory_.forget(block, &entry), CUDA_SUCCESS);
  EXPECT_EQ(memory_.forget(block, &entry), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceMemoryTest, BoundsAreThoseOfTheAllocation) {
  const CUdeviceptr block = allocate(1000);
  EXPECT_TRUE(memory_.contains(block, 1000));
  EXPECT_TRUE(memory_.contains(block + 999, 1));
  EXPECT_FALSE(memory_.contains(block, 1001)) << "although the slab goes on";
  EXPECT_FALSE(memory_.contains(block + 1000, 1));
  EXPECT_FALSE(memory_.contains(block + 10, ~0ull));
}

TEST_F(DeviceMemoryTest, PagesAreThoseThatAnAllocationTouches) {
  constexpr uint64_t kPage = wire::kHostPageBytes;
  const uint64_t first = allocate(600);
  const uint64_t second = allocate(2 * kPage);  // neither begins nor ends with a page
  ASSERT_EQ(second, first + 1024);
  ASSERT_EQ(first % kPage, 0u);
  DeviceMemory::Entry entry;
  EXPECT_TRUE(memory_.contains_pages(first, 3 * kPage, &entry));
  EXPECT_EQ(entry.base, second);
  EXPECT_TRUE(memory_.contains_pages(first + kPage, kPage, &entry));
  EXPECT_EQ(entry.base, second);
  EXPECT_FALSE(memory_.contains_pages(first, 4 * kPage, &entry));
  EXPECT_FALSE(memory_.contains_pages(first - kPage, kPage, &entry));
  EXPECT_FALSE(memory_.contains_pages(first, 0, &entry));
  EXPECT_FALSE(memory_.contains_pages(first, ~0ull - kPage + 1, &entry));
  free(second);
  EXPECT_TRUE(memory_.contains_pages(first, kPage, &entry));
  EXPECT_EQ(entry.base, first);
  EXPECT_FALSE(memory_.contains_pages(first, 2 * kPage, &entry));
}

TEST_F(DeviceMemoryTest, WhatIsKeptIsBoundedAndGivenUpWhenMemoryIsShort) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(allocate(8 * wire::kMiB));
  for (const CUdeviceptr block : blocks) free(block);
  drain();
  EXPECT_LE(mapped_.load(), kGranuleCacheBytes);
  EXPECT_EQ(memory_.cached_bytes(0), mapped_.load());
  limit_ = 64 * wire::kMiB;
  const CUdeviceptr all = allocate(64 * wire::kMiB);
  EXPECT_NE(all, 0u) << "the cache made room";
  CUdeviceptr more = 0;
  EXPECT_EQ(memory_.allocate(context_, 2 * wire::kMiB, false, &more), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory_.allocate(context_, 0, false, &more), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory_.allocate(context_, ~0ull, false, &more), CUDA_ERROR_OUT_OF_MEMORY);
  free(all);
  memory_.trim();
  drain();
  EXPECT_EQ(mapped_.load(), 0u);
}

TEST_F(DeviceMemoryTest, AStreamOrderedFreeWaitsForItsPoint) {
  limit_ = 10 * wire::kMiB;
  const CUdeviceptr block = allocate(10 * wire::kMiB);
  DeviceMemory::Entry entry;
  ASSERT_EQ(memory_.forget(block, &entry), CUDA_SUCCESS);
  const FencePoint point(7, 1);
  memory_.release_after(entry, point);
  // The GPU comes to the point only after the worker has refused more memory.
  std::atomic<bool> reached{false};
  std::thread gpu([&] {
    while (maps_.load() < 2) std::this_thread::yield();
    reached = true;
    fake_.view().fence(7).value.store(1);
  });
  CUdeviceptr again = 0;
  EXPECT_EQ(memory_.allocate(context_, 10 * wire::kMiB, true, &again), CUDA_SUCCESS);
  EXPECT_TRUE(reached.load()) << "waited for what is freed rather than fail";
  gpu.join();
}

TEST_F(DeviceMemoryTest, NobodyWaitsForAnotherThreadsMapping) {
  const CUdeviceptr known = allocate(100);
  hold_map_ = true;
  CUdeviceptr mapped = 0;
  std::thread mapping([&] {
    EXPECT_EQ(memory_.allocate(context_, 64 * wire::kMiB, false, &mapped), CUDA_SUCCESS);
  });
  while (maps_.load() < 2) std::this_thread::yield();
  // The worker has the command and does not answer: a copy's look-up and a small allocation go on.
  EXPECT_TRUE(memory_.contains(known, 100));
  EXPECT_NE(allocate(100), 0u);
  hold_map_ = false;
  mapping.join();
  EXPECT_NE(mapped, 0u);
}

TEST_F(DeviceMemoryTest, NobodyWaitsForAnotherThreadsRoom) {
  limit_ = 64 * wire::kMiB;
  const CUdeviceptr known = allocate(100);
  const CUdeviceptr block = allocate(60 * wire::kMiB);
  DeviceMemory::Entry entry;
  ASSERT_EQ(memory_.forget(block, &entry), CUDA_SUCCESS);
  memory_.release_after(entry, FencePoint(7, 1));
  CUdeviceptr again = 0;
  std::thread waiting(
      [&] { EXPECT_EQ(memory_.allocate(context_, 60 * wire::kMiB, false, &again), CUDA_SUCCESS); });
  while (maps_.load() < 3) std::this_thread::yield();
  EXPECT_TRUE(memory_.contains(known, 100));
  EXPECT_NE(allocate(100), 0u);
  fake_.view().fence(7).value.store(1);
  waiting.join();
  EXPECT_NE(again, 0u);
}

TEST_F(DeviceMemoryTest, AddressesComeBackWhenTheWorkerIsDoneWithThem) {
  keep_unmapped_ = true;
  const CUdeviceptr first = allocate(64 * wire::kMiB);
  free(first);
  drain();
  EXPECT_EQ(allocate(64 * wire::kMiB), first) << "as it was it can be had at once";
  free(first);
  drain();
  refuse_ = first;
  const CUdeviceptr second = allocate(64 * wire::kMiB);
  EXPECT_NE(second, first) << "the worker is not done with it";
  EXPECT_NE(allocate(16 * wire::kMiB), first) << "and nothing else comes there";
  limit_ = ~0ull;
}

TEST(ReturnedRangesTest, ComeBackAsTheyWereOrWhenTheWorkerIsDone) {
  constexpr uint64_t kUnit = wire::kMemoryGranularity;
  ReturnedRanges returned;
  RangeAllocator addresses;
  returned.add({0 * kUnit, kUnit, 0, true, 0});
  returned.add({1 * kUnit, kUnit, 0, true, 0});
  returned.add({2 * kUnit, kUnit, 1, true, 0});
  returned.add({3 * kUnit, kUnit, 0, false, 0});
  EXPECT_EQ(returned.last_ticket(), 4u);
  ReturnedRanges::Range range;
  EXPECT_FALSE(returned.take(2 * kUnit, 0, &range));
  EXPECT_FALSE(returned.take(kUnit, 2, &range)) << "another device's";
  ASSERT_TRUE(returned.take(kUnit, 0, &range));
  EXPECT_EQ(range.base, kUnit) << "the last that may come back";
  returned.put_back(range);
  ASSERT_TRUE(returned.take(kUnit, 0, &range));
  EXPECT_EQ(range.base, 0u) << "the worker refused the other";
  returned.collect(1, 0, addresses);
  EXPECT_EQ(addresses.free_bytes(), 0u) << "the first is in use again";
  returned.collect(4, 1, addresses);
  EXPECT_EQ(addresses.free_bytes(), 2 * kUnit) << "the last stays apart";
  returned.collect(3, 0, addresses);
  EXPECT_EQ(addresses.free_bytes(), 2 * kUnit) << "the worker is not done with it";
  returned.collect(4, 0, addresses);
  EXPECT_EQ(addresses.free_bytes(), 3 * kUnit);
  EXPECT_EQ(returned.last_ticket(), 0u);
}

TEST(DeferredFreesTest, TheSameStreamHasThemBackAtOnceOthersWhenTheyAreReached) {
  DeferredFrees frees;
  Arena arena;
  Arena other;
  const auto entry_of = [](uint64_t base, uint64_t bytes, Arena* arena) {
    return AllocationEntry{base, bytes, Allocation{.reserved = bytes, .arena = arena}};
  };
  frees.add(entry_of(0x1000, 512, &arena), FencePoint(3, 1));
  frees.add(entry_of(0x2000, 512, &arena), FencePoint(3, 2));
  frees.add(entry_of(0x3000, 4096, &other), FencePoint(3, 3));
  frees.add(entry_of(0x4000, 512, &arena), FencePoint(4, 9));
  AllocationEntry entry;
  EXPECT_FALSE(frees.take(3, other, 512, &entry)) << "an eighth more at most";
  EXPECT_FALSE(frees.take(5, arena, 512, &entry));
  ASSERT_TRUE(frees.take(3, other, 4000, &entry));
  EXPECT_EQ(entry.base, 0x3000u);
  ASSERT_TRUE(frees.take(3, arena, 512, &entry));
  EXPECT_EQ(entry.base, 0x1000u) << "the oldest";
  EXPECT_EQ(frees.newest().size(), 2u);
  std::vector<uint64_t> released;
  const auto release = [&](const AllocationEntry& freed) { released.push_back(freed.base); };
  EXPECT_EQ(frees.reap(
                9, [](FencePoint point) { return point.slot() == 4; }, release),
            1u);
  EXPECT_EQ(released, std::vector<uint64_t>{0x4000});
  ASSERT_TRUE(frees.take(3, arena, 512, &entry));
  EXPECT_EQ(entry.base, 0x2000u);
  EXPECT_TRUE(frees.empty());
}

TEST(DeferredFreesTest, ALookCostsTheSameHoweverManyAreOutstanding) {
  DeferredFrees frees;
  Arena arena;
  constexpr uint32_t kSlots = 100;
  constexpr uint64_t kPerSlot = 200;
  for (uint64_t i = 0; i < kSlots * kPerSlot; ++i) {
    const uint64_t bytes = kBlockBytes * (1 + i % 7);
    frees.add({0x1000 + i, bytes, Allocation{.reserved = bytes, .arena = &arena}},
              FencePoint(static_cast<uint32_t>(i % kSlots), 1 + i / kSlots));
  }
  size_t looks = 0;
  size_t released = 0;
  const auto release = [&](const AllocationEntry&) { ++released; };
  frees.reap(
      kReapedPerAllocation, [&](FencePoint) { return ++looks, false; }, release);
  EXPECT_EQ(looks, DeferredFrees::kSlotsPerReap) << "one of each slot";
  frees.reap(
      kReapedPerAllocation, [](FencePoint) { return true; }, release);
  EXPECT_EQ(released, kReapedPerAllocation) << "no more at a time";
  // But all get their turn.
  while (!frees.empty()) {
    ASSERT_NE(frees.reap(
                  kReapedPerAllocation, [](FencePoint) { return true; }, release),
              0u);
  }
  EXPECT_EQ(released, kSlots * kPerSlot);
}

}  // namespace
}  // namespace openmps::client
