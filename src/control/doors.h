// SPDX-License-Identifier: Apache-2.0
// The directories of named servers and their namespaces below the pipe directory, each with a
// socket through which clients come into that namespace (docs/decisions/0048):
//   SERVER/openmps.control            as SERVER/default/openmps.control
//   SERVER/NAMESPACE/openmps.control
// All directories are the daemon's, so nobody else can replace a socket; its owner and mode say who
// may connect. A directory that a container has mounted stays the same one when a killed daemon is
// replaced. Used by Daemon on the loop.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/disposal.h"
#include "base/event_loop.h"
#include "control/named_servers.h"
#include "control/pipe_directory.h"

namespace openmps::control {

// What a connection has come through; no server: the daemon's own socket.
struct Door {
  std::string server = {};
  std::string group = {};
  [[nodiscard]] bool is_main() const { return server.empty(); }
};

class Doors {
 public:
  // `on_connection` is called when somebody waits to be accepted at the listening descriptor.
  using OnConnection = std::function<void(int listener, const Door& door)>;
  Doors(EventLoop& loop, const PipeDirectory& directory, Disposal& disposal,
        OnConnection on_connection)
      : loop_(loop),
        directory_(directory),
        disposal_(disposal),
        on_connection_(std::move(on_connection)) {}
  ~Doors();
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  // Makes what is missing of the namespace's sockets. CUDA_ERROR_INVALID_VALUE: a path is too long
  // for a socket, with the number; CUDA_ERROR_OPERATING_SYSTEM.
  Status open(const std::string& server, const std::string& name, const Access& access);
  // Nobody else can connect; who has, is served.
  void remove_sockets() const;
  void close(const std::string& server, const std::string& name);
  // That, of all namespaces of the server.
  void close(const std::string& server);
  // Directories for which `stays` is true remain, empty: what has mounted one reaches the next
  // daemon by it.
  using Stays = std::function<bool(const std::string& server, const std::string& name)>;
  void close_all(const Stays& stays = nullptr);
  // Listening descriptors, to pause or wake all of them.
  [[nodiscard]] std::vector<int> listeners() const;

  [[nodiscard]] std::string path(const std::string& server, const std::string& name) const;

 private:
  struct Socket {
    std::string directory;  // below the pipe directory
    UniqueFd listener;
  };
  Status listen(const std::string& directory, const Door& door, const Access& access,
                std::vector<Socket>* sockets);
  void remove(std::vector<Socket>& sockets, bool keeps_directories = false);

  EventLoop& loop_;
  const PipeDirectory& directory_;
  Disposal& disposal_;
  OnConnection on_connection_;
  std::map<std::pair<std::string, std::string>, std::vector<Socket>> open_;
};

}  // namespace openmps::control
