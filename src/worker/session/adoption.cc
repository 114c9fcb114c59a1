// SPDX-License-Identifier: Apache-2.0
// See adoption.h.
#include "worker/session/adoption.h"

namespace openmps::worker {

Status adopt(SessionParts&) {
  return Status(CUDA_ERROR_NOT_SUPPORTED, "sessions can't be made again yet");
}

}  // namespace openmps::worker
