// SPDX-License-Identifier: Apache-2.0
// Servers that the configuration or a command names, and their namespaces: sets of clients with
// limits together, each with a directory and a socket of its own, through which its members come
// (docs/decisions/0048). A namespace is a group (groups.h) of its server. Here is which of them
// there are, who may come into each, and which one a client belongs to. Pure, on the daemon's loop;
// ServerPool runs the servers, Doors has the sockets.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/groups.h"
#include "control/user.h"
#include "cuda/status.h"
#include "wire/handshake.h"

namespace openmps::control {

// The namespace of clients that come by their server's own socket. Each server has it.
inline constexpr const char* kDefaultNamespace = "default";
// Namespaces of all servers: as many as a server can have clients. Each has a listening socket.
inline constexpr size_t kMaxNamespaces = wire::kMaxWindows;
// Servers of one user. Each costs a context per GPU, and any user may make one.
inline constexpr size_t kMaxServersOfUser = 8;

struct NamedServer {
  std::string name;
  User user;
  // UUIDs; empty: all devices.
  std::vector<std::string> devices = {};
  // By name; `default` is always there.
  std::map<std::string, GroupRule> namespaces = {};
};

// Who may come through the socket of a namespace: its owner, root, and perhaps everybody.
struct Access {
  uid_t owner = 0;
  bool is_open = false;
  [[nodiscard]] bool admits(uid_t user) const { return is_open || user == owner || user == 0; }
};

// The name that the server of a user has who has named none.
std::string name_of_users_server(uid_t uid);
// The user whose server has that name; nothing: it is no such name.
std::optional<uid_t> user_of_server_name(std::string_view name);
// Letters, digits, '_' and '-', at most 64: names of directories that are neither hidden nor look
// like a file of the daemon.
bool names_a_share(std::string_view text);
// What is wrong with a name, for the user; "": nothing.
std::string fault_of_name(std::string_view what, std::string_view name);

// "latency", "normal" or "best-effort", as a program states in OPENMPS_QOS.
std::optional<wire::Quality> quality_of_text(std::string_view text);
std::string_view text_of_quality(wire::Quality quality);

// A directory below the root of the system's cgroups as a path that /proc/PID/cgroup shows;
// nothing: it is not below.
std::optional<std::string> cgroup_of_directory(std::string_view directory);

// Where a client belongs.
struct Place {
  std::string server;
  std::string group;  // "": in none
  std::string note;   // for the log
};

class NamedServers {
 public:
  // `multiuser`: servers of root's serve everybody.
  explicit NamedServers(uid_t daemon) : daemon_(daemon) {}
  void serve_everybody() { multiuser_ = true; }

  [[nodiscard]] const std::map<std::string, NamedServer>& all() const { return all_; }
  [[nodiscard]] NamedServer* find(std::string_view server);
  [[nodiscard]] const NamedServer* find(std::string_view server) const;
  // Null: there is none.
  [[nodiscard]] GroupRule* find(std::string_view server, std::string_view name);
  [[nodiscard]] const GroupRule* find(std::string_view server, std::string_view name) const;

  // CUDA_ERROR_INVALID_VALUE: the name is no name; CUDA_ERROR_ALREADY_ACQUIRED: it is there;
  // CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: there are too many.
  Status add(NamedServer server);
  Status add(std::string_view server, GroupRule rule);
  void remove(std::string_view server);
  void remove(std::string_view server, std::string_view name);

  // The server must be there.
  [[nodiscard]] Access access(const NamedServer& server, const GroupRule& rule) const;
  // Whether the user may come through that socket; nothing: it is not there.
  [[nodiscard]] bool may_come(std::string_view server, std::string_view name, uid_t user) const;

  // The place of a client that has come by the daemon's own socket: the namespace of its cgroup if
  // it may be there and the server is its own user's, root's or the daemon's user's (else any user
  // could draw others' programs into a process of theirs); else its user's server, in a group by
  // `rules` or by its own word. `cgroups`: from read_cgroups().
  [[nodiscard]] Place route(const std::vector<GroupRule>& rules, const Applicant& applicant,
                            const std::optional<std::vector<std::string>>& cgroups) const;
  // Whether the place of clients depends on their cgroups.
  [[nodiscard]] bool asks_for_cgroups() const;

 private:
  [[nodiscard]] size_t count() const;

  const uid_t daemon_;
  bool multiuser_ = false;
  std::map<std::string, NamedServer> all_;
};

}  // namespace openmps::control
