// SPDX-License-Identifier: Apache-2.0
// CUDA arrays, texture and surface objects. See array.h.
#include "softgpu/device/memory/array.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "cuda/box.h"
#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/memory/memory.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {
namespace {

// As an H200 tells them apart.
Status no_array(bool null) {
  return null ? Status(CUDA_ERROR_INVALID_VALUE, "no array")
              : Status(CUDA_ERROR_INVALID_HANDLE, "not an array");
}

// Extents that cuDeviceGetAttribute reports (front/device_facts.cc).
constexpr uint64_t kMaxWidth = 131072;
constexpr uint64_t kMaxHeight = 65536;
constexpr uint64_t kMaxDepth = 16384;
constexpr uint64_t kMaxLayers = 2048;
constexpr uint64_t kMaxBufferTexels = 1 << 27;
constexpr uint64_t kRowAlignment = 16;
// Of linear memory that a texture reads: CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT and _PITCH_.
constexpr uint64_t kTextureAlignment = 512;
constexpr uint64_t kTexturePitchAlignment = 32;
constexpr unsigned kCubeFaces = 6;

Result<TexelFormat> read_format(CUarray_format format, unsigned channels) {
  if (channels != 1 && channels != 2 && channels != 4) return invalid_value("1, 2 or 4 channels");
  const std::optional<cuda::Channel> channel = cuda::channel_of(format);
  if (channel) return TexelFormat{channel->kind, channel->bytes, channels};
  if (format <= 0 || format > CU_AD_FORMAT_SNORM_INT16X4) return invalid_value("no such format");
  return Status(CUDA_ERROR_NOT_SUPPORTED, "arrays of this format do not exist on softgpu");
}

// Formats 1 to 24 of a resource view: eight kinds of channels, each with 1, 2 and 4 of them.
Result<TexelFormat> read_view_format(CUresourceViewFormat format) {
  constexpr CUarray_format kFormats[] = {CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,
                                         CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
                                         CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32,
                                         CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};
  if (format < CU_RES_VIEW_FORMAT_UINT_1X8 || format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7) {
    return invalid_value("no such view format");
  }
  if (format > CU_RES_VIEW_FORMAT_FLOAT_4X32) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "compressed views do not exist on softgpu");
  }
  const unsigned number = static_cast<unsigned>(format) - 1;
  return read_format(kFormats[number / 3], 1u << number % 3);
}

Status check_shape(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  const bool cube = (d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  constexpr unsigned kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                              CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                              CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT;
  constexpr unsigned kLater = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
  if ((d.Flags & kLater) != 0) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "arrays without memory of their own");
  }
  if ((d.Flags & ~kKnown) != 0) return invalid_value("unknown flags");
  if (d.Width == 0 || d.Width > kMaxWidth || d.Height > kMaxHeight) return invalid_value("extent");
  if (d.Depth > (layered || cube ? kMaxLayers : kMaxDepth)) return invalid_value("extent");
  if (layered && d.Depth == 0) return invalid_value("no layers");
  if (!layered && !cube && d.Depth != 0 && d.Height == 0) {
    return invalid_value("depth without height");
  }
  if (cube && (d.Width != d.Height || d.Depth % kCubeFaces != 0 || d.Depth == 0 ||
               (!layered && d.Depth != kCubeFaces))) {
    return invalid_value("the shape of a cubemap");
  }
  if ((d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0 &&
      (d.Height == 0 || (d.Depth != 0 && !layered))) {
    return invalid_value("gathering needs two dimensions");
  }
  return Status();
}

