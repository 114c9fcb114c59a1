// SPDX-License-Identifier: Apache-2.0
// What cuTensorMapEncode* take and refuse, by CUDA's documentation, and what the engine is told.
#include <bit>
#include <cstring>
#include <functional>

#include "device_fixture.h"
#include "softgpu/tensor_map.h"

namespace openmps::softgpu::testing {
namespace {

struct Tiled {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  cuuint32_t rank = 3;
  uint64_t address = 0x1000;
  cuuint64_t sizes[5] = {100, 50, 1ull << 32, 4, 4};
  cuuint64_t strides[4] = {208, 10400, 1600, 3200};
  cuuint32_t box[5] = {64, 8, 256, 2, 2};
  cuuint32_t steps[5] = {1, 2, 8, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

  CUresult encode(CUtensorMap* map) const {
    return cuTensorMapEncodeTiled(map, type, rank, reinterpret_cast<void*>(address), sizes, strides,
                                  box, steps, interleave, swizzle, promotion, fill);
  }
};

using TensorMapTest = DeviceTest;

TEST_F(TensorMapTest, TellsTheEngine) {
  CUtensorMap encoded;
  ASSERT_CU(Tiled().encode(&encoded));
  auto map = std::bit_cast<TensorMap>(encoded);
  EXPECT_EQ(map.magic, kTensorMapMagic);
  EXPECT_EQ(map.element, TensorElement::kF16);
  EXPECT_EQ(map.rank, 3);
  EXPECT_EQ(map.swizzle_bits, 3);
  EXPECT_EQ(map.address, 0x1000u);
  EXPECT_EQ(map.last[0], 99u);
  EXPECT_EQ(map.last[2], UINT32_MAX);
  EXPECT_EQ(map.stride[1], 10400u);
  EXPECT_EQ(map.box[2], 256);
  EXPECT_EQ(map.element_stride[2], 8);
  EXPECT_FALSE(map.im2col);
  ASSERT_CU(cuTensorMapReplaceAddress(&encoded, reinterpret_cast<void*>(0x2000)));
  map = std::bit_cast<TensorMap>(encoded);
  EXPECT_EQ(map.address, 0x2000u);
  EXPECT_EQ(map.rank, 3);
}

TEST_F(TensorMapTest, RefusesWhatTensorMapsCannotBe) {
  CUtensorMap maps[2];
  const auto encode = [&](const std::function<void(Tiled&)>& change) {
    Tiled tiled;
    change(tiled);
    return tiled.encode(maps);
  };
  EXPECT_CU(encode([](Tiled&) {}));
  EXPECT_CU(encode([](Tiled& t) { t.address = 0; }));  // to be replaced
  const std::function<void(Tiled&)> kBad[] = {
      [](Tiled& t) { t.type = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B; },
      [](Tiled& t) { t.rank = 0; },
      [](Tiled& t) { t.rank = 6; },
      [](Tiled& t) { t.address = 0x1008; },
      [](Tiled& t) { t.sizes[1] = 0; },
      [](Tiled& t) { t.sizes[2] = (1ull << 32) + 1; },
      [](Tiled& t) { t.strides[0] = 200; },
      [](Tiled& t) { t.strides[1] = 1ull << 40; },
      [](Tiled& t) { t.box[1] = 0; },
      [](Tiled& t) { t.box[1] = 257; },
      [](Tiled& t) { t.box[0] = 4; },   // rows of 8 bytes
      [](Tiled& t) { t.box[0] = 72; },  // longer than the swizzle's 128
      [](Tiled& t) { t.steps[1] = 0; },
      [](Tiled& t) { t.steps[1] = 9; },
      [](Tiled& t) { t.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B; },
      [](Tiled& t) { t.promotion = static_cast<CUtensorMapL2promotion>(4); },
      [](Tiled& t) { t.fill = static_cast<CUtensorMapFloatOOBfill>(2); },
      [](Tiled& t) {
        t.type = CU_TENSOR_MAP_DATA_TYPE_UINT16;
        t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
      },
  };
  for (size_t i = 0; i < std::size(kBad); ++i) {
    EXPECT_EQ(encode(kBad[i]), CUDA_ERROR_INVALID_VALUE) << "case " << i;
  }
  EXPECT_EQ(encode([](Tiled& t) { t.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; }),
            CUDA_ERROR_NOT_SUPPORTED);
  auto* crooked = reinterpret_cast<CUtensorMap*>(reinterpret_cast<char*>(maps) + 16);
  EXPECT_EQ(Tiled().encode(crooked), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Tiled().encode(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuTensorMapReplaceAddress(maps, reinterpret_cast<void*>(0x2004)),
            CUDA_ERROR_INVALID_VALUE);
  memset(maps, 0, sizeof maps);
  EXPECT_EQ(cuTensorMapReplaceAddress(maps, reinterpret_cast<void*>(0x2000)),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(TensorMapTest, Im2colHasCorners) {
  CUtensorMap encoded;
  const Tiled t;
  const auto encode = [&](int lower, int upper, cuuint32_t channels, cuuint32_t pixels) {
    const int lowers[2] = {lower, lower}, uppers[2] = {upper, upper};
    return cuTensorMapEncodeIm2col(&encoded, t.type, 4, reinterpret_cast<void*>(t.address), t.sizes,
                                   t.strides, lowers, uppers, channels, pixels, t.steps,
                                   t.interleave, t.swizzle, t.promotion, t.fill);
  };
  ASSERT_CU(encode(-1, -2, 64, 1024));
  auto map = std::bit_cast<TensorMap>(encoded);
  EXPECT_TRUE(map.im2col);
  EXPECT_EQ(map.lower[1], -1);
  EXPECT_EQ(map.upper[0], -2);
  EXPECT_EQ(map.box[0], 64);
  EXPECT_EQ(map.pixels, 1024);
  EXPECT_CU(encode(-128, 127, 64, 1));
  EXPECT_EQ(encode(-129, 0, 64, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(encode(0, 128, 64, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(encode(0, 0, 257, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(encode(0, 0, 64, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(encode(0, 0, 64, 1025), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace openmps::softgpu::testing
