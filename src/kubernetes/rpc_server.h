// SPDX-License-Identifier: Apache-2.0
// A gRPC server at a Unix socket of its own, which only the process's user and root may use; and
// whether a file at a path is still the same one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cuda/status.h"

namespace grpc {
class Server;
class Service;
class Status;
}  // namespace grpc

namespace openmps::kubernetes {

struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  // When it was changed: the number of a file that has gone may be given to the next one.
  time_t changed_s = 0;
  long changed_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};
// Nothing: there is no such file.
std::optional<FileIdentity> identity_of(const std::string& path);

class RpcServer {
 public:
  // The services have to live longer, and their calls have to end soon after their clients' or the
  // server's end. Errors: CUDA_ERROR_OPERATING_SYSTEM.
  static Result<std::unique_ptr<RpcServer>> start(const std::string& path,
                                                  std::span<grpc::Service* const> services);
  // Waits until all calls have ended.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;
  // Whether clients that look for it at its path find it there.
  [[nodiscard]] bool is_reachable() const { return socket_ && identity_of(path_) == socket_; }

 private:
  RpcServer(std::string path, std::unique_ptr<grpc::Server> server);

  const std::string path_;
  const std::unique_ptr<grpc::Server> server_;
  const std::optional<FileIdentity> socket_;  // nothing: somebody has removed it at once
};

// The status that a call ends with, with the text of `status`.
grpc::Status rpc_status(const Status& status);

}  // namespace openmps::kubernetes
