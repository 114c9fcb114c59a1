// SPDX-License-Identifier: Apache-2.0
// See cases.h and rows.h.
#include "cases.h"

#include "rows.h"

namespace conformance {
namespace {

constexpr Inputs I = Inputs::kInteger, S = Inputs::kShift, F = Inputs::kF32, D = Inputs::kF64,
                 H = Inputs::kF16, B = Inputs::kBF16, E = Inputs::kFP8, W = Inputs::kCollective;

// clang-format off
const Row kRows[] = {
    // Integer arithmetic.
    {I, "%r", "{add,sub,mul.lo,mul.hi,div,rem,min,max}.{u32,s32} %r, %a, %b;"},
    {I, "%q", "{add,sub,mul.lo,mul.hi,div,rem,min,max}.{u64,s64} %q, %wa, %wb;"},
    {I, "%h", "{add,sub,mul.lo,mul.hi,div,rem,min,max}.{u16,s16} %h, %ha, %hb;"},
    {I, "%r", "{add,sub}.sat.s32 %r, %a, %b;"},
    {I, "%r", "{add,min,max}.{u16x2,s16x2} %r, %a, %b;"},
    {I, "%r", "{min,max}.relu.{s32,s16x2} %r, %a, %b;"},
    {I, "%r", "mul.wide.{u16,s16} %r, %ha, %hb;"},
    {I, "%q", "mul.wide.{u32,s32} %q, %a, %b;"},
    {I, "%r", "mad.{lo,hi}.{u32,s32} %r, %a, %b, %c;"},
    {I, "%r", "mad.hi.sat.s32 %r, %a, %b, %c;"},
    {I, "%q", "mad.{lo,hi}.{u64,s64} %q, %wa, %wb, %wc;"},
    {I, "%h", "mad.{lo,hi}.{u16,s16} %h, %ha, %hb, %hc;"},
    {I, "%r", "mad.wide.{u16,s16} %r, %ha, %hb, %c;"},
    {I, "%q", "mad.wide.{u32,s32} %q, %a, %b, %wc;"},
    {I, "%r", "{mul24.lo,mul24.hi}.{u32,s32} %r, %a, %b;"},
    {I, "%r", "{mad24.lo,mad24.hi,sad}.{u32,s32} %r, %a, %b, %c;"},
    {I, "%r", "mad24.hi.sat.s32 %r, %a, %b, %c;"},
    {I, "%q", "sad.{u64,s64} %q, %wa, %wb, %wc;"},
    {I, "%h", "sad.{u16,s16} %h, %ha, %hb, %hc;"},
    {I, "%r", "{add.cc,sub.cc}.{u32,s32} %r, %a, %b; {addc,subc}.u32 %r, %c, %r;"},
    {I, "%q", "add.cc.u64 %q, %wa, %wb; addc.u64 %q, %wc, %q;"},
    {I, "%q", "sub.cc.u64 %q, %wa, %wb; subc.u64 %q, %wc, %q;"},
    {I, "%r", "mad.{lo,hi}.cc.{u32,s32} %r, %a, %b, %c; madc.{lo,hi}.u32 %r, %a, %c, %r;"},
    {I, "%q", "mad.lo.cc.u64 %q, %wa, %wb, %wc; madc.hi.u64 %q, %wa, %wb, %q;"},
    {I, "%r", "{abs,neg}.s32 %r, %a;"},
    {I, "%q", "{abs,neg}.s64 %q, %wa;"},
    {I, "%h", "{abs,neg}.s16 %h, %ha;"},
    {I, "%r", "dp4a.{u32,s32}.{u32,s32} %r, %a, %b, %c;"},
    {I, "%r", "dp2a.{lo,hi}.{u32,s32}.{u32,s32} %r, %a, %b, %c;"},
    // Bits.
    {I, "%r", "{popc,clz,brev,not,cnot}.b32 %r, %a;"},
    {I, "%r", "{popc,clz}.b64 %r, %wa;"},
    {I, "%q", "{brev,not,cnot}.b64 %q, %wa;"},
    {I, "%h", "{not,cnot}.b16 %h, %ha;"},
    {I, "%r", "{bfind,bfind.shiftamt}.{u32,s32} %r, %a;"},
    {I, "%r", "{bfind,bfind.shiftamt}.{u64,s64} %r, %wa;"},
    {I, "%r", "{and,or,xor}.b32 %r, %a, %b;"},
    {I, "%q", "{and,or,xor}.b64 %q, %wa, %wb;"},
    {I, "%h", "{and,or,xor}.b16 %h, %ha, %hb;"},
    {I, "%r", "lop3.b32 %r, %a, %b, %c, {0,1,0x1b,0x3a,0x69,0x80,0x96,0xca,0xe8,0xff};"},
    {S, "%r", "bfe.{u32,s32} %r, %a, %b, %c;"},
    {S, "%q", "bfe.{u64,s64} %q, %wa, %b, %c;"},
    {S, "%r", "bfi.b32 %r, %a, %a, %b, %c;"},
    {S, "%q", "bfi.b64 %q, %wa, %wa, %b, %c;"},
    {S, "%r", "bfi.b32 %r, %b, %a, %c, 7;"},
    {S, "%r", "bmsk.{clamp,wrap}.b32 %r, %b, %c;"},
    {S, "%r", "szext.{clamp,wrap}.{u32,s32} %r, %a, %b;"},
    {S, "%r", "{shl.b32,shr.b32,shr.u32,shr.s32} %r, %a, %b;"},
    {S, "%q", "{shl.b64,shr.b64,shr.u64,shr.s64} %q, %wa, %b;"},
    {S, "%h", "{shl.b16,shr.b16,shr.u16,shr.s16} %h, %ha, %b;"},
    {S, "%r", "shf.{l,r}.{clamp,wrap}.b32 %r, %a, %c, %b;"},
    {I, "%r", "prmt.b32 %r, %a, %b, %c;"},
    {I, "%r", "prmt.b32{.f4e,.b4e,.rc8,.ecl,.ecr,.rc16} %r, %a, %b, %c;"},
    {S, "%r", "and.b32 %c, %c, 63; sub.s32 %c, %c, 32; and.b32 %b, %b, 31; fns.b32 %r, %a, %b, %c;"},
    // SIMD and scalar video.
    {I, "%r", "vabsdiff4.u32.u32.u32{,.add} %r, %a, %b, %c;"},
    {I, "%r", "vabsdiff4.{u32,s32}.{u32,s32}.{u32,s32}{,.add} %r, %a, %b, %c;"},
    {I, "%r", "{vadd4,vsub4,vavrg4,vmin4,vmax4}.{u32,s32}.{u32,s32}.{u32,s32}{,.sat,.add} %r, %a, %b, %c;"},
    {I, "%r", "{vadd2,vsub2,vavrg2,vabsdiff2,vmin2,vmax2}.{u32,s32}.{u32,s32}.{u32,s32}{,.sat,.add} %r, %a, %b, %c;"},
    {I, "%r", "{vadd2,vsub2}.u32.s32.u32 %r.{h10,h1}, %a.h32, %b.h01, %c;"},
    {I, "%r", "vset{2,4}.{u32,s32}.{u32,s32}.{eq,ne,lt,le,gt,ge}{,.add} %r, %a, %b, %c;"},
    {I, "%r", "{vadd,vsub,vabsdiff,vmin,vmax}.{u32,s32}.{u32,s32}.{u32,s32}{,.sat} %r, %a, %b;"},
    {I, "%r", "{vadd,vsub,vabsdiff,vmin,vmax}.s32.u32.s32 %r, %a.{b1,h1}, %b.{b3,h0};"},
    {I, "%r", "{vadd,vmax}.u32.u32.s32.sat.add %r, %a.b2, %b, %c;"},
    {I, "%r", "vmax.u32.u32.s32.sat.{min,max} %r, %a.b2, %b, %c;"},
    {I, "%r", "{vadd,vmin}.s32.s32.s32 %r.{b0,b2,h1}, %a, %b, %c;"},
    {I, "%r", "{vshl,vshr}.{u32,s32}.u32.u32{.clamp,.wrap} %r, %a, %b;"},
    {I, "%r", "vshr.s32.s32.u32{.clamp,.wrap}{,.add} %r, %a, %b, %c;"},
    {I, "%r", "vmad.{u32,s32}.{u32,s32}.{u32,s32}{,.sat}{,.shr7,.shr15} %r, %a.{b0,h1}, %b.{b2,h0}, %c;"},
    {I, "%r", "vset.{u32,s32}.{u32,s32}.{eq,lt,ge} %r, %a, %b;"},
    // Floating point.
    {F, "%r", "{add,sub,mul}.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32 %r, %a, %b;"},
    {F, "%r", "fma.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32 %r, %a, %b, %c;"},
    {F, "%r", "mad.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32 %r, %a, %b, %c;"},
    {F, "%r", "div.{rn,rz,rm,rp}{,.ftz}.f32 %r, %a, %b;"},
    {F, "%r", "{rcp,sqrt}.{rn,rz,rm,rp}{,.ftz}.f32 %r, %a;"},
    {F, "%r", "{abs,neg}{,.ftz}.f32 %r, %a;"},
    {F, "%r", "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32 %r, %a, %b;"},
    {F, "%r", "copysign.f32 %r, %a, %b;"},
    {D, "%q", "{add,sub,mul,div}.{rn,rz,rm,rp}.f64 %q, %wa, %wb;"},
    {D, "%q", "fma.{rn,rz,rm,rp}.f64 %q, %wa, %wb, %wc;"},
    {D, "%q", "mad.{rn,rz,rm,rp}.f64 %q, %wa, %wb, %wc;"},
    {D, "%q", "{rcp,sqrt}.{rn,rz,rm,rp}.f64 %q, %wa;"},
    {D, "%q", "{abs,neg}.f64 %q, %wa;"},
    {D, "%q", "{min,max,copysign}.f64 %q, %wa, %wb;"},
    {H, "%h", "{add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16 %h, %ha, %hb;"},
    {H, "%r", "{add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16x2 %r, %a, %b;"},
    {H, "%h", "fma.rn{,.ftz}{,.sat,.relu}.f16 %h, %ha, %hb, %hc;"},
    {H, "%r", "fma.rn{,.ftz}{,.sat,.relu}.f16x2 %r, %a, %b, %c;"},
    {H, "%h", "{abs,neg}{,.ftz}.f16 %h, %ha;"},
    {H, "%r", "{abs,neg}{,.ftz}.f16x2 %r, %a;"},
    {H, "%h", "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f16 %h, %ha, %hb;"},
    {H, "%r", "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f16x2 %r, %a, %b;"},
    {B, "%h", "{add,sub,mul}{,.rn}.bf16 %h, %ha, %hb;"},
    {B, "%r", "{add,sub,mul}{,.rn}.bf16x2 %r, %a, %b;"},
    {B, "%h", "fma.rn{,.relu}.bf16 %h, %ha, %hb, %hc;"},
    {B, "%r", "fma.rn{,.relu}.bf16x2 %r, %a, %b, %c;"},
    {B, "%h", "{abs,neg}.bf16 %h, %ha;"},
    {B, "%r", "{abs,neg}.bf16x2 %r, %a;"},
    {B, "%h", "{min,max}{,.NaN}{,.xorsign.abs}.bf16 %h, %ha, %hb;"},
    {B, "%r", "{min,max}{,.NaN}{,.xorsign.abs}.bf16x2 %r, %a, %b;"},
    // Comparison and selection.
    {I, "%p", "setp.{eq,ne,lt,le,gt,ge}.s32 %p, %a, %b;"},
    {I, "%p", "setp.{eq,ne,lo,ls,hi,hs}.u32 %p, %a, %b;"},
    {I, "%p", "setp.{lt,ge}.{and,or,xor}.{u64,s64} %p, %wa, %wb, %pa;"},
    {I, "%p", "setp.{lt,le}.{u16,s16} %p, %ha, %hb;"},
    {F, "%p", "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f32 %p, %a, %b;"},
    {D, "%p", "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f64 %p, %wa, %wb;"},
    {H, "%p", "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f16 %p, %ha, %hb;"},
    {B, "%p", "setp.{eq,lt,ge,neu,num,nan}.bf16 %p, %ha, %hb;"},
    {F, "%p", "testp.{finite,infinite,number,notanumber,normal,subnormal}.f32 %p, %a;"},
    {D, "%p", "testp.{finite,infinite,number,notanumber,normal,subnormal}.f64 %p, %wa;"},
    {F, "%r", "set.{lt,geu,nan}.{u32,s32,f32}.f32 %r, %a, %b;"},
    {I, "%r", "set.{lt,ne}.{and,or,xor}.{u32,s32,f32}.s32 %r, %a, %b, !%pa;"},
    {H, "%r", "set.{lt,geu,nan}.{f16x2,u32}.f16x2 %r, %a, %b;"},
    {I, "%r", "slct.{b32.s32,u32.s32,s32.f32} %r, %a, %b, %c;"},
    {F, "%r", "slct{,.ftz}.f32.f32 %r, %a, %b, %c;"},
    {I, "%r", "selp.b32 %r, %a, %b, %pa;"},
    {I, "%r", "selp.{u32,s32,f32} %r, %a, %b, !%pa;"},
    {I, "%q", "selp.{b64,u64,s64,f64} %q, %wa, %wb, %pa;"},
    {I, "%h", "selp.{b16,u16,s16} %h, %ha, %hb, %pa;"},
    {I, "%q", "slct.{b64.s32,u64.s32,s64.s32,f64.s32} %q, %wa, %wb, %c;"},
    {I, "%h", "slct.{b16.s32,u16.s32,s16.s32} %h, %ha, %hb, %c;"},
    {I, "%r", "slct.{s32,f32}.s32 %r, %a, %b, %c;"},
    {F, "%r", "slct{,.ftz}.{b32,u32}.f32 %r, %a, %b, %c;"},
    {I, "%p", "setp.{eq,ne}.{b16,u16,s16} %p, %ha, %hb;"},
    {I, "%p", "setp.{eq,ne}.b32 %p, %a, %b;"},
    {I, "%p", "setp.{eq,ne}.{b64,u64,s64} %p, %wa, %wb;"},
    {I, "%p", "setp.{gt,ge}.{u16,s16} %p, %ha, %hb;"},
    {I, "%p", "setp.{le,gt}.{u64,s64} %p, %wa, %wb;"},
    {I, "%p", "setp.{lo,ls,hi,hs}.u64 %p, %wa, %wb;"},
    {I, "%p", "setp.{lt,ne}.{and,or,xor}.{s16,u16} %p, %ha, %hb, {!,}%pa;"},
    {F, "%p", "setp.{lt,neu,num}.{and,or,xor}{,.ftz}.f32 %p, %a, %b, !%pa;"},
    {D, "%p", "setp.{ge,equ,nan}.{and,or,xor}.f64 %p, %wa, %wb, %pa;"},
    {H, "%p", "setp.{le,ltu}.{and,xor}.f16 %p, %ha, %hb, %pa;"},
    {B, "%p", "setp.{ne,le,gt,equ,ltu,leu,gtu,geu}.bf16 %p, %ha, %hb;"},
    {I, "%r", "set.{eq,ne,lt,le,gt,ge}.{u32,s32,f32}.{u32,s32} %r, %a, %b;"},
    {I, "%r", "set.{eq,ne}.{u32,s32,f32}.b32 %r, %a, %b;"},
    {I, "%r", "set.{eq,lt,ge}.{u32,s32,f32}.{u64,s64} %r, %wa, %wb;"},
    {I, "%r", "set.{eq,lt,ge}.{u32,s32,f32}.{u16,s16} %r, %ha, %hb;"},
    {F, "%r", "set.{eq,ne,le,gt,ge,equ,neu,ltu,leu,gtu,num}{,.ftz}.{u32,f32}.f32 %r, %a, %b;"},
    {F, "%r", "set.{lt,num}.{and,or,xor}{,.ftz}.s32.f32 %r, %a, %b, %pa;"},
    {D, "%r", "set.{eq,lt,leu,nan}.{u32,s32,f32}.f64 %r, %wa, %wb;"},
    {H, "%h", "set.{lt,geu,nan}{,.ftz}.f16.f16 %h, %ha, %hb;"},
    {H, "%r", "set.{eq,gtu}{,.ftz}.{u32,s32}.f16 %r, %ha, %hb;"},
    {B, "%h", "set.{lt,geu,nan}.bf16.bf16 %h, %ha, %hb;"},
    {B, "%r", "set.{eq,gtu}.{u32,s32}.bf16 %r, %ha, %hb;"},
    {B, "%r", "set.{lt,geu,nan}.{bf16x2,u32}.bf16x2 %r, %a, %b;"},
    // Conversions.
    {I, "%r", "cvt.{u32,s32}.{u8,s8} %r, %a;"},
    {I, "%h", "cvt{,.sat}.{u16,s16}.{u32,s32} %h, %a;"},
    {I, "%r", "cvt{,.sat}.{u8,s8}.{u32,s32} %r, %a;"},
    {I, "%r", "cvt{,.sat}.{u8,s8}.{u64,s64} %r, %wa;"},
    {I, "%r", "cvt{,.sat}.{u32,s32}.{u64,s64} %r, %wa;"},
    {I, "%q", "cvt.{u64,s64}.{u32,s32} %q, %a;"},
    {I, "%q", "cvt.sat.u64.s32 %q, %a;"},
    {F, "%r", "cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.{u32,s32}.f32 %r, %a;"},
    {F, "%h", "cvt.{rni,rzi,rmi,rpi}.{u16,s16}.f32 %h, %a;"},
    {F, "%r", "cvt.{rni,rzi}.{u8,s8}.f32 %r, %a;"},
    {F, "%q", "cvt.{rni,rzi,rmi,rpi}{,.ftz}.{u64,s64}.f32 %q, %a;"},
    {D, "%r", "cvt.{rni,rzi,rmi,rpi}.{u32,s32}.f64 %r, %wa;"},
    {D, "%q", "cvt.{rni,rzi,rmi,rpi}.{u64,s64}.f64 %q, %wa;"},
    {D, "%h", "cvt.{rni,rzi}.{u16,s16}.f64 %h, %wa;"},
    {H, "%h", "cvt.{rni,rzi,rmi,rpi}.{u16,s16}.f16 %h, %ha;"},
    {H, "%r", "cvt.{rni,rzi,rmi,rpi}.{u32,s32}.f16 %r, %ha;"},
    {H, "%q", "cvt.{rni,rzi}.{u64,s64}.f16 %q, %ha;"},
    {I, "%r", "cvt.{rn,rz,rm,rp}.f32.{u32,s32} %r, %a;"},
    {I, "%r", "cvt.{rn,rz,rm,rp}.f32.{u64,s64} %r, %wa;"},
    {I, "%r", "cvt.rn.f32.{u16,s16} %r, %ha;"},
    {I, "%r", "cvt.rn.f32.{u8,s8} %r, %a;"},
    {I, "%q", "cvt.{rn,rz,rm,rp}.f64.{u64,s64} %q, %wa;"},
    {I, "%q", "cvt.rn.f64.{u32,s32} %q, %a;"},
    {I, "%h", "cvt.{rn,rz,rm,rp}.f16.{u32,s32} %h, %a;"},
    {I, "%h", "cvt.{rn,rz,rm,rp}.f16.{u16,s16} %h, %ha;"},
    {I, "%h", "cvt.{rn,rz,rm,rp}.f16.{u64,s64} %h, %wa;"},
    {I, "%h", "cvt.{rn,rz,rm,rp}.bf16.{u32,s32} %h, %a;"},
    {F, "%r", "cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.f32.f32 %r, %a;"},
    {F, "%r", "cvt.ftz.f32.f32 %r, %a;"},
    {F, "%r", "cvt.sat.f32.f32 %r, %a;"},
    {D, "%q", "cvt.{rni,rzi,rmi,rpi}{,.sat}.f64.f64 %q, %wa;"},
    {D, "%r", "cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32.f64 %r, %wa;"},
    {F, "%q", "cvt{,.ftz}.f64.f32 %q, %a;"},
    {F, "%h", "cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f16.f32 %h, %a;"},
    {F, "%h", "cvt.{rn,rz}.{relu,satfinite}.f16.f32 %h, %a;"},
    {D, "%h", "cvt.{rn,rz,rm,rp}.f16.f64 %h, %wa;"},
    {H, "%r", "cvt{,.ftz}.f32.f16 %r, %ha;"},
    {H, "%q", "cvt.f64.f16 %q, %ha;"},
    {H, "%h", "cvt.{rni,rzi,rmi,rpi}.f16.f16 %h, %ha;"},
    {B, "%r", "cvt{,.ftz}.f32.bf16 %r, %ha;"},
    {F, "%h", "cvt.{rn,rz}{,.relu}.bf16.f32 %h, %a;"},
    {F, "%r", "cvt.{rn,rz}{,.relu}.{f16x2,bf16x2}.f32 %r, %a, %b;"},
    {F, "%r", "cvt.{rna,rn,rz}.tf32.f32 %r, %a;"},
    {F, "%r", "cvt.{rn,rz}.relu.tf32.f32 %r, %a;"},
    {F, "%h", "cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32 %h, %a, %b;"},
    {H, "%h", "cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2 %h, %a;"},
    {E, "%r", "cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2} %r, %ha;"},
    {F, "%r", "cvt.{rn,rz}.relu.satfinite.{f16x2,bf16x2}.f32 %r, %a, %b;"},
    {F, "%r", "cvt.{rn,rz}.satfinite{,.relu}.{f16x2,bf16x2}.f32 %r, %a, %b;"},
    {F, "%h", "cvt.{rn,rz}.satfinite.bf16.f32 %h, %a;"},
    {F, "%r", "cvt.rna.satfinite.tf32.f32 %r, %a;"},
    {I, "%r", "cvt.{u16,s16}.{u8,s8} %r, %a;"},
    {I, "%q", "cvt.{u64,s64}.{u8,s8,u16,s16} %q, %wa;"},
    {I, "%r", "cvt{,.sat}.{u8,s8}.{u16,s16} %r, %ha;"},
    {I, "%r", "cvt.{u32,s32}.{u16,s16} %r, %ha;"},
    {I, "%r", "cvt.sat.{u8.s8,s8.u8,u32.s8,u32.s32,s32.u32} %r, %a;"},
    {I, "%r", "cvt.sat.{u16,s16}.{u64,s64} %r, %wa;"},
    {I, "%r", "cvt.pack.sat.{u16,s16}.s32 %r, %a, %b;"},
    {I, "%r", "cvt.pack.sat.{u8,s8,u4,s4}.s32.b32 %r, %a, %b, %c;"},
    {I, "%r", "shr.s32 %a, %a, {20,26}; cvt.pack.sat.{u16,s16}.s32 %r, %a, %b;"},
    {I, "%r", "shr.s32 %b, %b, {22,27}; cvt.pack.sat.{u8,s8,u4,s4}.s32.b32 %r, %a, %b, %c;"},
    {I, "%q", "cvt.sat.{u64.s64,s64.u64} %q, %wa;"},
    {F, "%r", "cvt.{rmi,rpi}{,.sat}.{u8,s8}.f32 %r, %a;"},
    {F, "%h", "cvt.{rni,rzi}.{ftz,sat}.{u16,s16}.f32 %h, %a;"},
    {D, "%r", "cvt.{rni,rzi}.sat.{u8,s8,u32,s32}.f64 %r, %wa;"},
    {D, "%q", "cvt.{rni,rzi}.sat.{u64,s64}.f64 %q, %wa;"},
    {H, "%r", "cvt.{rni,rzi}.{u8,s8}.f16 %r, %ha;"},
    {B, "%r", "cvt.{rni,rzi,rmi,rpi}.{u32,s32}.bf16 %r, %ha;"},
    {B, "%h", "cvt.{rni,rzi}.{u16,s16}.bf16 %h, %ha;"},
    {B, "%q", "cvt.{rni,rzi}.{u64,s64}.bf16 %q, %ha;"},
    {I, "%q", "cvt.{rn,rz,rm,rp}.f64.{u8,s8,u16,s16} %q, %wa;"},
    {I, "%h", "cvt.{rn,rz}.bf16.{u64,s64} %h, %wa;"},
    {I, "%h", "cvt.{rn,rz}.bf16.{u16,s16} %h, %ha;"},
    {I, "%h", "cvt.{rn,rz}.f16.{u8,s8} %h, %wa;"},
    {I, "%r", "cvt.rn.sat.f32.{u32,s32} %r, %a;"},
    {B, "%q", "cvt.f64.bf16 %q, %ha;"},
    {B, "%h", "cvt.{rn,rz}.f16.bf16 %h, %ha;"},
    {H, "%h", "cvt.{rn,rz}.bf16.f16 %h, %ha;"},
    {D, "%h", "cvt.{rn,rz,rm,rp}.bf16.f64 %h, %wa;"},
    {B, "%h", "cvt.{rni,rzi,rmi,rpi}.bf16.bf16 %h, %ha;"},
    {H, "%r", "cvt.sat.f32.f16 %r, %ha;"},
    {F, "%q", "cvt.sat.f64.f32 %q, %a;"},
    // Collectives of lanes. %a: the mask of the lane's group, %b: any value, %c: a small value,
    // %pa: a bit. All lanes execute them with the mask of their own group.
    {W, "%p", "vote.sync.{all,any,uni}.pred %p, %pa, %a;"},
    {W, "%r", "vote.sync.ballot.b32 %r, %pa, %a;"},
    {W, "%r", "and.b32 %c, %c, 3; match.any.sync.b32 %r, %c, %a;"},
    {W, "%r", "and.b32 %c, %c, 1; match.all.sync.b32 %r, %c, %a;"},
    {W, "%r", "and.b64 %wc, %wc, 0x100000001; match.any.sync.b64 %r, %wc, %a;"},
    {W, "%r", "redux.sync.{add,min,max}.{u32,s32} %r, %b, %a;"},
    {W, "%r", "redux.sync.{and,or,xor}.b32 %r, %b, %a;"},
    {W, "%p", "elect.sync %r|%p, %a;"},
    {W, "%r", "elect.sync %r|%p, %a;"},
    {W, "%r", "shfl.sync.{up,down,bfly,idx}.b32 %r|%p, %b, %c, {0x1f,0,0x181f,0x1c1f,0x1007,0x0f}, -1;"},
    {W, "%p", "shfl.sync.{up,down,bfly,idx}.b32 %r|%p, %b, %c, {0x1f,0,0x181f,0x1c1f,0x1007,0x0f}, -1;"},
    {W, "%r", "shfl.sync.{up,down,bfly,idx}.b32 %r, %b, %c, {0x1f,0,0x1807}, %a;"},
    {W, "%p", "shfl.sync.{up,down,bfly,idx}.b32 %r|%p, %b, %c, {0x1f,0,0x1807}, %a;"},
    // Only the lanes whose bit is set execute the collective; the mask names these lanes.
    {W, "%r", "@%pa bra $come; bra $end; $come: activemask.b32 %a; shfl.sync.{up,down,bfly,idx}.b32 %r, %b, %c, {0x1f,0,0x1807}, %a; $end:"},
    {W, "%r", "@!%pa exit; activemask.b32 %a; shfl.sync.{up,down,bfly,idx}.b32 %r, %b, %c, 0x1f, %a;"},
    {W, "%r", "@!%pa exit; shfl.sync.{down,idx}.b32 %r, %b, %c, 0x1f, -1;"},
    {W, "%r", "@%pa activemask.b32 %a; @%pa redux.sync.{add.u32,xor.b32} %r, %b, %a;"},
    {W, "%r", "@%pa bra $come; bra $end; $come: activemask.b32 %a; redux.sync.add.u32 %r, %b, %a; $end:"},
    {W, "%r", "@%pa bra $come; bra $end; $come: activemask.b32 %a; and.b32 %c, %c, 3; match.any.sync.b32 %r, %c, %a; $end:"},
    {W, "%r", "@%pa bra $come; bra $end; $come: setp.gt.s32 %p, %b, 0; activemask.b32 %a; vote.sync.ballot.b32 %r, %p, %a; $end:"},
    // Each side of a branch executes a collective of its own.
    {W, "%r", "vote.sync.ballot.b32 %a, %pa, -1; @%pa bra $yes; not.b32 %a, %a; shfl.sync.{down,bfly}.b32 %r, %b, %c, 0x1f, %a; bra $end; $yes: shfl.sync.up.b32 %r, %b, %c, 0, %a; $end:"},
};

struct MatrixRow {
  const char* result;  // the kind of its registers
  int d, a, b, c;      // how many registers
  const char* code;
};
// clang-format off
const MatrixRow kMatrixRows[] = {
    {"%d", 4, 2, 1, 4, "mma.sync.aligned.m16n8k8.row.col.f32.{f16.f16,bf16.bf16}.f32"},
    {"%d", 2, 2, 1, 2, "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"},
    {"%d", 4, 4, 2, 4, "mma.sync.aligned.m16n8k16.row.col.f32.{f16.f16,bf16.bf16}.f32"},
    {"%d", 2, 4, 2, 2, "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"},
    {"%d", 4, 2, 1, 4, "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"},
    {"%d", 4, 4, 2, 4, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"},
    {"%d", 4, 4, 2, 4, "mma.sync.aligned.m16n8k32.row.col.f32.{e4m3.e4m3,e4m3.e5m2,e5m2.e4m3,e5m2.e5m2}.f32"},
    {"%d", 8, 2, 2, 8, "mma.sync.aligned.m8n8k4.{row,col}.{row,col}.f32.f16.f16.f32"},
    {"%d", 2, 1, 1, 2, "mma.sync.aligned.m8n8k16.row.col{,.satfinite}.s32.{u8,s8}.{u8,s8}.s32"},
    {"%d", 4, 2, 1, 4, "mma.sync.aligned.m16n8k16.row.col{,.satfinite}.s32.{u8,s8}.{u8,s8}.s32"},
    {"%d", 4, 4, 2, 4, "mma.sync.aligned.m16n8k32.row.col{,.satfinite}.s32.{u8,s8}.{u8,s8}.s32"},
    {"%d", 2, 1, 1, 2, "mma.sync.aligned.m8n8k32.row.col{,.satfinite}.s32.{u4,s4}.{u4,s4}.s32"},
    {"%d", 4, 2, 1, 4, "mma.sync.aligned.m16n8k32.row.col.s32.{u4,s4}.{u4,s4}.s32"},
    {"%d", 4, 4, 2, 4, "mma.sync.aligned.m16n8k64.row.col.s32.{u4,s4}.{u4,s4}.s32"},
    {"%d", 2, 1, 1, 2, "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.{xor,and}.popc"},
    {"%d", 4, 2, 1, 4, "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.{xor,and}.popc"},
    {"%d", 4, 4, 2, 4, "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.{xor,and}.popc"},
    {"%e", 2, 1, 1, 2, "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"},
    {"%e", 4, 2, 1, 4, "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64"},
    {"%e", 4, 4, 2, 4, "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64"},
    {"%e", 4, 8, 4, 4, "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64"},
};
// clang-format on

std::string registers(const std::string& name, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + name + std::to_string(i);
  return text + "}";
}

}  // namespace

std::string Case::title() const { return code.substr(0, code.find(' ')); }

std::string Case::name() const {
  if (inputs == Inputs::kMatrix) {
    static constexpr const char* kSpreads[] = {"near ", "wide ", "special "};
    return kSpreads[static_cast<int>(spread)] + title();
  }
  if (tensor.rank > 0) {
    const std::string kind = !tensor.im2col ? "tiled:" : tensor.whole ? "im2col:whole:" : "im2col:";
    return kind + (tensor.swizzle > 0 ? "swizzled:" : "") + result + " " + code;
  }
  if (!image.shape.empty()) {
    return image.shape + ":" + image.format + (image.normalized ? ":normalized:" : ":") + result +
           " " + code;
  }
  return (cluster > 1 ? "cluster:" : threads > 32 ? "block:" : "") + result + " " + code;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> made = [] {
    std::vector<Case> all;
    add_rows(kRows, {}, &all);
    for (const MatrixRow& row : kMatrixRows) {
      const std::vector<std::string> codes = expanded(row.code);
      const std::string kind = row.result[1] == 'e' ? "%w" : "%";
      for (const std::string& code : codes) {
        const std::string full =
            code + " " + registers(row.result, row.d) + ", " + registers(kind + "A", row.a) + ", " +
            registers(kind + "B", row.b) + ", " + registers(kind + "C", row.c) + ";";
        all.push_back({Inputs::kMatrix, row.result, full, row.d});
        if (code.find(".s32") != std::string::npos) continue;
        all.push_back({Inputs::kMatrix, row.result, full, row.d, Case::Spread::kWide});
        all.push_back({Inputs::kMatrix, row.result, full, row.d, Case::Spread::kSpecial});
      }
    }
    add_approximate_cases(&all);
    add_memory_cases(&all);
    add_group_cases(&all);
    add_tile_cases(&all);
    add_tensor_cases(&all);
    add_image_cases(&all);
    return all;
  }();
  return made;
}

}  // namespace conformance
