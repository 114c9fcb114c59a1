// SPDX-License-Identifier: Apache-2.0
// The limits of clients: properties of every row of the table, and the limits that a program's
// environment asks for.
#include "wire/client_limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

namespace openmps::wire {
namespace {

// A value that is not the default.
LimitValue some_value(const LimitInfo& info) {
  switch (info.notation) {
    case Notation::kNumber: return 12.5;
    case Notation::kInteger: return 1;
    case Notation::kSwitch:
    case Notation::kWord: return 1;
    case Notation::kSize: return static_cast<LimitValue>(512 * kMiB);
  }
  return 0;
}

class EachLimit : public testing::TestWithParam<LimitInfo> {};

TEST_P(EachLimit, IsSetReadAndPutInForce) {
  const LimitInfo& info = GetParam();
  const uint32_t device = info.is_per_device ? 3 : 0;
  const LimitValue value = some_value(info);
  EXPECT_EQ(info_of(info.limit).name, info.name);
  ClientLimits limits;
  ASSERT_EQ(set_limit(&limits, info.limit, device, value), CUDA_SUCCESS);
  EXPECT_NE(limits, ClientLimits());
  LimitValue seen = 0;
  visit_limit(limits, info.limit, device, [&](auto field) { seen = field; });
  EXPECT_EQ(seen, value);
  ClientLimits configured, in_force;
  put_changes_in_force(limits, &configured, &in_force);
  EXPECT_EQ(configured, limits);
  EXPECT_EQ(in_force, limits);
  if (info.is_per_device) {
    EXPECT_EQ(set_limit(&limits, info.limit, kMaxDevices, value), CUDA_ERROR_INVALID_DEVICE);
  }
}

TEST_P(EachLimit, ParsesItsOwnText) {
  const LimitInfo& info = GetParam();
  const LimitValue value = some_value(info);
  EXPECT_EQ(info.parse(info.text(value)), value) << info.text(value);
  EXPECT_EQ(info.parse(info.answer(value)), value) << info.answer(value);
  for (const char* text : {"", "-1", "x", "1 "}) EXPECT_EQ(info.parse(text), std::nullopt) << text;
  EXPECT_TRUE(value >= info.least && value <= info.most);
  EXPECT_NE(info.expected, "");
  EXPECT_EQ(info.expected_table.empty(), !info.is_per_device);
  EXPECT_EQ(info.variable == nullptr, info.read_variable == nullptr);
}

INSTANTIATE_TEST_SUITE_P(ClientLimits, EachLimit,
                         testing::ValuesIn(limit_table().begin(), limit_table().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ClientLimits, AValueOutOfRangeIsRefusedOrClamped) {
  ClientLimits limits;
  for (const LimitValue value : {0.0, 100.1, 1e-60, static_cast<double>(NAN)}) {
    EXPECT_EQ(set_limit(&limits, Limit::kPercentage, 0, value), CUDA_ERROR_INVALID_VALUE) << value;
  }
  EXPECT_EQ(set_limit(&limits, Limit::kPriority, 0, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set_limit(&limits, static_cast<Limit>(99), 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(limits, ClientLimits());
  EXPECT_EQ(set_limit(&limits, Limit::kMemory, 0, INFINITY), CUDA_SUCCESS);
  EXPECT_EQ(limits.memory_limit[0], UINT64_MAX);
  EXPECT_EQ(set_limit(&limits, Limit::kSmCount, 0, -1), CUDA_SUCCESS);
  EXPECT_EQ(limits.sm_count[0], 0u);
}

TEST(ClientLimits, EnvironmentVariablesAreReadAsByNvidiasClient) {
  setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30", 1);
  setenv("CUDA_MPS_CLIENT_PRIORITY", "1", 1);
  setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,2=512m,3=7,99=1G,GPU-1=1G,4=1G", 1);
  const ClientLimits stated = limits_of_program();
  unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  unsetenv("CUDA_MPS_CLIENT_PRIORITY");
  unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  EXPECT_EQ(stated.active_thread_percentage, 30);
  EXPECT_EQ(stated.client_priority, 1u);
  EXPECT_EQ(stated.memory_limit[0], kGiB);
  EXPECT_EQ(stated.memory_limit[1], 0u);
  EXPECT_EQ(stated.memory_limit[2], 512 * kMiB);
  EXPECT_EQ(stated.memory_limit[3], 7u);
  EXPECT_EQ(stated.memory_limit[4], kGiB) << "an entry that is not understood voids no other one";
  EXPECT_EQ(limits_of_program(), ClientLimits()) << "no variable is set";
}

}  // namespace
}  // namespace openmps::wire
