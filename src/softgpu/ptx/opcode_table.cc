// SPDX-License-Identifier: Apache-2.0
// The opcode table itself and its matcher. See opcode_table.h. Rules of one mnemonic are
// adjacent; the first that matches is taken.
#include "softgpu/ptx/opcode_table.h"

#include <array>
#include <unordered_map>

namespace openmps::softgpu::ptx {
namespace {

using L = Lowering;

// The shapes of wgmma with that k: m64n8k16, m64n16k16, ...
#define SOFTGPU_GROUP_OF_FOUR(k, a, b, c, d) "|m64n" a k "|m64n" b k "|m64n" c k "|m64n" d k
#define SOFTGPU_GROUP_SHAPES(k)                                                                  \
  "m64n8" k "|m64n16" k "|m64n24" k "|m64n32" k SOFTGPU_GROUP_OF_FOUR(k, "40", "48", "56", "64") \
      SOFTGPU_GROUP_OF_FOUR(k, "72", "80", "88", "96")                                           \
          SOFTGPU_GROUP_OF_FOUR(k, "104", "112", "120", "128")                                   \
              SOFTGPU_GROUP_OF_FOUR(k, "136", "144", "152", "160")                               \
                  SOFTGPU_GROUP_OF_FOUR(k, "168", "176", "184", "192")                           \
                      SOFTGPU_GROUP_OF_FOUR(k, "200", "208", "216", "224")                       \
                          SOFTGPU_GROUP_OF_FOUR(k, "232", "240", "248", "256")

struct TypeClass {
  std::string_view name;
  std::string_view alternatives;
};
constexpr TypeClass kClasses[] = {
    {"$int", "u16|s16|u32|s32|u64|s64"},
    {"$int32", "u32|s32"},
    {"$int3264", "u32|s32|u64|s64"},
    {"$sint", "s16|s32|s64"},
    {"$bits", "b16|b32|b64"},
    {"$b3264", "b32|b64"},
    {"$half", "f16|bf16|f16x2|bf16x2"},
    {"$shr", "b16|u16|s16|b32|u32|s32|b64|u64|s64"},
    {"$scalar", "b16|b32|b64|u16|s16|u32|s32|u64|s64|f32|f64|f16|bf16|f16x2|bf16x2"},
    {"$mem", "b8|u8|s8|b16|u16|s16|b32|u32|s32|b64|u64|s64|f16|bf16|f16x2|bf16x2|f32|f64|b128"},
    {"$compare", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"},
    {"$round", "rn|rz|rm|rp"},
    {"$scope", "cta|cluster|gpu|sys"},
    {"$space",
     "const|global|local|param|param::entry|param::func|shared|shared::cta|shared::cluster"},
    {"$shared", "shared|shared::cta|shared::cluster"},
    {"$rank", "1d|2d|3d|4d|5d"},
    {"$evict",
     "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"},
    {"$evict2", "L2::evict_normal|L2::evict_first|L2::evict_last"},
    {"$fetch", "L2::64B|L2::128B|L2::256B"},
    {"$order", "eq|ne|lt|le|gt|ge"},
    {"$second", "add|min|max"},
    {"$sum", "f16|f32|s32|f64"},
    {"$factor", "f16|bf16|tf32|e4m3|e5m2|f64|u8|s8|u4|s4|b1"},
    {"$shape",
     "m16n8k4|m16n8k8|m16n8k16|m16n8k32|m16n8k64|m16n8k128|m16n8k256|m8n8k4|m8n8k16|m8n8k32|"
     "m8n8k128|m16n16k16|m32n8k16|m8n32k16|m16n16k8"},
    {"$group", SOFTGPU_GROUP_SHAPES("k8") "|" SOFTGPU_GROUP_SHAPES("k16") "|" SOFTGPU_GROUP_SHAPES(
                   "k32") "|" SOFTGPU_GROUP_SHAPES("k256")},
};

// clang-format off
constexpr Rule kRules[] = {
    // Integer arithmetic.
    {"add", "sat s32", "D S S", L::kAlu, "add_sat_s32"},
    {"add", "cc $int3264", "D S S", L::kAlu, "add_cc_{u}"},
    {"add", "$int|u16x2|s16x2", "D S S", L::kAlu, "add_{b}"},
    {"add", "$round? ftz? sat? f32|f64", "D S S", L::kFloat, "add_{t}{ftz}"},
    {"add", "rn? ftz? sat? $half", "D S S", L::kFloat, "add_{t}"},
    {"addc", "cc? $int3264", "D S S", L::kAlu, "addc{cc}_{u}"},
    {"sub", "sat s32", "D S S", L::kAlu, "sub_sat_s32"},
    {"sub", "cc $int3264", "D S S", L::kAlu, "sub_cc_{u}"},
    {"sub", "$int", "D S S", L::kAlu, "sub_{b}"},
    {"sub", "$round? ftz? sat? f32|f64", "D S S", L::kFloat, "sub_{t}{ftz}"},
    {"sub", "rn? ftz? sat? $half", "D S S", L::kFloat, "sub_{t}"},
    {"subc", "cc? $int3264", "D S S", L::kAlu, "subc{cc}_{u}"},
    {"mul", "lo $int", "D S S", L::kAlu, "mul_lo_{b}"},
    {"mul", "hi $int", "D S S", L::kAlu, "mul_hi_{t}"},
    {"mul", "wide u16|s16|u32|s32", "D S S", L::kAlu, "mul_wide_{t}"},
    {"mul", "$round? ftz? sat? f32|f64", "D S S", L::kFloat, "mul_{t}{ftz}"},
    {"mul", "rn? ftz? sat? $half", "D S S", L::kFloat, "mul_{t}"},
    {"mul24", "lo|hi $int32", "D S S", L::kAlu, "mul24_{mode}_{t}"},
    {"mad", "lo|hi cc $int3264", "D S S S", L::kMulAddCarry, "add_cc_{u}"},
    {"mad", "lo $int", "D S S S", L::kAlu, "mad_lo_{b}"},
    {"mad", "hi sat s32", "D S S S", L::kAlu, "mad_hi_sat_s32"},
    {"mad", "hi $int", "D S S S", L::kAlu, "mad_hi_{t}"},
    {"mad", "wide u16|s16|u32|s32", "D S S S", L::kAlu, "mad_wide_{t}"},
    {"mad", "$round? ftz? sat? f32|f64", "D S S S", L::kFloat, "fma_{t}{ftz}"},
    {"madc", "lo|hi cc? $int3264", "D S S S", L::kMulAddCarry, "addc{cc}_{u}"},
    {"mad24", "hi sat s32", "D S S S", L::kMulAddWide24, "add_sat_s32"},
    {"mad24", "lo|hi $int32", "D S S S", L::kMulAddWide24, "add_b32"},
    {"sad", "$int", "D S S S", L::kAlu, "sad_{t}"},
    {"div", "$int", "D S S", L::kAlu, "div_{t}"},
    {"div", "approx|full|rn|rz|rm|rp ftz? f32", "D S S", L::kFloat, "div_{t}{ftz}"},
    {"div", "$round f64", "D S S", L::kFloat, "div_{t}"},
    {"rem", "$int", "D S S", L::kAlu, "rem_{t}"},
    {"abs", "$sint", "D S", L::kAlu, "abs_{t}"},
    {"abs", "ftz? f32|f64", "D S", L::kFloat, "abs_{t}{ftz}"},
    {"abs", "ftz? $half", "D S", L::kFloat, "abs_{t}"},
    {"neg", "$sint", "D S", L::kAlu, "neg_{t}"},
    {"neg", "ftz? f32|f64", "D S", L::kFloat, "neg_{t}{ftz}"},
    {"neg", "ftz? $half", "D S", L::kFloat, "neg_{t}"},
    {"min", "relu s32|s16x2", "D S S", L::kAlu, "min_relu_{t}"},
    {"min", "$int|u16x2|s16x2", "D S S", L::kAlu, "min_{t}"},
    {"min", "ftz? NaN? f32", "D S S", L::kFloat, "min{nan}_{t}{ftz}"},
    {"min", "ftz? NaN? xorsign abs f32", "D S S", L::kFloat, "min{nan}_{t}{ftz}"},
    {"min", "f64", "D S S", L::kFloat, "min_{t}"},
    {"min", "ftz? NaN? $half", "D S S", L::kFloat, "min{nan}_{t}"},
    {"min", "ftz? NaN? xorsign abs $half", "D S S", L::kFloat, "min{nan}_{t}"},
    {"max", "relu s32|s16x2", "D S S", L::kAlu, "max_relu_{t}"},
    {"max", "$int|u16x2|s16x2", "D S S", L::kAlu, "max_{t}"},
    {"max", "ftz? NaN? f32", "D S S", L::kFloat, "max{nan}_{t}{ftz}"},
    {"max", "ftz? NaN? xorsign abs f32", "D S S", L::kFloat, "max{nan}_{t}{ftz}"},
    {"max", "f64", "D S S", L::kFloat, "max_{t}"},
    {"max", "ftz? NaN? $half", "D S S", L::kFloat, "max{nan}_{t}"},
    {"max", "ftz? NaN? xorsign abs $half", "D S S", L::kFloat, "max{nan}_{t}"},
    {"dp4a", "u32 u32", "D S S S", L::kAlu, "dp4a_u32_u32"},
    {"dp4a", "$int32 $int32", "D S S S", L::kAlu, "dp4a_{t}_{t1}"},
    {"dp2a", "lo|hi $int32 $int32", "D S S S", L::kAlu, "dp2a_{mode}_{t}_{t1}"},
    // Bits.
    {"popc", "$b3264", "D S", L::kAlu, "popc_{t}"},
    {"clz", "$b3264", "D S", L::kAlu, "clz_{t}"},
    {"bfind", "shiftamt? $int3264", "D S", L::kAlu, "bfind{shiftamt}_{t}"},
    {"fns", "b32", "D S S S", L::kAlu, "fns_b32"},
    {"brev", "$b3264", "D S", L::kAlu, "brev_{t}"},
    {"bfe", "$int3264", "D S S S", L::kAlu, "bfe_{t}"},
    {"bfi", "$b3264", "D S S S S", L::kAlu, "bfi_{t}"},
    {"bmsk", "clamp|wrap b32", "D S S", L::kAlu, "bmsk_{mode}_b32"},
    {"szext", "clamp|wrap $int32", "D S S", L::kAlu, "szext_{mode}_{t}"},
    {"and", "pred", "P Q Q", L::kPredicate, "pred_and"},
    {"and", "$bits", "D S S", L::kAlu, "and_{t}"},
    {"or", "pred", "P Q Q", L::kPredicate, "pred_or"},
    {"or", "$bits", "D S S", L::kAlu, "or_{t}"},
    {"xor", "pred", "P Q Q", L::kPredicate, "pred_xor"},
    {"xor", "$bits", "D S S", L::kAlu, "xor_{t}"},
    {"not", "pred", "P Q", L::kPredicate, "pred_not"},
    {"not", "$bits", "D S", L::kAlu, "not_{t}"},
    {"cnot", "$bits", "D S", L::kAlu, "cnot_{t}"},
    {"lop3", "b32", "D S S S X", L::kAlu, "lop3_b32"},
    {"shl", "$bits", "D S S", L::kAlu, "shl_{t}"},
    {"shr", "s16|s32|s64", "D S S", L::kAlu, "shr_{t}"},
    {"shr", "$shr", "D S S", L::kAlu, "shr_{u}"},
    {"shf", "l|r clamp|wrap b32", "D S S S", L::kAlu, "shf_{mode}_{mode2}_b32"},
    {"prmt", "b32 f4e|b4e|rc8|ecl|ecr|rc16?", "D S S S", L::kAlu, "prmt{mode_}_b32"},
    // Parts of words.
    {"vadd2", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vadd4", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vsub2", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vsub4", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vavrg2", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vavrg4", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vabsdiff2", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vabsdiff4", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vmin2", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vmin4", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vmax2", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vmax4", "$int32 $int32 $int32 sat? add?", "D S S S", L::kVideo, ""},
    {"vset2", "$int32 $int32 $order add?", "D S S S", L::kVideo, ""},
    {"vset4", "$int32 $int32 $order add?", "D S S S", L::kVideo, ""},
    {"vadd", "$int32 $int32 $int32 sat? $second?", "D S S S?", L::kVideo, ""},
    {"vsub", "$int32 $int32 $int32 sat? $second?", "D S S S?", L::kVideo, ""},
    {"vabsdiff", "$int32 $int32 $int32 sat? $second?", "D S S S?", L::kVideo, ""},
    {"vmin", "$int32 $int32 $int32 sat? $second?", "D S S S?", L::kVideo, ""},
    {"vmax", "$int32 $int32 $int32 sat? $second?", "D S S S?", L::kVideo, ""},
    {"vshl", "$int32 $int32 u32 sat? clamp|wrap $second?", "D S S S?", L::kVideo, ""},
    {"vshr", "$int32 $int32 u32 sat? clamp|wrap $second?", "D S S S?", L::kVideo, ""},
    {"vmad", "$int32 $int32 $int32 po? sat? shr7|shr15?", "D S S S", L::kVideo, ""},
    {"vset", "$int32 $int32 $order $second?", "D S S S?", L::kVideo, ""},
    // Floating point.
    {"fma", "$round ftz? sat? f32|f64", "D S S S", L::kFloat, "fma_{t}{ftz}"},
    {"fma", "rn ftz? sat? relu? $half", "D S S S", L::kFloat, "fma_{t}"},
    {"rcp", "approx|rn|rz|rm|rp ftz? f32|f64", "D S", L::kFloat, "rcp_{t}{ftz}"},
    {"sqrt", "approx|rn|rz|rm|rp ftz? f32|f64", "D S", L::kFloat, "sqrt_{t}{ftz}"},
    {"rsqrt", "approx ftz? f32|f64", "D S", L::kFloat, "rsqrt_{t}{ftz}"},
    {"sin", "approx ftz? f32", "D S", L::kFloat, "sin_f32{ftz}"},
    {"cos", "approx ftz? f32", "D S", L::kFloat, "cos_f32{ftz}"},
    {"lg2", "approx ftz? f32", "D S", L::kFloat, "lg2_f32{ftz}"},
    {"ex2", "approx ftz? f32", "D S", L::kFloat, "ex2_f32{ftz}"},
    {"ex2", "approx ftz? $half", "D S", L::kFloat, "ex2_{t}"},
    {"tanh", "approx f32", "D S", L::kFloat, "tanh_f32"},
    {"tanh", "approx $half", "D S", L::kFloat, "tanh_{t}"},
    {"copysign", "f32|f64", "D S S", L::kFloat, "copysign_{t}"},
    {"testp", "finite|infinite|number|notanumber|normal|subnormal f32|f64", "P S", L::kTestp,
     "testp_{mode}_{t}"},
    // Comparison and selection.
    {"setp", "$compare and|or|xor? ftz? $scalar", "P S S Q?", L::kCompare, ""},
    {"set", "$compare and|or|xor? ftz? u32|s32|f32|f16|bf16|f16x2|bf16x2|u16|s16 $scalar",
     "D S S Q?", L::kSet, ""},
    {"selp", "$scalar", "D S S Q", L::kSelect, "selp_{b}"},
    {"slct", "ftz? $scalar s32|f32", "D S S S", L::kSelectSign, "selp_{b}"},
    // Movement and conversion.
    {"mov", "pred", "P Q", L::kPredicate, "pred_mov"},
    {"mov", "$scalar|b128", "V W", L::kMove, "mov_{b}"},
    {"cvt", "rn|rz|rm|rp|rna|rs|rni|rzi|rmi|rpi? ftz? sat|satfinite? relu? "
     "u8|s8|$int|f16|bf16|f32|f64|f16x2|bf16x2|e4m3x2|e5m2x2|tf32 "
     "u8|s8|$int|f16|bf16|f32|f64|f16x2|e4m3x2|e5m2x2", "D S S?", L::kConvert, ""},
    {"cvt", "rn|rz relu? satfinite? f16x2|bf16x2|e4m3x2|e5m2x2|tf32 f32|e4m3x2|e5m2x2|f16x2",
     "D S S?", L::kConvert, ""},
    {"cvt", "pack sat u16|s16 s32", "D S S", L::kAlu, "cvt_pack_{t}"},
    {"cvt", "pack sat u8|s8|u4|s4 s32 b32", "D S S S", L::kAlu, "cvt_pack_{t}"},
    {"cvta", "to? global|$shared|local|const|param|param::entry u32|u64", "D S",
     L::kConvertAddress, ""},
    {"isspacep", "global|$shared|local|const|param|param::entry", "P S", L::kIsSpace, ""},
    // Memory.
    {"ld", "mmio? weak|relaxed|acquire|volatile? $scope? $space? nc? ca|cg|cs|lu|cv? nc? $evict? "
     "$evict2? L2::cache_hint? $fetch? v2|v4|v8? $mem", "V M S?", L::kLoad, ""},
    {"ldu", "global? v2|v4? $mem", "V M", L::kLoad, ""},
    {"st", "mmio? weak|relaxed|release|volatile? $scope? $space? wb|cg|cs|wt? $evict? $evict2? "
     "L2::cache_hint? v2|v4|v8? $mem", "M W S?", L::kStore, ""},
    {"st", "async weak? shared::cluster? mbarrier::complete_tx::bytes? v2|v4? "
     "b32|b64|u32|u64|s32|s64|f32|f64", "M W M", L::kStoreAsync, ""},
    {"atom", "relaxed|acquire|release|acq_rel? $scope? global|$shared? relaxed|acquire|"
     "release|acq_rel? $scope? and|or|xor|exch|cas|add|inc|dec|min|max relaxed|acquire|release|"
     "acq_rel? $scope? noftz? L2::cache_hint? b16|b32|b64|b128|u32|s32|u64|s64|f32|f64|f16|bf16|"
     "f16x2|bf16x2", "D M S S? S?", L::kAtomic, ""},
    {"red", "relaxed|release? $scope? global|$shared? $scope? and|or|xor|add|inc|dec|"
     "min|max relaxed|release? $scope? noftz? L2::cache_hint? b32|b64|u32|s32|u64|s64|f32|f64|f16|"
     "bf16|f16x2|bf16x2", "M S S?", L::kAtomic, ""},
    {"red", "async relaxed? cluster? shared::cluster? mbarrier::complete_tx::bytes? "
     "and|or|xor|add|inc|dec|min|max b32|u32|s32|u64", "M S M", L::kStoreAsync, ""},
    {"membar", "cta|gl|sys", "", L::kFence, ""},
    {"membar", "proxy alias", "", L::kFence, ""},
    {"membar", "proxy async global|shared::cta|shared::cluster?", "", L::kFence, ""},
    {"fence", "sc|acq_rel|acquire|release? $scope", "", L::kFence, ""},
    {"fence", "acquire sync_restrict::shared::cluster cluster", "", L::kFence, ""},
    {"fence", "release sync_restrict::shared::cta cluster", "", L::kFence, ""},
    {"fence", "proxy alias", "", L::kFence, ""},
    {"fence", "proxy async global|shared::cta|shared::cluster?", "", L::kFence, ""},
    {"fence", "proxy async::generic acquire sync_restrict::shared::cluster cluster", "", L::kFence,
     ""},
    {"fence", "proxy async::generic release sync_restrict::shared::cta cluster", "", L::kFence, ""},
    {"fence", "proxy tensormap::generic release $scope", "", L::kFence, ""},
    {"fence", "proxy tensormap::generic acquire $scope", "M X", L::kFence, ""},
    {"fence", "mbarrier_init release cluster", "", L::kFence, ""},
    {"prefetch", "const|global|local|param? L1|L2 $evict2?", "M", L::kHint, ""},
    {"prefetch", "global L2::evict_last|L2::evict_normal", "M", L::kHint, ""},
    {"prefetch", "const|param? tensormap", "M", L::kHint, ""},
    {"prefetchu", "L1", "M", L::kHint, ""},
    {"applypriority", "global? L2::evict_normal", "M X", L::kHint, ""},
    {"discard", "global? L2", "M X", L::kHint, ""},
    {"pmevent", "mask?", "X", L::kHint, ""},
    {"griddepcontrol", "launch_dependents|wait", "", L::kHint, ""},
    {"setmaxnreg", "inc|dec sync aligned u32", "X", L::kHint, ""},
    {"createpolicy", "fractional $evict2 L2::evict_first|L2::evict_unchanged? b64", "D X?",
     L::kPolicy, ""},
    {"createpolicy", "range global? $evict2 L2::evict_first|L2::evict_unchanged? b64", "D M S S",
     L::kPolicy, ""},
    {"createpolicy", "cvt L2 b64", "D S", L::kPolicy, ""},
    {"cp", "async ca|cg shared|shared::cta global L2::cache_hint? $fetch?", "M M X X? X?",
     L::kCopyAsync, ""},
    {"cp", "async commit_group", "", L::kHint, ""},
    {"cp", "async wait_group", "X", L::kHint, ""},
    {"cp", "async wait_all", "", L::kHint, ""},
    {"cp", "async mbarrier arrive noinc? shared|shared::cta? b64", "M", L::kMbarrier, ""},
    {"cp", "async bulk shared::cta|shared::cluster global mbarrier::complete_tx::bytes "
     "multicast::cluster? L2::cache_hint?", "M M S M X? X?", L::kBulkCopy, ""},
    {"cp", "async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes", "M M S M",
     L::kBulkCopy, ""},
    {"cp", "async bulk global shared::cta bulk_group L2::cache_hint?", "M M S X?", L::kBulkCopy, ""},
    {"cp", "async bulk prefetch L2 global L2::cache_hint?", "M S X?", L::kHint, ""},
    {"cp", "async bulk commit_group", "", L::kHint, ""},
    {"cp", "async bulk wait_group read?", "X", L::kHint, ""},
    {"cp", "reduce async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes "
     "and|or|xor|add|inc|dec|min|max u32|s32|u64|s64|b32|b64", "M M S M", L::kBulkCopy, ""},
    {"cp", "reduce async bulk global shared::cta bulk_group L2::cache_hint? "
     "and|or|xor|add|inc|dec|min|max noftz? u32|s32|u64|s64|b32|b64|f16|bf16|f32|f64", "M M S X?",
     L::kBulkCopy, ""},
    {"cp", "async bulk tensor $rank shared::cta|shared::cluster global tile? "
     "mbarrier::complete_tx::bytes multicast::cluster? L2::cache_hint?", "M T M X? X?",
     L::kTensorCopy, ""},
    {"cp", "async bulk tensor 3d|4d|5d shared::cta|shared::cluster global im2col "
     "mbarrier::complete_tx::bytes multicast::cluster? L2::cache_hint?", "M T M X X? X?",
     L::kTensorCopy, ""},
    {"cp", "async bulk tensor $rank global shared::cta tile? bulk_group L2::cache_hint?", "T M X?",
     L::kTensorCopy, ""},
    {"cp", "async bulk tensor 3d|4d|5d global shared::cta im2col_no_offs bulk_group "
     "L2::cache_hint?", "T M X?", L::kTensorCopy, ""},
    {"cp", "reduce async bulk tensor $rank global shared::cta add|min|max|inc|dec|and|or|xor tile? "
     "bulk_group L2::cache_hint?", "T M X?", L::kTensorCopy, ""},
    {"cp", "reduce async bulk tensor 3d|4d|5d global shared::cta add|min|max|inc|dec|and|or|xor "
     "im2col_no_offs bulk_group L2::cache_hint?", "T M X?", L::kTensorCopy, ""},
    {"cp", "async bulk prefetch tensor $rank L2 global tile|im2col? L2::cache_hint?", "T X? X?",
     L::kTensorCopy, ""},
    {"mbarrier", "init shared|shared::cta? b64", "M S", L::kMbarrier, ""},
    {"mbarrier", "inval shared|shared::cta? b64", "M", L::kMbarrier, ""},
    {"mbarrier", "expect_tx|complete_tx relaxed? $scope? $shared? b64", "M S", L::kMbarrier, ""},
    {"mbarrier", "arrive|arrive_drop expect_tx? noComplete? release|relaxed? cta|cluster? $shared? "
     "b64", "D M S?", L::kMbarrier, ""},
    {"mbarrier", "test_wait|try_wait parity? acquire|relaxed? cta|cluster? shared|shared::cta? b64",
     "P M S S?", L::kMbarrier, ""},
    {"mbarrier", "pending_count b64", "D S", L::kMbarrier, ""},
    // Matrices.
    {"mma", "sync aligned $shape row|col row|col satfinite? $sum $factor $factor $sum xor|and? popc? rn?",
     "V W W W", L::kMatrix, ""},
    {"wmma", "mma sync aligned row|col row|col $shape f16|f32 f16|f32 satfinite?", "V W W W",
     L::kMatrix, ""},
    {"wmma", "mma xor|and? popc? sync aligned row|col row|col $shape rn? $sum $factor $factor $sum "
     "satfinite? rn?", "V W W W", L::kMatrix, ""},
    {"wmma", "load a|b sync aligned row|col $shape global|shared|shared::cta? $factor", "V M S?",
     L::kMatrix, ""},
    {"wmma", "load c sync aligned row|col $shape global|shared|shared::cta? $sum", "V M S?",
     L::kMatrix, ""},
    {"wmma", "store d sync aligned row|col $shape global|shared|shared::cta? $sum", "M W S?",
     L::kMatrix, ""},
    {"wgmma", "fence|commit_group sync aligned", "", L::kGroupMatrix, ""},
    {"wgmma", "wait_group sync aligned", "X", L::kGroupMatrix, ""},
    {"wgmma", "mma_async sync aligned $group satfinite? $sum $factor $factor and? popc?",
     "V W S Q X? X? X? X?", L::kGroupMatrix, ""},
    {"ldmatrix", "sync aligned m8n8 x1|x2|x4 trans? shared|shared::cta? b16", "V M", L::kMatrix, ""},
    {"stmatrix", "sync aligned m8n8 x1|x2|x4 trans? shared|shared::cta? b16", "M W", L::kMatrix, ""},
    {"movmatrix", "sync aligned m8n8 trans b16", "D S", L::kMatrix, ""},
    // Textures and surfaces.
    {"tex", "base|level? 1d|2d|3d|a1d|a2d v4 f32|u32|s32|f16 f32|s32", "V T S?", L::kTexture, ""},
    {"tex", "base|level? cube|acube v4 f32|u32|s32|f16 f32", "V T S?", L::kTexture, ""},
    {"tex", "grad 1d|2d|3d|a1d|a2d|cube|acube v4 f32|u32|s32|f16 f32", "V T W W", L::kTexture, ""},
    {"tld4", "r|g|b|a 2d|a2d|cube|acube v4 f32|u32|s32|f16 f32", "V T", L::kTexture, ""},
    {"suld", "b 1d|2d|3d|a1d|a2d ca|cg|cs|cv? v2|v4? b8|b16|b32|b64 trap|clamp|zero", "V T",
     L::kSurface, ""},
    {"sust", "b 1d|2d|3d|a1d|a2d wb|cg|cs|wt? v2|v4? b8|b16|b32|b64 trap|clamp|zero", "T W",
     L::kSurface, ""},
    {"sust", "p 1d|2d|3d|a1d|a2d v2|v4? b32|u32|s32|f32 trap|clamp|zero", "T W", L::kSurface, ""},
    {"txq", "width|height|depth|array_size|num_mipmap_levels b32", "D M", L::kImageQuery, ""},
    {"suq", "width|height|depth|array_size b32", "D M", L::kImageQuery, ""},
    // Control flow.
    {"bra", "uni?", "L", L::kBranch, ""},
    {"brx", "idx uni?", "S X", L::kBranchIndexed, ""},
    {"call", "uni?", "X X? X? X?", L::kCall, ""},
    {"ret", "uni?", "", L::kReturn, ""},
    {"exit", "", "", L::kExit, ""},
    {"trap", "", "", L::kTrap, ""},
    {"brkpt", "", "", L::kHint, ""},
    {"nanosleep", "u32", "S", L::kYield, ""},
    // Threads that work together.
    {"bar", "cta? sync|arrive", "S S?", L::kBarrier, ""},
    {"bar", "cta? red popc u32", "D S X Q?", L::kBarrier, ""},
    {"bar", "cta? red and|or pred", "P S X Q?", L::kBarrier, ""},
    {"bar", "warp sync", "S", L::kWarpBarrier, ""},
    {"barrier", "cta? sync|arrive aligned?", "S S?", L::kBarrier, ""},
    {"barrier", "cta? red popc aligned? u32", "D S X Q?", L::kBarrier, ""},
    {"barrier", "cta? red and|or aligned? pred", "P S X Q?", L::kBarrier, ""},
    {"barrier", "cluster arrive release|relaxed? aligned?", "", L::kClusterBarrier, ""},
    {"barrier", "cluster wait acquire? aligned?", "", L::kClusterBarrier, ""},
    {"mapa", "shared::cluster? u32|u64", "D S S", L::kMapShared, ""},
    {"getctarank", "shared::cluster? u32|u64", "D S", L::kRankOf, ""},
    {"shfl", "sync up|down|bfly|idx b32", "D S S S S", L::kShuffle, ""},
    {"shfl", "up|down|bfly|idx b32", "D S S S", L::kShuffle, ""},
    {"vote", "sync all|any|uni pred", "P Q S", L::kVote, ""},
    {"vote", "all|any|uni pred", "P Q", L::kVote, ""},
    {"vote", "sync ballot b32", "D Q S", L::kVote, ""},
    {"vote", "ballot sync b32", "D Q S", L::kVote, ""},
    {"vote", "all|any|uni sync pred", "P Q S", L::kVote, ""},
    {"vote", "ballot b32", "D Q", L::kVote, ""},
    {"match", "any|all sync b32|b64", "D S S", L::kMatch, ""},
    {"redux", "sync add|min|max|and|or|xor u32|s32|b32", "D S S", L::kRedux, ""},
    {"activemask", "b32", "D", L::kActiveMask, ""},
    {"elect", "sync", "D S", L::kElect, ""},
};
// clang-format on

using Index = std::unordered_map<std::string_view, RuleRange>;

const Index& index_by_mnemonic() {
  static const Index* const index = [] {
    auto* made = new Index;  // immortal: no destructor may run under a kernel
    for (const Rule& rule : kRules) {
      RuleRange& range = (*made)[rule.mnemonic];
      if (!range.begin) range.begin = &rule;
      range.end = &rule + 1;
    }
    return made;
  }();
  return *index;
}

// Take the next '|'-separated alternative off `group`.
std::string_view next_alternative(std::string_view* group) {
  const size_t bar = group->find('|');
  std::string_view first = group->substr(0, bar);
  *group = bar == std::string_view::npos ? std::string_view() : group->substr(bar + 1);
  return first;
}

bool group_has(std::string_view group, std::string_view part) {
  while (!group.empty()) {
    std::string_view alternative = next_alternative(&group);
    if (alternative == part) return true;
    if (alternative.front() != '$') continue;
    for (const TypeClass& type_class : kClasses) {
      if (type_class.name == alternative && group_has(type_class.alternatives, part)) return true;
    }
  }
  return false;
}

}  // namespace

RuleRange rules_of(std::string_view mnemonic) {
  auto found = index_by_mnemonic().find(mnemonic);
  return found == index_by_mnemonic().end() ? RuleRange() : found->second;
}

RuleRange all_rules() { return {std::begin(kRules), std::end(kRules)}; }

bool match(const Rule& rule, const std::vector<std::string_view>& parts, bool any_order,
           Instruction* out) {
  out->modifiers.clear();
  out->types.clear();
  if (any_order && parts.size() > 64) return false;  // no opcode has so many
  uint64_t taken = 0;                                // of the parts; if `any_order`
  size_t count = 0;                                  // of those taken
  const auto find = [&](std::string_view group) {
    if (!any_order) {
      return count < parts.size() && group_has(group, parts[count]) ? count : parts.size();
    }
    size_t i = 0;
    while (i < parts.size() && ((taken >> i & 1) != 0 || !group_has(group, parts[i]))) ++i;
    return i;
  };
  std::string_view groups = rule.modifiers;
  while (!groups.empty()) {
    const size_t blank = groups.find(' ');
    std::string_view group = groups.substr(0, blank);
    groups = blank == std::string_view::npos ? std::string_view() : groups.substr(blank + 1);
    const bool optional = group.back() == '?';
    if (optional) group.remove_suffix(1);
    const size_t found = find(group);
    if (found != parts.size()) {
      const Type type = type_from_name(parts[found]);
      if (type == Type::kNone) {
        out->modifiers.push_back(parts[found]);
      } else {
        out->types.push_back(type);
      }
      if (any_order) taken |= uint64_t{1} << found;
      ++count;
    } else if (!optional) {
      return false;
    }
  }
  return count == parts.size();
}

}  // namespace openmps::softgpu::ptx
