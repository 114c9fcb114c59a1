// SPDX-License-Identifier: Apache-2.0
// Which container and which pod of Kubernetes a process is in, by the path of its cgroup. The forms
// of these paths are those of runc's and crun's drivers `cgroupfs` and `systemd` as kubelet,
// containerd, CRI-O, Docker and podman name them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace openmps::exporter {

struct Place {
  std::string container;  // its ID, as far as the path has it; "": in none
  std::string pod;        // its UID; "": in none
};

// `cgroup`: one path, as in a line of /proc/PID/cgroup.
Place place_of_path(std::string_view cgroup);

// By /proc/PID/cgroup; nothing if that can't be read. And the process's user; "": not to be seen.
Place place_of_process(uint64_t pid);
std::string user_of_process(uint64_t pid);

}  // namespace openmps::exporter
