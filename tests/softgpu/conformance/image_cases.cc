// SPDX-License-Identifier: Apache-2.0
// The cases of textures and surfaces (see image.h), without filtering. See kernels.cc for the
// names, rows.h for the notation.
#include "rows.h"

namespace conformance {
namespace {

struct ImageRow {
  const char* shape;
  const char* formats;  // one case for each, {1} in its code
  bool normalized;
  const char* code;
};

// The coordinates at which a thread reads: as integers in %r4 to %r7, some of them out of bounds,
// and as f32 in %r0 to %r3; normalized ones are at the centres of texels.
#define PLACES                                                                               \
  "bfe.u32 %r4, %a, 0, 5; sub.u32 %r4, %r4, 4; bfe.u32 %r5, %b, 0, 4; sub.u32 %r5, %r5, 2; " \
  "bfe.u32 %r6, %c, 0, 2; mov.b32 %r7, 0; "                                                  \
  "cvt.rn.f32.s32 %r0, %r4; cvt.rn.f32.s32 %r1, %r5; cvt.rn.f32.s32 %r2, %r6; "              \
  "mov.b32 %r3, 0; "
#define MIDDLES(x, y, z)                                      \
  PLACES "fma.rn.f32 %r0, %r0, " x ", " x "; mul.f32 %r3, " x \
         ", 0f3F000000; sub.f32 %r0, %r0, %r3; "              \
         "fma.rn.f32 %r1, %r1, " y ", " y "; mul.f32 %r3, " y \
         ", 0f3F000000; sub.f32 %r1, %r1, %r3; "              \
         "fma.rn.f32 %r2, %r2, " z ", " z "; mul.f32 %r3, " z \
         ", 0f3F000000; sub.f32 %r2, %r2, %r3; mov.b32 %r3, 0; "
// Directions for cubes: no two coordinates are equally large, and none hits the edge of a texel.
#define DIRECTION                                                                                 \
  "bfe.u32 %r4, %a, 0, 4; cvt.rn.f32.u32 %r0, %r4; add.f32 %r0, %r0, 0fC0F00000; "                \
  "bfe.u32 %r4, %a, 4, 4; cvt.rn.f32.u32 %r1, %r4; add.f32 %r1, %r1, 0fC0F00000; "                \
  "mul.f32 %r1, %r1, 0f3F880000; bfe.u32 %r4, %a, 8, 4; cvt.rn.f32.u32 %r2, %r4; "                \
  "add.f32 %r2, %r2, 0fC0F00000; mul.f32 %r2, %r2, 0f3F900000; mov.b32 %r3, 0; and.b32 %r6, %b, " \
  "1; "
#define INTO " {%r0, %r1, %r2, %r3}, [%texture, "
// The coordinates of the thread's own texel in %r4 (bytes), %r5 and %r6, by the numbers of texels
// in a row and in a column.
#define OWN(row_mask, row, column_mask, column)                    \
  "and.b32 %r4, %thread, " row_mask "; div.u32 %r6, %thread, " row \
  "; and.b32 %r5, %r6, " column_mask "; div.u32 %r6, %r6, " column \
  "; mov.b32 %r7, 0; mul.lo.u32 %r4, %r4, 16; "
#define OWN_1D OWN("511", "512", "0", "1")
#define OWN_2D OWN("31", "32", "15", "16")
#define OWN_3D OWN("15", "16", "7", "8")
#define OWN_LAYER OWN("63", "64", "7", "8")
#define STORED "], {%a, %b, %c, %a}; "
#define LOADED " {%r0, %r1, %r2, %r3}, [%surface, "
#define MIDDLES_2D MIDDLES("0f3D000000", "0f3D800000", "0f3F800000")
#define MIDDLES_3D MIDDLES("0f3D800000", "0f3E000000", "0f3E800000")

// clang-format off
const ImageRow kRows[] = {
    {"1d", "{f32,u32,s32}", false, PLACES "tex{,.base}.1d.v4.{1}.s32" INTO "{%r4}];"},
    {"1d", "{f32,u32}", false, PLACES "tex.1d.v4.{1}.f32" INTO "{%r0}];"},
    {"2d", "{f32,u32,s32}", false, PLACES "tex{,.base}.2d.v4.{1}.s32" INTO "{%r4, %r5}];"},
    {"2d", "{f32,u32,s32}", false, PLACES "tex.2d.v4.{1}.f32" INTO "{%r0, %r1}];"},
    {"2d", "{f16}", false, PLACES "tex.2d.v4.{1}.f32 {%h0, %h1, %h2, %h3}, [%texture, {%r0, %r1}]; mov.b32 %r0, {%h0, %h1}; mov.b32 %r1, {%h2, %h3};"},
    {"2d", "{f32,s32}", true, MIDDLES_2D "tex.2d.v4.{1}.f32" INTO "{%r0, %r1}];"},
    {"2d", "{f32,u32}", true, MIDDLES_2D "tex.level.2d.v4.{1}.f32" INTO "{%r0, %r1}], %r3;"},
    {"2d", "{f32,u32}", true, MIDDLES_2D "tex.grad.2d.v4.{1}.f32" INTO "{%r0, %r1}], {%r3, %r3}, {%r3, %r3};"},
    {"3d", "{f32,u32,s32}", false, PLACES "tex.3d.v4.{1}.s32" INTO "{%r4, %r5, %r6, %r7}];"},
    {"3d", "{f32,u32}", true, MIDDLES_3D "tex.3d.v4.{1}.f32" INTO "{%r0, %r1, %r2, %r3}];"},
    {"3d", "{f32}", true, MIDDLES_3D "tex.grad.3d.v4.{1}.f32" INTO "{%r0, %r1, %r2, %r3}], {%r3, %r3, %r3, %r3}, {%r3, %r3, %r3, %r3};"},
    {"a1d", "{f32,u32}", false, PLACES "tex.a1d.v4.{1}.s32" INTO "{%r6, %r4}];"},
    {"a1d", "{f32}", false, PLACES "tex.a1d.v4.{1}.f32" INTO "{%r6, %r0}];"},
    {"a2d", "{f32,s32}", false, PLACES "tex.a2d.v4.{1}.s32" INTO "{%r6, %r4, %r5, %r7}];"},
    {"a2d", "{f32}", false, PLACES "tex.a2d.v4.{1}.f32" INTO "{%r6, %r0, %r1, %r3}];"},
    {"cube", "{f32,u32}", true, DIRECTION "tex{,.base}.cube.v4.{1}.f32" INTO "{%r0, %r1, %r2, %r3}];"},
    {"cube", "{f32}", true, DIRECTION "tex.level.cube.v4.{1}.f32" INTO "{%r0, %r1, %r2, %r3}], %r3;"},
    {"acube", "{f32,s32}", true, DIRECTION "tex.acube.v4.{1}.f32" INTO "{%r6, %r0, %r1, %r2}];"},
    {"2d", "{f32,u32,s32}", false, PLACES "tld4.{r,g,b,a}.2d.v4.{1}.f32" INTO "{%r0, %r1}];"},
    {"a2d", "{f32}", false, PLACES "tld4.{r,a}.a2d.v4.{1}.f32" INTO "{%r6, %r0, %r1, %r3}];"},
    // A thread's own texel, then one that may be out of bounds.
    {"1d", "{u32}", false, OWN_1D "suld.b.1d.v4.b32.{trap,clamp,zero}" LOADED "{%r4}];"},
    {"2d", "{u32,f32}", false, OWN_2D "suld.b.2d{,.ca,.cg,.cs,.cv}.v4.b32.{trap,clamp,zero}" LOADED "{%r4, %r5}];"},
    {"3d", "{u32}", false, OWN_3D "suld.b.3d.v4.b32.trap" LOADED "{%r4, %r5, %r6, %r7}];"},
    {"a1d", "{u32}", false, OWN_LAYER "suld.b.a1d.v4.b32.trap" LOADED "{%r5, %r4}];"},
    {"a2d", "{u32}", false, OWN_3D "suld.b.a2d.v4.b32.trap" LOADED "{%r6, %r4, %r5, %r7}];"},
    {"2d", "{u32}", false, OWN_2D "suld.b.2d.{b8,b16,b32}.trap %r0, [%surface, {%r4, %r5}];"},
    {"2d", "{u32}", false, OWN_2D "suld.b.2d.v2.b64.trap {%q0, %q1}, [%surface, {%r4, %r5}]; mov.b64 {%r0, %r1}, %q0; mov.b64 {%r2, %r3}, %q1;"},
    {"2d", "{u32}", false, OWN_2D "suld.b.2d.b64.trap %q0, [%surface, {%r4, %r5}]; mov.b64 {%r0, %r1}, %q0;"},
    {"2d", "{u32}", false, OWN_2D "suld.b.2d.v2.b32.trap {%r0, %r1}, [%surface, {%r4, %r5}];"},
    {"2d", "{u32}", false, PLACES "mul.lo.s32 %r4, %r4, 16; suld.b.2d.v4.b32.{clamp,zero}" LOADED "{%r4, %r5}];"},
    {"1d", "{u32}", false, OWN_1D "sust.b.1d.v4.b32.{trap,clamp,zero} [%surface, {%r4}" STORED "suld.b.1d.v4.b32.trap" LOADED "{%r4}];"},
    {"2d", "{u32}", false, OWN_2D "sust.b.2d{,.wb,.cg,.cs,.wt}.v4.b32.{trap,clamp,zero} [%surface, {%r4, %r5}" STORED "suld.b.2d.v4.b32.trap" LOADED "{%r4, %r5}];"},
    {"3d", "{u32}", false, OWN_3D "sust.b.3d.v4.b32.trap [%surface, {%r4, %r5, %r6, %r7}" STORED "suld.b.3d.v4.b32.trap" LOADED "{%r4, %r5, %r6, %r7}];"},
    {"a1d", "{u32}", false, OWN_LAYER "sust.b.a1d.v4.b32.trap [%surface, {%r5, %r4}" STORED "suld.b.a1d.v4.b32.trap" LOADED "{%r5, %r4}];"},
    {"a2d", "{u32}", false, OWN_3D "sust.b.a2d.v4.b32.trap [%surface, {%r6, %r4, %r5, %r7}" STORED "suld.b.a2d.v4.b32.trap" LOADED "{%r6, %r4, %r5, %r7}];"},
    {"2d", "{u32}", false, OWN_2D "sust.b.2d.{b8,b16,b32}.trap [%surface, {%r4, %r5}], %a; suld.b.2d.v4.b32.trap" LOADED "{%r4, %r5}];"},
    {"2d", "{u32}", false, OWN_2D "sust.b.2d.b64.trap [%surface, {%r4, %r5}], %wa; suld.b.2d.v4.b32.trap" LOADED "{%r4, %r5}];"},
    {"2d", "{u32,s32,f32}", false, OWN_2D "shr.u32 %r0, %r4, 4; sust.p.2d.v4.b32.{trap,clamp,zero} [%surface, {%r0, %r5}" STORED "suld.b.2d.v4.b32.trap" LOADED "{%r4, %r5}];"},
    {"1d", "{u32}", false, OWN_1D "shr.u32 %r0, %r4, 4; sust.p.1d.v4.b32.trap [%surface, {%r0}" STORED "suld.b.1d.v4.b32.trap" LOADED "{%r4}];"},
    // Queries of textures and surfaces. NVIDIA's driver does not load code that queries the number
    // of layers or levels (CUDA_ERROR_NOT_SUPPORTED).
    {"3d", "{f32,u32}", false, "txq.{width,height,depth}.b32 %r0, [%texture];"},
    {"a2d", "{f32}", false, "txq.{width,height}.b32 %r0, [%texture];"},
    {"3d", "{u32}", false, "suq.{width,height,depth}.b32 %r0, [%surface];"},
    {"a2d", "{f32}", false, "suq.{width,height}.b32 %r0, [%surface];"},
};
// clang-format on

}  // namespace

void add_image_cases(std::vector<Case>* all) {
  Case like;
  like.memory = true;
  for (const ImageRow& row : kRows) {
    for (const std::string& format : expanded(row.formats)) {
      like.image = {row.shape, format, row.normalized};
      // {1} is the format.
      std::string code = row.code;
      for (size_t at = 0; (at = code.find("{1}", at)) != std::string::npos;) {
        code.replace(at, 3, format);
      }
      const Row one[] = {{Inputs::kInteger, "%rs", code.c_str()}};
      add_rows(one, like, all);
    }
  }
}

}  // namespace conformance
