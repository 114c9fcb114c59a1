// SPDX-License-Identifier: Apache-2.0
// The image that a case reads through a texture, and reads and writes through a surface: 512 texels
// of four channels, one for each thread, filled anew for each case. Cubes have six faces of 8 by 8.
#pragma once

#include "cases.h"
#include "cuda/abi.h"

namespace conformance {

struct Image {
  CUarray array = nullptr;
  CUtexObject texture = 0;
  CUsurfObject surface = 0;  // cubes have none
};

// The image is never destroyed.
CUresult make_image(const Case& one, Image* image);

}  // namespace conformance
