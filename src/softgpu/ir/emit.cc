// SPDX-License-Identifier: Apache-2.0
// See emit.h.
#include "softgpu/ir/emit.h"

#include "softgpu/ir/frame.h"

namespace openmps::softgpu::ir {
namespace {

void emit_block(const DraftFunction& function, const Flow& flow, const HandlerTable& handlers,
                int32_t index, std::vector<uint32_t>* starts) {
  Code& code = *function.code;
  const BasicBlock& block = flow.blocks[index];
  auto handler = [&](IrOp op) { return handlers.handlers[static_cast<size_t>(op)]; };
  auto offset = [&](int32_t value, int32_t otherwise) {
    return value < 0 ? otherwise : function.values[value].offset;
  };
  std::vector<Op>& ops = code.ops;
  starts->push_back(static_cast<uint32_t>(ops.size()));
  if (block.is_meet) {
    Op join;
    join.handler = handler(IrOp::k_join);
    join.code = IrOp::k_join;
    join.line = function.drafts[block.begin].line;
    ops.push_back(join);
  }
  uint32_t instructions = 0;
  for (uint32_t i = block.begin; i < block.end; ++i) {
    const Draft& draft = function.drafts[i];
    const bool counted = draft.op != IrOp::k_guard && draft.op != IrOp::k_guard_not &&
                         draft.op != IrOp::k_unguard && draft.op != IrOp::k_set_rounding;
    instructions += counted;
    if (draft.folded) continue;
    IrOp op = draft.op;
    Op made;
    made.imm = draft.imm;
    made.aux = draft.aux;
    made.line = draft.line;
    made.d = offset(draft.d, 0);
    made.a = offset(draft.a, kTrueOffset);
    made.b = offset(draft.b, 0);
    made.c = offset(draft.c, 0);
    made.e = offset(draft.e, 0);
    if (draft.window >= 0) {
      made.b = draft.window;
      made.c = draft.lowest;
      made.e = draft.highest;
    }
    if (draft.op == IrOp::k_guard || draft.op == IrOp::k_guard_not) {
      made.imm = static_cast<uint64_t>(function.label_positions[draft.label]) - i;  // ops to skip
    }
    if (ends_block(draft)) {
      made.aux = instructions;
      if (op == IrOp::k_brx) made.imm = static_cast<uint64_t>(draft.table);
      if (draft.label >= 0 && op != IrOp::k_call_indirect) {
        const int32_t target = flow.block_of[function.label_positions[draft.label]];
        made.imm = static_cast<uint64_t>(target);
        if (target <= index) {
          op = op == IrOp::k_bra      ? IrOp::k_bra_back
               : op == IrOp::k_bra_if ? IrOp::k_bra_if_back
                                      : IrOp::k_bra_unless_back;
          for (uint32_t w = flow.blocks[target].begin; w < block.end; ++w) {
            made.sync |= function.drafts[w].waits;
          }
        }
      }
      made.e = block.meet;  // becomes the distance to the join
    }
    made.handler = handler(op);
    made.code = op;
    // Where the offsets of the extras begin; a pointer once the storage does not move any more.
    if (!draft.extra_results.empty() || !draft.extra_values.empty()) {
      code.extras.push_back(extra_code(draft.extra_results.size(), draft.extra_values.size()));
      made.extra = reinterpret_cast<const int32_t*>(code.extras.size() + 1);
      for (int32_t v : draft.extra_results) code.extras.push_back(function.values[v].offset);
      for (int32_t v : draft.extra_values) code.extras.push_back(function.values[v].offset);
    }
    ops.push_back(made);
  }
  const IrOp last = function.drafts[block.end - 1].op;
  if (!ends_block(function.drafts[block.end - 1]) || last == IrOp::k_call_indirect) {
    Op count;
    count.handler = handler(IrOp::k_count);
    count.code = IrOp::k_count;
    count.aux = last == IrOp::k_call_indirect ? 0 : instructions;
    ops.push_back(count);
  }
}

}  // namespace

void emit_ops(const DraftFunction& function, const Flow& flow, const HandlerTable& handlers) {
  Code& code = *function.code;
  std::vector<uint32_t> starts;
  for (size_t b = 0; b < flow.blocks.size(); ++b) {
    emit_block(function, flow, handlers, static_cast<int32_t>(b), &starts);
  }
  for (const std::vector<int32_t>& table : function.tables) {
    auto& made = code.jump_tables.emplace_back();
    for (int32_t label : table) {
      made.push_back(code.ops.data() + starts[flow.block_of[function.label_positions[label]]]);
    }
  }
  for (size_t i = 0; i < code.ops.size(); ++i) {
    Op& op = code.ops[i];
    if (op.extra) op.extra = code.extras.data() + (reinterpret_cast<size_t>(op.extra) - 1);
    const bool conditional = is_conditional_branch(op.code);
    const bool branch = conditional || op.code == IrOp::k_bra || op.code == IrOp::k_bra_back;
    if (conditional || op.code == IrOp::k_brx || op.code == IrOp::k_call_indirect) {
      op.e = op.e < 0 ? 0 : static_cast<int32_t>(starts[op.e]) - static_cast<int32_t>(i);
    }
    if (branch) op.target = code.ops.data() + starts[op.imm];
  }
}

}  // namespace openmps::softgpu::ir
