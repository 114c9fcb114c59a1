// SPDX-License-Identifier: Apache-2.0
// The grant of a session, the device of a client, and the packets of answers.
#include "server/answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "server/domain.h"
#include "server/reservations.h"
#include "server/worker_state.h"
#include "wire/message.h"

namespace openmps::server {
namespace {

Domain common{std::string(wire::kCommonDomain)};

// All bytes of a grant, its padding included, since that is sent, too.
std::vector<std::byte> all_of(const wire::Grant& grant) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&grant);
  return {bytes, bytes + sizeof(grant)};
}

const std::vector<Device> kDevices = {
    {"Left", "0000:01:00.0", "GPU-aaaaaaaa-0000-0000-0000-000000000000", 8, 4096, 2, 8, 90, 13000},
    {"Right", "0000:02:00.0", "GPU-bbbbbbbb-0000-0000-0000-000000000000", 132, 1, 8, 120, 120,
     13000}};

struct Grant {
  float default_percentage, wished_percentage, granted_percentage;
  uint64_t default_memory, wished_memory, granted_memory;
  uint32_t default_priority, wished_priority, granted_priority;
};

TEST(Answers, AClientCanOnlyLowerWhatItIsGranted) {
  const Grant grants[] = {
      {100, 0, 100, 0, 0, 0, 0, ~0u, 0}, {100, 30, 30, 0, 5, 5, 0, 1, 1},
      {25, 50, 25, 7, 9, 7, 1, ~0u, 1},  {25, 10, 10, 7, 3, 3, 1, 0, 0},
      {25, -1, 25, 7, 0, 7, 1, 17, 1},   {25, NAN, 25, 7, 7, 7, 0, 2, 0},
  };
  for (const Grant& grant : grants) {
    Session session;
    session.admit.default_limits.active_thread_percentage = grant.default_percentage;
    session.admit.hello.limits.active_thread_percentage = grant.wished_percentage;
    session.admit.default_limits.memory_limit[3] = grant.default_memory;
    session.admit.hello.limits.memory_limit[3] = grant.wished_memory;
    session.admit.default_limits.client_priority = grant.default_priority;
    session.admit.hello.limits.client_priority = grant.wished_priority;
    session.admit.hello.limits.sm_count[3] = 2;
    const wire::ClientLimits open = make_grant(session.admit).limits;
    EXPECT_EQ(open.active_thread_percentage, grant.granted_percentage);
    EXPECT_EQ(open.memory_limit[3], grant.granted_memory);
    EXPECT_EQ(open.memory_limit[0], 0u);
    EXPECT_EQ(open.client_priority, grant.granted_priority);
    EXPECT_EQ(open.sm_count[3], 0u)
        << "a client can't ask for a count of SMs: it would replace the percentage";
  }
}

