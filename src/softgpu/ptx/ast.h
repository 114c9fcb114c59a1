// SPDX-License-Identifier: Apache-2.0
// The parsed form of a PTX module: what ptx::parse() yields and ir::lower() consumes. Plain data,
// immutable after parsing; string_views point into Module::source. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace openmps::softgpu::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kU16x2,
  kS16x2,
  kF16x2,
  kBF16x2,
  kE4M3x2,
  kE5M2x2,
  kTF32,
  // Of matrices alone; smaller than what a register holds.
  kE4M3,
  kE5M2,
  kU4,
  kS4,
  kB1,
};

// kNone for anything that is not a type name ("f32", without the dot).
Type type_from_name(std::string_view name);
uint32_t type_bytes(Type type);  // of a value in memory; 0 for predicates
bool is_float(Type type);        // f16, bf16, f32, f64
bool is_signed(Type type);

enum class Space : uint8_t {
  kGeneric,
  kReg,
  kParam,
  kLocal,
  kShared,
  kSharedCluster,  // in an instruction: of any block of the cluster
  kGlobal,
  kConst,
};

enum class SpecialRegister : uint8_t {
  kNone,
  // One value in every lane and for the whole life of a block.
  kNtidX,
  kNtidY,
  kNtidZ,
  // The block's place, from here ...
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kClusteridX,
  kClusteridY,
  kClusteridZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterCtarank,  // ... to here
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kNclusteridX,
  kNclusteridY,
  kNclusteridZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterNctarank,
  kIsExplicitCluster,  // a predicate; as a number 0 or 1
  kWarpSize,
  kNwarpid,
  kNsmid,
  kGridid,
  kDynamicSharedSize,
  kTotalSharedSize,
  kAggregateSharedSize,
  kReservedSharedBegin,  // also %reserved_smem_offset_0 and _1
  kReservedSharedEnd,
  kReservedSharedCap,
  kEnvreg1,
  kEnvreg2,
  kZero,
  // By lane, for the whole life of a block.
  kTidX,
  kTidY,
  kTidZ,
  kLaneid,
  kWarpid,
  kLanemaskEq,
  kLanemaskLt,
  kLanemaskLe,
  kLanemaskGt,
  kLanemaskGe,
  // Read anew at each use.
  kSmid,
  kClock,
  kClockHi,
  kClock64,
  kGlobaltimer,
  kGlobaltimerLo,
  kGlobaltimerHi,
  kCurrentGraphExec,
};
SpecialRegister special_register_from_name(std::string_view name);  // with '%' and ".x"
uint32_t special_register_bytes(SpecialRegister special);           // 4 or 8
inline bool is_dynamic(SpecialRegister special) { return special >= SpecialRegister::kSmid; }
inline bool is_block_place(SpecialRegister special) {
  return special >= SpecialRegister::kCtaidX && special <= SpecialRegister::kClusterCtarank;
}

struct Register {
  std::string name;
  Type type = Type::kB32;
};

// A variable in memory: module scope, function scope, or a parameter.
struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  uint64_t bytes = 0;
  uint32_t alignment = 1;
  bool is_extern = false;
  bool is_managed = false;
  uint32_t line = 0;
};

// Where a symbol's address goes into a variable's initial value. `mask_shift`: the byte of the
// address that `mask()` initialisers select, or -1 for the whole value.
struct Relocation {
  uint64_t offset = 0;
  uint32_t size = 8;
  std::string symbol;
  int64_t addend = 0;
  int mask_shift = -1;
};

struct GlobalVariable : Variable {
  std::vector<uint8_t> initial;  // shorter than bytes: the rest is zero
  std::vector<Relocation> relocations;
};

