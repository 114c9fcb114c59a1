// SPDX-License-Identifier: Apache-2.0
// The ring of text that kernels print: order, wrap-around, a full ring, and wrong counters written
// by the other side.
#include "wire/output_ring.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/shared_memory.h"

namespace openmps::wire {
namespace {

constexpr uint64_t kHeaderBytes = 8;  // in front of every piece

class OutputRingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<UniqueFd> file = create_shared_file("output", kChannelBytes);
    ASSERT_TRUE(file.ok());
    Result<Mapping> mapped = map_shared(file->get(), 0, kChannelBytes, MapAccess::kReadWrite);
    ASSERT_TRUE(mapped.ok());
    mapping_ = std::move(mapped).value();
    view_ = ChannelView(mapping_.address());
  }
  // The next piece: "1text" for standard output, "2text" for errors, "" for none.
  static std::string next(OutputConsumer& consumer) {
    OutputKind kind{};
    std::string text;
    if (!consumer.take(&kind, &text)) return "";
    return std::to_string(static_cast<uint32_t>(kind)) + text;
  }
  // A piece's header at the start of the ring, and how far the producer claims to be.
  void forge(uint32_t kind, uint32_t bytes, uint64_t tail) {
    const uint32_t header[2] = {kind, bytes};
    memcpy(view_.output_text(), header, sizeof(header));
    view_.output_control().tail.store(tail);
  }

  Mapping mapping_;
  ChannelView view_;
};

TEST_F(OutputRingTest, PiecesComeInOrderWithTheirKinds) {
  OutputProducer producer(view_);
  OutputConsumer consumer(view_);
  EXPECT_TRUE(consumer.empty());
  producer.put(OutputKind::kOutput, "one\n");
  producer.put(OutputKind::kError, std::string_view("t\0wo", 4));
  producer.put(OutputKind::kOutput, "");
  producer.put(OutputKind::kOutput, "three");
  EXPECT_FALSE(consumer.empty());
  EXPECT_EQ(next(consumer), "1one\n");
  EXPECT_EQ(next(consumer), std::string("2t\0wo", 5));
  EXPECT_EQ(next(consumer), "1three") << "an empty text is not sent";
  EXPECT_EQ(next(consumer), "");
  EXPECT_TRUE(consumer.empty());
}

TEST_F(OutputRingTest, AProducerWithoutAChannelDropsText) {
  OutputProducer producer;
  producer.put(OutputKind::kOutput, "lost");  // must not crash
  EXPECT_TRUE(OutputConsumer(view_).empty());
}

// Many rounds, with sizes that put headers and texts across the end.
TEST_F(OutputRingTest, TextsSurviveTheWrap) {
  OutputProducer producer(view_);
  OutputConsumer consumer(view_);
  for (uint32_t i = 0; i < 200; ++i) {
    std::string text(100'003 + 7 * i, static_cast<char>('a' + i % 26));
    text.front() = '<';
    text.back() = '>';
    producer.put(OutputKind::kError, text);
    ASSERT_EQ(next(consumer), "2" + text) << i;
  }
  EXPECT_GT(view_.output_control().tail.load(), 4 * kOutputTextBytes);
}

TEST_F(OutputRingTest, WhatDoesNotFitIsCutAndThenDropped) {
  OutputProducer producer(view_);
  OutputConsumer consumer(view_);
  const std::string half(kOutputTextBytes / 2, 'h');
  producer.put(OutputKind::kOutput, half);
  producer.put(OutputKind::kOutput, half);  // cut, because the headers take space, too
  producer.put(OutputKind::kOutput, "no room");
  EXPECT_EQ(view_.output_control().tail.load(), kOutputTextBytes);
  EXPECT_EQ(next(consumer), "1" + half);
  EXPECT_EQ(next(consumer), "1" + half.substr(2 * kHeaderBytes));
  EXPECT_EQ(next(consumer), "");
  producer.put(OutputKind::kOutput, "room again");
  EXPECT_EQ(next(consumer), "1room again");
}

// Free space for a header alone is not used.
TEST_F(OutputRingTest, APieceHasAtLeastOneByte) {
  OutputProducer producer(view_);
  producer.put(OutputKind::kOutput, std::string(kOutputTextBytes - 2 * kHeaderBytes, 'x'));
  producer.put(OutputKind::kOutput, "y");
  EXPECT_EQ(view_.output_control().tail.load(), kOutputTextBytes - kHeaderBytes);
}

TEST_F(OutputRingTest, TheProducerChecksTheConsumersHead) {
  OutputProducer producer(view_);
  for (const uint64_t head : {uint64_t{1}, uint64_t{1} << 63, kOutputTextBytes}) {
    view_.output_control().head.store(head);
    producer.put(OutputKind::kOutput, "text");
    EXPECT_EQ(view_.output_control().tail.load(), 0u) << head;
  }
  view_.output_control().head.store(0);
  producer.put(OutputKind::kOutput, "text");
  EXPECT_EQ(view_.output_control().tail.load(), kHeaderBytes + 4);
}

TEST_F(OutputRingTest, TheConsumerDiscardsInvalidPieces) {
  struct Nonsense {
    uint32_t kind;
    uint32_t bytes;
    uint64_t tail;
  };
  const Nonsense cases[] = {
      {1, 4, 4},                     // not even a header
      {1, 0, 12},                    // an empty piece
      {1, 5, 12},                    // longer than the text that was published
      {1, ~0u, kOutputTextBytes},    // longer than the ring
      {0, 4, 12},                    // an undefined kind
      {3, 4, 12},                    //
      {1, 4, kOutputTextBytes + 1},  // more than the ring holds
      {1, 4, ~uint64_t{0}},          //
  };
  for (const Nonsense& nonsense : cases) {
    view_.output_control().head.store(0);
    forge(nonsense.kind, nonsense.bytes, nonsense.tail);
    OutputConsumer consumer(view_);
    EXPECT_FALSE(consumer.empty());
    EXPECT_EQ(next(consumer), "") << nonsense.kind << " " << nonsense.bytes << " " << nonsense.tail;
    EXPECT_TRUE(consumer.empty()) << "else the consumer would read the invalid piece for ever";
    EXPECT_EQ(view_.output_control().head.load(), nonsense.tail);
  }
  forge(2, 4, 12);
  view_.output_control().head.store(0);
  OutputConsumer consumer(view_);
  EXPECT_EQ(next(consumer).size(), 5u) << "a piece with valid numbers is accepted";
}

}  // namespace
}  // namespace openmps::wire
