// SPDX-License-Identifier: Apache-2.0
// What comes before a texture is sampled: the face of a cube that a direction names, and the level
// of detail that gradients ask for. Lane by lane; used by the handlers of texture.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "softgpu/texture.h"

namespace openmps::softgpu {

inline constexpr uint32_t kCubeFaces = 6;

// A place on a face, 0 to 1 in both directions.
struct FacePlace {
  uint32_t face = 0;
  float s = 0, t = 0;
};

// By the table of the programming guide (cubemap textures). Where coordinates are equally large, z
// comes before y and y before x.
inline FacePlace face_of(const float* x) {
  const float ax = std::fabs(x[0]), ay = std::fabs(x[1]), az = std::fabs(x[2]);
  FacePlace place;
  float major = ax;
  if (az >= ax && az >= ay) {
    place = {x[2] < 0 ? 5u : 4u, x[2] < 0 ? -x[0] : x[0], -x[1]};
    major = az;
  } else if (ay >= ax) {
    place = {x[1] < 0 ? 3u : 2u, x[0], x[1] < 0 ? -x[2] : x[2]};
    major = ay;
  } else {
    place = {x[0] < 0 ? 1u : 0u, x[0] < 0 ? x[2] : -x[2], -x[1]};
  }
  place.s = (place.s / major + 1) / 2;
  place.t = (place.t / major + 1) / 2;
  return place;
}

// The level at which neighbours that are steps[0] and steps[1] away are one texel away.
inline float level_of_gradient(const Texture& texture, uint32_t dimensions,
                               const float (&steps)[2][3]) {
  const Image& image = texture.levels[0];
  const uint32_t sizes[3] = {image.width, std::max(image.height, 1u), std::max(image.depth, 1u)};
  float longest = 0;
  for (const auto& step : steps) {
    float squares = 0;
    for (uint32_t axis = 0; axis < dimensions; ++axis) {
      const float texels =
          step[axis] * (texture.normalized_coordinates ? static_cast<float>(sizes[axis]) : 1);
      squares += texels * texels;
    }
    longest = std::max(longest, squares);
  }
  return 0.5f * std::log2(longest);
}

}  // namespace openmps::softgpu
