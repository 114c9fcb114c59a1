// SPDX-License-Identifier: Apache-2.0
// Tensor maps: the checks that CUDA documents, and the 128 bytes that the engine reads
// (tensor_map.h). They need no context. Any thread.
#include <algorithm>
#include <cstring>
#include <string>

#include "softgpu/front/front.h"
#include "softgpu/tensor_map.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// CUDA's documentation of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col.
constexpr uint64_t kMapAlignment = 64;
constexpr uint64_t kRowUnit = 16;  // of the address, of strides and of the box's rows, bytes
constexpr uint64_t kMaxDimension = uint64_t{1} << 32;
constexpr uint64_t kMaxStride = uint64_t{1} << 40;  // less than this

Status invalid(std::string what) { return Status(CUDA_ERROR_INVALID_VALUE, std::move(what)); }

bool aligned(const void* pointer, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

struct TensorArguments {
  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  const cuuint64_t* dimensions;
  const cuuint64_t* strides;
  const cuuint32_t* element_strides;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

bool is_float(TensorElement element) {
  return element == TensorElement::kF16 || element >= TensorElement::kF32;
}

// What the kinds of map have in common; the rows of the box have `row_elements`.
Status fill_map(const TensorArguments& tensor, uint32_t row_elements, TensorMap* map) {
  if (tensor.type > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ) {
    return invalid("a type that this device's tensors do not have");
  }
  if (tensor.dimensions == nullptr || tensor.element_strides == nullptr ||
      (tensor.rank > 1 && tensor.strides == nullptr)) {
    return invalid("no sizes or strides");
  }
  if (!aligned(tensor.address, kRowUnit)) {
    return invalid("an address that is no multiple of 16");
  }
  if (tensor.interleave > CU_TENSOR_MAP_INTERLEAVE_32B ||
      tensor.swizzle > CU_TENSOR_MAP_SWIZZLE_128B ||
      tensor.promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
      tensor.fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA) {
    return invalid("an option that this device's tensor maps do not have");
  }
  if (tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) {
    if (tensor.rank < 3) return invalid("an interleaved tensor of less than 3 dimensions");
    return Status(CUDA_ERROR_NOT_SUPPORTED, "interleaved tensors are not modelled");
  }
  map->magic = kTensorMapMagic;
  map->element = static_cast<TensorElement>(tensor.type);
  map->rank = static_cast<uint8_t>(tensor.rank);
  map->swizzle_bits = static_cast<uint8_t>(tensor.swizzle);
  map->fill_nan = tensor.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  map->address = reinterpret_cast<uint64_t>(tensor.address);
  if (map->fill_nan && !is_float(map->element)) return invalid("integers have no NaN");
  for (uint32_t i = 0; i < tensor.rank; ++i) {
    if (tensor.dimensions[i] == 0 || tensor.dimensions[i] > kMaxDimension) {
      return invalid("a dimension of " + std::to_string(tensor.dimensions[i]));
    }
    if (tensor.element_strides[i] == 0 || tensor.element_strides[i] > kMaxElementStride) {
      return invalid("an element stride that is not 1 to 8");
    }
    map->last[i] = static_cast<uint32_t>(tensor.dimensions[i] - 1);
    map->element_stride[i] = static_cast<uint8_t>(tensor.element_strides[i]);
  }
  for (uint32_t i = 0; i + 1 < tensor.rank; ++i) {
    if (tensor.strides[i] % kRowUnit != 0 || tensor.strides[i] >= kMaxStride) {
      return invalid("a stride of " + std::to_string(tensor.strides[i]) + " bytes");
    }
    map->stride[i] = tensor.strides[i];
  }
  const uint64_t row_bytes = uint64_t{row_elements} * tensor_element_bytes(map->element);
  const uint64_t most = map->swizzle_bits == 0 ? UINT64_MAX : kRowUnit << map->swizzle_bits;
  if (row_bytes % kRowUnit != 0 || row_bytes > most) {
    return invalid("rows of " + std::to_string(row_bytes) + " bytes in a box");
  }
  map->box[0] = static_cast<uint16_t>(row_elements);
  return Status();
}

// CUtensorMap is to lie at a multiple of 128 bytes since CUDA 13. Programs that were built with
// CUDA 12 have it at one of kMapAlignment: it is read and written as bytes.
static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
Status give(const TensorMap& map, CUtensorMap* out) {
  memcpy(static_cast<void*>(out), &map, sizeof(map));
  return Status();
}

// The pixels at both ends of a walk: as many bits as the rank leaves each of them.
bool corner_fits(int corner, cuuint32_t rank) {
  const int bits = rank == 3 ? 15 : rank == 4 ? 7 : 4;
  return corner >= -(1 << bits) && corner < 1 << bits;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void* globalAddress,
                                const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill) {
  return with_driver([&](Driver&) -> Status {
    if (tensorMap == nullptr || !aligned(tensorMap, kMapAlignment) || tensorRank == 0 ||
        tensorRank > kMaxTensorRank || boxDim == nullptr) {
      return invalid("a tensor map, its rank or its box");
    }
    TensorMap map;
    for (uint32_t i = 0; i < tensorRank; ++i) {
      if (boxDim[i] == 0 || boxDim[i] > kMaxBoxDimension) {
        return invalid("a box dimension that is not 1 to 256");
      }
      map.box[i] = static_cast<uint16_t>(boxDim[i]);
    }
    OPENMPS_RETURN_IF_ERROR(
        fill_map({tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
                  elementStrides, interleave, swizzle, l2Promotion, oobFill},
                 boxDim[0], &map));
    return give(map, tensorMap);
  });
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void* globalAddress,
                                 const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                 const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill) {
  return with_driver([&](Driver&) -> Status {
    if (tensorMap == nullptr || !aligned(tensorMap, kMapAlignment) || tensorRank < 3 ||
        tensorRank > kMaxTensorRank || pixelBoxLowerCorner == nullptr ||
        pixelBoxUpperCorner == nullptr) {
      return invalid("a tensor map, its rank or its corners");
    }
    if (channelsPerPixel == 0 || channelsPerPixel > kMaxBoxDimension || pixelsPerColumn == 0 ||
        pixelsPerColumn > kMaxPixelsPerColumn) {
      return invalid("channels that are not 1 to 256, or pixels not 1 to 1024");
    }
    TensorMap map;
    map.im2col = true;
    map.pixels = static_cast<uint16_t>(pixelsPerColumn);
    std::fill_n(map.box, tensorRank, uint16_t{1});
    for (uint32_t i = 0; i + 2 < tensorRank; ++i) {
      if (!corner_fits(pixelBoxLowerCorner[i], tensorRank) ||
          !corner_fits(pixelBoxUpperCorner[i], tensorRank)) {
        return invalid("a corner that is out of range");
      }
      map.lower[i] = static_cast<int16_t>(pixelBoxLowerCorner[i]);
      map.upper[i] = static_cast<int16_t>(pixelBoxUpperCorner[i]);
    }
    OPENMPS_RETURN_IF_ERROR(
        fill_map({tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
                  elementStrides, interleave, swizzle, l2Promotion, oobFill},
                 channelsPerPixel, &map));
    return give(map, tensorMap);
  });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  return with_driver([&](Driver&) -> Status {
    if (tensorMap == nullptr || !aligned(tensorMap, kMapAlignment) || globalAddress == nullptr ||
        !aligned(globalAddress, kRowUnit)) {
      return invalid("a tensor map or its address");
    }
    TensorMap map;
    memcpy(static_cast<void*>(&map), tensorMap, sizeof(map));
    if (map.magic != kTensorMapMagic) return invalid("not a tensor map");
    map.address = reinterpret_cast<uint64_t>(globalAddress);
    return give(map, tensorMap);
  });
}
