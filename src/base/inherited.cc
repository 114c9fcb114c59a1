// SPDX-License-Identifier: Apache-2.0
// See inherited.h.
#include "base/inherited.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/text.h"

namespace openmps {
namespace {

constexpr rlim_t kStackBytes = rlim_t{8} << 20;  // as systems have it
// An eighth of that, which is not set by accident: a driver that compiles on such a thread would
// find out in the midst of its work.
constexpr rlim_t kLeastStackBytes = rlim_t{1} << 20;

struct Limit {
  __rlimit_resource resource;
  const char* option;  // of ulimit
  const char* what;    // may have at most
  uint64_t needed;
};

Status raise(const Limit& wanted) {
  rlimit limit{};
  if (getrlimit(wanted.resource, &limit) != 0) return Status();
  const rlim_t most =
      wanted.resource == RLIMIT_STACK ? std::min(limit.rlim_max, kStackBytes) : limit.rlim_max;
  limit.rlim_cur = most;
  (void)setrlimit(wanted.resource, &limit);  // what is there is looked at
  if (getrlimit(wanted.resource, &limit) != 0 || limit.rlim_cur >= wanted.needed) return Status();
  return Status(CUDA_ERROR_OPERATING_SYSTEM,
                format_text("%s may have at most %llu bytes (ulimit %s), %llu are needed",
                            wanted.what, static_cast<unsigned long long>(limit.rlim_cur),
                            wanted.option, static_cast<unsigned long long>(wanted.needed)));
}

}  // namespace

void forget_starter() {
  int lowest = 0;
  while (lowest <= STDERR_FILENO) {
    lowest = open("/dev/null", O_RDWR);  // not close-on-exec: a standard stream
    if (lowest < 0) break;
    if (lowest > STDERR_FILENO) close(lowest);
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_IGN) continue;
    action.sa_handler = SIG_DFL;
    (void)sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
  constexpr itimerval kNever{};
  for (const auto timer : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
    (void)setitimer(timer, &kNever, nullptr);
  }
}

Status raise_limits(const Needs& needs) {
  const Limit limits[] = {
      {RLIMIT_FSIZE, "-f", "files", needs.file_bytes},
      {RLIMIT_AS, "-v", "the address space", needs.address_bytes},
      {RLIMIT_STACK, "-s", "the stack", kLeastStackBytes},
      {RLIMIT_DATA, "-d", "data", 0},
      {RLIMIT_CPU, "-t", "", 0},
  };
  for (const Limit& limit : limits) OPENMPS_RETURN_IF_ERROR(raise(limit));
  return Status();
}

}  // namespace openmps
