// SPDX-License-Identifier: Apache-2.0
// `openmps cdi generate`: which of the daemon's namespaces become devices.
#include "cli/cdi.h"

#include <gtest/gtest.h>

namespace openmps::cli {
namespace {

std::vector<observe::Share> shares() {
  return {{"main", "quarter", "/run/openmps/main/quarter"},
          {"main", "half", "/run/openmps/main/half"},
          {"night", "quarter", "/run/openmps/night/quarter"}};
}

TEST(ChooseShares, ByName) {
  EXPECT_EQ(choose_shares(shares(), {}).value().size(), 3u);
  const std::vector<observe::Share> chosen =
      choose_shares(shares(), {"night/quarter", "main/half", "night/quarter"}).value();
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0].server + chosen[0].name, "nightquarter");
  EXPECT_EQ(chosen[1].server + chosen[1].name, "mainhalf");
  const Result<std::vector<observe::Share>> unknown = choose_shares(shares(), {"main/third"});
  EXPECT_EQ(unknown.status().code(), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(unknown.status().message(),
            "there is no namespace main/third; there are: main/quarter, main/half, night/quarter");
  EXPECT_EQ(choose_shares({}, {"a/b"}).status().message(),
            "there is no namespace a/b, nor any other");
}

TEST(CdiDevices, OneForEachShareAndPerhapsOneForAll) {
  CdiOptions options;
  EXPECT_FALSE(devices_of({}, options, "/run/openmps").ok());
  std::vector<observe::CdiDevice> devices = devices_of(shares(), options, "/run/openmps").value();
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[2].name, "night:quarter");
  EXPECT_EQ(devices[2].directory, "/run/openmps/night/quarter");
  options.all = true;
  EXPECT_EQ(devices_of(shares(), options, "/run/openmps").value().size(), 4u);
  devices = devices_of({}, options, "/run/openmps").value();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "all");
  EXPECT_EQ(devices[0].directory, "/run/openmps");
}

}  // namespace
}  // namespace openmps::cli
