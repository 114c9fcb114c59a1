// SPDX-License-Identifier: Apache-2.0
// Fuzz target of the socket messages: the input is one packet that a peer sends to the daemon, the
// server or the worker. It is read as each kind of message, and the contents are used as the
// programs use them: in grants, device choices, log lines and lists.
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "control/device.h"
#include "control/format.h"
#include "control/groups.h"
#include "control/server_process.h"
#include "server/answers.h"
#include "server/devices.h"
#include "server/groups.h"
#include "server/reservations.h"
#include "server/session_table.h"
#include "wire/control_call.h"
#include "wire/message.h"

namespace openmps {
namespace {

using Bytes = std::span<const std::byte>;
using wire::MessageKind;

std::set<MessageKind>& kinds_read() {
  static std::set<MessageKind> kinds;
  return kinds;
}

const std::vector<server::Device>& some_devices() {
  static const std::vector<server::Device> devices = {
      {"GPU A", "0000:00:06.0", "GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155"},
      {"GPU B", "0000:00:07.0", "GPU-118cbaa3-6cdc-9444-312b-2ca50d63b155"}};
  return devices;
}

// Text from a peer that is printed must not contain line breaks or control characters, which could
// forge log lines or control a terminal.
void must_be_printable(std::string_view text) {
  for (const char c : printable(text)) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) abort();
  }
}

void use(const wire::Hello& hello) {
  server::Session session;
  session.admit.hello = hello;
  session.admit.default_limits.active_thread_percentage = 50;
  session.admit.default_limits.memory_limit[0] = 1 << 30;
  const wire::ClientLimits granted = server::make_grant(session.admit).limits;
  // A client's wishes can only lower the limits that the server grants.
  if (!(granted.active_thread_percentage > 0 && granted.active_thread_percentage <= 50)) abort();
  if (granted.memory_limit[0] == 0 || granted.memory_limit[0] > 1 << 30) abort();
  const uint32_t device =
      server::first_visible_device(some_devices(), field_text(hello.visible_devices));
  static_cast<void>(device);
  must_be_printable(field_text(hello.command));
  must_be_printable(field_text(server::make_open_session(session, server::Groups()).command));
  const control::Membership membership =
      control::membership_of({}, {1, field_text(hello.command), field_text(hello.group)}, {});
  if (!membership.group.empty() && !control::names_a_group(membership.group)) abort();
  if (membership.note != printable(membership.note)) abort();
}

// The limits of a group from the daemon reach its members unchanged.
void use_group(std::string_view name, const wire::ClientLimits& limits, const wire::Admit& admit) {
  server::Groups groups;
  server::Group& group = groups.get(name);
  wire::put_changes_in_force(limits, &group.configured, &group.limits);
  wire::Grant grant = server::make_grant(admit);
  server::give_limits(group, server::make_grant(admit), &grant);
  must_be_printable(group.name);
  group.members = 1;
  groups.leave(group.number);
}

void use(const wire::Admit& admit) {
  use(admit.hello);
  use_group(field_text(admit.group), admit.group_limits, admit);
  if (admit.partition.sms == 0) return;
  if (server::make_grant(admit).limits.active_thread_percentage != 100) abort();
  server::Reservations reservations;
  const Result<server::Reservation*> made = reservations.add(admit.partition);
  if (!made.ok() || reservations.find(admit.partition) != *made) abort();
  if (reservations.number_for({admit.pid, 1, field_text(admit.hello.command)}) != 0) abort();
}
void use(const wire::SetGroup& message) {
  use_group(field_text(message.group), message.limits, wire::Admit());
}
void use(const wire::Welcome& welcome) { must_be_printable(field_text(welcome.reason)); }
void use(const wire::WorkerReady& ready) { must_be_printable(field_text(ready.reason)); }
void use(const wire::SessionReady& ready) { must_be_printable(field_text(ready.reason)); }
void use(const wire::SessionFault& fault) { must_be_printable(field_text(fault.reason)); }
void use(const wire::Totals& totals) {
  control::History history;
  history.note_totals("main", totals.row, {{"", "GPU-a", "A", 8, 1}});
  history.on_server_gone("main");
  const auto lines = history.totals("main", control::History::With::kLastWord);
  if (lines.size() != (totals.row.sessions == 0 ? 0 : 1)) abort();
  static_cast<void>(control::format_totals_json(lines));
  static_cast<void>(control::totals_listing(lines));
}
void use(const wire::Event& event) {
  control::History history;
  history.note(
      {.server = "main", .kind = event.event, .text = std::string(field_text(event.text))});
  static_cast<void>(control::format_events(history.events()));
  static_cast<void>(control::format_events_json(history.events(), history.counts()));
}
void use(const wire::ServerReady& ready) { must_be_printable(field_text(ready.reason)); }
void use(const wire::OpenSession& open) { must_be_printable(field_text(open.command)); }
void change(const wire::Query& query) {
  wire::Grant grant;
  const wire::ClientLimits& granted = grant.limits;
  const auto devices = static_cast<uint32_t>(some_devices().size());
  const CUresult result = server::apply(query.change, devices, &grant);
  if (!(granted.active_thread_percentage > 0 && granted.active_thread_percentage <= 100)) abort();
  if (result != CUDA_SUCCESS && granted != wire::ClientLimits()) abort();
  if (granted.client_priority > 1 && granted.client_priority != wire::kNoPriority) abort();
  if (query.query == wire::QueryKind::kReserve) {
    server::Reservations reservations;
    const Result<server::Reservation*> made = reservations.add(query);
    if (!made.ok() || reservations.find(query) != *made) abort();
  }
}

