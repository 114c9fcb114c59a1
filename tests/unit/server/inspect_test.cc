// SPDX-License-Identifier: Apache-2.0
// The report of `openmps inspect` from a session's channel, also when a hostile client has written
// into the channel.
#include "server/inspect.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/domain.h"
#include "wire/ring.h"

namespace openmps::server {
namespace {

Domain common{std::string(wire::kCommonDomain)};

class InspectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wire::Admit admit;
    admit.pid = 4711;
    session_ = *table_.create(admit, common);
    Result<Mapping> mapped =
        map_shared(session_->host_file.get(), 0, wire::kChannelBytes, MapAccess::kReadWrite);
    ASSERT_TRUE(mapped.ok());
    channel_ = std::move(*mapped);
    view_ = wire::ChannelView(channel_.address());
  }
  wire::SessionReport look() {
    const std::string bytes = inspect(*session_, table_);
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

TEST_F(InspectTest, AnIdleSession) {
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

TEST_F(InspectTest, SessionsThatTheExecutorWaitsFor) {
  wire::Admit admit;
  admit.pid = 4712;
  Session* other = *table_.create(admit, common);
  wire::ShownHindrance* shown = view_.executor().hindrances;
  shown[0].session = other->id;
  shown[0].stream = 7;
  shown[0].why = wire::Hindrance::kAwaitsValue;
  shown[1].session = 999;  // has ended since
  shown[1].why = wire::Hindrance::kRuns;
  shown[3].why = wire::Hindrance::kRuns;  // left over from an earlier, longer list
  EXPECT_EQ(look().waits, 0u) << "the executor does not wait for other sessions";
  view_.executor().wait = wire::ExecutorWait::kHeldBack;
  EXPECT_EQ(look().waits, 2u);
  ASSERT_EQ(rows_.size(), 2u);
  EXPECT_EQ(rows_[0].kind, wire::WaitKind::kHindrance);
  EXPECT_EQ(rows_[0].number, other->id);
  EXPECT_EQ(rows_[0].stream, 7u);
  EXPECT_EQ(rows_[0].how, static_cast<uint32_t>(wire::Hindrance::kAwaitsValue));
  EXPECT_EQ(rows_[0].want, 4712u);
  EXPECT_EQ(rows_[1].number, 999u);
  EXPECT_EQ(rows_[1].want, 0u);
  // The client has written into the executor's fields.
  for (uint32_t i = 0; i < wire::kShownHindrances; ++i) shown[i].why = wire::Hindrance{77};
  EXPECT_EQ(look().waits, wire::kShownHindrances);
}

TEST_F(InspectTest, OpenValueWaitsAreGroupedByStreamOldestFirst) {
  const auto wait = [this](uint32_t row, uint32_t stream, uint64_t value, uint64_t since_ns) {
    wire::ValueWait& shown = view_.value_wait(row);
    shown.address = 0x1000;
    shown.value = value;
    shown.since_ns = since_ns;
    shown.stream = stream;
    shown.how = 4 + 1 * wire::kValueCondition;
  };
  const uint64_t now = now_ns();
  wait(0, 3, 10, now - 1000);
  wait(1, 2, 11, now - 2000);
  wait(2, 2, 12, now - 3000);
  wait(3, 2, 13, now - 3000);  // of the same batch
  wait(127, 5, 14, ~0ull);     // a time in the future, as a client may write it
  view_.executor().value_waits = 6;
  view_.executor().value_waits_seen_ns = now - 500;
  const wire::SessionReport report = look();
  EXPECT_EQ(report.value_waits, 6u);
  EXPECT_GE(report.value_waits_age_ns, 500u);
  ASSERT_EQ(rows_.size(), 5u);
  std::vector<std::pair<uint64_t, uint32_t>> said;
  for (const wire::WaitRow& row : rows_) {
    EXPECT_EQ(row.kind, wire::WaitKind::kValue);
    EXPECT_EQ(row.how, 20u);
    EXPECT_EQ(row.address, 0x1000u);
    said.emplace_back(row.want, row.number);
  }
  using Said = std::vector<std::pair<uint64_t, uint32_t>>;
  EXPECT_EQ(said, (Said{{12, 1}, {13, 1}, {11, 0}, {10, 1}, {14, 1}}));
  EXPECT_GE(rows_[0].age_ns, 3000u);
  EXPECT_EQ(rows_[4].age_ns, 0u);
}

TEST_F(InspectTest, DeferredReleasesAreListedOldestFirst) {
  const uint64_t now = now_ns();
  const auto give_up = [&](uint32_t row, wire::ReturnKind kind, wire::ReturnWait wait,
                           uint64_t age_ns) {
    wire::PendingReturn& shown = view_.pending_return(row);
    shown.address = 0x2000 + row;
    shown.bytes = 64 + row;
    shown.since_ns = now - age_ns;
    shown.wait = wait;
    shown.kind = kind;
  };
  give_up(0, wire::ReturnKind::kArray, wire::ReturnWait::kQuietMoment, 1000);
  give_up(5, wire::ReturnKind::kDeviceMemory, wire::ReturnWait::kStreams, 2000);
  view_.executor().returns = 3;
  view_.executor().return_stream = 4;
  EXPECT_EQ(look().returns, 3u);
  ASSERT_EQ(rows_.size(), 2u);
  EXPECT_EQ(rows_[0].kind, wire::WaitKind::kReturn);
  EXPECT_EQ(rows_[0].number, static_cast<uint32_t>(wire::ReturnKind::kDeviceMemory));
  EXPECT_EQ(rows_[0].how, static_cast<uint32_t>(wire::ReturnWait::kStreams));
  EXPECT_EQ(rows_[0].stream, 4u);
  EXPECT_EQ(rows_[0].have, 69u);
  EXPECT_EQ(rows_[0].address, 0x2005u);
  EXPECT_GE(rows_[0].age_ns, 2000u);
  EXPECT_EQ(rows_[1].number, static_cast<uint32_t>(wire::ReturnKind::kArray));
  EXPECT_EQ(rows_[1].stream, 0u) << "quiescence belongs to a context, not to a stream";
}

TEST_F(InspectTest, AnInvalidRingIsNotRead) {
  memset(view_.ring_data(), 0xff, wire::kRingBytes);
  for (const uint64_t tail : {16ull, 4096ull, ~0ull}) {
    view_.ring_control().tail = tail;
    EXPECT_EQ(look().waits, 0u) << tail;
  }
  // Records without a length, and one that would begin at the ring's last bytes.
  memset(view_.ring_data(), 0, wire::kRingBytes);
  view_.ring_control().tail = 4096;
  EXPECT_EQ(look().waits, 0u);
  view_.ring_control().taken = wire::kRingBytes - 4;
  view_.ring_control().tail = wire::kRingBytes + 64;
  EXPECT_EQ(look().waits, 0u);
}

TEST_F(InspectTest, WaitsBeyondTheLimitOfRowsAreCounted) {
  for (uint32_t i = 0; i < wire::kFenceSlots; ++i) view_.promise(i).value = 1;
  const wire::SessionReport report = look();
  EXPECT_EQ(report.waits, wire::kMaxWaitRows);
  EXPECT_EQ(report.more_waits, wire::kFenceSlots - wire::kMaxWaitRows);
}

}  // namespace
}  // namespace openmps::server
