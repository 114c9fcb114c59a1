// SPDX-License-Identifier: Apache-2.0
// The pause before a lost worker is replaced, with the test's own times.
#include "server/restart_backoff.h"

#include <gtest/gtest.h>

#include <vector>

namespace openmps::server {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// The pause after a worker that was ready for this long.
uint64_t pause_after(RestartBackoff& backoff, uint64_t ready_for_ns) {
  const uint64_t start = 7 * kSecond;
  backoff.worker_ready(start);
  return backoff.worker_ended(start + ready_for_ns);
}

TEST(RestartBackoff, TheFirstLossIsReplacedAtOnceThenPausesDoubleUpToALimit) {
  RestartBackoff backoff;
  std::vector<uint64_t> pauses;
  for (int i = 0; i < 9; ++i) pauses.push_back(pause_after(backoff, kSecond));
  EXPECT_EQ(pauses, (std::vector<uint64_t>{0, 100, 200, 400, 800, 1600, 3200, 5000, 5000}));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(pause_after(backoff, kSecond), kLongestPauseMs);
}

TEST(RestartBackoff, AWorkerThatIsNeverReadyCountsToo) {
  RestartBackoff backoff;
  EXPECT_EQ(backoff.worker_ended(kSecond), 0u);
  // The age of an earlier worker does not count.
  EXPECT_EQ(backoff.worker_ended(1000 * kSecond), kFirstPauseMs);
  EXPECT_EQ(pause_after(backoff, kSecond), 2 * kFirstPauseMs);
  EXPECT_EQ(backoff.worker_ended(5000 * kSecond), 4 * kFirstPauseMs);
}

TEST(RestartBackoff, AnOpenedSessionStartsTheCountAnew) {
  RestartBackoff backoff;
  EXPECT_EQ(pause_after(backoff, kSecond), 0u);
  EXPECT_EQ(pause_after(backoff, kSecond), kFirstPauseMs);
  backoff.worker_ready(kSecond);
  backoff.worker_served();
  EXPECT_EQ(backoff.worker_ended(2 * kSecond), 0u);
  EXPECT_EQ(pause_after(backoff, kSecond), kFirstPauseMs);
}

TEST(RestartBackoff, AWorkerThatWasReadyForLongStartsTheCountAnew) {
  RestartBackoff backoff;
  EXPECT_EQ(pause_after(backoff, kSecond), 0u);
  EXPECT_EQ(pause_after(backoff, kSteadyNs - 1), kFirstPauseMs);
  EXPECT_EQ(pause_after(backoff, kSteadyNs), 0u);
  EXPECT_EQ(pause_after(backoff, 0), kFirstPauseMs);
}

}  // namespace
}  // namespace openmps::server
