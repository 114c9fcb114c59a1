// SPDX-License-Identifier: Apache-2.0
// A recording on its way: what is written is read, and what is no recording is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cupti/describe.h"
#include "cupti/recording.h"

namespace openmps::cupti {
namespace {

using Item = RecordingReader::Item;
using Packets = std::vector<std::vector<std::byte>>;

Recorded kernel(uint64_t command) {
  return {.session = 3,
          .stream = 7,
          .command = command,
          .given_ns = 5,
          .activity = {.kind = ActivityKind::kKernel, .begin_ns = 10, .end_ns = 20}};
}

std::vector<Item> read_all(RecordingReader& reader, const Packets& packets) {
  std::vector<Item> items;
  for (const std::vector<std::byte>& packet : packets) {
    EXPECT_TRUE(reader.read(packet, &items).ok());
  }
  return items;
}

TEST(RecordingPackets, WhatIsWrittenIsRead) {
  RecordingWriter writer(1);
  writer.add_session(3, 4711, "train.py --fast");
  writer.add_answer(kBegun);
  writer.add(kernel(64), "_Z5scalePf");
  writer.add(kernel(128), "_Z5scalePf");
  writer.add({.session = 3, .activity = {.kind = ActivityKind::kFill, .bytes = 12}}, "");
  writer.add_answer(9);
  writer.set_lost(2);
  RecordingReader reader;
  const std::vector<Item> items = read_all(reader, writer.take());
  ASSERT_EQ(items.size(), 6u);
  EXPECT_EQ(items[0].kind, Item::Kind::kSession);
  EXPECT_EQ(items[0].pid, 4711u);
  EXPECT_EQ(items[0].recorded.session, 3u);
  EXPECT_EQ(*items[0].text, "train.py --fast");
  EXPECT_EQ(items[1].kind, Item::Kind::kAnswer);
  EXPECT_EQ(items[1].answer, kBegun);
  EXPECT_EQ(items[2].recorded.command, 64u);
  EXPECT_EQ(items[2].recorded.activity.end_ns, 20u);
  ASSERT_NE(items[3].text, nullptr);
  EXPECT_EQ(*items[3].text, "_Z5scalePf");
  EXPECT_EQ(items[4].text, nullptr);
  EXPECT_EQ(items[4].recorded.activity.bytes, 12u);
  EXPECT_EQ(items[5].answer, 9u);
  EXPECT_EQ(reader.lost(), 2u);
}

TEST(RecordingPackets, AFailureSaysWhy) {
  RecordingWriter writer(1);
  writer.add_failure("there is no CUPTI");
  RecordingReader reader;
  const std::vector<Item> items = read_all(reader, writer.take());
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].kind, Item::Kind::kFailure);
  EXPECT_EQ(*items[0].text, "there is no CUPTI");
}

// A name is sent once, whatever packet its later uses are in.
TEST(RecordingPackets, ManyActivitiesTakeManyPackets) {
  RecordingWriter writer(1);
  constexpr uint64_t kMany = 2000;
  for (uint64_t i = 0; i < kMany; ++i) writer.add(kernel(i), "step");
  const size_t bytes = writer.bytes();
  const Packets packets = writer.take();
  EXPECT_GT(packets.size(), 5u);
  size_t sum = 0;
  for (const std::vector<std::byte>& packet : packets) {
    EXPECT_LE(packet.size(), kMostPacketBytes);
    sum += packet.size();
  }
  EXPECT_GE(sum, bytes);
  EXPECT_EQ(writer.bytes(), 0u);
  RecordingReader reader;
  const std::vector<Item> items = read_all(reader, packets);
  ASSERT_EQ(items.size(), kMany);
  EXPECT_EQ(items.back().recorded.command, kMany - 1);
  EXPECT_EQ(*items.back().text, "step");
}

TEST(RecordingPackets, LongNamesAreCut) {
  RecordingWriter writer(1);
  writer.add(kernel(1), std::string(kMostPacketBytes * 2, 'n'));
  RecordingReader reader;
  const std::vector<Item> items = read_all(reader, writer.take());
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].text->size(), kMostNameBytes);
}

// Workers number names and sessions by themselves.
TEST(RecordingPackets, WritersAreKeptApart) {
  RecordingWriter one(1);
  RecordingWriter other(2);
  one.add(kernel(1), "one");
  one.set_lost(1);
  other.add(kernel(1), "other");
  other.set_lost(10);
  RecordingReader reader;
  std::vector<Item> items = read_all(reader, one.take());
  const std::vector<Item> more = read_all(reader, other.take());
  EXPECT_EQ(*items[0].text, "one");
  EXPECT_EQ(*more[0].text, "other");
  EXPECT_EQ(more[0].writer, 2u);
  EXPECT_EQ(reader.lost(), 11u);
}

TEST(RecordingPackets, WhatIsNoRecordingIsRefused) {
  RecordingWriter writer(1);
  writer.add_session(3, 1, "program");
  writer.add(kernel(1), "step");
  const std::vector<std::byte> good = writer.take().front();
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    RecordingReader reader;
    std::vector<Item> items;
    const bool is_good = reader.read(std::span(good).first(bytes), &items).ok();
    // Only what ends between two items could be a packet.
    EXPECT_TRUE(!is_good || items.size() <= 1) << bytes;
    EXPECT_TRUE(is_good || items.empty()) << bytes;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0xff};
    RecordingReader reader;
    std::vector<Item> items;
    static_cast<void>(reader.read(bad, &items).ok());  // no crash, whatever it says
  }
  std::vector<std::byte> bad = good;
  bad[0] ^= std::byte{1};
  RecordingReader reader;
  std::vector<Item> items;
  EXPECT_EQ(reader.read(bad, &items).code(), CUDA_ERROR_INVALID_VALUE);
}

TEST(ActivityWords, TitlesAreReadable) {
  const Activity copy{
      .kind = ActivityKind::kCopy, .from = MemoryKind::kPinned, .to = MemoryKind::kDevice};
  EXPECT_EQ(title_of({.kind = ActivityKind::kKernel}, "_Z5scalePfi"), "scale(float*, int)");
  EXPECT_EQ(title_of({.kind = ActivityKind::kKernel}, "nbody_step"), "nbody_step");
  EXPECT_EQ(title_of({.kind = ActivityKind::kKernel}, "bad\"name\\\n"), "bad?name??");
  EXPECT_EQ(title_of(copy, ""), "copy, host to device");
  EXPECT_EQ(title_of({.kind = ActivityKind::kFill}, ""), "fill");
}

}  // namespace
}  // namespace openmps::cupti
