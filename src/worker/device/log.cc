// SPDX-License-Identifier: Apache-2.0
// The worker's log lines. See log.h.
#include "worker/device/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/log.h"

namespace openmps::worker {

namespace {

// Never destroyed. Standard error itself becomes a pipe later (process_output.h).
const Log*& out() {
  static const Log* log =
      new Log("Worker", UniqueFd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)));
  return log;
}

}  // namespace

void log(const std::string& text) { out()->write(text); }

void log_to(UniqueFd fd) { delete std::exchange(out(), new Log("Worker", std::move(fd))); }

}  // namespace openmps::worker
