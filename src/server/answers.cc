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
  const wire::OpenSession granted = make_open_session(session);
  row.active_thread_percentage = granted.active_thread_percentage;
  row.quality = wire::settled_quality(granted.quality, granted.client_priority);
  row.ending = session.state == SessionState::kEnding ? 1 : 0;
  if (row.device < devices.size()) fill_field(row.device_uuid, devices[row.device].uuid);
  fill_field(row.command, printable(field_text(session.admit.hello.command)));
  if (session.worker != nullptr) row.usage = session.worker->usage.read(session.window, session.id);
  return row;
}

}  // namespace

wire::OpenSession make_open_session(const Session& session) {
  const wire::Admit& admit = session.admit;
  wire::OpenSession open;
  open.session = session.id;
  open.window = session.window;
  open.client_pid = admit.pid;
  open.client_priority = admit.hello.client_priority <= kLowestPriority
                             ? admit.hello.client_priority
                             : admit.default_client_priority;
  open.quality = admit.hello.quality;
  open.active_thread_percentage = granted_percentage(admit.default_active_thread_percentage,
                                                     admit.hello.active_thread_percentage);
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
    open.memory_limit[i] =
        granted_memory(admit.default_memory_limit[i], admit.hello.memory_limit[i]);
  }
  fill_field(open.command, printable(field_text(admit.hello.command)));
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
