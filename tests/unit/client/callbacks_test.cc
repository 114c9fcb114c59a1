// SPDX-License-Identifier: Apache-2.0
// Host functions against a fake worker that posts slots and wakes nobody.
#include "client/callbacks.h"

#include <gtest/gtest.h>

#include <atomic>
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
  // The slot of the next host function in the ring.
  uint32_t next_slot() {
    wire::Record record;
    while (!fake_->take(&record)) std::this_thread::yield();
    EXPECT_EQ(record.opcode, wire::Opcode::kHostFunction);
    return body_of<wire::HostFunction>(record).slot;
  }
  // As the GPU does it: nobody is woken.
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
