// SPDX-License-Identifier: Apache-2.0
// Values of the function under construction: registers, constants, symbols, and fitting one to the
// lanes an op wants. See builder.h.
#include "softgpu/ir/builder.h"

#include <bit>

#include "softgpu/ir/frame.h"

namespace openmps::softgpu::ir {

using ptx::Space;
using ptx::SpecialRegister;

Builder::Builder(const ptx::Module& module, int32_t function,
                 const std::map<int32_t, uint32_t>& shared_offsets)
    : module_(module),
      function_(module.functions[function]),
      shared_offsets_(shared_offsets),
      code_(std::make_unique<Code>()) {
  code_->name = function_.name;
  code_->function = function;
  code_->is_kernel = function_.is_kernel;
  register_values_.assign(function_.registers.size(), -1);
  next_label_ = static_cast<int32_t>(function_.labels.size());
  // The frame's local memory: results, parameters, then the rest; each at its own alignment.
  uint64_t local = 0, param = 0;
  const size_t returns = function_.prototype.returns.size();
  const size_t parameters = function_.prototype.parameters.size();
  for (size_t i = 0; i < function_.variables.size(); ++i) {
    const ptx::Variable& variable = function_.variables[i];
    uint64_t& at = variable.space == Space::kParam ? param : local;
    at = (at + variable.alignment - 1) & ~uint64_t{variable.alignment - 1};
    param_offsets_.push_back(at);
    const Argument argument{at, variable.bytes};
    if (i < returns) {
      code_->results.push_back(argument);
    } else if (i < returns + parameters) {
      code_->parameters.push_back(argument);
    }
    at += variable.bytes;
  }
  code_->local_bytes = (local + 15) & ~uint64_t{15};
}

bool Builder::unsupported(const std::string& why) {
  if (problem_.empty()) problem_ = why;
  return false;
}

int32_t Builder::constant(uint64_t bits, uint32_t bytes, uint64_t high_bits) {
  if (bytes < 2) bytes = 2;
  if (bytes < 8) bits &= (uint64_t{1} << (8 * bytes)) - 1;
  auto [found, made] =
      constants_.try_emplace({bytes, bits, high_bits}, static_cast<int32_t>(values_.size()));
  if (made) {
    Value& value = values_.emplace_back();
    value.kind = Value::Kind::kConstant;
    value.bytes = bytes;
    value.bits = bits;
    value.high_bits = high_bits;
  }
  return found->second;
}

int32_t Builder::temporary(uint32_t bytes) {
  Value& value = values_.emplace_back();
  value.bytes = bytes == 1 ? 2 : bytes;
  return static_cast<int32_t>(values_.size() - 1);
}

int32_t Builder::special(FrameValue what, SpecialRegister special, uint32_t bytes) {
  auto [found, made] =
      specials_.try_emplace({what, special, bytes}, static_cast<int32_t>(values_.size()));
  if (made) {
    Value& value = values_.emplace_back();
    value.kind = Value::Kind::kSpecial;
    value.bytes = bytes;
    value.what = what;
    value.special = special;
    if (special == SpecialRegister::kEnvreg1 || special == SpecialRegister::kEnvreg2) {
      code_->uses_grid_workspace = true;
    }
    if (special >= SpecialRegister::kReservedSharedBegin &&
        special <= SpecialRegister::kReservedSharedCap) {
      code_->uses_reserved_shared = true;
    }
  }
  return found->second;
}

int32_t Builder::register_value(int32_t index) {
  if (register_values_[index] < 0) {
    register_values_[index] = temporary(ptx::type_bytes(function_.registers[index].type));
  }
  return register_values_[index];
}

Draft& Builder::emit(IrOp op, int32_t d, int32_t a, int32_t b, int32_t c) {
  Draft& draft = drafts_.emplace_back();
  draft.op = op;
  draft.d = d;
  draft.a = a;
  draft.b = b;
  draft.c = c;
  draft.line = line_;
  return draft;
}

bool Builder::emit_named(const std::string& name, int32_t d, int32_t a, int32_t b, int32_t c) {
  IrOp op;
  if (!find_op(name, &op)) return unsupported("no implementation of " + name);
  emit(op, d, a, b, c);
  return true;
}

void Builder::place(int32_t label) {
  if (label_positions_.size() <= static_cast<size_t>(label)) label_positions_.resize(label + 1, -1);
  label_positions_[label] = static_cast<int32_t>(drafts_.size());
}

// Narrower by cutting off, wider by zero or sign extension.
int32_t Builder::fit(int32_t value, Lane lane, bool sign) {
  const uint32_t have = values_[value].bytes, want = std::max(2u, lane_bytes(lane));
  if (have == want) return value;
  const int32_t made = temporary(want);
  if (have == 16 || want == 16) {
    if (have == 16) emit(IrOp::k_lo_b128, made, value);
    if (have == 16 && want < 8) unsupported("a 128-bit register in a narrow operand");
    if (want == 16) emit(IrOp::k_pack_b128, made, fit(value, Lane::u64, sign), constant(0, 8));
    return made;
  }
  emit_named(std::string("resize_u") + std::to_string(want * 8) + "_" +
                 (sign && have < want ? "s" : "u") + std::to_string(have * 8),
             made, value);
  return made;
}

int32_t Builder::read_symbol(const Operand& operand, uint32_t bytes) {
  const auto offset = static_cast<uint64_t>(operand.offset);
  switch (operand.kind) {
    case Operand::Kind::kShared: {
      if (!module_.shared[operand.index].is_extern) {
        return constant(shared_offsets_.at(operand.index) + offset, bytes);
      }
      const int32_t base = special(FrameValue::kDynamicShared, SpecialRegister::kNone, bytes);
      if (offset == 0) return base;
      const int32_t sum = temporary(bytes);
      emit(bytes == 8 ? IrOp::k_add_b64 : IrOp::k_add_b32, sum, base, constant(offset, bytes));
      return sum;
    }
    case Operand::Kind::kGlobal: {
      auto [found, made] = globals_.try_emplace({operand.index, offset, bytes},
                                                static_cast<int32_t>(values_.size()));
      if (made) {
        Value& value = values_.emplace_back();
        value.kind = Value::Kind::kGlobal;
        value.bytes = bytes;
        value.bits = offset;
        value.global = operand.index;
      }
      return found->second;
    }
    case Operand::Kind::kFunction:
      return constant(
          kFunctionWindow + 16 * static_cast<uint64_t>(module_.without_alias(operand.index)),
          bytes);
    case Operand::Kind::kVariable: {
      const uint64_t at = param_offsets_[operand.index] + offset;
      if (function_.variables[operand.index].space == Space::kParam) return constant(at, bytes);
      const int32_t base = special(FrameValue::kLocalBase, SpecialRegister::kNone, bytes);
      if (at == 0) return base;
      const int32_t sum = temporary(bytes);
      emit(bytes == 8 ? IrOp::k_add_b64 : IrOp::k_add_b32, sum, base, constant(at, bytes));
      return sum;
    }
    default: unsupported("operand of an unexpected kind"); return constant(0, bytes);
  }
}

int32_t Builder::read(const Operand& operand, Lane lane) {
  if (lane == Lane::kPredicate) return read_predicate(operand);
  const uint32_t bytes = std::max(2u, lane_bytes(lane));
  switch (operand.kind) {
    case Operand::Kind::kRegister: {
      const int32_t value = register_value(operand.index);
      if (values_[value].bytes == 0) {
        unsupported("predicate in the place of a number");
        return constant(0, bytes);
      }
      const ptx::Type type = function_.registers[operand.index].type;
      return fit(value, lane, ptx::is_signed(type) && !ptx::is_float(type));
    }
    case Operand::Kind::kInteger:
      if (lane == Lane::f32) {
        return constant(
            std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(operand.integer))), 4);
      }
      if (lane == Lane::f64) {
        return constant(
            std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(operand.integer))), 8);
      }
      return constant(operand.integer, bytes);
    case Operand::Kind::kFloat: {
      uint64_t bits = operand.integer;
      if (operand.is_double && bytes == 4) {
        bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
      }
      if (!operand.is_double && bytes == 8) {
        bits = std::bit_cast<uint64_t>(
            static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
      }
      return constant(bits, bytes);
    }
    case Operand::Kind::kSpecial: {
      const uint32_t own = ptx::special_register_bytes(operand.special);
      if (!ptx::is_dynamic(operand.special)) {
        return fit(special(FrameValue::kSpecial, operand.special, own), lane);
      }
      const int32_t value = temporary(own);
      if (operand.special == SpecialRegister::kCurrentGraphExec) code_->launches_graphs = true;
      emit(IrOp::k_read_special, value).aux = static_cast<uint32_t>(operand.special);
      drafts_.back().waits = true;
      return fit(value, lane);
    }
    default:
      if (bytes < 4) return fit(read_symbol(operand, 4), lane);
      return read_symbol(operand, bytes > 8 ? 8 : bytes);
  }
}

