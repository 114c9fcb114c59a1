// SPDX-License-Identifier: Apache-2.0
// The number of SMs for a percentage, in whole SM groups.
#include "cuda/sm_steps.h"

#include <gtest/gtest.h>

#include <cmath>

namespace openmps::cuda {
namespace {

constexpr SmSteps kHopper{132, 8, 120};  // an H200: groups of eight; twelve SMs belong to no group
constexpr SmSteps kSmall{16, 2, 16};
constexpr SmSteps kWhole{80, 0, 0};  // a device without SM partitions

TEST(SmSteps, APercentageIsRoundedDown) {
  EXPECT_EQ(sms_of_percentage(kHopper, 100), 132u);
  EXPECT_EQ(sms_of_percentage(kHopper, 99.97), 120u);
  EXPECT_EQ(sms_of_percentage(kHopper, 80), 104u);
  EXPECT_EQ(sms_of_percentage(kHopper, 50), 64u);
  EXPECT_EQ(sms_of_percentage(kHopper, 33), 40u);
  EXPECT_EQ(sms_of_percentage(kHopper, 25), 32u);
  EXPECT_EQ(sms_of_percentage(kHopper, 1), 8u) << "at least one SM group";
  EXPECT_EQ(sms_of_percentage(kSmall, 12.5), 2u);
  EXPECT_EQ(sms_of_percentage(kSmall, 50), 8u);
}

TEST(SmSteps, ValuesAboveAHundredAndNanDoNotLimit) {
  for (const double said : {101.0, 1e9, HUGE_VAL, std::nan("")}) {
    EXPECT_EQ(sms_of_percentage(kHopper, said), 132u) << said;
  }
  EXPECT_EQ(sms_of_percentage(kHopper, -3), 8u);
}

TEST(SmSteps, ADeviceWithoutPartitionsIsNotLimited) {
  EXPECT_EQ(sms_of_percentage(kWhole, 25), 80u);
}

}  // namespace
}  // namespace openmps::cuda
