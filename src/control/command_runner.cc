// SPDX-License-Identifier: Apache-2.0
// See command_runner.h.
#include "control/command_runner.h"

#include <unistd.h>

#include "base/text.h"

namespace openmps::control {

std::string CommandRunner::reason_against(const Command& command, User caller) const {
  const User daemon{geteuid(), getegid()};
  const Right right = command.info->right;
  if (right == Right::kEverybody || may_control(caller.uid, daemon.uid, daemon.uid)) return "";
  if (right == Right::kSelf && command.uid.value_or(caller.uid) == caller.uid) return "";
  std::string whose;
  if (right == Right::kServerOwner) {
    const ServerProcess* server = servers_.find(command.server);
    if (server == nullptr || may_control(caller.uid, server->user().uid, daemon.uid)) return "";
    whose = format_text(" for user %u, whose server that is,", server->user().uid);
  }
  return format_text("Permission denied: %s is%s for root and for user %u, who runs the daemon\n",
                     command.word.c_str(), whose.c_str(), daemon.uid);
}

void CommandRunner::run(const Command& command, const Caller& caller, Done done) {
  const bool is_known = command.info != nullptr &&
                        (!command.info->is_for_partitions || servers_.requires_partitions());
  if (!is_known) return done({"Unknown command \"" + printable(command.word) + "\"\n"});
  const std::string why_not = caller.door.is_main() || command.info->is_for_members
                                  ? reason_against(command, caller.user)
                                  : "Permission denied: " + command.word +
                                        " is not for those who come by a namespace's socket\n";
  if (!why_not.empty()) return done({why_not, 1});
  command.info->run({servers_, daemon_, command, caller.user, caller.pid, caller.door,
                     caller.connection, std::move(done)});
}

}  // namespace openmps::control
