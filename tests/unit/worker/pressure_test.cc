// SPDX-License-Identifier: Apache-2.0
// Who is asked for memory that another session needs.
#include "worker/memory/pressure.h"

#include <gtest/gtest.h>

#include <array>

#include "manual_clock.h"

namespace openmps::worker {
namespace {

class PressureTest : public ::testing::Test {
 protected:
  using Busy = MemoryPressure::Busy;
  struct One {
    uint64_t borrows = 0;
    MemoryPressure::Member member{std::make_shared<Bell>(), [this](uint32_t) { return borrows; }};
    [[nodiscard]] bool is_asked() const { return member.asked.load() != 0; }
  };
  PressureTest() {
    for (One& one : all_) pressure_.join(&one.member);
  }
  ~PressureTest() override {
    for (One& one : all_) pressure_.leave(&one.member);
  }
  void rest(One& one, uint64_t ns) { one.member.idle_since_ns = clock_.now_ns() - ns; }
  void decline(One& one) {
    one.member.asked = 0;
    one.member.declined_ns = clock_.now_ns();
  }
  ManualClock clock_;
  MemoryPressure pressure_{clock_};
  std::array<One, 3> all_;
  One& needy_ = all_[0];
  One& one_ = all_[1];
  One& other_ = all_[2];
};

TEST_F(PressureTest, WhoHasRestedForLongestIsAskedFirst) {
  const MemoryPressure::Need need(pressure_, &needy_.member, 0, 100);
  EXPECT_FALSE(pressure_.ask(need, Busy::kLeft)) << "nobody borrows";
  one_.borrows = other_.borrows = 50;
  EXPECT_FALSE(pressure_.ask(need, Busy::kLeft)) << "both are busy";
  rest(one_, 2 * kIdleNs);
  rest(other_, 3 * kIdleNs);
  EXPECT_TRUE(pressure_.ask(need, Busy::kLeft));
  EXPECT_TRUE(other_.is_asked());
  EXPECT_FALSE(one_.is_asked());
  EXPECT_TRUE(other_.member.bell->rung());
  EXPECT_TRUE(pressure_.ask(need, Busy::kLeft)) << "it is being done";
  EXPECT_FALSE(one_.is_asked());
  decline(other_);
  EXPECT_TRUE(pressure_.ask(need, Busy::kLeft));
  EXPECT_TRUE(one_.is_asked());
}

TEST_F(PressureTest, WhoHasJustWorkedIsLeftAlone) {
  const MemoryPressure::Need need(pressure_, &needy_.member, 0, 100);
  one_.borrows = 50;
  rest(one_, 0);
  EXPECT_FALSE(pressure_.ask(need, Busy::kLeft));
  EXPECT_EQ(pressure_.borrowed(&needy_.member, 0, false), 50u);
  EXPECT_EQ(pressure_.borrowed(&needy_.member, 0, true), 0u);
  rest(one_, 2 * kIdleNs);
  EXPECT_EQ(pressure_.borrowed(&needy_.member, 0, true), 50u);
  EXPECT_EQ(pressure_.borrowed(&one_.member, 0, true), 0u);
}

// Work that does not end is under way of a session without commands: an allocation that is to fail
// does not wait for it time and again, one that may wait does.
TEST_F(PressureTest, WhoDeclinesIsAskedAgainForAWhile) {
  const MemoryPressure::Need need(pressure_, &needy_.member, 0, 100);
  one_.borrows = 50;
  rest(one_, 2 * kIdleNs);
  const auto is_asked_again = [&](Busy busy) {
    decline(one_);
    clock_.advance(kDeclinedNs);
    return pressure_.ask(need, busy) && one_.is_asked();
  };
  EXPECT_TRUE(is_asked_again(Busy::kLeft));
  clock_.advance(kShortestAllocationNs);
  EXPECT_FALSE(is_asked_again(Busy::kLeft));
  EXPECT_TRUE(is_asked_again(Busy::kTurns));
  other_.borrows = 50;
  rest(other_, 2 * kIdleNs);
  decline(one_);
  EXPECT_TRUE(pressure_.ask(need, Busy::kLeft));
  EXPECT_TRUE(other_.is_asked()) << "it has not been asked yet";
}

TEST_F(PressureTest, WhoWaitsForMemoryGivesItsOwn) {
  one_.borrows = other_.borrows = 50;
  rest(one_, 2 * kIdleNs);
  other_.member.waits = true;
  const MemoryPressure::Need need(pressure_, &needy_.member, 0, 100);
  EXPECT_TRUE(pressure_.ask(need, Busy::kLeft));
  EXPECT_TRUE(other_.is_asked());
}

TEST_F(PressureTest, WhoComesBackWaitsForThoseThatBeganEarlier) {
  needy_.member.waits = one_.member.waits = true;
  MemoryPressure::Need first(pressure_, &needy_.member, 0, 100);
  {
    const MemoryPressure::Need second(pressure_, &one_.member, 0, 30);
    const MemoryPressure::Need elsewhere(pressure_, &one_.member, 1, 30);
    EXPECT_TRUE(first.is_first());
    EXPECT_FALSE(second.is_first());
    EXPECT_TRUE(elsewhere.is_first());
    EXPECT_EQ(pressure_.needed(0), 130u);
    EXPECT_EQ(pressure_.needed(1), 30u);
    first.found(80);
    EXPECT_EQ(pressure_.needed(0), 50u);
    needy_.member.waits = false;
    EXPECT_TRUE(second.is_first()) << "an allocation is nobody's turn";
  }
  EXPECT_EQ(pressure_.needed(0), 20u);
  first.found(80);
  EXPECT_EQ(pressure_.needed(0), 0u);
}

// Another worker is asked, too, but not each time; and asks here.
TEST_F(PressureTest, OtherWorkers) {
  uint64_t told = 0;
  pressure_.tell = [&](uint32_t, uint64_t bytes) { told += bytes; };
  const MemoryPressure::Need need(pressure_, &needy_.member, 0, 100);
  EXPECT_FALSE(pressure_.ask(need, Busy::kLeft));
  EXPECT_FALSE(pressure_.ask(need, Busy::kLeft));
  EXPECT_EQ(told, 100u);
  one_.borrows = 50;
  rest(one_, 2 * kIdleNs);
  pressure_.ask_for_others(0, 70);
  EXPECT_TRUE(one_.is_asked());
  EXPECT_EQ(pressure_.needed(0), 170u);
}

TEST_F(PressureTest, AChangeEndsAWait) {
  const uint64_t seen = pressure_.changes();
  pressure_.note_change();
  pressure_.wait(seen);  // returns at once
  { const MemoryPressure::Need need(pressure_, &needy_.member, 0, 100); }
  EXPECT_GT(pressure_.changes(), seen + 1) << "the need has ended";
}

}  // namespace
}  // namespace openmps::worker
