// SPDX-License-Identifier: Apache-2.0
// Something that a piece of work waits for beside the earlier work of its stream: a word in host
// memory, a word in device memory, another stream's event, the client's answer to a host function,
// or a wait that CUDA's order of streams implies. A condition says whether that has come, and takes
// nothing.
#pragma once

#include "base/function_ref.h"
#include "wire/usage.h"
#include "worker/admission/queue_credits.h"

namespace openmps::worker {

struct Condition {
  wire::HeldFor why = wire::HeldFor::kNothing;  // what is shown while the work waits here
  FunctionRef<bool()> has_come;                 // empty: nothing is waited for
  // If the GPU may wait for it. kShort: it is known to come soon, and needs no more than work
  // behind work. Else a wait credit.
  CreditTerm term = CreditTerm::kUnknown;
};

}  // namespace openmps::worker
