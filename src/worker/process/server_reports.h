// SPDX-License-Identifier: Apache-2.0
// What the worker tells its server (wire/handshake.h). One packet per message, so any thread may
// send. The main thread, which reads from this socket, notices when the server has gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/unique_fd.h"
#include "base/unix_socket.h"
#include "wire/message.h"

namespace openmps::worker {

class ServerReports {
 public:
  // How long sending waits for socket buffers. By then the receiver has given up (a client waits
  // 10 s for a descriptor; the server's limit for a worker that starts is in server/workers.h).
  static constexpr uint64_t kSendMs = 60'000;
  static constexpr uint64_t kPassMs = 10'000;

  explicit ServerReports(UniqueFd socket) : socket_(std::move(socket)) {}

  // The caller keeps its descriptors. Fails only if the server has gone.
  template <typename T>
  void send(const T& message, std::span<const int> fds = {}, uint64_t limit_ms = kSendMs) {
    static_cast<void>(
        send_packet_within(limit_ms, socket_.get(), wire::message_bytes(message), fds).ok());
  }
  // A message of any kind. False: the server has gone, or there was no buffer within the limit.
  [[nodiscard]] bool send_bytes(std::span<const std::byte> message, std::span<const int> fds,
                                uint64_t limit_ms) {
    return send_packet_within(limit_ms, socket_.get(), message, fds).ok();
  }
  // With text that says why.
  template <typename T>
  void send(T message, std::string_view reason) {
    fill_field(message.reason, reason);
    send(message);
  }

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
};

}  // namespace openmps::worker
