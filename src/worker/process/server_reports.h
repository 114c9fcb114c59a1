// SPDX-License-Identifier: Apache-2.0
// What the worker tells its server. One packet per message, so any thread may send. A server that
// has gone is noticed by the main thread, which reads the same socket.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::worker {

class ServerReports {
 public:
  explicit ServerReports(UniqueFd socket) : socket_(std::move(socket)) {}

  // `usage`: its table of what sessions use, invalid if there is none.
  void ready(uint32_t spin_us, const UniqueFd& facts, const UniqueFd& usage);
  void not_ready(const Status& why);
  void session_ready(uint32_t session, const Status& status);
  // `tainted`: see wire::SessionClosed.
  void session_closed(uint32_t session, bool tainted);
  // Nothing of a session that used it is left; from any thread.
  void window_free(uint32_t window);
  // session 0: the whole context.
  void session_fault(uint32_t session, CUresult result, std::string_view reason);
  // To the client; the descriptor stays the caller's.
  void pass_descriptor(uint32_t session, uint32_t ticket, int descriptor);
  // What became of a Reserve.
  void reserved(uint32_t number, CUresult result, uint32_t sms);
  // The main thread is there.
  void answer_probe();
  // The session has one that came from its client.
  void descriptor_taken(uint32_t session);

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
};

}  // namespace openmps::worker
