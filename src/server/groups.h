// SPDX-License-Identifier: Apache-2.0
// The groups of a server: sets of its clients that have limits together (docs/decisions/0029). The
// daemon names the group of each client. Used by Server on the loop's thread.
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
  wire::ClientLimits configured;  // by the configuration, as far as the server has been told
  wire::ClientLimits limits;      // in force: these, as commands have changed them since
  bool is_permanent = false;      // the group exists without members, too
  uint32_t members = 0;
};

class Groups {
 public:
  // The group of that name, made if there is none. Above kMost groups, more than there can be
  // clients, a new one replaces the oldest without members.
  Group& get(std::string_view name);
  [[nodiscard]] Group* find(uint32_t number);
  [[nodiscard]] const Group* find(uint32_t number) const;
  [[nodiscard]] Group* find(std::string_view name);
  // A member has left: forget_unused() follows.
  void leave(uint32_t number);
  // Whether the group comes from that rule of the configuration: it has the rule's name, or a name
  // that begins with it and a colon.
  [[nodiscard]] static bool is_of(const Group& group, std::string_view rule);
  // Forgets the group, unless it is permanent, has members, or a command has changed its limits.
  void forget_unused(uint32_t number);
  // By number.
  [[nodiscard]] const std::map<uint32_t, Group>& all() const { return all_; }

 private:
  static constexpr size_t kMost = 2 * wire::kMaxWindows;

  std::map<uint32_t, Group> all_;
  uint32_t last_ = 0;
};

// A group with a priority gives it to each member, and its limit of work time. `own`: the member's
// grant without a group.
void give_limits(const Group& group, const wire::Grant& own, wire::Grant* grant);

}  // namespace openmps::server