// The image of level `level`, at address 0.
Result<Image> shape_of(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned level) {
  Result<TexelFormat> format = read_format(d.Format, d.NumChannels);
  if (!format.ok()) return format.status();
  const auto shrink = [&](size_t extent) {
    return extent == 0 ? 0u : static_cast<uint32_t>(std::max<size_t>(extent >> level, 1));
  };
  Image image;
  image.format = *format;
  image.width = shrink(d.Width);
  image.height = shrink(d.Height);
  if ((d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0) {
    image.layers = static_cast<uint32_t>(d.Depth);
  } else {
    image.depth = shrink(d.Depth);
  }
  const uint64_t row = uint64_t{image.width} * format->texel_bytes();
  image.pitch = (row + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  image.slice = image.pitch * std::max(image.height, 1u);
  return image;
}

uint64_t bytes_of(const Image& image) {
  return image.slice * std::max({image.depth, image.layers, 1u});
}

CUDA_ARRAY3D_DESCRIPTOR level_descriptor(const CUDA_ARRAY3D_DESCRIPTOR& whole, const Image& image) {
  CUDA_ARRAY3D_DESCRIPTOR level = whole;
  level.Width = image.width;
  level.Height = image.height;
  level.Depth = image.layers != 0 ? image.layers : image.depth;
  return level;
}

// ---- Resources ----------------------------------------------------------------------------------

Status read_linear(const Driver& driver, const CUDA_RESOURCE_DESC& resource, Image* image) {
  const auto& linear = resource.res.linear;
  Result<TexelFormat> format = read_format(linear.format, linear.numChannels);
  if (!format.ok()) return format.status();
  const uint64_t texels = linear.sizeInBytes / format->texel_bytes();
  if (linear.devPtr % kTextureAlignment != 0) return invalid_value("the address is not aligned");
  if (texels == 0 || texels > kMaxBufferTexels) return invalid_value("the size of linear memory");
  if (driver.address_space.coverage(linear.devPtr, linear.sizeInBytes, false) !=
      AddressSpace::Coverage::kInside) {
    return invalid_value("not device memory");
  }
  image->address = linear.devPtr;
  image->format = *format;
  image->width = static_cast<uint32_t>(texels);
  image->pitch = image->slice = linear.sizeInBytes;
  return Status();
}

Status read_pitched(const Driver& driver, const CUDA_RESOURCE_DESC& resource, Image* image) {
  const auto& pitched = resource.res.pitch2D;
  Result<TexelFormat> format = read_format(pitched.format, pitched.numChannels);
  if (!format.ok()) return format.status();
  if (pitched.width == 0 || pitched.width > kMaxWidth || pitched.height == 0 ||
      pitched.height > kMaxHeight) {
    return invalid_value("the extent of pitched memory");
  }
  const uint64_t row = pitched.width * format->texel_bytes();
  if (pitched.devPtr % kTextureAlignment != 0) return invalid_value("the address is not aligned");
  if (pitched.pitchInBytes % kTexturePitchAlignment != 0) return invalid_value("the pitch");
  const uint64_t bytes = cuda::span_of_box(row, pitched.height, 1, pitched.pitchInBytes, 0);
  if (driver.address_space.coverage(pitched.devPtr, bytes, false) !=
      AddressSpace::Coverage::kInside) {
    return invalid_value("not device memory");
  }
  image->address = pitched.devPtr;
  image->format = *format;
  image->width = static_cast<uint32_t>(pitched.width);
  image->height = static_cast<uint32_t>(pitched.height);
  image->pitch = pitched.pitchInBytes;
  image->slice = pitched.pitchInBytes * pitched.height;
  return Status();
}

Status read_resource(const Driver& driver, const CUDA_RESOURCE_DESC& resource, Texture* texture) {
  if (resource.flags != 0) return invalid_value("flags must be 0");
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      std::shared_ptr<Array> array = driver.arrays.find(resource.res.array.hArray);
      if (array == nullptr) return no_array(resource.res.array.hArray == nullptr);
      texture->levels = {array->image};
      return Status();
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      std::shared_ptr<MipmappedArray> array =
          driver.mipmapped_arrays.find(resource.res.mipmap.hMipmappedArray);
      if (array == nullptr) return no_array(resource.res.mipmap.hMipmappedArray == nullptr);
      for (const auto& level : array->levels) texture->levels.push_back(level->image);
      return Status();
    }
    case CU_RESOURCE_TYPE_LINEAR:
      texture->levels.emplace_back();
      texture->buffer = true;
      return read_linear(driver, resource, &texture->levels[0]);
    case CU_RESOURCE_TYPE_PITCH2D:
      texture->levels.emplace_back();
      return read_pitched(driver, resource, &texture->levels[0]);
    default: return invalid_value("no such resource type");
  }
}

// Another format of the same size, a part of the levels and layers.
Status apply_view(const CUDA_RESOURCE_VIEW_DESC& view, Texture* texture) {
  if (texture->buffer) return invalid_value("a view of linear memory");
  const Image& whole = texture->levels[0];
  if (view.width != whole.width || view.height != whole.height || view.depth != whole.depth) {
    return invalid_value("the extent of a view");
  }
  // It may end behind the last level, as on an H200.
  const auto levels = static_cast<unsigned>(texture->levels.size());
  const unsigned last = std::min(view.lastMipmapLevel, levels - 1);
  if (view.firstMipmapLevel > last) return invalid_value("the levels of a view");
  texture->levels = {texture->levels.begin() + view.firstMipmapLevel,
                     texture->levels.begin() + last + 1};
  for (Image& image : texture->levels) {
    if (view.format != CU_RES_VIEW_FORMAT_NONE) {
      Result<TexelFormat> format = read_view_format(view.format);
      if (!format.ok()) return format.status();
      if (format->texel_bytes() != image.format.texel_bytes()) {
        return invalid_value("the texel size of a view");
      }
      image.format = *format;
    }
    if (image.layers == 0) continue;
    if (view.firstLayer > view.lastLayer || view.lastLayer >= image.layers) {
      return invalid_value("the layers of a view");
    }
    image.address += view.firstLayer * image.slice;
    image.layers = view.lastLayer - view.firstLayer + 1;
  }
  return Status();
}

