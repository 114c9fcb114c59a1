// SPDX-License-Identifier: Apache-2.0
// OPENMPS_DEBUG lines. The environment is read once, at the first question, from any thread.
#include "client/debug.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/environment.h"
#include "base/thread_end.h"

namespace openmps::client {
namespace {

constexpr int kUnknown = -1;
constinit std::atomic<int> g_enabled{kUnknown};
// Longer lines are cut: they carry a peer's reason at most (256 bytes) and a few names.
constexpr size_t kLineBytes = 1024;

}  // namespace

bool debug_enabled() {
  int enabled = g_enabled.load(std::memory_order_relaxed);
  if (enabled == kUnknown) {
    const char* value = environment_variable("OPENMPS_DEBUG");
    enabled = value != nullptr && *value != '\0' && strcmp(value, "0") != 0 ? 1 : 0;
    g_enabled.store(enabled, std::memory_order_relaxed);
  }
  return enabled == 1;
}

void debug_line(const char* format, ...) {
  if (!debug_enabled()) return;
  char line[kLineBytes];
  int used = snprintf(line, sizeof(line), "openmps[%d]: ", static_cast<int>(getpid()));
  va_list arguments;
  va_start(arguments, format);
  used += vsnprintf(line + used, sizeof(line) - static_cast<size_t>(used), format, arguments);
  va_end(arguments);
  used = std::min(used, static_cast<int>(sizeof(line)) - 1);
  line[used] = '\n';
  const CancellationHeld held;
  // One write, so that lines of several processes do not mix. Nothing to do about a closed stderr.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line, static_cast<size_t>(used) + 1);
}

}  // namespace openmps::client