TEST(Answers, AnOperatorChangesWhatAClientHas) {
  wire::Grant grant;
  grant.quality = wire::Quality::kLatency;
  wire::Change change{.limit = wire::Limit::kPercentage, .value = 12.5};
  EXPECT_EQ(apply(change, 2, &grant), CUDA_SUCCESS);
  EXPECT_EQ(grant.limits.active_thread_percentage, 12.5f);
  change = {.limit = wire::Limit::kSmCount, .device = 1, .value = 8};
  EXPECT_EQ(apply(change, 2, &grant), CUDA_SUCCESS);
  EXPECT_EQ(grant.limits.sm_count[1], 8u);
  change = {.limit = wire::Limit::kMemory, .device = 1, .value = 1 << 20};
  EXPECT_EQ(apply(change, 2, &grant), CUDA_SUCCESS);
  EXPECT_EQ(grant.limits.memory_limit[1], 1u << 20);
  change = {.limit = wire::Limit::kPriority, .value = 1};
  EXPECT_EQ(apply(change, 2, &grant), CUDA_SUCCESS);
  EXPECT_EQ(wire::settled_quality(grant.quality, grant.limits.client_priority),
            wire::Quality::kBestEffort)
      << "the operator's priority replaces the quality that the program asked for";
  change = {.value = 100};
  EXPECT_EQ(apply(change, 2, &grant), CUDA_SUCCESS);
  EXPECT_EQ(grant.limits.sm_count[1], 0u) << "a later percentage replaces the count of SMs";
  const std::vector<std::byte> before = all_of(grant);
  const std::pair<wire::Change, CUresult> wrong[] = {
      {{.value = 0}, CUDA_ERROR_INVALID_VALUE},
      {{.value = NAN}, CUDA_ERROR_INVALID_VALUE},
      {{.value = 100.1}, CUDA_ERROR_INVALID_VALUE},
      {{.value = 1e-60}, CUDA_ERROR_INVALID_VALUE},  // 0 as a float
      {{.limit = wire::Limit::kSmCount, .device = 2, .value = 8}, CUDA_ERROR_INVALID_DEVICE},
      {{.limit = wire::Limit::kMemory, .device = ~0u}, CUDA_ERROR_INVALID_DEVICE},
      {{.limit = wire::Limit::kPriority, .value = 2}, CUDA_ERROR_INVALID_VALUE},
      {{.limit = wire::Limit::kWorkTime, .value = 0.05}, CUDA_ERROR_INVALID_VALUE},
      {{.limit = wire::Limit::kWorkTime, .value = NAN}, CUDA_ERROR_INVALID_VALUE},
      {{.limit = static_cast<wire::Limit>(99)}, CUDA_ERROR_INVALID_VALUE},
  };
  for (const auto& [asked, result] : wrong) EXPECT_EQ(apply(asked, 2, &grant), result);
  EXPECT_EQ(all_of(grant), before) << "a refused change leaves the grant as it was";
}

TEST(Groups, AreKeptWhileTheyHaveMembersOrLimits) {
  Groups groups;
  const uint32_t first = groups.get("a").number;
  EXPECT_EQ(groups.get("a").number, first);
  const uint32_t second = groups.get("a:/b").number;
  EXPECT_NE(second, first);
  groups.find(first)->members = 2;
  groups.leave(first);
  EXPECT_NE(groups.find("a"), nullptr);
  groups.leave(first);
  EXPECT_EQ(groups.find("a"), nullptr);
  EXPECT_EQ(groups.find(first), nullptr);
  groups.find(second)->limits.client_priority = 1;
  groups.forget_unused(second);
  EXPECT_NE(groups.find("a:/b"), nullptr) << "a group whose limits a command has changed is kept";
  groups.get("c").is_permanent = true;
  groups.forget_unused(groups.get("c").number);
  EXPECT_NE(groups.find("c"), nullptr) << "a group that the configuration describes is kept";
  for (size_t i = 0; i < 2 * wire::kMaxWindows; ++i) groups.get(std::to_string(i));
  EXPECT_EQ(groups.all().size(), 2 * wire::kMaxWindows);
  EXPECT_EQ(groups.find("a:/b"), nullptr) << "a full table drops the oldest group without members";
  const auto is_of = [](const char* name, const char* rule) {
    Group group;
    group.name = name;
    return Groups::is_of(group, rule);
  };
  EXPECT_TRUE(is_of("a", "a"));
  EXPECT_TRUE(is_of("a:/b", "a"));
  EXPECT_FALSE(is_of("ab", "a"));
  EXPECT_FALSE(is_of("a", "a:/b"));
}

TEST(Groups, AReloadSetsOnlyTheLimitsThatDifferFromTheLastConfiguration) {
  Group group;
  const auto configure = [&group](const wire::ClientLimits& next) {
    wire::put_changes_in_force(next, &group.configured, &group.limits);
  };
  wire::ClientLimits said{.active_thread_percentage = 50};
  said.memory_limit[1] = 7;
  configure(said);
  EXPECT_EQ(group.limits, said);
  group.limits.active_thread_percentage = 20;
  group.limits.sm_count[0] = 4;
  configure(said);
  EXPECT_EQ(group.limits.active_thread_percentage, 20)
      << "an unchanged configuration does not overwrite a limit that a command has set";
  said.memory_limit[1] = 0;
  configure(said);
  EXPECT_EQ(group.limits.memory_limit[1], 0u);
  EXPECT_EQ(group.limits.active_thread_percentage, 20);
  said.active_thread_percentage = 60;
  configure(said);
  EXPECT_EQ(group.limits.active_thread_percentage, 60);
  EXPECT_EQ(group.limits.sm_count[0], 4u);
}

