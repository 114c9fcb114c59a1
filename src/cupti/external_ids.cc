// SPDX-License-Identifier: Apache-2.0
#include "cupti/external_ids.h"

#include <array>
#include <vector>

namespace openmps::cupti {
namespace {

using Stack = std::vector<uint64_t>;

// Null: there is no such kind.
Stack* stack_of(CUpti_ExternalCorrelationKind kind) {
  thread_local std::array<Stack, CUPTI_EXTERNAL_CORRELATION_KIND_SIZE> stacks;
  if (kind <= CUPTI_EXTERNAL_CORRELATION_KIND_INVALID ||
      kind >= CUPTI_EXTERNAL_CORRELATION_KIND_SIZE) {
    return nullptr;
  }
  return &stacks[kind];
}

}  // namespace

CUptiResult push_external_id(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  Stack* const stack = stack_of(kind);
  if (stack == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (stack->size() >= kMostExternalIds) return CUPTI_ERROR_OUT_OF_MEMORY;
  stack->push_back(id);
  return CUPTI_SUCCESS;
}

CUptiResult pop_external_id(CUpti_ExternalCorrelationKind kind, uint64_t* last) {
  Stack* const stack = stack_of(kind);
  if (stack == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (stack->empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (last != nullptr) *last = stack->back();
  stack->pop_back();
  return CUPTI_SUCCESS;
}

std::optional<uint64_t> external_id(CUpti_ExternalCorrelationKind kind) {
  const Stack* const stack = stack_of(kind);
  if (stack == nullptr || stack->empty()) return std::nullopt;
  return stack->back();
}

}  // namespace openmps::cupti
