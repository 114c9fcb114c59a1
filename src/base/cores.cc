// SPDX-License-Identifier: Apache-2.0
// See cores.h.
#include "base/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/unique_fd.h"

namespace openmps {
namespace {

// Since this thread began. The file is opened each time: a program may close any descriptor of the
// process, and the number may become another file's.
std::optional<uint64_t> run_delay_ns() {
  const UniqueFd file(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  char text[96];  // three numbers of 20 digits at most
  const ssize_t bytes = file.get() < 0 ? -1 : read(file.get(), text, sizeof text - 1);
  if (bytes <= 0) return std::nullopt;
  text[bytes] = 0;
  unsigned long long ran = 0, waited = 0;
  if (sscanf(text, "%llu %llu", &ran, &waited) != 2) return std::nullopt;
  return waited;
}

}  // namespace

// Fails on a machine with more cores than a cpu_set_t has.
uint32_t usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return CPU_SETSIZE;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&cores)));
}

std::optional<uint64_t> take_run_delay_ns() {
  thread_local uint64_t before_ns = 0;
  const std::optional<uint64_t> now_ns = run_delay_ns();
  if (!now_ns) return std::nullopt;
  return *now_ns - std::exchange(before_ns, *now_ns);
}

}  // namespace openmps
