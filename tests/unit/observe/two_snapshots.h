// SPDX-License-Identifier: Apache-2.0
// Two clients at two moments, for tests of rates and of tables of them.
#pragma once

#include <gtest/gtest.h>

#include "observe/rates.h"
#include "some_view.h"

namespace openmps::observe {

// Two snapshots, two seconds apart: one client keeps 40 of 100 SMs busy half of the time, and
// another is idle.
class TwoSnapshots : public ::testing::Test {
 protected:
  TwoSnapshots() {
    busy_.use->launches = 500;
    busy_.use->held[0].ns = 3 * kSecond;
    before_ = some_snapshot(5 * kSecond, {busy_, idle_});
    for (Client* client : {&busy_, &idle_}) client->use->age_ns += 2 * kSecond;
    run(&busy_, kSecond, 40);
    busy_.use->launches += 3000;
    busy_.use->copies += 10;
    busy_.use->to_device += 8'000'000;
    busy_.use->from_device += 5;
    busy_.use->devices[0].memory_bytes = 1 << 20;
    idle_.use->devices[0].memory_bytes = 1 << 30;
  }
  View view() { return compare(before_, some_snapshot(7 * kSecond, {busy_, idle_})); }

  Client busy_ = some_client(20, "python3 train.py");
  Client idle_ = some_client(10, "./server --quiet");
  Snapshot before_;
};

}  // namespace openmps::observe
