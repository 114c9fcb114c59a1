// SPDX-License-Identifier: Apache-2.0
// The command ring: order, wrap-around, sleeping, closing, and what a hostile producer may do.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "wire/ring.h"

namespace openmps::wire {
namespace {

class RingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<UniqueFd> file = create_shared_file("ring", kChannelBytes);
    ASSERT_TRUE(file.ok());
    Result<Mapping> mapped = map_shared(file->get(), 0, kChannelBytes, MapAccess::kReadWrite);
    ASSERT_TRUE(mapped.ok());
    mapping_ = std::move(mapped).value();
    view_ = ChannelView(mapping_.address());
  }
  // Writes a record at the producer's position by hand.
  void forge(RecordHeader header, uint64_t tail) {
    memcpy(view_.ring_data(), &header, sizeof(header));
    view_.ring_control().tail.store(tail);
  }
  bool refused() {
    RingConsumer consumer(view_);
    Record record;
    const Result<bool> taken = consumer.take(&record);
    return !taken.ok() && taken.status().code() == CUDA_ERROR_MPS_RPC_FAILURE;
  }

  Mapping mapping_;
  ChannelView view_;
};

TEST_F(RingTest, RecordsComeInOrderAcrossTheEnd) {
  RingProducer producer(view_);
  RingConsumer consumer(view_);
  // Sizes that do not divide the ring, so that records meet its end in every way.
  uint32_t sent = 0;
  uint32_t received = 0;
  while (received < 20'000) {
    const uint32_t bytes = 4 + (sent * 37) % 3000;
    unsigned char* payload = producer.reserve(Opcode::kMemcpy, bytes, static_cast<uint16_t>(sent));
    if (payload != nullptr) {
      memset(payload, static_cast<int>(sent & 0xff), bytes);
      memcpy(payload, &sent, sizeof(sent));
      producer.publish();
      ++sent;
      continue;
    }
    EXPECT_FALSE(producer.has_space(bytes));
    for (int i = 0; i < 100; ++i) {
      Record record;
      const Result<bool> taken = consumer.take(&record);
      ASSERT_TRUE(taken.ok()) << taken.status().message();
      if (!taken.value()) break;
      const uint32_t length = 4 + (received * 37) % 3000;
      ASSERT_EQ(record.payload_bytes + sizeof(RecordHeader), record_bytes(length));
      ASSERT_EQ(record.reply_slot, static_cast<uint16_t>(received));
      uint32_t number = 0;
      memcpy(&number, record.payload, sizeof(number));
      ASSERT_EQ(number, received);
      const uint32_t last = length > 4 ? received & 0xff : received >> 24;
      ASSERT_EQ(record.payload[length - 1], last);
      consumer.conclude();
      ++received;
    }
  }
}

TEST_F(RingTest, RecordsThatWereSeenAreTakenWithoutReadingTheTail) {
  RingProducer producer(view_);
  RingConsumer consumer(view_);
  constexpr uint32_t kPayload = 56;
  const uint64_t bytes = record_bytes(kPayload);
  const auto publish = [&] {
    ASSERT_NE(producer.reserve(Opcode::kMemcpy, kPayload, kNoReply), nullptr);
    producer.publish();
  };
  EXPECT_TRUE(consumer.empty());
  publish();
  publish();
  Record record;
  ASSERT_TRUE(consumer.take(&record).value());
  publish();
  EXPECT_EQ(consumer.ahead(bytes), bytes) << "enough is known: the tail is not read again";
  EXPECT_EQ(consumer.ahead(bytes + 1), 2 * bytes);
  const uint64_t tail = view_.ring_control().tail.exchange(0);
  EXPECT_FALSE(consumer.empty());
  ASSERT_TRUE(consumer.take(&record).value());
  ASSERT_TRUE(consumer.take(&record).value());
  view_.ring_control().tail.store(tail);
  EXPECT_TRUE(consumer.empty());
  EXPECT_FALSE(consumer.take(&record).value());
}

TEST_F(RingTest, LargestRecordFits) {
  RingProducer producer(view_);
  RingConsumer consumer(view_);
  for (int i = 0; i < 40; ++i) {
    ASSERT_NE(producer.reserve(Opcode::kLaunch, kMaxRecordBytes - sizeof(RecordHeader), kNoReply),
              nullptr);
    producer.publish();
    Record record;
    ASSERT_TRUE(consumer.take(&record).value());
    consumer.conclude();
    ASSERT_EQ(record.payload_bytes, kMaxRecordBytes - sizeof(RecordHeader));
  }
}

