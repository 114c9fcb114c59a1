// SPDX-License-Identifier: Apache-2.0
// From percentages to whole steps of SMs.
#include "cuda/sm_steps.h"

#include <gtest/gtest.h>

#include <cmath>

namespace openmps::cuda {
namespace {

constexpr SmSteps kHopper{132, 8, 120};  // an H200: groups of eight, twelve SMs are in none
constexpr SmSteps kSmall{16, 2, 16};
constexpr SmSteps kWhole{80, 0, 0};  // makes no parts

TEST(SmSteps, APercentageIsRoundedDown) {
  EXPECT_EQ(sms_of_percentage(kHopper, 100), 132u);
  EXPECT_EQ(sms_of_percentage(kHopper, 99.97), 120u);
  EXPECT_EQ(sms_of_percentage(kHopper, 80), 104u);
  EXPECT_EQ(sms_of_percentage(kHopper, 50), 64u);
  EXPECT_EQ(sms_of_percentage(kHopper, 33), 40u);
  EXPECT_EQ(sms_of_percentage(kHopper, 25), 32u);
  EXPECT_EQ(sms_of_percentage(kHopper, 1), 8u) << "something is left of it";
  EXPECT_EQ(sms_of_percentage(kSmall, 12.5), 2u);
  EXPECT_EQ(sms_of_percentage(kSmall, 50), 8u);
}

TEST(SmSteps, WhatIsNoPercentageLimitsNothing) {
  for (const double said : {101.0, 1e9, HUGE_VAL, std::nan("")}) {
    EXPECT_EQ(sms_of_percentage(kHopper, said), 132u) << said;
  }
  EXPECT_EQ(sms_of_percentage(kHopper, -3), 8u);
}

TEST(SmSteps, ADeviceThatMakesNoPartsIsHadAsAWhole) {
  EXPECT_EQ(sms_of_percentage(kWhole, 25), 80u);
}

}  // namespace
}  // namespace openmps::cuda
