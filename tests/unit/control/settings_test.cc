// SPDX-License-Identifier: Apache-2.0
// The settings behind set_* and get_*, by the rules that a transcript of NVIDIA's daemon shows.
#include "control/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace openmps::control {
namespace {

using wire::Limit;

// The text that a get command prints.
std::string answer(const Settings& settings, Limit limit, const char* device = "") {
  return wire::info_of(limit).answer(settings.value(limit, device));
}

TEST(Settings, PercentagesOutsideTheRangeChangeNothing) {
  Settings settings;
  EXPECT_EQ(answer(settings, Limit::kPercentage), "100.0");
  const std::pair<const char*, const char*> cases[] = {
      {"25", "25.0"},  {"12.5", "12.5"}, {"0", "12.5"},   {"101", "12.5"},
      {"-3", "12.5"},  {"abc", "12.5"},  {"", "12.5"},    {"nan", "12.5"},
      {"inf", "12.5"}, {"20x", "12.5"},  {"1e1", "10.0"}, {"99.97", "100.0"}};
  for (const auto& [text, shown] : cases) {
    settings.set(Limit::kPercentage, "", text);
    EXPECT_EQ(answer(settings, Limit::kPercentage), shown) << text;
  }
  EXPECT_DOUBLE_EQ(settings.value(Limit::kPercentage), 99.97) << "only the shown text is rounded";
}

TEST(Settings, PrioritiesAreZeroAndOne) {
  Settings settings;
  EXPECT_TRUE(settings.set(Limit::kPriority, "", "1"));
  EXPECT_FALSE(settings.set(Limit::kPriority, "", "7"));
  EXPECT_FALSE(settings.set(Limit::kPriority, "", ""));
  EXPECT_EQ(settings.value(Limit::kPriority), 1);
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
    settings.set(Limit::kMemory, "0", value);
    EXPECT_EQ(answer(settings, Limit::kMemory, "0"), shown) << value;
  }
  settings.set(Limit::kMemory, "9", "1G");  // the device need not exist
  EXPECT_EQ(answer(settings, Limit::kMemory, "9"), "1G");
  EXPECT_EQ(answer(settings, Limit::kMemory, "GPU-1"), "");
}

TEST(Settings, TheLastLimitOfADeviceCountsByNumberOrUuid) {
  const std::vector<Device> devices = {{"", "GPU-aa11", "a"}, {"", "GPU-bb22", "b"}};
  Settings settings;
  settings.set(Limit::kMemory, "1", "1G");
  settings.set(Limit::kMemory, "GPU-bb", "2G");
  EXPECT_EQ(settings.resolved(devices).memory_limit[1], 2 * wire::kGiB);
  settings.set(Limit::kMemory, "1", "3G");
  EXPECT_EQ(settings.resolved(devices).memory_limit[1], 3 * wire::kGiB);
  EXPECT_EQ(settings.resolved(devices).memory_limit[0], 0u);
  settings.set(Limit::kMemory, "GPU-nowhere", "3G");
  settings.set(Limit::kMemory, "400", "3G");
  EXPECT_EQ(settings.resolved({}).memory_limit[1], 3 * wire::kGiB);
}

TEST(Settings, InitialValuesComeFromTheEnvironment) {
  setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30", 1);
  setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,1=512MB,,=,2,3=x,GPU-1=2G", 1);
  setenv("CUDA_MPS_CLIENT_PRIORITY", "1", 1);
  Settings settings;
  const std::vector<std::string> lines = settings.change({}, limits_of_environment());
  unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  unsetenv("CUDA_MPS_CLIENT_PRIORITY");
  EXPECT_EQ(lines.size(), 5u);
  EXPECT_EQ(answer(settings, Limit::kPercentage), "30.0");
  EXPECT_EQ(settings.value(Limit::kPriority), 1);
  EXPECT_EQ(answer(settings, Limit::kMemory, "0"), "1G");
  EXPECT_EQ(answer(settings, Limit::kMemory, "1"), "512M");
  EXPECT_EQ(answer(settings, Limit::kMemory, "2"), "");
  EXPECT_EQ(answer(settings, Limit::kMemory, "3"), "");
  EXPECT_EQ(answer(settings, Limit::kMemory, "GPU-1"), "2G");
}

using Lines = std::vector<std::string>;

TEST(Settings, AReloadChangesTheLimitsThatDifferFromTheOldConfiguration) {
  Settings settings;
  const Limits first{{{Limit::kPercentage}, 30},
                     {{Limit::kPriority}, 1},
                     {{Limit::kMemory, "0"}, 2 * wire::kGiB},
                     {{Limit::kMemory, "1"}, wire::kMiB}};
  EXPECT_EQ(settings.change({}, first),
            (Lines{"active_thread_percentage: 100.0 -> 30.0", "client_priority: 0 -> 1",
                   "device_pinned_mem_limit of 0: none -> 2G",
                   "device_pinned_mem_limit of 1: none -> 1M"}));
  EXPECT_EQ(settings.change(first, first), Lines{});
  // A limit that a command has set is kept while the configuration says the same about it.
  settings.set(Limit::kPercentage, "", "70");
  settings.set(Limit::kMemory, "0", "4G");
  const Limits second{{{Limit::kPercentage}, 30}, {{Limit::kMemory, "0"}, 3 * wire::kGiB}};
  EXPECT_EQ(settings.change(first, second),
            (Lines{"client_priority: 1 -> 0", "device_pinned_mem_limit of 0: 4G -> 3G",
                   "device_pinned_mem_limit of 1: 1M -> none"}));
  EXPECT_EQ(answer(settings, Limit::kPercentage), "70.0");
  EXPECT_EQ(settings.change(second, {}), (Lines{"active_thread_percentage: 70.0 -> 100.0",
                                                "device_pinned_mem_limit of 0: 3G -> none"}));
}

TEST(Settings, AnOverlayReplacesTheLimitsBelowIt) {
  const Limits below{{{Limit::kPercentage}, 50},
                     {{Limit::kPriority}, 1},
                     {{Limit::kMemory, "0"}, 1},
                     {{Limit::kMemory, "1"}, 2}};
  EXPECT_EQ(overlay(below, {{{Limit::kPriority}, 0}, {{Limit::kMemory, "1"}, 0}}),
            (Limits{{{Limit::kPercentage}, 50},
                    {{Limit::kPriority}, 0},
                    {{Limit::kMemory, "0"}, 1},
                    {{Limit::kMemory, "1"}, 0}}));
}

}  // namespace
}  // namespace openmps::control
