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
  // Makes the namespace, and the partitions of an exclusive grant, or gives it these limits if it
  // is there. The directory of its socket.
  [[nodiscard]] Result<std::string> make(const Grant& grant,
                                         const std::vector<observe::Device>& node) const;
  // CUDA_ERROR_INVALID_VALUE also if it has clients.
  [[nodiscard]] Status remove(const std::string& name) const;
  // Removes it with its clients, and the partitions that have its name. That it is not there is no
  // error; that a partition has clients yet is one.
  [[nodiscard]] Status end(const std::string& name) const;

  struct Partition {
    std::string device;  // its UUID
    std::string name;
  };
  // Those of the server.
  [[nodiscard]] Result<std::vector<Partition>> partitions() const;

 private:
  [[nodiscard]] Status make_server() const;
  [[nodiscard]] Status make_partitions(const Grant& grant,
                                       const std::vector<observe::Device>& node) const;
  [[nodiscard]] Result<std::string> find(const std::string& name) const;

  const std::string server_;
};

// Notices that the daemon goes and comes, by a connection on which nothing is said, and says when
// to ask it for what it has. One thread.
class DaemonWatch {
 public:
  enum class Sight { kAway, kKnown, kToBeAsked };
  // Connects unless there is a connection. A daemon is to be asked when it is new, and after that
  // once in a while.
  Sight look();
  // Whether the daemon's answers were good: if not, it is asked again soon.
  void answered(bool good);
  // Why it is away.
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  UniqueFd socket_;
  std::string reason_;
  uint64_t next_ns_ = 0;
};

}  // namespace openmps::kubernetes
