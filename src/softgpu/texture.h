// SPDX-License-Identifier: Apache-2.0
// The object behind a kernel's texture or surface handle: the second part of the contract between
// engine and device model (engine.h). Made by the device model, immutable, read by the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/arrays.h"

namespace openmps::softgpu {

using cuda::ChannelKind;

struct TexelFormat {
  ChannelKind kind = ChannelKind::kUnsigned;
  uint32_t channel_bytes = 1;  // 1, 2, 4; of floating point 2, 4
  uint32_t channels = 1;       // 1, 2, 4
  [[nodiscard]] uint32_t texel_bytes() const { return channel_bytes * channels; }
};

// One level of an array, or linear memory: texels in rows, rows in planes.
struct Image {
  uint64_t address = 0;
  uint32_t width = 0;   // texels
  uint32_t height = 0;  // 0: one dimension
  uint32_t depth = 0;   // 0: less than three dimensions
  uint32_t layers = 0;  // 0: not layered
  uint64_t pitch = 0;   // bytes from row to row
  uint64_t slice = 0;   // bytes from plane to plane: slices of depth, or layers
  TexelFormat format;
};

enum class AddressMode : uint8_t { kWrap, kClamp, kMirror, kBorder };

struct Texture {
  std::vector<Image> levels;  // at least one
  AddressMode address[3] = {AddressMode::kClamp, AddressMode::kClamp, AddressMode::kClamp};
  bool linear_filter = false;           // between texels
  bool linear_levels = false;           // between levels
  bool normalized_coordinates = false;  // 0 to 1 instead of 0 to width
  bool read_as_integer = false;         // else integers of 8 and 16 bits become 0 to 1, -1 to 1
  bool srgb = false;
  bool buffer = false;  // linear memory: read by index, zero beyond its end
  float level_bias = 0;
  float min_level = 0;
  float max_level = 0;
  float border[4] = {0, 0, 0, 0};
};

}  // namespace openmps::softgpu
