// SPDX-License-Identifier: Apache-2.0
// The cases that go through memory: every space, width and vector, cache operators, atomics,
// fences, asynchronous copies and their mbarriers. Blocks have one warp, and each thread uses
// memory of its own unless the row says otherwise. See kernels.cc for the names, rows.h for the
// notation.
#include "rows.h"

namespace conformance {
namespace {

constexpr Inputs I = Inputs::kInteger, F = Inputs::kF32, D = Inputs::kF64, H = Inputs::kF16,
                 B = Inputs::kBF16;

// Waits for the first phase of an mbarrier, but not forever.
#define WAIT_AT(barrier)                                           \
  "$wait: mbarrier.try_wait.parity.shared::cta.b64 %p1, [" barrier \
  "], 0; "                                                         \
  "add.u32 %turn, %turn, 1; setp.lt.and.u32 %p2, %turn, 1000, !%p1; @%p2 bra $wait; "
#define WAIT WAIT_AT("barrier")
// One mbarrier for the 32 lanes of a warp.
#define INIT                                                                      \
  "setp.eq.u32 %p0, %lane, 0; @%p0 mbarrier.init.shared::cta.b64 [barrier], 32; " \
  "fence.proxy.async; bar.warp.sync -1; "
// %r2: %a with its halves exchanged.
#define TURNED "shf.l.wrap.b32 %r2, %a, %a, 16; "
// Makes the stores and atomics of all lanes visible to all lanes.
#define MEET "membar.cta; bar.warp.sync -1; "

// clang-format off
const Row kRows[] = {
    // Loads.
    {I, "%r", "ld.{global,shared,local}.{u8,s8,b8,u16,s16,b16,u32,s32,b32,f32} %r, [%{1}+44];"},
    {I, "%q", "ld.{global,shared,local}.{u8,s8,u16,s16,u32,s32,u64,s64,b64,f64} %q, [%{1}+40];"},
    {I, "%h", "ld.{global,shared,local}.{u8,s8,u16,s16,b16} %h, [%{1}+42];"},
    {I, "%q", "ld.{u8,s8,u16,s16,u32,s32,u64,b64} %q, [%{global,gshared,glocal,gconst}+40];"},
    {I, "%q", "ld.const.{u8,s8,u16,s16,u32,s32,u64,b64} %q, [%const+40];"},
    {I, "%r", "ld.{shared::cta,shared::cluster}.{u8,u32} %r, [%shared+60];"},
    {I, "%qs", "ld.const.v2.{u16,b32,b64} {%q0, %q1}, [%const+48];"},
    {I, "%rs", "ld.const.v4.{u8,s16,b32} {%r0, %r1, %r2, %r3}, [%const+48];"},
    {I, "%qs", "ld.{global,shared,local}.v2.{u8,s8,u16,s16,u32,s32,b32,u64,s64,b64} {%q0, %q1}, [%{1}+48];"},
    {I, "%rs", "ld.{global,shared,local}.v4.{u8,s8,u16,s16,u32,b32,f32} {%r0, %r1, %r2, %r3}, [%{1}+64];"},
    {I, "%qs", "ld.v2.b64 {%q0, %q1}, [%{global,gshared,glocal,gconst}+48];"},
    {I, "%qs", "ld.{global,shared,local}.b128 %o0, [%{1}+80]; mov.b128 {%q0, %q1}, %o0;"},
    // The kernel's parameters: the address of the inputs.
    {I, "%q", "ld.param{,::entry}.{u64,s64,b64} %q, [inputs]; sub.s64 %q, %in, %q;"},
    {I, "%q", "ld.param.v2.b32 {%r0, %r1}, [inputs]; mov.b64 %q, {%r0, %r1}; sub.s64 %q, %in, %q;"},
    {I, "%q", "ld.param.v4.u16 {%h0, %h1, %h2, %h3}, [inputs]; mov.b64 %q, {%h0, %h1, %h2, %h3}; sub.s64 %q, %in, %q;"},
    {I, "%q", "ld.param.u32 %r0, [inputs]; ld.param.u16 %r1, [inputs+4]; ld.param.u8 %r2, [inputs+6]; cvt.u32.u64 %r3, %in; sub.s32 %r0, %r3, %r0; shl.b32 %r2, %r2, 16; or.b32 %r1, %r1, %r2; shr.u64 %q, %in, 32; cvt.u32.u64 %r3, %q; sub.s32 %r1, %r3, %r1; mov.b64 %q, {%r0, %r1};"},
    // Cache operators, orders and scopes.
    {I, "%r", "ld.global.{ca,cg,cs,lu,cv}.{u8,b32} %r, [%global+36];"},
    {I, "%r", "ld.{shared,local}.{ca,cv}.b32 %r, [%{1}+36];"},
    {I, "%r", "ld.global{,.L1::evict_normal,.L1::evict_unchanged,.L1::evict_first,.L1::evict_last,.L1::no_allocate}.u32 %r, [%global+36];"},
    {I, "%qs", "ld.global{,.nc}{,.L1::evict_last,.L1::no_allocate}{.L2::64B,.L2::128B,.L2::256B}.v2.u64 {%q0, %q1}, [%global+32];"},
    {I, "%qs", "ld.global{,.ca,.cg,.cs}.nc.{b8,s16,u32,b64} %q0, [%global+40];"},
    {I, "%rs", "ld.global.nc.v4.b32 {%r0, %r1, %r2, %r3}, [%global+96];"},
    {I, "%r", "ld{.weak,.volatile,.relaxed.cta,.relaxed.cluster,.relaxed.gpu,.relaxed.sys,.acquire.cta,.acquire.cluster,.acquire.gpu,.acquire.sys}.{global,shared}.{u8,b32} %r, [%{2}+36];"},
    {I, "%q", "ld{.volatile,.relaxed.gpu,.acquire.sys}.{u16,b64} %q, [%{global,gshared,glocal}+40];"},
    {I, "%q", "ld.mmio.relaxed.sys.global.{u8,s16,u32,b64} %q, [%global+40];"},
    {I, "%q", "ldu.global.{u8,s8,u16,s16,u32,s32,b64} %q, [%global+40];"},
    {I, "%qs", "ldu{,.global}.v2.{u8,u32,b64} {%q0, %q1}, [%global+48];"},
    {I, "%rs", "ldu.global.v4.{s8,u16,b32} {%r0, %r1, %r2, %r3}, [%global+48];"},
    {I, "%r", "createpolicy.fractional.{L2::evict_last,L2::evict_normal,L2::evict_first}{,.L2::evict_unchanged}.b64 %q0; ld.global.L2::cache_hint.b32 %r, [%global+36], %q0;"},
    {I, "%r", "createpolicy.fractional.L2::evict_last.b64 %q0, 0.5; ld.global.L2::cache_hint.b32 %r, [%global+36], %q0;"},
    {I, "%r", "createpolicy.range{,.global}.{L2::evict_last,L2::evict_first}.L2::evict_unchanged.b64 %q0, [%global], 64, 128; st.global.L2::cache_hint.b32 [%global+36], %a, %q0; ld.global.L1::no_allocate.L2::cache_hint.b32 %r, [%global+36], %q0;"},
    // Stores.
    {I, "%qs", "st.{global,shared,local}.{u8,s8,b8,u16,s16,u32,s32,b32,f32} [%{1}+36], %a; ld.{1}.v2.b64 {%q0, %q1}, [%{1}+32];"},
    {I, "%qs", "st.{global,shared,local}.{u8,s8,u16,s16,b16} [%{1}+38], %ha; ld.{1}.v2.b64 {%q0, %q1}, [%{1}+32];"},
    {I, "%qs", "st.{global,shared,local}.{u8,u16,u32,u64,s64,b64,f64} [%{1}+40], %wa; ld.{1}.v2.b64 {%q0, %q1}, [%{1}+32];"},
    {I, "%qs", "st.{b8,u16,b32,b64} [%{global,gshared,glocal}+40], %wa; ld.v2.b64 {%q0, %q1}, [%{2}+32];"},
    {I, "%qs", "st.{global,shared,local}.v2.{u8,b16,u32,b32} [%{1}+40], {%a, %b}; ld.{1}.v2.b64 {%q0, %q1}, [%{1}+32];"},
    {I, "%qs", "st.{global,shared,local}.v2.{u64,s64,b64} [%{1}+48], {%wa, %wb}; ld.{1}.v2.b64 {%q0, %q1}, [%{1}+48];"},
    {I, "%qs", "st.{global,shared,local}.v4.{u8,s8,u16,b32,f32} [%{1}+48], {%a, %b, %c, %a}; ld.{1}.v2.b64 {%q0, %q1}, [%{1}+48];"},
    {I, "%qs", "mov.b128 %o0, {%wa, %wb}; st.{global,shared,local}.b128 [%{1}+48], %o0; ld.{1}.v2.b64 {%q0, %q1}, [%{1}+48];"},
    {I, "%q", "st.global{,.wb,.cg,.cs,.wt}.{u8,b32} [%global+36], %a; ld.global.b64 %q, [%global+32];"},
    {I, "%q", "st.{shared,local}{.wb,.wt}.b32 [%{1}+36], %a; ld.{1}.b64 %q, [%{1}+32];"},
    {I, "%q", "st.global{.L1::evict_normal,.L1::evict_unchanged,.L1::evict_first,.L1::evict_last,.L1::no_allocate}.u32 [%global+36], %a; ld.global.b64 %q, [%global+32];"},
    {I, "%q", "st{.weak,.volatile,.relaxed.cta,.relaxed.cluster,.relaxed.gpu,.relaxed.sys,.release.cta,.release.cluster,.release.gpu,.release.sys}.{global,shared}.{u16,b32} [%{2}+36], %a; ld.{2}.b64 %q, [%{2}+32];"},
    {I, "%q", "st{.volatile,.relaxed.gpu,.release.sys}.{u8,b64} [%{global,gshared,glocal}+40], %wa; ld.b64 %q, [%{3}+40];"},
    {I, "%q", "st.mmio.relaxed.sys.global.{u8,u32} [%global+44], %a; ld.global.b64 %q, [%global+40];"},
    {I, "%q", "st.{shared::cta,shared::cluster}.b32 [%shared+36], %a; ld.shared.b64 %q, [%shared+32];"},
    // Stores by some lanes only.
    {I, "%q", "@%pa st.{global,shared,local}.b32 [%{1}+36], %a; @!%pa ld.{1}.b64 %q, [%{1}+32]; @%pa ld.{1}.b32 %q, [%{1}+36];"},
    {I, "%qs", "setp.gt.u32 %p0, %lane, 31; @%p0 st.{global,shared}.b64 [%{1}+32], %wa; @!%p0 ld.{1}.v2.b64 {%q0, %q1}, [%{1}+32];"},
    // Stores of a lane that another lane loads.
    {I, "%r", "st{,.volatile}.shared.b32 [%shared+36], %a; {membar.cta,membar.gl,membar.sys,fence.sc.cta,fence.acq_rel.cta,fence.acq_rel.cluster}; bar.warp.sync -1; ld.shared.b32 %r, [%snext+36];"},
    {I, "%r", "st.global.b32 [%global+36], %a; {membar.cta,membar.gl,membar.sys,fence.acq_rel.cta,fence.acq_rel.cluster,fence.acq_rel.gpu,fence.acq_rel.sys,fence.sc.cta,fence.sc.cluster,fence.sc.gpu,fence.sc.sys,fence.cta,fence.gpu}; bar.warp.sync -1; ld.global.b32 %r, [%gnext+36];"},
    {I, "%r", "st.global.b32 [%global+36], %a; fence.release.{cta,cluster,gpu,sys}; bar.warp.sync -1; fence.acquire.{1}; ld.global.b32 %r, [%gnext+36];"},
    {I, "%r", "st.shared.b32 [%shared+36], %a; fence.release.sync_restrict::shared::cta.cluster; bar.warp.sync -1; fence.acquire.sync_restrict::shared::cluster.cluster; ld.shared.b32 %r, [%snext+36];"},
    {I, "%r", "st.shared.b32 [%shared+36], %a; fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster; bar.warp.sync -1; fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster; ld.shared.b32 %r, [%snext+36];"},
    {I, "%r", "st.shared.b32 [%shared+36], %a; {membar.proxy.alias,fence.proxy.alias,fence.proxy.async,fence.proxy.async.global,fence.proxy.async.shared::cta,fence.proxy.async.shared::cluster,fence.mbarrier_init.release.cluster,fence.proxy.tensormap::generic.release.cta,fence.proxy.tensormap::generic.release.gpu}; bar.warp.sync -1; ld.shared.b32 %r, [%snext+36];"},
    {I, "%r", "fence.proxy.tensormap::generic.acquire.{cta,gpu,sys} [%global], 128; ld.global.b32 %r, [%global+36];"},
    // Hints, which do not change results.
    {I, "%q", "prefetch{,.global}.{L1,L2} [%global+32]; ld.global.b64 %q, [%global+32];"},
    {I, "%q", "prefetch.local.{L1,L2} [%local+32]; ld.local.b64 %q, [%local+32];"},
    {I, "%q", "prefetch.global.{L2::evict_last,L2::evict_normal} [%global+32]; ld.global.b64 %q, [%global+32];"},
    {I, "%q", "prefetchu.L1 [%global+32]; ld.global.b64 %q, [%global+32];"},
    {I, "%q", "applypriority{,.global}.L2::evict_normal [%global], 128; ld.global.b64 %q, [%global+32];"},
    {I, "%q", "discard{,.global}.L2 [%global], 128; st.global.b64 [%global+32], %wa; ld.global.b64 %q, [%global+32];"},
    {I, "%q", "cp.async.bulk.prefetch.L2.global [%global+32], {16,96}; ld.global.b64 %q, [%global+32];"},
    // Addresses.
    {I, "%q", "cvta.{global,local,const}.u64 %q0, %{1}; ld.b64 %q, [%q0+40];"},
    {I, "%q", "cvt.u64.u32 %q0, %shared; cvta.{shared,shared::cta,shared::cluster}.u64 %q0, %q0; ld.b64 %q, [%q0+40];"},
    {I, "%q", "cvta.to.global.u64 %q0, %global; ld.global.b64 %q, [%q0+40];"},
    {I, "%q", "cvta.to.{local,const}.u64 %q0, %g{1}; ld.{1}.b64 %q, [%q0+40];"},
    {I, "%q", "cvta.to.{shared,shared::cta}.u64 %q0, %gshared; cvt.u32.u64 %r0, %q0; ld.shared.b64 %q, [%r0+40];"},
    {I, "%q", "mov.b64 %q0, inputs; cvta.param{,::entry}.u64 %q0, %q0; ld.b64 %q, [%q0]; sub.s64 %q, %in, %q;"},
    {I, "%q", "mov.b64 %q0, inputs; cvta.param.u64 %q0, %q0; cvta.to.param.u64 %q0, %q0; ld.param.b64 %q, [%q0]; sub.s64 %q, %in, %q;"},
    {I, "%p", "isspacep.{global,shared,shared::cta,shared::cluster,local,const} %p, %{global,gshared,glocal,gconst};"},
    {I, "%p", "mov.b64 %q0, inputs; cvta.param.u64 %q0, %q0; isspacep.{param,param::entry,shared,local} %p, %q0;"},
    {I, "%p", "isspacep.param %p, %{gshared,glocal};"},
    {I, "%r", "mov.u32 %r0, tile+{12,100}; mov.u32 %r1, tile; sub.s32 %r, %r0, %r1;"},
    // Atomics, each lane at a place of its own: the old and the new value.
    {I, "%rs", "atom.{global,shared}.{add,min,max}.{u32,s32} %r0, [%{1}+36], %a; ld.{1}.b32 %r1, [%{1}+36];"},
    {I, "%rs", "atom.{global,shared}.{and,or,xor,exch}.b32 %r0, [%{1}+36], %a; ld.{1}.b32 %r1, [%{1}+36];"},
    {I, "%rs", "atom.{global,shared}.{inc,dec}.u32 %r0, [%{1}+36], %a; ld.{1}.b32 %r1, [%{1}+36];"},
    {I, "%rs", "ld.{global,shared}.b32 %r1, [%{1}+36]; atom.{1}.{inc,dec}.u32 %r0, [%{1}+36], %r1; ld.{1}.b32 %r1, [%{1}+36];"},
    {I, "%qs", "atom.{global,shared}.add.u64 %q0, [%{1}+40], %wa; ld.{1}.b64 %q1, [%{1}+40];"},
    {I, "%qs", "atom.{global,shared}.{min,max}.{u64,s64} %q0, [%{1}+40], %wa; ld.{1}.b64 %q1, [%{1}+40];"},
    {I, "%qs", "atom.{global,shared}.{and,or,xor,exch}.b64 %q0, [%{1}+40], %wa; ld.{1}.b64 %q1, [%{1}+40];"},
    {I, "%rs", "ld.{global,shared}.b32 %r1, [%{1}+36]; selp.b32 %r1, %r1, %b, %pa; atom.{1}.cas.b32 %r0, [%{1}+36], %r1, %a; ld.{1}.b32 %r1, [%{1}+36];"},
    {I, "%qs", "ld.{global,shared}.b64 %q1, [%{1}+40]; selp.b64 %q1, %q1, %wb, %pa; atom.{1}.cas.b64 %q0, [%{1}+40], %q1, %wa; ld.{1}.b64 %q1, [%{1}+40];"},
    {I, "%q", "ld.{global,shared}.b16 %h1, [%{1}+38]; selp.b16 %h1, %h1, %hb, %pa; atom.{1}.cas.b16 %h0, [%{1}+38], %h1, %ha; ld.{1}.b32 %r0, [%{1}+36]; cvt.u32.u16 %r1, %h0; mov.b64 %q, {%r0, %r1};"},
    {I, "%qs", "mov.b128 %o0, {%wa, %wb}; atom.{global,shared}.exch.b128 %o1, [%{1}+48], %o0; mov.b128 {%q0, %q1}, %o1; ld.{1}.v2.b64 {%q2, %q3}, [%{1}+48];"},
    {I, "%qs", "ld.{global,shared}.b128 %o0, [%{1}+48]; mov.b128 {%q0, %q1}, %o0; selp.b64 %q1, %q1, %wc, %pa; mov.b128 %o0, {%q0, %q1}; mov.b128 %o1, {%wa, %wb}; atom.{1}.cas.b128 %o1, [%{1}+48], %o0, %o1; mov.b128 {%q0, %q1}, %o1; ld.{1}.v2.b64 {%q2, %q3}, [%{1}+48];"},
    {I, "%rs", "atom{,.relaxed,.acquire,.release,.acq_rel}{.cta,.cluster,.gpu,.sys}.{global,shared}.{add.u32,exch.b32} %r0, [%{3}+36], %a; ld.{3}.b32 %r1, [%{3}+36];"},
    {I, "%rs", "atom{,.acq_rel.gpu}.{add.u32,max.s32,xor.b32} %r0, [%{global,gshared}+36], %a; ld.b32 %r1, [%{3}+36];"},
    {I, "%rs", "atom.{shared::cta,shared::cluster}.{add.u32,min.s32} %r0, [%shared+36], %a; ld.shared.b32 %r1, [%shared+36];"},
    {F, "%rs", "atom.{global,shared}.add.f32 %r0, [%{1}+36], %a; ld.{1}.b32 %r1, [%{1}+36];"},
    {D, "%qs", "atom.{global,shared}.add.f64 %q0, [%{1}+40], %wa; ld.{1}.b64 %q1, [%{1}+40];"},
    {H, "%rs", "atom.global.add.noftz.f16x2 %r0, [%global+36], %a; ld.global.b32 %r1, [%global+36];"},
    // %r2 instead of %a: for %a, which is the half of a wider register, the code that ptxas 13.0
    // generates adds the other half.
    {H, "%rs", TURNED "atom.shared.add.noftz.f16x2 %r0, [%shared+36], %r2; ld.shared.b32 %r1, [%shared+36];"},
    {H, "%q", "atom.{global,shared}.add.noftz.f16 %h0, [%{1}+38], %ha; ld.{1}.b32 %r0, [%{1}+36]; cvt.u32.u16 %r1, %h0; mov.b64 %q, {%r0, %r1};"},
    {B, "%rs", "atom.global.add.noftz.bf16x2 %r0, [%global+36], %a; ld.global.b32 %r1, [%global+36];"},
    {B, "%rs", TURNED "atom.shared.add.noftz.bf16x2 %r0, [%shared+36], %r2; ld.shared.b32 %r1, [%shared+36];"},
    {B, "%q", "atom.{global,shared}.add.noftz.bf16 %h0, [%{1}+38], %ha; ld.{1}.b32 %r0, [%{1}+36]; cvt.u32.u16 %r1, %h0; mov.b64 %q, {%r0, %r1};"},
    {I, "%r", "createpolicy.fractional.L2::evict_last.b64 %q0; atom.global.add.L2::cache_hint.u32 %r, [%global+36], %a, %q0; ld.global.b32 %r0, [%global+36]; xor.b32 %r, %r, %r0;"},
    // Reductions, which return nothing.
    {I, "%r", "red.{global,shared}.{add,min,max}.{u32,s32} [%{1}+36], %a; ld.{1}.b32 %r, [%{1}+36];"},
    {I, "%r", "red.{global,shared}.{and,or,xor}.b32 [%{1}+36], %a; ld.{1}.b32 %r, [%{1}+36];"},
    {I, "%r", "red.{global,shared}.{inc,dec}.u32 [%{1}+36], %a; ld.{1}.b32 %r, [%{1}+36];"},
    {I, "%q", "red.{global,shared}.{add.u64,min.u64,min.s64,max.u64,max.s64,and.b64,or.b64,xor.b64} [%{1}+40], %wa; ld.{1}.b64 %q, [%{1}+40];"},
    {I, "%r", "red{,.relaxed,.release}{.cta,.cluster,.gpu,.sys}.global.{add.u32,or.b32} [%global+36], %a; ld.global.b32 %r, [%global+36];"},
    {I, "%r", "red.add.u32 [%{global,gshared}+36], %a; ld.b32 %r, [%{1}+36];"},
    {F, "%r", "red.{global,shared}.add.f32 [%{1}+36], %a; ld.{1}.b32 %r, [%{1}+36];"},
    {D, "%q", "red.{global,shared}.add.f64 [%{1}+40], %wa; ld.{1}.b64 %q, [%{1}+40];"},
    {H, "%r", "red.global.add.noftz.f16x2 [%global+36], %a; ld.global.b32 %r, [%global+36];"},
    {H, "%r", TURNED "red.shared.add.noftz.f16x2 [%shared+36], %r2; ld.shared.b32 %r, [%shared+36];"},
    {H, "%r", "red.{global,shared}.add.noftz.f16 [%{1}+38], %ha; ld.{1}.b32 %r, [%{1}+36];"},
    {B, "%r", "red.global.add.noftz.bf16x2 [%global+36], %a; ld.global.b32 %r, [%global+36];"},
    {B, "%r", TURNED "red.shared.add.noftz.bf16x2 [%shared+36], %r2; ld.shared.b32 %r, [%shared+36];"},
    {B, "%r", "red.{global,shared}.add.noftz.bf16 [%{1}+38], %ha; ld.{1}.b32 %r, [%{1}+36];"},
    {I, "%r", "createpolicy.fractional.L2::evict_last.b64 %q0; red.global.add.L2::cache_hint.u32 [%global+36], %a, %q0; ld.global.b32 %r, [%global+36];"},
    // All lanes, or those whose bit is set, at one place. The result does not depend on the order.
    {I, "%r", "red.shared.{add.u32,min.s32,max.s32,min.u32,max.u32,and.b32,or.b32,xor.b32} [tile+36], %a; " MEET "ld.shared.b32 %r, [tile+36];"},
    {I, "%r", "red.global.{add.u32,min.s32,max.u32,and.b32,or.b32,xor.b32} [%gwarp+36], %a; membar.gl; bar.warp.sync -1; ld.global.b32 %r, [%gwarp+36];"},
    {I, "%q", "@%pa red.shared.{add.u64,min.s64,max.u64,xor.b64} [tile+40], %wa; " MEET "ld.shared.b64 %q, [tile+40];"},
    {I, "%q", "@%pa atom.shared.{add.u64,max.s64,or.b64} %q0, [tile+40], %wa; " MEET "ld.shared.b64 %q, [tile+40];"},
    {I, "%r", "st.shared.b32 [tile+36], 0; bar.warp.sync -1; @%pa atom.shared.{inc.u32,add.u32} %r0, [tile+36], 100; " MEET "ld.shared.b32 %r, [tile+36];"},
    // Lanes share four places.
    {I, "%r", "and.b32 %r0, %lane, 3; mov.u32 %r1, tile; mad.lo.u32 %r0, %r0, 4, %r1; red.shared.{add.u32,xor.b32,min.s32} [%r0+32], %a; " MEET "ld.shared.b32 %r, [%r0+32];"},
    // Asynchronous copies.
    {I, "%qs", "cp.async.ca.{shared,shared::cta}.global{,.L2::64B,.L2::128B,.L2::256B} [%shared+32], [%global+64], {4,8,16}; cp.async.wait_all; ld.shared.v2.b64 {%q0, %q1}, [%shared+32];"},
    {I, "%qs", "cp.async.cg.shared.global [%shared+32], [%global+64], 16; cp.async.commit_group; cp.async.wait_group 0; ld.shared.v2.b64 {%q0, %q1}, [%shared+32];"},
    {I, "%qs", "and.b32 %r0, %a, {3,7,15}; cp.async.ca.shared.global [%shared+32], [%global+64], 16, %r0; cp.async.commit_group; cp.async.wait_group 0; ld.shared.v2.b64 {%q0, %q1}, [%shared+32];"},
    {I, "%qs", "cp.async.ca.shared.global [%shared+32], [%global+64], 16, %pa; cp.async.wait_all; ld.shared.v2.b64 {%q0, %q1}, [%shared+32];"},
    {I, "%qs", "cp.async.ca.shared.global [%shared+32], [%global+64], 8; cp.async.commit_group; cp.async.cg.shared.global [%shared+48], [%global+80], 16; cp.async.commit_group; cp.async.wait_group {0,1}; cp.async.wait_all; ld.shared.v2.b64 {%q0, %q1}, [%shared+32]; ld.shared.v2.b64 {%q2, %q3}, [%shared+48];"},
    {I, "%qs", "createpolicy.fractional.L2::evict_first.b64 %q0; cp.async.cg.shared.global.L2::cache_hint [%shared+32], [%global+64], 16, %q0; cp.async.wait_all; ld.shared.v2.b64 {%q0, %q1}, [%shared+32];"},
    {I, "%qs", INIT "cp.async.ca.shared.global [%shared+32], [%global+64], 8; cp.async.mbarrier.arrive.noinc{,.shared,.shared::cta}.b64 [barrier]; " WAIT "ld.shared.v2.b64 {%q0, %q1}, [%snext+32];"},
    {I, "%qs", INIT "cp.async.ca.shared.global [%shared+32], [%global+64], 8; cp.async.mbarrier.arrive.shared.b64 [barrier]; mbarrier.arrive.shared.b64 _, [barrier]; " WAIT "ld.shared.v2.b64 {%q0, %q1}, [%snext+32];"},
    // Bulk copies, one for each lane. On an H200, those from shared to shared memory are illegal
    // instructions outside of clusters, so group_cases.cc has them.
    {I, "%qs", INIT "mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], {16,32}; cp.async.bulk.{shared::cluster,shared::cta}.global.mbarrier::complete_tx::bytes [%shared+64], [%global+32], {1}, [barrier]; " WAIT "ld.shared.v2.b64 {%q0, %q1}, [%snext+64]; ld.shared.v2.b64 {%q2, %q3}, [%snext+80];"},
    {I, "%qs", INIT "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [barrier], 16; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%shared+64], [%global+32], 16, [barrier]; mbarrier.arrive.shared::cta.b64 _, [barrier]; " WAIT "ld.shared.v2.b64 {%q0, %q1}, [%snext+64];"},
    {I, "%qs", INIT "createpolicy.fractional.L2::evict_first.b64 %q0; mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], 16; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%shared+64], [%global+32], 16, [barrier], %q0; " WAIT "ld.shared.v2.b64 {%q0, %q1}, [%shared+64];"},
    {I, "%qs", "fence.proxy.async; cp.async.bulk.global.shared::cta.bulk_group [%global+64], [%shared+32], 32; cp.async.bulk.commit_group; cp.async.bulk.wait_group{.read,} 0; cp.async.bulk.wait_group 0; ld.global.v2.b64 {%q0, %q1}, [%global+64]; ld.global.v2.b64 {%q2, %q3}, [%global+80];"},
    {I, "%qs", "createpolicy.fractional.L2::evict_last.b64 %q0; fence.proxy.async; cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%global+64], [%shared+32], 16, %q0; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.v2.b64 {%q0, %q1}, [%global+64];"},
    {I, "%qs", "fence.proxy.async; cp.reduce.async.bulk.global.shared::cta.bulk_group.{add.u32,add.u64,min.s32,max.s32,min.u32,max.u32,min.s64,max.s64,min.u64,max.u64,inc.u32,dec.u32,and.b32,or.b32,xor.b32,and.b64,or.b64,xor.b64} [%global+64], [%shared+32], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.v2.b64 {%q0, %q1}, [%global+64];"},
    {F, "%qs", "fence.proxy.async; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%global+64], [%shared+32], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.v2.b64 {%q0, %q1}, [%global+64];"},
    {D, "%qs", "fence.proxy.async; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f64 [%global+64], [%shared+32], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.v2.b64 {%q0, %q1}, [%global+64];"},
    {H, "%qs", "fence.proxy.async; cp.reduce.async.bulk.global.shared::cta.bulk_group.{add.noftz,min,max}.f16 [%global+64], [%shared+32], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.v2.b64 {%q0, %q1}, [%global+64];"},
    {B, "%qs", "fence.proxy.async; cp.reduce.async.bulk.global.shared::cta.bulk_group.{add.noftz,min,max}.bf16 [%global+64], [%shared+32], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.v2.b64 {%q0, %q1}, [%global+64];"},
    // Mbarriers: each lane has one of its own.
    {I, "%rs", "mbarrier.init{.b64 [%gshared,.shared.b64 [%shared,.shared::cta.b64 [%shared}+32], 3; mbarrier.arrive.shared.b64 %q0, [%shared+32]; mbarrier.arrive.shared.b64 %q1, [%shared+32]; mbarrier.pending_count.b64 %r0, %q0; mbarrier.pending_count.b64 %r1, %q1; mbarrier.test_wait.shared.b64 %p0, [%shared+32], %q1; selp.b32 %r2, 1, 0, %p0; mbarrier.arrive.shared.b64 %q2, [%shared+32]; mbarrier.test_wait.shared.b64 %p0, [%shared+32], %q1; selp.b32 %r3, 1, 0, %p0; mbarrier.pending_count.b64 %r4, %q2;"},
    {I, "%rs", "mbarrier.init.shared.b64 [%shared+32], 5; mbarrier.arrive{,.release.cta,.release.cluster,.relaxed.cta,.relaxed.cluster}.shared{,::cta}.b64 %q0, [%shared+32], 2; mbarrier.arrive_drop{1}.shared{2}.b64 %q1, [%shared+32]; mbarrier.pending_count.b64 %r0, %q0; mbarrier.pending_count.b64 %r1, %q1; mbarrier.arrive.shared.b64 %q2, [%shared+32], 2; mbarrier.arrive.shared.b64 %q3, [%shared+32]; mbarrier.pending_count.b64 %r3, %q3;"},
    {I, "%rs", "mbarrier.init.shared.b64 [%shared+32], 4; mbarrier.arrive.noComplete.shared{,::cta}.b64 %q0, [%shared+32], 2; mbarrier.arrive_drop.noComplete.shared{1}.b64 %q1, [%shared+32], 1; mbarrier.arrive.shared.b64 %q2, [%shared+32]; mbarrier.pending_count.b64 %r0, %q0; mbarrier.pending_count.b64 %r1, %q1; mbarrier.pending_count.b64 %r2, %q2; mbarrier.{test_wait,try_wait}.shared.b64 %p, [%shared+32], %q2; selp.b32 %r3, 1, 0, %p;"},
    {I, "%rs", "mbarrier.init.shared.b64 [%shared+32], 1; mbarrier.test_wait.parity{,.acquire.cta,.acquire.cluster,.relaxed.cta,.relaxed.cluster}.shared.b64 %p0, [%shared+32], 0; mbarrier.test_wait.parity{1}.shared::cta.b64 %p1, [%shared+32], 1; selp.b32 %r0, 1, 0, %p0; selp.b32 %r1, 1, 0, %p1; mbarrier.arrive.shared.b64 %q0, [%shared+32]; mbarrier.try_wait.parity{1}.shared.b64 %p0, [%shared+32], 0; mbarrier.test_wait.parity{1}.shared.b64 %p1, [%shared+32], 1; selp.b32 %r2, 1, 0, %p0; selp.b32 %r3, 1, 0, %p1; mbarrier.test_wait{1}.shared.b64 %p0, [%shared+32], %q0; selp.b32 %r4, 1, 0, %p0;"},
    {I, "%rs", "mbarrier.init.shared.b64 [%shared+32], 2; mbarrier.arrive.shared.b64 %q0, [%shared+32]; mbarrier.try_wait{,.acquire.cta}.shared.b64 %p0, [%shared+32], %q0, {20,1000}; selp.b32 %r0, 1, 0, %p0; mbarrier.arrive.shared.b64 %q1, [%shared+32]; mbarrier.try_wait{1}.shared.b64 %p0, [%shared+32], %q0; selp.b32 %r1, 1, 0, %p0;"},
    {I, "%rs", "mbarrier.init.shared.b64 [%shared+32], 1; mbarrier.expect_tx{,.relaxed.cta,.relaxed.cluster}.shared::cta.b64 [%shared+32], 24; mbarrier.arrive.shared.b64 %q0, [%shared+32]; mbarrier.test_wait.parity.shared.b64 %p0, [%shared+32], 0; selp.b32 %r0, 1, 0, %p0; mbarrier.complete_tx{1}.shared::cta.b64 [%shared+32], 8; mbarrier.test_wait.parity.shared.b64 %p0, [%shared+32], 0; selp.b32 %r1, 1, 0, %p0; mbarrier.complete_tx{1}.shared::cta.b64 [%shared+32], 16; mbarrier.test_wait.parity.shared.b64 %p0, [%shared+32], 0; selp.b32 %r2, 1, 0, %p0; mbarrier.pending_count.b64 %r3, %q0;"},
    {I, "%rs", "mbarrier.init.shared.b64 [%shared+32], 2; mbarrier.arrive.expect_tx{,.release.cta,.release.cluster,.relaxed.cta,.relaxed.cluster}.shared::cta.b64 %q0, [%shared+32], 24; mbarrier.arrive_drop.expect_tx{1}.shared::cta.b64 %q1, [%shared+32], 8; mbarrier.pending_count.b64 %r0, %q0; mbarrier.pending_count.b64 %r1, %q1; mbarrier.test_wait.parity.shared.b64 %p0, [%shared+32], 0; selp.b32 %r2, 1, 0, %p0; mbarrier.complete_tx.shared::cta.b64 [%shared+32], 32; mbarrier.test_wait.parity.shared.b64 %p0, [%shared+32], 0; selp.b32 %r3, 1, 0, %p0; mbarrier.arrive.shared.b64 %q2, [%shared+32]; mbarrier.pending_count.b64 %r4, %q2;"},
    {I, "%rs", "mbarrier.init.shared.b64 [%shared+32], 7; mbarrier.arrive.shared.b64 %q0, [%shared+32]; mbarrier.inval{.b64 [%gshared,.shared.b64 [%shared,.shared::cta.b64 [%shared}+32]; mbarrier.init.shared.b64 [%shared+32], 2; mbarrier.arrive.shared.b64 %q1, [%shared+32]; mbarrier.pending_count.b64 %r0, %q1; mbarrier.inval.shared.b64 [%shared+32]; st.shared.b64 [%shared+32], %wa; ld.shared.b32 %r1, [%shared+32];"},
    // One mbarrier for all lanes: no lane passes before the last has arrived.
    {I, "%r", INIT "st.shared.b32 [%shared+36], %a; mbarrier.arrive.shared::cta.b64 _, [barrier]; " WAIT "ld.shared.b32 %r, [%snext+36];"},
    {I, "%r", INIT "st.shared.b32 [%shared+36], %a; @%pa mbarrier.arrive_drop.shared::cta.b64 %q0, [barrier]; @!%pa mbarrier.arrive.shared::cta.b64 %q0, [barrier]; " WAIT "bar.warp.sync -1; @%p0 mbarrier.arrive.shared::cta.b64 %q1, [barrier]; @%p0 mbarrier.pending_count.b64 %r, %q1; @!%p0 ld.shared.b32 %r, [%snext+36];"},
};
// clang-format on

}  // namespace

void add_memory_cases(std::vector<Case>* all) {
  Case like;
  like.memory = true;
  add_rows(kRows, like, all);
}

}  // namespace conformance
