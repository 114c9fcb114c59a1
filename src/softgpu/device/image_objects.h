// SPDX-License-Identifier: Apache-2.0
// The objects behind the handles of CUDA arrays, textures and surfaces. Made by array.h; what
// kernels see of them (softgpu/texture.h) is immutable. Any thread.
#pragma once

#include <memory>
#include <vector>

#include "cuda/abi.h"
#include "softgpu/texture.h"

namespace openmps::softgpu {

class ExecutionContext;

struct Array {
  CUarray handle = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  Image image;
  std::shared_ptr<ExecutionContext> execution;
  bool is_level = false;  // of a mipmapped array, which owns its memory
};

struct MipmappedArray {
  CUmipmappedArray handle = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  uint64_t address = 0;
  std::vector<std::shared_ptr<Array>> levels;
  std::shared_ptr<ExecutionContext> execution;
};

struct TextureObject {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC description{};
  CUDA_RESOURCE_VIEW_DESC view{};
  bool has_view = false;
  Texture texture;
  std::shared_ptr<ExecutionContext> execution;
};

struct SurfaceObject {
  CUDA_RESOURCE_DESC resource{};
  Image image;
  std::shared_ptr<ExecutionContext> execution;
};

}  // namespace openmps::softgpu
