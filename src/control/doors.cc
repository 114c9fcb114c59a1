// SPDX-License-Identifier: Apache-2.0
// See doors.h.
#include "control/doors.h"

#include <sys/epoll.h>
#include <sys/types.h>

#include "base/unix_socket.h"
#include "wire/control_call.h"

namespace openmps::control {
namespace {

constexpr mode_t kOpenMode = 0666;
constexpr mode_t kOwnersMode = 0600;

}  // namespace

Doors::~Doors() { close_all(); }

std::string Doors::path(const std::string& server, const std::string& name) const {
  return directory_.path() + "/" + server + (name.empty() ? "" : "/" + name);
}

Status Doors::open(const std::string& server, const std::string& name, const Access& access) {
  std::vector<Socket>& sockets = open_[{server, name}];
  if (!sockets.empty()) return Status();
  const Door door{server, name};
  Status status;
  if (name == kDefaultNamespace) status = listen(server, door, access, &sockets);
  if (status.ok()) status = listen(server + "/" + name, door, access, &sockets);
  if (status.ok()) return status;
  remove(sockets);
  open_.erase({server, name});
  return status;
}

Status Doors::listen(const std::string& directory, const Door& door, const Access& access,
                     std::vector<Socket>* sockets) {
  const std::string path = directory_.path() + "/" + directory;
  const std::string socket_path = wire::control_socket_path(path);
  OPENMPS_RETURN_IF_ERROR(check_socket_path(socket_path));
  OPENMPS_RETURN_IF_ERROR(directory_.make_directory(directory));
  const std::string socket = directory + "/" + wire::kControlSocketName;
  directory_.remove_below(socket);
  Result<UniqueFd> listener = listen_at(socket_path, access.is_open ? kOpenMode : kOwnersMode);
  if (!listener.ok()) return listener.status();
  OPENMPS_RETURN_IF_ERROR(directory_.give(socket, access.owner));
  const int fd = listener->get();
  OPENMPS_RETURN_IF_ERROR(
      loop_.watch(fd, EPOLLIN, [this, fd, door](uint32_t) { on_connection_(fd, door); }));
  sockets->push_back({directory, std::move(listener).value()});
  return Status();
}

void Doors::remove_sockets() const {
  for (const auto& [door, sockets] : open_) {
    for (const Socket& socket : sockets) {
      directory_.remove_below(socket.directory + "/" + wire::kControlSocketName);
    }
  }
}

void Doors::remove(std::vector<Socket>& sockets, bool keeps_directories) {
  while (!sockets.empty()) {
    Socket& socket = sockets.back();
    loop_.forget(socket.listener.get());
    disposal_.close(std::move(socket.listener));
    directory_.remove_below(socket.directory + "/" + wire::kControlSocketName);
    if (!keeps_directories) directory_.remove_below(socket.directory);
    sockets.pop_back();
  }
}

void Doors::close(const std::string& server, const std::string& name) {
  const auto found = open_.find({server, name});
  if (found == open_.end()) return;
  remove(found->second);
  open_.erase(found);
}

void Doors::close(const std::string& server) {
  std::vector<std::string> names;
  for (const auto& [door, sockets] : open_) {
    if (door.first == server) names.push_back(door.second);
  }
  for (const std::string& name : names) close(server, name);
  directory_.remove_below(server);
}

// A directory that has others below it is not removed.
void Doors::close_all(const Stays& stays) {
  std::vector<std::string> servers;
  for (auto& [door, sockets] : open_) {
    remove(sockets, stays != nullptr && stays(door.first, door.second));
    servers.push_back(door.first);
  }
  open_.clear();
  for (const std::string& server : servers) {
    const bool stays_there = stays != nullptr && stays(server, kDefaultNamespace);
    if (!stays_there) directory_.remove_below(server);
  }
}

std::vector<int> Doors::listeners() const {
  std::vector<int> all;
  for (const auto& [door, sockets] : open_) {
    for (const Socket& socket : sockets) all.push_back(socket.listener.get());
  }
  return all;
}

}  // namespace openmps::control
