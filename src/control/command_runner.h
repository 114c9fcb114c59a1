// SPDX-License-Identifier: Apache-2.0
// Carries out the commands of the control shell and makes their answers, as NVIDIA's daemon words
// them. Called by Daemon on the loop; answers that need a server come later.
#pragma once

#include <functional>
#include <string>

#include "control/client_name.h"
#include "control/command.h"
#include "control/server_pool.h"

namespace openmps::control {

struct Reply {
  std::string text;
  // The shell's exit status. NVIDIA's is 0 whatever the command's fate, and so is ours, except for
  // what NVIDIA's daemon has no word for: no permission, not supported.
  int exit_status = 0;
};

// May `caller` look into what is `owner`'s, and end it? That user may, root, and the user who runs
// the daemon.
bool is_over(User caller, User owner, uid_t daemon);

class CommandRunner {
 public:
  using Done = std::function<void(Reply)>;

  CommandRunner(ServerPool& servers, std::function<void(std::optional<uint32_t>, Done)> quit,
                std::function<Reply()> reload)
      : servers_(servers), quit_(std::move(quit)), reload_(std::move(reload)) {}

  // `done` is called once, now or later. `pid`: the caller's, 0 if it is not to be seen from here.
  void run(const Command& command, User caller, pid_t pid, Done done);

 private:
  [[nodiscard]] std::string reason_against(const Command& command, User caller) const;
  void run_for_server(const Command& command, ServerProcess& server, const Done& done);
  void start_server(const Command& command, User caller, const Done& done);
  void server_list(const Command& command, const Done& done);
  void client_table(const Command& command, const Done& done);
  void device_clients(const Command& command, const Done& done);
  void inspect(const Command& command, User caller, const Done& done);
  // Whom to ask about that client: the server that the name says, or all. None and the reason:
  // there is no such server, or an ID alone says too little.
  [[nodiscard]] std::vector<ServerProcess*> servers_with(const ClientName& client,
                                                         std::string* why_not) const;
  void group_list(const Command& command, const Done& done);
  // What a client may have, or a group, from now on.
  void change_client(const Command& command, const Done& done);
  void tell_change(const Command& command, const wire::Query& query, const Done& done);
  // -S.
  void add_partition(const Command& command, const Done& done);
  void remove_partition(const Command& command, const Done& done);
  void list_partitions(const Command& command, const Done& done);
  static void terminate(const Command& command, ServerProcess& server, const Done& done);
  // A line for each of the servers asked that is there and did not answer.
  [[nodiscard]] std::string silent_ones(const ServerPool::Answers& answers) const;
  void device_query(const Command& command, const Done& done);
  Reply change_defaults(const Command& command);

  ServerPool& servers_;
  std::function<void(std::optional<uint32_t>, Done)> quit_;
  std::function<Reply()> reload_;
};

}  // namespace openmps::control
