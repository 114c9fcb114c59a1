// SPDX-License-Identifier: Apache-2.0
// What the worker tells its server. One packet per message, so any thread may send. The main
// thread, which reads from this socket, notices when the server has gone.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::worker {

class ServerReports {
 public:
  explicit ServerReports(UniqueFd socket) : socket_(std::move(socket)) {}

  // `usage`: the table of what sessions use; invalid: there is none.
  void ready(uint32_t spin_us, const UniqueFd& facts, const UniqueFd& usage);
  void not_ready(const Status& why);
  void session_ready(uint32_t session, const Status& status);
  // `tainted`: see wire::SessionClosed.
  void session_closed(uint32_t session, bool tainted);
  // No session has anything left in the window.
  void window_free(uint32_t window);
  // `session` 0: the contexts of all sessions are lost.
  void session_fault(uint32_t session, CUresult result, std::string_view reason);
  // Passes a descriptor on to the client. The caller keeps its own.
  void pass_descriptor(uint32_t session, uint32_t ticket, int descriptor);
  // The result of Reserve `number`.
  void reserved(uint32_t number, CUresult result, uint32_t sms);
  // The main thread runs.
  void answer_probe();
  // The session has received a descriptor from its client.
  void descriptor_taken(uint32_t session);

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
};

}  // namespace openmps::worker
