// SPDX-License-Identifier: Apache-2.0
// Texture fetching. See sampler.h.
#include "softgpu/interp/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace openmps::softgpu {
namespace {

#include "softgpu/interp/lane_math.h"

// Beyond this every float is a whole number.
constexpr f32 kWhole = 8388608.0f;

// "9-bit fixed point format with 8 bits of fractional value" (CUDA C++ programming guide, texture
// fetching); how the rest is rounded is not documented. `fraction` is not negative.
constexpr f32 kWeightSteps = 256.0f;
INLINE f32 to_weight(f32 fraction) {
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): that is how it is done.
  return static_cast<f32>(static_cast<s32>(fraction * kWeightSteps + 0.5f)) / kWeightSteps;
}

// floor(x). Coordinates beyond this are far outside of any image; it keeps the conversion defined.
constexpr f32 kFarAway = 1073741824.0f;
INLINE s32 floor_index(f32 x) {
  f32 near = x == x ? x : 0;
  near = near > kFarAway ? kFarAway : near;
  near = near < -kFarAway ? -kFarAway : near;
  const s32 truncated = static_cast<s32>(near);
  return truncated - (static_cast<f32>(truncated) > near ? 1 : 0);
}
// x - floor(x); no number for what is not finite.
INLINE f32 fraction_of(f32 x) {
  const f32 size = x < 0 ? -x : x;
  return size < kWhole ? x - static_cast<f32>(floor_index(x)) : x - x;
}

f32 srgb_to_linear(f32 c) {
  return c <= 0.04045f ? c / 12.92f : std::pow((c + 0.055f) / 1.055f, 2.4f);
}

// a + (b - a) * weight, as the guide spells it.
INLINE f32 mix(f32 a, f32 b, f32 weight) { return (1.0f - weight) * a + weight * b; }

void mix(Texels* a, const Texels& b, const f32* weight, u32 channels) {
  for (u32 c = 0; c < channels; ++c) {
    LANES a->word[c][i] = bits_of(mix(float_of(a->word[c][i]), float_of(b.word[c][i]), weight[i]));
  }
}

constexpr s32 kNoIndex[kWarpSize] = {};  // of an axis that an image does not have
constexpr u32 kNoLayer[kWarpSize] = {};

}  // namespace

void select_lanes(uint32_t* to, const uint32_t* from, uint32_t lanes) {
  LANES to[i] = lanes & (1u << i) ? from[i] : to[i];
}

bool Sampler::returns_float(const TexelFormat& format) const {
  return format.kind == ChannelKind::kFloat ||
         (!texture_.read_as_integer && format.channel_bytes < 4);
}

// Wrapping and mirroring are for normalised coordinates only; others are clamped. What lies outside
// of linear memory, or of anything by index, is zero.
AddressMode Sampler::mode(uint32_t axis) const {
  const AddressMode wanted = texture_.address[axis];
  const bool periodic = wanted == AddressMode::kWrap || wanted == AddressMode::kMirror;
  if (texture_.buffer || by_index_) return AddressMode::kBorder;
  if (on_face_) return AddressMode::kClamp;
  return periodic && !texture_.normalized_coordinates ? AddressMode::kClamp : wanted;
}

void Sampler::place(uint32_t axis, uint32_t size, int32_t* index) const {
  const s64 n = size;
  const s32 last = static_cast<s32>(std::min<s64>(n, INT32_MAX)) - 1;
  switch (n == 0 ? AddressMode::kBorder : mode(axis)) {
    case AddressMode::kClamp: LANES index[i] = min_of(max_of(index[i], 0), last); return;
    case AddressMode::kBorder: LANES index[i] = index[i] > last ? -1 : max_of(index[i], -1); return;
    case AddressMode::kWrap:
      LANES if (index[i] < 0 || index[i] > last) {
        index[i] = static_cast<s32>((index[i] % n + n) % n);
      }
      return;
    case AddressMode::kMirror:
      LANES if (index[i] < 0 || index[i] > last) {
        const s64 folded = (index[i] % (2 * n) + 2 * n) % (2 * n);
        index[i] = static_cast<s32>(folded < n ? folded : 2 * n - 1 - folded);
      }
      return;
  }
}

