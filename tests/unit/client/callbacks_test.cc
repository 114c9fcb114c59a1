// SPDX-License-Identifier: Apache-2.0
// Host functions against a fake worker that posts slots and wakes no thread.
#include "client/link/callbacks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "client/objects.h"
#include "fake_channel.h"

namespace openmps::client {
namespace {

class CallbacksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (Stream& stream : streams_) {
      stream.context = &kept_.context;
      ASSERT_TRUE(fences_.open(&stream));
    }
    streams_[0].id = 1;
    streams_[1].id = 2;
  }
  // The next command of this kind in the ring. Wishes to be woken may come before it.
  template <typename Command>
  Command next(wire::Opcode opcode) {
    wire::Record record;
    do {
      while (!fake_->take(&record)) std::this_thread::yield();
    } while (record.opcode == wire::Opcode::kWakeAfter);
    EXPECT_EQ(record.opcode, opcode);
    return body_of<Command>(record);
  }
  // The slot of the next host function in the ring.
  uint32_t next_slot() { return next<wire::HostFunction>(wire::Opcode::kHostFunction).slot; }
  // As the GPU does: no thread is woken.
  void post(uint32_t slot) { fake_->view().callback(slot).posted.store(1); }
  void wait_done(uint32_t slot) {
    while (fake_->view().callback(slot).done.load() == 0) std::this_thread::yield();
  }
  static void count(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

  // The callback thread lives as long as the process: so does what it looks at.
  struct Kept {
    FakeChannel fake;
    Context context;
    Fences fences{fake.channel()};
    Callbacks callbacks{fake.channel(), fences};
  };
  static Kept& keep() {
    static auto& all = *new std::vector<std::unique_ptr<Kept>>;
    return *all.emplace_back(std::make_unique<Kept>());
  }

  Kept& kept_ = keep();
  FakeChannel* const fake_ = &kept_.fake;
  Fences& fences_ = kept_.fences;
  Callbacks& callbacks_ = kept_.callbacks;
  Stream streams_[2];
};

TEST_F(CallbacksTest, AFunctionRunsWhenItsSlotIsPosted) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(callbacks_.enqueue(streams_[0], {count, nullptr, nullptr, &ran}), CUDA_SUCCESS);
    const uint32_t slot = next_slot();
    EXPECT_EQ(ran.load(), i);
    EXPECT_EQ(fake_->view().callback(slot).done.load(), 0u);
    post(slot);
    wait_done(slot);
    EXPECT_EQ(ran.load(), i + 1);
  }
}

// The worker waits itself for what may take long, and is told when it has run.
TEST_F(CallbacksTest, WhatIsExpectedSoonIsSaid) {
  const auto enqueue = [&](CUhostFn function) {
    EXPECT_EQ(callbacks_.enqueue(streams_[0], {function, nullptr, nullptr, nullptr}), CUDA_SUCCESS);
    const auto command = next<wire::HostFunction>(wire::Opcode::kHostFunction);
    post(command.slot);
    wait_done(command.slot);
    return command.flags;
  };
  const auto& nudges = fake_->view().ring_control().nudges;
  EXPECT_EQ(enqueue([](void*) {}), 0u) << "nothing is known of the first";
  while (nudges.load() != 1) std::this_thread::yield();
  while (enqueue([](void*) {}) != wire::kAnswersSoon) {
  }
  const uint32_t told = nudges.load();
  EXPECT_EQ(enqueue([](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }),
            wire::kAnswersSoon);
  while (enqueue([](void*) {}) == wire::kAnswersSoon) {  // the thread may not have noted it yet
  }
  while (nudges.load() <= told) std::this_thread::yield();
}

// Its stream was lost with the session's worker.
TEST_F(CallbacksTest, ADroppedFunctionDoesNotRunAndItsSlotIsFree) {
  std::atomic<int> ran{0};
  for (uint32_t i = 0; i < 2 * wire::kCallbackSlots; ++i) {
    ASSERT_EQ(callbacks_.enqueue(streams_[0], {count, nullptr, nullptr, &ran}), CUDA_SUCCESS);
    const auto command = next<wire::HostFunction>(wire::Opcode::kHostFunction);
    fake_->view().callback(command.slot).posted.store(wire::kCallbackDropped);
    fake_->view().fence(command.fence).value.store(command.value);
  }
  ASSERT_EQ(callbacks_.enqueue(streams_[0], {count, nullptr, nullptr, &ran}), CUDA_SUCCESS);
  const uint32_t slot = next_slot();
  post(slot);
  wait_done(slot);
  EXPECT_EQ(ran.load(), 1);
}

