// SPDX-License-Identifier: Apache-2.0
// A function between the stages of the lowering (lower.h): ops whose operands are numbers of values
// and whose branches go to labels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "softgpu/ir/code.h"
#include "softgpu/ir/op.h"
#include "softgpu/ptx/ast.h"

namespace openmps::softgpu::ir {

// One 32-lane value: a register, a constant or a special one. Predicates have 0 bytes.
struct Value {
  enum class Kind : uint8_t { kRegister, kConstant, kGlobal, kSpecial } kind = Kind::kRegister;
  uint32_t bytes = 4;
  uint64_t bits = 0;       // kConstant; kGlobal: the addend
  uint64_t high_bits = 0;  // 16-byte constants
  int32_t global = -1;
  FrameValue what = FrameValue::kSpecial;
  ptx::SpecialRegister special = ptx::SpecialRegister::kNone;
  int32_t offset = -1;  // in the frame, once allocated
};

// An op before allocation; fields are value numbers, -1: unused.
struct Draft {
  IrOp op = IrOp::k_count;
  int32_t d = -1, a = -1, b = -1, c = -1, e = -1;
  uint32_t aux = 0;
  uint64_t imm = 0;
  std::vector<int32_t> extra_results, extra_values;
  int32_t label = -1;  // branch target; guard: where its instruction ends
  int32_t table = -1;  // brx: index into tables
  uint32_t line = 0;
  bool partial = false;             // guarded: writes some lanes only
  bool waits = false;               // other lanes or warps may be waited for by looping around this
  bool folded = false;              // another op does its work: accounted, not emitted
  int32_t window = -1;              // ld_shared_keep, ld_shared_kept: where the windows are kept
  int32_t lowest = 0, highest = 0;  // ld_shared_keep: of the offsets of all that use them
};

// Ops with handlers of their own: they may suspend the warp, switch lanes or write results before
// they have read everything.
inline bool is_plain(IrOp op) { return op >= IrOp::k_ld_shared_keep; }

struct DraftFunction {
  std::unique_ptr<Code> code;  // all that needs neither flow nor places
  std::vector<Value> values;
  std::vector<Draft> drafts;
  std::vector<int32_t> label_positions;      // label -> draft index; -1: none
  std::vector<std::vector<int32_t>> tables;  // of brx: labels
};

// The numbers of the values that an op reads and writes.
void uses_of(const Draft& draft, std::vector<int32_t>* out);
void results_of(const Draft& draft, std::vector<int32_t>* out);

}  // namespace openmps::softgpu::ir
