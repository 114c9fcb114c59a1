// SPDX-License-Identifier: Apache-2.0
// See rpc_server.h.
#include "kubernetes/rpc_server.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace openmps::kubernetes {

std::optional<FileIdentity> identity_of(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return FileIdentity{info.st_dev, info.st_ino, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

RpcServer::RpcServer(std::string path, std::unique_ptr<grpc::Server> server)
    : path_(std::move(path)), server_(std::move(server)), socket_(identity_of(path_)) {}

Result<std::unique_ptr<RpcServer>> RpcServer::start(const std::string& path,
                                                    std::span<grpc::Service* const> services) {
  const auto failed = [&path](const std::string& why) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, path + ": " + why);
  };
  if (path.size() >= sizeof(sockaddr_un::sun_path)) return failed("too long for a socket");
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  for (grpc::Service* const service : services) builder.RegisterService(service);
  errno = 0;
  // The socket's mode follows from the process's mask, which main() has set.
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return failed(errno != 0 ? strerror(errno) : "no socket can be made");
  return std::unique_ptr<RpcServer>(new RpcServer(path, std::move(server)));
}

RpcServer::~RpcServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

grpc::Status rpc_status(const Status& status) {
  switch (status.code()) {
    case CUDA_SUCCESS: return grpc::Status::OK;
    case CUDA_ERROR_INVALID_VALUE: return {grpc::StatusCode::INVALID_ARGUMENT, status.message()};
    case CUDA_ERROR_TIMEOUT: return {grpc::StatusCode::DEADLINE_EXCEEDED, status.message()};
    case CUDA_ERROR_MPS_CONNECTION_FAILED: return {grpc::StatusCode::UNAVAILABLE, status.message()};
    default: return {grpc::StatusCode::FAILED_PRECONDITION, status.message()};
  }
}

}  // namespace openmps::kubernetes
