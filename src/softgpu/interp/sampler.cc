// SPDX-License-Identifier: Apache-2.0
// Texture fetching. See sampler.h.
#include "softgpu/interp/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "softgpu/interp/block.h"

namespace openmps::softgpu {
namespace {

#include "softgpu/interp/lane_math.h"

// "9-bit fixed point format with 8 bits of fractional value" (CUDA C++ programming guide, texture
// fetching); how the rest is rounded is not documented.
constexpr float kWeightSteps = 256.0f;
float to_weight(float fraction) {
  return std::floor(fraction * kWeightSteps + 0.5f) / kWeightSteps;
}

// Coordinates beyond this are far outside of any image; it keeps the conversion defined.
constexpr float kFarAway = 1073741824.0f;
int64_t to_index(float x) {
  if (!(x == x)) return 0;
  return static_cast<int64_t>(std::clamp(x, -kFarAway, kFarAway));
}

float srgb_to_linear(float c) {
  return c <= 0.04045f ? c / 12.92f : std::pow((c + 0.055f) / 1.055f, 2.4f);
}

// a + (b - a) * weight, as the guide spells it.
float mix(float a, float b, float weight) { return (1.0f - weight) * a + weight * b; }

Texel mix(const Texel& a, const Texel& b, float weight) {
  Texel made;
  for (int c = 0; c < 4; ++c)
    made.word[c] = std::bit_cast<uint32_t>(
        mix(std::bit_cast<float>(a.word[c]), std::bit_cast<float>(b.word[c]), weight));
  return made;
}

}  // namespace

bool Sampler::returns_float(const TexelFormat& format) const {
  return format.kind == ChannelKind::kFloat ||
         (!texture_.read_as_integer && format.channel_bytes < 4);
}

// Wrapping and mirroring are for normalised coordinates only; others are clamped.
AddressMode Sampler::mode(uint32_t axis) const {
  const AddressMode wanted = texture_.address[axis];
  const bool periodic = wanted == AddressMode::kWrap || wanted == AddressMode::kMirror;
  return periodic && !texture_.normalized_coordinates ? AddressMode::kClamp : wanted;
}

int64_t Sampler::place(int64_t index, uint32_t axis, uint32_t size) const {
  const int64_t n = size;
  if (index >= 0 && index < n) return index;
  if (texture_.buffer || n == 0) return -1;
  switch (mode(axis)) {
    case AddressMode::kClamp: return index < 0 ? 0 : n - 1;
    case AddressMode::kWrap: return (index % n + n) % n;
    case AddressMode::kMirror: {
      const int64_t folded = (index % (2 * n) + 2 * n) % (2 * n);
      return folded < n ? folded : 2 * n - 1 - folded;
    }
    case AddressMode::kBorder: break;
  }
  return -1;
}

Texel Sampler::border(const TexelFormat& format) const {
  Texel made;
  if (texture_.buffer) return made;
  for (uint32_t c = 0; c < format.channels; ++c)
    made.word[c] = std::bit_cast<uint32_t>(texture_.border[c]);
  return made;
}

Texel Sampler::fetch(const Image& image, int64_t x, int64_t y, int64_t z, uint32_t layer) {
  const TexelFormat& format = image.format;
  if (x < 0 || y < 0 || z < 0) return border(format);
  const uint64_t plane = image.layers != 0 ? layer : static_cast<uint64_t>(z);
  const uint64_t address = image.address + plane * image.slice +
                           static_cast<uint64_t>(y) * image.pitch +
                           static_cast<uint64_t>(x) * format.texel_bytes();
  Texel texel;
  if (!find_range(warp_, address, address + format.texel_bytes(), false)) {
    failed_ = true;
    fault_address_ = address;
    return texel;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  const bool to_float = returns_float(format);
  const uint32_t bits = 8 * format.channel_bytes;
  for (uint32_t c = 0; c < format.channels; ++c) {
    uint32_t raw = 0;
    std::memcpy(&raw, bytes + c * format.channel_bytes, format.channel_bytes);
    float value = 0;
    switch (format.kind) {
      case ChannelKind::kFloat:
        texel.word[c] = bits == 16 ? bits_of(half_to_float(static_cast<u16>(raw))) : raw;
        continue;
      case ChannelKind::kUnsigned:
        value = static_cast<float>(raw) / static_cast<float>((uint64_t{1} << bits) - 1);
        if (texture_.srgb && bits == 8 && c < 3) value = srgb_to_linear(value);
        break;
      case ChannelKind::kSigned: {
        const int32_t number = static_cast<int32_t>(raw << (32 - bits)) >> (32 - bits);
        raw = static_cast<uint32_t>(number);
        value = std::max(
            static_cast<float>(number) / static_cast<float>((uint64_t{1} << (bits - 1)) - 1),
            -1.0f);
        break;
      }
    }
    texel.word[c] = to_float ? std::bit_cast<uint32_t>(value) : raw;
  }
  return texel;
}

float Sampler::coordinate(const TexturePoint& point, uint32_t axis, uint32_t size) const {
  float x = point.x[axis];
  if (!texture_.normalized_coordinates) return x;
  // The whole part of a wrapped coordinate says nothing, and would cost precision.
  if (mode(axis) == AddressMode::kWrap) x -= std::floor(x);
  return x * static_cast<float>(size);
}

Sampler::Axis Sampler::nearest(const TexturePoint& point, uint32_t axis, uint32_t size) const {
  const int64_t index =
      point.integer ? point.index[axis] : to_index(std::floor(coordinate(point, axis, size)));
  Axis made;
  made.index[0] = made.index[1] = place(index, axis, size);
  return made;
}

Sampler::Axis Sampler::between(const TexturePoint& point, uint32_t axis, uint32_t size) const {
  const float x = coordinate(point, axis, size) - 0.5f;
  const float whole = std::floor(x);
  const int64_t index = to_index(whole);
  Axis made;
  made.index[0] = place(index, axis, size);
  made.index[1] = place(index + 1, axis, size);
  made.weight = std::isfinite(x) ? to_weight(x - whole) : 0;
  return made;
}

Texel Sampler::sample_level(const Image& image, const TexturePoint& point) {
  const uint32_t sizes[3] = {image.width, std::max(image.height, 1u), std::max(image.depth, 1u)};
  const uint32_t layer = image.layers == 0 ? 0 : std::min(point.layer, image.layers - 1);
  const bool linear = texture_.linear_filter && !point.integer && returns_float(image.format);
  Axis axes[3];
  for (uint32_t axis = 0; axis < point.dimensions; ++axis)
    axes[axis] = linear ? between(point, axis, sizes[axis]) : nearest(point, axis, sizes[axis]);
  if (!linear) return fetch(image, axes[0].index[0], axes[1].index[0], axes[2].index[0], layer);
  Texel planes[2];
  for (int z = 0; z < (point.dimensions > 2 ? 2 : 1); ++z) {
    Texel rows[2];
    for (int y = 0; y < (point.dimensions > 1 ? 2 : 1); ++y) {
      const auto at = [&](int x) {
        return fetch(image, axes[0].index[x], axes[1].index[y], axes[2].index[z], layer);
      };
      rows[y] = mix(at(0), at(1), axes[0].weight);
    }
    planes[z] = point.dimensions > 1 ? mix(rows[0], rows[1], axes[1].weight) : rows[0];
  }
  return point.dimensions > 2 ? mix(planes[0], planes[1], axes[2].weight) : planes[0];
}

Texel Sampler::sample(const TexturePoint& point) {
  const auto last = static_cast<float>(texture_.levels.size() - 1);
  if (last == 0) return sample_level(texture_.levels[0], point);
  float level = point.level + texture_.level_bias;
  // What is no number loses every comparison: in this order it becomes the bound that is one.
  level = std::min(texture_.max_level, std::max(texture_.min_level, level));
  level = std::min(last, std::max(0.0f, level));
  if (!texture_.linear_levels)
    return sample_level(texture_.levels[static_cast<size_t>(std::lround(level))], point);
  const float whole = std::floor(level);
  const float weight = to_weight(level - whole);
  const auto first = static_cast<size_t>(whole);
  const Texel lower = sample_level(texture_.levels[first], point);
  if (weight == 0 || !returns_float(texture_.levels[first].format)) return lower;
  return mix(lower, sample_level(texture_.levels[first + 1], point), weight);
}

Texel Sampler::gather(const TexturePoint& point, uint32_t component) {
  const Image& image = texture_.levels[0];
  const Axis x = between(point, 0, image.width);
  const Axis y = between(point, 1, std::max(image.height, 1u));
  const uint32_t layer = image.layers == 0 ? 0 : std::min(point.layer, image.layers - 1);
  Texel made;
  constexpr int kCorners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  for (int i = 0; i < 4; ++i)
    made.word[i] =
        fetch(image, x.index[kCorners[i][0]], y.index[kCorners[i][1]], 0, layer).word[component];
  return made;
}

}  // namespace openmps::softgpu
