// SPDX-License-Identifier: Apache-2.0
// The cases of tensor copies. The tensor is the memory of all threads (see tensor.h). A block loads
// from anywhere in it, and stores to its own threads' part. See kernels.cc for the names, rows.h
// for the notation.
#include "rows.h"

namespace conformance {
namespace {

constexpr Inputs I = Inputs::kInteger;

// %q3 is the address of the tensor map. Some coordinates of some blocks are out of bounds. The
// first coordinates are multiples of 16 bytes, since an H200 faults otherwise
// (CUDA_ERROR_ILLEGAL_INSTRUCTION).
#define COORDINATES                                                                                \
  "mov.b64 %q3, map; cvta.param.u64 %q3, %q3; and.b32 %r1, %warp, 7; mad.lo.u32 %r1, %r1, 8, -4; " \
  "shr.u32 %r2, %warp, 1; mad.lo.u32 %r2, %r2, 4, -3; and.b32 %r3, %warp, 3; "                     \
  "mad.lo.u32 %r3, %r3, 4, -4; shr.u32 %r4, %warp, 2; sub.u32 %r4, %r4, 1; "
#define BEGIN                                                                    \
  "setp.eq.u32 %p0, %lane, 0; @%p0 mbarrier.init.shared::cta.b64 [barrier], 1; " \
  "fence.proxy.async; "                                                          \
  "bar.warp.sync -1; @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], 256; "
#define END                                                                                      \
  "$wait: mbarrier.try_wait.parity.shared::cta.b64 %p1, [barrier], 0; add.u32 %turn, %turn, 1; " \
  "setp.lt.and.u32 %p2, %turn, 1000, !%p1; @%p2 bra $wait; mov.u32 %r0, tile; "                  \
  "mad.lo.u32 %r0, %lane, 8, %r0; ld.shared.b64 %q, [%r0];"
#define STORE "setp.eq.u32 %p0, %lane, 0; fence.proxy.async; bar.warp.sync -1; "
// Combines all 16 words of the thread into one.
#define FOLD                                                                                       \
  "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; bar.warp.sync -1; mov.b32 %r0, 0; "     \
  "$fold: ld.global.b64 %q2, [%global]; mad.lo.u64 %q, %q, 31, %q2; add.u64 %global, %global, 8; " \
  "add.u32 %r0, %r0, 1; setp.lt.u32 %p1, %r0, 16; @%p1 bra $fold;"
#define PLACE_2D "{%r1, %r0}"
#define PLACE_3D "{%r1, %r2, %warp}"
#define PLACE_4D "{%r3, %r4, %r2, %warp}"
#define PLACE_5D "{%r3, %r4, %r3, %r4, %warp}"
// The first pixel is within the bounding box, which extends one element beyond the border.
#define PIXELS "max.s32 %r2, %r2, -1; max.s32 %r5, %r3, -1; min.s32 %r5, %r5, 6; "
// Boxes to store begin within the tensor, since an H200 faults at negative indices. Some end beyond
// its bounds.
#define WITHIN                                                       \
  "max.s32 %r1, %r1, 0; min.s32 %r1, %r1, 28; max.s32 %r2, %r2, 0; " \
  "max.s32 %r3, %r3, 0; min.s32 %r3, %r3, 4; add.u32 %r4, %r4, 1; "
// Eight pixels of the block's own picture, from the beginning of a row.
#define OWN_PIXELS WITHIN "mov.b32 %r4, 0; mov.b32 %r2, 3; "
#define FIRST_1D "mad.lo.u32 %r0, %warp, 1100, -28; "
#define OWN_1D "mad.lo.u32 %r0, %warp, 1024, 4; "
#define FIRST_2D "mad.lo.u32 %r0, %warp, 35, -4; "
#define OWN_2D "mad.lo.u32 %r0, %warp, 32, 5; "
#define LOAD(rank, mode)                                                         \
  "@%p0 cp.async.bulk.tensor." rank ".{shared::cluster,shared::cta}.global" mode \
  ".mbarrier::complete_tx::bytes [tile], [%q3, "
#define SAVE(rank, mode) \
  "@%p0 cp.async.bulk.tensor." rank ".global.shared::cta" mode ".bulk_group [%q3, "
#define REDUCE(rank, mode)                 \
  "@%p0 cp.reduce.async.bulk.tensor." rank \
  ".global.shared::cta.{add,min,max,inc,dec,and,or,xor}" mode ".bulk_group [%q3, "

struct TensorRow {
  int rank;
  bool im2col;
  int swizzle;  // bytes
  const char* code;
  bool whole = false;  // im2col without a filter
};
// clang-format off
const TensorRow kRows[] = {
    {1, false, 0, COORDINATES FIRST_1D BEGIN LOAD("1d", "{,.tile}") "{%r0}], [barrier]; " END},
    {2, false, 0, COORDINATES FIRST_2D BEGIN LOAD("2d", "{,.tile}") PLACE_2D "], [barrier]; " END},
    {2, false, 32, COORDINATES FIRST_2D BEGIN LOAD("2d", ".tile") PLACE_2D "], [barrier]; " END},
    {3, false, 0, COORDINATES BEGIN LOAD("3d", ".tile") PLACE_3D "], [barrier]; " END},
    {4, false, 0, COORDINATES BEGIN LOAD("4d", ".tile") PLACE_4D "], [barrier]; " END},
    {4, false, 32, COORDINATES BEGIN LOAD("4d", ".tile") PLACE_4D "], [barrier]; " END},
    {5, false, 0, COORDINATES BEGIN LOAD("5d", ".tile") PLACE_5D "], [barrier]; " END},
    {2, false, 0, COORDINATES FIRST_2D BEGIN "createpolicy.fractional.L2::evict_first.b64 %q0; @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [tile], [%q3, " PLACE_2D "], [barrier], %q0; " END},
    {3, true, 0, COORDINATES PIXELS BEGIN "mov.b16 %h0, {0,2}; " LOAD("3d", ".im2col") PLACE_3D "], [barrier], {%h0}; " END},
    {4, true, 0, COORDINATES PIXELS BEGIN "mov.b16 %h0, {0,1}; mov.b16 %h1, {0,2}; " LOAD("4d", ".im2col") PLACE_4D "], [barrier], {%h0, %h1}; " END},
    {5, true, 0, COORDINATES PIXELS BEGIN "mov.b16 %h0, {0,1}; mov.b16 %h1, {0,2}; mov.b16 %h2, 1; " LOAD("5d", ".im2col") "{%r3, %r4, %r5, %r4, %warp}], [barrier], {%h0, %h1, %h2}; " END},
    {1, false, 0, COORDINATES OWN_1D STORE SAVE("1d", "{,.tile}") "{%r0}], [tile]; " FOLD},
    {2, false, 0, COORDINATES WITHIN OWN_2D STORE SAVE("2d", ".tile") PLACE_2D "], [tile]; " FOLD},
    {2, false, 32, COORDINATES WITHIN OWN_2D STORE SAVE("2d", ".tile") PLACE_2D "], [tile]; " FOLD},
    {3, false, 0, COORDINATES WITHIN STORE SAVE("3d", ".tile") PLACE_3D "], [tile]; " FOLD},
    {4, false, 0, COORDINATES WITHIN STORE SAVE("4d", ".tile") PLACE_4D "], [tile]; " FOLD},
    {5, false, 0, COORDINATES WITHIN STORE SAVE("5d", ".tile") PLACE_5D "], [tile]; " FOLD},
    {1, false, 0, COORDINATES OWN_1D STORE REDUCE("1d", ".tile") "{%r0}], [tile]; " FOLD},
    {2, false, 0, COORDINATES WITHIN OWN_2D STORE REDUCE("2d", "{,.tile}") PLACE_2D "], [tile]; " FOLD},
    {4, false, 0, COORDINATES WITHIN STORE REDUCE("4d", ".tile") PLACE_4D "], [tile]; " FOLD},
    {4, true, 0, COORDINATES OWN_PIXELS STORE SAVE("4d", ".im2col_no_offs") PLACE_4D "], [tile]; " FOLD, true},
    {5, true, 0, COORDINATES OWN_PIXELS STORE SAVE("5d", ".im2col_no_offs") "{%r3, %r4, %r4, %r4, %warp}], [tile]; " FOLD, true},
    {4, true, 0, COORDINATES OWN_PIXELS STORE REDUCE("4d", ".im2col_no_offs") PLACE_4D "], [tile]; " FOLD, true},
    // Prefetches, which do not change results.
    {2, false, 0, COORDINATES OWN_2D "cp.async.bulk.prefetch.tensor.2d.L2.global{,.tile} [%q3, " PLACE_2D "]; " FOLD},
    {4, true, 0, COORDINATES PIXELS "mov.b16 %h0, 0; cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%q3, " PLACE_4D "], {%h0, %h0}; " FOLD},
    {2, false, 0, COORDINATES "prefetch.tensormap [%q3]; " FOLD},
    {2, false, 0, COORDINATES "prefetch.param.tensormap [map]; " FOLD},
};
// clang-format on

}  // namespace

void add_tensor_cases(std::vector<Case>* all) {
  Case like;
  like.memory = true;
  for (const TensorRow& row : kRows) {
    like.tensor = {row.rank, row.im2col, row.swizzle, row.whole};
    const Row one[] = {{I, "%q", row.code}};
    add_rows(one, like, all);
  }
}

}  // namespace conformance
