// SPDX-License-Identifier: Apache-2.0
// Textures, surfaces and what can be asked about them. Textures are fetched for all lanes that name
// the same one at once, surfaces lane by lane. Run by the interpreter.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "softgpu/interp/block.h"
#include "softgpu/interp/cube_map.h"
#include "softgpu/interp/sampler.h"
#include "softgpu/ir/texture_codes.h"

namespace openmps::softgpu {
namespace {

#include "softgpu/interp/lane_math.h"

#define HANDLER(name) \
  const Op* h_##name(const Op* op, Warp* warp, std::byte* regs, [[maybe_unused]] uint32_t mask)

std::string hex(u64 value) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// The object behind each lane's handle, looked up only where it differs from the last one.
template <class T, std::shared_ptr<const T> (DeviceServices::*find)(u64)>
class Handles {
 public:
  Handles(Warp* warp, const Op* op, const std::byte* regs, NamedObject<T>* last)
      : warp_(warp), op_(op), values_(reinterpret_cast<const u64*>(regs + op->a)), last_(last) {}

  // Null: a fault has been raised.
  const T* of(u32 lane, const char* what) {
    const u64 value = values_[lane];
    if (last_->object && value == last_->handle) return last_->object.get();
    DeviceServices* services = warp_->block->services;
    last_->handle = value;
    last_->object = services ? (services->*find)(value) : nullptr;
    if (!last_->object) {
      warp_->block->raise(warp_, op_, CUDA_ERROR_ILLEGAL_ADDRESS, value,
                          hex(value) + " is no " + what, 1u << lane);
    }
    return last_->object.get();
  }
  // Those of `lanes` that name the same object as the first of them.
  [[nodiscard]] u32 like_first(u32 lanes) const {
    const u64 first = values_[__builtin_ctz(lanes)];
    u64 differences = 0;
    LANES differences |= values_[i] ^ first;
    if (differences == 0) return lanes;
    u32 same = 0;
    for (u32 i = 0; i < kWarpSize; ++i) same |= (values_[i] == first ? 1u : 0u) << i;
    return lanes & same;
  }

