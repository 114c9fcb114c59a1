// SPDX-License-Identifier: Apache-2.0
// From a kernel's values to LLVM IR: one function that runs a warp of which all lanes are together,
// until it comes to what the interpreter has to do. Values are variables of the function, which
// LLVM's first pass puts into registers; where the function is left to be entered again, those that
// are needed then are kept in the warp's state.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "softgpu/interp/compiled.h"
#include "softgpu/tier/lane_builder.h"
#include "softgpu/tier/memory_form.h"
#include "softgpu/tier/ssa.h"

namespace openmps::softgpu::tier {

// What an op reads or makes, while code for it is made.
struct Operand {
  Form form;             // kBase: the vector is that of value form.id, or `vector` if that is there
  Val scalar = nullptr;  // kUniform, kLanes, and kBase with a scalar; predicates: i1
  Val vector = nullptr;  // of its own; predicates: <32 x i1>
  uint32_t bytes = 4;    // of a lane; 0: a predicate
  bool unsettled = false;
  [[nodiscard]] bool is_uniform() const { return form.kind == Form::Kind::kUniform; }
};

struct EmitOptions {
  bool avx512 = false;
};

// How the lanes of a base lie in memory, found out where it is made: in groups of lanes that fill a
// vector register with words, the distances from the group's first lane.
struct Shape {
  std::vector<Val> first;  // variables: of each group its first lane's address
  std::vector<Val> index;  // of each group the lanes' distances in words
  Val flags = nullptr;     // ShapeFlag, what is true of all groups
};
enum ShapeFlag : uint32_t {
  kSame = 1,    // one address
  kInOne = 2,   // all within one vector register
  kInTwo = 4,   // vectors of up to 4 words within two
  kPairs = 8,   // distances are multiples of 8 bytes
  kQuads = 16,  // of 16
  kRow = 32,    // word after word
};

class Emitter {
 public:
  Emitter(const Ssa& ssa, LaneBuilder& lanes, Val function, const EmitOptions& options);
  void emit();

  [[nodiscard]] uint32_t state_bytes() const { return state_bytes_; }
  // Ops where the function may be entered.
  [[nodiscard]] const std::vector<uint32_t>& entries() const { return entries_; }

 private:
  using Kind = Form::Kind;

  // Values (emitter.cc).
  void declare();
  void emit_prologue();
  Val variable(Type type);
  Val get(Type type, Val variable);
  void put(Val value, Val variable);
  Val home(Type type, uint32_t bytes);  // a variable that is in the state at all times
  Type type_of(uint32_t bytes, bool wide) const;
  Operand operand_of(int32_t value);
  void assign(int32_t value, Operand result);
  void assign_phis(const std::vector<std::pair<int32_t, int32_t>>& moves);
  void follow_edge(int32_t from, int32_t to);
  Val scalar_of(const Operand& x);   // kUniform: its number
  Val part_of(const Operand& x);     // the scalar part, zero if there is none
  Val pattern_of(const Operand& x);  // the vector part
  Val vector_of(const Operand& x);   // <32 x iN>, predicates <32 x i1>
  Val settled(Val x, bool wide);
  Val settled_vector(const Operand& x);
  Val bits_of(const Operand& predicate);  // i32
  Val flags_of(Val bits);                 // <32 x i1>
  Operand uniform(Val scalar, uint32_t bytes);
  Operand general(Val vector, uint32_t bytes);

  // The frame and the state (emitter.cc).
  Val frame_at(int32_t slot) { return lanes_.at(regs_, static_cast<uint64_t>(offset_of(slot))); }
  [[nodiscard]] int32_t offset_of(int32_t slot) const {
    return ssa_.graph.code.slots[static_cast<size_t>(slot)].offset;
  }
  void write_frame(int32_t slot, const Operand& x);
  Operand read_frame(int32_t slot);
  struct Kept {  // a variable that lives in the state while the function is left
    Val variable;
    Type type;
    uint32_t offset;
  };
  void keep(Val variable, Type type, uint32_t bytes);
  void collect_kept(int32_t value, std::set<Val>* variables) const;
  void leave(uint32_t op, CompiledExit exit);
  // The values of `live` slots are kept, and code goes on at op `at`, where the builder is then.
  void leave_and_resume(uint32_t op, CompiledExit exit, uint32_t at,
                        const std::set<Val>& variables);
  void flush(const std::vector<uint8_t>& live);
  void flush_reads(uint32_t i);
  void spend(uint32_t instructions);
  Val warp_field(size_t offset, Type type);
  void set_warp_field(size_t offset, Val value);
  BlockRef block(const char* name);
  void start(BlockRef at) { llvm_.PositionBuilderAtEnd(lanes_.builder, at); }
  Val call_runtime(size_t index, Type result, std::vector<Val> operands);

  // Blocks (emit_flow.cc).
  void emit_block(int32_t b);
  bool emit_op(int32_t b, uint32_t* i);
  [[nodiscard]] uint32_t suspended_until(int32_t b, uint32_t i) const;
  void emit_end(int32_t b);
  void emit_branch(int32_t b);
  void emit_edge(int32_t b, int32_t to);
  void emit_suspend(int32_t b, uint32_t first, uint32_t last);
  void define(uint32_t i, const std::vector<Operand>& results);