uint32_t Sampler::convert(const TexelFormat& format, uint32_t channel, uint32_t raw) const {
  const u32 bits = 8 * format.channel_bytes;
  const bool to_float = returns_float(format);
  if (format.kind == ChannelKind::kFloat) {
    return bits == 16 ? bits_of(half_to_float(static_cast<u16>(raw))) : raw;
  }
  if (format.kind == ChannelKind::kUnsigned) {
    if (!to_float) return raw;
    const f32 value = static_cast<f32>(raw) / static_cast<f32>((u64{1} << bits) - 1);
    return bits_of(texture_.srgb && bits == 8 && channel < 3 ? srgb_to_linear(value) : value);
  }
  const s32 number = static_cast<s32>(raw << (32 - bits)) >> (32 - bits);
  if (!to_float) return static_cast<u32>(number);
  return bits_of(
      std::max(static_cast<f32>(number) / static_cast<f32>((u64{1} << (bits - 1)) - 1), -1.0f));
}

// The lanes whose texels may be read. Mostly the whole image is mapped, which one look-up tells.
uint32_t Sampler::readable(const Image& image, const uint64_t* addresses, uint32_t lanes) {
  const u64 planes = image.layers != 0 ? image.layers : std::max(image.depth, 1u);
  const u64 texel = image.format.texel_bytes();
  const u64 end = image.address + (planes - 1) * image.slice +
                  (std::max(image.height, 1u) - 1) * image.pitch + image.width * texel;
  if (find_range(warp_, image.address, end, false)) return lanes;
  u32 good = 0;
  for (u32 left = lanes; left; left &= left - 1) {
    const auto lane = static_cast<u32>(__builtin_ctz(left));
    if (find_range(warp_, addresses[lane], addresses[lane] + texel, false)) {
      good |= 1u << lane;
    } else {
      if (failed_ == 0 || lane < static_cast<u32>(__builtin_ctz(failed_))) {
        fault_address_ = addresses[lane];
      }
      failed_ |= 1u << lane;
    }
  }
  return good;
}

void Sampler::fetch(const Image& image, const Corner& corner, uint32_t lanes, Texels* texels) {
  const TexelFormat& format = image.format;
  const s32 *x = corner.index[0], *y = corner.index[1], *z = corner.index[2];
  alignas(64) u64 addresses[kWarpSize];
  s32 signs = 0;
  LANES {
    const u64 plane = image.layers != 0 ? corner.layer[i] : static_cast<u32>(z[i]);
    addresses[i] = image.address + plane * image.slice + static_cast<u32>(y[i]) * image.pitch +
                   u64{static_cast<u32>(x[i])} * format.texel_bytes();
    signs |= x[i] | y[i] | z[i];
  }
  u32 outside = 0;
  if (signs < 0) {
    for (u32 i = 0; i < kWarpSize; ++i) outside |= ((x[i] | y[i] | z[i]) < 0 ? 1u : 0u) << i;
  }
  const u32 inside = readable(image, addresses, lanes & ~outside);
  for (u32 c = 0; c < format.channels; ++c) {
    const f32 border = texture_.buffer || by_index_ ? 0 : texture_.border[c];
    u32* words = texels->word[c];
    if (outside & lanes) LANES words[i] = bits_of(border);
    for (u32 left = inside; left; left &= left - 1) {
      const auto lane = static_cast<u32>(__builtin_ctz(left));
      const auto* at =
          reinterpret_cast<const std::byte*>(addresses[lane]) + c * format.channel_bytes;
      u32 raw = 0;
      switch (format.channel_bytes) {
        case 1: std::memcpy(&raw, at, 1); break;
        case 2: std::memcpy(&raw, at, 2); break;
        default: std::memcpy(&raw, at, 4); break;
      }
      words[lane] = raw;
    }
    if (format.channel_bytes == 4) continue;  // as they are, of every kind
    for (u32 left = inside; left; left &= left - 1) {
      const auto lane = static_cast<u32>(__builtin_ctz(left));
      words[lane] = convert(format, c, words[lane]);
    }
  }
}

