// SPDX-License-Identifier: Apache-2.0
// See kernels.h. What a kernel with memory can name, beside the registers of cases.h:
//   %global %shared %local %const   addresses of the thread's 128 bytes in each space; those in
//                                   constant memory are the same in every kernel
//   %gshared %glocal %gconst        these addresses as generic ones
//   %gnext %snext                   addresses of the next thread of the block, in global and shared
//                                   memory
//   %gwarp, tile                    address of the warp's first thread (global), and of the block's
//                                   (shared)
//   %lane                           the thread's number in the warp
//   %r0 to %r7, %q0 to %q3, %h0 to %h3, %p0 to %p3, %o0 and %o1 (128 bits)   registers to work with
//   barrier                         two mbarriers
//   map, %texture, %surface         the tensor or the image that the case has
#include "kernels.h"

#include "inputs.h"

namespace conformance {
namespace {

std::string number(size_t value) { return std::to_string(value); }

bool names(const Case& one, const char* what) { return one.code.find(what) != std::string::npos; }

// %in points to the thread's inputs.
std::string load_inputs(const Case& one) {
  if (one.inputs != Inputs::kMatrix) {
    return "  ld.global.b64 %wa, [%in];\n"
           "  ld.global.b64 %wb, [%in+8];\n"
           "  ld.global.b64 %wc, [%in+16];\n"
           "  ld.global.b64 %bit, [%in+24];\n"
           "  setp.ne.b64 %pa, %bit, 0;\n"
           "  cvt.u32.u64 %a, %wa; cvt.u32.u64 %b, %wb; cvt.u32.u64 %c, %wc;\n"
           "  cvt.u16.u64 %ha, %wa; cvt.u16.u64 %hb, %wb; cvt.u16.u64 %hc, %wc;\n"
           "  mov.b32 %r, 0; mov.b64 %q, 0; mov.b16 %h, 0; setp.ne.b32 %p, %r, 0;\n";
  }
  std::string text;
  const bool wide = one.result == "%e";
  const struct {
    const char* name;
    size_t word, count;
  } fragments[] = {{"A", 0, 8}, {"B", 8, 4}, {"C", 12, wide ? 4u : 8u}};
  for (const auto& fragment : fragments) {
    for (size_t i = 0; i < fragment.count; ++i) {
      text += wide ? "  ld.global.b64 %w" : "  ld.global.b32 %";
      text += fragment.name + number(i) + ", [%in+" +
              number(fragment.word * 8 + i * (wide ? 8 : 4)) + "];\n";
    }
  }
  return text;
}

// Copies the thread's words to where `address` points.
std::string copy_inputs(const std::string& space, const std::string& address) {
  std::string text;
  for (size_t at = 0; at < 8 * kInputWords; at += 16) {
    text += "  ld.global.v2.b64 {%q0, %q1}, [%in+" + number(at) + "];\n  st." + space +
            ".v2.b64 [" + address + "+" + number(at) + "], {%q0, %q1};\n";
  }
  return text;
}

std::string memory_declarations(const Case& one) {
  const std::string type = one.factor == "f64" ? "b64" : "b32";
  std::string text =
      "  .reg .b64 %global, %gshared, %local, %glocal, %const, %gconst, %gnext, %gwarp;\n"
      "  .reg .b64 %texture, %surface;\n"
      "  .reg .b32 %shared, %snext, %lane, %turn;\n"
      "  .reg .b64 %q<4>;\n  .reg .b32 %r<8>;\n  .reg .b16 %h<4>;\n  .reg .pred %p<4>;\n"
      "  .reg .b128 %o<2>;\n";
  if (!one.factor.empty()) {
    text += "  .reg ." + type + " %A<8>, %B<8>, %C<8>, %d<8>;\n";
  }
  if (names(one, "shared") || names(one, "tile")) {
    text += "  .shared .align 1024 .b8 tile[" + number(one.threads * 8 * kInputWords) + "];\n";
  }
  if (names(one, "local")) text += "  .local .align 16 .b8 own[" + number(8 * kInputWords) + "];\n";
  if (names(one, "barrier")) text += "  .shared .align 16 .b64 barrier[2];\n";
  return text;
}

std::string prepare_memory(const Case& one) {
  const std::string bytes = number(8 * kInputWords);
  std::string text =
      "  mov.b64 %global, %in;\n  mov.u32 %lane, %laneid;\n  mov.b32 %turn, 0;\n"
      "  mul.wide.u32 %at, %lane, " +
      bytes +
      ";\n  sub.s64 %gwarp, %in, %at;\n"
      "  mov.u32 %r0, %tid.x;\n  add.u32 %r1, %r0, 1;\n  and.b32 %r1, %r1, " +
      number(one.threads - 1) + ";\n  sub.s32 %r2, %r1, %r0;\n  mul.wide.s32 %at, %r2, " + bytes +
      ";\n  add.s64 %gnext, %in, %at;\n"
      "  and.b32 %r2, %r0, 7;\n  mul.wide.u32 %at, %r2, 16;\n"
      "  mov.b64 %const, numbers;\n  add.s64 %const, %const, %at;\n"
      "  cvta.const.u64 %gconst, %const;\n";
  if (names(one, "shared") || names(one, "snext") || names(one, "tile")) {
    text += "  mov.b32 %shared, tile;\n  mad.lo.u32 %snext, %r1, " + bytes +
            ", %shared;\n  mad.lo.u32 %shared, %r0, " + bytes +
            ", %shared;\n  cvt.u64.u32 %at, %shared;\n  cvta.shared.u64 %gshared, %at;\n" +
            copy_inputs("shared", "%shared") + "  bar.sync 0;\n";
  }
  if (names(one, "local")) {
    text += "  mov.b64 %local, own;\n  cvta.local.u64 %glocal, %local;\n" +
            copy_inputs("local", "%local");
  }
  if (!one.image.shape.empty()) {
    text += "  ld.param.u64 %texture, [texels];\n  ld.param.u64 %surface, [places];\n";
  }
  for (int i = 0; i < 8; ++i) text += "  mov.b32 %r" + number(i) + ", 0;\n";
  for (int i = 0; i < 4; ++i) text += "  mov.b64 %q" + number(i) + ", 0;\n";
  return text;
}

std::string store_registers(const std::string& type, const std::string& name, size_t count,
                            size_t bytes) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text +=
        "  st.global." + type + " [%out+" + number(i * bytes) + "], " + name + number(i) + ";\n";
  }
  return text;
}

