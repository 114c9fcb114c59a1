// SPDX-License-Identifier: Apache-2.0
// Names and sizes of PTX types and special registers. Used by the parser and the lowering.
#include <iterator>

#include "softgpu/ptx/ast.h"

namespace openmps::softgpu::ptx {
namespace {

struct TypeInfo {
  std::string_view name;
  Type type;
  uint8_t bytes;
  bool is_float;
  bool is_signed;
};

constexpr TypeInfo kTypes[] = {
    {"pred", Type::kPred, 0, false, false},    {"b8", Type::kB8, 1, false, false},
    {"b16", Type::kB16, 2, false, false},      {"b32", Type::kB32, 4, false, false},
    {"b64", Type::kB64, 8, false, false},      {"b128", Type::kB128, 16, false, false},
    {"u8", Type::kU8, 1, false, false},        {"u16", Type::kU16, 2, false, false},
    {"u32", Type::kU32, 4, false, false},      {"u64", Type::kU64, 8, false, false},
    {"s8", Type::kS8, 1, false, true},         {"s16", Type::kS16, 2, false, true},
    {"s32", Type::kS32, 4, false, true},       {"s64", Type::kS64, 8, false, true},
    {"f16", Type::kF16, 2, true, true},        {"bf16", Type::kBF16, 2, true, true},
    {"f32", Type::kF32, 4, true, true},        {"f64", Type::kF64, 8, true, true},
    {"u16x2", Type::kU16x2, 4, false, false},  {"s16x2", Type::kS16x2, 4, false, true},
    {"f16x2", Type::kF16x2, 4, false, true},   {"bf16x2", Type::kBF16x2, 4, false, true},
    {"e4m3x2", Type::kE4M3x2, 2, false, true}, {"e5m2x2", Type::kE5M2x2, 2, false, true},
    {"tf32", Type::kTF32, 4, false, true},     {"e4m3", Type::kE4M3, 1, false, true},
    {"e5m2", Type::kE5M2, 1, false, true},     {"u4", Type::kU4, 1, false, false},
    {"s4", Type::kS4, 1, false, true},         {"b1", Type::kB1, 1, false, false},
};

const TypeInfo* find_type(Type type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return &info;
  }
  return nullptr;
}

struct SpecialInfo {
  std::string_view name;
  SpecialRegister special;
  uint8_t bytes;
};

using S = SpecialRegister;
constexpr SpecialInfo kSpecials[] = {
    {"%tid.x", S::kTidX, 4},
    {"%tid.y", S::kTidY, 4},
    {"%tid.z", S::kTidZ, 4},
    {"%ntid.x", S::kNtidX, 4},
    {"%ntid.y", S::kNtidY, 4},
    {"%ntid.z", S::kNtidZ, 4},
    {"%ctaid.x", S::kCtaidX, 4},
    {"%ctaid.y", S::kCtaidY, 4},
    {"%ctaid.z", S::kCtaidZ, 4},
    {"%nctaid.x", S::kNctaidX, 4},
    {"%nctaid.y", S::kNctaidY, 4},
    {"%nctaid.z", S::kNctaidZ, 4},
    {"%laneid", S::kLaneid, 4},
    {"%warpid", S::kWarpid, 4},
    {"%nwarpid", S::kNwarpid, 4},
    {"%smid", S::kSmid, 4},
    {"%nsmid", S::kNsmid, 4},
    {"%gridid", S::kGridid, 8},
    {"%lanemask_eq", S::kLanemaskEq, 4},
    {"%lanemask_lt", S::kLanemaskLt, 4},
    {"%lanemask_le", S::kLanemaskLe, 4},
    {"%lanemask_gt", S::kLanemaskGt, 4},
    {"%lanemask_ge", S::kLanemaskGe, 4},
    {"%clock", S::kClock, 4},
    {"%clock_hi", S::kClockHi, 4},
    {"%clock64", S::kClock64, 8},
    {"%globaltimer", S::kGlobaltimer, 8},
    {"%globaltimer_lo", S::kGlobaltimerLo, 4},
    {"%globaltimer_hi", S::kGlobaltimerHi, 4},
    {"%current_graph_exec", S::kCurrentGraphExec, 8},
    {"%envreg1", S::kEnvreg1, 4},
    {"%envreg2", S::kEnvreg2, 4},
    {"%dynamic_smem_size", S::kDynamicSharedSize, 4},
    {"%total_smem_size", S::kTotalSharedSize, 4},
    {"%aggr_smem_size", S::kAggregateSharedSize, 4},
    {"%reserved_smem_offset_begin", S::kReservedSharedBegin, 4},
    {"%reserved_smem_offset_end", S::kReservedSharedEnd, 4},
    {"%reserved_smem_offset_cap", S::kReservedSharedCap, 4},
    {"%reserved_smem_offset_0", S::kReservedSharedBegin, 4},
    {"%reserved_smem_offset_1", S::kReservedSharedBegin, 4},
    {"%clusterid.x", S::kClusteridX, 4},
    {"%clusterid.y", S::kClusteridY, 4},
    {"%clusterid.z", S::kClusteridZ, 4},
    {"%nclusterid.x", S::kNclusteridX, 4},
    {"%nclusterid.y", S::kNclusteridY, 4},
    {"%nclusterid.z", S::kNclusteridZ, 4},
    {"%cluster_ctaid.x", S::kClusterCtaidX, 4},
    {"%cluster_ctaid.y", S::kClusterCtaidY, 4},
    {"%cluster_ctaid.z", S::kClusterCtaidZ, 4},
    {"%cluster_nctaid.x", S::kClusterNctaidX, 4},
    {"%cluster_nctaid.y", S::kClusterNctaidY, 4},
    {"%cluster_nctaid.z", S::kClusterNctaidZ, 4},
    {"%cluster_ctarank", S::kClusterCtarank, 4},
    {"%cluster_nctarank", S::kClusterNctarank, 4},
    {"%is_explicit_cluster", S::kIsExplicitCluster, 4},
    {"WARP_SZ", S::kWarpSize, 4},
};

}  // namespace

Type type_from_name(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.name == name) return info.type;
  }
  return Type::kNone;
}

uint32_t type_bytes(Type type) {
  const TypeInfo* info = find_type(type);
  return info ? info->bytes : 0;
}

bool is_float(Type type) {
  const TypeInfo* info = find_type(type);
  return info && info->is_float;
}

bool is_signed(Type type) {
  const TypeInfo* info = find_type(type);
  return info && info->is_signed;
}

SpecialRegister special_register_from_name(std::string_view name) {
  for (const SpecialInfo& info : kSpecials) {
    if (info.name == name) return info.special;
  }
  // The others of the 32 are the driver's own; an H200 gives nothing that means anything either.
  return name.starts_with("%envreg") ? SpecialRegister::kZero : SpecialRegister::kNone;
}

uint32_t special_register_bytes(SpecialRegister special) {
  for (const SpecialInfo& info : kSpecials) {
    if (info.special == special) return info.bytes;
  }
  return 4;
}

int32_t Module::without_alias(int32_t function) const {
  // An alias of an alias of ... is legal; a circle of aliases names no function.
  for (int depth = 0; depth < 8 && !functions[function].alias_of.empty(); ++depth) {
    for (size_t i = 0; i < functions.size(); ++i) {
      if (functions[i].name == functions[function].alias_of) {
        function = static_cast<int32_t>(i);
        break;
      }
    }
  }
  return function;
}

bool Instruction::has(std::string_view modifier) const {
  for (std::string_view m : modifiers) {
    if (m == modifier) return true;
  }
  return false;
}

}  // namespace openmps::softgpu::ptx