// In texels.
void Sampler::coordinates(const TexturePoints& points, uint32_t axis, uint32_t size,
                          float* x) const {
  const f32* from = points.x[axis];
  const auto scale = static_cast<f32>(size);
  if (!texture_.normalized_coordinates) {
    std::memcpy(x, from, kWarpSize * sizeof(f32));
  } else if (mode(axis) == AddressMode::kWrap) {
    // The whole part of a wrapped coordinate says nothing, and would cost precision.
    LANES x[i] = fraction_of(from[i]) * scale;
  } else {
    LANES x[i] = from[i] * scale;
  }
}

void Sampler::nearest(const TexturePoints& points, uint32_t axis, uint32_t size, Axis* made) const {
  if (points.index[axis] != nullptr) {
    std::memcpy(made->index[0], points.index[axis], sizeof made->index[0]);
  } else {
    alignas(64) f32 x[kWarpSize];
    coordinates(points, axis, size, x);
    LANES made->index[0][i] = floor_index(x[i]);
  }
  place(axis, size, made->index[0]);
}

void Sampler::between(const TexturePoints& points, uint32_t axis, uint32_t size, Axis* made) const {
  alignas(64) f32 x[kWarpSize];
  coordinates(points, axis, size, x);
  LANES {
    const f32 centred = x[i] - 0.5f;
    const f32 fraction = fraction_of(centred);
    made->index[0][i] = floor_index(centred);
    made->index[1][i] = made->index[0][i] + 1;
    made->weight[i] = fraction == fraction ? to_weight(fraction) : 0;
  }
  place(axis, size, made->index[0]);
  place(axis, size, made->index[1]);
}

namespace {

// Layers beyond the last one are the last one.
const u32* layers_of(const Image& image, const TexturePoints& points, u32* clamped) {
  if (image.layers == 0 || points.layer == nullptr) return kNoLayer;
  LANES clamped[i] = min_of(points.layer[i], image.layers - 1);
  return clamped;
}

}  // namespace

void Sampler::filter(const Image& image, const TexturePoints& points, uint32_t lanes,
                     Texels* texels) {
  const u32 sizes[3] = {image.width, std::max(image.height, 1u), std::max(image.depth, 1u)};
  Axis axes[3];
  for (u32 axis = 0; axis < points.dimensions; ++axis) {
    between(points, axis, sizes[axis], &axes[axis]);
  }
  alignas(64) u32 clamped[kWarpSize];
  Corner corner{{kNoIndex, kNoIndex, kNoIndex}, nullptr};
  corner.layer = layers_of(image, points, clamped);
  const u32 channels = image.format.channels;
  const auto read_row = [&](int y, int z, Texels* row) {
    Texels right;
    for (u32 axis = 1; axis < points.dimensions; ++axis) {
      corner.index[axis] = axes[axis].index[axis == 1 ? y : z];
    }
    corner.index[0] = axes[0].index[0];
    fetch(image, corner, lanes, row);
    corner.index[0] = axes[0].index[1];
    fetch(image, corner, lanes, &right);
    mix(row, right, axes[0].weight, channels);
  };
  const auto read_plane = [&](int z, Texels* plane) {
    read_row(0, z, plane);
    if (points.dimensions == 1) return;
    Texels second;
    read_row(1, z, &second);
    mix(plane, second, axes[1].weight, channels);
  };
  read_plane(0, texels);
  if (points.dimensions < 3) return;
  Texels second;
  read_plane(1, &second);
  mix(texels, second, axes[2].weight, channels);
}

