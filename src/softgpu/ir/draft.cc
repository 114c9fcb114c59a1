// SPDX-License-Identifier: Apache-2.0
// See draft.h.
#include "softgpu/ir/draft.h"

namespace openmps::softgpu::ir {

void uses_of(const Draft& draft, std::vector<int32_t>* out) {
  out->clear();
  if (draft.folded) return;
  for (int32_t value : {draft.a, draft.b, draft.c, draft.e}) {
    if (value >= 0) out->push_back(value);
  }
  out->insert(out->end(), draft.extra_values.begin(), draft.extra_values.end());
  if (draft.partial) {  // lanes that are not written keep what they had
    if (draft.d >= 0) out->push_back(draft.d);
    out->insert(out->end(), draft.extra_results.begin(), draft.extra_results.end());
  }
}

void results_of(const Draft& draft, std::vector<int32_t>* out) {
  out->clear();
  if (draft.folded) return;
  if (draft.d >= 0) out->push_back(draft.d);
  out->insert(out->end(), draft.extra_results.begin(), draft.extra_results.end());
}

}  // namespace openmps::softgpu::ir
