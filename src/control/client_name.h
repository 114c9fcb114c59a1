// SPDX-License-Identifier: Apache-2.0
// How commands name a client. Its PID is what the kernel tells the daemon; of a client in a PID
// namespace that the daemon can't see, which is any that is neither the daemon's own nor below it,
// the kernel tells 0. Pure functions, used by CommandRunner and the lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace openmps::control {

// A PID above 0; or "id:3", the ID that ps shows, which is unique within a server; "id:3@4711" says
// within which, by its PID.
struct ClientName {
  uint32_t pid = 0;
  uint32_t id = 0;
  std::string server;  // "": not said
};

// Nothing: the text names no client.
std::optional<ClientName> parse_client_name(std::string_view text);
// As which commands take it.
std::string client_name(uint32_t pid, uint32_t id);
// Is the text the PID of all who have none?
bool is_nobodys_pid(std::string_view text);

// A line that says how such clients are named.
inline constexpr const char* kNobodysPid =
    "0 is no client's PID: clients that have none here are named by their ID, as ps shows it, like "
    "id:3\n";
// Another that says what else that means.
inline constexpr const char* kNoPidNote =
    "Clients named id:... have no PID here: they are in a PID namespace that the daemon can't see, "
    "and rules by cgroup do not fit them\n";

}  // namespace openmps::control
