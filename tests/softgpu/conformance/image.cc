// SPDX-License-Identifier: Apache-2.0
// See image.h.
#include "image.h"

#include <cstring>
#include <vector>

#include "api/prototypes.h"
#include "inputs.h"

namespace conformance {
namespace {

struct Shape {
  const char* name;
  size_t width, height, depth;  // as cuArray3DCreate takes them
  unsigned flags;
};
constexpr unsigned kLayered = CUDA_ARRAY3D_LAYERED, kCube = CUDA_ARRAY3D_CUBEMAP;
constexpr Shape kShapes[] = {{"1d", 512, 0, 0, 0},
                             {"2d", 32, 16, 0, 0},
                             {"3d", 16, 8, 4, 0},
                             {"a1d", 64, 0, 8, kLayered},
                             {"a2d", 16, 8, 4, kLayered},
                             {"cube", 8, 8, 6, kCube},
                             {"acube", 8, 8, 12, kCube | kLayered}};

struct Format {
  const char* name;
  CUarray_format format;
  size_t bytes;  // of a channel
};
constexpr Format kFormats[] = {{"f32", CU_AD_FORMAT_FLOAT, 4},
                               {"u32", CU_AD_FORMAT_UNSIGNED_INT32, 4},
                               {"s32", CU_AD_FORMAT_SIGNED_INT32, 4},
                               {"f16", CU_AD_FORMAT_HALF, 2}};

template <class T, size_t n>
const T& named(const T (&all)[n], const std::string& name) {
  for (const T& one : all) {
    if (name == one.name) return one;
  }
  return all[0];
}

// Random bits; for floating point without NaNs.
std::vector<unsigned char> contents(const Format& format, size_t channels) {
  std::vector<unsigned char> all(channels * format.bytes);
  for (size_t i = 0; i < channels; ++i) {
    auto bits = static_cast<uint32_t>((i + 1) * 0x9e3779b9u);
    if (format.format == CU_AD_FORMAT_FLOAT) bits &= 0xbfffffff;
    if (format.format == CU_AD_FORMAT_HALF) bits &= 0xbfff;
    memcpy(&all[i * format.bytes], &bits, format.bytes);
  }
  return all;
}

CUresult fill(CUarray array, const Shape& shape, const Format& format) {
  const size_t height = shape.height ? shape.height : 1, depth = shape.depth ? shape.depth : 1;
  const std::vector<unsigned char> texels = contents(format, 4 * shape.width * height * depth);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = texels.data();
  copy.srcPitch = copy.WidthInBytes = 4 * shape.width * format.bytes;
  copy.srcHeight = copy.Height = height;
  copy.Depth = depth;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  return cuMemcpy3D_v2(&copy);
}

}  // namespace

CUresult make_image(const Case& one, Image* image) {
  const Shape& shape = named(kShapes, one.image.shape);
  const Format& format = named(kFormats, one.image.format);
  const bool surface = (shape.flags & kCube) == 0;
  const CUDA_ARRAY3D_DESCRIPTOR description = {
      shape.width, shape.height,
      shape.depth, format.format,
      4,           shape.flags | (surface ? CUDA_ARRAY3D_SURFACE_LDST : 0u)};
  CUresult result = cuArray3DCreate_v2(&image->array, &description);
  if (result != CUDA_SUCCESS) return result;
  result = fill(image->array, shape, format);
  if (result != CUDA_SUCCESS) return result;
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = image->array;
  CUDA_TEXTURE_DESC sampler{};
  for (CUaddress_mode& mode : sampler.addressMode) {
    mode = one.image.normalized ? CU_TR_ADDRESS_MODE_WRAP : CU_TR_ADDRESS_MODE_CLAMP;
  }
  sampler.filterMode = CU_TR_FILTER_MODE_POINT;
  if (one.image.normalized) sampler.flags |= CU_TRSF_NORMALIZED_COORDINATES;
  if (one.image.format[0] != 'f') sampler.flags |= CU_TRSF_READ_AS_INTEGER;
  result = cuTexObjectCreate(&image->texture, &resource, &sampler, nullptr);
  if (result != CUDA_SUCCESS || !surface) return result;
  return cuSurfObjectCreate(&image->surface, &resource);
}

}  // namespace conformance
