// SPDX-License-Identifier: Apache-2.0
// set_* and get_*: the rules that a transcript of NVIDIA's daemon shows.
#include "control/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace openmps::control {
namespace {

TEST(Settings, PercentagesOutsideTheRangeChangeNothing) {
  Settings settings;
  EXPECT_EQ(settings.percentage_text(), "100.0");
  const std::pair<const char*, const char*> cases[] = {
      {"25", "25.0"},  {"12.5", "12.5"}, {"0", "12.5"},   {"101", "12.5"},
      {"-3", "12.5"},  {"abc", "12.5"},  {"", "12.5"},    {"nan", "12.5"},
      {"inf", "12.5"}, {"20x", "12.5"},  {"1e1", "10.0"}, {"99.97", "100.0"}};
  for (const auto& [text, shown] : cases) {
    settings.set_percentage(text);
    EXPECT_EQ(settings.percentage_text(), shown) << text;
  }
  EXPECT_DOUBLE_EQ(settings.percentage(), 99.97) << "rounded only where it is shown";
}

TEST(Settings, PrioritiesAreZeroAndOne) {
  Settings settings;
  EXPECT_TRUE(settings.set_priority("1"));
  EXPECT_FALSE(settings.set_priority("7"));
  EXPECT_FALSE(settings.set_priority(""));
  EXPECT_EQ(settings.priority(), 1u);
}

TEST(Settings, MemoryLimitsAreShownInWholeUnits) {
  Settings settings;
  const std::pair<const char*, const char*> cases[] = {{"1044M", "1G"},
                                                       {"512M", "512M"},
                                                       {"2X", "512M"},
                                                       {"G", "512M"},
                                                       {"-1G", "512M"},
                                                       {"", "512M"},
                                                       {"3GB", "3G"},
                                                       {"0G", ""},
                                                       {"1023M", "1023M"},
                                                       {"99999999999999999999G", "1023M"},
                                                       {"18446744073709551615G", "1023M"}};
  for (const auto& [value, shown] : cases) {
    settings.set_memory_limit("0", value);
    EXPECT_EQ(settings.memory_limit_text("0"), shown) << value;
  }
  settings.set_memory_limit("9", "1G");  // the device need not exist
  EXPECT_EQ(settings.memory_limit_text("9"), "1G");
  EXPECT_EQ(settings.memory_limit_text("GPU-1"), "");
}

TEST(Settings, TheLastSpellingOfADeviceWins) {
  const std::vector<Device> devices = {{"", "GPU-aa11", "a"}, {"", "GPU-bb22", "b"}};
  Settings settings;
  settings.set_memory_limit("1", "1G");
  settings.set_memory_limit("GPU-bb", "2G");
  EXPECT_EQ(settings.memory_limits(devices)[1], 2 * wire::kGiB);
  settings.set_memory_limit("1", "3G");
  EXPECT_EQ(settings.memory_limits(devices)[1], 3 * wire::kGiB);
  EXPECT_EQ(settings.memory_limits(devices)[0], 0u);
  settings.set_memory_limit("GPU-nowhere", "3G");
  settings.set_memory_limit("400", "3G");
  EXPECT_EQ(settings.memory_limits({})[1], 3 * wire::kGiB);
}

TEST(Settings, TheEnvironmentGivesTheStartValues) {
  setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30", 1);
  setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,1=512MB,,=,2,3=x,GPU-1=2G", 1);
  setenv("CUDA_MPS_CLIENT_PRIORITY", "1", 1);
  Settings settings;
  const std::vector<std::string> lines = settings.change({}, limits_of_environment());
  unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  unsetenv("CUDA_MPS_CLIENT_PRIORITY");
  EXPECT_EQ(lines.size(), 5u);
  EXPECT_EQ(settings.percentage_text(), "30.0");
  EXPECT_EQ(settings.priority(), 1u);
  EXPECT_EQ(settings.memory_limit_text("0"), "1G");
  EXPECT_EQ(settings.memory_limit_text("1"), "512M");
  EXPECT_EQ(settings.memory_limit_text("2"), "");
  EXPECT_EQ(settings.memory_limit_text("3"), "");
  EXPECT_EQ(settings.memory_limit_text("GPU-1"), "2G");
}

using Lines = std::vector<std::string>;

TEST(Settings, WhatIsStatedInAnotherWayChanges) {
  Settings settings;
  const Limits first{30, 1, {{"0", 2 * wire::kGiB}, {"1", wire::kMiB}}};
  EXPECT_EQ(settings.change({}, first),
            (Lines{"active_thread_percentage: 100.0 -> 30.0", "client_priority: 0 -> 1",
                   "device_pinned_mem_limit of 0: none -> 2G",
                   "device_pinned_mem_limit of 1: none -> 1M"}));
  EXPECT_EQ(settings.change(first, first), Lines{});
  // A command comes in between: what stays as stated leaves it alone.
  settings.set_percentage("70");
  settings.set_memory_limit("0", "4G");
  const Limits second{30, std::nullopt, {{"0", 3 * wire::kGiB}}};
  EXPECT_EQ(settings.change(first, second),
            (Lines{"client_priority: 1 -> 0", "device_pinned_mem_limit of 0: 4G -> 3G",
                   "device_pinned_mem_limit of 1: 1M -> none"}));
  EXPECT_EQ(settings.percentage_text(), "70.0");
  EXPECT_EQ(settings.change(second, {}), (Lines{"active_thread_percentage: 70.0 -> 100.0",
                                                "device_pinned_mem_limit of 0: 3G -> none"}));
}

TEST(Settings, WhoIsAboveHasTheLastWord) {
  const Limits both = overlay({50, 1, {{"0", 1}, {"1", 2}}}, {std::nullopt, 0, {{"1", 0}}});
  EXPECT_EQ(both.percentage, 50);
  EXPECT_EQ(both.priority, 0u);
  EXPECT_EQ(both.memory, (std::map<std::string, uint64_t>{{"0", 1}, {"1", 0}}));
}

}  // namespace
}  // namespace openmps::control
