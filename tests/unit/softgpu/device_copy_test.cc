// SPDX-License-Identifier: Apache-2.0
// Copies and fills of every shape, and ranges that do not fit.
#include "device_fixture.h"

#include <numeric>
#include <vector>

namespace openmps::softgpu::testing {
namespace {

class CopyTest : public DeviceTest {
 protected:
  CUdeviceptr device(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_CU(cuMemAlloc_v2(&address, bytes));
    return address;
  }
  static std::vector<uint8_t> pattern(size_t bytes) {
    std::vector<uint8_t> data(bytes);
    std::iota(data.begin(), data.end(), uint8_t{1});
    return data;
  }
  static std::vector<uint8_t> read(CUdeviceptr from, size_t bytes) {
    std::vector<uint8_t> data(bytes);
    EXPECT_CU(cuMemcpyDtoH_v2(data.data(), from, bytes));
    return data;
  }
};

TEST_F(CopyTest, RoundTripsOfManySizes) {
  for (size_t bytes : {1ul, 7ul, 4096ul, 65536ul, 65537ul, 1ul << 20}) {
    auto data = pattern(bytes);
    CUdeviceptr a = device(bytes);
    CUdeviceptr b = device(bytes);
    EXPECT_CU(cuMemcpyHtoD_v2(a, data.data(), bytes));
    EXPECT_CU(cuMemcpyDtoD_v2(b, a, bytes));
    EXPECT_EQ(read(b, bytes), data);
    EXPECT_CU(cuMemFree_v2(a));
    EXPECT_CU(cuMemFree_v2(b));
  }
}

TEST_F(CopyTest, SmallPageableSourceMayChangeAfterTheCall) {
  uint32_t* word = words(1);
  CUdeviceptr target = device(64);
  CUstream s = stream();
  launch(s, FakeAction::kWait, address_of(word), 1);
  auto data = pattern(64);
  auto copy = data;
  EXPECT_CU(cuMemcpyHtoDAsync_v2(target, copy.data(), 64, s));
  std::fill(copy.begin(), copy.end(), uint8_t{0});
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(read(target, 64), data);
}

TEST_F(CopyTest, PageableTargetIsCompleteAtReturn) {
  CUdeviceptr source = device(1 << 20);
  EXPECT_CU(cuMemsetD8_v2(source, 9, 1 << 20));
  EXPECT_CU(cuCtxSynchronize());  // the fill has only begun
  std::vector<uint8_t> data(1 << 20);
  EXPECT_CU(cuMemcpyDtoHAsync_v2(data.data(), source, data.size(), stream()));
  EXPECT_EQ(data, std::vector<uint8_t>(1 << 20, 9));
}

TEST_F(CopyTest, PinnedCopiesAreAsynchronous) {
  uint32_t* word = words(1);
  void* host = nullptr;
  ASSERT_CU(cuMemHostAlloc(&host, 4096, 0));
  CUdeviceptr source = device(4096);
  EXPECT_CU(cuMemsetD8_v2(source, 3, 4096));
  EXPECT_CU(cuCtxSynchronize());
  CUstream s = stream();
  launch(s, FakeAction::kWait, address_of(word), 1);
  *static_cast<uint8_t*>(host) = 0;
  EXPECT_CU(cuMemcpyDtoHAsync_v2(host, source, 4096, s));
  EXPECT_EQ(*static_cast<uint8_t*>(host), 0);
  store(word, 1);
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(static_cast<uint8_t*>(host)[4095], 3);
  EXPECT_CU(cuMemFreeHost(host));
}

TEST_F(CopyTest, RangesMustFitTheirAllocation) {
  CUdeviceptr target = device(1000);
  std::vector<uint8_t> data(2000);
  EXPECT_EQ(cuMemcpyHtoD_v2(target, data.data(), 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD_v2(target + 500, data.data(), 501), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH_v2(data.data(), target, 2000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH_v2(data.data(), target + 5000000, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD_v2(0, data.data(), 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD_v2(target, nullptr, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD_v2(target, data.data(), SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8_v2(target, 0, 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32_v2(target + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemcpyHtoD_v2(target, data.data(), 1000));
  EXPECT_CU(cuMemcpyHtoD_v2(target, data.data(), 0));
}

TEST_F(CopyTest, TwoDimensions) {
  constexpr size_t kRow = 5;
  constexpr size_t kRows = 4;
  CUdeviceptr target = 0;
  size_t pitch = 0;
  ASSERT_CU(cuMemAllocPitch_v2(&target, &pitch, kRow, kRows, 4));
  auto data = pattern(kRow * kRows);
  CUDA_MEMCPY2D to = {};
  to.srcMemoryType = CU_MEMORYTYPE_HOST;
  to.srcHost = data.data();
  to.srcPitch = kRow;
  to.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  to.dstDevice = target;
  to.dstPitch = pitch;
  to.WidthInBytes = kRow;
  to.Height = kRows;
  EXPECT_CU(cuMemcpy2D_v2(&to));
  EXPECT_EQ(read(target + 2 * pitch, kRow),
            std::vector<uint8_t>(data.begin() + 2 * kRow, data.begin() + 3 * kRow));
  // Back, one row and one column less, by unified pointers.
  std::vector<uint8_t> back((kRow - 1) * (kRows - 1));
  CUDA_MEMCPY2D from = {};
  from.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  from.srcDevice = target;
  from.srcPitch = pitch;
  from.srcXInBytes = 1;
  from.srcY = 1;
  from.dstMemoryType = CU_MEMORYTYPE_HOST;
  from.dstHost = back.data();
  from.dstPitch = kRow - 1;
  from.WidthInBytes = kRow - 1;
  from.Height = kRows - 1;
  EXPECT_CU(cuMemcpy2DAsync_v2(&from, stream()));
  EXPECT_EQ(back[0], data[kRow + 1]);
  EXPECT_EQ(back.back(), data.back());
  from.srcPitch = 3;
  EXPECT_EQ(cuMemcpy2D_v2(&from), CUDA_ERROR_INVALID_VALUE);
  from.srcPitch = pitch;
  from.Height = kRows + 1;
  EXPECT_EQ(cuMemcpy2D_v2(&from), CUDA_ERROR_INVALID_VALUE);
  from.Height = 1;
  from.srcMemoryType = CU_MEMORYTYPE_ARRAY;  // and none is named
  EXPECT_EQ(cuMemcpy2D_v2(&from), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyTest, ThreeDimensions) {
  // 3 planes of 2 rows of 4 bytes out of a 5 x 3 x 3 volume.
  auto data = pattern(5 * 3 * 3);
  CUdeviceptr target = device(4 * 2 * 3);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = data.data();
  copy.srcPitch = 5;
  copy.srcHeight = 3;
  copy.srcXInBytes = 1;
  copy.srcY = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = target;
  copy.dstPitch = 4;
  copy.dstHeight = 2;
  copy.WidthInBytes = 4;
  copy.Height = 2;
  copy.Depth = 3;
  EXPECT_CU(cuMemcpy3D_v2(&copy));
  auto got = read(target, 24);
  for (size_t z = 0; z < 3; ++z) {
    for (size_t y = 0; y < 2; ++y) {
      for (size_t x = 0; x < 4; ++x) {
        EXPECT_EQ(got[(z * 2 + y) * 4 + x], data[(z * 3 + y + 1) * 5 + x + 1]);
      }
    }
  }
  copy.Depth = 4;
  EXPECT_EQ(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyTest, FillsOfAllElements) {
  CUdeviceptr target = device(4096);
  CUstream s = stream();
  EXPECT_CU(cuMemsetD8Async(target, 0, 4096, s));
  EXPECT_CU(cuMemsetD16Async(target, 0x1234, 3, s));
  EXPECT_CU(cuMemsetD2D32Async(target + 1024, 512, 0x01020304, 2, 3, s));
  EXPECT_CU(cuStreamSynchronize(s));
  auto got = read(target, 4096);
  EXPECT_EQ(got[4], 0x34);
  EXPECT_EQ(got[6], 0);
  EXPECT_EQ(got[1024 + 512 * 2 + 7], 1);
  EXPECT_EQ(got[1024 + 512 * 2 + 8], 0);
  EXPECT_EQ(cuMemsetD2D8_v2(target, 2, 0, 3, 2), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace openmps::softgpu::testing