Status read_description(const CUDA_TEXTURE_DESC& d, Texture* texture) {
  constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                              CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                              CU_TRSF_SEAMLESS_CUBEMAP;
  constexpr AddressMode kModes[] = {AddressMode::kWrap, AddressMode::kClamp, AddressMode::kMirror,
                                    AddressMode::kBorder};
  if ((d.flags & ~kKnown) != 0) return invalid_value("unknown flags");
  for (int axis = 0; axis < 3; ++axis) {
    if (d.addressMode[axis] < CU_TR_ADDRESS_MODE_WRAP ||
        d.addressMode[axis] > CU_TR_ADDRESS_MODE_BORDER) {
      return invalid_value("no such address mode");
    }
    texture->address[axis] = kModes[d.addressMode[axis]];
  }
  for (CUfilter_mode mode : {d.filterMode, d.mipmapFilterMode}) {
    if (mode != CU_TR_FILTER_MODE_POINT && mode != CU_TR_FILTER_MODE_LINEAR) {
      return invalid_value("no such filter mode");
    }
  }
  texture->linear_filter = d.filterMode == CU_TR_FILTER_MODE_LINEAR;
  texture->linear_levels = d.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  texture->normalized_coordinates = (d.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  texture->read_as_integer = (d.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  texture->srgb = (d.flags & CU_TRSF_SRGB) != 0;
  texture->level_bias = d.mipmapLevelBias;
  texture->min_level = d.minMipmapLevelClamp;
  texture->max_level = d.maxMipmapLevelClamp;
  std::copy(std::begin(d.borderColor), std::end(d.borderColor), texture->border);
  return Status();
}

}  // namespace

Result<std::shared_ptr<Array>> create_array(Context& context,
                                            const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  OPENMPS_RETURN_IF_ERROR(check_shape(descriptor));
  Result<Image> image = shape_of(descriptor, 0);
  if (!image.ok()) return image.status();
  Driver& driver = context.driver();
  Result<uint64_t> address =
      driver.memory.allocate_device(context, bytes_of(*image), RangeKind::kArray, 0);
  if (!address.ok()) return address.status();
  auto array = std::make_shared<Array>();
  array->descriptor = descriptor;
  array->image = *image;
  array->image.address = *address;
  array->execution = context.execution();
  array->handle = driver.arrays.add(array);
  if (array->handle != nullptr) return array;
  static_cast<void>(driver.memory.free_array(*address).ok());
  return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many arrays");
}

Result<std::shared_ptr<MipmappedArray>> create_mipmapped_array(
    Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels) {
  OPENMPS_RETURN_IF_ERROR(check_shape(descriptor));
  const bool volume = (descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0;
  const size_t largest =
      std::max({descriptor.Width, descriptor.Height, volume ? descriptor.Depth : 0});
  // CUDA clamps the number of levels to the chain that ends in one texel.
  levels = std::clamp(levels, 1u, static_cast<unsigned>(std::bit_width(largest)));
  std::vector<Image> images;
  uint64_t bytes = 0;
  for (unsigned level = 0; level < levels; ++level) {
    Result<Image> image = shape_of(descriptor, level);
    if (!image.ok()) return image.status();
    image->address = bytes;
    bytes += bytes_of(*image);
    images.push_back(*image);
  }
  Driver& driver = context.driver();
  Result<uint64_t> address = driver.memory.allocate_device(context, bytes, RangeKind::kArray, 0);
  if (!address.ok()) return address.status();
  auto made = std::make_shared<MipmappedArray>();
  made->descriptor = descriptor;
  made->address = *address;
  made->execution = context.execution();
  for (Image& image : images) {
    image.address += *address;
    auto level = std::make_shared<Array>();
    level->descriptor = level_descriptor(descriptor, image);
    level->image = image;
    level->execution = made->execution;
    level->is_level = true;
    level->handle = driver.arrays.add(level);
    made->levels.push_back(std::move(level));
  }
  made->handle = driver.mipmapped_arrays.add(made);
  return made;
}

Status destroy_array(Driver& driver, CUarray handle) {
  std::shared_ptr<Array> array = driver.arrays.find(handle);
  if (array == nullptr || array->is_level) return Status(CUDA_ERROR_INVALID_HANDLE, "not an array");
  driver.scheduler.wait_idle(*array->execution);
  if (driver.arrays.remove(handle) == nullptr) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "the array has gone");
  }
  return driver.memory.free_array(array->image.address);
}

