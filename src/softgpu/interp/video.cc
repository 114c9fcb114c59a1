// SPDX-License-Identifier: Apache-2.0
// Video instructions, by the pseudo-code of the PTX manual: operations on parts of 32-bit registers
// with saturation, a second operation or a merge. Run by the interpreter, on its thread.
#include "softgpu/ir/video_codes.h"

#include <algorithm>
#include <cstring>

#include "softgpu/interp/block.h"

namespace openmps::softgpu {
namespace {

int64_t extend(uint32_t word, uint32_t width, uint32_t part, bool is_signed) {
  if (width == 32) return is_signed ? int64_t{static_cast<int32_t>(word)} : int64_t{word};
  const uint32_t bits = word >> (part * width) & ((1u << width) - 1);
  const uint32_t shift = 32 - width;
  return is_signed ? static_cast<int32_t>(bits << shift) >> shift : int64_t{bits};
}

int64_t clamp(int64_t value, uint32_t width, bool is_signed) {
  // An H200 wraps what is too large for 32 bits without sign.
  if (width == 32 && !is_signed) return std::max<int64_t>(value, 0);
  const int64_t least = is_signed ? -(int64_t{1} << (width - 1)) : 0;
  const int64_t most = (int64_t{1} << (is_signed ? width - 1 : width)) - 1;
  return std::clamp(value, least, most);
}

bool holds(VideoCompare compare, int64_t a, int64_t b) {
  switch (compare) {
    case VideoCompare::kEq: return a == b;
    case VideoCompare::kNe: return a != b;
    case VideoCompare::kLt: return a < b;
    case VideoCompare::kLe: return a <= b;
    case VideoCompare::kGt: return a > b;
    default: return a >= b;
  }
}

int64_t combine(const VideoCode& code, int64_t a, int64_t b) {
  switch (code.op) {
    case VideoOp::kAdd: return a + b;
    case VideoOp::kSub: return a - b;
    case VideoOp::kAverage: return a + b >= 0 ? (a + b + 1) >> 1 : (a + b) >> 1;
    case VideoOp::kDifference: return a < b ? b - a : a - b;
    case VideoOp::kMin: return std::min(a, b);
    case VideoOp::kMax: return std::max(a, b);
    case VideoOp::kSet: return holds(code.compare, a, b);
    case VideoOp::kShl:
    case VideoOp::kShr: {
      const int64_t by = code.wrap ? b & 31 : std::min<int64_t>(b, 32);
      return code.op == VideoOp::kShl ? a << by : a >> by;
    }
    default: return 0;
  }
}

// The addend has a sign whatever the types say, and a negative sum without a sign is large once it
// has been shifted: as an H200 computes it.
uint32_t multiply_add(const VideoCode& code, int64_t a, int64_t b, uint32_t c) {
  const bool is_signed = code.a_signed || code.b_signed;
  int64_t sum = a * b + static_cast<int32_t>(c) + (code.plus_one ? 1 : 0);
  if (!is_signed && code.scale != 0) {
    sum = static_cast<int64_t>(static_cast<uint64_t>(sum) >> code.scale);
  } else {
    sum >>= code.scale;
  }
  if (code.saturate) {
    sum = is_signed ? std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX)
                    : std::clamp<int64_t>(sum, 0, UINT32_MAX);
  }
  return static_cast<uint32_t>(sum);
}

uint32_t one_part(const VideoCode& code, uint32_t a_word, uint32_t b_word, uint32_t c) {
  const int64_t a = extend(a_word, code.a_width, code.a_part, code.a_signed);
  const int64_t b = extend(b_word, code.b_width, code.b_part, code.b_signed);
  if (code.op == VideoOp::kMad) return multiply_add(code, a, b, c);
  int64_t value = combine(code, a, b);
  if (code.saturate) value = clamp(value, code.d_width, code.d_signed);
  const auto word = static_cast<uint32_t>(value);
  const auto least = [&](bool smaller) {
    const bool less =
        code.d_signed ? static_cast<int32_t>(word) < static_cast<int32_t>(c) : word < c;
    return less == smaller ? word : c;
  };
  switch (code.second) {
    case VideoSecond::kAdd: return word + c;
    case VideoSecond::kMin: return least(true);
    case VideoSecond::kMax: return least(false);
    case VideoSecond::kMerge: {
      const uint32_t shift = code.d_part * code.d_width;
      const uint32_t bits = ((uint32_t{1} << code.d_width) - 1) << shift;
      // The upper half comes from the upper half, as on an H200.
      return (c & ~bits) | ((code.d_width == 16 ? word : word << shift) & bits);
    }
    default: return word;
  }
}

uint32_t many_parts(const VideoCode& code, uint32_t a_word, uint32_t b_word, uint32_t c) {
  const uint32_t width = 32 / code.parts;
  const uint64_t both = a_word | uint64_t{b_word} << 32;
  const auto element = [&](uint32_t select, uint32_t i, bool is_signed) {
    const uint32_t number = select >> (4 * i) & 15;
    return extend(static_cast<uint32_t>(both >> (number * width)), width, 0, is_signed);
  };
  uint32_t sum = c, merged = 0;
  for (uint32_t i = 0; i < code.parts; ++i) {
    int64_t value = combine(code, element(code.a_select, i, code.a_signed),
                            element(code.b_select, i, code.b_signed));
    if (code.saturate) value = clamp(value, width, code.d_signed);
    const bool written = (code.mask >> i & 1) != 0;
    if (written) sum += static_cast<uint32_t>(value);
    const uint32_t bits = ~0u >> (32 - width) << (i * width);
    merged |= (written ? static_cast<uint32_t>(value) << (i * width) : c) & bits;
  }
  return code.second == VideoSecond::kAdd ? sum : merged;
}

// a, b, c: words; imm: VideoCode.
const Op* video(const Op* op, Warp* warp, std::byte* regs, uint32_t mask) {
  const VideoCode code = VideoCode::decode(op->imm);
  const auto* a = reinterpret_cast<const uint32_t*>(regs + op->a);
  const auto* b = reinterpret_cast<const uint32_t*>(regs + op->b);
  const auto* c = reinterpret_cast<const uint32_t*>(regs + op->c);
  auto* d = reinterpret_cast<uint32_t*>(regs + op->d);
  for (uint32_t left = mask; left; left &= left - 1) {
    const auto i = static_cast<uint32_t>(__builtin_ctz(left));
    d[i] = code.parts == 1 ? one_part(code, a[i], b[i], c[i]) : many_parts(code, a[i], b[i], c[i]);
  }
  SOFTGPU_NEXT(op + 1);
}

}  // namespace

void add_video_handlers(HandlerTable* table) {
  table->handlers[static_cast<size_t>(IrOp::k_video)] = video;
}

}  // namespace openmps::softgpu
