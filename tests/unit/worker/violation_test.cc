// SPDX-License-Identifier: Apache-2.0
// Every command of the protocol: too short, with ids of nothing, with counts that do not fit.
#include <gtest/gtest.h>

#include <algorithm>

#include "session_fixture.h"
#include "wire/command_info.h"

namespace openmps::worker {
namespace {

using wire::Opcode;

class ViolationTest : public SessionFixture {};

// A key that names nothing is the program's error, and a context is whatever its streams say.
bool is_lenient(Opcode opcode) {
  return opcode == Opcode::kContextReset || opcode == Opcode::kMemoryOpen;
}

// Those that say nothing but their name are right with any bytes of their size.
bool says_anything(const wire::CommandInfo& info) { return !info.fields.empty(); }

TEST_F(ViolationTest, EveryCommandRefusesAnEmptyRecord) {
  payload_.assign(64, 0);
  for (const wire::CommandInfo& info : wire::commands()) {
    EXPECT_TRUE(is_violation(send_bytes(info.opcode, 0))) << info.name;
  }
}

TEST_F(ViolationTest, EveryCommandRefusesARecordOfAnotherSize) {
  payload_.assign(4096, 0);
  for (const wire::CommandInfo& info : wire::commands()) {
    EXPECT_TRUE(is_violation(send_bytes(info.opcode, 4088))) << info.name;
  }
}

// Ids of 0xffffffff and counts as large. Those commands that name no object are bound by other
// checks.
TEST_F(ViolationTest, EveryCommandRefusesNonsense) {
  payload_.assign(wire::kMaxRecordBytes, 0xff);
  for (const wire::CommandInfo& info : wire::commands()) {
    if (!says_anything(info)) continue;
    for (size_t bytes = 8; bytes <= 136; bytes += 16) {
      const Status status = send_bytes(info.opcode, bytes);
      EXPECT_TRUE(is_violation(status) || (is_lenient(info.opcode) && !status.ok()))
          << info.name << " with " << bytes << " bytes";
    }
  }
  EXPECT_EQ(calls(), Calls{}) << "nothing of it reached the driver";
}

// An id that names nothing is found out, whatever else the command says.
TEST_F(ViolationTest, EveryObjectThatACommandUsesMustExist) {
  for (const wire::CommandInfo& info : wire::commands()) {
    const bool names = std::any_of(info.fields.begin(), info.fields.end(), [](const auto& field) {
      return field.object != nullptr && !field.optional;
    });
    if (!names || is_lenient(info.opcode)) continue;
    payload_.assign(wire::record_bytes(info.bytes), 0);
    EXPECT_TRUE(is_violation(
        send_bytes(info.opcode, wire::record_bytes(info.bytes) - sizeof(wire::RecordHeader))))
        << info.name;
  }
}

TEST_F(ViolationTest, UnknownOpcodes) {
  payload_.assign(64, 0);
  for (const int opcode : {0, 44, 255, 256, 65535}) {
    EXPECT_TRUE(is_violation(send_bytes(static_cast<Opcode>(opcode), 8))) << opcode;
  }
}

TEST_F(ViolationTest, IdsThatCanNotName) {
  const wire::StreamCreate none{0, 1, 0, wire::StreamKind::kBlocking};
  EXPECT_TRUE(is_violation(send(none)));
  const wire::StreamCreate large{wire::kMaxObjects + 1, 1, 0, wire::StreamKind::kBlocking};
  EXPECT_TRUE(is_violation(send(large)));
  create_stream(1, wire::StreamKind::kBlocking);
  const wire::StreamCreate again{1, 1, 0, wire::StreamKind::kBlocking};
  EXPECT_TRUE(is_violation(send(again)));
  EXPECT_TRUE(is_violation(send(wire::StreamCreate{2, 1, 5, wire::StreamKind::kBlocking, 0, 0})));
  EXPECT_TRUE(
      is_violation(send(wire::StreamCreate{2, 1, 0, static_cast<wire::StreamKind>(3), 0, 0})));
  create_stream(2, wire::StreamKind::kLegacy);
  EXPECT_TRUE(is_violation(send(wire::StreamCreate{3, 1, 0, wire::StreamKind::kLegacy, 0, 0})))
      << "a second legacy stream in one context";
}

TEST_F(ViolationTest, SlotsThatDoNotExist) {
  create_stream(1, wire::StreamKind::kBlocking);
  EXPECT_TRUE(is_violation(send(wire::Fence{1, wire::kFenceSlots, 1})));
  EXPECT_TRUE(
      is_violation(send(wire::HostFunction{1, wire::kCallbackSlots, 0, wire::kNoFence, 0})));
  EXPECT_TRUE(is_violation(send(wire::HostFunction{1, 0, 1, wire::kFenceSlots, 0})));
  EXPECT_TRUE(is_violation(send(wire::StreamWaitValue{{kHost, 0, 4, 0}, 1})));
  EXPECT_TRUE(is_violation(send(wire::StreamWriteValue{{kStaging + 4, 0, 8, 0}, 1})));
}

TEST_F(ViolationTest, CountsBeyondTheirLimits) {
  create_stream(1, wire::StreamKind::kBlocking);
  load_module();
  wire::Launch launch = launch_of(1);
  launch.attribute_count = wire::kMaxLaunchAttributes + 1;
  EXPECT_TRUE(is_violation(send(launch, std::string(33 * 72 + 16, '\0'))));
  launch = launch_of(1);
  launch.parameter_bytes = wire::kMaxKernelParameterBytes + 1;
  EXPECT_TRUE(is_violation(send(launch, std::string(wire::kMaxKernelParameterBytes + 1, '\0'))));
}

}  // namespace
}  // namespace openmps::worker
