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

}  // namespace

void ServerReports::ready(uint32_t spin_us, const UniqueFd& facts, const UniqueFd& usage) {
  wire::WorkerReady message;
  message.spin_us = spin_us;
  const int fds[] = {facts.get(), usage.get()};
  send(socket_, message, std::span(fds).first(usage.valid() ? 2 : 1));
}

void ServerReports::not_ready(const Status& why) {
  wire::WorkerReady message;
  message.result = why.code();
  fill_field(message.reason, why.message());
  send(socket_, message);
}

void ServerReports::session_ready(uint32_t session, const Status& status) {
  wire::SessionReady message;
  message.session = session;
  message.result = status.code();
  fill_field(message.reason, status.message());
  send(socket_, message);
}

void ServerReports::session_closed(uint32_t session, bool tainted) {
  wire::SessionClosed message;
  message.session = session;
  message.tainted = tainted ? 1 : 0;
  send(socket_, message);
}

void ServerReports::window_free(uint32_t window) {
  wire::WindowFree message;
  message.window = window;
  send(socket_, message);
}

void ServerReports::session_fault(uint32_t session, CUresult result, std::string_view reason) {
  wire::SessionFault message;
  message.session = session;
  message.result = result;
  fill_field(message.reason, reason);
  send(socket_, message);
}

void ServerReports::pass_descriptor(uint32_t session, uint32_t ticket, int descriptor) {
  wire::PassDescriptor message;
  message.session = session;
  message.ticket = ticket;
  const int fds[] = {descriptor};
  send(socket_, message, fds, kPassMs);
}

void ServerReports::reserved(uint32_t number, CUresult result, uint32_t sms) {
  wire::Reserved message;
  message.number = number;
  message.result = result;
  message.sms = sms;
  send(socket_, message);
}

void ServerReports::answer_probe() { send(socket_, wire::Alive{}); }

void ServerReports::descriptor_taken(uint32_t session) {
  wire::DescriptorTaken message;
  message.session = session;
  send(socket_, message);
}

}  // namespace openmps::worker
