// SPDX-License-Identifier: Apache-2.0
// See host_memory.h.
#include "base/host_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/text.h"

namespace openmps {
namespace {

constexpr uint64_t kUnknown = ~uint64_t{0};

std::string contents_of(const std::string& path) {
  std::ostringstream text;
  if (std::ifstream file(path); file) text << file.rdbuf();
  return text.str();
}

std::optional<uint64_t> number_in(const std::string& path) {
  std::string text = contents_of(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return parse_unsigned(text, kUnknown - 1);  // "max" is no number
}

// The value of a line "name value" or "name: value".
std::optional<uint64_t> value_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    uint64_t value = 0;
    if (words >> word >> value && word == name) return value;
  }
  return std::nullopt;
}

}  // namespace

uint64_t available_in_meminfo(const std::string& text) {
  const std::optional<uint64_t> kib = value_of(text, "MemAvailable:");
  return kib ? *kib * 1024 : kUnknown;
}

uint64_t left_by_cgroups(const std::string& root, const std::string& group) {
  uint64_t left = kUnknown;
  for (std::string path = group;; path.resize(path.rfind('/'))) {
    const std::string at = root + path;
    const std::optional<uint64_t> limit = number_in(at + "/memory.max");
    const std::optional<uint64_t> used = number_in(at + "/memory.current");
    if (limit && used) {
      // Pages of files that nobody has used lately are given back first.
      const uint64_t unused =
          value_of(contents_of(at + "/memory.stat"), "inactive_file").value_or(0);
      const uint64_t needed = *used - std::min(*used, unused);
      left = std::min(left, *limit - std::min(*limit, needed));
    }
    if (path.rfind('/') == std::string::npos) break;
  }
  return left;
}

uint64_t available_host_memory() {
  std::string group;
  std::istringstream groups(contents_of("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) group = line.substr(line.size() == 4 ? 4 : 3);
  }
  return std::min(available_in_meminfo(contents_of("/proc/meminfo")),
                  left_by_cgroups("/sys/fs/cgroup", group));
}

}  // namespace openmps
