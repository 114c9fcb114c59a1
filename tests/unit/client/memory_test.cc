// SPDX-License-Identifier: Apache-2.0
// Device and pinned memory against a fake worker: which allocations make calls, what is remembered.
#include "client/memory.h"

#include <gtest/gtest.h>

#include <set>

#include "client/objects.h"
#include "client/virtual_memory.h"
#include "fake_channel.h"

namespace openmps::client {
namespace {

constexpr uint64_t kBase = wire::window_base(0);

class DeviceMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.start_worker([this](FakeChannel& worker, const wire::Record& record) {
      const auto range = body_of<wire::MemoryRange>(record);
      if (record.opcode == wire::Opcode::kMemoryMap) {
        const bool fits = mapped_ + range.bytes <= limit_;
        if (fits) mapped_ += range.bytes;
        ++maps_;
        worker.reply(record.reply_slot, fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
      }
      if (record.opcode == wire::Opcode::kMemoryUnmap) mapped_ -= range.bytes;
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
  void drain() {
    ASSERT_EQ(fake_.channel().call(wire::Opcode::kPing, wire::ObjectOnly{}), CUDA_SUCCESS);
  }

  std::atomic<uint64_t> mapped_{0};
  std::atomic<uint64_t> maps_{0};
  std::atomic<uint64_t> limit_{wire::kGiB};
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
  ASSERT_EQ(memory_.map_at(context_, base, kUnit), CUDA_SUCCESS);
  ASSERT_EQ(memory_.map_at(context_, base + kUnit, 2 * kUnit), CUDA_SUCCESS);
  EXPECT_TRUE(memory_.contains(base + 1, 3 * kUnit - 1)) << "neighbours count as one";
  EXPECT_FALSE(memory_.contains(base + 1, 3 * kUnit));
  EXPECT_FALSE(memory_.contains(before, kUnit + 1)) << "allocations don't";
  DeviceMemory::Entry entry;
  EXPECT_EQ(memory_.forget(base, &entry), CUDA_ERROR_INVALID_VALUE) << "cuMemFree";
  EXPECT_EQ(memory_.forget_all(nullptr).size(), 1u) << "a context's end leaves mappings";
  limit_ = mapped_.load();
  EXPECT_EQ(memory_.map_at(context_, base + 3 * kUnit, kUnit), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory_.unmap_at(base), CUDA_SUCCESS);
  EXPECT_EQ(memory_.unmap_at(base), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory_.unmap_at(base + kUnit), CUDA_SUCCESS);
  memory_.unreserve(base, 4 * kUnit);
  drain();
  EXPECT_EQ(mapped_, kUnit);
}

TEST(VirtualMemoryTest, RangesAndReferences) {
  VirtualMemory owner;
  VirtualMemory::Locked memory(owner);
  memory->reserved.emplace(100, 50);
  EXPECT_TRUE(memory->is_reserved(100, 50));
  EXPECT_TRUE(memory->is_reserved(120, 30));
  EXPECT_FALSE(memory->is_reserved(120, 31));
  EXPECT_FALSE(memory->is_reserved(99, 2));
  EXPECT_FALSE(memory->is_reserved(120, ~0ull)) << "an end that wraps";
  memory->physical.emplace(1, PhysicalMemory{.bytes = 10, .address = 110});
  memory->physical.emplace(2, PhysicalMemory{.bytes = 10});
  EXPECT_TRUE(memory->overlaps_mapping(119, 5));
  EXPECT_FALSE(memory->overlaps_mapping(120, 5));
  EXPECT_FALSE(memory->overlaps_mapping(0, 5)) << "what is mapped nowhere is in nobody's way";
  EXPECT_EQ(memory->mapped_at(110)->bytes, 10u);
  EXPECT_EQ(memory->mapped_at(0), nullptr);
  memory->physical.at(1).references = 0;
  memory->physical.at(2).references = 0;
  memory->drop_unused();
  EXPECT_EQ(memory->physical.size(), 1u) << "the mapping keeps its memory";
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
  CUdeviceptr again = 0;
  EXPECT_EQ(memory_.allocate(context_, 10 * wire::kMiB, true, &again), CUDA_ERROR_OUT_OF_MEMORY);
  fake_.view().fence(7).value.store(1);
  EXPECT_EQ(memory_.allocate(context_, 10 * wire::kMiB, true, &again), CUDA_SUCCESS);
}

}  // namespace
}  // namespace openmps::client
