// SPDX-License-Identifier: Apache-2.0
// Messages that the server makes from its state.
#include "server/answers.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/text.h"
#include "server/domain.h"
#include "server/inspect.h"
#include "server/worker_state.h"

namespace openmps::server {
namespace {

wire::ClientRow make_row(const Session& session, const Groups& groups,
                         const std::vector<Device>& devices) {
  wire::ClientRow row;
  row.pid = session.admit.pid;
  row.id = session.id;
  row.device = device_of(session.admit, devices);
  row.namespace_inode = session.admit.hello.namespace_inode;
  row.claimed_pid = session.admit.hello.pid;
  row.active_thread_percentage = session.grant.limits.active_thread_percentage;
  if (const Group* group = groups.find(session.grant.group); group != nullptr) {
    fill_field(row.group, printable(group->name));
    row.active_thread_percentage =
        std::min(row.active_thread_percentage, group->limits.active_thread_percentage);
  }
  row.quality = wire::settled_quality(session.grant.quality, session.grant.limits.client_priority);
  row.partition = session.admit.partition;
  row.moves = session.moves;
  fill_field(row.domain, session.domain->name);
  fill_field(row.stays, session.stays());
  row.ending = session.state == SessionState::kEnding ? 1 : 0;
  if (row.device < devices.size()) fill_field(row.device_uuid, devices[row.device].uuid);
  fill_field(row.command, printable(field_text(session.admit.hello.command)));
  row.silent = session.worker != nullptr && session.worker->is_silent() ? 1 : 0;
  row.usage = session.usage();
  const auto is_there = [](uint64_t bytes) { return bytes != 0; };
  if (session.residence == wire::Residence::kHeld) {
    row.residence = wire::Residence::kHeld;
  } else if (std::ranges::any_of(row.usage.on_host, is_there)) {
    row.residence = wire::Residence::kHost;
  }
  return row;
}

wire::GroupRow make_row(const Group& group, const SessionTable& sessions) {
  wire::GroupRow row;
  row.number = group.number;
  row.members = group.members;
  row.limits = group.limits;
  fill_field(row.name, printable(group.name));
  for (const auto& [id, session] : sessions.all()) {
    if (session->grant.group != group.number) continue;
    const wire::Usage usage = session->usage();
    for (uint32_t i = 0; i < wire::kMaxDevices; ++i) row.memory[i] += usage.memory[i];
  }
  return row;
}

wire::TotalsRow make_row(uint32_t number, const History::Group& group,
                         const SessionTable& sessions) {
  wire::TotalsRow row = History::row_of(number, group);
  for (const auto& [id, session] : sessions.all()) {
    if (session->history_group != number) continue;
    const wire::Usage usage = session->usage();
    row.usage.add_counters(usage);
    row.usage.add_present(usage);
  }
  return row;
}

// The rows of entries above `last`, the last one that the daemon has.
template <typename Row, typename Entries, typename Make>
std::string rows_above(uint32_t last, const Entries& entries, uint32_t most, wire::Answer* answer,
                       Make&& make) {
  std::string body;
  for (auto next = entries.upper_bound(last); next != entries.end(); ++next) {
    const std::optional<Row> row = make(*next);
    if (!row) continue;
    if (answer->rows == most) {
      answer->more = 1;
      break;
    }
    body.append(reinterpret_cast<const char*>(&*row), sizeof(Row));
    ++answer->rows;
  }
  return body;
}

}  // namespace

bool is_meant(const wire::Query& query, const Session& session) {
  if (query.id != 0) return session.id == query.id;
  return query.session != 0 && session.admit.pid == query.session;
}

uint32_t device_of(const wire::Admit& admit, const std::vector<Device>& devices) {
  if (admit.partition.sms != 0) return admit.partition.device;
  return first_visible_device(devices, field_text(admit.hello.visible_devices));
}

wire::Grant make_grant(const wire::Admit& admit) {
  wire::Grant grant;
  grant.limits = wire::granted_limits(admit.default_limits, admit.hello.limits);
  if (admit.partition.sms != 0) grant.limits.active_thread_percentage = 100;
  grant.quality = admit.hello.quality;
  grant.replay =
      admit.hello.replay == wire::Replay::kUnknown ? wire::Replay::kCopies : admit.hello.replay;
  return grant;
}

CUresult apply(const wire::Change& change, uint32_t devices, wire::ClientLimits* limits) {
  const uint32_t device = change.device < devices ? change.device : wire::kMaxDevices;
  return wire::set_limit(limits, change.limit, device, change.value);
}

// The operator's priority of a client overrides the quality that the program stated at its start.
CUresult apply(const wire::Change& change, uint32_t devices, wire::Grant* grant) {
  const CUresult result = apply(change, devices, &grant->limits);
  const bool is_priority = change.limit == wire::Limit::kPriority;
  if (result == CUDA_SUCCESS && is_priority) grant->quality = wire::Quality::kUnset;
  return result;
}

wire::OpenSession make_open_session(const Session& session, const Groups& groups) {
  wire::OpenSession open;
  open.session = session.id;
  open.window = session.window;
  open.client_pid = session.admit.pid;
  open.grant = session.grant;
  const Group* group = groups.find(session.grant.group);
  if (group != nullptr) open.group_limits = group->limits;
  fill_field(open.command, printable(field_text(session.admit.hello.command)));
  return open;
}

std::vector<std::byte> make_answer(const wire::Query& query, wire::ServerState state,
                                   const SessionTable& sessions, const Groups& groups,
                                   const History& history, const std::vector<Device>& devices,
                                   const std::vector<wire::StaticPartition>& used) {
  wire::Answer answer;
  answer.query = query.query;
  answer.ticket = query.ticket;
  answer.state = state;
  std::string body;
  if (query.query == wire::QueryKind::kClients) {
    const auto row = [&](const auto& entry) {
      const std::unique_ptr<Session>& session = entry.second;
      return session->state == SessionState::kOpening
                 ? std::nullopt
                 : std::optional(make_row(*session, groups, devices));
    };
    body = rows_above<wire::ClientRow>(query.session, sessions.all(), wire::kMaxClientRows, &answer,
                                       row);
  } else if (query.query == wire::QueryKind::kGroups) {
    const auto row = [&](const auto& entry) {
      return std::optional(make_row(entry.second, sessions));
    };
    body =
        rows_above<wire::GroupRow>(query.session, groups.all(), wire::kMaxGroupRows, &answer, row);
  } else if (query.query == wire::QueryKind::kTotals) {
    const auto row = [&](const auto& entry) {
      return std::optional(make_row(entry.first, entry.second, sessions));
    };
    body = rows_above<wire::TotalsRow>(query.session, history.groups(), wire::kMaxTotalsRows,
                                       &answer, row);
  } else if (query.query == wire::QueryKind::kDevices) {
    for (const Device& device : devices) {
      body += device.pci_bus_id + '\t' + device.uuid + '\t' + device.name + '\t' +
              std::to_string(device.sms) + '\t' + std::to_string(device.memory_bytes) + '\t' +
              std::to_string(device.sm_step) + '\t' + std::to_string(device.most_sms) + '\t' +
              std::to_string(device.compute_capability) + '\t' +
              std::to_string(device.cuda_version) + '\n';
    }
  } else if (query.query == wire::QueryKind::kPartitions) {
    body.assign(reinterpret_cast<const char*>(used.data()), used.size() * sizeof(used[0]));
  } else if (query.query == wire::QueryKind::kInspect) {
    for (const auto& [id, session] : sessions.all()) {
      const bool is_its_id = query.id == 0 && query.session != 0 && id == query.session;
      if (!is_its_id && !is_meant(query, *session)) continue;
      body = inspect(*session, sessions);
      break;
    }
  }
  answer.header.bytes = static_cast<uint32_t>(sizeof(answer) + body.size());
  std::vector<std::byte> packet(answer.header.bytes);
  std::memcpy(packet.data(), &answer, sizeof(answer));
  std::memcpy(packet.data() + sizeof(answer), body.data(), body.size());
  return packet;
}

}  // namespace openmps::server
