// SPDX-License-Identifier: Apache-2.0
// A kernel's ops as a graph of basic blocks: which places of the frame each op reads and writes,
// and what the compiled tier does with it. Made from Code; one thread, the compiler's.
#pragma once

#include <cstdint>
#include <vector>

#include "softgpu/ir/code.h"

namespace openmps::softgpu::tier {

// How an op is carried out by compiled code.
enum class Role : uint8_t {
  kCompute,  // lane by lane (emit_compute.cc)
  kLoad,     // global or shared memory
  kStore,
  kParam,  // load_param at one address
  kShuffle,
  kVote,
  kHandler,  // by the interpreter's handler, which comes back
  kSuspend,  // by the interpreter, which may run other things first; then on behind it
  kBarrier,  // as kSuspend, and all lanes are back together behind it
  kLeave,    // by the interpreter, which goes on
  kJump,
  kBranch,  // on a predicate
  kCount,   // accounts for the block
  kNothing,
};

struct OpFacts {
  Role role = Role::kNothing;
  bool together = false;   // needs the lanes that it names: not while some are switched off
  int32_t guard = -1;      // slot of the predicate of those lanes that run it; -1: all
  bool guard_not = false;  // of those for which it is false
  std::vector<int32_t> reads, writes;  // slots
};

struct GraphBlock {
  uint32_t begin = 0, end = 0;      // ops
  std::vector<int32_t> successors;  // kBranch: where it goes if taken, and behind it
  std::vector<int32_t> predecessors;
  int32_t meet = -1;  // where lanes that part at the end meet; -1: nowhere
  bool reachable = false;
};

struct Graph {
  explicit Graph(const Code& kernel);

  [[nodiscard]] const Op& op(uint32_t i) const { return code.ops[i]; }
  [[nodiscard]] uint32_t last_of(int32_t b) const { return blocks[static_cast<size_t>(b)].end - 1; }
  [[nodiscard]] int32_t slot_at(int32_t offset) const;
  [[nodiscard]] uint32_t bytes_of(int32_t slot) const {
    return code.slots[static_cast<size_t>(slot)].bytes;
  }
  // Constants and special values, which no op writes.
  [[nodiscard]] bool is_fixed(int32_t slot) const { return fixed[static_cast<size_t>(slot)] != 0; }
  // Values of 16 bytes stay in the frame: only handlers read and write them.
  [[nodiscard]] bool is_resident(int32_t slot) const { return bytes_of(slot) == 16; }

  const Code& code;
  std::vector<OpFacts> facts;  // by op
  std::vector<GraphBlock> blocks;
  std::vector<int32_t> block_at;              // of ops that begin one; else -1
  std::vector<int32_t> order;                 // reachable blocks, in reverse postorder
  std::vector<uint8_t> fixed;                 // by slot
  std::vector<std::vector<uint8_t>> live_in;  // by block and slot

 private:
  void find_facts();
  void find_accesses(uint32_t i);
  void find_blocks();
  void find_order();
};

// The live slots behind op `i` of block `b`, given those at the block's end.
std::vector<uint8_t> live_behind(const Graph& graph, int32_t b, uint32_t i);
std::vector<uint8_t> live_before(const Graph& graph, int32_t b, uint32_t i);
// At the end of block `b`, before its last op reads its predicate.
std::vector<uint8_t> live_out(const Graph& graph, int32_t b);
void find_liveness(Graph& graph);

// Whether emit_compute.cc has the op.
bool can_compute(IrOp op);

}  // namespace openmps::softgpu::tier
