// SPDX-License-Identifier: Apache-2.0
// Small numbers in Op::imm of video instructions, which lower_video.cc writes and interp/video.cc
// reads.
#pragma once

#include <cstdint>

namespace openmps::softgpu {

enum class VideoOp : uint8_t {
  kAdd,
  kSub,
  kAverage,
  kDifference,
  kMin,
  kMax,
  kSet,
  kShl,
  kShr,
  kMad
};
enum class VideoSecond : uint8_t { kNone, kAdd, kMin, kMax, kMerge };
enum class VideoCompare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };

struct VideoCode {
  VideoOp op = VideoOp::kAdd;
  VideoSecond second = VideoSecond::kNone;
  VideoCompare compare = VideoCompare::kEq;
  bool d_signed = false, a_signed = false, b_signed = false;
  bool saturate = false;
  bool wrap = false;      // shifts
  bool plus_one = false;  // vmad.po
  uint32_t scale = 0;     // vmad: 0, 7 or 15
  uint32_t parts = 1;     // 1, 2 or 4 elements
  // Scalar forms: the bits of a part and its number (32: all of it). With parts: four bits for each
  // element, its number among those of a and, behind them, b.
  uint32_t a_width = 32, a_part = 0, b_width = 32, b_part = 0, d_width = 32, d_part = 0;
  uint32_t a_select = 0x3210, b_select = 0x7654;
  uint32_t mask = 15;  // elements of the result that are written

  [[nodiscard]] uint64_t encode() const {
    const auto width = [](uint32_t bits) {
      return uint64_t{bits == 8 ? 0u : bits == 16 ? 1u : 2u};
    };
    const auto flag = [](bool on, int at) { return uint64_t{on} << at; };
    uint64_t code = static_cast<uint64_t>(op) | static_cast<uint64_t>(second) << 4 |
                    static_cast<uint64_t>(compare) << 7 | flag(d_signed, 10) | flag(a_signed, 11) |
                    flag(b_signed, 12) | flag(saturate, 13) | flag(wrap, 14) | flag(plus_one, 15) |
                    uint64_t{scale} << 18 | uint64_t{parts} << 22 | uint64_t{mask} << 25;
    if (parts == 1) {
      return code | width(a_width) << 29 | uint64_t{a_part} << 31 | width(b_width) << 33 |
             uint64_t{b_part} << 35 | width(d_width) << 37 | uint64_t{d_part} << 39;
    }
    return code | uint64_t{a_select} << 29 | uint64_t{b_select} << 45;
  }
  static VideoCode decode(uint64_t code) {
    const auto bits = [&](int at, int count) {
      return static_cast<uint32_t>(code >> at & ((uint64_t{1} << count) - 1));
    };
    VideoCode made;
    made.op = static_cast<VideoOp>(bits(0, 4));
    made.second = static_cast<VideoSecond>(bits(4, 3));
    made.compare = static_cast<VideoCompare>(bits(7, 3));
    made.d_signed = bits(10, 1), made.a_signed = bits(11, 1), made.b_signed = bits(12, 1);
    made.saturate = bits(13, 1), made.wrap = bits(14, 1), made.plus_one = bits(15, 1);
    made.scale = bits(18, 4), made.parts = bits(22, 3), made.mask = bits(25, 4);
    if (made.parts == 1) {
      made.a_width = 8u << bits(29, 2), made.a_part = bits(31, 2);
      made.b_width = 8u << bits(33, 2), made.b_part = bits(35, 2);
      made.d_width = 8u << bits(37, 2), made.d_part = bits(39, 2);
    } else {
      made.a_select = bits(29, 16), made.b_select = bits(45, 16);
    }
    return made;
  }
};

}  // namespace openmps::softgpu
