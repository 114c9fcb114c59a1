// SPDX-License-Identifier: Apache-2.0
// The first stage of the lowering: from statements to a DraftFunction, with a value for each
// virtual register and constant. builder.cc has the values, the lower_*.cc files the instructions.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "softgpu/ir/code.h"
#include "softgpu/ir/draft.h"
#include "softgpu/ir/memory_codes.h"
#include "softgpu/ir/op_info.h"
#include "softgpu/ptx/ast.h"
#include "softgpu/ptx/opcode_table.h"

namespace openmps::softgpu::ir {

// The parts of an instruction's name that say what is done atomically (lower_memory.cc).
AtomicOp atomic_op_of(const ptx::Instruction& instruction);
AtomicType atomic_type_of(ptx::Type type);

class Builder {
 public:
  Builder(const ptx::Module& module, int32_t function,
          const std::map<int32_t, uint32_t>& shared_offsets);
  // What can't be lowered becomes an op that faults and says so.
  DraftFunction lower_statements();

 private:
  using Instruction = ptx::Instruction;
  using Operand = ptx::Operand;

  // Values (builder.cc).
  int32_t constant(uint64_t bits, uint32_t bytes, uint64_t high_bits = 0);
  int32_t temporary(uint32_t bytes);
  int32_t special(FrameValue what, ptx::SpecialRegister special, uint32_t bytes);
  int32_t register_value(int32_t index);
  int32_t read(const Operand& operand, Lane lane);
  int32_t read_symbol(const Operand& operand, uint32_t bytes);
  int32_t read_predicate(const Operand& operand);
  int32_t fit(int32_t value, Lane lane, bool sign = false);
  int32_t result(const Operand& operand, uint32_t bytes);  // where to write; maybe a temporary
  void store_result(const Operand& operand, int32_t value, bool sign = false);
  Draft& emit(IrOp op, int32_t d = -1, int32_t a = -1, int32_t b = -1, int32_t c = -1);
  bool emit_named(const std::string& name, int32_t d, int32_t a, int32_t b = -1, int32_t c = -1);
  bool unsupported(const std::string& why);  // this instruction; always false
  int32_t new_label() { return next_label_++; }
  void place(int32_t label);
  std::string ir_name(const Instruction& instruction) const;

  // Statements (lower_control.cc).
  void lower_statement(const ptx::Statement& statement);
  void lower_guarded(const Instruction& instruction);
  void emit_unsupported(const std::string& what);
  bool lower_instruction(const Instruction& instruction);
  bool needs_branch_guard(const Instruction& instruction) const;
  bool lower_branch_indexed(const Instruction& instruction);
  bool lower_call(const Instruction& instruction);
  bool lower_builtin(const std::string& name, const CallSite& site);

  // Arithmetic (lower_alu.cc).
  bool lower_alu(const Instruction& instruction);
  bool lower_float(const Instruction& instruction);
  bool lower_compare(const Instruction& instruction);
  bool compare(const Instruction& instruction, ptx::Type type, int32_t predicate);
  bool lower_set(const Instruction& instruction);
  bool lower_select(const Instruction& instruction);
  bool lower_select_sign(const Instruction& instruction);
  bool lower_testp(const Instruction& instruction);
  bool lower_predicate(const Instruction& instruction);
  bool lower_mul_add_24(const Instruction& instruction);
  bool lower_mul_add_carry(const Instruction& instruction);
  void combine(const Instruction& instruction, int32_t predicate, int32_t third);

  // Movement and conversion (lower_convert.cc).
  bool lower_move(const Instruction& instruction);
  bool unpack(const Instruction& instruction);
  bool pack(const Instruction& instruction);
  bool lower_convert(const Instruction& instruction);
  bool convert_to_integer(const Instruction& instruction, int32_t from, ptx::Type to,
                          ptx::Type type);
  bool convert_float(const Instruction& instruction);
  bool convert_packed(const Instruction& instruction);
  int32_t to_float(int32_t value, ptx::Type type);
  void write_integer(const Instruction& instruction, int32_t value, ptx::Type type);
  bool lower_convert_address(const Instruction& instruction);
  bool lower_is_space(const Instruction& instruction);
  void is_constant(int32_t address, int32_t predicate);

