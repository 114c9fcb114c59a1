// SPDX-License-Identifier: Apache-2.0
// Lowering of video instructions: scalar ones (vadd, vset, vmad, ...) and those of two or four
// elements (vadd2, vavrg4, ...). Part of Builder.
#include "softgpu/ir/builder.h"
#include "softgpu/ir/video_codes.h"

namespace openmps::softgpu::ir {
namespace {

VideoOp op_of(std::string_view name) {
  constexpr std::pair<std::string_view, VideoOp> kOps[] = {
      {"vadd", VideoOp::kAdd},      {"vsub", VideoOp::kSub},
      {"vavrg", VideoOp::kAverage}, {"vabsdiff", VideoOp::kDifference},
      {"vmin", VideoOp::kMin},      {"vmax", VideoOp::kMax},
      {"vset", VideoOp::kSet},      {"vshl", VideoOp::kShl},
      {"vshr", VideoOp::kShr}};
  for (const auto& [known, op] : kOps) {
    if (name == known) return op;
  }
  return VideoOp::kMad;
}

VideoCompare compare_of(const ptx::Instruction& in) {
  constexpr std::pair<std::string_view, VideoCompare> kCompares[] = {
      {"eq", VideoCompare::kEq}, {"ne", VideoCompare::kNe}, {"lt", VideoCompare::kLt},
      {"le", VideoCompare::kLe}, {"gt", VideoCompare::kGt}, {"ge", VideoCompare::kGe}};
  for (const auto& [name, compare] : kCompares) {
    if (in.has(name)) return compare;
  }
  return VideoCompare::kEq;
}

// ".b2", ".h1"
bool part_of(std::string_view selector, uint32_t* width, uint32_t* part) {
  if (selector.empty()) return true;
  if (selector.size() != 2 || selector[1] < '0' || selector[1] > '3') return false;
  *width = selector[0] == 'b' ? 8 : 16;
  *part = static_cast<uint32_t>(selector[1] - '0');
  return selector[0] == 'b' || (selector[0] == 'h' && *part < 2);
}

// ".h32", ".b7531": the highest element first.
bool elements_of(std::string_view selector, uint32_t parts, uint32_t* select) {
  if (selector.empty()) return true;
  if (selector.size() != parts + 1 || selector[0] != (parts == 2 ? 'h' : 'b')) return false;
  *select = 0;
  for (const char digit : selector.substr(1)) {
    if (digit < '0' || digit >= static_cast<char>('0' + 2 * parts)) return false;
    *select = *select << 4 | static_cast<uint32_t>(digit - '0');
  }
  return true;
}

// ".h1", ".b320": the elements that are written.
bool mask_of(std::string_view selector, uint32_t parts, uint32_t* mask) {
  if (selector.empty()) return true;
  *mask = 0;
  for (const char digit : selector.substr(1)) {
    if (digit < '0' || digit >= static_cast<char>('0' + parts)) return false;
    *mask |= 1u << (digit - '0');
  }
  return true;
}

}  // namespace

bool Builder::lower_video(const Instruction& in) {
  std::string_view name = in.rule->mnemonic;
  VideoCode code;
  if (name.back() == '2' || name.back() == '4') {
    code.parts = static_cast<uint32_t>(name.back() - '0');
    name.remove_suffix(1);
    if (code.parts == 2) code.a_select = 0x10, code.b_select = 0x32;
  }
  code.op = op_of(name);
  code.compare = compare_of(in);
  // vset has no type of its result.
  const size_t first = code.op == VideoOp::kSet ? 0 : 1;
  code.d_signed = first == 1 && ptx::is_signed(in.type(0));
  code.a_signed = ptx::is_signed(in.type(first));
  code.b_signed = ptx::is_signed(in.type(first + 1));
  code.saturate = in.has("sat");
  code.wrap = in.has("wrap");
  code.plus_one = in.has("po");
  code.scale = in.has("shr7") ? 7 : in.has("shr15") ? 15 : 0;
  code.second = in.has("add")   ? VideoSecond::kAdd
                : in.has("min") ? VideoSecond::kMin
                : in.has("max") ? VideoSecond::kMax
                                : VideoSecond::kNone;
  const Operand& d = in.operands[0];
  const Operand& a = in.operands[1];
  const Operand& b = in.operands[2];
  const bool good = code.parts == 1 ? part_of(d.selector, &code.d_width, &code.d_part) &&
                                          part_of(a.selector, &code.a_width, &code.a_part) &&
                                          part_of(b.selector, &code.b_width, &code.b_part)
                                    : mask_of(d.selector, code.parts, &code.mask) &&
                                          elements_of(a.selector, code.parts, &code.a_select) &&
                                          elements_of(b.selector, code.parts, &code.b_select);
  if (!good) return unsupported("selector of a video instruction");
  if (code.parts == 1 && code.d_width != 32) code.second = VideoSecond::kMerge;
  const int32_t c = in.operands.size() > 3 ? read(in.operands[3], Lane::u32) : constant(0, 4);
  const int32_t to = result(d, 4);
  emit(IrOp::k_video, to, read(a, Lane::u32), read(b, Lane::u32), c).imm = code.encode();
  store_result(d, to);
  return true;
}

}  // namespace openmps::softgpu::ir
