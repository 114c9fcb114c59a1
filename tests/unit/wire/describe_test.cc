// SPDX-License-Identifier: Apache-2.0
// The text of commands in logs and traces, and the description of each command.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <span>
#include <string>

#include "wire/command_info.h"
#include "wire/commands/code.h"
#include "wire/commands/device.h"
#include "wire/commands/memory.h"
#include "wire/commands/stream.h"

namespace openmps::wire {
namespace {

template <typename C>
std::string text_of(const C& command) {
  return describe(C::kOpcode,
                  std::span(reinterpret_cast<const unsigned char*>(&command), sizeof(C)));
}

TEST(DescribeTest, FieldsHaveNamesAndKinds) {
  EXPECT_EQ(text_of(StreamCreate{7, 1, 0, StreamKind::kNonBlocking, -5}),
            "StreamCreate{stream=7, context=1, device=0, kind=kNonBlocking, priority=-5, green=0, "
            "sms=0, slot=0}");
  EXPECT_EQ(text_of(ClusterOccupancy{1, ClusterQuery::kMaxActive, {8, 2, 1}, {32, 1, 1}}),
            "ClusterOccupancy{function=1, query=kMaxActive, grid=[8,2,1], block=[32,1,1], "
            "shared_bytes=0, attribute_count=0, sms=0, green=0}");
  EXPECT_EQ(text_of(StreamWaitValue{{0x1000, 5, 4, 1}, 2}),
            "StreamWaitValue{value.address=0x1000, value.value=5, value.width=4, value.flags=1, "
            "stream=2}");
  EXPECT_EQ(text_of(Ping{}), "Ping{}");
}

TEST(DescribeTest, KeysAreHiddenAndMissingFieldsAreNamed) {
  EXPECT_EQ(text_of(MemoryWithdraw{{{1, 2, 3}}}), "MemoryWithdraw{key.bytes=16 bytes}");
  EXPECT_EQ(describe(Opcode::kEventElapsed, {}), "EventElapsed{start=missing, end=missing}");
  EXPECT_EQ(describe(static_cast<Opcode>(999), {}), "command 999");
  EXPECT_EQ(text_of(ModuleLoad{.kind = static_cast<ModuleKind>(9)}),
            "ModuleLoad{module=0, blob=0, device=0, kind=9, log_bytes=0, option_count=0}");
}

template <typename C>
std::string reply_text_of(const typename C::Reply& reply,
                          size_t bytes = sizeof(typename C::Reply)) {
  return wire::text_of(
      "", reply_fields_of(C::kOpcode, {reinterpret_cast<const unsigned char*>(&reply), bytes}));
}

TEST(DescribeTest, RepliesHaveNamesAndKindsToo) {
  EXPECT_EQ(reply_text_of<GetGlobal>({0x1000, 64, 1}), "{address=0x1000, bytes=64, managed=1}");
  EXPECT_EQ(reply_text_of<FunctionGetAttribute>({-1}), "{value=-1}");
  // A truncated tail, a missing one, and a command without a tail.
  EXPECT_EQ(reply_text_of<GetGlobal>({0x1000, 64, 1}, 16),
            "{address=0x1000, bytes=64, managed=missing}");
  EXPECT_EQ(reply_fields_of(Opcode::kGetGlobal, {}), Fields());
  const unsigned char some[64] = {};
  EXPECT_EQ(reply_fields_of(Opcode::kPing, some), Fields());
  EXPECT_EQ(reply_fields_of(static_cast<Opcode>(999), some), Fields());
}

TEST(DescribeTest, EveryReplyIsDescribed) {
  for (const CommandInfo& info : commands()) {
    EXPECT_EQ(info.reply_fields.empty(), info.reply_bytes == 0) << info.name;
    for (const FieldInfo& field : info.reply_fields) {
      EXPECT_LE(field.offset + field.bytes * field.count, info.reply_bytes) << info.name;
    }
  }
}

TEST(DescribeTest, EveryCommandIsKnownByItsNumber) {
  std::set<std::string> names;
  for (const CommandInfo& info : commands()) {
    EXPECT_EQ(info_of(info.opcode), &info);
    EXPECT_STREQ(name_of(info.opcode), info.name);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
  EXPECT_EQ(info_of(Opcode::kPadding), nullptr);
  EXPECT_STREQ(name_of(Opcode::kPadding), "");
}

TEST(DescribeTest, EffectsNameTheObjects) {
  const CommandInfo* record = info_of(EventRecord::kOpcode);
  ASSERT_EQ(record->fields.size(), 5u);
  EXPECT_EQ(record->fields[0].effect, Effect::kUse);
  EXPECT_STREQ(record->fields[0].object, "event");
  EXPECT_EQ(record->fields[1].effect, Effect::kIn);
  EXPECT_EQ(record->fields[2].effect, Effect::kNone);
  EXPECT_TRUE(info_of(ModuleLoad::kOpcode)->later);
  EXPECT_FALSE(info_of(Memcpy::kOpcode)->waits);
}

}  // namespace
}  // namespace openmps::wire
