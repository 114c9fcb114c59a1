// SPDX-License-Identifier: Apache-2.0
// Formats of texels, and descriptions of arrays. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda/abi.h"

namespace openmps::cuda {

enum class ChannelKind : uint8_t { kUnsigned, kSigned, kFloat };

struct Channel {
  ChannelKind kind = ChannelKind::kUnsigned;
  uint32_t bytes = 1;  // 1, 2, 4; of floating point 2, 4
};

// Of the eight basic formats, in which all channels of a texel are alike. Nothing: another format.
[[nodiscard]] std::optional<Channel> channel_of(CUarray_format format);

// Of a basic format, or of its normalised kin, which name their channels themselves. 0: others,
// whose texels are not of one size.
[[nodiscard]] uint64_t texel_bytes(CUarray_format format, unsigned channels);

[[nodiscard]] inline CUDA_ARRAY3D_DESCRIPTOR widen(const CUDA_ARRAY_DESCRIPTOR& array) {
  return {array.Width, array.Height, 0, array.Format, array.NumChannels, 0};
}
[[nodiscard]] inline CUDA_ARRAY_DESCRIPTOR narrow(const CUDA_ARRAY3D_DESCRIPTOR& array) {
  return {array.Width, array.Height, array.Format, array.NumChannels};
}

}  // namespace openmps::cuda
