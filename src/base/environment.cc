// SPDX-License-Identifier: Apache-2.0
// See environment.h.
#include "base/environment.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/unique_fd.h"

namespace openmps {

std::string environment_or(const char* name, std::string_view fallback) {
  const char* value = environment_variable(name);
  return value != nullptr && *value != '\0' ? std::string(value) : std::string(fallback);
}

std::string environment_at_start(std::string_view name) {
  if (getauxval(AT_SECURE) != 0) return "";
  // The kernel keeps it: NAME=VALUE, each with its NUL.
  const UniqueFd file(open("/proc/self/environ", O_RDONLY | O_CLOEXEC));
  std::string all;
  char piece[4096];
  for (ssize_t got = 0; file.valid() && (got = read(file.get(), piece, sizeof(piece))) > 0;) {
    all.append(piece, static_cast<size_t>(got));
  }
  for (size_t at = 0; at < all.size();) {
    const std::string_view entry(all.c_str() + at);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return std::string(entry.substr(name.size() + 1));
    }
    at += entry.size() + 1;
  }
  return "";
}

void unset_environment(std::string_view prefix) {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with(prefix)) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

}  // namespace openmps
