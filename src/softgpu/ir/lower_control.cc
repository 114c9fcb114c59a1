// SPDX-License-Identifier: Apache-2.0
// Lowering of statements: labels, guards, branches, calls. Part of Builder, see builder.h.
#include "softgpu/ir/builder.h"

namespace openmps::softgpu::ir {

using ptx::Lowering;

DraftFunction Builder::lower_statements() {
  if (!function_.is_kernel) epilogue_ = new_label();
  if (function_.uses_register_parameters) {
    line_ = function_.line;
    emit_unsupported("parameters in registers");
  } else {
    for (const ptx::Statement& statement : function_.body) lower_statement(statement);
  }
  // Falling off the end returns.
  if (function_.is_kernel) {
    emit(IrOp::k_exit);
  } else {
    place(epilogue_);
    emit(IrOp::k_ret);
  }
  return {std::move(code_), std::move(values_), std::move(drafts_), std::move(label_positions_),
          std::move(tables_)};
}

void Builder::lower_statement(const ptx::Statement& statement) {
  if (statement.label >= 0) {
    place(statement.label);
    return;
  }
  const Instruction& in = statement.instruction;
  line_ = in.line;
  const size_t first = drafts_.size();
  const auto labels = static_cast<size_t>(next_label_);
  problem_.clear();
  if (in.rule) lower_guarded(in);
  if (in.rule && problem_.empty()) return;
  // Nothing of it is left but a fault, for the lanes that come to it.
  drafts_.erase(drafts_.begin() + static_cast<ptrdiff_t>(first), drafts_.end());
  if (label_positions_.size() > labels) label_positions_.resize(labels);
  const int32_t end = new_label();
  if (in.guard >= 0) {
    emit(in.guard_negated ? IrOp::k_bra_if : IrOp::k_bra_unless, -1, register_value(in.guard))
        .label = end;
  }
  emit_unsupported("unsupported instruction '" + std::string(in.opcode) + "'" +
                   (problem_.empty() ? "" : ": " + problem_));
  place(end);
}

void Builder::emit_unsupported(const std::string& what) {
  emit(IrOp::k_unsupported).imm = code_->unsupported.size();
  code_->unsupported.push_back(what);
}

void Builder::lower_guarded(const Instruction& in) {
  if (in.guard < 0) {
    lower_instruction(in);
    return;
  }
  const int32_t predicate = register_value(in.guard);
  if (in.rule->lowering == Lowering::kBranch) {
    Draft& draft = emit(in.guard_negated ? IrOp::k_bra_unless : IrOp::k_bra_if, -1, predicate);
    draft.label = in.operands[0].index;
    return;
  }
  const int32_t end = new_label();
  if (needs_branch_guard(in)) {
    emit(in.guard_negated ? IrOp::k_bra_if : IrOp::k_bra_unless, -1, predicate).label = end;
    lower_instruction(in);
    place(end);
    return;
  }
  emit(in.guard_negated ? IrOp::k_guard_not : IrOp::k_guard, -1, predicate).label = end;
  const size_t first = drafts_.size();
  lower_instruction(in);
  for (size_t i = first; i < drafts_.size(); ++i) drafts_[i].partial = true;
  place(end);
  emit(IrOp::k_unguard);
}

// Whatever may leave the handler chain or needs the fragment split is branched around instead.
bool Builder::needs_branch_guard(const Instruction& in) const {
  switch (in.rule->lowering) {
    case Lowering::kBranchIndexed:
    case Lowering::kCall:
    case Lowering::kReturn:
    case Lowering::kExit:
    case Lowering::kTrap:
    case Lowering::kYield:
    case Lowering::kBarrier:
    case Lowering::kWarpBarrier:
    case Lowering::kClusterBarrier:
    case Lowering::kShuffle:
    case Lowering::kVote:
    case Lowering::kMatch:
    case Lowering::kRedux:
    case Lowering::kElect:
    case Lowering::kActiveMask:
    case Lowering::kMbarrier:
    case Lowering::kStoreAsync:
    case Lowering::kBulkCopy:
    case Lowering::kTensorCopy: return true;
    default: return false;
  }
}

bool Builder::lower_instruction(const Instruction& in) {
  switch (in.rule->lowering) {
    case Lowering::kAlu: return lower_alu(in);
    case Lowering::kFloat: return lower_float(in);
    case Lowering::kCompare: return lower_compare(in);
    case Lowering::kSet: return lower_set(in);
    case Lowering::kSelect: return lower_select(in);
    case Lowering::kSelectSign: return lower_select_sign(in);
    case Lowering::kTestp: return lower_testp(in);
    case Lowering::kPredicate: return lower_predicate(in);
    case Lowering::kMulAddWide24: return lower_mul_add_24(in);
    case Lowering::kMulAddCarry: return lower_mul_add_carry(in);
    case Lowering::kMove: return lower_move(in);
    case Lowering::kConvert: return lower_convert(in);
    case Lowering::kConvertAddress: return lower_convert_address(in);
    case Lowering::kIsSpace: return lower_is_space(in);
    case Lowering::kLoad: return lower_load(in);
    case Lowering::kStore: return lower_store(in);
    case Lowering::kAtomic: return lower_atomic(in);
    case Lowering::kCopyAsync: return lower_copy_async(in);
    case Lowering::kMbarrier: return lower_mbarrier(in);
    case Lowering::kStoreAsync: return lower_store_async(in);
    case Lowering::kBulkCopy: return lower_bulk_copy(in);
    case Lowering::kTensorCopy: return lower_tensor_copy(in);
    case Lowering::kPolicy: return lower_policy(in);
    case Lowering::kTexture: return lower_texture(in);
    case Lowering::kSurface: return lower_surface(in);
    case Lowering::kImageQuery: return lower_image_query(in);
    case Lowering::kMatrix: return lower_matrix(in);
    case Lowering::kGroupMatrix: return lower_group_matrix(in);
    case Lowering::kVideo: return lower_video(in);
    case Lowering::kBarrier: return lower_barrier(in);
    case Lowering::kClusterBarrier: return lower_cluster_barrier(in);
    case Lowering::kMapShared: return lower_map_shared(in);
    case Lowering::kRankOf: return lower_rank_of(in);
    case Lowering::kWarpBarrier: return lower_warp_barrier(in);
    case Lowering::kShuffle: return lower_shuffle(in);
    case Lowering::kVote: return lower_vote(in);
    case Lowering::kMatch: return lower_match(in);
    case Lowering::kRedux: return lower_redux(in);
    case Lowering::kActiveMask: return lower_active_mask(in);
    case Lowering::kElect: return lower_elect(in);
    case Lowering::kFence: emit(IrOp::k_fence); return true;
    case Lowering::kHint: return true;
    case Lowering::kBranch: emit(IrOp::k_bra).label = in.operands[0].index; return true;
    case Lowering::kBranchIndexed: return lower_branch_indexed(in);
    case Lowering::kCall: return lower_call(in);
    case Lowering::kExit: emit(IrOp::k_exit); return true;
    case Lowering::kTrap: emit(IrOp::k_trap); return true;
    case Lowering::kYield: emit(IrOp::k_yield).waits = true; return true;
    case Lowering::kReturn:
      // All returns of a function meet in one place, where the lanes that called together wait.
      if (function_.is_kernel) {
        emit(IrOp::k_exit);
      } else {
        emit(IrOp::k_bra).label = epilogue_;
      }
      return true;
  }
  return unsupported("instruction of an unknown kind");
}

bool Builder::lower_branch_indexed(const Instruction& in) {
  auto found = function_.targets_of_label.find(in.operands[1].index);
  if (in.operands[1].kind != Operand::Kind::kLabel || found == function_.targets_of_label.end()) {
    return unsupported("brx.idx without .branchtargets");
  }
  const int32_t index = read(in.operands[0], Lane::u32);
  Draft& draft = emit(IrOp::k_brx, -1, index);
  draft.table = static_cast<int32_t>(tables_.size());
  tables_.push_back(function_.branch_targets[found->second].labels);
  return true;
}

// "call (ret), f, (args), prototype": any part but the function may be missing.
bool Builder::lower_call(const Instruction& in) {
  size_t at = 0;
  CallSite site;
  auto take_list = [&](std::vector<Argument>* out) {
    if (at >= in.operands.size() || in.operands[at].kind != Operand::Kind::kList) return true;
    for (const Operand& item : in.operands[at].items) {
      if (item.kind != Operand::Kind::kVariable) {
        return unsupported("call with a register parameter");
      }
      out->push_back({param_offsets_[item.index], function_.variables[item.index].bytes});
    }
    ++at;
    return true;
  };
  if (!take_list(&site.results)) return false;
  if (at >= in.operands.size()) return unsupported("call without a function");
  const Operand& callee = in.operands[at++];
  if (!take_list(&site.arguments)) return false;
  const auto site_index = static_cast<uint32_t>(code_->call_sites.size());
  if (callee.kind == Operand::Kind::kRegister) {
    const int32_t target = read(callee, Lane::u64);
    code_->call_sites.push_back(std::move(site));
    code_->calls_indirectly = true;
    Draft& draft = emit(IrOp::k_call_indirect, -1, target);
    draft.imm = site_index;
    draft.waits = true;
    // Lanes with different targets come back one group after the other and meet behind the call.
    const int32_t behind = new_label();
    draft.label = behind;
    place(behind);
    return true;
  }
  if (callee.kind != Operand::Kind::kFunction) {
    return unsupported("call of something that is no function");
  }
  const int32_t index = module_.without_alias(callee.index);
  const ptx::Function& function = module_.functions[index];
  if (function.is_extern) return lower_builtin(function.name, site);
  if (function.is_kernel) return unsupported("call of a kernel");
  site.callee = index;
  code_->callees.push_back(index);
  code_->call_sites.push_back(std::move(site));
  Draft& draft = emit(IrOp::k_call);
  draft.imm = site_index;
  draft.waits = true;
  return true;
}

bool Builder::lower_builtin(const std::string& name, const CallSite& site) {
  struct Builtin {
    const char* name;
    IrOp op;
    size_t arguments;
    size_t results;
  };
  constexpr Builtin kBuiltins[] = {
      {"vprintf", IrOp::k_call_printf, 2, 1},
      {"malloc", IrOp::k_call_malloc, 1, 1},
      {"free", IrOp::k_call_free, 1, 0},
      {"__assertfail", IrOp::k_call_assertfail, 5, 0},
      {"cudaGraphSetConditional", IrOp::k_call_set_condition, 2, 0},
  };
  for (const Builtin& builtin : kBuiltins) {
    if (name != builtin.name) continue;
    if (site.arguments.size() != builtin.arguments || site.results.size() < builtin.results) {
      return unsupported("call of " + name + " with other parameters than its own");
    }
    Draft& draft = emit(builtin.op);
    draft.imm = code_->call_sites.size();
    code_->call_sites.push_back(site);
    return true;
  }
  if (const ptx::DeviceFunction* function = ptx::find_device_function(name)) {
    if (site.arguments.size() != function->arguments || site.results.size() != 1) {
      return unsupported("call of " + name + " with other parameters than its own");
    }
    emit(IrOp::k_call_runtime).imm = code_->call_sites.size();
    code_->call_sites.push_back(site);
    code_->call_sites.back().device_call = function->call;
    if (function->call == ptx::DeviceCall::kGraphLaunch) {
      code_->launches_graphs = true;
    } else if (!ptx::updates_node(function->call)) {
      code_->calls_runtime = true;
    }
    return true;
  }
  return unsupported("call of the external function '" + name + "'");
}

}  // namespace openmps::softgpu::ir
