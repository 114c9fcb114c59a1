// SPDX-License-Identifier: Apache-2.0
// Wrong calls about arrays, texture and surface objects, and tensor maps.
#include "wrong_calls.h"

namespace e2e {
namespace {

using Flat = CUDA_ARRAY_DESCRIPTOR;
using Deep = CUDA_ARRAY3D_DESCRIPTOR;
using Resource = CUDA_RESOURCE_DESC;
using Texture = CUDA_TEXTURE_DESC;
using View = CUDA_RESOURCE_VIEW_DESC;

Made<Flat> flat() { return {{16, 4, CU_AD_FORMAT_FLOAT, 1}}; }
Made<Deep> deep(size_t width, size_t height, size_t depth, unsigned flags = 0) {
  return {{width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags}};
}
Made<Resource> of_array(CUarray array) {
  Made<Resource> made;
  made.value.resType = CU_RESOURCE_TYPE_ARRAY;
  made.value.res.array.hArray = array;
  return made;
}
Made<Resource> of_mipmaps(CUmipmappedArray mipmaps) {
  Made<Resource> made;
  made.value.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  made.value.res.mipmap.hMipmappedArray = mipmaps;
  return made;
}
Made<Resource> of_memory(CUdeviceptr at, size_t bytes, CUarray_format format = CU_AD_FORMAT_FLOAT,
                         unsigned channels = 1) {
  Made<Resource> made;
  made.value.resType = CU_RESOURCE_TYPE_LINEAR;
  made.value.res.linear.devPtr = at;
  made.value.res.linear.format = format;
  made.value.res.linear.numChannels = channels;
  made.value.res.linear.sizeInBytes = bytes;
  return made;
}
Made<Resource> of_rows(CUdeviceptr at, size_t width, size_t height, size_t pitch) {
  Made<Resource> made;
  made.value.resType = CU_RESOURCE_TYPE_PITCH2D;
  made.value.res.pitch2D.devPtr = at;
  made.value.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
  made.value.res.pitch2D.numChannels = 1;
  made.value.res.pitch2D.width = width;
  made.value.res.pitch2D.height = height;
  made.value.res.pitch2D.pitchInBytes = pitch;
  return made;
}
Made<Texture> sampling(CUaddress_mode mode = CU_TR_ADDRESS_MODE_CLAMP, unsigned flags = 0) {
  Made<Texture> made;
  for (CUaddress_mode& each : made.value.addressMode) each = mode;
  made.value.flags = flags;
  return made;
}
Made<View> view(CUresourceViewFormat format, size_t width, size_t height) {
  Made<View> made;
  made.value.format = format;
  made.value.width = width;
  made.value.height = height;
  return made;
}
CUtexObject* texture() { return out<CUtexObject>(); }

// A valid tensor map: two dimensions of floats, 64 by 16 in rows of 256 bytes, with boxes of 16
// by 4.
struct Tensor {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  cuuint32_t rank = 2;
  size_t offset = 0;
  cuuint64_t width = 64, height = 16, stride = 256;
  cuuint32_t box_width = 16, box_height = 4, step = 1;
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
};
CUresult encode(const Stage& s, const Tensor& of) {
  const cuuint64_t sizes[5] = {of.width, of.height, 1, 1, 1};
  const cuuint64_t strides[4] = {of.stride, of.stride, of.stride, of.stride};
  const cuuint32_t box[5] = {of.box_width, of.box_height, 1, 1, 1};
  const cuuint32_t steps[5] = {of.step, 1, 1, 1, 1};
  return cuTensorMapEncodeTiled(out<CUtensorMap>(), of.type, of.rank, pointer(s.memory + of.offset),
                                sizes, strides, box, steps, of.interleave, of.swizzle, of.promotion,
                                of.fill);
}
template <typename M, typename V>
CUresult encode(const Stage& s, M Tensor::*member, V value) {
  Tensor tensor;
  tensor.*member = static_cast<M>(value);
  return encode(s, tensor);
}
// `missing`: which of the pointers, 0 to 5, is null.
CUresult encode_without(const Stage& s, int missing) {
  const cuuint64_t sizes[2] = {64, 16}, strides[1] = {256};
  const cuuint32_t box[2] = {16, 4}, steps[2] = {1, 1};
  return cuTensorMapEncodeTiled(
      missing == 0 ? nullptr : out<CUtensorMap>(), CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
      missing == 1 ? nullptr : pointer(s.memory), missing == 2 ? nullptr : sizes,
      missing == 3 ? nullptr : strides, missing == 4 ? nullptr : box,
      missing == 5 ? nullptr : steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace

const WrongCalls kArrayCalls = {
    WRONG(cuArrayCreate_v2(nullptr, flat())),
    WRONG(cuArrayCreate_v2(out<CUarray>(), nullptr)),
    WRONG(cuArrayCreate_v2(out<CUarray>(), flat().with(&Flat::Width, 0))),
    WRONG(cuArrayCreate_v2(out<CUarray>(), flat().with(&Flat::NumChannels, 0))),
    WRONG(cuArrayCreate_v2(out<CUarray>(), flat().with(&Flat::NumChannels, 3))),
    WRONG(cuArrayCreate_v2(out<CUarray>(), flat().with(&Flat::Format, bad<CUarray_format>))),
    WRONG(cuArrayCreate_v2(out<CUarray>(), flat().with(&Flat::Format, 0))),
    WRONG(cuArrayCreate_v2(out<CUarray>(), flat().with(&Flat::Width, 1 << 20))),
    WRONG(cuArrayCreate_v2(out<CUarray>(), flat().with(&Flat::Height, 1 << 20))),
    WRONG(cuArray3DCreate_v2(nullptr, deep(16, 4, 2))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), nullptr)),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(0, 4, 2))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(16, 0, 2))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(16, 4, 1 << 20))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(16, 4, 2, 0x8000))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(16, 4, 0, CUDA_ARRAY3D_LAYERED))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(16, 4, 1 << 20, CUDA_ARRAY3D_LAYERED))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(16, 16, 5, CUDA_ARRAY3D_CUBEMAP))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(16, 8, 6, CUDA_ARRAY3D_CUBEMAP))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(),
                             deep(16, 16, 8, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(16, 4, 2, CUDA_ARRAY3D_TEXTURE_GATHER))),
    WRONG(cuArray3DCreate_v2(out<CUarray>(), deep(16, 0, 0, CUDA_ARRAY3D_TEXTURE_GATHER))),
    WRONG(cuArrayDestroy(nullptr)),
    WRONG(cuArrayGetDescriptor_v2(nullptr, s.array)),
    WRONG(cuArrayGetDescriptor_v2(out<Flat>(), nullptr)),
    WRONG(cuArray3DGetDescriptor_v2(nullptr, s.array)),
    WRONG(cuArray3DGetDescriptor_v2(out<Deep>(), nullptr)),
    WRONG(cuArrayGetPlane(nullptr, s.array, 0)),
    WRONG(cuArrayGetPlane(out<CUarray>(), nullptr, 0)),
    WRONG(cuArrayGetPlane(out<CUarray>(), s.array, 0)),
    WRONG(cuArrayGetPlane(out<CUarray>(), s.array, 9)),
    WRONG(cuArrayGetSparseProperties(nullptr, s.array)),
    WRONG(cuArrayGetSparseProperties(out<CUDA_ARRAY_SPARSE_PROPERTIES>(), nullptr)),
    WRONG(cuArrayGetSparseProperties(out<CUDA_ARRAY_SPARSE_PROPERTIES>(), s.array)),
    WRONG(cuArrayGetMemoryRequirements(nullptr, s.array, s.device)),
    WRONG(cuArrayGetMemoryRequirements(out<CUDA_ARRAY_MEMORY_REQUIREMENTS>(), nullptr, s.device)),
    WRONG(cuArrayGetMemoryRequirements(out<CUDA_ARRAY_MEMORY_REQUIREMENTS>(), s.array, s.device)),
    WRONG(cuArrayGetMemoryRequirements(out<CUDA_ARRAY_MEMORY_REQUIREMENTS>(), s.array, kNoDevice)),
    WRONG(cuMipmappedArrayCreate(nullptr, deep(16, 4, 0), 2)),
    WRONG(cuMipmappedArrayCreate(out<CUmipmappedArray>(), nullptr, 2)),
    WRONG(cuMipmappedArrayCreate(out<CUmipmappedArray>(), deep(16, 4, 0), 0)),
    WRONG(cuMipmappedArrayCreate(out<CUmipmappedArray>(), deep(16, 4, 0), 99)),
    WRONG(cuMipmappedArrayCreate(out<CUmipmappedArray>(), deep(0, 4, 0), 2)),
    WRONG(cuMipmappedArrayCreate(out<CUmipmappedArray>(),
                                 deep(16, 4, 0).with(&Deep::NumChannels, 3), 2)),
    WRONG(cuMipmappedArrayDestroy(nullptr)),
    WRONG(cuMipmappedArrayGetLevel(nullptr, s.mipmaps, 0)),
    WRONG(cuMipmappedArrayGetLevel(out<CUarray>(), nullptr, 0)),
    WRONG(cuMipmappedArrayGetLevel(out<CUarray>(), s.mipmaps, 2)),
    WRONG(cuMipmappedArrayGetLevel(nullptr, s.mipmaps, 2)),
    WRONG(cuMipmappedArrayGetSparseProperties(out<CUDA_ARRAY_SPARSE_PROPERTIES>(), s.mipmaps)),
    WRONG(cuMipmappedArrayGetMemoryRequirements(out<CUDA_ARRAY_MEMORY_REQUIREMENTS>(), s.mipmaps,
                                                kNoDevice)),
    WRONG(cuMipmappedArrayGetMemoryRequirements(out<CUDA_ARRAY_MEMORY_REQUIREMENTS>(), nullptr,
                                                s.device)),
};

