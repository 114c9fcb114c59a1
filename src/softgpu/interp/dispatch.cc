// SPDX-License-Identifier: Apache-2.0
// Puts the table of handlers together for the processor at hand. The first caller pays; any thread.
#include <cstdlib>
#include <cstring>
#include <string>

#include "softgpu/interp/handlers.h"

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

struct Selection {
  HandlerTable table = {};
  std::string_view name = "base";
};

const Selection& selection() {
  static const Selection* const made = [] {
    auto* s = new Selection;  // immortal
    base::add_lane_handlers(&s->table);
    base::add_memory_handlers(&s->table);
    base::add_shuffle_handlers(&s->table);
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool vectors = perf_allows("vector_memory");
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi2") &&
        perf_allows("avx512")) {
      avx512::add_lane_handlers(&s->table);
      if (vectors) {
        avx512::add_memory_handlers(&s->table);
        avx512::add_shuffle_handlers(&s->table);
      }
      s->name = "avx512";
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi2") && perf_allows("avx2")) {
      avx2::add_lane_handlers(&s->table);
      if (vectors) {
        avx2::add_memory_handlers(&s->table);
        avx2::add_shuffle_handlers(&s->table);
      }
      s->name = "avx2";
    }
#endif
    add_control_handlers(&s->table);
    add_call_handlers(&s->table);
    add_runtime_handlers(&s->table);
    add_scalar_handlers(&s->table);
    add_collective_handlers(&s->table);
    add_barrier_handlers(&s->table);
    add_cluster_handlers(&s->table);
    add_mbarrier_handlers(&s->table);
    add_bulk_handlers(&s->table);
    add_tensor_handlers(&s->table);
    add_atomic_handlers(&s->table);
    add_texture_handlers(&s->table);
    add_video_handlers(&s->table);
    add_matrix_handlers(&s->table);
    add_matrix_memory_handlers(&s->table);
    add_group_matrix_handlers(&s->table);
    return s;
  }();
  return *made;
}

}  // namespace

bool perf_allows(const char* name) {
  const char* text = std::getenv("SOFTGPU_PERF");
  return !text || !std::strstr(text, (std::string("no_") + name).c_str());
}

const HandlerTable& active_handlers() { return selection().table; }
std::string_view active_instruction_set() { return selection().name; }

}  // namespace openmps::softgpu