TEST(Groups, APriorityOfAGroupIsThatOfEachMember) {
  wire::Admit admit;
  admit.hello.limits.client_priority = 1;
  admit.hello.quality = wire::Quality::kLatency;
  const wire::Grant own = make_grant(admit);
  wire::Grant grant = own;
  Group group;
  give_limits(group, own, &grant);
  EXPECT_EQ(grant.quality, wire::Quality::kLatency) << "a group without a priority changes nothing";
  group.limits.client_priority = 0;
  give_limits(group, own, &grant);
  EXPECT_EQ(grant.limits.client_priority, 0u);
  EXPECT_EQ(grant.quality, wire::Quality::kUnset)
      << "the group's priority replaces the quality that the program asked for";
  group.limits.client_priority = wire::kNoPriority;
  give_limits(group, own, &grant);
  EXPECT_EQ(grant.limits.client_priority, 1u);
  EXPECT_EQ(grant.quality, wire::Quality::kLatency);
}

TEST(Groups, AreSentWithTheSessionsOfTheirMembersAndShownInRows) {
  Groups groups;
  Group& group = groups.get("pods:/a");
  group.members = 1;
  group.limits.active_thread_percentage = 25;
  group.limits.memory_limit[1] = 7;
  SessionTable table;
  Session& session = *table.create(wire::Admit{}, common).value();
  session.state = SessionState::kActive;
  EXPECT_EQ(make_open_session(session, groups).group_limits, wire::ClientLimits());
  session.admit.partition = {.sms = 8, .groups = {2}};
  session.grant.group = group.number;
  EXPECT_EQ(make_open_session(session, groups).grant.group, group.number);
  EXPECT_EQ(make_open_session(session, groups).group_limits, group.limits);
  const auto rows = [&](wire::QueryKind kind, uint32_t above, auto* row) {
    const std::vector<std::byte> packet =
        make_answer(wire::Query{.query = kind, .session = above}, wire::ServerState::kActive, table,
                    groups, History(), kDevices);
    wire::Answer head;
    memcpy(&head, packet.data(), sizeof(head));
    if (head.rows != 0) memcpy(row, packet.data() + sizeof(head), sizeof(*row));
    return head.rows;
  };
  wire::ClientRow client;
  ASSERT_EQ(rows(wire::QueryKind::kClients, 0, &client), 1u);
  EXPECT_EQ(field_text(client.group), "pods:/a");
  EXPECT_EQ(client.active_thread_percentage, 25) << "the group's limit is lower than the client's";
  EXPECT_EQ(client.partition, session.admit.partition);
  wire::GroupRow row;
  ASSERT_EQ(rows(wire::QueryKind::kGroups, 0, &row), 1u);
  EXPECT_EQ(field_text(row.name), "pods:/a");
  EXPECT_EQ(row.members, 1u);
  EXPECT_EQ(row.limits, group.limits);
  EXPECT_EQ(rows(wire::QueryKind::kGroups, group.number, &row), 0u)
      << "no group has a number above the last one's";
}