std::string store_results(const Case& one) {
  if (one.result == "%r") return "  cvt.u64.u32 %q, %r;\n  st.global.b64 [%out], %q;\n";
  if (one.result == "%q") return "  st.global.b64 [%out], %q;\n";
  if (one.result == "%h") return "  cvt.u64.u16 %q, %h;\n  st.global.b64 [%out], %q;\n";
  if (one.result == "%p") return "  selp.b64 %q, 1, 0, %p;\n  st.global.b64 [%out], %q;\n";
  if (one.result == "%rs") return store_registers("b32", "%r", 8, 4);
  if (one.result == "%qs") return store_registers("b64", "%q", 4, 8);
  const bool wide = one.result == "%e";
  return store_registers(wide ? "b64" : "b32", one.result,
                         static_cast<size_t>(one.matrix_registers), wide ? 8 : 4);
}

std::string kernel_text(size_t index) {
  const Case& one = cases()[index];
  std::string text = "// " + one.name() + "\n.visible .entry c" + number(index) +
                     "(.param .align 16 .u64 inputs, .param .u64 outputs" +
                     (one.tensor.rank > 0 ? ", .param .align 64 .b8 map[128]" : "") +
                     (one.image.shape.empty() ? "" : ", .param .u64 texels, .param .u64 places") +
                     ")\n.maxntid " + number(one.threads) + "\n";
  if (one.cluster > 1) {
    text += ".explicitcluster\n.reqnctapercluster " + number(one.cluster) + ", 1, 1\n";
  }
  if (names(one, "setmaxnreg")) text += ".maxnreg 64\n";
  text +=
      "{\n  .reg .b64 %in, %out, %wa, %wb, %wc, %q, %bit, %at;\n"
      "  .reg .b32 %a, %b, %c, %r, %thread, %warp;\n"
      "  .reg .b16 %ha, %hb, %hc, %h;\n"
      "  .reg .pred %p, %pa;\n";
  if (one.inputs == Inputs::kMatrix) {
    const char* sums = one.code.find(".f32.") != std::string::npos ? "f32" : "b32";
    text += std::string("  .reg .") + sums +
            " %d<8>, %C<8>;\n  .reg .b32 %A<8>, %B<8>;\n"
            "  .reg .f64 %e<8>, %wA<8>, %wB<4>, %wC<4>;\n";
  }
  if (one.memory) text += memory_declarations(one);
  text +=
      "  ld.param.u64 %in, [inputs];\n  ld.param.u64 %out, [outputs];\n"
      "  mov.u32 %thread, %tid.x;\n  mov.u32 %warp, %ctaid.x;\n"
      "  mad.lo.s32 %thread, %warp, " +
      number(one.threads) +
      ", %thread;\n"
      "  mul.wide.u32 %at, %thread, " +
      number(8 * kInputWords) +
      ";\n"
      "  add.s64 %in, %in, %at;\n"
      "  mul.wide.u32 %at, %thread, " +
      number(8 * kOutputWords) +
      ";\n"
      "  add.s64 %out, %out, %at;\n";
  text += load_inputs(one);
  if (one.memory) text += prepare_memory(one);
  return text + "  " + one.code + "\n" + store_results(one) + "  ret;\n}\n";
}

