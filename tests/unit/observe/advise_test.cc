// SPDX-License-Identifier: Apache-2.0
// `openmps advise`: the figures and the advice that follow from a program's counters.
#include "observe/advise.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "some_view.h"

namespace openmps::observe {
namespace {

// Two snapshots of a program, ten seconds apart.
class AdviseTest : public ::testing::Test {
 protected:
  AdviseTest() {
    now_.use->age_ns += 10 * kSecond;
    now_.use->launches = 10'000;
    now_.use->blocks = 250'000;
    now_.use->threads = 64'000'000;
  }
  // The program keeps `sms` SMs busy for `ns`, by kernels of `length_ns`, with pauses of
  // `pause_ns`.
  void works(uint64_t ns, uint64_t sms, uint64_t length_ns, uint64_t pause_ns) {
    run(&now_, ns, sms);
    now_.use->part_ns[wire::part_bin(static_cast<double>(sms), 100)] += ns;
    now_.use->lengths[wire::time_bin(length_ns)] += 10'000;
    now_.use->gap_ns[wire::time_bin(pause_ns)] += 10 * kSecond - ns;
  }
  Figures figures() { return figures_of(&before_, now_, {some_device()}); }
  // All sentences, joined.
  static std::string why(const Advice& advice) {
    std::string text;
    for (const std::string& sentence : advice.why) text += sentence + " ";
    return text;
  }

