// SPDX-License-Identifier: Apache-2.0
// Messages that the server makes from its state.
#include "server/answers.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/text.h"
#include "server/inspect.h"
#include "server/worker_state.h"

namespace openmps::server {
namespace {

constexpr uint32_t kLowestPriority = 1;  // CUDA_MPS_CLIENT_PRIORITY: 0 normal, 1 below normal

float granted_percentage(float ours, float wished) {
  // Also turns away a NaN.
  return wished > 0 && wished < ours ? wished : ours;
}

uint64_t granted_memory(uint64_t ours, uint64_t wished) {
  if (ours == 0) return wished;
  return wished == 0 ? ours : std::min(ours, wished);
}

wire::ClientRow make_row(const Session& session, const std::vector<Device>& devices) {
  wire::ClientRow row;
  row.pid = session.admit.pid;
  row.id = session.id;
  row.device = first_visible_device(devices, field_text(session.admit.hello.visible_devices));
  row.namespace_inode = session.admit.hello.namespace_inode;
  row.active_thread_percentage = session.grant.active_thread_percentage;
  row.quality = wire::settled_quality(session.grant.quality, session.grant.client_priority);
  row.ending = session.state == SessionState::kEnding ? 1 : 0;
  if (row.device < devices.size()) fill_field(row.device_uuid, devices[row.device].uuid);
  fill_field(row.command, printable(field_text(session.admit.hello.command)));
  if (session.worker != nullptr) row.usage = session.worker->usage.read(session.window, session.id);
  return row;
}

}  // namespace

wire::Grant make_grant(const wire::Admit& admit) {
  wire::Grant grant;
  grant.client_priority = admit.hello.client_priority <= kLowestPriority
                              ? admit.hello.client_priority
                              : admit.default_client_priority;
  grant.quality = admit.hello.quality;
  grant.active_thread_percentage = granted_percentage(admit.default_active_thread_percentage,
                                                      admit.hello.active_thread_percentage);
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
    grant.memory_limit[i] =
        granted_memory(admit.default_memory_limit[i], admit.hello.memory_limit[i]);
  }
  return grant;
}

CUresult apply(const wire::Change& change, uint32_t devices, wire::Grant* grant) {
  const bool of_device =
      change.setting == wire::Setting::kSmCount || change.setting == wire::Setting::kMemoryLimit;
  if (of_device && change.device >= std::min(devices, wire::kMaxDevices)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  switch (change.setting) {
    case wire::Setting::kPercentage:
      if (!(change.percentage > 0 && change.percentage <= 100)) return CUDA_ERROR_INVALID_VALUE;
      grant->active_thread_percentage = static_cast<float>(change.percentage);
      std::fill(std::begin(grant->sms), std::end(grant->sms), 0);
      return CUDA_SUCCESS;
    case wire::Setting::kSmCount:
      grant->sms[change.device] =
          static_cast<uint32_t>(std::min<uint64_t>(change.amount, UINT32_MAX));
      return CUDA_SUCCESS;
    case wire::Setting::kMemoryLimit:
      grant->memory_limit[change.device] = change.amount;
      return CUDA_SUCCESS;
    case wire::Setting::kPriority:
      if (change.amount > kLowestPriority) return CUDA_ERROR_INVALID_VALUE;
      // Who says this now knows better than the program did at its start.
      grant->client_priority = static_cast<uint32_t>(change.amount);
      grant->quality = wire::Quality::kUnset;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

wire::OpenSession make_open_session(const Session& session) {
  wire::OpenSession open;
  open.session = session.id;
  open.window = session.window;
  open.client_pid = session.admit.pid;
  open.grant = session.grant;
  fill_field(open.command, printable(field_text(session.admit.hello.command)));
  return open;
}

std::vector<std::byte> make_answer(const wire::Query& query, wire::ServerState state,
                                   const SessionTable& sessions,
                                   const std::vector<Device>& devices) {
  wire::Answer answer;
  answer.query = query.query;
  answer.ticket = query.ticket;
  answer.state = state;
  std::string body;
  if (query.query == wire::QueryKind::kClients) {
    for (auto next = sessions.all().upper_bound(query.session); next != sessions.all().end();
         ++next) {
      const Session& session = *next->second;
      if (session.state == SessionState::kOpening) continue;
      if (answer.rows == wire::kMaxClientRows) {
        answer.more = 1;
        break;
      }
      const wire::ClientRow row = make_row(session, devices);
      body.append(reinterpret_cast<const char*>(&row), sizeof(row));
      ++answer.rows;
    }
  } else if (query.query == wire::QueryKind::kDevices) {
    for (const Device& device : devices) {
      body += device.pci_bus_id + '\t' + device.uuid + '\t' + device.name + '\t' +
              std::to_string(device.sms) + '\t' + std::to_string(device.memory_bytes) + '\n';
    }
  } else if (query.query == wire::QueryKind::kInspect) {
    for (const auto& [id, session] : sessions.all()) {
      if (id != query.session && session->admit.pid != query.session) continue;
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
