// SPDX-License-Identifier: Apache-2.0
// Decoding: a record must have exactly the size that follows from its struct and counts.
#include "wire/codec.h"
#include "wire/commands/code.h"
#include "wire/commands/device.h"
#include "wire/commands/graph.h"
#include "wire/commands/stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace openmps::wire {
namespace {

alignas(kRecordAlignment) unsigned char g_payload[kMaxRecordBytes];

template <typename T>
Status decode_as(const T& body, uint64_t payload_bytes, TailOf<T>* variable = nullptr) {
  memcpy(g_payload, &body, sizeof(body));
  Record record;
  record.payload = g_payload;
  record.payload_bytes = static_cast<uint32_t>(payload_bytes);
  const T* out = nullptr;
  TailOf<T> rest;
  const Status status = decode(record, &out, &rest);
  if (variable != nullptr) *variable = rest;
  return status;
}

// The size of the payload, with padding, of a record of `bytes`.
uint64_t padded(uint64_t bytes) { return record_bytes(bytes) - sizeof(RecordHeader); }

TEST(DecodeTest, StructAlone) {
  EXPECT_TRUE(decode_as(Fence{1, 2, 3}, padded(sizeof(Fence))).ok());
  EXPECT_FALSE(decode_as(Fence{1, 2, 3}, 8).ok());
  EXPECT_FALSE(decode_as(Fence{1, 2, 3}, padded(sizeof(Fence)) + 16).ok());
}

TEST(DecodeTest, VariablePartIsExact) {
  Launch::Tail tail;
  const Launch launch{1, 1, {1, 1, 1}, {1, 1, 1}, 0, 2, 40, 0};
  const uint64_t bytes = 2 * sizeof(CUlaunchAttribute) + 40;
  EXPECT_TRUE(decode_as(launch, padded(sizeof(Launch) + bytes), &tail).ok());
  EXPECT_EQ(tail.attributes.size(), 2u);
  EXPECT_EQ(reinterpret_cast<const unsigned char*>(tail.attributes.data()),
            g_payload + sizeof(Launch));
  EXPECT_EQ(tail.parameters.size(), 40u);
  EXPECT_EQ(tail.parameters.data(), g_payload + sizeof(Launch) + 2 * sizeof(CUlaunchAttribute));
  EXPECT_FALSE(decode_as(launch, padded(sizeof(Launch) + bytes) - 16).ok());
  EXPECT_FALSE(decode_as(launch, padded(sizeof(Launch) + bytes) + 16).ok());
}

TEST(DecodeTest, CountsHaveLimits) {
  Launch launch{1, 1, {1, 1, 1}, {1, 1, 1}, 0, kMaxLaunchAttributes + 1, 0, 0};
  EXPECT_FALSE(decode_as(launch, padded(sizeof(Launch) + 33 * sizeof(CUlaunchAttribute))).ok());
  launch.attribute_count = 0xffff'ffffu;
  launch.parameter_bytes = 0xffff'ffffu;
  EXPECT_FALSE(decode_as(launch, 1024).ok());
  EXPECT_FALSE(decode_as(GetFunction{.name_bytes = kMaxNameBytes + 1}, 32768).ok());
  EXPECT_FALSE(
      decode_as(ModuleLoad{.option_count = 1000}, padded(sizeof(ModuleLoad) + 16000)).ok());
  EXPECT_FALSE(decode_as(GraphSetNode{.body_bytes = 0xffff'ffffu}, 64).ok());
}

// The worker decodes what the client sends, with the parts in order.
TEST(DecodeTest, TailsAreDecodedAsTheyWereSent) {
  const JitOption options[] = {{3, 7}, {4, 8}};
  const LinkAdd::Tail sent{options, "part.ptx"};
  LinkAdd command{.link = 1, .blob = 2};
  ASSERT_TRUE(set_counts(sent, &command));
  EXPECT_EQ(tail_bytes(command), sizeof(options) + 8);
  memcpy(g_payload, &command, sizeof(command));
  copy_tail(sent, g_payload + sizeof(command));
  Record record;
  record.payload = g_payload;
  record.payload_bytes = static_cast<uint32_t>(padded(sizeof(command) + tail_bytes(command)));
  const LinkAdd* body = nullptr;
  LinkAdd::Tail tail;
  ASSERT_TRUE(decode(record, &body, &tail).ok());
  EXPECT_EQ(tail.name, "part.ptx");
  ASSERT_EQ(tail.options.size(), 2u);
  EXPECT_EQ(tail.options[1].option, 8u);
  const std::string long_name(kMaxNameBytes + 1, 'n');
  EXPECT_FALSE(set_counts(LinkAdd::Tail{options, long_name}, &command));
}

// The counts in a reply are used only if they fit the size of the record.
TEST(DecodeTest, RepliesWithWrongCountsAreRefused) {
  GetFunction::Reply head{};
  head.parameter_count = 2;
  unsigned char payload[sizeof(head) + 2 * sizeof(ParameterLayout)] = {};
  memcpy(payload, &head, sizeof(head));
  ReplyOf<GetFunction> reply;
  EXPECT_TRUE(reply.read(payload, sizeof(payload)));
  EXPECT_EQ(reply.tail().parameters.size(), 2u);
  EXPECT_FALSE(reply.read(payload, sizeof(payload) - 1));
  EXPECT_EQ(reply->parameter_count, 0u);
  EXPECT_TRUE(reply.tail().parameters.empty());
  EXPECT_FALSE(reply.read(payload, sizeof(head) - 1));
  EXPECT_FALSE(reply.read(payload, 0));
  ReplyOf<MemoryInfo> fixed;
  EXPECT_FALSE(fixed.read(payload, sizeof(MemoryInfo::Reply) + 1)) << "one byte too many";
}

}  // namespace
}  // namespace openmps::wire
