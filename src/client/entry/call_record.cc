// SPDX-License-Identifier: Apache-2.0
// The record of successful calls. See call_record.h.
#include "client/entry/call_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "api/client_hooks.h"
#include "base/environment.h"
#include "base/thread_end.h"
#include "base/unique_fd.h"

namespace openmps::client {
namespace {

constinit std::array<std::atomic<bool>, kDriverSymbolCount> g_seen = {};

// The file's path; kept, since a program may change its environment.
constinit char g_path[256] = {};

}  // namespace

void begin_call_record() {
  const char* path = environment_variable("OPENMPS_CALLS_FILE");
  if (path == nullptr || *path == '\0' || strlen(path) >= sizeof(g_path)) return;
  memcpy(g_path, path, strlen(path) + 1);
  g_attention.fetch_or(kCallsAreRecorded, std::memory_order_relaxed);
}

void call_succeeded(DriverSymbol symbol) {
  if (g_path[0] == '\0') return;
  if (g_seen[static_cast<size_t>(symbol)].exchange(true, std::memory_order_relaxed)) return;
  char line[128];
  const int bytes = snprintf(line, sizeof(line), "%s\n", driver_symbol_name(symbol));
  if (bytes < 0 || bytes >= static_cast<int>(sizeof(line))) return;
  const CancellationHeld held;
  // In one write, since several processes share the file. A file that can't be written: no record.
  const UniqueFd file(open(g_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  [[maybe_unused]] const ssize_t written = write(file.get(), line, static_cast<size_t>(bytes));
}

}  // namespace openmps::client
