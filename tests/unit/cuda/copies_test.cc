// SPDX-License-Identifier: Apache-2.0
// Boxes and copies: overflows are noticed, the structures of all copy calls convert to the same
// copy, texels have the sizes that CUDA documents.
#include "cuda/copies.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cuda/arrays.h"
#include "cuda/box.h"

namespace openmps::cuda {
namespace {

TEST(Box, SpansFromItsFirstByteToItsLast) {
  EXPECT_EQ(span_of_box(10, 1, 1, 0, 0), 10u);
  EXPECT_EQ(span_of_box(10, 3, 1, 16, 0), 42u);
  EXPECT_EQ(span_of_box(10, 3, 2, 16, 64), 106u);
  for (const auto& [width, height, depth] : {std::array{0, 3, 2}, {10, 0, 2}, {10, 3, 0}}) {
    EXPECT_EQ(span_of_box(width, height, depth, 16, 64), 0u);
  }
}

TEST(Box, OverflowsAreReported) {
  constexpr uint64_t kHalf = 1ull << 63;
  EXPECT_EQ(span_of_box(1, 3, 1, kHalf, 0), kTooManyBytes) << "rows";
  EXPECT_EQ(span_of_box(1, 1, 3, 0, kHalf), kTooManyBytes) << "slices";
  EXPECT_EQ(span_of_box(1, 2, 2, kHalf, kHalf), kTooManyBytes) << "both";
  EXPECT_EQ(span_of_box(kHalf, 2, 1, kHalf, 0), kTooManyBytes) << "the last row";
  EXPECT_EQ(span_of_box(1, 2, 1, kHalf, 0), kHalf + 1);
  EXPECT_EQ(bytes_of_row(kHalf, 2), kTooManyBytes);
  EXPECT_EQ(bytes_of_row(kHalf / 2, 2), kHalf);
}

TEST(Copies, SidesSurviveTheConversionToAStructure) {
  int host = 0;
  auto* const array = reinterpret_cast<CUarray>(0x77);
  const CopySide from{.type = CU_MEMORYTYPE_HOST,
                      .address = reinterpret_cast<uint64_t>(&host),
                      .x = 1,
                      .y = 2,
                      .z = 3,
                      .pitch = 64,
                      .rows = 9};
  const CopySide to{
      .type = CU_MEMORYTYPE_ARRAY, .array = array, .x = 4, .y = 5, .z = 6, .level = 1};
  const CUDA_MEMCPY3D copy = copy_between(to, from, {16, 7, 2});
  EXPECT_EQ(copy.srcHost, &host);
  EXPECT_EQ(copy.srcDevice, 0u);
  EXPECT_EQ(copy.dstArray, array);
  const auto same = [](const CopySide& one, const CopySide& other) {
    return one.type == other.type && one.address == other.address && one.array == other.array &&
           one.x == other.x && one.y == other.y && one.z == other.z && one.pitch == other.pitch &&
           one.rows == other.rows && one.level == other.level;
  };
  EXPECT_TRUE(same(source_of(copy), from));
  EXPECT_TRUE(same(destination_of(copy), to));
  EXPECT_EQ(box_of(copy).width, 16u);
  EXPECT_EQ(box_of(copy).height, 7u);
  EXPECT_EQ(box_of(copy).depth, 2u);
}

TEST(Copies, NoPitchMeansNoGaps) {
  const CopySide tight{.x = 4, .y = 2};
  EXPECT_EQ(tight.pitch_of({16, 7, 2}), 20u);
  EXPECT_EQ(tight.rows_of({16, 7, 2}), 9u);
  const CopySide wide{.x = 4, .y = 2, .pitch = 128, .rows = 32};
  EXPECT_EQ(wide.pitch_of({16, 7, 2}), 128u);
  EXPECT_EQ(wide.rows_of({16, 7, 2}), 32u);
}

// CUDA_MEMCPY2D and CUDA_MEMCPY3D_PEER, field by field, as CUDA_MEMCPY3D.
TEST(Copies, OtherStructuresConvert) {
  CUDA_MEMCPY2D flat{};
  flat.srcXInBytes = 1;
  flat.srcY = 2;
  flat.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.srcDevice = 0x1000;
  flat.srcPitch = 64;
  flat.dstXInBytes = 3;
  flat.dstY = 4;
  flat.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  flat.dstDevice = 0x2000;
  flat.dstPitch = 128;
  flat.WidthInBytes = 16;
  flat.Height = 7;
  CUDA_MEMCPY3D wanted{};
  wanted.srcXInBytes = 1;
  wanted.srcY = 2;
  wanted.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  wanted.srcDevice = 0x1000;
  wanted.srcPitch = 64;
  wanted.dstXInBytes = 3;
  wanted.dstY = 4;
  wanted.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  wanted.dstDevice = 0x2000;
  wanted.dstPitch = 128;
  wanted.WidthInBytes = 16;
  wanted.Height = 7;
  wanted.Depth = 1;
  const auto equal = [&wanted](const CUDA_MEMCPY3D& copy) {
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): all bytes have to be equal.
    return memcmp(&copy, &wanted, sizeof(copy)) == 0;
  };
  EXPECT_TRUE(equal(widen(flat)));

