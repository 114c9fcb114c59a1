// SPDX-License-Identifier: Apache-2.0
// See cores.h.
#include "base/cores.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

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

}  // namespace

void prefer_short_turns() {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  errno = 0;
  SchedulingAttributes wanted;
  wanted.nice = getpriority(PRIO_PROCESS, 0);  // of this thread, on Linux
  wanted.runtime_ns = kShortestTurnNs;
  if (errno == 0) syscall(SYS_sched_setattr, 0, &wanted, 0);
}

}  // namespace openmps
