// SPDX-License-Identifier: Apache-2.0
// Every command of the protocol: too short, with ids of nothing, with counts that do not fit.
#include <gtest/gtest.h>

#include "session_fixture.h"

namespace openmps::worker {
namespace {

using wire::Opcode;

class ViolationTest : public SessionFixture {};

constexpr auto kFirst = static_cast<uint16_t>(Opcode::kLaunch);
constexpr auto kLast = static_cast<uint16_t>(Opcode::kStreamBatch);

TEST_F(ViolationTest, EveryCommandHasANameAndRefusesAnEmptyRecord) {
  payload_.assign(64, 0);
  for (uint16_t opcode = kFirst; opcode <= kLast; ++opcode) {
    EXPECT_STRNE(name_of(static_cast<Opcode>(opcode)), "") << opcode;
    EXPECT_TRUE(is_violation(send_bytes(static_cast<Opcode>(opcode), 0))) << opcode;
  }
}

TEST_F(ViolationTest, EveryCommandRefusesARecordOfAnotherSize) {
  payload_.assign(4096, 0);
  for (uint16_t opcode = kFirst; opcode <= kLast; ++opcode) {
    EXPECT_TRUE(is_violation(send_bytes(static_cast<Opcode>(opcode), 4088))) << opcode;
  }
}

// Ids of 0xffffffff and counts as large. Those commands that name no object are bound by other
// checks.
TEST_F(ViolationTest, EveryCommandRefusesNonsense) {
  payload_.assign(wire::kMaxRecordBytes, 0xff);
  for (uint16_t opcode = kFirst; opcode <= kLast; ++opcode) {
    for (size_t bytes = 8; bytes <= 136; bytes += 16) {
      EXPECT_TRUE(is_violation(send_bytes(static_cast<Opcode>(opcode), bytes)))
          << opcode << " with " << bytes << " bytes";
    }
  }
  EXPECT_EQ(calls(), Calls{}) << "nothing of it reached the driver";
}

TEST_F(ViolationTest, UnknownOpcodes) {
  payload_.assign(64, 0);
  for (const int opcode : {0, kLast + 1, 255, 65535}) {
    EXPECT_TRUE(is_violation(send_bytes(static_cast<Opcode>(opcode), 8))) << opcode;
  }
}

TEST_F(ViolationTest, IdsThatCanNotName) {
  const wire::StreamCreate none{0, 1, 0, 1, 0, 0};
  EXPECT_TRUE(is_violation(send(Opcode::kStreamCreate, none)));
  const wire::StreamCreate large{wire::kMaxObjects + 1, 1, 0, 1, 0, 0};
  EXPECT_TRUE(is_violation(send(Opcode::kStreamCreate, large)));
  create_stream(1, wire::StreamKind::kBlocking);
  const wire::StreamCreate again{1, 1, 0, 1, 0, 0};
  EXPECT_TRUE(is_violation(send(Opcode::kStreamCreate, again)));
  EXPECT_TRUE(is_violation(send(Opcode::kStreamCreate, wire::StreamCreate{2, 1, 5, 1, 0, 0})));
  EXPECT_TRUE(is_violation(send(Opcode::kStreamCreate, wire::StreamCreate{2, 1, 0, 3, 0, 0})));
  create_stream(2, wire::StreamKind::kLegacy);
  EXPECT_TRUE(is_violation(send(Opcode::kStreamCreate, wire::StreamCreate{3, 1, 0, 0, 0, 0})))
      << "a second legacy stream in one context";
}

TEST_F(ViolationTest, SlotsThatDoNotExist) {
  create_stream(1, wire::StreamKind::kBlocking);
  EXPECT_TRUE(is_violation(send(Opcode::kFence, wire::Fence{1, wire::kFenceSlots, 1})));
  EXPECT_TRUE(
      is_violation(send(Opcode::kHostFunction, wire::HostFunction{1, wire::kCallbackSlots})));
  EXPECT_TRUE(
      is_violation(send(Opcode::kStreamWaitValue, wire::StreamValue{1, 4, kHost, 0, 0, 0})));
  EXPECT_TRUE(is_violation(
      send(Opcode::kStreamWriteValue, wire::StreamValue{1, 8, kStaging + 4, 0, 0, 0})));
}

TEST_F(ViolationTest, CountsBeyondTheirLimits) {
  create_stream(1, wire::StreamKind::kBlocking);
  load_module();
  wire::Launch launch = launch_of(1);
  launch.attribute_count = wire::kMaxLaunchAttributes + 1;
  EXPECT_TRUE(is_violation(send(Opcode::kLaunch, launch, std::string(33 * 72 + 16, '\0'))));
  launch = launch_of(1);
  launch.parameter_bytes = wire::kMaxKernelParameterBytes + 1;
  EXPECT_TRUE(is_violation(
      send(Opcode::kLaunch, launch, std::string(wire::kMaxKernelParameterBytes + 1, '\0'))));
}

}  // namespace
}  // namespace openmps::worker