int32_t Builder::read_predicate(const Operand& operand) {
  if (operand.kind == Operand::Kind::kInteger) {
    const int32_t made = temporary(0);
    emit(operand.integer ? IrOp::k_pred_mov : IrOp::k_pred_not, made, -1).a = -1;
    return made;
  }
  if (operand.special == SpecialRegister::kIsExplicitCluster) {
    const int32_t made = temporary(0);
    emit(IrOp::k_setp_ne_u32, made, read(operand, Lane::u32), constant(0, 4));
    return made;
  }
  const int32_t value =
      operand.kind == Operand::Kind::kRegister ? register_value(operand.index) : -1;
  if (value < 0 || values_[value].bytes != 0) {
    unsupported("number in the place of a predicate");
    return temporary(0);
  }
  if (!operand.negated) return value;
  const int32_t made = temporary(0);
  emit(IrOp::k_pred_not, made, value);
  return made;
}

int32_t Builder::result(const Operand& operand, uint32_t bytes) {
  if (bytes == 1) bytes = 2;
  if (operand.kind != Operand::Kind::kRegister) return temporary(bytes);
  const int32_t value = register_value(operand.index);
  return values_[value].bytes == bytes ? value : temporary(bytes);
}

// After the op that wrote `value`: into a register of another width, if that is what it is.
void Builder::store_result(const Operand& operand, int32_t value, bool sign) {
  if (operand.kind != Operand::Kind::kRegister) return;
  const int32_t own = register_value(operand.index);
  if (own == value) return;
  const uint32_t have = values_[value].bytes, want = values_[own].bytes;
  if (have == 0 || want == 0) {
    unsupported("predicate in the place of a number");
  } else if (have == want) {
    emit_named("mov_b" + std::to_string(8 * want), own, value);
  } else if (have == 16 || want == 16) {
    unsupported("128-bit operand of another width");
  } else {
    emit_named(std::string("resize_u") + std::to_string(want * 8) + "_" +
                   (sign && have < want ? "s" : "u") + std::to_string(have * 8),
               own, value);
  }
}

}  // namespace openmps::softgpu::ir
