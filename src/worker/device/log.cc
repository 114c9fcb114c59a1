// SPDX-License-Identifier: Apache-2.0
// The worker's log lines. See log.h.
#include "worker/device/log.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"

namespace openmps::worker {

void log(const std::string& text) {
  // Never destroyed. Standard error itself becomes a pipe later (process_output.h).
  static const Log& out =
      *new Log("Worker", UniqueFd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)));
  out.write(text);
}

}  // namespace openmps::worker
