// SPDX-License-Identifier: Apache-2.0
// A kernel's values in static single assignment form, and how each lies over the lanes of a warp.
// Places of the frame are reused by values that have nothing to do with each other, so what is
// found out belongs to values.
//
// A value's lanes are scalar + pattern: the scalar is one number for the warp, the pattern is zero
// (the value is uniform), 32 known numbers, or a vector that exists already, the value's own or
// that of another value (its base). Addresses keep their pattern while a loop moves them, so how
// the lanes lie in memory is found out once, where the base is made (emit_memory.cc).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "softgpu/tier/graph.h"
#include "softgpu/tier/launch_shape.h"

namespace openmps::softgpu::tier {

using Lanes = std::array<uint64_t, kWarpSize>;

struct Form {
  enum class Kind : uint8_t { kUnknown, kUniform, kLanes, kBase } kind = Kind::kUnknown;
  int32_t id = -1;         // kLanes: of the pattern; kBase: the value whose vector it is
  uint8_t zeros = 0;       // low bits of the scalar that are known to be zero
  bool has_scalar = true;  // false: it is zero (kBase)
  bool constant = false;   // the scalar is `bits`
  uint64_t bits = 0;
  bool operator==(const Form&) const = default;
};

// A piece of the kernel that lanes run with masks when they have parted at the end of a block,
// until they meet. See emit_region.cc.
struct Region {
  int32_t branch = -1;            // block that ends with the branch
  int32_t meet = -1;              // block
  std::vector<int32_t> blocks;    // in the order of the text
  std::vector<uint8_t> contains;  // by block
  std::vector<int32_t> writes;    // slots
  std::vector<int32_t> outputs;   // the values of `writes` behind it; -1: not live there
};
// What is behind the branch of block `b`; false: it has to be left to the interpreter.
bool find_region(const Graph& graph, int32_t b, Region* region);

struct Value {
  enum class Kind : uint8_t { kEntry, kFixed, kPhi, kOp, kRegion } kind = Kind::kOp;
  int32_t slot = -1;
  int32_t at = -1;              // op, block or region
  std::vector<int32_t> inputs;  // kPhi: by predecessor, then regions that end there, then the entry
  Form form;
  bool unsettled = false;  // f32: its NaNs may be others than the interpreter's
};

class Ssa {
 public:
  // `regions`: for the branches whose predicates differ between lanes.
  Ssa(const Graph& graph, std::vector<Region> regions, const LaunchShape& shape);

  [[nodiscard]] int32_t find(int32_t value) const;
  [[nodiscard]] const Value& value(int32_t v) const { return values[static_cast<size_t>(find(v))]; }
  [[nodiscard]] const Form& form(int32_t v) const { return value(v).form; }
  [[nodiscard]] bool is_uniform(int32_t v) const { return form(v).kind == Form::Kind::kUniform; }
  [[nodiscard]] int32_t in(int32_t b, int32_t slot) const { return in_[at(b, slot)]; }
  // Behind the block's last op.
  [[nodiscard]] int32_t out(int32_t b, int32_t slot) const { return out_[at(b, slot)]; }
  [[nodiscard]] int32_t region_of(int32_t b) const { return region_of_[static_cast<size_t>(b)]; }

  const Graph& graph;
  std::vector<Region> regions;
  std::vector<Value> values;
  std::vector<int32_t> fixed;              // by slot
  std::vector<std::vector<int32_t>> uses;  // by op, as OpFacts::reads
  std::vector<std::vector<int32_t>> made;  // by op, as OpFacts::writes
  std::vector<std::vector<int32_t>> phis;  // by block
  std::vector<Lanes> patterns;

 private:
  [[nodiscard]] size_t at(int32_t b, int32_t slot) const {
    return static_cast<size_t>(b) * graph.code.slots.size() + static_cast<size_t>(slot);
  }
  int32_t add(Value::Kind kind, int32_t slot, int32_t place);
  void make_fixed();
  void number_values();
  void fill_phis();
  void simplify_phis();
  void find_forms();
  void find_unsettled();
  [[nodiscard]] bool is_neutral(int32_t value) const;  // a constant that is no NaN
  void find_fixed_form(Value& value);
  Form form_of_phi(const Value& value, int32_t self);
  Form form_of_op(const Value& value, int32_t self);
  int32_t pattern(const Lanes& lanes);

  friend class FormRules;
  const LaunchShape& shape_;
  std::vector<int32_t> in_, out_, region_of_, same_as_;
  std::map<Lanes, int32_t> pattern_ids_;
};

// The operands of a kBranch may be the same for all lanes, or it has a region, or lanes that part
// are the interpreter's. Makes regions for those that need one.
Ssa analyse(const Graph& graph, const LaunchShape& shape);

}  // namespace openmps::softgpu::tier
