// SPDX-License-Identifier: Apache-2.0
// Static partitions: which chunks of a device each has, and which one a client means by a name.
#include "control/static_partitions.h"

#include <gtest/gtest.h>

#include <utility>

namespace openmps::control {
namespace {

const std::vector<Device> kDevices = {
    {"", "GPU-aaaa0000-0000", "H200", 132, 0, 8, 15},
    {"", "GPU-aabb0000-0000", "H200", 132, 0, 8, 15},
    {"", "GPU-cccc0000-0000", "old", 8, 0, 0, 0},
};

PartitionRule chunks_of(uint32_t count) { return {.name = "", .device = "", .chunks = count}; }

TEST(StaticPartitions, ADeviceIsFoundByTheBeginningOfItsUuid) {
  EXPECT_EQ(find_by_uuid("GPU-aaaa", kDevices), 0u);
  EXPECT_EQ(find_by_uuid("GPU-aabb0000-0000", kDevices), 1u);
  EXPECT_EQ(find_by_uuid("GPU-aa", kDevices), std::nullopt) << "two devices match";
  EXPECT_EQ(find_by_uuid("GPU-d", kDevices), std::nullopt);
  EXPECT_EQ(find_by_uuid("", {kDevices[0]}), std::nullopt);
}

TEST(StaticPartitions, EachHasChunksOfItsOwn) {
  StaticPartitions partitions;
  const auto add = [&](uint32_t device, uint32_t chunks) {
    return partitions.add(device, kDevices[device], chunks_of(chunks));
  };
  EXPECT_EQ((*add(0, 2))->name(), "GPU-aaaa0000-0000/1");
  EXPECT_EQ((*add(0, 3))->place, (wire::StaticPartition{0, 24, {0b11100, 0}}));
  EXPECT_EQ((*add(1, 15))->place, (wire::StaticPartition{1, 120, {0x7fff, 0}}))
      << "chunks of different devices are independent";
  for (const auto& [device, chunks] :
       {std::pair(1u, 1u), std::pair(0u, 11u), std::pair(0u, UINT32_MAX), std::pair(0u, 0u),
        std::pair(2u, 1u)}) {
    EXPECT_EQ(add(device, chunks).status().code(), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  }
  partitions.remove(partitions.find("1"));
  EXPECT_EQ(partitions.find("1"), nullptr);
  const auto next = add(0, 12);
  ASSERT_TRUE(next.ok());
  EXPECT_EQ((*next)->place, (wire::StaticPartition{0, 96, {0x7fff & ~0b11100, 0}}))
      << "the free chunks on both sides of the other partition's";
  EXPECT_EQ((*next)->id, "4") << "an ID is not used again";
}

TEST(StaticPartitions, AClientHasToNameAPartition) {
  StaticPartitions partitions;
  const StaticPartitions::Partition& made = **partitions.add(1, kDevices[1], chunks_of(4));
  EXPECT_EQ(partitions.named("GPU-aabb0000-0000/1").value(), made.place);
  EXPECT_EQ(partitions.named("GPU-aabb/1").value(), made.place);
  wire::StaticPartition place = made.place;
  place.device = 0;
  EXPECT_EQ(std::as_const(partitions).find(kDevices[1].uuid, place), &made)
      << "the partition of a client is found by its place";
  EXPECT_EQ(std::as_const(partitions).find(kDevices[0].uuid, place), nullptr);
  EXPECT_EQ(std::as_const(partitions).find(kDevices[1].uuid, wire::StaticPartition()), nullptr);
  for (const char* text :
       {"", "1", "GPU-aaaa/1", "GPU-aabb/2", "GPU-aabb/", "GPU-aabb/1/", "/", "/1"}) {
    const Status status = partitions.named(text).status();
    EXPECT_EQ(status.code(), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION) << text;
    EXPECT_NE(status.message().find("CUDA_MPS_SM_PARTITION"), std::string::npos) << text;
  }
  partitions.find("GPU-aabb/1")->is_leaving = true;
  EXPECT_FALSE(partitions.named("GPU-aabb/1").ok());
}

TEST(StaticPartitions, DescribedPartitionsAreMadeOnceTheDevicesAreKnown) {
  StaticPartitions partitions;
  using Lines = std::vector<std::string>;
  EXPECT_EQ(partitions
                .describe({{"inference", "1", 4},
                           {"batch", "GPU-aaaa", 15},
                           {"late", "GPU-aaaa", 1},
                           {"nowhere", "GPU-d", 1},
                           {"ninth", "9", 1},
                           {"one_of_two", "GPU-aa", 1}})
                .size(),
            6u);
  for (const char* text : {"inference", "GPU-aabb/inference"}) {
    ASSERT_TRUE(partitions.named(text).ok()) << text;
    EXPECT_EQ(partitions.named(text)->device, wire::kMaxDevices) << "the device is not known yet";
  }
  EXPECT_FALSE(partitions.named("other").ok());
  EXPECT_EQ(partitions.place(kDevices), (Lines{"partition GPU-aabb0000-0000/inference created",
                                               "partition GPU-aaaa0000-0000/batch created",
                                               "partition late: there are no 1 chunks free",
                                               "partition nowhere: there is no device GPU-d",
                                               "partition ninth: there is no device 9",
                                               "partition one_of_two: there is no device GPU-aa"}));
  EXPECT_EQ(partitions.named("inference")->device, 1u);
  EXPECT_EQ(*partitions.named("GPU-aabb/inference"), *partitions.named("inference"));
  for (const char* text : {"GPU-aaaa/inference", "late", "nowhere", "/", "inference/"}) {
    EXPECT_FALSE(partitions.named(text).ok()) << text;
  }
  EXPECT_EQ(partitions.place(kDevices), Lines()) << "each partition is made once";

  // The next daemon takes the partitions over, and knows that the configuration described them.
  StaticPartitions next;
  next.restore(partitions.text());
  EXPECT_EQ((*next.add(1, kDevices[1], chunks_of(1)))->id, "1");
  EXPECT_EQ(next.describe({{"inference", "1", 5}, {"more", "1", 2}}),
            (Lines{"partition GPU-aabb0000-0000/inference keeps its 4 chunks until it is removed",
                   "partition more: 2 chunks of device 1",
                   "partition GPU-aaaa0000-0000/batch is there until it is removed"}));
  EXPECT_EQ(next.place(kDevices), (Lines{"partition GPU-aabb0000-0000/more created"}));
  next.remove(next.find("inference"));
  EXPECT_EQ(next.place(kDevices), Lines())
      << "a described partition that a command has removed is not made again";
  EXPECT_FALSE(next.named("inference").ok());
  (void)next.describe({{"inference", "1", 5}, {"batch", "0", 15}});
  EXPECT_EQ(next.place(kDevices), (Lines{"partition GPU-aabb0000-0000/inference created"}));
}

TEST(StaticPartitions, OneThatIsShareableMayGrow) {
  StaticPartitions partitions;
  const auto add = [&partitions](uint32_t chunks, bool is_shareable, uint32_t most_chunks,
                                 bool includes_remainder = false) {
    PartitionRule rule = chunks_of(chunks);
    rule.is_shareable = is_shareable;
    rule.most_chunks = most_chunks;
    rule.includes_remainder = includes_remainder;
    return partitions.add(0, kDevices[0], rule);
  };
  const auto fault = [&add](uint32_t chunks, bool is_shareable, uint32_t most_chunks) {
    const auto made = add(chunks, is_shareable, most_chunks);
    EXPECT_EQ(made.status().code(), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    return made.status().message();
  };
  EXPECT_EQ(fault(2, true, 1), "max_chunks 1 is less than the 2 chunks of the partition");
  EXPECT_EQ(fault(2, false, 4), "max_chunks is for a shareable partition only");
  EXPECT_EQ(fault(2, true, 16), "max_chunks 16 is more than the 15 chunks of the device");
  EXPECT_EQ((*add(2, true, 4))->place, (wire::StaticPartition{0, 16, {0b11, 0}, 1, 32}));
  EXPECT_EQ((*add(1, true, 0))->place, (wire::StaticPartition{0, 8, {0b100, 0}, 1, 0}))
      << "it lends and does not grow";
  EXPECT_EQ((*add(1, false, 1))->place, (wire::StaticPartition{0, 8, {0b1000, 0}, 0, 0}));
  EXPECT_EQ((*add(1, true, 2, true))->place, (wire::StaticPartition{0, 20, {0x8010, 0}, 1, 28}))
      << "what fills no chunk is beside the chunks";
  EXPECT_EQ(partitions.find("1")->most_chunks, 4u);
  EXPECT_EQ(partitions.find("2")->most_chunks, 1u);
  StaticPartitions next;
  next.restore(partitions.text());
  EXPECT_EQ(next.text(), partitions.text());
  next.place(kDevices);
  EXPECT_EQ(next.find("1")->place, partitions.find("1")->place);
  EXPECT_EQ(next.find("1")->most_chunks, 4u);

  // A file that says something else changes none that is there.
  PartitionRule rule{.name = "p", .device = "1", .chunks = 2, .is_shareable = true};
  ASSERT_TRUE(partitions.add(1, kDevices[1], rule).ok());
  EXPECT_TRUE(partitions.describe({rule}).empty());
  rule.most_chunks = 3;
  EXPECT_EQ(partitions.describe({rule}),
            (std::vector<std::string>{"partition GPU-aabb0000-0000/p keeps its shareable and "
                                      "max_chunks until it is removed"}));
}

TEST(StaticPartitions, TheNextDaemonRestoresThem) {
  StaticPartitions first;
  ASSERT_TRUE(first.add(0, kDevices[0], chunks_of(2)).ok());
  const StaticPartitions::Partition& kept = **first.add(1, kDevices[1], chunks_of(3));
  ASSERT_TRUE(first.add(1, kDevices[1], chunks_of(1)).ok());
  first.remove(first.find("3"));
  StaticPartitions next;
  next.restore(first.text());
  EXPECT_EQ(next.text(), first.text());
  EXPECT_EQ(next.find("2")->place.device, wire::kMaxDevices) << "the device is not known yet";
  // The first device is missing now, and the second has its number.
  next.place({kDevices[1], kDevices[2]});
  EXPECT_EQ(next.find("1")->place.device, wire::kMaxDevices);
  EXPECT_EQ(next.find("2")->place.device, 0u);
  next.place(kDevices);
  EXPECT_EQ(next.find("2")->place.device, 0u) << "a partition is placed once";
  EXPECT_EQ(next.find("2")->place.groups[0], kept.place.groups[0]);
  EXPECT_EQ((*next.add(0, kDevices[1], chunks_of(1)))->id, "4")
      << "the ID of a removed partition is not reused";
  // What a daemon wrote that knew of no lending.
  StaticPartitions old;
  old.restore("7\nGPU-aaaa0000-0000 1 - 2 0 16 3 0\n");
  ASSERT_EQ(old.all().size(), 1u);
  EXPECT_EQ(old.all().front().most_chunks, 2u);
  EXPECT_EQ(old.all().front().place.lends, 0u);
  for (const char* text : {"", "x", "7\nGPU-a 1", "7\nGPU-a 1 2 16 1 0\n", "7\nGPU-a 1 2 16 3"}) {
    StaticPartitions other;
    other.restore(text);
    EXPECT_TRUE(other.all().empty()) << text;
  }
}

}  // namespace
}  // namespace openmps::control
