// SPDX-License-Identifier: Apache-2.0
// The daemon's server for containers of Kubernetes, and its namespaces: commands with their
// answers. Blocking, any thread; each call has a connection of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/status.h"
#include "kubernetes/grant.h"
#include "observe/cdi.h"
#include "observe/snapshot.h"

namespace openmps::kubernetes {

// Errors of all calls: CUDA_ERROR_MPS_CONNECTION_FAILED: there is no daemon, or it has gone before
// it answered; CUDA_ERROR_NOT_PERMITTED: another user's process listens in its place;
// CUDA_ERROR_INVALID_VALUE: the daemon refuses, with its words; CUDA_ERROR_TIMEOUT.
class Daemon {
 public:
  // The name of the server, which is made when it is not there.
  explicit Daemon(std::string server) : server_(std::move(server)) {}

  // The node's GPUs.
  [[nodiscard]] Result<std::vector<observe::Device>> devices() const;
  // The namespaces of the server.
  [[nodiscard]] Result<std::vector<observe::Share>> namespaces() const;
  // Makes the namespace, or gives it these limits if it is there. The directory of its socket.
  [[nodiscard]] Result<std::string> make(const Grant& grant,
                                         const std::vector<observe::Device>& node) const;
  // CUDA_ERROR_INVALID_VALUE also if it has clients.
  [[nodiscard]] Status remove(const std::string& name) const;
  // Removes it with its clients. A namespace that is not there is no error.
  [[nodiscard]] Status end(const std::string& name) const;

 private:
  [[nodiscard]] Status make_server() const;
  [[nodiscard]] Result<std::string> find(const std::string& name) const;

  const std::string server_;
};

// Notices that the daemon goes and comes: a connection on which nothing is said. One thread.
class DaemonWatch {
 public:
  // Whether there is a daemon; connects to it unless there is a connection. `is_another`: it is not
  // known to be the one of the last call.
  bool look(bool* is_another);
  // Why there is none.
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  UniqueFd socket_;
  std::string reason_;
};

}  // namespace openmps::kubernetes