Status destroy_mipmapped_array(Driver& driver, CUmipmappedArray handle) {
  std::shared_ptr<MipmappedArray> array = driver.mipmapped_arrays.find(handle);
  if (array == nullptr) return Status(CUDA_ERROR_INVALID_HANDLE, "not a mipmapped array");
  driver.scheduler.wait_idle(*array->execution);
  if (driver.mipmapped_arrays.remove(handle) == nullptr) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "the array has gone");
  }
  for (const auto& level : array->levels) driver.arrays.remove(level->handle);
  return driver.memory.free_array(array->address);
}

Result<std::shared_ptr<TextureObject>> create_texture(Context& context,
                                                      const CUDA_RESOURCE_DESC& resource,
                                                      const CUDA_TEXTURE_DESC& description,
                                                      const CUDA_RESOURCE_VIEW_DESC* view) {
  auto made = std::make_shared<TextureObject>();
  Texture& texture = made->texture;
  OPENMPS_RETURN_IF_ERROR(read_description(description, &texture));
  OPENMPS_RETURN_IF_ERROR(read_resource(context.driver(), resource, &texture));
  if (view != nullptr) OPENMPS_RETURN_IF_ERROR(apply_view(*view, &texture));
  const TexelFormat& format = texture.levels[0].format;
  const bool integers =
      format.kind != ChannelKind::kFloat && (texture.read_as_integer || format.channel_bytes == 4);
  if (integers && texture.linear_filter && !texture.buffer) {
    return invalid_value("linear filtering of integers");
  }
  if (texture.levels.size() > 1 && !texture.normalized_coordinates) {
    return invalid_value("levels need normalised coordinates");
  }
  made->resource = resource;
  made->description = description;
  made->has_view = view != nullptr;
  if (view != nullptr) made->view = *view;
  made->execution = context.execution();
  return made;
}

Result<std::shared_ptr<SurfaceObject>> create_surface(Context& context,
                                                      const CUDA_RESOURCE_DESC& resource) {
  if (resource.flags != 0) return invalid_value("flags must be 0");
  if (resource.resType != CU_RESOURCE_TYPE_ARRAY) return invalid_value("a surface is an array");
  std::shared_ptr<Array> array = context.driver().arrays.find(resource.res.array.hArray);
  if (array == nullptr) return no_array(resource.res.array.hArray == nullptr);
  auto made = std::make_shared<SurfaceObject>();
  made->resource = resource;
  made->image = array->image;
  made->execution = context.execution();
  return made;
}

void destroy_texture(Driver& driver, CUtexObject handle) {
  const std::shared_ptr<TextureObject> object = driver.texture_objects.find(handle);
  if (object == nullptr) return;
  object->execution->retire_texture(handle, object);
  driver.scheduler.keep_until_idle(object->execution, object);
  driver.texture_objects.remove(handle);
}

void destroy_surface(Driver& driver, CUsurfObject handle) {
  const std::shared_ptr<SurfaceObject> object = driver.surface_objects.find(handle);
  if (object == nullptr) return;
  object->execution->retire_surface(handle, object);
  driver.scheduler.keep_until_idle(object->execution, object);
  driver.surface_objects.remove(handle);
}

Status locate_in_array(const Driver& driver, CUarray handle, const ArrayBox& box, uint64_t* address,
                       uint64_t* pitch, uint64_t* slice) {
  std::shared_ptr<Array> array = driver.arrays.find(handle);
  if (array == nullptr) return no_array(handle == nullptr);
  const Image& image = array->image;
  const uint64_t row = image.width * image.format.texel_bytes();
  const uint64_t rows = std::max(image.height, 1u);
  const uint64_t planes = std::max({image.depth, image.layers, 1u});
  if (box.x > row || box.width > row - box.x || box.y > rows || box.height > rows - box.y ||
      box.z > planes || box.depth > planes - box.z) {
    return invalid_value("the copy leaves its array");
  }
  *address = image.address + box.z * image.slice + box.y * image.pitch + box.x;
  *pitch = image.pitch;
  *slice = image.slice;
  return Status();
}

}  // namespace openmps::softgpu
