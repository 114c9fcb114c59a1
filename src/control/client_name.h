// SPDX-License-Identifier: Apache-2.0
// How commands name a client. A client's PID is what the kernel reports to the daemon. For a client
// in a PID namespace that the daemon can't see, which is any that is neither the daemon's own nor
// below it, the kernel reports 0. Pure functions, used by the handlers of commands and by the
// lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace openmps::control {

// A PID above 0; or "id:3", the ID that ps shows, which is unique within a server; "id:3@4711" also
// names the server, by its PID.
struct ClientName {
  uint32_t pid = 0;
  uint32_t id = 0;
  std::string server;  // "": not named
};

// Nothing: the text names no client.
std::optional<ClientName> parse_client_name(std::string_view text);
// The name of a client that commands take.
std::string client_name(uint32_t pid, uint32_t id);
// Whether the text is 0, the PID of all clients that the daemon can't see.
bool is_hidden_pid(std::string_view text);

// A line that tells the user how to name clients without a PID.
inline constexpr const char* kHiddenPidNote =
    "0 is no client's PID: clients that have none here are named by their ID, as ps shows it, like "
    "id:3\n";
// A line that explains to the user the clients without a PID in a list.
inline constexpr const char* kNoPidNote =
    "Clients named id:... have no PID here: they are in a PID namespace that the daemon can't see, "
    "and rules by cgroup do not fit them\n";

}  // namespace openmps::control
