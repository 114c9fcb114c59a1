// SPDX-License-Identifier: Apache-2.0
// Small numbers in Op::aux of texture and surface ops, which lower_texture.cc writes and
// interp/texture.cc reads.
#pragma once

#include <cstdint>

namespace openmps::softgpu {

enum class FetchKind : uint8_t { kBase, kLevel, kGather, kGradient };
enum class Boundary : uint8_t { kTrap, kClamp, kZero };
enum class ImageQuery : uint8_t { kWidth, kHeight, kDepth, kLayers, kLevels };

struct TextureCode {
  uint32_t dimensions = 1;
  bool layered = false;
  bool integer = false;  // coordinates
  bool half = false;     // results
  FetchKind kind = FetchKind::kBase;
  uint32_t component = 0;  // of a gather
  bool cube = false;       // three dimensions that name a direction

  [[nodiscard]] uint32_t encode() const {
    return dimensions | static_cast<uint32_t>(layered) << 2 | static_cast<uint32_t>(integer) << 3 |
           static_cast<uint32_t>(half) << 4 | static_cast<uint32_t>(kind) << 5 | component << 8 |
           static_cast<uint32_t>(cube) << 10;
  }
  static TextureCode decode(uint32_t aux) {
    return {aux & 3,
            (aux >> 2 & 1) != 0,
            (aux >> 3 & 1) != 0,
            (aux >> 4 & 1) != 0,
            static_cast<FetchKind>(aux >> 5 & 3),
            aux >> 8 & 3,
            (aux >> 10 & 1) != 0};
  }
};

struct SurfaceCode {
  uint32_t dimensions = 1;
  bool layered = false;
  Boundary boundary = Boundary::kTrap;
  bool formatted = false;  // sust.p: texels, converted; else bytes as they are
  uint32_t count = 1;      // registers
  uint32_t bytes = 4;      // of each

  [[nodiscard]] uint32_t encode() const {
    return dimensions | static_cast<uint32_t>(layered) << 2 | static_cast<uint32_t>(boundary) << 3 |
           static_cast<uint32_t>(formatted) << 5 | count << 8 | bytes << 12;
  }
  static SurfaceCode decode(uint32_t aux) {
    return {aux & 3,
            (aux >> 2 & 1) != 0,
            static_cast<Boundary>(aux >> 3 & 3),
            (aux >> 5 & 1) != 0,
            aux >> 8 & 15,
            aux >> 12 & 15};
  }
};

}  // namespace openmps::softgpu
