// SPDX-License-Identifier: Apache-2.0
// The limits of the shared context as a client sees them: raised where that takes effect for its
// kernels, refused where not, never lowered under the others; and what the daemon's environment
// sets.
#include <cstdlib>

#include "session_fixture.h"
#include "worker/device/start_limits.h"

namespace openmps::worker {
namespace {

class LimitsTest : public SessionFixture {
 protected:
  CUresult raise(CUlimit limit, uint64_t value) {
    return send(wire::LimitRaise{0, static_cast<uint32_t>(limit), value}).code();
  }
  uint64_t get(CUlimit limit) {
    const Status status = send(wire::LimitGet{0, static_cast<uint32_t>(limit)});
    EXPECT_TRUE(status.ok()) << status.message();
    return reply<uint64_t>();
  }
};

TEST_F(LimitsTest, ARaisedLimitIsTheContexts) {
  EXPECT_EQ(get(CU_LIMIT_MALLOC_HEAP_SIZE), 8u << 20);
  EXPECT_FALSE(session_->core.is_tainted());
  EXPECT_EQ(raise(CU_LIMIT_MALLOC_HEAP_SIZE, 32 << 20), CUDA_SUCCESS);
  EXPECT_EQ(driver_.limits[CU_LIMIT_MALLOC_HEAP_SIZE], 32u << 20);
  EXPECT_EQ(get(CU_LIMIT_MALLOC_HEAP_SIZE), 32u << 20);
  EXPECT_EQ(raise(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  EXPECT_EQ(get(CU_LIMIT_STACK_SIZE), 4096u);
  EXPECT_TRUE(session_->core.is_tainted()) << "the next client finds less memory";
}

TEST_F(LimitsTest, LaunchesThatWaitAreRaisedAndCounted) {
  EXPECT_EQ(raise(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 1024), CUDA_SUCCESS);
  EXPECT_EQ(get(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT), 2048u) << "never lowered";
  EXPECT_EQ(session_->memory.granted(0), 0u);
  EXPECT_EQ(raise(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2050), CUDA_SUCCESS);
  EXPECT_EQ(get(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT), 2050u);
  EXPECT_EQ(session_->memory.granted(0), 2 * 8u << 10);
  EXPECT_TRUE(session_->core.is_tainted());
  EXPECT_EQ(raise(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, uint64_t{1} << 40),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LimitsTest, NobodyLowersWhatOthersRelyOn) {
  EXPECT_EQ(raise(CU_LIMIT_STACK_SIZE, 512), CUDA_SUCCESS);
  EXPECT_EQ(raise(CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20), CUDA_SUCCESS);
  EXPECT_EQ(calls(), Calls{});
  EXPECT_EQ(get(CU_LIMIT_STACK_SIZE), 1024u) << "the truth";
  EXPECT_EQ(get(CU_LIMIT_MALLOC_HEAP_SIZE), 8u << 20);
  EXPECT_FALSE(session_->core.is_tainted());
}

TEST_F(LimitsTest, WhatTheDriverRefusesIsRefused) {
  driver_.fail("limit", CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(raise(CU_LIMIT_MALLOC_HEAP_SIZE, 32 << 20), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(raise(CU_LIMIT_STACK_SIZE, 4096), CUDA_ERROR_INVALID_VALUE);
  driver_.fail("limit", CUDA_SUCCESS);
  EXPECT_EQ(session_->memory.granted(0), 0u);
  EXPECT_FALSE(session_->core.is_tainted());
  EXPECT_EQ(raise(CU_LIMIT_STACK_SIZE, uint64_t{1} << 40), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(raise(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 4), CUDA_ERROR_UNSUPPORTED_LIMIT);
  driver_.limits[CU_LIMIT_SHMEM_SIZE] = 1000;
  EXPECT_EQ(raise(CU_LIMIT_SHMEM_SIZE, 1000), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(send(wire::LimitGet{9, 0}).code(), CUDA_ERROR_MPS_RPC_FAILURE)
      << "there is no such device";
}

TEST_F(LimitsTest, MemoryForLimitsCountsAgainstTheClients) {
  EXPECT_EQ(raise(CU_LIMIT_MALLOC_HEAP_SIZE, (8 << 20) + kLimit + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(raise(CU_LIMIT_MALLOC_HEAP_SIZE, (8 << 20) + kLimit), CUDA_SUCCESS);
  EXPECT_EQ(session_->memory.granted(0), kLimit);
  EXPECT_EQ(raise(CU_LIMIT_STACK_SIZE, 4096), CUDA_ERROR_OUT_OF_MEMORY);
  session_->limits.release_all();
  EXPECT_EQ(session_->memory.granted(0), 0u);
}

TEST_F(LimitsTest, TextThatTheChannelCantCarryIsNotPromised) {
  EXPECT_EQ(raise(CU_LIMIT_PRINTF_FIFO_SIZE, wire::kOutputTextBytes), CUDA_SUCCESS);
  EXPECT_EQ(raise(CU_LIMIT_PRINTF_FIFO_SIZE, wire::kOutputTextBytes + 1), CUDA_ERROR_INVALID_VALUE);
  driver_.limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 4 * wire::kOutputTextBytes;
  EXPECT_EQ(get(CU_LIMIT_PRINTF_FIFO_SIZE), wire::kOutputTextBytes);
}

TEST_F(LimitsTest, HintsStayHints) {
  EXPECT_EQ(raise(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128), CUDA_SUCCESS);
  EXPECT_EQ(calls(), Calls{});
  EXPECT_EQ(get(CU_LIMIT_MAX_L2_FETCH_GRANULARITY), 64u);
}

TEST_F(LimitsTest, TheEnvironmentSaysWhatAWorkerBeginsWith) {
  setenv("OPENMPS_MALLOC_HEAP", "128M", 1);
  setenv("OPENMPS_STACK", "4K", 1);
  const Status set = set_start_limits(driver_.table(), *devices_);
  EXPECT_TRUE(set.ok()) << set.message();
  EXPECT_EQ(driver_.limits[CU_LIMIT_MALLOC_HEAP_SIZE], 128u << 20);
  EXPECT_EQ(driver_.limits[CU_LIMIT_STACK_SIZE], 4096u);
  driver_.fail("limit", CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set_start_limits(driver_.table(), *devices_).code(), CUDA_ERROR_INVALID_VALUE);
  driver_.fail("limit", CUDA_SUCCESS);
  setenv("OPENMPS_STACK", "4 KiB", 1);
  EXPECT_EQ(set_start_limits(driver_.table(), *devices_).code(), CUDA_ERROR_INVALID_VALUE);
  unsetenv("OPENMPS_MALLOC_HEAP");
  unsetenv("OPENMPS_STACK");
}

// ---- Which clients taint a worker
// ----------------------------------------------------------------

TEST(ImageFacts, WhoRefersToMallocIsSeen) {
  const auto allocates = [](std::string_view image) {
    return read_image_facts({reinterpret_cast<const unsigned char*>(image.data()), image.size()},
                            90)
        .allocates;
  };
  EXPECT_TRUE(allocates(".version 7.0\n.extern .func (.param .b64 p) malloc (.param .b64 b);"));
  EXPECT_TRUE(allocates(".version 7.0\ncall.uni (p), malloc, (b);"));
  EXPECT_FALSE(allocates(".version 7.0\n.func malloc_like () {}"));
  EXPECT_FALSE(allocates(".version 7.0\n.func my_malloc () {}"));
  std::string cubin(
      "\x7f"
      "ELF and then \0main\0malloc\0free\0",
      32);
  EXPECT_TRUE(allocates(cubin));
  EXPECT_FALSE(
      allocates(std::string("\x7f"
                            "ELF and then \0main\0malloc_\0free\0",
                            33)));
}

}  // namespace
}  // namespace openmps::worker
