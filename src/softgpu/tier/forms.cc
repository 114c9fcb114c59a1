// SPDX-License-Identifier: Apache-2.0
// How values lie over the lanes: the rules by op, and the fixpoint over phis. See ssa.h.
#include <algorithm>
#include <bit>
#include <cstring>

#include "softgpu/ir/op_info.h"
#include "softgpu/tier/memory_form.h"
#include "softgpu/tier/scalar_rule.h"
#include "softgpu/tier/ssa.h"

namespace openmps::softgpu::tier {
namespace {

using Kind = Form::Kind;
using ptx::SpecialRegister;

uint64_t mask_of(uint32_t bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }
uint8_t zeros_of(uint64_t bits) {
  return bits == 0 ? 64 : static_cast<uint8_t>(std::countr_zero(bits));
}
uint8_t log2_of(uint32_t power) { return static_cast<uint8_t>(std::countr_zero(power)); }

Form uniform(uint8_t zeros = 0) {
  Form form;
  form.kind = Kind::kUniform;
  form.zeros = zeros;
  return form;
}
Form constant(uint64_t bits) {
  Form form = uniform(zeros_of(bits));
  form.constant = true;
  form.bits = bits;
  return form;
}
Form own(int32_t self, bool has_scalar = false) {
  Form form;
  form.kind = Kind::kBase;
  form.id = self;
  form.has_scalar = has_scalar;
  return form;
}

}  // namespace

int32_t Ssa::pattern(const Lanes& lanes) {
  const auto [at, fresh] = pattern_ids_.try_emplace(lanes, static_cast<int32_t>(patterns.size()));
  if (fresh) patterns.push_back(lanes);
  return at->second;
}

// The rules for the ops that keep a pattern.
class FormRules {
 public:
  FormRules(Ssa& ssa, uint32_t op, int32_t self)
      : ssa_(ssa), op_(ssa.graph.op(op)), uses_(ssa.uses[op]), self_(self) {}

  // By the rule, or the value is its own pattern.
  Form apply() {
    Form made;
    return by_rule(&made) ? made : own(self_);
  }

 private:
  [[nodiscard]] const Form& operand(size_t k) const { return ssa_.form(uses_[k]); }
  [[nodiscard]] uint32_t width(size_t k) const {
    return 8 * ssa_.graph.bytes_of(ssa_.value(uses_[k]).slot);
  }

  Form with_lanes(const Lanes& lanes, uint8_t zeros) {
    Form made = uniform(std::min<uint8_t>(zeros, 64));
    const bool zero = std::all_of(lanes.begin(), lanes.end(), [](uint64_t x) { return x == 0; });
    if (!zero) {
      made.kind = Kind::kLanes;
      made.id = ssa_.pattern(lanes);
    }
    return made;
  }
  template <class F>
  Form mapped(const Form& form, uint8_t zeros, F f) {
    Lanes lanes{};
    if (form.kind == Kind::kLanes) lanes = ssa_.patterns[static_cast<size_t>(form.id)];
    for (uint64_t& lane : lanes) lane = f(lane);
    return with_lanes(lanes, zeros);
  }
  // The pattern's lanes are below the scalar's lowest bit: together they are an "or".
  [[nodiscard]] bool is_disjoint(const Form& form, uint32_t bits) const {
    if (form.kind == Kind::kUniform) return true;
    if (form.kind != Kind::kLanes) return false;
    const Lanes& lanes = ssa_.patterns[static_cast<size_t>(form.id)];
    const uint32_t room = std::min<uint32_t>(form.zeros, bits);
    return std::all_of(lanes.begin(), lanes.end(),
                       [room](uint64_t x) { return (x & ~mask_of(room)) == 0; });
  }
  [[nodiscard]] static bool moves_scalars(const Form& x) { return x.kind != Kind::kUnknown; }

  bool by_rule(Form* made);
  bool add(const Form& x, const Form& y, uint32_t bits, bool minus, Form* made);
  bool multiply(const Form& x, const Form& y, uint32_t bits, Form* made);
  bool bitwise(Form* made);
  bool shift(Form* made);
  bool resize(const Form& x, uint32_t from, uint32_t to, bool sign, Form* made);

