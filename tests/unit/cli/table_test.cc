// SPDX-License-Identifier: Apache-2.0
// Rates as lines of text and as JSON.
#include "cli/table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/stat.h"
#include "two_snapshots.h"

namespace openmps::cli {
namespace {

using TableTest = observe::TwoSnapshots;

TEST_F(TableTest, UnknownFiguresAreNotShown) {
  busy_.use->gpu_ns.reset();
  idle_.use.reset();
  const observe::View seen = view();
  EXPECT_FALSE(seen.clients[0].timed);
  const Table table(kAnyWidth);
  EXPECT_NE(table.row(seen.clients[0]).find("     -      -    1.0MiB        0B     1.5k"),
            std::string::npos)
      << table.row(seen.clients[0]);
  EXPECT_NE(table.row(seen.clients[1]).find("     -      -         -         -        -"),
            std::string::npos);
  const auto json = nlohmann::json::parse(format_stat_json(seen, 1.5));
  EXPECT_TRUE(json["clients"][0]["rates"]["sm_share"].is_null());
  EXPECT_EQ(json["clients"][0]["rates"]["launches_per_s"], 1500);
  EXPECT_TRUE(json["clients"][1]["rates"].is_null());
}

TEST_F(TableTest, ATableFitsItsWidth) {
  const observe::Rates rates = view().clients[0];
  for (size_t width = 1; width < 200; ++width) {
    const Table table(width);
    EXPECT_LE(table.heading().size(), width);
    EXPECT_LE(table.row(rates).size(), width);
    for (const std::string& line : device_lines(view(), width)) EXPECT_LE(line.size(), width);
  }
  EXPECT_EQ(Table(44).heading(), "     PID   SM%  KERN%       MEM COMMAND");
  EXPECT_EQ(
      Table(kAnyWidth).heading(),
      "     PID  PART QUALITY     GROUP            STATE       SM%  KERN%       MEM   ON HOST "
      "LAUNCH/S     TO/S   FROM/S HELD BACK               COMMAND");
  EXPECT_EQ(device_lines(view(), kAnyWidth)[0],
            "GPU 0  SM time  20% (20.0 of 100 SMs)  kernels  50%  memory 1.0GiB of 16.0GiB  2 "
            "programs  NVIDIA H200");
}

TEST_F(TableTest, MemoryOnTheHostHasAColumn) {
  idle_.residence = "host";
  idle_.use->devices[0].host_bytes = 768 << 20;
  const observe::View seen = view();
  EXPECT_NE(Table(kAnyWidth).row(seen.clients[1]).find(" on host "), std::string::npos);
  const auto json = nlohmann::json::parse(format_stat_json(seen, 1.5));
  EXPECT_EQ(json["clients"][1]["residence"], "host");
  EXPECT_EQ(json["clients"][1]["rates"]["memory_bytes"], 256u << 20);
  EXPECT_EQ(json["clients"][1]["rates"]["host_bytes"], 768u << 20);
}

}  // namespace
}  // namespace openmps::cli