// The parts of the module that all kernels use: numbers in constant memory, and functions to call.
std::string module_head() {
  std::string text =
      ".version 8.6\n.target sm_90a\n.address_size 64\n"
      ".const .align 16 .b32 numbers[64] = {";
  for (uint32_t i = 0; i < 64; ++i) {
    text += (i ? ", " : "") + number((i + 1) * 0x9e3779b9u);  // any bits
  }
  return text +
         "};\n"
         ".func (.param .b32 made) triple(.param .b32 of) {\n"
         "  .reg .b32 %x;\n  ld.param.b32 %x, [of];\n  mul.lo.u32 %x, %x, 3;\n"
         "  st.param.b32 [made], %x;\n  ret;\n}\n"
         ".func (.param .b32 made) half_way(.param .b32 of) {\n"
         "  .reg .b32 %x;\n  .reg .pred %odd;\n  ld.param.b32 %x, [of];\n"
         "  and.b32 %x, %x, 1;\n  setp.eq.u32 %odd, %x, 1;\n  ld.param.b32 %x, [of];\n"
         "  st.param.b32 [made], %x;\n  @%odd ret;\n  not.b32 %x, %x;\n"
         "  st.param.b32 [made], %x;\n  ret;\n}\n"
         // The sum of 1 to its argument, by recursion. The argument is small, as the stack is.
         ".func (.param .b32 made) add_up(.param .b32 of) {\n"
         "  .reg .b32 %x, %y;\n  .reg .pred %done;\n  ld.param.b32 %x, [of];\n"
         "  setp.eq.u32 %done, %x, 0;\n  st.param.b32 [made], 0;\n  @%done ret;\n"
         "  sub.u32 %y, %x, 1;\n"
         "  { .param .b32 in; .param .b32 out; st.param.b32 [in], %y;\n"
         "    call (out), add_up, (in); ld.param.b32 %y, [out]; }\n"
         "  add.u32 %x, %x, %y;\n  st.param.b32 [made], %x;\n  ret;\n}\n"
         ".func (.param .align 16 .b8 made[16]) turned(.param .align 16 .b8 of[16]) {\n"
         "  .reg .b32 %x<4>;\n  ld.param.v4.b32 {%x0, %x1, %x2, %x3}, [of];\n"
         "  st.param.v4.b32 [made], {%x3, %x0, %x1, %x2};\n  ret;\n}\n";
}

}  // namespace

std::string module_text(const std::vector<size_t>& chosen) {
  std::string text = module_head();
  for (const size_t index : chosen) text += kernel_text(index);
  return text;
}

}  // namespace conformance