void use(const wire::Query& query) {
  change(query);
  server::Groups groups;
  server::Group& group = groups.get(field_text(query.change.name));
  const CUresult result =
      server::apply(query.change, static_cast<uint32_t>(some_devices().size()), &group.limits);
  const float percentage = group.limits.active_thread_percentage;
  if (!(percentage > 0 && percentage <= 100)) abort();
  if (result != CUDA_SUCCESS && group.limits != wire::ClientLimits()) abort();
  const std::vector<std::byte> answer =
      server::make_answer(query, wire::ServerState::kActive, server::SessionTable(), groups,
                          server::History(), some_devices());
  if (!wire::read_header(answer).ok()) abort();
}
template <typename Message>
void use(const Message&) {}

template <typename... Structs>
size_t read_as_any(Bytes packet, wire::MessageList<Structs...>) {
  size_t fitting = 0;
  const auto one = [&]<typename T>(const T*) {
    T message;
    if (!wire::read_message(packet, &message).ok()) return;
    ++fitting;
    kinds_read().insert(message.header.kind);
    use(message);
  };
  (one(static_cast<const Structs*>(nullptr)), ...);
  return fitting;
}

// The texts of a server's answer are printed by the shell and in logs.
void read_as_answer(Bytes packet) {
  const Result<control::ServerAnswer> answer = control::read_answer(packet, 4711);
  if (!answer.ok()) return;
  kinds_read().insert(MessageKind::kAnswer);
  if (answer->clients.size() > wire::kMaxClientRows) abort();
  if (answer->groups.size() > wire::kMaxGroupRows) abort();
  if (answer->totals.size() > wire::kMaxTotalsRows) abort();
  std::string printed = control::format_ps(answer->clients) +
                        control::format_groups(answer->groups) +
                        control::format_groups_json(answer->groups) +
                        control::format_device_clients(answer->devices, answer->clients) +
                        control::format_devices("", answer->devices, true);
  if (answer->inspected) {
    printed += control::format_inspected(*answer->inspected) +
               control::format_inspected_json(*answer->inspected);
  }
  for (const char c : printed) {
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') abort();
  }
}

// Reads the packet as the shell reads the daemon's reply.
void read_as_reply(Bytes packet) {
  Result<std::pair<UniqueFd, UniqueFd>> ends = make_socket_pair();
  if (!ends.ok()) abort();
  if (packet.empty() || !send_packet(ends->second.get(), packet).ok()) return;
  const int daemon = ends->second.get();
  if (shutdown(daemon, SHUT_WR) != 0) abort();
  const Result<wire::ControlReply> reply = wire::call_control(ends->first.get(), "ps");
  if (!reply.ok()) return;
  kinds_read().insert(MessageKind::kUiReply);
  if (reply->text.size() > packet.size()) abort();
}

}  // namespace
}  // namespace openmps

// Whether every kind of message has been read, except for the shell's command, which command_fuzz
// covers.
extern "C" bool corpus_is_complete() {
  using openmps::wire::MessageKind;
  bool complete = true;
  for (uint32_t kind = 0; kind <= static_cast<uint32_t>(MessageKind::kMemoryShort); ++kind) {
    const auto known = static_cast<MessageKind>(kind);
    switch (known) {
      case MessageKind::kHello:
      case MessageKind::kWelcome:
      case MessageKind::kUiReply:
      case MessageKind::kAdmit:
      case MessageKind::kServerReady:
      case MessageKind::kQuery:
      case MessageKind::kAnswer:
      case MessageKind::kShutdown:
      case MessageKind::kShutdownRefused:
      case MessageKind::kRejoin:
      case MessageKind::kTotals:
      case MessageKind::kEvent:
      case MessageKind::kWorkerReady:
      case MessageKind::kOpenSession:
      case MessageKind::kSessionReady:
      case MessageKind::kCloseSession:
      case MessageKind::kSessionClosed:
      case MessageKind::kWindowFree:
      case MessageKind::kSessionFault:
      case MessageKind::kPassDescriptor:
      case MessageKind::kDescriptorTaken:
      case MessageKind::kChangeSession:
      case MessageKind::kReserve:
      case MessageKind::kReserved:
      case MessageKind::kSetGroup:
      case MessageKind::kChangeGroup:
      case MessageKind::kProbe:
      case MessageKind::kAlive:
      case MessageKind::kWorkerLost:
      case MessageKind::kHandedOver:
      case MessageKind::kKeep:
      case MessageKind::kForget:
      case MessageKind::kForgotten:
      case MessageKind::kGive:
      case MessageKind::kLeaveSession:
      case MessageKind::kShareMemory:
      case MessageKind::kFindMemory:
      case MessageKind::kSuspendSession:
      case MessageKind::kSessionSuspended:
      case MessageKind::kMemoryShort:
        if (openmps::kinds_read().contains(known)) break;
        printf("no seed of the corpus is a message of kind %u\n", kind);
        complete = false;
        break;
      case MessageKind::kUiCommand: break;
    }
  }
  return complete;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace openmps;
  const Bytes packet = std::as_bytes(std::span(data, size));
  const size_t fitting = read_as_any(packet, wire::Messages());
  if (fitting > 1) abort();
  if (fitting == 1 && !wire::read_header(packet).ok()) abort();
  read_as_answer(packet);
  read_as_reply(packet);
  // Text that follows a header: device lines of a server's answer.
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<control::Device> devices = control::parse_devices(text);
  std::vector<control::ClientLine> clients(1);
  clients[0].command = printable(text);
  clients[0].device_uuid = printable(text);
  static_cast<void>(control::format_ps(clients));
  static_cast<void>(control::format_ps_json(clients));
  static_cast<void>(control::format_device_clients(devices, clients));
  static_cast<void>(control::format_devices("", devices, true));
  return 0;
}
