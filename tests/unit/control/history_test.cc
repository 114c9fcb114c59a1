// SPDX-License-Identifier: Apache-2.0
// Figures of clients that have ended, and events.
#include "control/history.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"

namespace openmps::control {
namespace {

const std::vector<Device> kDevices = {{"", "GPU-a", "A", 8, 1}, {"", "GPU-b", "B", 8, 1}};
const std::vector<Device> kOtherWay = {{"", "GPU-b", "B", 8, 1}};

wire::TotalsRow row_of(uint32_t number, const char* group, uint64_t sessions, uint64_t launches,
                       uint64_t gpu_ns) {
  wire::TotalsRow row;
  row.number = number;
  row.sessions = sessions;
  fill_field(row.group, group);
  row.usage.is_known = 1;
  row.usage.counts[static_cast<size_t>(wire::UsageCount::kLaunches)] = launches;
  row.usage.devices[0][static_cast<size_t>(wire::DeviceUse::kNs)] = gpu_ns;
  return row;
}

TEST(History, KeepsWhatServersThatHaveEndedHaveSaid) {
  History history;
  history.note_totals("main", row_of(1, "a", 1, 5, 10), kDevices);
  history.note_totals("main", row_of(1, "a", 2, 8, 20), kDevices);
  EXPECT_TRUE(history.totals("main", History::With::kEndedServersOnly).empty());
  history.on_server_gone("main");
  // The next server of the name counts from 0, and another set of devices.
  history.note_totals("main", row_of(1, "a", 1, 1, 1), kOtherWay);
  history.on_server_gone("main");
  const auto lines = history.totals("main", History::With::kLastWord);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].group, "a");
  EXPECT_EQ(lines[0].sessions, 3u);
  EXPECT_EQ(lines[0].usage.count(wire::UsageCount::kLaunches), 9u);
  ASSERT_EQ(lines[0].devices.size(), 2u);
  EXPECT_EQ(lines[0].devices[0].uuid, "GPU-a");
  EXPECT_EQ(lines[0].devices[0].uses[0], 20u);
  EXPECT_EQ(lines[0].devices[1].uuid, "GPU-b");
  EXPECT_EQ(lines[0].devices[1].uses[0], 1u);
  EXPECT_EQ(lines[0].use(wire::DeviceUse::kNs), 21u);
  EXPECT_EQ(history.servers(), std::vector<std::string>{"main"});
}

TEST(History, AForgottenGroupIsInTheOneWithoutAName) {
  History history;
  history.note_totals("main", row_of(1, "a", 1, 5, 10), kDevices);
  history.note_totals("main", row_of(1, "a", 0, 0, 0), kDevices);
  history.note_totals("main", row_of(2, "", 1, 5, 10), kDevices);
  const auto lines = history.totals("main", History::With::kLastWord);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].group, "");
}

TEST(History, IsBounded) {
  History history;
  for (uint32_t i = 1; i <= 2 * kMostToldGroups; ++i) {
    history.note_totals("main", row_of(i, ("g" + std::to_string(i)).c_str(), 1, 1, 1), kDevices);
  }
  EXPECT_EQ(history.totals("main", History::With::kLastWord).size(), kMostToldGroups);
  history.on_server_gone("main");
  for (uint32_t i = 1; i <= kMostToldGroups; ++i) {
    history.note_totals("other", row_of(i, ("g" + std::to_string(i)).c_str(), 1, 1, 1), kDevices);
  }
  history.on_server_gone("other");
  uint64_t sessions = 0;
  size_t lines = 0;
  for (const char* server : {"main", "other"}) {
    for (const TotalsLine& line : history.totals(server, History::With::kLastWord)) {
      sessions += line.sessions;
      ++lines;
    }
  }
  EXPECT_EQ(sessions, 2 * kMostToldGroups) << "no session is forgotten";
  EXPECT_LE(lines, kMostEndedGroups + 2);
}

TEST(History, KeepsTheLastEventsOfEachKind) {
  History history;
  history.note({.kind = wire::EventKind::kFault, .text = "the fault"});
  for (size_t i = 0; i < 3 * kMostEventsOfKind; ++i) {
    history.note({.kind = wire::EventKind::kRefused, .text = std::to_string(i)});
  }
  history.note({.kind = wire::EventKind::kNumber});
  history.note({.kind = static_cast<wire::EventKind>(~0u)});
  const auto events = history.events();
  ASSERT_EQ(events.size(), 1 + kMostEventsOfKind);
  EXPECT_EQ(events[0].text, "the fault") << "many events of one kind leave the others";
  EXPECT_EQ(events.back().text, std::to_string(3 * kMostEventsOfKind - 1));
  EXPECT_TRUE(std::ranges::is_sorted(events, {}, &EventLine::number));
  EXPECT_EQ(history.counts()[static_cast<size_t>(wire::EventKind::kRefused)],
            3 * kMostEventsOfKind);
}

}  // namespace
}  // namespace openmps::control
