// SPDX-License-Identifier: Apache-2.0
// The worker's log lines. See log.h.
#include "worker/log.h"

#include <unistd.h>

#include "base/log.h"

namespace openmps::worker {

void log(const std::string& text) {
  // Never destroyed: standard error is not ours to close.
  static const Log& out = *new Log("Worker", UniqueFd(STDERR_FILENO));
  out.write(text);
}

}  // namespace openmps::worker
