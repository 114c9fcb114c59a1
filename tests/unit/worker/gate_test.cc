// SPDX-License-Identifier: Apache-2.0
// The gate before calls that wait for a whole context: what it waits for, whom it holds back, and
// that it gives up.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fake_driver.h"
#include "worker/context_gate.h"

namespace openmps::worker {
namespace {

// No limit is reached where a test does not want it: an hour.
constexpr uint64_t kNeverNs = 3'600'000'000'000;
constexpr GateLimits kPatient{kNeverNs, kNeverNs, kNeverNs};

class GateTest : public ::testing::Test {
 protected:
  CUstream stream() {
    CUstream made = nullptr;
    EXPECT_EQ(driver_.table().cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
    return made;
  }
  // Something that does not end before the stream is let go.
  void give_work(ContextGate::Stream* listed, uint32_t number) {
    driver_.hold(number, true);
    driver_.push(reinterpret_cast<uint64_t>(listed->handle), [] { return true; });
    listed->busy = true;
  }

  FakeDriver driver_;
};

TEST_F(GateTest, WaitsForBusyStreamsOfItsDeviceOnly) {
  ContextGate gate(driver_.table(), kPatient);
  ContextGate::Stream* here = gate.add(stream(), 0);
  ContextGate::Stream* elsewhere = gate.add(stream(), 1);
  give_work(here, 1);
  give_work(elsewhere, 2);
  std::atomic<bool> called{false};
  std::thread caller([&] {
    EXPECT_EQ(gate.run(GatedCall::kModuleLoad, 0,
                       [&] {
                         EXPECT_TRUE(driver_.idle(reinterpret_cast<uint64_t>(here->handle)));
                         called = true;
                         return CUDA_ERROR_INVALID_IMAGE;
                       }),
              CUDA_ERROR_INVALID_IMAGE)
        << "the call's own result";
  });
  EXPECT_FALSE(called);
  driver_.hold(1, false);
  caller.join();
  EXPECT_TRUE(called);
  EXPECT_EQ(gate.cost(GatedCall::kModuleLoad).calls, 1u);
  gate.remove(here);
  gate.remove(elsewhere);
}

TEST_F(GateTest, AFeederGetsThroughBeforeOrAfterTheCall) {
  ContextGate gate(driver_.table(), kPatient);
  ContextGate::Feeder feeder;
  gate.add(feeder);
  gate.enter(feeder, 0);
  std::atomic<bool> calling{false};
  std::thread caller([&] {
    gate.run(GatedCall::kFunctionLoad, 0, [&] {
      calling = true;
      return CUDA_SUCCESS;
    });
  });
  EXPECT_FALSE(calling) << "in the middle of a submission";
  ContextGate::leave(feeder);
  caller.join();
  EXPECT_TRUE(calling);
  gate.enter(feeder, 0);  // open again
  gate.enter(feeder, 1);
  ContextGate::leave(feeder);
  gate.remove(feeder);
}

TEST_F(GateTest, NewWorkIsHeldBackDuringTheCall) {
  ContextGate gate(driver_.table(), kPatient);
  ContextGate::Feeder feeder;
  gate.add(feeder);
  std::atomic<bool> returned{false};
  std::thread other;
  gate.run(GatedCall::kFunctionLoad, ContextGate::kAllDevices, [&] {
    std::atomic<bool> started{false};
    other = std::thread([&] {
      started = true;
      gate.enter(feeder, 3);
      EXPECT_TRUE(returned);
      ContextGate::leave(feeder);
    });
    while (!started) std::this_thread::yield();
    returned = true;
    return CUDA_SUCCESS;
  });
  other.join();
  gate.remove(feeder);
}

// Work that needs other work to go on is let through between the tries, and work that never ends
// does not keep the call from being made.
TEST_F(GateTest, LetsWorkThroughBetweenTriesAndGivesUpInTheEnd) {
  ContextGate gate(driver_.table(), {1'000'000, 2'000'000, 30'000'000});
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  ContextGate::Feeder feeder;
  gate.add(feeder);
  std::atomic<bool> called{false};
  std::atomic<uint32_t> passed{0};
  std::thread other([&] {
    while (!called) {
      gate.enter(feeder, 0);
      ++passed;
      ContextGate::leave(feeder);
      std::this_thread::yield();
    }
  });
  gate.run(GatedCall::kModuleUnload, 0, [&] {
    EXPECT_FALSE(driver_.idle(reinterpret_cast<uint64_t>(listed->handle)));
    called = true;
    return CUDA_SUCCESS;
  });
  other.join();
  EXPECT_GT(passed, 0u);
  gate.remove(feeder);
  gate.remove(listed);
}

TEST_F(GateTest, WhatMustNotWaitInTheDriverIsNotCalledWithoutAQuietMoment) {
  ContextGate gate(driver_.table(), {1'000'000, 2'000'000, 30'000'000});
  ContextGate::Stream* listed = gate.add(stream(), 0);
  const auto call = [&] {
    return gate.run_if_quiet(GatedCall::kStackLimit, 0, CUDA_ERROR_NOT_PERMITTED,
                             [] { return CUDA_ERROR_INVALID_VALUE; });
  };
  EXPECT_EQ(call(), CUDA_ERROR_INVALID_VALUE) << "the call's own result";
  give_work(listed, 1);
  EXPECT_EQ(call(), CUDA_ERROR_NOT_PERMITTED);
  driver_.hold(1, false);
  EXPECT_EQ(call(), CUDA_ERROR_INVALID_VALUE);
  gate.remove(listed);
}

TEST_F(GateTest, NobodyWaitsAnyMoreForWorkThatNeverEnds) {
  ContextGate gate(driver_.table(), {1'000'000, kNeverNs, kNeverNs});
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  uint32_t called = 0;
  const auto call = [&](GatedCall what) {
    return gate.run(what, 0, [&] {
      ++called;
      return CUDA_ERROR_INVALID_VALUE;
    });
  };
  gate.give_up();
  EXPECT_EQ(call(GatedCall::kModuleLoad), CUDA_ERROR_MPS_SERVER_NOT_READY);
  EXPECT_EQ(call(GatedCall::kFunctionLoad), CUDA_ERROR_MPS_SERVER_NOT_READY);
  EXPECT_EQ(call(GatedCall::kModuleUnload), CUDA_SUCCESS) << "the end of the process does it";
  EXPECT_EQ(call(GatedCall::kHostUnregister), CUDA_SUCCESS);
  EXPECT_EQ(called, 0u);
  // It has ended after all.
  driver_.hold(1, false);
  EXPECT_EQ(call(GatedCall::kModuleLoad), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(called, 1u);
  gate.remove(listed);
}

TEST_F(GateTest, ALostContextIsQuiet) {
  ContextGate gate(driver_.table(), kPatient);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(gate.run(GatedCall::kModuleUnload, 0, [] { return CUDA_ERROR_ILLEGAL_ADDRESS; }),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  gate.remove(listed);
}

}  // namespace
}  // namespace openmps::worker
