// SPDX-License-Identifier: Apache-2.0
// The cases of divergent control flow, and of barriers of warps, blocks and clusters. See
// kernels.cc for the names, rows.h for the notation.
#include "rows.h"

namespace conformance {
namespace {

constexpr Inputs I = Inputs::kInteger, W = Inputs::kCollective;

// Calls of the functions that kernels.cc has.
#define ONE_CALL(call) \
  "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %b; " call " ld.param.b32 %r, [y]; }"

// clang-format off
const Row kWarpRows[] = {
    // Special registers, packing and unpacking.
    {I, "%r", "mov.u32 %r, %{tid.x,tid.y,tid.z,ntid.x,ntid.y,ntid.z,ctaid.x,ctaid.y,ctaid.z,nctaid.x,nctaid.y,nctaid.z,laneid,lanemask_eq,lanemask_le,lanemask_lt,lanemask_ge,lanemask_gt};"},
    {I, "%r", "mov.u32 %r, %{cluster_ctaid.x,cluster_nctaid.x,cluster_ctarank,cluster_nctarank,clusterid.x,nclusterid.x};"},
    {I, "%r", "mov.u32 %r, WARP_SZ;"},
    {I, "%p", "mov.pred %p, %is_explicit_cluster;"},
    {I, "%p", "mov.pred %p, %pa;"},
    {I, "%r", "mov.{b32,u32,s32,f32} %r, %a;"},
    {I, "%q", "mov.{b64,u64,s64,f64} %q, %wa;"},
    {I, "%h", "mov.{b16,u16,s16} %h, %ha;"},
    {I, "%r", "mov.b32 %r, {%ha, %hb};"},
    {I, "%q", "mov.b64 %q, {%a, %b};"},
    {I, "%q", "mov.b64 %q, {%ha, %hb, %hc, %ha};"},
    {I, "%rs", "mov.b64 {%r0, %r1}, %wa;"},
    {I, "%r", "mov.b64 {%r, _}, %wa;"},
    {I, "%r", "mov.b32 {%h0, %h1}, %a; mov.b32 %r, {%h1, %h0};"},
    {I, "%q", "mov.b64 {%h0, %h1, %h2, %h3}, %wa; mov.b64 %q, {%h3, %h1, %h0, %h2};"},
    {I, "%qs", "mov.b128 %o0, {%wa, %wb}; mov.b128 %o1, %o0; mov.b128 {%q1, %q0}, %o1;"},
    {I, "%rs", "setp.{lt,ge}{.and,.or,.xor}.s32 %p0|%p1, %a, %b, {!,}%pa; selp.b32 %r0, 1, 0, %p0; selp.b32 %r1, 1, 0, %p1;"},
    {I, "%p", "setp.lt.s32 %p0, %a, %b; {and,or,xor}.pred %p, %p0, %pa;"},
    {I, "%p", "not.pred %p, %pa;"},
    {I, "%r", "shfl.sync.idx.b32 %r0, %a, 3, 0x1f, -1; movmatrix.sync.aligned.m8n8.trans.b16 %r, %a; xor.b32 %r, %r, %r0;"},
    {I, "%rs", "ldmatrix.sync.aligned.m8n8.x1{,.trans}.{shared,shared::cta}.b16 {%r0}, [%shared+32];"},
    {I, "%rs", "ldmatrix.sync.aligned.m8n8.x2{,.trans}.shared.b16 {%r0, %r1}, [%shared+48];"},
    {I, "%rs", "ldmatrix.sync.aligned.m8n8.x4{,.trans}.shared.b16 {%r0, %r1, %r2, %r3}, [%shared+64];"},
    {I, "%qs", "stmatrix.sync.aligned.m8n8.x1{,.trans}.{shared,shared::cta}.b16 [%shared+32], {%a}; bar.warp.sync -1; ld.shared.v2.b64 {%q0, %q1}, [%shared+32];"},
    {I, "%qs", "stmatrix.sync.aligned.m8n8.x2{,.trans}.shared.b16 [%shared+32], {%a, %b}; bar.warp.sync -1; ld.shared.v2.b64 {%q0, %q1}, [%shared+32];"},
    {I, "%qs", "stmatrix.sync.aligned.m8n8.x4{,.trans}.shared.b16 [%shared+32], {%a, %b, %c, %a}; bar.warp.sync -1; ld.shared.v2.b64 {%q0, %q1}, [%shared+32];"},
    // Branches, calls and exits that only some lanes take.
    {I, "%r", "setp.lt.s32 %p0, %a, %b; @%p0 bra $less; mov.b32 %r, 1; bra.uni $end; $less: mov.b32 %r, 2; $end: add.u32 %r, %r, 8;"},
    {I, "%r", "setp.gt.u32 %p0, %lane, 31; bra.uni $on; $back: add.u32 %r, %r, 100; bra $end; $on: add.u32 %r, %a, 1; @!%p0 bra.uni $back; $end:"},
    // A loop with a different number of iterations in each lane.
    {I, "%r", "and.b32 %r0, %a, 31; $turn: setp.eq.u32 %p0, %r0, 0; @%p0 bra $end; mad.lo.u32 %r, %r, 3, %r0; sub.u32 %r0, %r0, 1; bra $turn; $end: activemask.b32 %r1; add.u32 %r, %r, 1;"},
    // A nested loop with an exit from the inner one.
    {I, "%r", "and.b32 %r0, %a, 7; $outer: and.b32 %r1, %b, 7; $inner: xor.b32 %r, %r, %r1; mad.lo.u32 %r, %r, 5, %r0; setp.eq.u32 %p0, %r1, 0; sub.u32 %r1, %r1, 1; and.b32 %r2, %r, 31; setp.eq.u32 %p1, %r2, 7; @%p1 bra $end; @!%p0 bra $inner; setp.eq.u32 %p0, %r0, 0; sub.u32 %r0, %r0, 1; @!%p0 bra $outer; $end: not.b32 %r, %r;"},
    {I, "%r", "and.b32 %r0, %a, 3; ways: .branchtargets $zero, $one, $two, $three; brx.idx %r0, ways; $zero: mov.b32 %r, 5; bra $end; $one: mov.b32 %r, 6; $two: add.u32 %r, %r, 70; bra $end; $three: mov.b32 %r, %b; $end: add.u32 %r, %r, 1;"},
    {I, "%r", "and.b32 %r0, %warp, 3; ways: .branchtargets $zero, $one, $zero, $three; brx.idx{,.uni} %r0, ways; $zero: mov.b32 %r, 5; bra $end; $one: mov.b32 %r, 6; bra $end; $three: mov.b32 %r, %b; $end: add.u32 %r, %r, 1;"},
    {I, "%r", ONE_CALL("call{,.uni} (y), {triple,half_way}, (x);")},
    {I, "%r", "and.b32 %b, %b, 7; " ONE_CALL("call (y), add_up, (x);")},
    {I, "%r", "mov.b32 %r, 9; @%pa bra $call; bra $end; $call: " ONE_CALL("call (y), {triple,half_way}, (x);") " $end: add.u32 %r, %r, %lane;"},
    {I, "%rs", "{ .param .align 16 .b8 x[16]; .param .align 16 .b8 y[16]; st.param.v4.b32 [x], {%a, %b, %c, %lane}; call (y), turned, (x); ld.param.v4.b32 {%r0, %r1, %r2, %r3}, [y]; }"},
    {I, "%r", "@%pa st.global.b64 [%out], %wb; @%pa {ret,exit}; mov.b32 %r, %a;"},
    // Instructions whose predicate is false in all lanes.
    {I, "%r", "setp.gt.u32 %p0, %lane, 31; @%p0 {trap,brkpt,exit}; mov.b32 %r, %a;"},
    // nanosleep changes no register.
    {I, "%r", "nanosleep.u32 {20,%r0}; mov.b32 %r, %a;"},
    {I, "%r", "pmevent {1,7}; mov.b32 %r, %a;"},
    {I, "%r", "pmevent.mask 3; mov.b32 %r, %a;"},
    {I, "%r", "griddepcontrol.{wait,launch_dependents}; mov.b32 %r, %a;"},
    // Votes with the modifiers in the old order.
    {W, "%r", "vote.ballot.sync.b32 %r, %pa, %a;"},
    {W, "%p", "vote.{all,any,uni}.sync.pred %p, {,!}%pa, %a;"},
    // Lanes of a group wait for each other.
    {W, "%r", "st.shared.b32 [%shared+36], %b; bar.warp.sync %a; not.b32 %r0, %a; brev.b32 %r1, %a; clz.b32 %r1, %r1; mov.u32 %r2, tile; mad.lo.u32 %r1, %r1, 128, %r2; ld.shared.b32 %r, [%r1+36];"},
    {W, "%r", "@%pa bra $come; bra $end; $come: activemask.b32 %r0; st.shared.b32 [%shared+36], %b; bar.warp.sync %r0; clz.b32 %r1, %r0; sub.u32 %r1, 31, %r1; mov.u32 %r2, tile; mad.lo.u32 %r1, %r1, 128, %r2; ld.shared.b32 %r, [%r1+36]; $end:"},
    {W, "%r", "match.all.sync.b32 %r|%p, %{b,a}, %a;"},
    {W, "%rs", "match.all.sync.b64 %r0|%p0, %wb, %a; selp.b32 %r1, 1, 0, %p0;"},
};

const Row kBlockRows[] = {
    // Blocks of four warps.
    {I, "%r", "mov.u32 %r, %{tid.x,ntid.x,laneid};"},
    {I, "%r", "st.shared.b32 [%shared+36], %a; {bar.sync 0,bar.cta.sync 0,bar.sync 15,barrier.sync 1,barrier.sync.aligned 1,barrier.cta.sync 2,barrier.cta.sync.aligned 2}; ld.shared.b32 %r, [%snext+36];"},
    {I, "%r", "st.global.b32 [%global+36], %a; bar.sync 0; ld.global.b32 %r, [%gnext+36];"},
    {I, "%r", "st.shared.b32 [%shared+36], %a; mov.b32 %r0, 128; {bar.sync,barrier.sync,barrier.cta.sync.aligned} 3, %r0; ld.shared.b32 %r, [%snext+36];"},
    // Each half of the block uses a barrier of its own.
    {I, "%r", "st.shared.b32 [%shared+36], %a; mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 6; add.u32 %r1, %r1, 1; {bar.sync,barrier.sync} %r1, 64; xor.b32 %r0, %r0, 32; mov.u32 %r2, tile; mad.lo.u32 %r0, %r0, 128, %r2; ld.shared.b32 %r, [%r0+36];"},
    // One half arrives at a barrier after a store, the other waits there and loads.
    {I, "%r", "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 64; @%p0 st.shared.b32 [%shared+36], %a; @%p0 {bar,bar.cta,barrier,barrier.cta}.arrive 1, 128; @!%p0 {1}.sync 1, 128; and.b32 %r0, %r0, 63; mov.u32 %r2, tile; mad.lo.u32 %r0, %r0, 128, %r2; @!%p0 ld.shared.b32 %r, [%r0+36];"},
    {I, "%r", "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 64; @%p0 bra $bring; barrier{,.cta}.sync.aligned 4, 128; and.b32 %r0, %r0, 63; mov.u32 %r2, tile; mad.lo.u32 %r0, %r0, 128, %r2; ld.shared.b32 %r, [%r0+36]; bra $end; $bring: st.shared.b32 [%shared+36], %a; barrier{1}.arrive.aligned 4, 128; $end:"},
    {I, "%r", "{bar,bar.cta}.red.popc.u32 %r, 0, {,!}%pa;"},
    {I, "%p", "{bar,bar.cta}.red.{and,or}.pred %p, 0, {,!}%pa;"},
    {I, "%r", "{barrier,barrier.cta}.red.popc{,.aligned}.u32 %r, 1, {,!}%pa;"},
    {I, "%p", "{barrier,barrier.cta}.red.{and,or}{,.aligned}.pred %p, 1, {,!}%pa;"},
    // Reductions at a barrier, with and without a number of threads, and with rarely set bits.
    {I, "%r", "{bar,barrier}.red.popc.u32 %r, 2, 128, %pa;"},
    {I, "%p", "setp.eq.u32 %p0, %thread, 5; {bar,barrier}.red.{or,and}.pred %p, 2, 128, {,!}%p0;"},
    {I, "%r", "mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 6; add.u32 %r1, %r1, 1; {bar,barrier}.red.popc.u32 %r, %r1, 64, %pa;"},
    // Lanes of a warp arrive at a barrier from different branches.
    {I, "%r", "@%pa bra $yes; st.shared.b32 [%shared+36], %a; barrier.sync 1; bra $end; $yes: st.shared.b32 [%shared+36], %b; barrier.sync 1; $end: ld.shared.b32 %r, [%snext+36];"},
    {I, "%r", "@%pa bra $yes; barrier.red.popc.u32 %r, 1, %pa; bra $end; $yes: barrier.red.popc.u32 %r, 1, %pa; add.u32 %r, %r, 1000; $end:"},
    // A barrier after some threads have exited.
    {I, "%r", "mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 96; @%p0 exit; st.shared.b32 [%shared+36], %a; bar.sync 0; xor.b32 %r0, %r0, 31; mov.u32 %r2, tile; mad.lo.u32 %r0, %r0, 128, %r2; ld.shared.b32 %r, [%r0+36];"},
    // A sum over the block in steps.
    {I, "%r", "mov.u32 %r0, %tid.x; st.shared.b32 [%shared], %a; mov.b32 %r1, 64; $halve: bar.sync 0; setp.lt.u32 %p0, %r0, %r1; mad.lo.u32 %r2, %r1, 128, %shared; @%p0 ld.shared.b32 %r3, [%r2]; @%p0 ld.shared.b32 %r4, [%shared]; @%p0 add.u32 %r4, %r4, %r3; @%p0 st.shared.b32 [%shared], %r4; shr.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra $halve; bar.sync 0; ld.shared.b32 %r, [tile];"},
    {I, "%r", "red.shared.{add.u32,xor.b32,max.s32} [tile+36], %a; bar.sync 0; ld.shared.b32 %r, [tile+36];"},
    {I, "%r", "mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [barrier], 128; bar.sync 0; st.shared.b32 [%shared+36], %a; mbarrier.arrive.shared.b64 %q0, [barrier]; $wait: mbarrier.test_wait.shared.b64 %p1, [barrier], %q0; add.u32 %turn, %turn, 1; setp.lt.and.u32 %p2, %turn, 1000000, !%p1; @%p2 bra $wait; ld.shared.b32 %r, [%snext+36];"},
    {I, "%r", "setmaxnreg.dec.sync.aligned.u32 40; add.u32 %r, %a, 1; setmaxnreg.inc.sync.aligned.u32 64; xor.b32 %r, %r, %b;"},
};

// Clusters of four blocks: an mbarrier in each block, and the address of a place in the next block.
#define CLUSTER_MEETS "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; "
#define NEXT_BLOCK                                                                            \
  "mov.u32 %r7, %cluster_ctarank; add.u32 %r6, %r7, 1; and.b32 %r6, %r6, 3; "                  \
  "mapa.shared::cluster.u32 %r5, %shared, %r6; "
#define CLUSTER_BARRIER                                                                        \
  "setp.eq.u32 %p0, %lane, 0; @%p0 mbarrier.init.shared::cta.b64 [barrier], 1; "                \
  "fence.mbarrier_init.release.cluster; " CLUSTER_MEETS NEXT_BLOCK                             \
  "mov.u32 %r4, barrier; mapa.shared::cluster.u32 %r4, %r4, %r6; "
// The block's mbarrier expects `bytes`.
#define EXPECT(bytes) "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], " bytes "; " CLUSTER_MEETS
#define CLUSTER_WAITS                                                                          \
  "$wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [barrier], 0; "         \
  "add.u32 %turn, %turn, 1; setp.lt.and.u32 %p2, %turn, 1000, !%p1; @%p2 bra $wait; "

const Row kClusterRows[] = {
    {I, "%r", "mov.u32 %r, %{ctaid.x,nctaid.x,cluster_ctaid.x,cluster_ctaid.y,cluster_nctaid.x,cluster_nctaid.z,cluster_ctarank,cluster_nctarank,clusterid.x,clusterid.y,nclusterid.x,nclusterid.z};"},
    {I, "%p", "mov.pred %p, %is_explicit_cluster;"},
    {I, "%r", NEXT_BLOCK "st.shared.b32 [%shared+36], %a; barrier.cluster.arrive{,.release}{,.aligned}; barrier.cluster.wait{,.acquire}{2}; ld.shared::cluster.b32 %r, [%r5+36]; " CLUSTER_MEETS},
    {I, "%r", NEXT_BLOCK "st.shared.b32 [%shared+36], %a; fence.acq_rel.cluster; barrier.cluster.arrive.relaxed{,.aligned}; barrier.cluster.wait{1}; ld.shared::cluster.b32 %r, [%r5+36]; " CLUSTER_MEETS},
    {I, "%r", NEXT_BLOCK CLUSTER_MEETS "st.shared::cluster.{u8,b32} [%r5+36], %a; " CLUSTER_MEETS "ld.shared.b32 %r, [%shared+36];"},
    {I, "%qs", NEXT_BLOCK CLUSTER_MEETS "st.shared::cluster.v2.b64 [%r5+48], {%wa, %wb}; " CLUSTER_MEETS "ld.shared.v2.b64 {%q0, %q1}, [%shared+48]; ld.shared::cluster.v2.b64 {%q2, %q3}, [%r5+48]; " CLUSTER_MEETS},
    {I, "%r", NEXT_BLOCK "mapa.u64 %q0, %gshared, %r6; st.shared.b32 [%shared+36], %a; " CLUSTER_MEETS "ld.b32 %r, [%q0+36]; " CLUSTER_MEETS},
    {I, "%r", NEXT_BLOCK "cvt.u64.u32 %q0, %r5; cvta.shared::cluster.u64 %q0, %q0; st.shared.b32 [%shared+36], %a; " CLUSTER_MEETS "ld.b32 %r, [%q0+36]; " CLUSTER_MEETS},
    {I, "%r", NEXT_BLOCK "getctarank.shared::cluster.u32 %r0, %{r5,shared}; mov.b32 %r, %r0; " CLUSTER_MEETS},
    {I, "%r", NEXT_BLOCK "mapa.u64 %q0, %gshared, %r6; getctarank.u64 %r, %{q0,gshared}; " CLUSTER_MEETS},
    {I, "%p", NEXT_BLOCK "mapa.u64 %q0, %gshared, %r6; isspacep.{shared::cta,shared::cluster,global} %p, %q0; " CLUSTER_MEETS},
    {I, "%r", NEXT_BLOCK "mapa.shared::cluster.u32 %r0, tile, {0,3}; st.shared.b32 [%shared+36], %a; " CLUSTER_MEETS "ld.shared::cluster.b32 %r, [%r0+36]; " CLUSTER_MEETS},
    {I, "%r", NEXT_BLOCK CLUSTER_MEETS "red.relaxed.cluster.shared::cluster.{add.u32,max.s32,xor.b32} [%r5+36], %a; " CLUSTER_MEETS "ld.shared.b32 %r, [%shared+36];"},
    {I, "%rs", NEXT_BLOCK CLUSTER_MEETS "atom{,.relaxed.cluster,.acq_rel.cluster}.shared::cluster.{add.u32,exch.b32,and.b32} %r0, [%r5+36], %a; " CLUSTER_MEETS "ld.shared.b32 %r1, [%shared+36]; mov.b32 %r5, 0;"},
    // All threads of the cluster, at one place in the first block's memory.
    {I, "%r", "mapa.shared::cluster.u32 %r0, tile, 0; " CLUSTER_MEETS "red.shared::cluster.{add.u32,min.s32,xor.b32} [%r0+36], %a; " CLUSTER_MEETS "ld.shared::cluster.b32 %r, [%r0+36]; " CLUSTER_MEETS},
    // Asynchronous stores that complete on an mbarrier.
    {I, "%qs", CLUSTER_BARRIER EXPECT("128") "st.async{,.weak}.shared::cluster.mbarrier::complete_tx::bytes.{b32,u32,s32,f32} [%r5+64], %a, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER EXPECT("256") "st.async.shared::cluster.mbarrier::complete_tx::bytes.{b64,u64,s64,f64} [%r5+64], %wa, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER EXPECT("256") "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.{b32,u32} [%r5+64], {%a, %b}, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER EXPECT("512") "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.{b64,u64} [%r5+64], {%wa, %wb}, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER EXPECT("512") "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.{b32,s32} [%r5+64], {%a, %b, %c, %a}, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER EXPECT("128") "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{add.u32,add.s32,min.u32,min.s32,max.u32,max.s32,inc.u32,dec.u32,and.b32,or.b32,xor.b32} [%r5+64], %a, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER EXPECT("256") "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [%r5+64], %wa, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER EXPECT("512") "fence.proxy.async; cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5+64], [%shared+32], 16, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER EXPECT("512") "fence.proxy.async; cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{add.u32,xor.b32,add.s32,add.u64,min.s32,max.s32,min.u32,max.u32,inc.u32,dec.u32,and.b32,or.b32} [%r5+64], [%shared+32], 16, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    // Block 1 copies to all blocks, or to all but itself.
    {I, "%qs", CLUSTER_BARRIER "setp.eq.u32 %p3, %r7, 1; " EXPECT("512") "fence.proxy.async; mov.b16 %h0, 15; @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%shared+64], [%global+32], 16, [barrier], %h0; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER "setp.eq.u32 %p3, %r7, 1; " EXPECT("512") "fence.proxy.async; mov.b16 %h0, 13; @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%shared+64], [%global+32], 16, [barrier], %h0; @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%shared+64], [%global+96], 16, [barrier]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; " CLUSTER_MEETS},
    {I, "%qs", CLUSTER_BARRIER EXPECT("1024") "fence.proxy.async; cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5+64], [%shared+32], 32, [%r4]; " CLUSTER_WAITS "ld.shared.v2.b64 {%q0, %q1}, [%shared+64]; ld.shared.v2.b64 {%q2, %q3}, [%shared+80]; " CLUSTER_MEETS},
    // Arrivals from another block; with release and acquire, its stores are visible.
    {I, "%r", CLUSTER_BARRIER CLUSTER_MEETS "@%p0 mbarrier.arrive.shared::cluster.b64 _, [%r4]; " CLUSTER_WAITS "selp.b32 %r, 1, 0, %p1; " CLUSTER_MEETS},
    {I, "%r", CLUSTER_BARRIER CLUSTER_MEETS "st.shared::cluster.b32 [%r5+36], %a; bar.warp.sync -1; @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4]; " CLUSTER_WAITS "ld.shared.b32 %r, [%shared+36]; " CLUSTER_MEETS},
};
// clang-format on

}  // namespace

void add_group_cases(std::vector<Case>* all) {
  Case like;
  like.memory = true;
  add_rows(kWarpRows, like, all);
  like.threads = 128;
  add_rows(kBlockRows, like, all);
  like.threads = 32;
  like.cluster = 4;
  add_rows(kClusterRows, like, all);
}

}  // namespace conformance