  Ssa& ssa_;
  const Op& op_;
  const std::vector<int32_t>& uses_;
  int32_t self_;
};

bool FormRules::add(const Form& x, const Form& y, uint32_t bits, bool minus, Form* made) {
  const uint8_t zeros = std::min(x.zeros, y.zeros);
  const auto is_float = [this](const Form& form) {  // its lanes may have to be mended first
    return form.kind == Kind::kBase && ssa_.value(form.id).unsettled;
  };
  if (is_float(x) || is_float(y)) return false;
  if (y.kind == Kind::kUniform) {
    *made = x;
    made->zeros = zeros;
    made->constant = false;
    made->has_scalar = true;
    return true;
  }
  if (x.kind == Kind::kUniform && !minus) return add(y, x, bits, false, made);
  if (y.kind != Kind::kLanes || (x.kind != Kind::kLanes && x.kind != Kind::kUniform)) return false;
  const Lanes& other = ssa_.patterns[static_cast<size_t>(y.id)];
  Lanes lanes{};
  if (x.kind == Kind::kLanes) lanes = ssa_.patterns[static_cast<size_t>(x.id)];
  for (uint32_t i = 0; i < kWarpSize; ++i) {
    lanes[i] = (minus ? lanes[i] - other[i] : lanes[i] + other[i]) & mask_of(bits);
  }
  *made = with_lanes(lanes, zeros);
  return true;
}

bool FormRules::multiply(const Form& x, const Form& y, uint32_t bits, Form* made) {
  if (x.constant && x.kind == Kind::kUniform && y.kind != Kind::kUniform) {
    return multiply(y, x, bits, made);
  }
  const auto zeros = static_cast<uint8_t>(std::min(64, x.zeros + y.zeros));
  if (x.kind == Kind::kUniform && y.kind == Kind::kUniform) {
    *made = uniform(zeros);
    return true;
  }
  if (y.kind != Kind::kUniform || !y.constant || x.kind != Kind::kLanes) return false;
  *made = mapped(x, zeros, [&](uint64_t lane) { return lane * y.bits & mask_of(bits); });
  return true;
}

// To `to` bits; wider ones keep a pattern that can't carry into the scalar.
bool FormRules::resize(const Form& x, uint32_t from, uint32_t to, bool sign, Form* made) {
  if (x.kind == Kind::kUniform) {
    *made = uniform(x.zeros);
    return true;
  }
  if (x.kind != Kind::kLanes) return false;
  if (to > from && !is_disjoint(x, sign ? from - 1 : from)) return false;
  *made = mapped(x, x.zeros, [&](uint64_t lane) { return lane & mask_of(to); });
  return true;
}

bool FormRules::bitwise(Form* made) {
  Form x = operand(0), y = operand(1);
  if (x.constant && x.kind == Kind::kUniform) std::swap(x, y);
  const bool is_and =
      op_.code == IrOp::k_and_b32 || op_.code == IrOp::k_and_b64 || op_.code == IrOp::k_and_b16;
  if (!y.constant || y.kind != Kind::kUniform || !is_disjoint(x, width(0))) return false;
  const uint64_t low = mask_of(std::min<uint32_t>(x.zeros, 64));
  if (is_and) {
    *made = mapped(x, std::max(x.zeros, y.zeros), [&](uint64_t lane) { return lane & y.bits; });
  } else if (op_.code == IrOp::k_or_b32 || op_.code == IrOp::k_or_b64) {
    if (x.kind == Kind::kUniform) return false;
    *made = mapped(x, x.zeros, [&](uint64_t lane) { return lane | (y.bits & low); });
  } else {
    if (x.kind == Kind::kUniform) return false;
    *made = mapped(x, x.zeros, [&](uint64_t lane) { return lane ^ (y.bits & low); });
  }
  return true;
}

bool FormRules::shift(Form* made) {
  const Form &x = operand(0), &by = operand(1);
  const uint32_t bits = width(0);
  if (!by.constant || by.kind != Kind::kUniform || by.bits >= bits) return false;
  const auto n = static_cast<uint32_t>(by.bits);
  if (op_.code == IrOp::k_shl_b32 || op_.code == IrOp::k_shl_b64) {
    if (x.kind == Kind::kBase) return false;
    *made = mapped(x, static_cast<uint8_t>(std::min<uint32_t>(64, x.zeros + n)),
                   [&](uint64_t lane) { return lane << n & mask_of(bits); });
    return true;
  }
  const bool sign = op_.code == IrOp::k_shr_s32 || op_.code == IrOp::k_shr_s64;
  if (!is_disjoint(x, sign ? bits - 1 : bits)) return false;
  *made = mapped(x, x.zeros > n ? static_cast<uint8_t>(x.zeros - n) : 0,
                 [&](uint64_t lane) { return lane >> n; });
  return true;
}

bool FormRules::by_rule(Form* made) {
  ScalarRule rule;
  if (!scalar_rule(op_.code, &rule)) return false;
  for (size_t k = 0; k < rule.operands; ++k) {
    if (!moves_scalars(operand(k))) return false;
  }
  Form product;
  switch (rule.kind) {
    case ScalarRule::Kind::kMove:
      *made = operand(0);
      made->has_scalar = true;
      return true;
    case ScalarRule::Kind::kAdd: return add(operand(0), operand(1), width(0), false, made);
    case ScalarRule::Kind::kSub: return add(operand(0), operand(1), width(0), true, made);
    case ScalarRule::Kind::kMul: return multiply(operand(0), operand(1), width(0), made);
    case ScalarRule::Kind::kMad:
      return multiply(operand(0), operand(1), width(0), &product) &&
             add(product, operand(2), width(0), false, made);
    case ScalarRule::Kind::kBitwise: return bitwise(made);
    case ScalarRule::Kind::kShift: return shift(made);
    case ScalarRule::Kind::kResize:
      return resize(operand(0), rule.from, rule.to, rule.is_signed, made);
    case ScalarRule::Kind::kMulWide:
    case ScalarRule::Kind::kMadWide: {
      Form x, y;
      if (!resize(operand(0), 32, 64, rule.is_signed, &x) ||
          !resize(operand(1), 32, 64, rule.is_signed, &y)) {
        return false;
      }
      y.constant = operand(1).constant;
      y.bits =
          rule.is_signed
              ? static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(operand(1).bits)))
              : operand(1).bits;
      if (!multiply(x, y, 64, &product)) return false;
      if (rule.kind == ScalarRule::Kind::kMulWide) {
        *made = product;
        return true;
      }
      return add(product, operand(2), 64, false, made);
    }
    case ScalarRule::Kind::kElement: {
      Form index;
      if (!resize(operand(0), 32, 64, rule.is_signed, &index)) {
        // The array's address is the scalar: the lanes' distances from it are found out once.
        if (operand(1).kind != Kind::kUniform) return false;
        *made = own(self_, true);
        return true;
      }
      const Form size = constant(rule.factor);
      return multiply(index, size, 64, &product) && add(product, operand(1), 64, false, made);
    }
  }
  return false;
}

