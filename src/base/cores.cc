// SPDX-License-Identifier: Apache-2.0
// See cores.h.
#include "base/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/unique_fd.h"

namespace openmps {
namespace {

// The shortest that Linux takes (kernel/sched/syscalls.c).
constexpr uint64_t kShortestTurnNs = 100'000;

// The kernel's struct sched_attr, as of its first version; not in every C library.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48);

// What this thread has waited until now; nothing: nobody says. Opened each time: in a program's
// process a descriptor that stays may be closed, and be another file's then.
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

// Of a machine with more cores than cpu_set_t has, nothing is said: it has several.
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

void prefer_short_turns() {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  errno = 0;
  SchedulingAttributes wanted;
  wanted.nice = getpriority(PRIO_PROCESS, 0);  // of this thread, on Linux
  wanted.runtime_ns = kShortestTurnNs;
  if (errno == 0) syscall(SYS_sched_setattr, 0, &wanted, 0);
}

}  // namespace openmps
