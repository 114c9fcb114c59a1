// SPDX-License-Identifier: Apache-2.0
// Copies by other names. See copies.h.
#include "cuda/copies.h"

namespace openmps::cuda {
namespace {

uint64_t address_of(CUmemorytype type, const void* host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
}

// Of CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER.
template <typename Copy>
CopySide source_of_3d(const Copy& c) {
  return {.type = c.srcMemoryType,
          .address = address_of(c.srcMemoryType, c.srcHost, c.srcDevice),
          .array = c.srcArray,
          .x = c.srcXInBytes,
          .y = c.srcY,
          .z = c.srcZ,
          .pitch = c.srcPitch,
          .rows = c.srcHeight,
          .level = c.srcLOD};
}
template <typename Copy>
CopySide destination_of_3d(const Copy& c) {
  return {.type = c.dstMemoryType,
          .address = address_of(c.dstMemoryType, c.dstHost, c.dstDevice),
          .array = c.dstArray,
          .x = c.dstXInBytes,
          .y = c.dstY,
          .z = c.dstZ,
          .pitch = c.dstPitch,
          .rows = c.dstHeight,
          .level = c.dstLOD};
}

CUresult read_operand(const CUmemcpy3DOperand& operand, const CopyBox& box, CopySide* side) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return CUDA_ERROR_INVALID_VALUE;
  const auto& memory = operand.op.ptr;
  *side = {.address = memory.ptr,
           .pitch = memory.rowLength != 0 ? memory.rowLength : box.width,
           .rows = memory.layerHeight != 0 ? memory.layerHeight : box.height};
  return CUDA_SUCCESS;
}

}  // namespace

CopySide host_side(const void* host) {
  return {.type = CU_MEMORYTYPE_HOST, .address = reinterpret_cast<uint64_t>(host)};
}
CopySide device_side(CUdeviceptr device) {
  return {.type = CU_MEMORYTYPE_DEVICE, .address = device};
}
CopySide row_side(CUarray array, size_t offset) {
  return {.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};
}

CUDA_MEMCPY3D copy_between(const CopySide& destination, const CopySide& source,
                           const CopyBox& box) {
  CUDA_MEMCPY3D copy{};
  copy.srcXInBytes = source.x;
  copy.srcY = source.y;
  copy.srcZ = source.z;
  copy.srcLOD = source.level;
  copy.srcMemoryType = source.type;
  if (source.type == CU_MEMORYTYPE_HOST) {
    copy.srcHost = reinterpret_cast<const void*>(source.address);
  } else {
    copy.srcDevice = source.address;
  }
  copy.srcArray = source.array;
  copy.srcPitch = source.pitch;
  copy.srcHeight = source.rows;
  copy.dstXInBytes = destination.x;
  copy.dstY = destination.y;
  copy.dstZ = destination.z;
  copy.dstLOD = destination.level;
  copy.dstMemoryType = destination.type;
  if (destination.type == CU_MEMORYTYPE_HOST) {
    copy.dstHost = reinterpret_cast<void*>(destination.address);
  } else {
    copy.dstDevice = destination.address;
  }
  copy.dstArray = destination.array;
  copy.dstPitch = destination.pitch;
  copy.dstHeight = destination.rows;
  copy.WidthInBytes = box.width;
  copy.Height = box.height;
  copy.Depth = box.depth;
  return copy;
}

CopySide source_of(const CUDA_MEMCPY3D& copy) { return source_of_3d(copy); }
CopySide destination_of(const CUDA_MEMCPY3D& copy) { return destination_of_3d(copy); }

CUDA_MEMCPY3D widen(const CUDA_MEMCPY2D& c) {
  const CopySide source{.type = c.srcMemoryType,
                        .address = address_of(c.srcMemoryType, c.srcHost, c.srcDevice),
                        .array = c.srcArray,
                        .x = c.srcXInBytes,
                        .y = c.srcY,
                        .pitch = c.srcPitch};
  const CopySide destination{.type = c.dstMemoryType,
                             .address = address_of(c.dstMemoryType, c.dstHost, c.dstDevice),
                             .array = c.dstArray,
                             .x = c.dstXInBytes,
                             .y = c.dstY,
                             .pitch = c.dstPitch};
  return copy_between(destination, source, {c.WidthInBytes, c.Height, 1});
}

CUDA_MEMCPY3D without_contexts(const CUDA_MEMCPY3D_PEER& copy) {
  return copy_between(destination_of_3d(copy), source_of_3d(copy),
                      {copy.WidthInBytes, copy.Height, copy.Depth});
}

CUresult read_batched(const CUDA_MEMCPY3D_BATCH_OP& operation, CUDA_MEMCPY3D* copy) {
  const CopyBox box{operation.extent.width, operation.extent.height, operation.extent.depth};
  CopySide source;
  CopySide destination;
  if (const CUresult result = read_operand(operation.src, box, &source); result != CUDA_SUCCESS) {
    return result;
  }
  const CUresult result = read_operand(operation.dst, box, &destination);
  if (result == CUDA_SUCCESS) *copy = copy_between(destination, source, box);
  return result;
}

}  // namespace openmps::cuda