const WrongCalls kTextureCalls = {
    WRONG(cuTexObjectCreate(nullptr, of_array(s.array), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), nullptr, sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array), nullptr, nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(nullptr), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_mipmaps(nullptr), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(),
                            of_array(s.array).with(&Resource::resType, bad<CUresourcetype>),
                            sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array).with(&Resource::flags, 1), sampling(),
                            nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array), sampling(bad<CUaddress_mode>), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array), sampling(CU_TR_ADDRESS_MODE_WRAP),
                            nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array),
                            sampling().with(&Texture::filterMode, bad<CUfilter_mode>), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array),
                            sampling().with(&Texture::mipmapFilterMode, bad<CUfilter_mode>),
                            nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array), sampling().with(&Texture::flags, 0x8000),
                            nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array),
                            sampling().with(&Texture::maxAnisotropy, 99), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(0, 64), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(1, 64), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(s.memory + 4, 64), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(s.memory, 0), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(s.memory, kHuge), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(s.memory, 64, bad<CUarray_format>), sampling(),
                            nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(s.memory, 64, CU_AD_FORMAT_FLOAT, 3), sampling(),
                            nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(s.memory, 64, CU_AD_FORMAT_FLOAT, 0), sampling(),
                            nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(s.memory, 64, CU_AD_FORMAT_UNSIGNED_INT32),
                            sampling().with(&Texture::filterMode, CU_TR_FILTER_MODE_LINEAR),
                            nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_memory(s.memory, 64),
                            sampling().with(&Texture::flags, CU_TRSF_NORMALIZED_COORDINATES),
                            nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_rows(0, 16, 4, 512), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_rows(s.memory + 4, 16, 4, 512), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_rows(s.memory, 0, 4, 512), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_rows(s.memory, 16, 0, 512), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_rows(s.memory, 16, 4, 65), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_rows(s.memory, 16, 4, 32), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_rows(s.memory, 16, 4, 0), sampling(), nullptr)),
    WRONG(
        cuTexObjectCreate(texture(), of_rows(s.memory, 1 << 20, 4, 1 << 22), sampling(), nullptr)),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array), sampling(),
                            view(CU_RES_VIEW_FORMAT_UINT_4X8, 16, 4))),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array), sampling(),
                            view(CU_RES_VIEW_FORMAT_FLOAT_1X32, 16, 4))),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array), sampling(),
                            view(CU_RES_VIEW_FORMAT_FLOAT_1X32, 99, 4))),
    WRONG(cuTexObjectCreate(texture(), of_array(s.array), sampling(),
                            view(bad<CUresourceViewFormat>, 16, 4))),
    WRONG(cuTexObjectCreate(texture(), of_memory(s.memory, 64), sampling(),
                            view(CU_RES_VIEW_FORMAT_FLOAT_1X32, 16, 1))),
    WRONG(cuTexObjectCreate(texture(), of_mipmaps(s.mipmaps), sampling(),
                            view(CU_RES_VIEW_FORMAT_FLOAT_1X32, 16, 4)
                                .with(&View::firstMipmapLevel, 1)
                                .with(&View::lastMipmapLevel, 9))),
    WRONG(cuTexObjectDestroy(0)),
    WRONG(cuTexObjectGetResourceDesc(nullptr, 0)),
    WRONG(cuTexObjectGetResourceDesc(out<Resource>(), 0)),
    WRONG(cuTexObjectGetTextureDesc(out<Texture>(), 0)),
    WRONG(cuTexObjectGetResourceViewDesc(out<View>(), 0)),
    WRONG(cuSurfObjectCreate(out<CUsurfObject>(), nullptr)),
    WRONG(cuSurfObjectCreate(out<CUsurfObject>(), of_array(nullptr))),
    WRONG(cuSurfObjectCreate(out<CUsurfObject>(), of_array(s.plain_array))),
    WRONG(cuSurfObjectCreate(out<CUsurfObject>(), of_memory(s.memory, 64))),
    WRONG(cuSurfObjectCreate(out<CUsurfObject>(), of_mipmaps(s.mipmaps))),
    WRONG(cuSurfObjectDestroy(0)),
    WRONG(cuSurfObjectGetResourceDesc(out<Resource>(), 0)),
    WRONG(cuSurfObjectGetResourceDesc(nullptr, 0)),
};

