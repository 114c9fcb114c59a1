// SPDX-License-Identifier: Apache-2.0
// The groups of a server: sets of its clients that have limits together (docs/decisions/0029). Who
// is in which the daemon says with each client. Used by Server on the loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "wire/handshake.h"

namespace openmps::server {

struct Group {
  uint32_t number = 0;
  std::string name;
  wire::GroupLimits configured;  // by the configuration, as far as the server has been told,
  wire::GroupLimits limits;      // and as commands have changed them since: what is in force
  bool stays = false;            // it is there without members, too
  uint32_t members = 0;
};

class Groups {
 public:
  // The group of that name, made if there is none. With kMost of them the oldest goes that has no
  // members; so many clients a server does not have.
  Group& get(std::string_view name);
  [[nodiscard]] Group* find(uint32_t number);
  [[nodiscard]] Group* find(std::string_view name);
  // A member has left. Nothing is kept of a group of which nobody says anything.
  void leave(uint32_t number);
  // All of a rule of the configuration: the group of that name, and those whose name begins with it
  // and a colon.
  [[nodiscard]] static bool is_of(const Group& group, std::string_view rule);
  // Forget one that is not to stay, if nothing of it is left to know.
  void forget_unused(uint32_t number);
  // By number.
  [[nodiscard]] const std::map<uint32_t, Group>& all() const { return all_; }

 private:
  static constexpr size_t kMost = 2 * wire::kMaxWindows;

  std::map<uint32_t, Group> all_;
  uint32_t last_ = 0;
};

// Whatever the configuration says in another way than before is in force in place of what is.
void configure(const wire::GroupLimits& now, Group* group);
// The group's priority, if it has one, is each member's. `own`: what that would have in no group.
void give_priority(const Group& group, const wire::Grant& own, wire::Grant* grant);

}  // namespace openmps::server
