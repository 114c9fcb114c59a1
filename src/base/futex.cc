// SPDX-License-Identifier: Apache-2.0
// Futex wait and wake: thin wrappers over the system call, which glibc does not wrap.
#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace openmps {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "futex words are 32 bits");

void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, uint64_t timeout_ns) {
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000u);
  timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000u);
  // Errors (EAGAIN, EINTR, ETIMEDOUT) all mean: look again. They are the caller's normal case.
  (void)syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout_ns == 0 ? nullptr : &timeout,
                nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>* word, int count) {
  (void)syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

}  // namespace openmps