void Ssa::find_fixed_form(Value& value) {
  const int32_t offset = graph.code.slots[static_cast<size_t>(value.slot)].offset;
  const uint32_t bytes = graph.bytes_of(value.slot);
  value.form = uniform();
  if (offset == kTrueOffset) value.form = constant(1);
  for (const GlobalReference& reference : graph.code.references) {
    if (reference.offset == offset) return;
  }
  if (offset >= kFirstPredicateOffset && offset < static_cast<int32_t>(graph.code.image.size())) {
    uint64_t bits = 0;
    std::memcpy(&bits, graph.code.image.data() + offset, bytes);
    value.form = constant(bits);
    return;
  }
  const auto lanes = [&](uint8_t zeros, auto f) {
    Lanes made{};
    for (uint32_t i = 0; i < kWarpSize; ++i) made[i] = f(i) & mask_of(8 * bytes);
    value.form = uniform(zeros);
    value.form.kind = Kind::kLanes;
    value.form.id = pattern(made);
  };
  const auto self = static_cast<int32_t>(&value - values.data());
  const bool rows = shape_.kind == LaunchShape::Kind::kRows;
  const bool line = shape_.kind == LaunchShape::Kind::kLine;
  for (const SpecialSlot& slot : graph.code.specials) {
    if (slot.offset != offset || slot.what != FrameValue::kSpecial) continue;
    switch (slot.special) {
      case SpecialRegister::kTidX:
        if (line) lanes(5, [](uint32_t i) { return uint64_t{i}; });
        if (rows) lanes(64, [&](uint32_t i) { return uint64_t{i % shape_.width}; });
        if (rows && shape_.width == 1) value.form = constant(0);
        if (!rows && !line) value.form = own(self);
        return;
      case SpecialRegister::kTidY:
        if (rows) {
          lanes(log2_of(kWarpSize / shape_.width),
                [&](uint32_t i) { return uint64_t{i / shape_.width}; });
        }
        if (!rows && !line) value.form = own(self);
        return;
      case SpecialRegister::kTidZ:
        if (!rows && !line) value.form = own(self);
        return;
      case SpecialRegister::kNtidX:
        if (line) value.form = uniform(5);
        if (rows) value.form = constant(shape_.width);
        return;
      case SpecialRegister::kLaneid: lanes(64, [](uint32_t i) { return uint64_t{i}; }); return;
      case SpecialRegister::kLanemaskEq:
      case SpecialRegister::kLanemaskLt:
      case SpecialRegister::kLanemaskLe:
      case SpecialRegister::kLanemaskGt:
      case SpecialRegister::kLanemaskGe: value.form = own(self); return;
      default: return;
    }
  }
}

