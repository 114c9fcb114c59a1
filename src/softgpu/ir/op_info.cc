// SPDX-License-Identifier: Apache-2.0
// The table behind op_info.h, printed by the same definitions that make the handlers.
#include "softgpu/ir/op_info.h"

#include <unordered_map>

namespace openmps::softgpu::ir {
namespace {

constexpr OpInfo kInfos[] = {
#define UNARY(name, D, A, ...) {#name, Lane::D, {Lane::A}},
#define BINARY(name, D, A, B, ...) {#name, Lane::D, {Lane::A, Lane::B}},
#define TERNARY(name, D, A, B, C, ...) {#name, Lane::D, {Lane::A, Lane::B, Lane::C}},
#define QUATERNARY(name, D, A, B, C, E, ...) {#name, Lane::D, {Lane::A, Lane::B, Lane::C, Lane::E}},
#define UNARY_SLOW UNARY
#define BINARY_SLOW BINARY
#define TERNARY_SLOW TERNARY
#define CARRY(name, T, ...) {#name, Lane::T, {Lane::T, Lane::T}},
#define SELECT(name, T) {#name, Lane::T, {Lane::T, Lane::T, Lane::kPredicate}},
#define RSQRT(name, ...) {#name, Lane::f32, {Lane::f32}},
#define COMPARE(name, T, ...) {#name, Lane::kPredicate, {Lane::T, Lane::T}},
#define LOAD(memory, lane)                                       \
  {"ld_global_" #memory "_" #lane, Lane::lane, {Lane::u64}},     \
      {"ld_shared_" #memory "_" #lane, Lane::lane, {Lane::u32}}, \
      {"ld_local_" #memory "_" #lane, Lane::lane, {Lane::u64}},
#define STORE(memory, lane)                                                   \
  {"st_global_" #memory "_" #lane, Lane::kNone, {Lane::u64, Lane::lane}},     \
      {"st_shared_" #memory "_" #lane, Lane::kNone, {Lane::u32, Lane::lane}}, \
      {"st_local_" #memory "_" #lane, Lane::kNone, {Lane::u64, Lane::lane}},
#define PLAIN(name) {#name, Lane::kNone, {}},
#include "softgpu/ir/ops_all.def"
};
static_assert(std::size(kInfos) == kIrOpCount);

}  // namespace

const OpInfo& op_info(IrOp op) { return kInfos[static_cast<size_t>(op)]; }

bool find_op(std::string_view name, IrOp* op) {
  using Index = std::unordered_map<std::string_view, IrOp>;
  static const Index* const index = [] {
    auto* made = new Index;  // immortal, like the table
    for (size_t i = 0; i < kIrOpCount; ++i) (*made)[kInfos[i].name] = static_cast<IrOp>(i);
    return made;
  }();
  auto found = index->find(name);
  if (found == index->end()) return false;
  *op = found->second;
  return true;
}

}  // namespace openmps::softgpu::ir
