// SPDX-License-Identifier: Apache-2.0
// See kernels.h.
#include "kernels.h"

#include "inputs.h"

namespace conformance {
namespace {

std::string number(size_t value) { return std::to_string(value); }

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

std::string store_results(const Case& one) {
  if (one.result == "%r") return "  cvt.u64.u32 %q, %r;\n  st.global.b64 [%out], %q;\n";
  if (one.result == "%q") return "  st.global.b64 [%out], %q;\n";
  if (one.result == "%h") return "  cvt.u64.u16 %q, %h;\n  st.global.b64 [%out], %q;\n";
  if (one.result == "%p") return "  selp.b64 %q, 1, 0, %p;\n  st.global.b64 [%out], %q;\n";
  std::string text;
  const bool wide = one.result == "%e";
  for (int i = 0; i < one.matrix_registers; ++i) {
    text += std::string(wide ? "  st.global.b64" : "  st.global.b32") + " [%out+" +
            std::to_string(i * (wide ? 8 : 4)) + "], " + one.result + std::to_string(i) + ";\n";
  }
  return text;
}

std::string kernel_text(size_t index) {
  const Case& one = cases()[index];
  std::string text = "// " + one.name() + "\n.visible .entry c" + number(index) +
                     "(.param .u64 inputs, .param .u64 outputs)\n.maxntid 32\n{\n"
                     "  .reg .b64 %in, %out, %wa, %wb, %wc, %q, %bit, %at;\n"
                     "  .reg .b32 %a, %b, %c, %r, %thread, %warp;\n"
                     "  .reg .b16 %ha, %hb, %hc, %h;\n"
                     "  .reg .pred %p, %pa;\n";
  if (one.inputs == Inputs::kMatrix) {
    const char* sums = one.code.find(".f32.") != std::string::npos ? "f32" : "b32";
    text += std::string("  .reg .") + sums +
            " %d<8>, %C<8>;\n  .reg .b32 %A<8>, %B<8>;\n"
            "  .reg .f64 %e<8>, %wA<8>, %wB<4>, %wC<4>;\n";
  }
  text +=
      "  ld.param.u64 %in, [inputs];\n  ld.param.u64 %out, [outputs];\n"
      "  mov.u32 %thread, %tid.x;\n  mov.u32 %warp, %ctaid.x;\n"
      "  mad.lo.s32 %thread, %warp, 32, %thread;\n"
      "  mul.wide.u32 %at, %thread, " +
      number(8 * kInputWords) +
      ";\n"
      "  add.s64 %in, %in, %at;\n"
      "  mul.wide.u32 %at, %thread, " +
      number(8 * kOutputWords) +
      ";\n"
      "  add.s64 %out, %out, %at;\n";
  return text + load_inputs(one) + "  " + one.code + "\n" + store_results(one) + "  ret;\n}\n";
}

}  // namespace

std::string module_text(const std::vector<size_t>& chosen) {
  std::string text = ".version 8.4\n.target sm_90\n.address_size 64\n";
  for (const size_t index : chosen) text += kernel_text(index);
  return text;
}

}  // namespace conformance
