// SPDX-License-Identifier: Apache-2.0
// What a report says of a channel, also of one that a hostile client has written into.
#include "server/inspect.h"

#include <gtest/gtest.h>
#include <string.h>

#include <string>
#include <utility>
#include <vector>

#include "wire/ring.h"

namespace openmps::server {
namespace {

class InspectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wire::Admit admit;
    admit.pid = 4711;
    session_ = *table_.create(admit);
    Result<Mapping> mapped =
        map_shared(session_->host_file.get(), 0, wire::kChannelBytes, MapAccess::kReadWrite);
    ASSERT_TRUE(mapped.ok());
    channel_ = std::move(*mapped);
    view_ = wire::ChannelView(channel_.address());
  }
  wire::SessionReport look() {
    const std::string bytes = inspect(*session_);
    wire::SessionReport report;
    EXPECT_GE(bytes.size(), sizeof(report));
    memcpy(&report, bytes.data(), sizeof(report));
    rows_.resize(report.waits);
    EXPECT_EQ(bytes.size(), sizeof(report) + report.waits * sizeof(wire::WaitRow));
    if (!rows_.empty()) {
      memcpy(rows_.data(), bytes.data() + sizeof(report), rows_.size() * sizeof(rows_[0]));
    }
    return report;
  }

  SessionTable table_;
  Session* session_ = nullptr;
  Mapping channel_;
  wire::ChannelView view_;
  std::vector<wire::WaitRow> rows_;
};

TEST_F(InspectTest, NobodyWaits) {
  const wire::SessionReport report = look();
  EXPECT_EQ(report.pid, 4711u);
  EXPECT_EQ(report.id, session_->id);
  EXPECT_EQ(report.waits, 0u);
  EXPECT_EQ(report.ring_bytes, 0u);
  EXPECT_EQ(report.opcode, 0u);
}

TEST_F(InspectTest, QueueExecutorAndWaits) {
  wire::RingProducer ring(view_);
  for (const auto opcode : {wire::Opcode::kPing, wire::Opcode::kFence, wire::Opcode::kPing}) {
    ASSERT_NE(ring.reserve(opcode, 24, wire::kNoReply), nullptr);
    ring.publish();
  }
  view_.executor().opcode = static_cast<uint32_t>(wire::Opcode::kModuleLoad);
  view_.executor().executed = 17;
  view_.executor().wait = wire::ExecutorWait::kQuietMoment;
  view_.reply(5).state = wire::ReplySlot::kPending;
  view_.reply(6).state = wire::ReplySlot::kDone;
  view_.callback(7).posted = 1;
  view_.callback(8).posted = 1;
  view_.callback(8).done = 1;
  view_.promise(9).value = 4;
  view_.promise(9).stream = 2;
  view_.fence(9).value = 3;
  view_.promise(10).value = 4;
  view_.fence(10).value = 4;

  const wire::SessionReport report = look();
  EXPECT_EQ(report.ring_bytes, 3 * 32u);
  EXPECT_EQ(report.opcode, static_cast<uint32_t>(wire::Opcode::kModuleLoad));
  EXPECT_EQ(report.executed, 17u);
  EXPECT_EQ(report.wait, wire::ExecutorWait::kQuietMoment);
  EXPECT_GT(report.wait_ns, 0u);
  ASSERT_EQ(rows_.size(), 5u);
  EXPECT_EQ(rows_[0].number, static_cast<uint32_t>(wire::Opcode::kPing));
  EXPECT_EQ(rows_[0].have, 2u);
  EXPECT_EQ(rows_[1].have, 1u);
  EXPECT_EQ(rows_[2].kind, wire::WaitKind::kReply);
  EXPECT_EQ(rows_[2].number, 5u);
  EXPECT_EQ(rows_[3].kind, wire::WaitKind::kHostFunction);
  EXPECT_EQ(rows_[3].number, 7u);
  EXPECT_EQ(rows_[4].kind, wire::WaitKind::kFence);
  EXPECT_EQ(rows_[4].stream, 2u);
  EXPECT_EQ(rows_[4].have, 3u);
  EXPECT_EQ(rows_[4].want, 4u);
}

TEST_F(InspectTest, WhatMakesNoSenseIsNotFollowed) {
  memset(view_.ring_data(), 0xff, wire::kRingBytes);
  for (const uint64_t tail : {16ull, 4096ull, ~0ull}) {
    view_.ring_control().tail = tail;
    EXPECT_EQ(look().waits, 0u) << tail;
  }
  // Records of no length, and one that would begin at the ring's last bytes.
  memset(view_.ring_data(), 0, wire::kRingBytes);
  view_.ring_control().tail = 4096;
  EXPECT_EQ(look().waits, 0u);
  view_.ring_control().head = wire::kRingBytes - 4;
  view_.ring_control().tail = wire::kRingBytes + 64;
  EXPECT_EQ(look().waits, 0u);
}

TEST_F(InspectTest, ManyWaitsAreCounted) {
  for (uint32_t i = 0; i < wire::kFenceSlots; ++i) view_.promise(i).value = 1;
  const wire::SessionReport report = look();
  EXPECT_EQ(report.waits, wire::kMaxWaitRows);
  EXPECT_EQ(report.more_waits, wire::kFenceSlots - wire::kMaxWaitRows);
}

}  // namespace
}  // namespace openmps::server