TEST_F(RingTest, ATakenRecordIsACopy) {
  RingProducer producer(view_);
  RingConsumer consumer(view_);
  unsigned char* payload = producer.reserve(Opcode::kPing, 8, kNoReply);
  memset(payload, 1, 8);
  producer.publish();
  Record record;
  ASSERT_TRUE(consumer.take(&record).value());
  memset(payload, 2, 8);
  EXPECT_EQ(record.payload[0], 1);
}

TEST_F(RingTest, ALaterConsumerTakesWhatIsNotConcluded) {
  RingProducer producer(view_);
  constexpr uint32_t kPayload = 1000;
  Record record;
  const auto mark = [&record] { return record.payload[0]; };
  {
    RingConsumer consumer(view_);
    for (unsigned char i = 1; i <= 3; ++i) {
      *producer.reserve(Opcode::kPing, kPayload, kNoReply) = i;
      producer.publish();
    }
    ASSERT_TRUE(consumer.take(&record).value());
    EXPECT_EQ(producer.taken(), record.end);
    consumer.conclude();
    ASSERT_TRUE(consumer.take(&record).value());
    EXPECT_EQ(mark(), 2);
  }
  RingConsumer next(view_);
  ASSERT_TRUE(next.take(&record).value());
  EXPECT_EQ(mark(), 2);
  ASSERT_TRUE(next.take(&record).value());
  EXPECT_EQ(mark(), 3);
  EXPECT_TRUE(producer.drained());
}

TEST_F(RingTest, WhatWasDoneLastIsIntact) {
  RingProducer producer(view_);
  RingConsumer consumer(view_);
  Record record;
  uint32_t sent = 0;
  uint32_t done = 0;
  // Until the ring has been written over a few times, with a producer that is as far ahead as it
  // can be.
  for (uint64_t end = 0; end < 5 * kRingBytes; end = record.end) {
    const uint32_t bytes = 4 + (sent * 37) % 3000;
    for (unsigned char* payload;
         (payload = producer.reserve(Opcode::kPing, bytes, 0)) != nullptr;) {
      memcpy(payload, &sent, sizeof(sent));
      producer.publish();
      ++sent;
    }
    ASSERT_TRUE(consumer.take(&record).value());
    consumer.conclude();
    ++done;
    if (done % 97 != 0) continue;
    RingHistory history(view_);
    EXPECT_LE(history.begin(),
              record.end - std::min(record.end, kRingHistoryBytes) + kRingBytes / 16);
    uint32_t first = 0;
    uint32_t number = 0;
    uint32_t count = 0;
    Record past;
    for (Result<bool> next = history.next(&past); next.ok() && *next; next = history.next(&past)) {
      memcpy(&number, past.payload, sizeof(number));
      if (count++ == 0) first = number;
      ASSERT_EQ(number, first + count - 1);
    }
    EXPECT_EQ(number, done - 1);
    EXPECT_EQ(history.begin() == 0, first == 0);
  }
}

TEST_F(RingTest, ForgedRecordsAreRefused) {
  const auto opcode = static_cast<uint16_t>(Opcode::kPing);
  forge({0, opcode, kNoReply}, 64);
  EXPECT_TRUE(refused()) << "a record without bytes: the consumer would never advance";
  forge({8, opcode, kNoReply}, 64);
  EXPECT_TRUE(refused()) << "less than the alignment";
  forge({24, opcode, kNoReply}, 64);
  EXPECT_TRUE(refused()) << "not aligned";
  forge({128, opcode, kNoReply}, 64);
  EXPECT_TRUE(refused()) << "a record longer than what was published";
  forge({kMaxRecordBytes + 16, opcode, kNoReply}, kRingBytes);
  EXPECT_TRUE(refused()) << "larger than any record";
  forge({64, opcode, kNoReply}, kRingBytes + 16);
  EXPECT_TRUE(refused()) << "more published than the ring holds";
  forge({64, opcode, kNoReply}, ~0ull);
  EXPECT_TRUE(refused()) << "a tail before the head";
  forge({kRingBytes, static_cast<uint16_t>(Opcode::kPadding), kNoReply}, kRingBytes);
  EXPECT_FALSE(refused()) << "padding may be long";
}

TEST_F(RingTest, RecordMayNotCrossTheEnd) {
  RingProducer producer(view_);
  RingConsumer consumer(view_);
  Record record;
  // Bring the head to 16 bytes before the end.
  uint64_t head = 0;
  while (head < kRingBytes - 16) {
    const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(kRingBytes - 16 - head, 32768));
    ASSERT_NE(producer.reserve(Opcode::kPing, bytes - 8, kNoReply), nullptr);
    producer.publish();
    ASSERT_TRUE(consumer.take(&record).value());
    consumer.conclude();
    head += bytes;
  }
  const RecordHeader crossing{32, static_cast<uint16_t>(Opcode::kPing), kNoReply};
  memcpy(view_.ring_data() + kRingBytes - 16, &crossing, sizeof(crossing));
  view_.ring_control().tail.store(head + 32);
  EXPECT_FALSE(consumer.take(&record).ok());
}

