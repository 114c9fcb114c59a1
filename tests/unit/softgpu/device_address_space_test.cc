// SPDX-License-Identifier: Apache-2.0
// The interval map and its grace periods, without a device.
#include "softgpu/device/machine/address_space.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace openmps::softgpu {
namespace {

MappedRange range(uint64_t begin, uint64_t bytes) {
  MappedRange made;
  made.begin = begin;
  made.bytes = bytes;
  made.end = begin + bytes;
  return made;
}

TEST(AddressSpaceTest, FindsExactlyWhatIsInside) {
  AddressSpace space;
  ASSERT_TRUE(space.insert(range(0x1000, 0x100)).ok());
  AddressRange found;
  EXPECT_FALSE(space.find(0xfff, &found));
  EXPECT_TRUE(space.find(0x1000, &found));
  EXPECT_TRUE(space.find(0x10ff, &found));
  EXPECT_FALSE(space.find(0x1100, &found));
  EXPECT_EQ(found.begin, 0x1000u);
  EXPECT_EQ(found.end, 0x1100u);
}

TEST(AddressSpaceTest, RefusesOverlap) {
  AddressSpace space;
  ASSERT_TRUE(space.insert(range(0x1000, 0x100)).ok());
  EXPECT_FALSE(space.insert(range(0x10ff, 1)).ok());
  EXPECT_FALSE(space.insert(range(0xfff, 2)).ok());
  EXPECT_FALSE(space.insert(range(0x2000, 0)).ok());
  EXPECT_TRUE(space.insert(range(0x1100, 1)).ok());
  EXPECT_TRUE(space.insert(range(0xfff, 1)).ok());
}

TEST(AddressSpaceTest, CoverageWalksNeighbours) {
  AddressSpace space;
  ASSERT_TRUE(space.insert(range(0x1000, 0x100)).ok());
  ASSERT_TRUE(space.insert(range(0x1100, 0x100)).ok());
  MappedRange read_only = range(0x1200, 0x100);
  read_only.writable = false;
  ASSERT_TRUE(space.insert(read_only).ok());
  using Coverage = AddressSpace::Coverage;
  EXPECT_EQ(space.coverage(0x1000, 0x300, false), Coverage::kInside);
  EXPECT_EQ(space.coverage(0x1000, 0x200, true), Coverage::kInside);
  EXPECT_EQ(space.coverage(0x1000, 0x201, true), Coverage::kOutside);
  EXPECT_EQ(space.coverage(0x1000, 0x301, false), Coverage::kOutside);
  EXPECT_EQ(space.coverage(0x900, 0x1000, false), Coverage::kNone);
  EXPECT_EQ(space.coverage(0x1000, UINT64_MAX, false), Coverage::kOutside);
}

TEST(AddressSpaceTest, ExactSizeBindsCopiesRoundedSizeKernels) {
  AddressSpace space;
  MappedRange made = range(0x1000, 100);
  made.end = 0x1200;
  ASSERT_TRUE(space.insert(made).ok());
  EXPECT_EQ(space.coverage(0x1000, 101, false), AddressSpace::Coverage::kOutside);
  AddressRange found;
  EXPECT_TRUE(space.find(0x11ff, &found));
}

TEST(AddressSpaceTest, GracePeriodWaitsForEarlierReadersOnly) {
  AddressSpace space;
  uint32_t early = space.enter();
  std::atomic<bool> over{false};
  std::thread waiter([&] {
    space.wait_for_readers();
    over = true;
  });
  // Later readers come and go without ending the wait.
  for (int i = 0; i < 1000; ++i) space.exit(space.enter());
  EXPECT_FALSE(over);
  space.exit(early);
  waiter.join();
  EXPECT_TRUE(over);
}

}  // namespace
}  // namespace openmps::softgpu
