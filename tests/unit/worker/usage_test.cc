// SPDX-License-Identifier: Apache-2.0
// What sessions use and wait for is counted, once each.
#include <algorithm>
#include <atomic>
#include <numeric>

#include "session_fixture.h"
#include "wire/usage_table.h"
#include "worker/code/sm_footprint.h"

namespace openmps::worker {
namespace {

using wire::DeviceUse;
using wire::HeldFor;
using wire::StreamKind;
using wire::UsageCount;

class UsageTest : public SessionFixture {
 protected:
  static constexpr uint64_t kWord = kStaging + 4096;  // behind the code that was staged
  static constexpr uint64_t kHostData = kStaging + 8192;

  void prepare() override {
    worker_parts_.performance.budgets = true;
    Result<UsageRows> rows = UsageRows::make(*devices_, true);
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    worker_parts_.usage = std::move(rows).value();
    Result<wire::UsageTable> table = wire::UsageTable::open(worker_parts_.usage.file().get());
    ASSERT_TRUE(table.ok()) << table.status().message();
    table_ = std::move(table).value();
  }
  void SetUp() override {
    SessionFixture::SetUp();
    load_module();
    create_stream(1, StreamKind::kNonBlocking);
    create_stream(2, StreamKind::kNonBlocking);
    EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
    map(kBase, kUnit);
  }
  wire::Usage usage() { return table_.read(kWindow, 1); }
  uint64_t count(UsageCount what) { return usage().count(what); }
  uint64_t standing(HeldFor why) { return usage().held_now[static_cast<size_t>(why)]; }
  uint64_t times(HeldFor why) { return usage().held_times[static_cast<size_t>(why)]; }
  void copy(uint64_t to, uint64_t from, uint64_t bytes) {
    const Status status = send(
        wire::Memcpy{.stream = 1, .flags = 0, .destination = to, .source = from, .bytes = bytes});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void stand(wire::Id stream) {
    EXPECT_TRUE(send(wire::StreamWaitValue{{kWord, 1, 4, 0}, stream}).ok());
    session_->submitter.advance();
  }
  void come() {
    std::atomic_ref(*reinterpret_cast<uint32_t*>(kWord)).store(1);
    session_->submitter.advance();
  }
  // The executor looks what has ended, at its time.
  void look() {
    const uint64_t next = session_->streams.next_look_ns();
    clock_.advance(next > now() + kStepNs ? next - now() : kStepNs);
    session_->streams.look_at_streams(now());
  }
  [[nodiscard]] uint64_t now() const { return clock_.now_ns(); }
  // What the stream has been given has ended, and somebody looks.
  void settle() {
    look();
    EXPECT_TRUE(session_->is_idle());
  }

  static constexpr uint64_t kStepNs = 50'000;
  wire::UsageTable table_;
};

TEST_F(UsageTest, CopiesCountByDirection) {
  copy(kBase, kHostData, 100);
  copy(kBase, kStaging, 11);
  copy(kHostData, kBase + 8, 7);
  copy(kBase + 4096, kBase, 50);
  copy(kHostData + 64, kHostData, 3);
  EXPECT_EQ(count(UsageCount::kHostToDevice), 111u);
  EXPECT_EQ(count(UsageCount::kDeviceToHost), 7u);
  EXPECT_EQ(count(UsageCount::kDeviceToDevice), 50u);
  EXPECT_EQ(count(UsageCount::kHostToHost), 3u);
  EXPECT_EQ(count(UsageCount::kCopies), 5u);
}

TEST_F(UsageTest, LaunchesCountWhenTheDriverHasThem) {
  launch(1);
  EXPECT_EQ(count(UsageCount::kLaunches), 1u);
  wire::Launch refused = launch_of(1);
  refused.parameter_bytes = 0;
  EXPECT_FALSE(send(refused).ok());
  EXPECT_EQ(count(UsageCount::kLaunches), 1u) << "of none";
  stand(1);
  launch(1);
  EXPECT_EQ(count(UsageCount::kLaunches), 1u) << "it is held back";
  come();
  EXPECT_EQ(count(UsageCount::kLaunches), 2u);
  EXPECT_EQ(count(UsageCount::kBatched), 0u);
}

TEST_F(UsageTest, LaunchesOfBatchesCount) {
  launch(1);
  EXPECT_TRUE(send(wire::Fence{1, 0, 1}).ok());
  settle();
  const uint32_t number = session_->modules.functions().find(1)->duration(1);
  for (int i = 0; i < 2; ++i) {
    session_->streams.durations.learn({&number, 1}, {Durations::kUnknownNs, 1'000, 1'000});
  }
  session_->submitter.note_ahead(1 << 16);
  for (int i = 0; i < 10; ++i) launch(1);
  session_->submitter.end_batch();
  EXPECT_EQ(count(UsageCount::kLaunches), 11u);
  EXPECT_EQ(count(UsageCount::kBatched), 8u) << "a chain, and two alone";
}

TEST_F(UsageTest, WhatHoldsWorkBackIsTold) {
  stand(1);
  EXPECT_EQ(standing(HeldFor::kValue), 1u);
  session_->submitter.advance();
  EXPECT_EQ(times(HeldFor::kValue), 1u) << "it is the same wait";
  const uint64_t before = usage().held_ns[static_cast<size_t>(HeldFor::kValue)];
  EXPECT_GT(before, 0u) << "so far";
  EXPECT_TRUE(send(wire::EventRecord{1, 1, wire::kNoFence, 0, 0}).ok());
  EXPECT_TRUE(send(wire::StreamWaitEvent{2, 1}).ok());
  session_->submitter.advance();
  EXPECT_EQ(standing(HeldFor::kEvent), 1u);
  come();
  EXPECT_EQ(standing(HeldFor::kValue), 0u);
  EXPECT_EQ(standing(HeldFor::kEvent), 0u);
  EXPECT_EQ(times(HeldFor::kEvent), 1u);
  EXPECT_GT(usage().held_ns[static_cast<size_t>(HeldFor::kValue)], before);
  driver_.hold(1, true);
  for (uint32_t i = 0; i < 3 * kBudgetUnknown; ++i) launch(1);
  session_->submitter.advance();
  EXPECT_EQ(standing(HeldFor::kStreamBudget), 1u) << "one stream, however much of it";
  driver_.hold(1, false);
  session_->drain();
  EXPECT_EQ(standing(HeldFor::kStreamBudget), 0u) << "what is dropped is not held";
}

TEST_F(UsageTest, WaitsOfTheExecutorCountOnce) {
  const uint64_t moments = times(HeldFor::kQuietMoment);
  {
    const ShownWait outer(nullptr, &session_->core.usage, now_ns(),
                          wire::ExecutorWait::kQuietMoment, HeldFor::kMemory);
    const ShownWait inner(nullptr, &session_->core.usage, now_ns(),
                          wire::ExecutorWait::kQuietMoment);
    EXPECT_EQ(standing(HeldFor::kMemory), 1u);
    EXPECT_EQ(standing(HeldFor::kQuietMoment), 0u);
  }
  EXPECT_EQ(standing(HeldFor::kMemory), 0u);
  EXPECT_EQ(times(HeldFor::kMemory), 1u);
  EXPECT_EQ(times(HeldFor::kQuietMoment), moments);
}

// How long it took is known from when it was seen to run, and to have ended.
TEST_F(UsageTest, TimeIsBetweenWhatWasSeen) {
  const uint64_t begin = now();
  launch(1);
  driver_.hold(1, true);
  launch(1);  // a mark comes between the two
  const uint64_t submitted = now();
  look();
  look();
  const uint64_t before = now();
  look();
  driver_.hold(1, false);
  settle();
  const uint64_t end = now();
  const wire::Usage seen = usage();
  EXPECT_GT(seen.use(DeviceUse::kNs), 0u);
  EXPECT_LE(seen.use(DeviceUse::kLeastNs), seen.use(DeviceUse::kNs));
  EXPECT_LE(seen.use(DeviceUse::kNs), seen.use(DeviceUse::kMostNs));
  EXPECT_LE(seen.use(DeviceUse::kMostNs), end - begin) << "the stream had no more time than that";
  EXPECT_GE(seen.use(DeviceUse::kMostNs), before - submitted);
  EXPECT_GT(seen.use(DeviceUse::kSmNs), 0u);
  EXPECT_LE(seen.use(DeviceUse::kSmNs), seen.use(DeviceUse::kMostNs)) << "the device has one SM";
}

// What was submitted while other work ran has no time of its own before that had ended.
TEST_F(UsageTest, NoTimeCountsTwice) {
  const uint64_t begin = now();
  launch(1);
  EXPECT_TRUE(send(wire::Fence{1, 0, 1}).ok());
  driver_.hold(1, true);
  launch(1);
  // Only to make what would count twice larger than what the calls take.
  clock_.advance(5'000'000);
  look();
  driver_.hold(1, false);
  settle();
  EXPECT_LE(usage().use(DeviceUse::kMostNs), now() - begin);
}

// Its kernels' length, what lies between two of them, and how much of the device they keep busy.
TEST_F(UsageTest, LengthsGapsAndPartsAreCounted) {
  wire::Launch shape = launch_of(1);
  shape.grid[0] = 3;
  shape.block[0] = 64;
  const std::string parameters(16, '\0');
  EXPECT_TRUE(send(shape, parameters).ok());
  EXPECT_EQ(count(UsageCount::kBlocks), 3u);
  EXPECT_EQ(count(UsageCount::kThreads), 3u * 64);
  const auto sum = [](const auto& cells) {
    return std::accumulate(cells.begin(), cells.end(), uint64_t{0});
  };
  EXPECT_EQ(sum(usage().lengths), 0u) << "it is not known how long it takes";
  EXPECT_TRUE(send(wire::Fence{1, 0, 1}).ok());
  settle();
  EXPECT_EQ(sum(usage().gap_ns), 0u) << "there was one";
  const uint64_t ended = now() + Durations::kUnknownNs;  // which it is taken to have run for
  const uint32_t number = session_->modules.functions().find(1)->duration(3);
  for (int i = 0; i < 2; ++i) {
    session_->streams.durations.learn({&number, 1}, {Durations::kUnknownNs, 3'000, 3'000});
  }
  // Nothing else says how long the device has had nothing to do.
  clock_.advance(2'000'000);
  const uint64_t before = now();
  EXPECT_TRUE(send(shape, parameters).ok());
  EXPECT_EQ(usage().lengths[wire::time_bin(session_->streams.durations.of({.learnt = number}))],
            1u);
  EXPECT_GE(sum(usage().gap_ns), before - ended);
  EXPECT_GE(usage().gap_ns[wire::time_bin(sum(usage().gap_ns))], before - ended) << "one gap";
  const uint64_t gap = sum(usage().gap_ns);
  EXPECT_TRUE(send(shape, parameters).ok());
  EXPECT_EQ(sum(usage().gap_ns), gap) << "one behind the other";
  EXPECT_TRUE(send(wire::Fence{1, 0, 2}).ok());
  settle();
  const uint64_t sms = 3;  // one for each block
  ASSERT_GE(devices_->at(0).sms, sms);
  EXPECT_EQ(usage().part_ns[wire::part_bin(sms, devices_->at(0).sms)], usage().use(DeviceUse::kNs));
  EXPECT_EQ(usage().use(DeviceUse::kSmNs), sms * usage().use(DeviceUse::kNs));
  EXPECT_GT(usage().use(DeviceUse::kAloneNs), 0u) << "nobody else was there";
  EXPECT_GT(usage().use(DeviceUse::kComparedNs), 0u);
  EXPECT_LT(usage().use(DeviceUse::kComparedNs), usage().use(DeviceUse::kNs))
      << "the first was the first of its kind";
  EXPECT_EQ(usage().memory[0], kUnit);
}

// A stream that goes with work whose end nobody has looked at takes nothing away.
TEST_F(UsageTest, StreamsThatGoLeaveTheirTime) {
  launch(2);
  EXPECT_TRUE(send(wire::Fence{2, 1, 1}).ok());
  EXPECT_EQ(usage().use(DeviceUse::kNs), 0u);
  clock_.advance(kStepNs);
  EXPECT_TRUE(send(wire::StreamDestroy{2}).ok());
  EXPECT_GT(usage().use(DeviceUse::kNs), 0u);
}

TEST_F(UsageTest, ARowPassesFromSessionToSession) {
  launch(1);
  SessionInfo info;
  info.id = 2;
  info.window = kWindow;
  {
    const SessionParts next(driver_.table(), *devices_, gate_, worker_parts_, info);
    EXPECT_EQ(usage().is_known, 0u) << "it is not the first one's any more";
    const wire::Usage fresh = table_.read(kWindow, 2);
    EXPECT_EQ(fresh.is_known, 1u);
    EXPECT_EQ(fresh.count(UsageCount::kLaunches), 0u);
    EXPECT_EQ(fresh.use(DeviceUse::kNs), 0u);
  }
  EXPECT_EQ(table_.read(kWindow, 2).is_known, 1u) << "the server reads it after the session's end";
}

TEST(SmFootprintTest, ASmallGridTakesAnSmForEachBlock) {
  EXPECT_EQ(SmFootprint::average(1, 132, 16), 1u);
  EXPECT_EQ(SmFootprint::average(132, 132, 16), 132u);
  EXPECT_EQ(SmFootprint::average(133, 132, 16), 132u) << "more are resident at once";
  EXPECT_EQ(SmFootprint::average(264, 132, 1), 132u);
  EXPECT_EQ(SmFootprint::average(133, 132, 1), 67u) << "the second wave has one block";
  EXPECT_EQ(SmFootprint::average(3ull << 40, 132, 4), 132u);
}

TEST(SmFootprintTest, WhatLosesWithoutAFewSms) {
  const auto loses = [](uint32_t blocks, int on_each) {
    SmFootprint share;
    wire::Launch shape{};
    shape.grid[0] = blocks;
    shape.grid[1] = shape.grid[2] = shape.block[0] = shape.block[1] = shape.block[2] = 1;
    return share.needs_all_sms(shape, 0, 132, 128, [on_each](int, uint32_t) { return on_each; });
  };
  EXPECT_FALSE(loses(128, 1));
  EXPECT_TRUE(loses(129, 1)) << "two waves";
  EXPECT_TRUE(loses(132, 8)) << "two blocks on some SMs";
  EXPECT_FALSE(loses(133, 1)) << "two anyway";
  EXPECT_FALSE(loses(256, 8));
  EXPECT_TRUE(loses(264, 8));
  EXPECT_FALSE(loses(132 * 16, 8)) << "17 instead of 16";
  EXPECT_TRUE(loses(132 * 15, 8)) << "16 instead of 15";
  EXPECT_TRUE(loses(132 * 32, 32)) << "some would have to wait for others";
  EXPECT_FALSE(loses(132 * 33, 32));
  EXPECT_FALSE(loses(1u << 30, 4));
}

// The driver refuses it, later.
TEST(SmFootprintTest, BlocksMayHaveNoThreads) {
  SmFootprint share;
  const auto occupancy = [](int, uint32_t) { return 0; };
  const wire::Launch shape{1, 1, {200, 1, 1}, {0, 1, 1}, 0, 0, 0, 0};
  EXPECT_EQ(share.of(shape, 0, 100, occupancy), 100u);
  EXPECT_EQ(share.sms_needed(shape, 0, occupancy), 200u);
}

TEST(SmFootprintTest, TheDriverIsAskedOnceForAShape) {
  SmFootprint share;
  int asked = 0;
  const auto occupancy = [&asked](int threads, uint32_t) { return ++asked, 1024 / threads; };
  wire::Launch shape{1, 1, {200, 1, 1}, {1024, 1, 1}, 0, 0, 0, 0};
  EXPECT_EQ(share.of(shape, 0, 100, occupancy), 100u);
  shape.grid[0] = 101;
  EXPECT_EQ(share.of(shape, 0, 100, occupancy), 51u);
  EXPECT_EQ(asked, 1) << "blocks of the same shape";
  shape.block[0] = 256;
  EXPECT_EQ(share.of(shape, 0, 100, occupancy), 100u);
  shape.shared_bytes = 512;
  EXPECT_EQ(share.of(shape, 1, 100, occupancy), 100u);
  EXPECT_EQ(asked, 3);
  shape.grid[0] = 100;
  shape.block[0] = 32;
  EXPECT_EQ(share.of(shape, 0, 100, occupancy), 100u);
  EXPECT_EQ(asked, 3) << "a small grid needs no answer";
}

}  // namespace
}  // namespace openmps::worker
