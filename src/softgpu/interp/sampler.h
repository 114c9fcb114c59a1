// SPDX-License-Identifier: Apache-2.0
// Texture fetching as the CUDA programming guide describes it: addressing modes, nearest point and
// linear filtering with weights of 8 fractional bits, and the formats of texels. Used by the
// handlers of texture.cc, on the interpreter's thread.
#pragma once

#include <cstdint>

#include "softgpu/texture.h"

namespace openmps::softgpu {

struct Warp;

// The bits of up to four channels, as 32-bit registers show them; what a format lacks is zero.
struct Texel {
  uint32_t word[4] = {0, 0, 0, 0};
};

struct TexturePoint {
  uint32_t dimensions = 1;
  bool integer = false;    // `index` counts, not `x`
  float x[3] = {0, 0, 0};  // texels, or 0 to 1 for normalised coordinates
  int32_t index[3] = {0, 0, 0};
  uint32_t layer = 0;
  float level = 0;
};

// Reads texels for the lanes of one instruction. What it reads must be mapped: a sampler that met
// something that is not has failed, and knows where.
class Sampler {
 public:
  Sampler(Warp* warp, const Texture& texture) : warp_(warp), texture_(texture) {}

  Texel sample(const TexturePoint& point);
  // Channel `component` of the four texels that linear filtering would use, in the order of tld4:
  // counter-clockwise from the lower left (lower: larger y).
  Texel gather(const TexturePoint& point, uint32_t component);

  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] uint64_t fault_address() const { return fault_address_; }

 private:
  // Along one axis: the texels around the point, and the weight of the second, 0 to 1.
  struct Axis {
    int64_t index[2] = {0, 0};
    float weight = 0;
  };
  Texel sample_level(const Image& image, const TexturePoint& point);
  [[nodiscard]] Axis nearest(const TexturePoint& point, uint32_t axis, uint32_t size) const;
  [[nodiscard]] Axis between(const TexturePoint& point, uint32_t axis, uint32_t size) const;
  [[nodiscard]] float coordinate(const TexturePoint& point, uint32_t axis, uint32_t size) const;
  [[nodiscard]] AddressMode mode(uint32_t axis) const;
  // -1: the border.
  [[nodiscard]] int64_t place(int64_t index, uint32_t axis, uint32_t size) const;
  [[nodiscard]] bool returns_float(const TexelFormat& format) const;
  Texel fetch(const Image& image, int64_t x, int64_t y, int64_t z, uint32_t layer);
  [[nodiscard]] Texel border(const TexelFormat& format) const;

  Warp* warp_;
  const Texture& texture_;
  bool failed_ = false;
  uint64_t fault_address_ = 0;
};

}  // namespace openmps::softgpu
