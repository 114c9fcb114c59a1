// SPDX-License-Identifier: Apache-2.0
// Faults that the driver tells of after some time, and injected ones. A process of its own, which
// reads its variables once.
#include "softgpu/device/machine/faults.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "device_fixture.h"
#include "softgpu/device/machine/segment.h"

namespace openmps::softgpu::testing {
namespace {

constexpr size_t kUnit = 2 << 20;

// The Xid tells the test that the fault has happened; between it and the report the test has a
// second for what it does.
[[maybe_unused]] const int latency =
    setenv("SOFTGPU_FAULT_LATENCY_US",
           "misaligned:1000000/2000,range:1200000/2000,trap:1000000/2000/hold", 1);
[[maybe_unused]] const int injection = setenv("SOFTGPU_FAULT", "another:2:instruction", 1);

std::string segment() { return "softgpu-unit-" + std::to_string(getpid()) + "-0"; }

class FaultTest : public DeviceTest {
 protected:
  static void await_xid(FaultReader& reader, uint32_t expected) {
    for (;;) {
      const auto xid = reader.next();
      if (!xid.has_value()) {
        usleep(200);
        continue;
      }
      EXPECT_EQ(*xid, expected);
      return;
    }
  }
};

TEST_F(FaultTest, AnSmFaultStopsEverythingAtOnceAndIsToldLater) {
  uint32_t* word = words(4);
  CUevent ended = event();
  CUstream good = stream();
  launch(good, FakeAction::kAdd, address_of(word), 1);
  ASSERT_CU(cuEventRecord(ended, good));
  ASSERT_CU(cuStreamSynchronize(good));
  CUstream running = stream();
  launch(running, FakeAction::kWait, address_of(word + 1), 1);
  ASSERT_CU(cuStreamWriteValue32_v2(running, address_of(word + 2), 1, 0));
  CUstream faulty = stream();

  FaultReader reader(segment());
  launch(faulty, FakeAction::kFault, 0, CUDA_ERROR_MISALIGNED_ADDRESS);
  await_xid(reader, 13);
  // The device is others' from here on.
  auto other = DeviceSegment::attach(segment(), 0);
  ASSERT_TRUE(other.ok());
  while (!(*other)->try_acquire()) usleep(200);
  // Nobody has been told, and nothing of the process runs: neither what would end now, nor what is
  // new.
  store(word + 1, 1);
  launch(good, FakeAction::kAdd, address_of(word + 3), 1);
  EXPECT_CU(cuEventQuery(ended));
  EXPECT_EQ(cuStreamQuery(faulty), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(running), CUDA_ERROR_NOT_READY);

  EXPECT_EQ(cuStreamSynchronize(faulty), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(cuStreamQuery(running), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(cuEventQuery(ended), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
  (*other)->release();
  EXPECT_EQ(load(word), 1u);
  EXPECT_EQ(load(word + 2), 0u);
  EXPECT_EQ(load(word + 3), 0u);
}

TEST_F(FaultTest, AThreadThatSubmitsMayReturnWithTheReportOnly) {
  uint32_t* word = words(1);
  CUstream other = stream();
  CUstream faulty = stream();
  FaultReader reader(segment());
  launch(faulty, FakeAction::kFault, 0, CUDA_ERROR_LAUNCH_FAILED);
  await_xid(reader, 43);
  EXPECT_EQ(cuStreamQuery(faulty), CUDA_ERROR_NOT_READY);
  launch(other, FakeAction::kAdd, address_of(word), 1);
  EXPECT_EQ(cuStreamQuery(faulty), CUDA_ERROR_LAUNCH_FAILED) << "it has been told meanwhile";
  EXPECT_EQ(load(word), 0u);
}

TEST_F(FaultTest, OthersRunOnAfterAnAccessOutOfRange) {
  uint32_t* word = words(1);
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ASSERT_CU(cuMemCreate(&handle, kUnit, &prop, 0));
  CUdeviceptr address = 0;
  ASSERT_CU(cuMemAddressReserve(&address, kUnit, 0, 0, 0));
  ASSERT_CU(cuMemMap(address, kUnit, 0, handle, 0));
  CUstream faulty = stream();
  CUstream other = stream();

  FaultReader reader(segment());
  launch(faulty, FakeAction::kAdd, 0x1000, 1);
  await_xid(reader, 31);
  launch(other, FakeAction::kAdd, address_of(word), 1);
  EXPECT_CU(cuStreamSynchronize(other));
  EXPECT_EQ(load(word), 1u);
  EXPECT_EQ(cuStreamQuery(faulty), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamSynchronize(faulty), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuStreamSynchronize(other), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(reader.next().has_value()) << "one fault, one Xid";

  // Memory can be exported and unmapped in a process whose contexts have failed.
  int descriptor = -1;
  EXPECT_CU(cuMemExportToShareableHandle(&descriptor, handle,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT_EQ(close(descriptor), 0);
  EXPECT_CU(cuMemUnmap(address, kUnit));
  EXPECT_CU(cuMemRelease(handle));
  EXPECT_CU(cuMemAddressFree(address, kUnit));
}

TEST_F(FaultTest, OneLaunchOfAKernelFaultsWithoutCause) {
  FaultReader reader(segment());
  uint32_t* word = words(1);
  CUfunction another = function("another");
  for (uint32_t i = 1; i < 3; ++i) {
    launch(nullptr, FakeAction::kAdd, address_of(word), 1);
    ASSERT_CU(try_launch(another, nullptr, {FakeAction::kAdd, address_of(word), 1}));
    EXPECT_EQ(cuCtxSynchronize(), i == 1 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_INSTRUCTION);
  }
  EXPECT_EQ(load(word), 3u) << "the second launch has done nothing";
  EXPECT_EQ(reader.next(), 13u);
}

TEST(FaultSettingsTest, AreRead) {
  FaultSettings settings;
  ASSERT_TRUE(settings.read_delays("trap:700000/14000/hold,assert:0/12000,range:5"));
  EXPECT_EQ(settings.delays_of(CUDA_ERROR_LAUNCH_FAILED).report_ns, 700'000'000u);
  EXPECT_EQ(settings.delays_of(CUDA_ERROR_LAUNCH_FAILED).xid_ns, 14'000'000u);
  EXPECT_TRUE(settings.delays_of(CUDA_ERROR_LAUNCH_FAILED).holds);
  EXPECT_FALSE(settings.delays_of(CUDA_ERROR_ASSERT).holds);
  EXPECT_EQ(settings.delays_of(CUDA_ERROR_ASSERT).report_ns, 0u);
  EXPECT_EQ(settings.delays_of(CUDA_ERROR_ASSERT).xid_ns, 12'000'000u);
  EXPECT_EQ(settings.delays_of(CUDA_ERROR_ILLEGAL_ADDRESS).xid_ns, 5'000u);
  EXPECT_EQ(settings.delays_of(CUDA_ERROR_MISALIGNED_ADDRESS).report_ns, 0u);
  ASSERT_TRUE(settings.read_injection("scale:3:range"));
  EXPECT_EQ(settings.injected_kernel, "scale");
  EXPECT_EQ(settings.injected_launch, 3u);
  EXPECT_EQ(settings.injected_code, CUDA_ERROR_ILLEGAL_ADDRESS);
  for (const char* wrong : {"trap", "trap:", "trap:1/", "trap:-1", "trap:1x", "fire:1", "trap:1,,",
                            "trap:99999999999", "trap:1/1/x"}) {
    EXPECT_FALSE(settings.read_delays(wrong)) << wrong;
  }
  for (const char* wrong : {"scale", "scale:0:trap", "scale:1:", ":1:trap", "scale:x:trap"}) {
    EXPECT_FALSE(settings.read_injection(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace openmps::softgpu::testing
