// SPDX-License-Identifier: Apache-2.0
// When a client asks its worker for what kernels printed, and where that goes. The test is the
// worker.
#include "client/link/kernel_output.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <string_view>

#include "fake_channel.h"
#include "wire/commands/device.h"

namespace openmps::client {
namespace {

class KernelOutputTest : public ::testing::Test {
 protected:
  // A worker that answers every flush: what `text` holds is printed, `pending` says that kernels
  // still run.
  void start_worker() {
    fake_.start_worker([this](FakeChannel& channel, const wire::Record& record) {
      if (record.opcode != wire::Opcode::kOutputFlush) return;
      const int now = ++flushes_;
      producer_.put(wire::OutputKind::kOutput, "flush " + std::to_string(now) + "\n");
      const wire::OutputFlush::Reply reply{pending_.load() ? 1u : 0u};
      channel.reply(record.reply_slot, CUDA_SUCCESS, &reply, sizeof(reply));
    });
  }
  // What `call` writes to standard output and error, as "output|error".
  template <typename Call>
  std::string written(Call call) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    call();
    const std::string output = testing::internal::GetCapturedStdout();
    return output + "|" + testing::internal::GetCapturedStderr();
  }
  std::string show(CUresult result = CUDA_SUCCESS) {
    return written([&] { EXPECT_EQ(output_.show(result), result); });
  }
  void put(std::string_view text, wire::OutputKind kind = wire::OutputKind::kOutput) {
    producer_.put(kind, text);
  }

  FakeChannel fake_;
  wire::OutputProducer producer_{fake_.view()};
  KernelOutput output_{fake_.channel()};
  std::atomic<int> flushes_{0};
  std::atomic<bool> pending_{false};
};

TEST_F(KernelOutputTest, NobodyIsAskedWhereNothingPrints) {
  start_worker();
  output_.graph_launched();  // no image of it refers to printf
  EXPECT_EQ(show(), "|");
  EXPECT_EQ(flushes_.load(), 0);
}

TEST_F(KernelOutputTest, ASynchronisationShowsWhatWasPrintedAndAsksOnce) {
  start_worker();
  output_.expect();
  EXPECT_EQ(show(), "flush 1\n|");
  EXPECT_EQ(show(), "|");
  EXPECT_EQ(flushes_.load(), 1);
}

TEST_F(KernelOutputTest, KernelsThatStillRunAreAskedForAgain) {
  start_worker();
  pending_.store(true);
  output_.expect();
  EXPECT_EQ(show(), "flush 1\n|");
  EXPECT_EQ(show(), "flush 2\n|");
  pending_.store(false);
  EXPECT_EQ(show(), "flush 3\n|");
  EXPECT_EQ(show(), "|");
}

TEST_F(KernelOutputTest, AGraphMayHoldAnyFunctionThatPrints) {
  start_worker();
  output_.found_printing_function();
  EXPECT_EQ(show(), "|") << "it has not been launched";
  output_.graph_launched();
  EXPECT_EQ(show(), "flush 1\n|");
}

TEST_F(KernelOutputTest, PiecesKeepTheirOrderAndTheirDescriptor) {
  start_worker();
  put("one\n");
  put("assertion\n", wire::OutputKind::kError);
  put("two\n");
  output_.expect();
  EXPECT_EQ(show(), "one\ntwo\nflush 1\n|assertion\n");
}

// Behind what the program itself has printed, whose buffer is not empty.
TEST_F(KernelOutputTest, TheProgramsOwnLinesKeepTheirPlace) {
  start_worker();
  output_.expect();
  EXPECT_EQ(written([&] {
              fputs("before\n", stdout);
              EXPECT_EQ(output_.show(CUDA_SUCCESS), CUDA_SUCCESS);
              fputs("behind\n", stdout);
            }),
            "before\nflush 1\nbehind\n|");
}

// After a failed assert() the error is all there is to synchronise with.
TEST_F(KernelOutputTest, AnErrorShowsTheLastWordsWithoutAskingForMore) {
  start_worker();
  output_.expect();
  put("Assertion `x` failed.\n", wire::OutputKind::kError);
  EXPECT_EQ(show(CUDA_ERROR_ASSERT), "|Assertion `x` failed.\n");
  EXPECT_EQ(flushes_.load(), 0);
}

TEST_F(KernelOutputTest, OtherCallsShowOnlyTheLastWordsOfASession) {
  start_worker();
  output_.expect();
  put("text\n");
  EXPECT_EQ(written([&] { EXPECT_EQ(output_.show_end(CUDA_SUCCESS), CUDA_SUCCESS); }), "|");
  EXPECT_EQ(written([&] {
              EXPECT_EQ(output_.show_end(CUDA_ERROR_MPS_RPC_FAILURE), CUDA_ERROR_MPS_RPC_FAILURE);
            }),
            "text\n|");
  EXPECT_EQ(flushes_.load(), 0);
}

// The synchronisation was good before the session ended: it stays so, and nothing is lost.
TEST_F(KernelOutputTest, ASessionThatEndsMeanwhileDoesNotSpoilTheResult) {
  put("last\n");
  output_.expect();
  fake_.view().header().status.store(CUDA_ERROR_ILLEGAL_ADDRESS);
  fake_.wake();
  EXPECT_EQ(show(), "last\n|");
}

TEST_F(KernelOutputTest, NonsenseInTheRingIsNotWritten) {
  start_worker();
  fake_.view().output_control().tail.store(7);
  EXPECT_EQ(show(CUDA_ERROR_UNKNOWN), "|");
  EXPECT_EQ(fake_.view().output_control().head.load(), 7u);
}

}  // namespace
}  // namespace openmps::client
