// SPDX-License-Identifier: Apache-2.0
// Something that has to come before a piece of work may begin, beside the earlier work of its
// stream: a value in host memory, a value in device memory, another stream's event, the return of a
// host function in the client, or the end of a wait that CUDA's order of streams implies. A
// condition says whether that has come; to ask takes no credit.
#pragma once

#include "base/function_ref.h"
#include "wire/usage.h"
#include "worker/admission/queue_credits.h"

namespace openmps::worker {

struct Condition {
  wire::HeldFor why = wire::HeldFor::kNothing;  // what is shown while the work is held for it
  FunctionRef<bool()> has_come;                 // empty: there is no condition
  // Of a condition that the GPU may wait for. kShort: it is known to come soon, and takes a queue
  // credit for a short term, as work behind work does. kUnknown: it takes a queue credit and a wait
  // credit.
  CreditTerm term = CreditTerm::kUnknown;
};

}  // namespace openmps::worker