 private:
  Warp* warp_;
  const Op* op_;
  const u64* values_;
  NamedObject<T>* last_;
};
using Textures = Handles<Texture, &DeviceServices::texture>;
using Surfaces = Handles<Image, &DeviceServices::surface>;

template <class T>
T read_lane(const std::byte* regs, int32_t offset, u32 lane) {
  T value;
  std::memcpy(&value, regs + offset + lane * sizeof(T), sizeof value);
  return value;
}
template <class T>
void write_lane(std::byte* regs, int32_t offset, u32 lane, T value) {
  std::memcpy(regs + offset + lane * sizeof(T), &value, sizeof value);
}

template <class T>
const T* row_at(const std::byte* regs, int32_t offset) {
  return reinterpret_cast<const T*>(regs + offset);
}

// extra: four results, then layer, coordinates, and level or gradients. `level` keeps those that
// count.
TexturePoints points_of(const TextureCode& code, const Op* op, const std::byte* regs, f32* level) {
  TexturePoints points;
  points.dimensions = code.dimensions;
  const int32_t* operand = op->extra + 4;
  if (code.layered) points.layer = row_at<u32>(regs, *operand++);
  for (u32 axis = 0; axis < code.dimensions; ++axis, ++operand) {
    points.x[axis] = row_at<f32>(regs, *operand);
    if (code.integer) points.index[axis] = row_at<s32>(regs, *operand);
  }
  if (code.kind != FetchKind::kLevel) return points;
  points.level = row_at<f32>(regs, *operand);
  if (code.integer) {
    const s32* counted = row_at<s32>(regs, *operand);
    LANES level[i] = static_cast<f32>(counted[i]);
    points.level = level;
  }
  return points;
}

// Where the lanes of a cube, or of a fetch with gradients, come to fetch.
struct Projection {
  alignas(64) f32 x[2][kWarpSize];
  alignas(64) u32 layer[kWarpSize];
  alignas(64) f32 level[kWarpSize];
};

// From a direction to a place on a face; steps become those between such places.
u32 to_face(const Texture& texture, const f32 (&direction)[3], f32 (&steps)[2][3], f32* x) {
  const f32 scale = texture.normalized_coordinates ? 1 : static_cast<f32>(texture.levels[0].width);
  const FacePlace place = face_of(direction);
  x[0] = place.s * scale;
  x[1] = place.t * scale;
  for (auto& step : steps) {
    const f32 there[3] = {direction[0] + step[0], direction[1] + step[1], direction[2] + step[2]};
    const FacePlace beside = face_of(there);
    step[0] = beside.s * scale - x[0];
    step[1] = beside.t * scale - x[1];
  }
  return place.face;
}

TexturePoints project(const TextureCode& code, const Texture& texture, const Op* op,
                      const std::byte* regs, const TexturePoints& points, Projection* made) {
  TexturePoints projected = points;
  const bool gradients = code.kind == FetchKind::kGradient;
  const int32_t* operand = op->extra + 4 + (code.layered ? 1 : 0) + code.dimensions;
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    f32 direction[3] = {}, steps[2][3] = {};
    for (u32 axis = 0; axis < code.dimensions; ++axis) {
      direction[axis] = points.x[axis][lane];
      for (u32 i = 0; gradients && i < 2; ++i) {
        steps[i][axis] = read_lane<f32>(regs, operand[i * code.dimensions + axis], lane);
      }
    }
    if (code.cube) {
      f32 x[2];
      const u32 face = to_face(texture, direction, steps, x);
      made->layer[lane] = (points.layer ? points.layer[lane] : 0) * kCubeFaces + face;
      made->x[0][lane] = x[0];
      made->x[1][lane] = x[1];
    }
    if (gradients) {
      made->level[lane] = level_of_gradient(texture, code.cube ? 2 : code.dimensions, steps);
    }
  }
  if (gradients) projected.level = made->level;
  if (!code.cube) return projected;
  projected.dimensions = 2;
  projected.x[0] = made->x[0];
  projected.x[1] = made->x[1];
  projected.layer = made->layer;
  projected.on_face = true;
  return projected;
}

void write_texels(const TextureCode& code, const Op* op, std::byte* regs, const Texels& texels,
                  u32 lanes) {
  for (u32 c = 0; c < 4; ++c) {
    const u32* words = texels.word[c];
    if (!code.half && lanes == kFullMask) {
      std::memcpy(regs + op->extra[c], words, sizeof texels.word[c]);
      continue;
    }
    for (u32 left = lanes; left; left &= left - 1) {
      const auto lane = static_cast<u32>(__builtin_ctz(left));
      if (code.half) {
        write_lane(regs, op->extra[c], lane, float_to_half(float_of(words[lane])));
      } else {
        write_lane(regs, op->extra[c], lane, words[lane]);
      }
    }
  }
}

HANDLER(texture) {
  const TextureCode code = TextureCode::decode(op->aux);
  Textures textures(warp, op, regs, &warp->block->last_texture);
  f32 level[kWarpSize];
  const TexturePoints given = points_of(code, op, regs, level);
  const bool projects = code.cube || code.kind == FetchKind::kGradient;
  Projection projection;
  // Results are written when all lanes have read: they may lie where coordinates did.
  Texels texels = {};
  for (u32 left = warp->active; left;) {
    const auto lane = static_cast<u32>(__builtin_ctz(left));
    const Texture* texture = textures.of(lane, "texture object");
    if (!texture) return nullptr;
    const u32 here = textures.like_first(left);
    const TexturePoints points =
        projects ? project(code, *texture, op, regs, given, &projection) : given;
    Texels found = {};
    Sampler sampler(warp, *texture);
    if (code.kind == FetchKind::kGather) {
      sampler.gather(points, code.component, here, &found);
    } else {
      sampler.sample(points, here, &found);
    }
    if (const u32 failed = sampler.failed_lanes()) {
      return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_ADDRESS, sampler.fault_address(),
                                "illegal texture fetch from " + hex(sampler.fault_address()),
                                failed & -failed);
    }
    for (u32 c = 0; c < 4; ++c) select_lanes(texels.word[c], found.word[c], here);
    left &= ~here;
  }
  write_texels(code, op, regs, texels, warp->active);
  return op + 1;
}

enum class Place { kInside, kOutside, kFault };

// Where a lane's access of `bytes` lies. x counts bytes, or for formatted stores texels.
Place locate(const SurfaceCode& code, const Image& image, Warp* warp, const Op* op,
             const std::byte* regs, u32 lane, const int32_t* operand, u32 bytes, u64* address) {
  const u32 layer = code.layered ? read_lane<u32>(regs, *operand++, lane) : 0;
  s64 at[3] = {0, 0, 0};
  for (u32 axis = 0; axis < code.dimensions; ++axis) {
    at[axis] = read_lane<s32>(regs, *operand++, lane);
  }
  if (code.formatted) at[0] *= image.format.texel_bytes();
  const s64 row = static_cast<s64>(image.width) * image.format.texel_bytes();
  // The last place where an access fits.
  const s64 last[3] = {row - bytes, std::max<s64>(image.height, 1) - 1,
                       std::max<s64>(image.depth, 1) - 1};
  bool outside = last[0] < 0 || (image.layers != 0 && layer >= image.layers);
  for (u32 axis = 0; axis < code.dimensions; ++axis) {
    if (at[axis] >= 0 && at[axis] <= last[axis]) continue;
    if (code.boundary == Boundary::kClamp) {
      at[axis] = at[axis] < 0 ? 0 : std::max<s64>(last[axis], 0);
    } else {
      outside = true;
    }
  }
  if (outside && code.boundary == Boundary::kZero) return Place::kOutside;
  if (outside) {
    warp->block->raise(warp, op, CUDA_ERROR_LAUNCH_FAILED, 0, "surface access out of range",
                       1u << lane);
    return Place::kFault;
  }
  if (at[0] % bytes != 0) {
    warp->block->raise(warp, op, CUDA_ERROR_MISALIGNED_ADDRESS, static_cast<u64>(at[0]),
                       "misaligned surface coordinate", 1u << lane);
    return Place::kFault;
  }
  const u64 plane = image.layers != 0 ? layer : static_cast<u64>(at[2]);
  *address = image.address + plane * image.slice + static_cast<u64>(at[1]) * image.pitch +
             static_cast<u64>(at[0]);
  if (find_range(warp, *address, *address + bytes, true)) return Place::kInside;
  warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_ADDRESS, *address,
                     "illegal surface access at " + hex(*address), 1u << lane);
  return Place::kFault;
}

