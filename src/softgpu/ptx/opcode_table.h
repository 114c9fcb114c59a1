// SPDX-License-Identifier: Apache-2.0
// The one declarative table of PTX opcodes: what a full opcode looks like, what operands it takes
// and which IR it becomes. The parser matches against it, the lowering dispatches on it, and
// docs/ptx-coverage.md is printed from it. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "softgpu/ptx/ast.h"

namespace openmps::softgpu::ptx {

// How an instruction becomes IR: the function of ir/lower_*.cc that takes it.
enum class Lowering : uint8_t {
  kAlu,      // operands map one to one onto the IR op named by `ir`
  kFloat,    // as kAlu, plus rounding mode, .ftz and .sat
  kCompare,  // setp
  kSet,      // set: a comparison that writes a number
  kSelect,
  kSelectSign,
  kTestp,
  kPredicate,
  kMove,
  kConvert,
  kConvertAddress,
  kIsSpace,
  kMulAddWide24,
  kMulAddCarry,
  kLoad,
  kStore,
  kAtomic,
  kFence,
  kHint,
  kCopyAsync,
  kMbarrier,
  kStoreAsync,
  kBulkCopy,
  kTensorCopy,
  kPolicy,
  kTexture,
  kSurface,
  kImageQuery,
  kMatrix,
  kGroupMatrix,
  kVideo,
  kBranch,
  kBranchIndexed,
  kCall,
  kReturn,
  kExit,
  kTrap,
  kYield,
  kBarrier,
  kWarpBarrier,
  kClusterBarrier,
  kMapShared,
  kRankOf,
  kShuffle,
  kVote,
  kMatch,
  kRedux,
  kActiveMask,
  kElect,
};

struct Rule {
  std::string_view mnemonic;
  // Groups separated by blanks, in the order in which they may appear; a group is alternatives
  // separated by '|', optional with a final '?'. "$name" is a class of types, see the .cc.
  std::string_view modifiers;
  // One word an operand: D register written, S value read, P predicate written, Q predicate read,
  // M address, T address of a texel ("[handle, {x, y}]"), V register or {vector} written, W value
  // or {vector} read, L label, X anything; a final '?' makes it optional.
  std::string_view operands;
  Lowering lowering;
  // Name of the IR op. {t} {t1}: name of the first, second type; {b}: b16, b32 or b64 by its size;
  // {u}: the unsigned type of its size; {s}: the signed; {ftz} {sat}: "_ftz", "_sat" if written;
  // {mode}: the first modifier.
  std::string_view ir;
};

struct RuleRange {
  const Rule* begin = nullptr;
  const Rule* end = nullptr;
};
RuleRange rules_of(std::string_view mnemonic);  // empty: unknown mnemonic
RuleRange all_rules();

// Distribute the dot-separated parts of an opcode over the groups of `rule`. False: does not match.
// `any_order`: a group takes the first part that it allows, at any position. ptxas reads most
// instructions so, and NVIDIA's headers have some (`lg2.approx.f32.ftz` in curand_poisson.h).
bool match(const Rule& rule, const std::vector<std::string_view>& parts, bool any_order,
           Instruction* out);

}  // namespace openmps::softgpu::ptx
