// SPDX-License-Identifier: Apache-2.0
// On which devices programs that see several work, with the test's own times.
#include "server/busy_devices.h"

#include <gtest/gtest.h>

namespace openmps::server {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kNow = 1000 * kSecond;

TEST(BusyDevices, ADeviceIsBusyOnceWorkOnItHasGoneOn) {
  BusyDevices busy;
  busy.look({{7, {0, 5}}}, kNow);
  busy.look({{7, {0, 9}}}, kNow + 2 * kSecond);
  EXPECT_EQ(busy.devices(kNow + 2 * kSecond), 0u);
  busy.look({{7, {0, 12}}}, kNow + 4 * kSecond);
  EXPECT_EQ(busy.devices(kNow + 4 * kSecond), 0b10u);
  busy.look({{7, {0, 12}}}, kNow + 6 * kSecond);
  EXPECT_EQ(busy.devices(kNow + 4 * kSecond + BusyDevices::kHoldNs - 1), 0b10u) << "it may go on";
  EXPECT_EQ(busy.devices(kNow + 4 * kSecond + BusyDevices::kHoldNs), 0u);
}

TEST(BusyDevices, WorkThatIsOverAtOnceDoesNotCount) {
  BusyDevices busy;
  uint64_t now = kNow;
  for (uint32_t session = 1; session < 10; ++session, now += 4 * kSecond) {
    busy.look({{session, {0}}}, now);
    busy.look({{session, {1000}}}, now + 2 * kSecond);
    EXPECT_EQ(busy.devices(now), 0u) << session;
  }
}

TEST(BusyDevices, TheFiguresOfASessionBeginAnewInAnotherWorker) {
  BusyDevices busy;
  busy.look({{7, {50}}}, kNow);
  busy.look({{7, {60}}}, kNow);
  busy.look({{7, {3}}}, kNow);
  busy.look({{7, {4}}}, kNow);
  EXPECT_EQ(busy.devices(kNow), 0u);
  busy.look({{7, {5}}}, kNow);
  EXPECT_EQ(busy.devices(kNow), 1u);
}

}  // namespace
}  // namespace openmps::server