  // Ops (emit_ops.cc).
  std::vector<Operand> run_op(uint32_t i, const std::vector<Operand>& operands, Val mask);
  std::vector<Operand> run_guarded(uint32_t i, const std::vector<Operand>& operands, Val mask);
  Operand compute(uint32_t i, const std::vector<Operand>& operands, const Form* form);
  Operand by_scalars(uint32_t i, const std::vector<Operand>& operands, const Form& form);
  std::vector<Operand> load_parameter(uint32_t i);
  std::vector<Operand> call_handler(uint32_t i, const std::vector<Operand>& operands, Val mask);
  std::vector<Operand> shuffle(uint32_t i, const std::vector<Operand>& operands, Val mask);
  Operand vote(uint32_t i, const std::vector<Operand>& operands);

  // Memory (emit_memory.cc; emit_shape.cc).
  struct Access {
    uint32_t op = 0;
    MemoryForm form;
    uint64_t offset = 0;
    const Operand* address = nullptr;
    int64_t least = 0, most = 0;  // kLanes: of the pattern
    uint64_t more = 0;            // bytes behind the offset that other accesses begin at
    bool two_windows = true;      // kShape: words may lie in two vector registers
  };
  enum class Way : uint8_t { kScalar, kPattern, kShape, kHandler };
  [[nodiscard]] Way way_of(Access& access, Val mask) const;
  std::vector<Operand> access_memory(uint32_t i, const std::vector<Operand>& operands, Val mask);
  bool describe(uint32_t i, const Operand* address, Val mask, Access* access, Way* way) const;
  Val is_inside(const Access& access, const std::vector<Val>& begins, const std::vector<Val>& ends);
  Val check(const Access& access, Way way);
  void leave_windows(uint32_t i, const Operand& address);
  Val address_of_part(const Access& access, Val part);
  std::vector<Val> load(const Access& access, Way way);
  [[nodiscard]] bool can_gather(const Access& access) const;
  std::vector<Operand> gather_or_call(const Access& access, const std::vector<Operand>& operands,
                                      Val mask);
  Val gather_check(const Access& access, Val addresses, Val mask);
  std::vector<Val> load_scalars(const Access& access);
  std::vector<Val> load_pattern(const Access& access);
  std::vector<Val> load_shape(const Access& access);
  void store(const Access& access, Way way, const std::vector<Operand>& values, Val mask);
  void store_runs(const Access& access, const Operand& value, Val mask);
  Val widened(Val memory, const MemoryForm& form, bool wide);
  Val pointer_to(const Access& access, Val address);
  [[nodiscard]] const Lanes& pattern(const Operand& x) const {
    return ssa_.patterns[static_cast<size_t>(x.form.id)];
  }
  Val load_group(Val base, const std::vector<uint64_t>& places, uint32_t bytes);

  // Runs of ops whose accesses are checked together (emit_segment.cc).
  struct Segment;
  uint32_t emit_segment(int32_t b, uint32_t first);
  bool find_segment(int32_t b, uint32_t first, Segment* segment) const;
  Val check_segment(const Segment& segment, bool two_windows);
  void emit_unchecked(const Segment& segment, bool two_windows);
  void emit_plain(uint32_t i);

  void find_bases();
  void find_shape(int32_t value);
  [[nodiscard]] uint32_t words() const { return options_.avx512 ? 16 : 8; }  // of a vector register
  Val shape_flag(const Shape& shape, uint32_t flags);
  Val permuted(Val words, Val index);
  Val permuted_pair(Val low, Val high, Val index);

  // Regions (emit_region.cc).
  void emit_region(const Region& region, Val taken);
  struct RegionState;
  void emit_region_block(RegionState& state, size_t k);
  void emit_region_end(RegionState& state, size_t k);
  void part(RegionState& state, size_t to);
  Operand region_operand(RegionState& state, int32_t slot);

  const Ssa& ssa_;
  LaneBuilder& lanes_;
  const Llvm& llvm_;
  const EmitOptions options_;
  Val function_, warp_, regs_, state_, runtime_, entry_;
  Val fuel_ = nullptr, shared_ = nullptr, shared_bytes_ = nullptr, ranges_ = nullptr,
      params_ = nullptr, stop_ = nullptr;
  BlockRef prologue_ = nullptr, dispatch_ = nullptr, stopped_ = nullptr;
  Val dispatch_switch_ = nullptr, variables_end_ = nullptr;
  std::vector<BlockRef> blocks_;
  std::vector<Val> scalars_, vectors_;  // variables by value; null: none
  std::map<Val, Kept> kept_;
  std::map<Val, unsigned> homes_;    // alignments
  std::map<int32_t, Shape> shapes_;  // by base
  std::set<int32_t> bases_;
  std::vector<uint32_t> entries_;
  uint32_t state_bytes_ = sizeof(CompiledState);
  int32_t block_at_hand_ = 0;
  std::vector<int32_t> now_;  // of the block at hand: the value in each slot; -1: none
};

}  // namespace openmps::softgpu::tier
