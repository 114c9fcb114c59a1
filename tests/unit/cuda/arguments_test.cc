// SPDX-License-Identifier: Apache-2.0
// Arguments of driver calls: versions of structures, stream memory operations, the launch calls
// before cuLaunchKernel, devices.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/devices.h"
#include "cuda/old_launch.h"
#include "cuda/stream_values.h"
#include "cuda/versions.h"

namespace openmps::cuda {
namespace {

TEST(Versions, AnEarlierVersionIsAPrefixOfALaterOne) {
  CUDA_KERNEL_NODE_PARAMS_v1 narrow{};
  narrow.func = reinterpret_cast<CUfunction>(0x11);
  narrow.sharedMemBytes = 64;
  narrow.extra = reinterpret_cast<void**>(0x22);
  auto wide = as_version<CUDA_KERNEL_NODE_PARAMS_v2>(narrow);
  EXPECT_EQ(wide.func, narrow.func);
  EXPECT_EQ(wide.sharedMemBytes, 64u);
  EXPECT_EQ(wide.extra, narrow.extra);
  EXPECT_EQ(wide.kern, nullptr);
  EXPECT_EQ(wide.ctx, nullptr);
  wide.kern = reinterpret_cast<CUkernel>(0x33);
  EXPECT_EQ(as_version<CUDA_KERNEL_NODE_PARAMS_v1>(wide).extra, narrow.extra);
}

TEST(StreamValues, AreReadAsTheyWereWritten) {
  using Kind = StreamValue::Kind;
  for (const Kind kind : {Kind::kWait, Kind::kWrite}) {
    for (const uint32_t bytes : {4u, 8u}) {
      const StreamValue read =
          read_stream_value(operation_of({kind, bytes, 0x1000, 0x1'0000'0007, 1}));
      EXPECT_EQ(read.kind, kind);
      EXPECT_EQ(read.bytes, bytes);
      EXPECT_EQ(read.address, 0x1000u);
      EXPECT_EQ(read.value, bytes == 4 ? 7u : 0x1'0000'0007u);
      EXPECT_EQ(read.flags, 1u);
    }
  }
  EXPECT_EQ(operation_of({Kind::kWait, 8, 0, 0, 0}).operation, CU_STREAM_MEM_OP_WAIT_VALUE_64);
  EXPECT_EQ(operation_of({Kind::kWrite, 4, 0, 0, 0}).operation, CU_STREAM_MEM_OP_WRITE_VALUE_32);
  const StreamValue barrier = read_stream_value(operation_of({Kind::kBarrier, 4, 0, 0, 1}));
  EXPECT_EQ(barrier.kind, Kind::kBarrier);
  EXPECT_EQ(barrier.flags, 1u);
  CUstreamBatchMemOpParams other{};
  other.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
  EXPECT_EQ(read_stream_value(other).kind, Kind::kFlush);
  other.operation = static_cast<CUstreamBatchMemOpType>(99);
  EXPECT_EQ(read_stream_value(other).kind, Kind::kUnknown);
}

TEST(OldLaunch, KeepsTheSettingsForTheNextLaunch) {
  OldLaunch launch;
  EXPECT_EQ(launch.set_block(8, 4, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch.set_block(8, 4, 2), CUDA_SUCCESS);
  EXPECT_EQ(launch.set_shared(64), CUDA_SUCCESS);
  EXPECT_EQ(launch.set_shared(kMostSharedBytes + 1), CUDA_ERROR_INVALID_VALUE);
  const uint32_t value = 7;
  EXPECT_EQ(launch.set_parameter(4, &value, sizeof(value)), CUDA_SUCCESS);
  EXPECT_EQ(launch.set_parameter(-1, &value, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch.set_parameter(0, nullptr, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch.set_parameter(kMostParameterBytes - 3, &value, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch.set_size(kMostParameterBytes + 1), CUDA_ERROR_INVALID_VALUE);
  const auto call = [](CUfunction, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared, CUstream, void** pointers, void** extra) {
    EXPECT_EQ((std::vector{gx, gy, gz, bx, by, bz, shared}),
              (std::vector{3u, 5u, 1u, 8u, 4u, 2u, 64u}));
    EXPECT_EQ(pointers, nullptr);
    if (extra == nullptr) return CUDA_ERROR_NOT_READY;
    EXPECT_EQ(*static_cast<size_t*>(extra[3]), 8u);
    EXPECT_EQ(static_cast<uint32_t*>(extra[1])[1], 7u);
    EXPECT_EQ(extra[4], CU_LAUNCH_PARAM_END);
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(launch.launch(nullptr, 3, 5, nullptr, call), CUDA_ERROR_NOT_READY)
      << "no parameters are passed before cuParamSetSize";
  EXPECT_EQ(launch.set_parameter(4, &value, sizeof(value)), CUDA_SUCCESS);
  EXPECT_EQ(launch.set_size(8), CUDA_SUCCESS);
  EXPECT_EQ(launch.launch(nullptr, 3, 5, nullptr, call), CUDA_SUCCESS);
  EXPECT_EQ(launch.launch(nullptr, 0, 5, nullptr, call), CUDA_ERROR_INVALID_VALUE);
}

TEST(Devices, PciAddressesHaveAnOptionalDomain) {
  EXPECT_EQ(parse_pci_address("0001:0A:1f.0"), (PciAddress{1, 0x0a, 0x1f}));
  EXPECT_EQ(parse_pci_address("0a:00"), (PciAddress{0, 0x0a, 0}));
  EXPECT_FALSE(parse_pci_address("0a").has_value());
  EXPECT_FALSE(parse_pci_address("").has_value());
}

TEST(Devices, PropertiesAreAttributes) {
  const CUdevprop properties = properties_of([](CUdevice_attribute which) { return 1000 + which; });
  EXPECT_EQ(properties.maxThreadsDim[2], 1000 + CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  EXPECT_EQ(properties.maxGridSize[1], 1000 + CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  EXPECT_EQ(properties.textureAlign, 1000 + CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
}

// The words behind a narrow attribute are not written.
TEST(Devices, AttributesOfUnknownPointersAreCleared) {
  uint32_t words[2] = {7, 7};
  clear_pointer_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, words);
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1], 7u);
  clear_pointer_attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, words);
  EXPECT_EQ(static_cast<CUdevice>(words[0]), CU_DEVICE_INVALID);
  EXPECT_EQ(words[1], 7u);
  clear_pointer_attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, words);
  EXPECT_EQ(words[1], 0u);
}

}  // namespace
}  // namespace openmps::cuda