  // Memory (lower_memory.cc).
  struct Address {
    int32_t base = -1;
    uint64_t offset = 0;
  };
  bool address_of(const Operand& operand, ptx::Space space, Address* out);
  ptx::Space space_of(const Instruction& instruction, const Operand& address) const;
  bool lower_load(const Instruction& instruction);
  bool lower_store(const Instruction& instruction);
  bool lower_atomic(const Instruction& instruction);
  int32_t generic_address(const Operand& operand, ptx::Space space);

  // Warps and blocks (lower_collective.cc).
  void set_members(Draft& draft, int32_t members);
  void add_predicate(Draft& draft, const Operand& operand);
  int32_t predicate_result(const Operand& operand);
  bool lower_shuffle(const Instruction& instruction);
  bool lower_vote(const Instruction& instruction);
  bool lower_match(const Instruction& instruction);
  bool lower_redux(const Instruction& instruction);
  bool lower_active_mask(const Instruction& instruction);
  bool lower_elect(const Instruction& instruction);
  bool lower_warp_barrier(const Instruction& instruction);
  bool lower_barrier(const Instruction& instruction);

  // Asynchronous copies and mbarriers (lower_async.cc).
  bool lower_copy_async(const Instruction& instruction);
  bool lower_mbarrier(const Instruction& instruction);
  bool lower_pending_count(const Instruction& instruction);
  void complete_at(int32_t barrier, int32_t bytes, int32_t ranks = -1);
  bool lower_store_async(const Instruction& instruction);
  bool lower_bulk_copy(const Instruction& instruction);
  bool lower_tensor_copy(const Instruction& instruction);
  bool lower_policy(const Instruction& instruction);

  // Clusters (lower_cluster.cc).
  bool lower_cluster_barrier(const Instruction& instruction);
  bool lower_map_shared(const Instruction& instruction);
  bool lower_rank_of(const Instruction& instruction);
  void is_own_shared(int32_t address, int32_t predicate);

  // Matrices (lower_matrix.cc, lower_group_matrix.cc) and video (lower_video.cc).
  std::vector<int32_t> read_fragment(const Operand& operand, uint32_t bytes);
  bool lower_multiply(const Instruction& instruction);
  bool lower_fragment(const Instruction& instruction);
  bool lower_tiles(const Instruction& instruction);
  bool lower_matrix(const Instruction& instruction);
  bool lower_group_matrix(const Instruction& instruction);
  bool lower_video(const Instruction& instruction);

  // Textures and surfaces (lower_texture.cc).
  bool read_image_operand(const Operand& operand, uint32_t dimensions, bool layered, Lane lane,
                          int32_t* handle, std::vector<int32_t>* coordinates);
  bool lower_texture(const Instruction& instruction);
  bool lower_surface(const Instruction& instruction);
  bool lower_image_query(const Instruction& instruction);

  const ptx::Module& module_;
  const ptx::Function& function_;
  const std::map<int32_t, uint32_t>& shared_offsets_;
  std::unique_ptr<Code> code_;
  std::vector<Value> values_;
  std::vector<int32_t> register_values_;
  std::map<std::tuple<uint32_t, uint64_t, uint64_t>, int32_t> constants_;
  std::map<std::tuple<int32_t, uint64_t, uint32_t>, int32_t> globals_;
  std::map<std::tuple<FrameValue, ptx::SpecialRegister, uint32_t>, int32_t> specials_;
  std::vector<int32_t> variable_offsets_;
  std::vector<uint64_t> param_offsets_;
  std::vector<Draft> drafts_;
  std::vector<int32_t> label_positions_;  // label -> draft index
  int32_t next_label_ = 0;
  int32_t epilogue_ = -1;
  std::vector<std::vector<int32_t>> tables_;
  uint32_t line_ = 0;
  std::string problem_;  // why the instruction at hand can't be lowered
};

}  // namespace openmps::softgpu::ir