struct Operand {
  enum class Kind : uint8_t {
    kNone,
    kRegister,
    kInteger,
    kFloat,
    kSpecial,
    kVariable,
    kShared,
    kGlobal,
    kFunction,
    kLabel,
    kSink,
    kAddress,
    kVector,
    kList,
    kPrototype,
  };
  Kind kind = Kind::kNone;
  bool negated = false;  // "!%p"
  int32_t index = -1;    // register, variable, shared, global, function, label or prototype
  SpecialRegister special = SpecialRegister::kNone;
  uint64_t integer = 0;        // kInteger: two's complement; kFloat: the bits
  bool is_double = false;      // kFloat: 64 bits, else 32
  int64_t offset = 0;          // kAddress and symbols: added to the base
  std::vector<Operand> items;  // kAddress: {base}; kVector, kList: the members
  int32_t pair = -1;           // "p|q": the second register; -2: "p|_"
  std::string_view selector;   // "h1" of "%r1.h1": video instructions
};
// The elements of a vector; any other operand is its only element.
inline std::vector<Operand> members_of(const Operand& operand) {
  return operand.kind == Operand::Kind::kVector ? operand.items : std::vector{operand};
}

struct Rule;

struct Instruction {
  const Rule* rule = nullptr;               // null: unknown opcode or modifier
  std::string_view opcode;                  // as written, for messages
  std::vector<std::string_view> modifiers;  // without dots and types
  std::vector<Type> types;
  std::vector<Operand> operands;
  int32_t guard = -1;
  bool guard_negated = false;
  uint32_t line = 0;

  bool has(std::string_view modifier) const;
  Type type(size_t i = 0) const { return i < types.size() ? types[i] : Type::kNone; }
};

// Instructions and labels in text order.
struct Statement {
  int32_t label = -1;  // >= 0: this statement defines the label and has no instruction
  Instruction instruction;
};

struct Prototype {  // of a function or a .callprototype
  std::vector<Variable> returns;
  std::vector<Variable> parameters;
  bool no_return = false;
};

struct BranchTargets {
  std::vector<int32_t> labels;
};

// What the text of a function names of its module.
struct Mentions {
  std::set<int32_t> variables;   // .shared ones
  std::vector<int32_t> callees;  // aliases as they are
  bool calls_indirectly = false;
};

struct Function {
  std::string name;
  std::string alias_of;  // ".alias name, alias_of"
  bool is_kernel = false;
  bool is_extern = false;  // declared only
  Prototype prototype;     // indices below count these first: returns, then parameters
  std::vector<Register> registers;
  std::vector<Variable>
      variables;  // returns, parameters, then .local/.param (and .shared) of the body
  std::vector<std::string> labels;
  std::vector<int32_t> label_lines;  // -1: never defined
  std::vector<BranchTargets> branch_targets;
  std::map<int32_t, int32_t> targets_of_label;  // label of a .branchtargets -> branch_targets index
  std::vector<Prototype> prototypes;            // .callprototype
  std::vector<Statement> body;
  uint32_t max_threads[3] = {0, 0, 0};
  uint32_t required_threads[3] = {0, 0, 0};
  uint32_t min_blocks = 0;                   // .minnctapersm, 0: not given
  uint32_t max_registers = 0;                // .maxnreg, 0: not given
  uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster
  uint32_t max_cluster_blocks = 0;           // .maxclusterrank, 0: not given
  bool explicit_cluster = false;             // .explicitcluster: a launch has clusters
  bool uses_register_parameters = false;
  uint32_t line = 0;
  bool is_put_off = false;  // the body was passed over (LazyModule), and names these
  Mentions mentions;
};

struct Module {
  std::string source;    // owns what the string_views point to
  uint32_t version = 0;  // 10 * major + minor
  std::string target;    // "sm_80"
  uint32_t address_bytes = 8;
  std::vector<GlobalVariable> globals;  // .global and .const
  std::vector<Variable> shared;         // module-scope and function-scope .shared
  std::vector<Function> functions;

  // The function that `function` is an alias of (".alias"), or itself.
  int32_t without_alias(int32_t function) const;
};

}  // namespace openmps::softgpu::ptx
