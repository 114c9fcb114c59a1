// SPDX-License-Identifier: Apache-2.0
// The directories in which daemons serve if nothing else is said.
#include "wire/daemon_search.h"

#include <unistd.h>

#include <optional>
#include <string_view>
#include <utility>

#include "base/environment.h"
#include "wire/control_call.h"

namespace openmps::wire {
namespace {

constexpr const char* kVariable = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kUsual[] = {kRootsPipeDirectory, kRootsNvidiaPipeDirectory,
                                  kUsersPipeDirectory};

DaemonSearch look_in(std::string directory) {
  Result<UniqueFd> socket = connect_to_daemon(control_socket_path(directory));
  return {std::move(directory), std::move(socket)};
}

}  // namespace

std::string pipe_directory_to_serve(bool nvidia_name) {
  const char* usual = nvidia_name ? kRootsNvidiaPipeDirectory : kRootsPipeDirectory;
  return environment_or(kVariable, geteuid() == 0 ? usual : kUsersPipeDirectory);
}

std::span<const char* const> usual_pipe_directories() { return kUsual; }

DaemonSearch find_daemon(std::span<const char* const> usual) {
  if (std::string named = environment_or(kVariable, ""); !named.empty()) {
    return look_in(std::move(named));
  }
  std::optional<DaemonSearch> not_trusted;
  for (const char* directory : usual) {
    DaemonSearch search = look_in(directory);
    if (search.socket.ok()) return search;
    if (search.socket.status().code() == CUDA_ERROR_NOT_PERMITTED) not_trusted = std::move(search);
  }
  return not_trusted ? std::move(*not_trusted) : look_in(pipe_directory_to_serve(false));
}

std::string other_daemon_than(const std::string& own, std::span<const char* const> usual) {
  for (const char* directory : usual) {
    if (directory == own) continue;
    // A daemon that starts must not be held up by what somebody has put in /tmp.
    if (connect_to_daemon(control_socket_path(directory), Waits::kNo).ok()) return directory;
  }
  return "";
}

bool requires_daemon() {
  const char* value = environment_variable("OPENMPS_REQUIRED");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace openmps::wire
