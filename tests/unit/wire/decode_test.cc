// SPDX-License-Identifier: Apache-2.0
// Decoding: a record must have exactly the size that its struct and counts say.
#include "wire/decode.h"

#include <gtest/gtest.h>
#include <string.h>

namespace openmps::wire {
namespace {

alignas(kRecordAlignment) unsigned char g_payload[kMaxRecordBytes];

template <typename T>
Status decode_as(const T& body, uint64_t payload_bytes, Variable* variable = nullptr) {
  memcpy(g_payload, &body, sizeof(body));
  Record record;
  record.payload = g_payload;
  record.payload_bytes = static_cast<uint32_t>(payload_bytes);
  const T* out = nullptr;
  Variable rest;
  const Status status = decode(record, &out, &rest);
  if (variable != nullptr) *variable = rest;
  return status;
}

// The payload of a record for `bytes`.
uint64_t padded(uint64_t bytes) { return record_bytes(bytes) - sizeof(RecordHeader); }

TEST(DecodeTest, StructAlone) {
  EXPECT_TRUE(decode_as(Fence{1, 2, 3}, padded(sizeof(Fence))).ok());
  EXPECT_FALSE(decode_as(Fence{1, 2, 3}, 8).ok());
  EXPECT_FALSE(decode_as(Fence{1, 2, 3}, padded(sizeof(Fence)) + 16).ok());
}

TEST(DecodeTest, VariablePartIsExact) {
  Variable variable;
  const Launch launch{1, 1, {1, 1, 1}, {1, 1, 1}, 0, 2, 40, 0};
  const uint64_t bytes = 2 * sizeof(CUlaunchAttribute) + 40;
  EXPECT_TRUE(decode_as(launch, padded(sizeof(Launch) + bytes), &variable).ok());
  EXPECT_EQ(variable.size(), bytes);
  EXPECT_EQ(variable.data(), g_payload + sizeof(Launch));
  EXPECT_FALSE(decode_as(launch, padded(sizeof(Launch) + bytes) - 16).ok());
  EXPECT_FALSE(decode_as(launch, padded(sizeof(Launch) + bytes) + 16).ok());
}

TEST(DecodeTest, CountsHaveLimits) {
  Launch launch{1, 1, {1, 1, 1}, {1, 1, 1}, 0, kMaxLaunchAttributes + 1, 0, 0};
  EXPECT_FALSE(decode_as(launch, padded(sizeof(Launch) + 33 * sizeof(CUlaunchAttribute))).ok());
  launch.attribute_count = 0xffff'ffffu;
  launch.parameter_bytes = 0xffff'ffffu;
  EXPECT_FALSE(decode_as(launch, 1024).ok());
  EXPECT_FALSE(decode_as(GetSymbol{1, 1, 0, kMaxNameBytes + 1}, 32768).ok());
  EXPECT_FALSE(decode_as(ModuleLoad{1, 1, 0, 0, 0, 1000}, padded(sizeof(ModuleLoad) + 16000)).ok());
  EXPECT_FALSE(decode_as(Generated{1, 0, 0xffff'ffffu, 0}, 64).ok());
}

}  // namespace
}  // namespace openmps::wire