TEST(Groups, AnOperatorChangesTheirLimits) {
  wire::ClientLimits limits;
  limits.sm_count[0] = 4;
  EXPECT_EQ(apply({.value = 12.5}, 2, &limits), CUDA_SUCCESS);
  EXPECT_EQ(limits.active_thread_percentage, 12.5f);
  EXPECT_EQ(limits.sm_count[0], 0u) << "a later percentage replaces the count of SMs";
  EXPECT_EQ(apply({.limit = wire::Limit::kPriority, .value = 1}, 2, &limits), CUDA_SUCCESS);
  EXPECT_EQ(limits.client_priority, 1u);
  const wire::ClientLimits before = limits;
  EXPECT_EQ(apply({.limit = wire::Limit::kPriority, .value = 1e300}, 2, &limits),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(apply({.limit = wire::Limit::kSmCount, .device = 2}, 2, &limits),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(limits, before);
}

TEST(Reservations, AreForASessionWithoutAPid) {
  Reservations all;
  wire::Query query;
  query.id = 3;
  query.change = {.sms = 8};
  const uint32_t number = (*all.add(query))->wish.number;
  all.find(number)->ticket = 0;  // the worker has answered
  EXPECT_EQ(all.number_for({0, 3, "./nbody"}), number);
  EXPECT_EQ(all.number_for({0, 4, "./nbody"}), 0u);
  EXPECT_EQ(all.number_for({3, 4, "./nbody"}), 0u);
  EXPECT_EQ(all.find(query)->wish.number, number);
  EXPECT_EQ(all.numbers_of_session(3), std::vector<uint32_t>{number});
  EXPECT_EQ(all.numbers_of(0), std::vector<uint32_t>{});
  query.id = 4;
  EXPECT_EQ(all.find(query), nullptr);
}

TEST(Answers, AQueryNamesAClientByItsPidOrItsId) {
  Session session;
  session.id = 3;
  wire::Query query;
  EXPECT_FALSE(is_meant(query, session)) << "PID 0 names no client";
  query.id = 3;
  EXPECT_TRUE(is_meant(query, session));
  query.id = 4;
  EXPECT_FALSE(is_meant(query, session));
  query = {};
  session.admit.pid = query.session = 4711;
  EXPECT_TRUE(is_meant(query, session));
  query.session = 3;
  EXPECT_FALSE(is_meant(query, session)) << "a PID in a query is not compared with IDs";
}

TEST(Reservations, AreForAProcessOrAProgram) {
  Reservations all;
  wire::Query query;
  query.session = 4711;
  query.change = {.device = 1, .sms = 8, .lends = 1};
  const uint32_t first = (*all.add(query))->wish.number;
  EXPECT_EQ(all.find(first)->wish.sms, 8u);
  EXPECT_EQ(all.find(first)->wish.lends, 1u);
  EXPECT_EQ(all.number_for({4711, 1, "./nbody 8"}), first);
  EXPECT_EQ(all.number_for({4712, 1, "./nbody 8"}), 0u);
  EXPECT_EQ(all.find(query)->wish.number, first);
  query.change.device = 0;
  EXPECT_EQ(all.find(query), nullptr) << "the reservation is for another device";
  query.session = 0;
  fill_field(query.change.name, "nbody");
  const uint32_t second = (*all.add(query))->wish.number;
  EXPECT_EQ(all.number_for({4712, 1, "/opt/bin/nbody 8"}), second);
  EXPECT_EQ(all.number_for({4712, 1, "/opt/nbody/other nbody"}), 0u);
  EXPECT_EQ(all.numbers_of(4711), std::vector<uint32_t>{first});
  all.erase(first);
  EXPECT_EQ(all.number_for({4711, 1, "./nbody 8"}), second);
  while (all.all().size() < 128) ASSERT_TRUE(all.add(query).ok());
  EXPECT_EQ(all.add(query).status().code(), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(Answers, TheFirstVisibleDeviceIsTheClients) {
  EXPECT_EQ(first_visible_device(kDevices, ""), 0u);
  EXPECT_EQ(first_visible_device(kDevices, "1"), 0u) << "without \\x01 the variable is not set";
  EXPECT_EQ(first_visible_device(kDevices,
                                 "\x01"
                                 "1,0"),
            1u);
  EXPECT_EQ(first_visible_device(kDevices,
                                 "\x01"
                                 "GPU-bbbb"),
            1u);
  EXPECT_EQ(first_visible_device(kDevices,
                                 "\x01"
                                 "9"),
            0u);
  EXPECT_EQ(first_visible_device(kDevices,
                                 "\x01"
                                 "-1"),
            0u);
  EXPECT_EQ(first_visible_device(kDevices, "\x01"), 0u);
}

TEST(Answers, OneOfSeveralDevicesMayBeTheOnlyVisibleOne) {
  const std::string set = "\x01";
  EXPECT_EQ(sole_visible_device(kDevices, set + "1"), 1u);
  EXPECT_EQ(sole_visible_device(kDevices, set + "GPU-bbbb"), 1u);
  for (const std::string& others :
       {std::string(), std::string("1"), set, set + "0,1", set + "-1"}) {
    EXPECT_EQ(sole_visible_device(kDevices, others), std::nullopt) << others;
  }
  EXPECT_EQ(sole_visible_device({kDevices.front()}, set + "0"), std::nullopt)
      << "it is the only one that there is";
}

TEST(Answers, DevicesAreLinesOfNineFields) {
  const std::vector<std::byte> packet =
      make_answer(wire::Query{.query = wire::QueryKind::kDevices, .ticket = 9},
                  wire::ServerState::kActive, SessionTable(), Groups(), History(), kDevices);
  wire::Answer head;
  ASSERT_TRUE(wire::read_header(packet).ok());
  memcpy(&head, packet.data(), sizeof(head));
  EXPECT_EQ(head.ticket, 9u);
  EXPECT_EQ(head.rows, 0u);
  EXPECT_EQ(
      std::string(reinterpret_cast<const char*>(packet.data()) + sizeof(head),
                  packet.size() - sizeof(head)),
      "0000:01:00.0\tGPU-aaaaaaaa-0000-0000-0000-000000000000\tLeft\t8\t4096\t2\t8\t90\t13000\n"
      "0000:02:00.0\tGPU-bbbbbbbb-0000-0000-0000-"
      "000000000000\tRight\t132\t1\t8\t120\t120\t13000\n");
}

TEST(Answers, AClientOfAStaticPartitionHasItsDeviceAndNoPercentage) {
  wire::Admit admit;
  admit.hello.limits.active_thread_percentage = 10;
  admit.default_limits.active_thread_percentage = 50;
  fill_field(admit.hello.visible_devices,
             "\x01"
             "0");
  EXPECT_EQ(device_of(admit, kDevices), 0u);
  admit.partition = {.device = 1, .sms = 16, .groups = {6, 0}};
  EXPECT_EQ(device_of(admit, kDevices), 1u);
  EXPECT_EQ(make_grant(admit).limits.active_thread_percentage, 100)
      << "percentages do not apply to clients of a static partition";

  const std::vector<wire::StaticPartition> used = {admit.partition, {.device = 0, .sms = 2}};
  const std::vector<std::byte> packet =
      make_answer(wire::Query{.query = wire::QueryKind::kPartitions}, wire::ServerState::kActive,
                  SessionTable(), Groups(), History(), kDevices, used);
  ASSERT_EQ(packet.size(), sizeof(wire::Answer) + sizeof(wire::StaticPartition[2]));
  wire::StaticPartition read[2];
  memcpy(read, packet.data() + sizeof(wire::Answer), sizeof(read));
  EXPECT_EQ(read[0], used[0]);
  EXPECT_EQ(read[1], used[1]);
}

TEST(Answers, ListActiveAndEndingSessionsWithPrintableText) {
  SessionTable table;
  wire::Admit admit;
  admit.pid = 4711;
  admit.hello.namespace_inode = 5;
  admit.hello.limits.client_priority = 1;
  fill_field(admit.hello.visible_devices,
             "\x01"
             "1");
  fill_field(admit.hello.command, "./evil\n[2026] forged");
  Session& active = *table.create(admit, common).value();
  active.grant = make_grant(admit);
  active.state = SessionState::kActive;
  ASSERT_TRUE(table.create(admit, common).ok());  // still opening: not shown
  Session& ending = *table.create(admit, common).value();
  ending.state = SessionState::kEnding;
  const std::vector<std::byte> packet =
      make_answer(wire::Query{.query = wire::QueryKind::kClients}, wire::ServerState::kFault, table,
                  Groups(), History(), kDevices);
  wire::Answer head;
  memcpy(&head, packet.data(), sizeof(head));
  EXPECT_EQ(head.state, wire::ServerState::kFault);
  ASSERT_EQ(head.rows, 2u);
  ASSERT_EQ(packet.size(), sizeof(head) + 2 * sizeof(wire::ClientRow));
  wire::ClientRow row;
  memcpy(&row, packet.data() + sizeof(head) + sizeof(row), sizeof(row));
  EXPECT_EQ(row.id, ending.id);
  EXPECT_EQ(row.ending, 1u);
  memcpy(&row, packet.data() + sizeof(head), sizeof(row));
  EXPECT_EQ(row.ending, 0u);
  EXPECT_EQ(row.pid, 4711u);
  EXPECT_EQ(row.id, active.id);
  EXPECT_EQ(row.device, 1u);
  EXPECT_EQ(row.namespace_inode, 5u);
  EXPECT_EQ(row.quality, wire::Quality::kBestEffort) << "the quality follows from the priority";
  EXPECT_EQ(field_text(row.device_uuid), kDevices[1].uuid);
  EXPECT_EQ(field_text(row.command), "./evil?[2026] forged");
}

TEST(Answers, ShowAClientsRowOfItsWorkersUsageTable) {
  SessionTable table;
  Session& session = *table.create(wire::Admit{}, common).value();
  session.state = SessionState::kActive;
  Worker worker;
  session.worker = &worker;
  const auto row = [&] {
    const std::vector<std::byte> packet =
        make_answer(wire::Query{.query = wire::QueryKind::kClients}, wire::ServerState::kActive,
                    table, Groups(), History(), kDevices);
    wire::ClientRow row;
    memcpy(&row, packet.data() + sizeof(wire::Answer), sizeof(row));
    return row;
  };
  EXPECT_EQ(row().usage.is_known, 0u) << "the worker has no usage table";
  Mapping mapping;
  const Result<UniqueFd> file = create_shown_file("usage", wire::kUsageBytes, &mapping);
  ASSERT_TRUE(file.ok());
  new (mapping.address()) wire::UsageHeader{wire::kUsageMagic,
                                            wire::kUsageVersion,
                                            sizeof(wire::UsageRow),
                                            wire::kMaxWindows,
                                            1,
                                            1,
                                            1,
                                            0,
                                            {}};
  auto* rows = reinterpret_cast<wire::UsageRow*>(static_cast<unsigned char*>(mapping.address()) +
                                                 wire::kUsageRowsOffset);
  rows[session.window].session = session.id;
  rows[session.window].counts[static_cast<size_t>(wire::UsageCount::kLaunches)] = 77;
  worker.usage = wire::UsageTable::open(file->get()).value();
  EXPECT_EQ(row().usage.count(wire::UsageCount::kLaunches), 77u);
  rows[session.window].session = session.id + 1;
  EXPECT_EQ(row().usage.is_known, 0u) << "the row belongs to another session";
}

TEST(Answers, MoreClientsThanAPacketHoldsComeInParts) {
  SessionTable table;
  const uint32_t all = std::min(wire::kMaxWindows, 2 * wire::kMaxClientRows + 1);
  for (uint32_t i = 0; i < all; ++i) {
    Session& session = *table.create(wire::Admit{}, common).value();
    if (i != 5) session.state = SessionState::kActive;
  }
  uint32_t last = 0;
  uint32_t found = 0;
  for (bool more = true; more;) {
    const std::vector<std::byte> packet =
        make_answer(wire::Query{.query = wire::QueryKind::kClients, .session = last},
                    wire::ServerState::kActive, table, Groups(), History(), kDevices);
    ASSERT_LE(packet.size(), wire::kMaxMessageBytes);
    wire::Answer head;
    memcpy(&head, packet.data(), sizeof(head));
    for (uint32_t i = 0; i < head.rows; ++i) {
      wire::ClientRow row;
      memcpy(&row, packet.data() + sizeof(head) + i * sizeof(row), sizeof(row));
      ASSERT_GT(row.id, last);
      last = row.id;
      // A session that ends between two packets is in none of the later ones.
      if (found++ == 0) table.erase(all);
    }
    more = head.more != 0;
    ASSERT_TRUE(!more || head.rows == wire::kMaxClientRows);
  }
  EXPECT_EQ(found, all - 2)
      << "all but the session that is still opening and the one that has ended";
}

// The rows of an answer to kTotals.
std::vector<wire::TotalsRow> totals_of(const SessionTable& table, const History& history) {
  std::vector<wire::TotalsRow> rows;
  for (;;) {
    const std::vector<std::byte> packet =
        make_answer(wire::Query{.query = wire::QueryKind::kTotals,
                                .session = rows.empty() ? 0 : rows.back().number},
                    wire::ServerState::kActive, table, Groups(), history, kDevices);
    EXPECT_LE(packet.size(), wire::kMaxMessageBytes);
    wire::Answer head;
    memcpy(&head, packet.data(), sizeof(head));
    EXPECT_EQ(packet.size(), sizeof(head) + head.rows * sizeof(wire::TotalsRow));
    const size_t before = rows.size();
    rows.resize(before + head.rows);
    if (head.rows != 0) {
      memcpy(rows.data() + before, packet.data() + sizeof(head),
             head.rows * sizeof(wire::TotalsRow));
    }
    if (head.more == 0) return rows;
  }
}

wire::Usage launches(uint64_t count) {
  wire::Usage usage;
  usage.is_known = 1;
  usage.counts[static_cast<size_t>(wire::UsageCount::kLaunches)] = count;
  return usage;
}

TEST(Totals, AreThoseOfSessionsThatAreThereAndOfTheOthers) {
  SessionTable table;
  History history;
  Session& session = *table.create(wire::Admit{}, common).value();
  session.history_group = history.on_opened("a");
  session.used = launches(3);
  const uint32_t again = history.on_opened("a");
  EXPECT_EQ(again, session.history_group);
  history.on_closed(again, launches(4));
  const auto rows = totals_of(table, history);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_STREQ(rows[0].group, "a");
  EXPECT_EQ(rows[0].sessions, 2u);
  EXPECT_EQ(rows[0].open, 1u);
  EXPECT_EQ(rows[0].usage.count(wire::UsageCount::kLaunches), 7u);
  const wire::TotalsRow ended = History::row_of(again, history.groups().at(again));
  EXPECT_EQ(ended.usage.count(wire::UsageCount::kLaunches), 4u);
}

TEST(Totals, OfGroupsThatAreForgottenRemain) {
  SessionTable table;
  std::map<uint32_t, wire::TotalsRow> told;
  History history([&told](std::span<const std::byte> message) {
    wire::Totals totals;
    ASSERT_TRUE(wire::read_message(message, &totals).ok());
    if (totals.row.sessions == 0) {
      told.erase(totals.row.number);
    } else {
      told[totals.row.number] = totals.row;
    }
  });
  constexpr size_t kGroups = 3 * kMostGroupTotals;
  const uint32_t stays = history.on_opened("stays");
  for (size_t i = 0; i < kGroups; ++i) {
    history.on_closed(history.on_opened("group" + std::to_string(i)), launches(1));
  }
  history.on_closed(stays, launches(100));
  const auto rows = totals_of(table, history);
  EXPECT_LE(rows.size(), kMostGroupTotals + 1);
  const auto sum = [](const auto& all, auto&& row_of) {
    std::pair<uint64_t, uint64_t> sums;
    for (const auto& one : all) {
      sums.first += row_of(one).sessions;
      sums.second += row_of(one).usage.count(wire::UsageCount::kLaunches);
    }
    return sums;
  };
  const std::pair<uint64_t, uint64_t> all(kGroups + 1, kGroups + 100);
  EXPECT_EQ(sum(rows, [](const auto& row) { return row; }), all);
  EXPECT_EQ(sum(told, [](const auto& entry) { return entry.second; }), all)
      << "what the daemon was told adds up to the same";
  EXPECT_EQ(told.size(), rows.size());
  EXPECT_TRUE(std::ranges::any_of(rows, [](const auto& row) {
    return field_text(row.group) == "stays" && row.sessions == 1;
  })) << "groups with sessions are not forgotten";
}

}  // namespace
}  // namespace openmps::server
