// SPDX-License-Identifier: Apache-2.0
// See server_reports.h.
#include "worker/process/server_reports.h"

#include "base/text.h"
#include "base/unix_socket.h"
#include "wire/message.h"

namespace openmps::worker {
namespace {

// How long sending waits for socket buffers. By then the receiver has given up (a client waits 10 s
// for a descriptor; the server's limit for a worker that starts is in server/workers.h).
constexpr uint64_t kSendMs = 60'000;
constexpr uint64_t kPassMs = 10'000;

// Fails only if the server has gone, which the main thread notices.
template <typename T>
void send(const UniqueFd& socket, const T& message, std::span<const int> fds = {},
          uint64_t limit_ms = kSendMs) {
  static_cast<void>(
      send_packet_within(limit_ms, socket.get(), wire::message_bytes(message), fds).ok());
}

template <typename T>
T with_reason(T message, std::string_view reason) {
  fill_field(message.reason, reason);
  return message;
}

}  // namespace

void ServerReports::ready(uint32_t spin_us, const UniqueFd& facts, const UniqueFd& usage) {
  const int fds[] = {facts.get(), usage.get()};
  send(socket_, wire::WorkerReady{.spin_us = spin_us}, std::span(fds).first(usage.valid() ? 2 : 1));
}

void ServerReports::not_ready(const Status& why) {
  send(socket_, with_reason(wire::WorkerReady{.result = why.code()}, why.message()));
}

void ServerReports::session_ready(uint32_t session, const Status& status) {
  const wire::SessionReady message{.session = session, .result = status.code()};
  send(socket_, with_reason(message, status.message()));
}

void ServerReports::session_closed(uint32_t session, bool tainted) {
  send(socket_, wire::SessionClosed{.session = session, .tainted = tainted ? 1u : 0u});
}

void ServerReports::window_free(uint32_t window) {
  send(socket_, wire::WindowFree{.window = window});
}

void ServerReports::session_fault(uint32_t session, CUresult result, std::string_view reason) {
  const wire::SessionFault message{.session = session, .result = result};
  send(socket_, with_reason(message, reason));
}

void ServerReports::pass_descriptor(uint32_t session, uint32_t ticket, int descriptor) {
  const int fds[] = {descriptor};
  send(socket_, wire::PassDescriptor{.session = session, .ticket = ticket}, fds, kPassMs);
}

void ServerReports::reserved(uint32_t number, CUresult result, uint32_t sms) {
  send(socket_, wire::Reserved{.number = number, .result = result, .sms = sms});
}

void ServerReports::answer_probe() { send(socket_, wire::Alive{}); }

void ServerReports::descriptor_taken(uint32_t session) {
  send(socket_, wire::DescriptorTaken{.session = session});
}

}  // namespace openmps::worker
