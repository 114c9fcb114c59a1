// SPDX-License-Identifier: Apache-2.0
// Handles: wrong, stale and foreign ones are recognised; ids are reused, handles are not.
#include "client/handle_table.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <thread>
#include <vector>

namespace openmps::client {
namespace {

struct Thing : Object {
  int value = 0;
};

TEST(HandleTable, FindsOnlyPublishedObjects) {
  HandleTable<Thing> table(HandleKind::kStream);
  Thing* thing = table.allocate();
  EXPECT_EQ(table.find(thing->handle), nullptr);
  table.publish(thing);
  EXPECT_EQ(table.find(thing->handle), thing);
  EXPECT_EQ(thing->id, 1u);
}

TEST(HandleTable, StaleHandlesOfReusedIdsAreUnknown) {
  HandleTable<Thing> table(HandleKind::kStream);
  Thing* first = table.allocate();
  first->value = 7;
  table.publish(first);
  const uint64_t old_handle = first->handle;
  EXPECT_TRUE(table.retire(first));
  EXPECT_FALSE(table.retire(first)) << "a second destruction must not succeed";
  EXPECT_EQ(table.find(old_handle), nullptr);
  table.recycle(first);
  Thing* second = table.allocate();
  table.publish(second);
  EXPECT_EQ(second->id, 1u);
  EXPECT_EQ(second->value, 0) << "a reused object starts fresh";
  EXPECT_NE(second->handle, old_handle);
  EXPECT_EQ(table.find(old_handle), nullptr);
}

TEST(HandleTable, HasNoMoreObjectsThanItsLimit) {
  HandleTable<Thing> table(HandleKind::kEvent, 2);
  Thing* first = table.allocate();
  table.publish(first);
  EXPECT_NE(table.allocate(), nullptr);
  EXPECT_EQ(table.allocate(), nullptr);
  EXPECT_TRUE(table.retire(first));
  table.recycle(first);
  EXPECT_EQ(table.allocate(), first);
}

TEST(HandleTable, HasAsManyObjectsAsAWorkerTakes) {
  HandleTable<Thing> table(HandleKind::kArray);
  for (uint32_t i = 0; i < wire::kMaxObjects; ++i) ASSERT_NE(table.allocate(), nullptr) << i;
  EXPECT_EQ(table.allocate(), nullptr);
}

TEST(HandleTable, ForeignValuesAreUnknown) {
  HandleTable<Thing> streams(HandleKind::kStream);
  HandleTable<Thing> events(HandleKind::kEvent);
  Thing* stream = streams.allocate();
  streams.publish(stream);
  Thing* event = events.allocate();
  events.publish(event);
  EXPECT_EQ(events.find(stream->handle), nullptr);
  int on_stack = 0;
  for (const uint64_t value :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, ~uint64_t{0}, reinterpret_cast<uint64_t>(&on_stack),
        make_handle(HandleKind::kStream, 1, 0),
        make_handle(HandleKind::kStream, 1, wire::kMaxObjects),
        make_handle(HandleKind::kStream, 1, ~0u >> kIndexShift)}) {
    EXPECT_EQ(streams.find(value), nullptr) << std::hex << value;
  }
  for (uint64_t bit = 0; bit < 64; ++bit) {
    EXPECT_EQ(streams.find(stream->handle ^ uint64_t{1} << bit), nullptr) << bit;
  }
}

TEST(HandleTable, HandlesAreAlignedAsAddressesAre) {
  HandleTable<Thing> streams(HandleKind::kStream);
  for (int i = 0; i < 40; ++i) {
    Thing* stream = streams.allocate();
    streams.publish(stream);
    EXPECT_EQ(stream->handle % alignof(std::max_align_t), 0u);
    EXPECT_EQ(streams.find(stream->handle), stream);
  }
}

TEST(HandleTable, IdsAreUniqueAcrossThreads) {
  HandleTable<Thing> table(HandleKind::kEvent);
  constexpr int kThreads = 4;
  constexpr int kEach = 3000;  // crosses chunks
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&table] {
      for (int i = 0; i < kEach; ++i) table.publish(table.allocate());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<bool> seen(kThreads * kEach + 1);
  table.for_each([&](Thing& thing) {
    ASSERT_LT(thing.id, seen.size());
    EXPECT_FALSE(seen[thing.id]);
    seen[thing.id] = true;
  });
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), kThreads * kEach);
}

}  // namespace
}  // namespace openmps::client
