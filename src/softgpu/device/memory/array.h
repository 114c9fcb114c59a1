// SPDX-License-Identifier: Apache-2.0
// CUDA arrays, and the texture and surface objects that show them to kernels. An array here is
// pitched device memory; programs do not see its layout, as on a GPU. API threads.
#pragma once

#include <memory>

#include "cuda/abi.h"
#include "cuda/status.h"
#include "softgpu/device/image_objects.h"

namespace openmps::softgpu {

class Context;
class Driver;

// Errors: CUDA_ERROR_INVALID_VALUE: a description that CUDA forbids; CUDA_ERROR_NOT_SUPPORTED: a
// format beyond the eight basic ones, or memory that is mapped later; CUDA_ERROR_OUT_OF_MEMORY.
Result<std::shared_ptr<Array>> create_array(Context& context,
                                            const CUDA_ARRAY3D_DESCRIPTOR& descriptor);
Result<std::shared_ptr<MipmappedArray>> create_mipmapped_array(
    Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels);
// Waits for the context's work. CUDA_ERROR_INVALID_HANDLE: not alive, or a level.
Status destroy_array(Driver& driver, CUarray handle);
Status destroy_mipmapped_array(Driver& driver, CUmipmappedArray handle);

// CUDA_ERROR_INVALID_VALUE: a combination that CUDA forbids; CUDA_ERROR_INVALID_HANDLE.
Result<std::shared_ptr<TextureObject>> create_texture(Context& context,
                                                      const CUDA_RESOURCE_DESC& resource,
                                                      const CUDA_TEXTURE_DESC& description,
                                                      const CUDA_RESOURCE_VIEW_DESC* view);
// Of an array with or without CUDA_ARRAY3D_SURFACE_LDST, as on an H200.
Result<std::shared_ptr<SurfaceObject>> create_surface(Context& context,
                                                      const CUDA_RESOURCE_DESC& resource);
// The handle is no longer valid; work launched before still finds the object. A handle of nothing
// is no error: NVIDIA's driver takes any.
void destroy_texture(Driver& driver, CUtexObject handle);
void destroy_surface(Driver& driver, CUsurfObject handle);

// Where in memory a box of a copy begins: x in bytes. CUDA_ERROR_INVALID_HANDLE;
// CUDA_ERROR_INVALID_VALUE: it leaves the array. It may cut texels, as on an H200.
struct ArrayBox {
  size_t x, y, z, width, height, depth;
};
Status locate_in_array(const Driver& driver, CUarray handle, const ArrayBox& box, uint64_t* address,
                       uint64_t* pitch, uint64_t* slice);

}  // namespace openmps::softgpu
