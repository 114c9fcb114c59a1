// SPDX-License-Identifier: Apache-2.0
// Texture fetching as the CUDA programming guide describes it: addressing modes, nearest point and
// linear filtering with weights of 8 fractional bits, and the formats of texels. Used by the
// handlers of texture.cc, on the interpreter's thread. Works on the lanes of a warp at once, in
// loops over all of them: nothing reads what a lane that is switched off gets.
#pragma once

#include <cstdint>

#include "softgpu/interp/warp.h"
#include "softgpu/texture.h"

namespace openmps::softgpu {

// The bits of up to four channels, as 32-bit registers show them.
struct Texels {
  alignas(64) uint32_t word[4][kWarpSize];
};

// to[i] = from[i] for `lanes`.
void select_lanes(uint32_t* to, const uint32_t* from, uint32_t lanes);

// Where the lanes fetch: rows of registers.
struct TexturePoints {
  uint32_t dimensions = 1;
  const float* x[3] = {};           // texels, or 0 to 1 for normalised coordinates
  const int32_t* index[3] = {};     // set: these count, not `x`
  const uint32_t* layer = nullptr;  // null: 0
  const float* level = nullptr;     // null: 0
  bool on_face = false;             // of a cube: its edges clamp, whatever the address mode
};

// Reads texels for lanes of one instruction. What it reads must be mapped: a sampler that met
// something that is not has failed, and knows where.
class Sampler {
 public:
  Sampler(Warp* warp, const Texture& texture) : warp_(warp), texture_(texture) {}

  // Of `lanes`, into theirs of `texels`; what the others get means nothing. Channels that the
  // format lacks are not written.
  void sample(const TexturePoints& points, uint32_t lanes, Texels* texels);
  // Channel `component` of the four texels that linear filtering would use, in the order of tld4:
  // counter-clockwise from the lower left (lower: larger y).
  void gather(const TexturePoints& points, uint32_t component, uint32_t lanes, Texels* texels);

  [[nodiscard]] uint32_t failed_lanes() const { return failed_; }
  [[nodiscard]] uint64_t fault_address() const { return fault_address_; }  // of the lowest one

 private:
  // Along one axis: the texels around the points, -1 for the border, and the weight of the second.
  struct Axis {
    alignas(64) int32_t index[2][kWarpSize];
    alignas(64) float weight[kWarpSize];
  };
  struct Corner {
    const int32_t* index[3] = {};
    const uint32_t* layer = nullptr;
  };
  void sample_level(const Image& image, const TexturePoints& points, uint32_t lanes,
                    Texels* texels);
  void filter(const Image& image, const TexturePoints& points, uint32_t lanes, Texels* texels);
  void sample_levels(const TexturePoints& points, uint32_t lanes, Texels* texels);
  void coordinates(const TexturePoints& points, uint32_t axis, uint32_t size, float* x) const;
  void nearest(const TexturePoints& points, uint32_t axis, uint32_t size, Axis* made) const;
  void between(const TexturePoints& points, uint32_t axis, uint32_t size, Axis* made) const;
  [[nodiscard]] AddressMode mode(uint32_t axis) const;
  void place(uint32_t axis, uint32_t size, int32_t* index) const;
  [[nodiscard]] bool returns_float(const TexelFormat& format) const;
  void fetch(const Image& image, const Corner& corner, uint32_t lanes, Texels* texels);
  uint32_t readable(const Image& image, const uint64_t* addresses, uint32_t lanes);
  [[nodiscard]] uint32_t convert(const TexelFormat& format, uint32_t channel, uint32_t raw) const;

  Warp* warp_;
  const Texture& texture_;
  bool on_face_ = false;
  bool by_index_ = false;  // whole coordinates: outside is nothing, whatever the address mode
  uint32_t failed_ = 0;
  uint64_t fault_address_ = 0;
};

}  // namespace openmps::softgpu
