// SPDX-License-Identifier: Apache-2.0
// Puts the table of handlers together for the processor at hand. The first caller pays; any thread.
#include "softgpu/interp/handlers.h"
#include "softgpu/interp/instruction_set.h"

namespace openmps::softgpu {

#define SOFTGPU_INSTRUCTION_SET(name)             \
  namespace name {                                \
  void add_lane_handlers(HandlerTable* table);    \
  void add_memory_handlers(HandlerTable* table);  \
  void add_shuffle_handlers(HandlerTable* table); \
  }
SOFTGPU_INSTRUCTION_SET(base)
#if defined(__x86_64__)
SOFTGPU_INSTRUCTION_SET(avx2)
SOFTGPU_INSTRUCTION_SET(avx512)
#endif

void add_control_handlers(HandlerTable* table);
void add_call_handlers(HandlerTable* table);
void add_runtime_handlers(HandlerTable* table);
void add_scalar_handlers(HandlerTable* table);
void add_collective_handlers(HandlerTable* table);
void add_barrier_handlers(HandlerTable* table);
void add_cluster_handlers(HandlerTable* table);
void add_mbarrier_handlers(HandlerTable* table);
void add_bulk_handlers(HandlerTable* table);
void add_tensor_handlers(HandlerTable* table);
void add_atomic_handlers(HandlerTable* table);
void add_texture_handlers(HandlerTable* table);
void add_video_handlers(HandlerTable* table);
void add_matrix_handlers(HandlerTable* table);
void add_matrix_memory_handlers(HandlerTable* table);
void add_group_matrix_handlers(HandlerTable* table);

namespace {

const HandlerTable* make_table() {
  auto* table = new HandlerTable;  // immortal
  base::add_lane_handlers(table);
  base::add_memory_handlers(table);
  base::add_shuffle_handlers(table);
#if defined(__x86_64__)
  const bool vectors = perf_allows("vector_memory");
  if (active_instruction_set() == InstructionSet::kAvx512) {
    avx512::add_lane_handlers(table);
    if (vectors) {
      avx512::add_memory_handlers(table);
      avx512::add_shuffle_handlers(table);
    }
  } else if (active_instruction_set() == InstructionSet::kAvx2) {
    avx2::add_lane_handlers(table);
    if (vectors) {
      avx2::add_memory_handlers(table);
      avx2::add_shuffle_handlers(table);
    }
  }
#endif
  add_control_handlers(table);
  add_call_handlers(table);
  add_runtime_handlers(table);
  add_scalar_handlers(table);
  add_collective_handlers(table);
  add_barrier_handlers(table);
  add_cluster_handlers(table);
  add_mbarrier_handlers(table);
  add_bulk_handlers(table);
  add_tensor_handlers(table);
  add_atomic_handlers(table);
  add_texture_handlers(table);
  add_video_handlers(table);
  add_matrix_handlers(table);
  add_matrix_memory_handlers(table);
  add_group_matrix_handlers(table);
  return table;
}

}  // namespace

const HandlerTable& active_handlers() {
  static const HandlerTable* const table = make_table();
  return *table;
}

}  // namespace openmps::softgpu