// The consumer calls `rest` whenever the ring is empty. Each record is published after the one
// before has been consumed, so the consumer is resting or about to rest.
template <typename Rest, typename Publish>
void take_one_by_one(const ChannelView& view, Rest rest, Publish publish) {
  RingProducer producer(view);
  std::atomic<int> taken{0};
  constexpr int kRecords = 2000;
  std::thread thread([&] {
    RingConsumer consumer(view);
    Record record;
    while (taken < kRecords) {
      if (consumer.take(&record).value()) {
        consumer.conclude();
        ++taken;
      } else {
        rest(consumer);
      }
    }
  });
  for (int i = 0; i < kRecords; ++i) {
    EXPECT_NE(producer.reserve(Opcode::kPing, 8, kNoReply), nullptr);
    publish(producer);
    while (taken <= i) std::this_thread::yield();
  }
  thread.join();
  EXPECT_EQ(taken, kRecords);
}

TEST_F(RingTest, SleeperIsWokenByARecord) {
  const std::atomic<bool> stop{false};
  take_one_by_one(
      view_, [&](RingConsumer& consumer) { consumer.sleep(0, stop); },
      [](RingProducer& producer) { producer.publish(); });
}

TEST_F(RingTest, HurryWakesANappingConsumerAndPublishDoesNot) {
  RingProducer producer(view_);
  std::atomic<uint32_t>& rest = view_.ring_control().consumer_sleeping;
  const auto is = [&rest](ConsumerRest how) { return rest.load() == static_cast<uint32_t>(how); };
  rest.store(static_cast<uint32_t>(ConsumerRest::kNaps));
  producer.hurry();
  EXPECT_TRUE(is(ConsumerRest::kNaps)) << "the ring is empty";
  ASSERT_NE(producer.reserve(Opcode::kPing, 8, kNoReply), nullptr);
  producer.publish();
  EXPECT_TRUE(is(ConsumerRest::kNaps));
  producer.hurry();
  EXPECT_TRUE(is(ConsumerRest::kAwake));
  rest.store(static_cast<uint32_t>(ConsumerRest::kAsleep));
  producer.hurry();
  EXPECT_TRUE(is(ConsumerRest::kAsleep)) << "hurry() ends naps only; a record ends the sleep";
  ASSERT_NE(producer.reserve(Opcode::kPing, 8, kNoReply), nullptr);
  producer.publish();
  EXPECT_TRUE(is(ConsumerRest::kAwake));
}

TEST_F(RingTest, ANapEndsWhenTheProducerWaits) {
  const std::atomic<bool> stop{false};
  take_one_by_one(
      // No time limit: a lost wake-up hangs the test.
      view_, [&](RingConsumer& consumer) { consumer.nap(0, stop); },
      [](RingProducer& producer) {
        producer.publish();
        producer.hurry();
      });
}

// Both the record and the nudge write a word that the consumer reads before it sleeps.
TEST_F(RingTest, ANudgeCanNotBeLost) {
  constexpr int kNudges = 2000;
  const std::atomic<bool> stop{false};
  std::atomic<int> told{0};
  std::atomic<int> seen{0};
  RingConsumer consumer(view_);
  std::thread thread([&] {
    while (seen < kNudges) {
      seen = told.load();
      consumer.sleep(0, stop);  // no time limit: a lost nudge hangs the test
    }
  });
  RingProducer producer(view_);
  for (int i = 1; i <= kNudges; ++i) {
    told = i;
    producer.nudge();
    while (seen < i) std::this_thread::yield();
  }
  producer.nudge();  // the consumer may sleep once more
  thread.join();
  EXPECT_EQ(view_.ring_control().nudges.load(), kNudges + 1u);
}

TEST_F(RingTest, StopCanNotBeLost) {
  for (int round = 0; round < 2000; ++round) {
    RingConsumer consumer(view_);
    std::atomic<bool> stop{false};
    std::thread thread([&] {
      while (!stop.load()) consumer.sleep(0, stop);
    });
    stop.store(true);
    consumer.wake();
    thread.join();  // hangs if the wake-up is lost
  }
}

TEST_F(RingTest, SleepAndNapEndAtTheirTimeLimits) {
  RingConsumer consumer(view_);
  const std::atomic<bool> stop{false};
  const uint64_t start = now_ns();
  consumer.sleep(20'000'000, stop);
  consumer.nap(20'000'000, stop);
  EXPECT_GE(now_ns() - start, 30'000'000u);
}

}  // namespace
}  // namespace openmps::wire
