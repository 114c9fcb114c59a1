// SPDX-License-Identifier: Apache-2.0
// How repeated lines of a log are counted instead of written.
#include "base/repeat_filter.h"

#include <gtest/gtest.h>

#include <vector>

namespace openmps {
namespace {

class RepeatFilterTest : public ::testing::Test {
 protected:
  void pass(const std::string& text, uint64_t now_ns) {
    filter_.pass(kind_of_line(text), text, now_ns, out_);
  }
  std::vector<std::string> take() { return std::exchange(lines_, {}); }

  RepeatFilter filter_;
  std::vector<std::string> lines_;
  RepeatFilter::Out out_ = [this](const std::string& line) { lines_.push_back(line); };
};

TEST_F(RepeatFilterTest, KindsDifferByMoreThanNumbers) {
  EXPECT_EQ(kind_of_line("NEW CLIENT 12 from user 1000: refused"),
            kind_of_line("NEW CLIENT 4711 from user 0: refused"));
  EXPECT_NE(kind_of_line("NEW CLIENT 12"), kind_of_line("NEW SERVER 12"));
  EXPECT_NE(kind_of_line("1 2"), kind_of_line("12"));
}

TEST_F(RepeatFilterTest, FewOrSlowLinesAreAllWritten) {
  for (uint32_t i = 0; i < kRepeatBurst; ++i) pass("line " + std::to_string(i), 0);
  EXPECT_EQ(take().size(), kRepeatBurst);
  for (uint64_t i = 1; i < 1000; ++i) pass("line " + std::to_string(i), i * kRepeatIntervalNs);
  EXPECT_EQ(take().size(), 999u);
}

TEST_F(RepeatFilterTest, LinesBeyondABurstAreCountedByKind) {
  for (uint32_t i = 0; i < kRepeatBurst + 100; ++i) pass("line " + std::to_string(i), 0);
  take();
  pass("another", 0);
  EXPECT_EQ(take(), std::vector<std::string>{"another"}) << "too early for the count";
  pass("another", kRepeatIntervalNs);
  EXPECT_EQ(take(), (std::vector<std::string>{"line 163 ... 100 times", "another"}));
  pass("another", 2 * kRepeatIntervalNs);
  EXPECT_EQ(take(), std::vector<std::string>{"another"}) << "a count is written once";
  pass("line 164", 3 * kRepeatIntervalNs);
  EXPECT_EQ(take(), std::vector<std::string>{"line 164"}) << "the flood is over";
}

TEST_F(RepeatFilterTest, AFloodWritesALineASecond) {
  constexpr uint64_t kStepNs = kRepeatIntervalNs / 1000;
  for (uint64_t i = 0; i < 100'000; ++i) pass("line", i * kStepNs);
  EXPECT_NEAR(static_cast<double>(take().size()), kRepeatBurst + 100, 2);
}

TEST_F(RepeatFilterTest, NoCountIsLost) {
  for (size_t kind = 0; kind < 3 * kRepeatKinds; ++kind) {
    const std::string name(kind + 1, 'k');
    for (uint32_t i = 0; i < kRepeatBurst + 2; ++i) filter_.pass(name, name, kind, out_);
  }
  filter_.finish(out_);
  size_t counts = 0;
  for (const std::string& line : take()) counts += line.ends_with(" ... 2 times") ? 1 : 0;
  EXPECT_EQ(counts, 3 * kRepeatKinds);
}

}  // namespace
}  // namespace openmps
