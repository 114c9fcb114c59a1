// SPDX-License-Identifier: Apache-2.0
// See thread_end.h.
#include "base/thread_end.h"

#include <unwind.h>

namespace openmps {

void prepare_unwinding() {
  _Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_END_OF_STACK; }, nullptr);
}

}  // namespace openmps
