// SPDX-License-Identifier: Apache-2.0
// The 128 bytes of a tensor map as softgpu writes them: what the bulk copies of a tensor's boxes
// read. Made by the front (cuTensorMapEncode*), read by the engine from a kernel's memory, where a
// program may have overwritten them. GPUs have a format of their own, which is not documented.
#pragma once

#include <cstdint>

namespace openmps::softgpu {

inline constexpr uint32_t kMaxTensorRank = 5;
inline constexpr uint32_t kMaxBoxDimension = 256;      // elements, by CUDA's documentation
inline constexpr uint32_t kMaxElementStride = 8;       // by CUDA's documentation
inline constexpr uint32_t kMaxPixelsPerColumn = 1024;  // by CUDA's documentation
inline constexpr uint32_t kTensorMapMagic = 0x70614d54;

enum class TensorElement : uint8_t {
  kU8,
  kU16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF16,
  kF32,
  kF64,
  kBF16,
  kF32Ftz,
  kTF32,
  kTF32Ftz,
};
inline uint32_t tensor_element_bytes(TensorElement element) {
  switch (element) {
    case TensorElement::kU8: return 1;
    case TensorElement::kU16:
    case TensorElement::kF16:
    case TensorElement::kBF16: return 2;
    case TensorElement::kU64:
    case TensorElement::kS64:
    case TensorElement::kF64: return 8;
    default: return 4;
  }
}

// Dimension 0 is the innermost, whose elements lie side by side.
struct TensorMap {
  uint32_t magic = 0;
  TensorElement element = TensorElement::kU8;
  uint8_t rank = 0;
  uint8_t swizzle_bits = 0;  // address bits that are exchanged: 0 to 3 for none, 32, 64, 128 bytes
  bool fill_nan = false;     // what lies outside of the tensor; else zero
  uint64_t address = 0;
  uint64_t stride[kMaxTensorRank - 1] = {};     // bytes; of dimension i + 1
  uint32_t last[kMaxTensorRank] = {};           // index in each dimension: its size is up to 2^32
  uint16_t box[kMaxTensorRank] = {};            // elements
  uint8_t element_stride[kMaxTensorRank] = {};  // 1: every element of the tensor
  // im2col: the walk over pixels goes from `lower` to the tensor's last pixel plus `upper`.
  bool im2col = false;
  int16_t lower[kMaxTensorRank - 2] = {}, upper[kMaxTensorRank - 2] = {};
  uint16_t pixels = 0;  // box[0] is the number of channels
  uint8_t unused[26] = {};
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace openmps::softgpu