  CUDA_MEMCPY3D_PEER peer{};
  static_assert(sizeof(peer) == sizeof(wanted));
  wanted.srcZ = 5;
  wanted.dstZ = 6;
  wanted.srcHeight = 8;
  wanted.dstHeight = 9;
  wanted.Depth = 2;
  memcpy(&peer, &wanted, sizeof(peer));
  peer.srcContext = peer.dstContext = reinterpret_cast<CUcontext>(0x55);
  EXPECT_TRUE(equal(without_contexts(peer)));
}

TEST(Copies, OperandsOfBatchesAreMemory) {
  CUDA_MEMCPY3D_BATCH_OP operation{};
  operation.extent = {16, 7, 2};
  operation.src.type = operation.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operation.src.op.ptr = {0x1000, 0, 0, {}};
  operation.dst.op.ptr = {0x2000, 64, 32, {}};
  CUDA_MEMCPY3D copy{};
  ASSERT_EQ(read_batched(operation, &copy), CUDA_SUCCESS);
  EXPECT_EQ(copy.srcMemoryType, CU_MEMORYTYPE_UNIFIED);
  EXPECT_EQ(copy.srcDevice, 0x1000u);
  EXPECT_EQ(copy.srcPitch, 16u);
  EXPECT_EQ(copy.srcHeight, 7u);
  EXPECT_EQ(copy.dstDevice, 0x2000u);
  EXPECT_EQ(copy.dstPitch, 64u);
  EXPECT_EQ(copy.dstHeight, 32u);
  EXPECT_EQ(copy.Depth, 2u);
  operation.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  EXPECT_EQ(read_batched(operation, &copy), CUDA_ERROR_NOT_SUPPORTED);
  operation.src.type = CU_MEMCPY_OPERAND_TYPE_MAX;
  EXPECT_EQ(read_batched(operation, &copy), CUDA_ERROR_INVALID_VALUE);
}

TEST(Arrays, TexelsHaveTheSizeOfTheirChannels) {
  EXPECT_EQ(texel_bytes(CU_AD_FORMAT_SIGNED_INT8, 4), 4u);
  EXPECT_EQ(texel_bytes(CU_AD_FORMAT_HALF, 2), 4u);
  EXPECT_EQ(texel_bytes(CU_AD_FORMAT_FLOAT, 4), 16u);
  EXPECT_EQ(texel_bytes(CU_AD_FORMAT_UNORM_INT16X4, 4), 8u);
  EXPECT_EQ(texel_bytes(CU_AD_FORMAT_BC1_UNORM, 4), 0u);
  EXPECT_EQ(channel_of(CU_AD_FORMAT_HALF)->kind, ChannelKind::kFloat);
  EXPECT_EQ(channel_of(CU_AD_FORMAT_UNSIGNED_INT16)->bytes, 2u);
  EXPECT_FALSE(channel_of(CU_AD_FORMAT_UNORM_INT8X1).has_value());
}

TEST(Arrays, DescriptorsConvertTo3DAndBack) {
  const CUDA_ARRAY_DESCRIPTOR flat{64, 32, CU_AD_FORMAT_FLOAT, 2};
  const CUDA_ARRAY3D_DESCRIPTOR wide = widen(flat);
  EXPECT_EQ(wide.Depth, 0u);
  EXPECT_EQ(wide.Flags, 0u);
  const CUDA_ARRAY_DESCRIPTOR back = narrow(wide);
  EXPECT_EQ(back.Width, 64u);
  EXPECT_EQ(back.Height, 32u);
  EXPECT_EQ(back.Format, CU_AD_FORMAT_FLOAT);
  EXPECT_EQ(back.NumChannels, 2u);
}

}  // namespace
}  // namespace openmps::cuda
