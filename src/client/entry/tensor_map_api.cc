// SPDX-License-Identifier: Apache-2.0
// cuTensorMap*: the descriptors of bulk copies are the driver's, so it encodes them.
// Implementations behind the generated entry points, on the program's threads.
#include <algorithm>
#include <cstring>

#include "api/client_impl.h"
#include "client/session/enter.h"
#include "wire/commands/device.h"

namespace openmps::client {
namespace {

// What all kinds have. The arrays have as many numbers as the tensor has dimensions, the strides
// one less.
struct Tensor {
  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  const cuuint64_t* sizes;
  const cuuint64_t* strides;
  const cuuint32_t* steps;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

template <typename T>
void copy(T* target, const T* source, size_t count) {
  if (source != nullptr) std::copy_n(source, count, target);
}

CUresult begin(const Tensor& tensor, wire::TensorMapKind kind, wire::TensorMapEncode* command) {
  if (tensor.rank == 0 || tensor.rank > wire::kMaxTensorRank || tensor.sizes == nullptr ||
      tensor.steps == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  command->kind = kind;
  command->address = reinterpret_cast<uint64_t>(tensor.address);
  copy(command->sizes, tensor.sizes, tensor.rank);
  copy(command->strides, tensor.strides, tensor.rank - 1);
  copy(command->steps, tensor.steps, tensor.rank);
  command->rank = tensor.rank;
  command->type = static_cast<uint32_t>(tensor.type);
  command->without_strides = tensor.strides == nullptr ? 1 : 0;
  command->interleave = static_cast<uint32_t>(tensor.interleave);
  command->swizzle = static_cast<uint32_t>(tensor.swizzle);
  command->promotion = static_cast<uint32_t>(tensor.promotion);
  command->fill = static_cast<uint32_t>(tensor.fill);
  return CUDA_SUCCESS;
}

template <typename Command>
CUresult ask(Command command, CUtensorMap* map) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  command.device = context->wire_device;
  typename Command::Reply reply;
  static_assert(sizeof(reply.map) == sizeof(*map));
  OPENMPS_CUDA_CHECK(session->channel.call(command, &reply));
  memcpy(map, reply.map, sizeof(*map));
  return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void* globalAddress,
                                const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill) {
  if (tensorMap == nullptr || boxDim == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::TensorMapEncode command;
  OPENMPS_CUDA_CHECK(begin({tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
                            elementStrides, interleave, swizzle, l2Promotion, oobFill},
                           wire::TensorMapKind::kTiled, &command));
  copy(command.box, boxDim, tensorRank);
  return ask(command, tensorMap);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void* globalAddress,
                                 const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                 const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill) {
  const bool corners = pixelBoxLowerCorner != nullptr && pixelBoxUpperCorner != nullptr;
  if (tensorMap == nullptr || tensorRank < 2 || globalStrides == nullptr ||
      (tensorRank > 2 && !corners)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::TensorMapEncode command;
  OPENMPS_CUDA_CHECK(begin({tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
                            elementStrides, interleave, swizzle, l2Promotion, oobFill},
                           wire::TensorMapKind::kIm2col, &command));
  copy(command.lower, pixelBoxLowerCorner, tensorRank - 2);
  copy(command.upper, pixelBoxUpperCorner, tensorRank - 2);
  command.channels_per_pixel = channelsPerPixel;
  command.pixels_per_column = pixelsPerColumn;
  return ask(command, tensorMap);
}

CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  if (tensorMap == nullptr || (tensorRank > 1 && globalStrides == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::TensorMapEncode command;
  OPENMPS_CUDA_CHECK(begin({tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
                            elementStrides, interleave, swizzle, l2Promotion, oobFill},
                           wire::TensorMapKind::kIm2colWide, &command));
  command.lower[0] = pixelBoxLowerCornerWidth;
  command.upper[0] = pixelBoxUpperCornerWidth;
  command.channels_per_pixel = channelsPerPixel;
  command.pixels_per_column = pixelsPerColumn;
  command.mode = static_cast<uint32_t>(mode);
  return ask(command, tensorMap);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  if (tensorMap == nullptr) return CUDA_ERROR_INVALID_VALUE;
  wire::TensorMapReplace command;
  command.address = reinterpret_cast<uint64_t>(globalAddress);
  memcpy(command.map, tensorMap, sizeof(command.map));
  return ask(command, tensorMap);
}

}  // namespace impl
}  // namespace openmps::client