TEST_F(CallbacksTest, ADroppedCallbackIsCalledWithTheError) {
  static std::atomic<int> error{0};
  const auto callback = [](CUstream, CUresult result, void*) { error.store(result); };
  ASSERT_EQ(callbacks_.enqueue(streams_[0], {nullptr, callback, nullptr, nullptr}), CUDA_SUCCESS);
  const uint32_t slot = next_slot();
  fake_->view().callback(slot).posted.store(wire::kCallbackDropped);
  while (error.load() == 0) std::this_thread::yield();
  EXPECT_EQ(error.load(), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(CallbacksTest, OneStreamsFunctionDoesNotWaitForAnothers) {
  constexpr int kFunctions = 200;
  std::atomic<int> first{0};
  std::atomic<int> second{0};
  ASSERT_EQ(callbacks_.enqueue(streams_[0], {count, nullptr, nullptr, &first}), CUDA_SUCCESS);
  const uint32_t blocked = next_slot();
  // The thread soon gives up spinning for the first.
  for (int i = 0; i < kFunctions; ++i) {
    ASSERT_EQ(callbacks_.enqueue(streams_[1], {count, nullptr, nullptr, &second}), CUDA_SUCCESS);
    const uint32_t slot = next_slot();
    post(slot);
    wait_done(slot);
  }
  EXPECT_EQ(second.load(), kFunctions);
  EXPECT_EQ(first.load(), 0);
  post(blocked);
  wait_done(blocked);
  EXPECT_EQ(first.load(), 1);
}

TEST_F(CallbacksTest, AGraphsSlotIsPostedAgainAndAgain) {
  std::atomic<int> ran{0};
  uint32_t slot = 0;
  ASSERT_EQ(callbacks_.open_slot({count, nullptr, nullptr, &ran}, &slot), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    auto kept = std::make_shared<int>(i);
    const FencePoint end(7, static_cast<uint64_t>(i) + 1);
    ASSERT_EQ(callbacks_.watch(end, kept), CUDA_SUCCESS);
    post(slot);
    wait_done(slot);
    EXPECT_EQ(fake_->view().callback(slot).posted.load(), 0u);
    fake_->view().callback(slot).done.store(0);
    fake_->view().fence(7).value.store(end.value());
    while (kept.use_count() != 1) std::this_thread::yield();  // dropped on the thread
  }
  EXPECT_EQ(ran.load(), 3);
  callbacks_.close_slot(slot);
}

TEST_F(CallbacksTest, WhenAllSlotsAreTakenTheNextFunctionWaits) {
  std::atomic<int> ran{0};
  std::vector<uint32_t> slots;
  wire::HostFunction oldest{};
  while (slots.size() < wire::kCallbackSlots) {
    ASSERT_EQ(callbacks_.enqueue(streams_[0], {count, nullptr, nullptr, &ran}), CUDA_SUCCESS);
    const auto function = next<wire::HostFunction>(wire::Opcode::kHostFunction);
    if (slots.empty()) oldest = function;
    slots.push_back(function.slot);
  }
  std::atomic<bool> entered{false};
  std::thread late([&] {
    EXPECT_EQ(callbacks_.enqueue(streams_[0], {count, nullptr, nullptr, &ran}), CUDA_SUCCESS);
    entered.store(true);
  });
  // It sleeps until the oldest has ended, as does the thread that runs them.
  while (fake_->view().header().waiters.load() < 2) std::this_thread::yield();
  EXPECT_FALSE(entered.load());
  post(slots.front());
  wait_done(slots.front());
  fake_->view().fence(oldest.fence).value.store(oldest.value);
  fake_->wake();
  late.join();
  EXPECT_EQ(next_slot(), slots.front());
  slots.push_back(slots.front());
  for (size_t i = 1; i < slots.size(); ++i) {
    post(slots[i]);
    wait_done(slots[i]);
  }
  EXPECT_EQ(ran.load(), static_cast<int>(slots.size()));
}

TEST_F(CallbacksTest, GraphsLeaveSlotsToStreams) {
  std::atomic<int> ran{0};
  const HostCall call{count, nullptr, nullptr, &ran};
  uint32_t slot = 0;
  for (uint32_t i = 0; i < wire::kCallbackSlots / 4 * 3; ++i) {
    ASSERT_EQ(callbacks_.open_slot(call, &slot), CUDA_SUCCESS) << i;
  }
  uint32_t more = 0;
  EXPECT_EQ(callbacks_.open_slot(call, &more), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(callbacks_.enqueue(streams_[0], call), CUDA_SUCCESS);
  const uint32_t of_stream = next_slot();
  post(of_stream);
  wait_done(of_stream);
  EXPECT_EQ(ran.load(), 1);
  callbacks_.close_slot(slot);
  EXPECT_EQ(callbacks_.open_slot(call, &more), CUDA_SUCCESS);
  EXPECT_EQ(more, slot);
}

TEST_F(CallbacksTest, TheSessionsEndIsToldToStreamCallbacksOnly) {
  std::atomic<int> ran{0};
  static std::atomic<int> told;
  told = 0;
  ASSERT_EQ(callbacks_.enqueue(streams_[0], {count, nullptr, nullptr, &ran}), CUDA_SUCCESS);
  const CUstreamCallback tell = [](CUstream, CUresult result, void*) { told = result; };
  ASSERT_EQ(callbacks_.enqueue(streams_[0], {nullptr, tell, nullptr, nullptr}), CUDA_SUCCESS);
  fake_->channel().fail(CUDA_ERROR_MPS_RPC_FAILURE);
  while (told.load() == 0) std::this_thread::yield();
  EXPECT_EQ(told.load(), CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_EQ(ran.load(), 0);
}

}  // namespace
}  // namespace openmps::client