void Sampler::sample_level(const Image& image, const TexturePoints& points, uint32_t lanes,
                           Texels* texels) {
  if (texture_.linear_filter && points.index[0] == nullptr && returns_float(image.format)) {
    return filter(image, points, lanes, texels);
  }
  // By an index in one dimension an H200 reads linear memory only; of an array it finds nothing.
  if (by_index_ && points.dimensions == 1 && image.layers == 0 && !texture_.buffer) return;
  const u32 sizes[3] = {image.width, std::max(image.height, 1u), std::max(image.depth, 1u)};
  Axis axes[3];
  Corner corner{{kNoIndex, kNoIndex, kNoIndex}, nullptr};
  for (u32 axis = 0; axis < points.dimensions; ++axis) {
    nearest(points, axis, sizes[axis], &axes[axis]);
    corner.index[axis] = axes[axis].index[0];
  }
  alignas(64) u32 clamped[kWarpSize];
  corner.layer = layers_of(image, points, clamped);
  fetch(image, corner, lanes, texels);
}

// Lanes that read the same levels together.
void Sampler::sample_levels(const TexturePoints& points, uint32_t lanes, Texels* texels) {
  const auto last = static_cast<f32>(texture_.levels.size() - 1);
  u32 first[kWarpSize];
  f32 weight[kWarpSize];
  for (u32 i = 0; i < kWarpSize; ++i) {
    f32 level = (points.level != nullptr ? points.level[i] : 0) + texture_.level_bias;
    // What is no number loses every comparison: in this order it becomes the bound that is one.
    level = std::min(texture_.max_level, std::max(texture_.min_level, level));
    level = std::min(last, std::max(0.0f, level));
    first[i] =
        texture_.linear_levels ? static_cast<u32>(level) : static_cast<u32>(std::lround(level));
    weight[i] = texture_.linear_levels ? to_weight(level - static_cast<f32>(first[i])) : 0;
  }
  for (u32 left = lanes; left;) {
    const u32 level = first[__builtin_ctz(left)];
    u32 here = 0, mixed = 0;
    for (u32 i = 0; i < kWarpSize; ++i) {
      if (first[i] != level) continue;
      here |= 1u << i;
      if (weight[i] != 0) mixed |= 1u << i;
    }
    here &= left;
    mixed &= here;
    left &= ~here;
    Texels lower = {};
    sample_level(texture_.levels[level], points, here, &lower);
    if (mixed && returns_float(texture_.levels[level].format)) {
      Texels upper = lower;
      Texels both = lower;
      sample_level(texture_.levels[level + 1], points, mixed, &upper);
      mix(&both, upper, weight, texture_.levels[level].format.channels);
      for (u32 c = 0; c < 4; ++c) select_lanes(lower.word[c], both.word[c], mixed);
    }
    for (u32 c = 0; c < 4; ++c) select_lanes(texels->word[c], lower.word[c], here);
  }
}

void Sampler::sample(const TexturePoints& points, uint32_t lanes, Texels* texels) {
  on_face_ = points.on_face;
  by_index_ = points.index[0] != nullptr;
  if (texture_.levels.size() == 1) {
    sample_level(texture_.levels[0], points, lanes, texels);
  } else {
    sample_levels(points, lanes, texels);
  }
}

void Sampler::gather(const TexturePoints& points, uint32_t component, uint32_t lanes,
                     Texels* texels) {
  on_face_ = points.on_face;
  by_index_ = false;
  const Image& image = texture_.levels[0];
  Axis x, y;
  between(points, 0, image.width, &x);
  between(points, 1, std::max(image.height, 1u), &y);
  alignas(64) u32 clamped[kWarpSize];
  const u32* layer = layers_of(image, points, clamped);
  constexpr int kCorners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  for (int k = 0; k < 4; ++k) {
    Texels corner = {};
    fetch(image, {{x.index[kCorners[k][0]], y.index[kCorners[k][1]], kNoIndex}, layer}, lanes,
          &corner);
    std::memcpy(texels->word[k], corner.word[component], sizeof corner.word[component]);
    // As if they were to be filtered.
    if (returns_float(image.format)) {
      LANES texels->word[k][i] = bits_of(ftz(float_of(texels->word[k][i])));
    }
  }
}

}  // namespace openmps::softgpu