  Client before_ = some_client(20, "python3 train.py");
  Client now_ = before_;
};

#define EXPECT_SAYS(advice, words) \
  EXPECT_NE(why(advice).find(words), std::string::npos) << why(advice)

TEST_F(AdviseTest, FiguresCoverTheTimeBetweenTheSnapshots) {
  before_.use->lengths[20] = now_.use->lengths[20] = 1'000'000;
  works(4 * kSecond, 25, 100'000, 500'000);
  const Figures f = figures();
  EXPECT_DOUBLE_EQ(f.seconds, 10);
  EXPECT_EQ(f.kernels, 10'000u);
  EXPECT_DOUBLE_EQ(f.blocks, 25);
  EXPECT_DOUBLE_EQ(f.threads, 256);
  EXPECT_DOUBLE_EQ(f.kernel_share, 0.4);
  EXPECT_DOUBLE_EQ(f.sm_time_share, 0.1);
  EXPECT_DOUBLE_EQ(f.fill, 0.25);
  EXPECT_DOUBLE_EQ(f.most_fill, 0.25) << "the upper bound of the bin: two eighths";
  EXPECT_EQ(f.half_shorter_ns, 131'072u);
  EXPECT_EQ(f.gap_shorter_ns, 524'288u);
  EXPECT_DOUBLE_EQ(f.slowdown, 1);
  EXPECT_EQ(f.device.name, "NVIDIA H200");
  EXPECT_EQ(figures_of(nullptr, now_, {some_device()}).seconds, 20)
      << "without an earlier snapshot, since the program's start";
}

TEST_F(AdviseTest, SmallGridsWithPausesAreLimitedByTheirLoad) {
  works(4 * kSecond, 25, 100'000, 500'000);
  const Advice advice = openmps::observe::advise(figures());
  EXPECT_EQ(advice.verdict, Verdict::kHelps);
  EXPECT_EQ(advice.recommended, 25);
  EXPECT_EQ(advice.by_load, 25);
  EXPECT_SAYS(advice, "It has 10% of the device's SM-time: there is room for 10 such programs.");
  EXPECT_SAYS(advice,
              "For 60% of the time it has nothing to run; half of that is in pauses "
              "shorter than 524.3 us, too short for programs with contexts of their own");
  EXPECT_SAYS(advice,
              "they keep 25% of the SMs busy (25 blocks of 256 threads on average, on 100 "
              "SMs); for 90% of that time no more than 25%.");
  EXPECT_SAYS(advice, "nine tenths than 131.1 us.");
  EXPECT_SAYS(advice, "Limited to 25%, by its load");
}

TEST_F(AdviseTest, LargeGridsWithPausesAreLimitedByTwiceAnEqualPart) {
  works(3 * kSecond, 100, 20'000'000, 50'000'000);
  Figures f = figures();
  f.clients = 4;
  const Advice advice = openmps::observe::advise(f);
  EXPECT_EQ(advice.verdict, Verdict::kHelps);
  EXPECT_EQ(advice.by_load, 100);
  EXPECT_EQ(advice.equal_parts, 25);
  EXPECT_EQ(advice.double_parts, 50);
  EXPECT_EQ(advice.recommended, 50);
  EXPECT_SAYS(advice, "in pauses shorter than 67.1 ms. ");
  EXPECT_SAYS(advice, "none is interrupted, so neighbours that need quick answers");
  EXPECT_SAYS(advice, "100/(0.5 n) = 50% (of 4 programs)");
}

TEST_F(AdviseTest, SharingAFullDeviceDoesNotHelp) {
  works(98 * kSecond / 10, 98, 1'000'000, 1'000);
  const Advice advice = openmps::observe::advise(figures());
  EXPECT_EQ(advice.verdict, Verdict::kDoesNotHelp);
  EXPECT_EQ(advice.recommended, 50);
  EXPECT_SAYS(advice, "It has 96% of the device's SM-time: a neighbour gets only what");
  EXPECT_SAYS(advice, "100/n = 50% (of two programs; it is alone now)");
  EXPECT_EQ(why(advice).find("nothing to run"), std::string::npos) << why(advice);
}

TEST_F(AdviseTest, SharingABusyDeviceHelpsALittle) {
  works(8 * kSecond, 90, 1'000'000, 1'000'000);
  const Advice advice = openmps::observe::advise(figures());
  EXPECT_EQ(advice.verdict, Verdict::kHelpsLittle);
  EXPECT_SAYS(advice, "It has 72% of the device's SM-time: a second such program");
}

TEST_F(AdviseTest, TheSlowdownByNeighboursIsStated) {
  works(4 * kSecond, 25, 100'000, 500'000);
  Client neighbour = some_client(30, "nbody");
  Client far = some_client(31, "elsewhere");
  far.use->devices[0].ordinal = 1;
  run(&far, 5 * kSecond, 100);
  const Snapshot before = some_snapshot(kSecond, {before_, neighbour, far});
  run(&neighbour, 5 * kSecond, 80);
  const Snapshot now = some_snapshot(11 * kSecond, {now_, neighbour, far});
  Figures f = figures();
  add_others(before, now, &f);
  EXPECT_EQ(f.clients, 2u);
  EXPECT_DOUBLE_EQ(f.others_share, 0.4);
  EXPECT_SAYS(openmps::observe::advise(f),
              "Its work took no longer than alone, beside 1 other program on the device that used "
              "40% of its SM-time.");
  now_.use->devices[0].compared_ns += 4 * kSecond;
  f = figures();
  add_others(before, now, &f);
  EXPECT_DOUBLE_EQ(f.slowdown, 2);
  EXPECT_SAYS(openmps::observe::advise(f), "Its work took 2.0 times what it takes alone, beside 1");
}

// The program's work is held for the sake of others and slowed down by them, so alone the program
// would use more of the device.
TEST_F(AdviseTest, TimeLostToNeighboursIsNotCountedAsPauses) {
  works(4 * kSecond, 100, 100'000, 500'000);
  EXPECT_DOUBLE_EQ(figures().idle_share, 0.6);
  EXPECT_DOUBLE_EQ(figures().wanted, 0.4);
  now_.use->held.push_back({"share", 5 * kSecond, 0});
  EXPECT_NEAR(figures().idle_share, 0.1, 1e-9);
  EXPECT_NEAR(figures().wanted, 0.8, 1e-9);
  now_.use->devices[0].compared_ns += 4 * kSecond;
  EXPECT_NEAR(figures().wanted, 2.0 / 3, 1e-9);
  Figures f = figures();
  f.clients = 2;
  EXPECT_SAYS(openmps::observe::advise(f),
              "It has 40% of the device's SM-time, and would have 67% without neighbours");
  now_.use->held[0].ns = 20 * kSecond;
  EXPECT_EQ(figures().idle_share, 0) << "the program had held work all the time";
  EXPECT_EQ(figures().wanted, 1);
  now_.use->devices[0].alone_ns = 0;
  f = figures();
  f.clients = 2;
  EXPECT_SAYS(openmps::observe::advise(f), "what they cost is not known: beside 1 other program");
}

TEST_F(AdviseTest, AProgramAtItsLimitIsToldSo) {
  now_.active_thread_percentage = 25;
  works(9 * kSecond, 25, 100'000, 1'000);
  EXPECT_SAYS(openmps::observe::advise(figures()), "It is limited to 25% now, so what it would do");
  now_.active_thread_percentage = 50;
  EXPECT_EQ(why(openmps::observe::advise(figures())).find("is limited to"), std::string::npos)
      << "the program stays below its limit";
}

TEST_F(AdviseTest, TooFewKernelsGiveNoAdvice) {
  now_.use->launches = 3;
  works(kSecond, 25, 100'000, 1'000);
  Advice advice = openmps::observe::advise(figures());
  EXPECT_EQ(advice.verdict, Verdict::kUnknown);
  EXPECT_SAYS(advice, "It launched 3 kernels in 10.0 s, which is too little to go by.");
  EXPECT_EQ(
      nlohmann::json::parse(format_advice_json(figures(), advice))["active_thread_percentage"],
      nullptr);
  now_.use->launches = 1000;
  now_.use->gpu_ns.reset();
  advice = openmps::observe::advise(figures());
  EXPECT_EQ(advice.verdict, Verdict::kUnknown);
  EXPECT_SAYS(advice, "Times are not measured");
  now_.use.reset();
  EXPECT_EQ(openmps::observe::advise(figures()).verdict, Verdict::kUnknown);
}

TEST_F(AdviseTest, IsTextAndJson) {
  works(4 * kSecond, 25, 100'000, 500'000);
  const Advice advice = openmps::observe::advise(figures());
  const std::string text = format_advice(figures(), advice);
  EXPECT_EQ(text.substr(0, text.find("\n  ")),
            "20 python3, 10.0k kernels in 10.0 s on GPU 0, NVIDIA H200\n"
            "Sharing the GPU: helps\n"
            "Active thread percentage: 25% (by load 25%, 100/n 50%, 100/(0.5 n) 100%)");
  const auto json = nlohmann::json::parse(format_advice_json(figures(), advice));
  EXPECT_EQ(json["sharing"], "helps");
  EXPECT_EQ(json["active_thread_percentage"]["recommended"], 25);
  EXPECT_EQ(json["figures"]["kernels"], 10'000);
  EXPECT_EQ(json["why"].size(), advice.why.size());
}

}  // namespace
}  // namespace openmps::observe