// extra: results, then layer and coordinates.
HANDLER(surface_load) {
  const SurfaceCode code = SurfaceCode::decode(op->aux);
  const u32 width = std::max(code.bytes, 2u);  // of a register
  Surfaces surfaces(warp, op, regs, &warp->block->last_surface);
  for (u32 left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<u32>(__builtin_ctz(left));
    const Image* image = surfaces.of(lane, "surface object");
    if (!image) return nullptr;
    u64 address = 0;
    const Place place = locate(code, *image, warp, op, regs, lane, op->extra + code.count,
                               code.bytes * code.count, &address);
    if (place == Place::kFault) return nullptr;
    for (u32 e = 0; e < code.count; ++e) {
      u64 value = 0;
      if (place == Place::kInside) {
        std::memcpy(&value, reinterpret_cast<const std::byte*>(address) + e * code.bytes,
                    code.bytes);
      }
      std::memcpy(regs + op->extra[e] + lane * width, &value, width);
    }
  }
  return op + 1;
}

// A register of a formatted store as a channel of the image.
u32 to_channel(const TexelFormat& format, u32 word) {
  if (format.channel_bytes == 4) return word;
  if (format.kind == ChannelKind::kFloat) return float_to_half(float_of(word));
  const u32 bits = 8 * format.channel_bytes;
  if (format.kind == ChannelKind::kUnsigned) return std::min(word, low_mask(bits));
  const auto most = static_cast<s32>(low_mask(bits - 1));
  return static_cast<u32>(std::clamp(static_cast<s32>(word), -most - 1, most));
}

// extra: layer and coordinates, then values.
HANDLER(surface_store) {
  const SurfaceCode code = SurfaceCode::decode(op->aux);
  const u32 width = std::max(code.bytes, 2u);
  const int32_t* values = op->extra + code.dimensions + (code.layered ? 1 : 0);
  Surfaces surfaces(warp, op, regs, &warp->block->last_surface);
  for (u32 left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<u32>(__builtin_ctz(left));
    const Image* image = surfaces.of(lane, "surface object");
    if (!image) return nullptr;
    const TexelFormat& format = image->format;
    const u32 count = code.formatted ? format.channels : code.count;
    const u32 bytes = code.formatted ? format.channel_bytes : code.bytes;
    u64 address = 0;
    const Place place =
        locate(code, *image, warp, op, regs, lane, op->extra, bytes * count, &address);
    if (place == Place::kFault) return nullptr;
    if (place == Place::kOutside) continue;
    for (u32 e = 0; e < count; ++e) {
      u64 value = 0;
      if (e < code.count) std::memcpy(&value, regs + values[e] + lane * width, code.bytes);
      if (code.formatted) value = to_channel(format, static_cast<u32>(value));
      std::memcpy(reinterpret_cast<std::byte*>(address) + e * bytes, &value, bytes);
    }
  }
  return op + 1;
}

HANDLER(image_query) {
  Textures textures(warp, op, regs, &warp->block->last_texture);
  Surfaces surfaces(warp, op, regs, &warp->block->last_surface);
  const bool surface = (op->aux & 0x100) != 0;
  for (u32 left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<u32>(__builtin_ctz(left));
    const Texture* texture = surface ? nullptr : textures.of(lane, "texture object");
    const Image* image = surface   ? surfaces.of(lane, "surface object")
                         : texture ? &texture->levels[0]
                                   : nullptr;
    if (!image) return nullptr;
    u32 answer = 0;
    switch (static_cast<ImageQuery>(op->aux & 0xff)) {
      case ImageQuery::kWidth: answer = image->width; break;
      case ImageQuery::kHeight: answer = image->height; break;
      case ImageQuery::kDepth: answer = image->depth; break;
      case ImageQuery::kLayers: answer = image->layers; break;
      case ImageQuery::kLevels:
        answer = texture ? static_cast<u32>(texture->levels.size()) : 1;
        break;
    }
    write_lane(regs, op->d, lane, answer);
  }
  return op + 1;
}

}  // namespace

void add_texture_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[static_cast<size_t>(IrOp::k_##name)] = h_##name
  PUT(texture);
  PUT(surface_load);
  PUT(surface_store);
  PUT(image_query);
#undef PUT
}

}  // namespace openmps::softgpu