const WrongCalls kTensorMapCalls = {
    WRONG(encode_without(s, 0)),
    WRONG(encode_without(s, 1)),
    WRONG(encode_without(s, 2)),
    WRONG(encode_without(s, 3)),
    WRONG(encode_without(s, 4)),
    WRONG(encode_without(s, 5)),
    WRONG(encode(s, {})),
    WRONG(encode(s, &Tensor::type, bad<CUtensorMapDataType>)),
    WRONG(encode(s, &Tensor::rank, 0)),
    WRONG(encode(s, &Tensor::rank, 6)),
    WRONG(encode(s, &Tensor::offset, 8)),
    WRONG(encode(s, &Tensor::width, 0)),
    WRONG(encode(s, &Tensor::width, (cuuint64_t{1} << 32) + 1)),
    WRONG(encode(s, &Tensor::height, 0)),
    WRONG(encode(s, &Tensor::stride, 0)),
    WRONG(encode(s, &Tensor::stride, 24)),
    WRONG(encode(s, &Tensor::stride, 128)),
    WRONG(encode(s, &Tensor::stride, cuuint64_t{1} << 40)),
    WRONG(encode(s, &Tensor::box_width, 0)),
    WRONG(encode(s, &Tensor::box_width, 257)),
    WRONG(encode(s, &Tensor::box_width, 3)),
    WRONG(encode(s, &Tensor::box_height, 0)),
    WRONG(encode(s, &Tensor::box_height, 257)),
    WRONG(encode(s, &Tensor::step, 0)),
    WRONG(encode(s, &Tensor::step, 9)),
    WRONG(encode(s, &Tensor::interleave, bad<CUtensorMapInterleave>)),
    WRONG(encode(s, &Tensor::interleave, CU_TENSOR_MAP_INTERLEAVE_32B)),
    WRONG(encode(s, &Tensor::swizzle, bad<CUtensorMapSwizzle>)),
    WRONG(encode(s, &Tensor::swizzle, CU_TENSOR_MAP_SWIZZLE_32B)),
    WRONG(encode(s, &Tensor::promotion, bad<CUtensorMapL2promotion>)),
    WRONG(encode(s, &Tensor::fill, bad<CUtensorMapFloatOOBfill>)),
    WRONG(cuTensorMapReplaceAddress(out<CUtensorMap>(), nullptr)),
    WRONG(cuTensorMapReplaceAddress(out<CUtensorMap>(), pointer(s.memory + 8))),
};

}  // namespace e2e