Form Ssa::form_of_phi(const Value& value, int32_t self) {
  Form made;
  for (int32_t input : value.inputs) {
    const int32_t v = find(input);
    if (v == self) continue;
    const Form& form = this->value(v).form;
    if (form.kind == Kind::kUnknown) continue;
    if (made.kind == Kind::kUnknown) {
      made = form;
      continue;
    }
    if (made.kind != form.kind || made.id != form.id) return own(self);
    made.zeros = std::min(made.zeros, form.zeros);
    made.constant &= form.constant && form.bits == made.bits;
    made.has_scalar |= form.has_scalar;
  }
  if (made.kind == Kind::kBase) {
    // Of several inputs with one base each has its own scalar.
    made.has_scalar = true;
    if (made.id == self) return own(self);
  }
  made.constant = false;
  return made;
}

Form Ssa::form_of_op(const Value& value, int32_t self) {
  const auto i = static_cast<uint32_t>(value.at);
  const Op& op = graph.op(i);
  const OpFacts& facts = graph.facts[i];
  bool all_uniform = true;
  for (int32_t use : uses[i]) {
    if (use < 0) return own(self);
    const Kind kind = form(use).kind;
    if (kind == Kind::kUnknown) return {};
    all_uniform &= kind == Kind::kUniform;
  }
  switch (facts.role) {
    case Role::kParam: return facts.guard < 0 || all_uniform ? uniform() : own(self);
    case Role::kVote: return uniform();
    case Role::kLoad:
      return is_uniform(uses[i][0]) && (facts.guard < 0 || all_uniform) ? uniform() : own(self);
    case Role::kCompute: break;
    default: return op.code == IrOp::k_read_special && facts.guard < 0 ? uniform() : own(self);
  }
  if (facts.guard >= 0) return all_uniform ? uniform() : own(self);
  Form made = FormRules(*this, i, self).apply();
  if (made.kind == Kind::kBase && made.id == self && all_uniform) made = uniform();
  return made;
}

void Ssa::find_forms() {
  for (size_t k = 0; k < values.size(); ++k) {
    Value& v = values[k];
    if (v.kind == Value::Kind::kFixed) find_fixed_form(v);
    if (v.kind == Value::Kind::kEntry || v.kind == Value::Kind::kRegion) {
      v.form = own(static_cast<int32_t>(k));
    }
  }
  const auto update = [this](int32_t v, Form next) {
    Form& form = values[static_cast<size_t>(v)].form;
    if (form.kind != Kind::kUnknown && next.kind != Kind::kUnknown) {
      if (form.kind != next.kind || form.id != next.id) {
        next = own(v, form.id == v && form.has_scalar);
      }
      // What was found out only ever gets less.
      if (form.kind == Kind::kBase && form.id == v) next = form;
      next.zeros = std::min(next.zeros, form.zeros);
      next.constant &= form.constant && next.bits == form.bits;
    }
    const bool differs = !(form == next);
    if (differs) form = next;
    return differs;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (int32_t b : graph.order) {
      for (int32_t phi : phis[static_cast<size_t>(b)]) {
        changed |= update(phi, form_of_phi(values[static_cast<size_t>(phi)], phi));
      }
      const GraphBlock& block = graph.blocks[static_cast<size_t>(b)];
      for (uint32_t i = block.begin; i < block.end; ++i) {
        for (int32_t v : made[i]) {
          if (v >= 0) changed |= update(v, form_of_op(values[static_cast<size_t>(v)], v));
        }
      }
    }
  }
  for (size_t k = 0; k < values.size(); ++k) {  // never reached, or of values that are
    if (values[k].form.kind == Kind::kUnknown) values[k].form = own(static_cast<int32_t>(k));
  }
}

}  // namespace openmps::softgpu::tier
