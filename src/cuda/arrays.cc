// SPDX-License-Identifier: Apache-2.0
// Formats of texels. See arrays.h.
#include "cuda/arrays.h"

namespace openmps::cuda {

std::optional<Channel> channel_of(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8: return Channel{ChannelKind::kUnsigned, 1};
    case CU_AD_FORMAT_UNSIGNED_INT16: return Channel{ChannelKind::kUnsigned, 2};
    case CU_AD_FORMAT_UNSIGNED_INT32: return Channel{ChannelKind::kUnsigned, 4};
    case CU_AD_FORMAT_SIGNED_INT8: return Channel{ChannelKind::kSigned, 1};
    case CU_AD_FORMAT_SIGNED_INT16: return Channel{ChannelKind::kSigned, 2};
    case CU_AD_FORMAT_SIGNED_INT32: return Channel{ChannelKind::kSigned, 4};
    case CU_AD_FORMAT_HALF: return Channel{ChannelKind::kFloat, 2};
    case CU_AD_FORMAT_FLOAT: return Channel{ChannelKind::kFloat, 4};
    default: return std::nullopt;
  }
}

uint64_t texel_bytes(CUarray_format format, unsigned channels) {
  if (const auto channel = channel_of(format)) return uint64_t{channel->bytes} * channels;
  switch (format) {
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1: return 1;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1: return 2;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2: return 4;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4: return 8;
    default: return 0;
  }
}

}  // namespace openmps::cuda
