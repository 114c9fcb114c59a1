// SPDX-License-Identifier: Apache-2.0
// See pods.h.
#include "exporter/pods.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace openmps::exporter {
namespace {

// IDs of containers are 64 hexadecimal digits. Shorter ones could be anything.
constexpr size_t kContainerDigits = 64;
constexpr size_t kPodDigits = 32;

bool is_hex(char c) { return isxdigit(static_cast<unsigned char>(c)) != 0; }

// "cri-containerd-ID.scope", "docker-ID.scope", "libpod-ID", "ID".
std::string container_of(std::string_view part) {
  if (part.ends_with(".scope")) part.remove_suffix(6);
  const size_t dash = part.rfind('-');
  const std::string_view id = dash == std::string_view::npos ? part : part.substr(dash + 1);
  const bool is_id = id.size() == kContainerDigits && std::ranges::all_of(id, is_hex);
  return is_id ? std::string(id) : "";
}

// "pod12345678-1234-...", "kubepods-burstable-pod12345678_1234_....slice".
std::string pod_of(std::string_view part) {
  if (part.ends_with(".slice")) part.remove_suffix(6);
  const size_t at = part.rfind("pod");
  if (at == std::string_view::npos) return "";
  std::string uid(part.substr(at + 3));
  std::ranges::replace(uid, '_', '-');
  const auto digits = static_cast<size_t>(std::ranges::count_if(uid, is_hex));
  const auto dashes = static_cast<size_t>(std::ranges::count(uid, '-'));
  return digits == kPodDigits && digits + dashes == uid.size() ? uid : "";
}

}  // namespace

Place place_of_path(std::string_view cgroup) {
  Place place;
  const bool is_pods = cgroup.find("kubepods") != std::string_view::npos;
  while (!cgroup.empty()) {
    const std::string_view part = cgroup.substr(0, cgroup.find('/'));
    cgroup.remove_prefix(std::min(cgroup.size(), part.size() + 1));
    // Of nested containers the outermost one is the machine's.
    if (place.container.empty()) place.container = container_of(part);
    if (is_pods && place.pod.empty()) place.pod = pod_of(part);
  }
  return place;
}

Place place_of_process(uint64_t pid) {
  if (pid == 0) return {};
  std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
  Place place;
  for (std::string line; std::getline(file, line);) {
    const Place one = place_of_path(line.substr(line.rfind(':') + 1));
    if (place.container.empty()) place.container = one.container;
    if (place.pod.empty()) place.pod = one.pod;
  }
  return place;
}

std::string user_of_process(uint64_t pid) {
  struct stat info {};
  if (pid == 0 || stat(("/proc/" + std::to_string(pid)).c_str(), &info) != 0) return "";
  return std::to_string(info.st_uid);
}

}  // namespace openmps::exporter
