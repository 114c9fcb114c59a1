// SPDX-License-Identifier: Apache-2.0
// The channel against a fake worker: calls, waiting, full rings, the end of a session.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "client/link/fence.h"
#include "client/link/staging.h"
#include "client/objects.h"
#include "fake_channel.h"
#include "wire/commands/device.h"

namespace openmps::client {
namespace {

TEST(Channel, CommandsArriveInOrderWithTheirTails) {
  FakeChannel fake;
  const wire::GetFunction symbol{.module = 3, .function = 4};
  ASSERT_EQ(fake.channel().push(symbol, {"hello"}), CUDA_SUCCESS);
  ASSERT_EQ(fake.channel().push(wire::Fence{1, 2, 3}), CUDA_SUCCESS);
  wire::Record record;
  ASSERT_TRUE(fake.take(&record));
  EXPECT_EQ(record.opcode, wire::Opcode::kGetFunction);
  EXPECT_EQ(body_of<wire::GetFunction>(record).function, 4u);
  EXPECT_EQ(body_of<wire::GetFunction>(record).name_bytes, 5u) << "counted for the caller";
  EXPECT_EQ(memcmp(record.payload + sizeof(symbol), "hello", 5), 0);
  ASSERT_TRUE(fake.take(&record));
  EXPECT_EQ(body_of<wire::Fence>(record).value, 3u);
  EXPECT_FALSE(fake.take(&record));
}

TEST(Channel, CallsOfManyThreadsGetTheirOwnReplies) {
  FakeChannel fake;
  fake.start_worker([](FakeChannel& worker, const wire::Record& record) {
    const auto wanted = body_of<wire::AddressReserve>(record);
    const wire::AddressReserve::Reply reply{wanted.bytes * 1000 + wanted.alignment};
    worker.reply(record.reply_slot, CUDA_SUCCESS, &reply, sizeof(reply));
  });
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 500; ++i) {
        wire::AddressReserve::Reply reply;
        const CUresult result = fake.channel().call(wire::AddressReserve{t, i}, &reply);
        if (result != CUDA_SUCCESS || reply.address != t * 1000 + i) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Channel, AShortReplyIsNone) {
  FakeChannel fake;
  std::atomic<CUresult> answer{CUDA_ERROR_NOT_FOUND};
  fake.start_worker([&](FakeChannel& worker, const wire::Record& record) {
    const uint32_t part = 5;
    worker.reply(record.reply_slot, answer.load(), &part, sizeof(part));
  });
  wire::MemoryInfo::Reply reply{1, 2};
  EXPECT_EQ(fake.channel().call(wire::MemoryInfo{0}, &reply), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(reply.free, 0u);
  answer.store(CUDA_SUCCESS);
  EXPECT_EQ(fake.channel().call(wire::MemoryInfo{0}, &reply), CUDA_ERROR_MPS_RPC_FAILURE);
}

// As the traces of programs are asked for, which are opened by name.
TEST(Channel, ATraceShowsWhatTheWorkerAnswered) {
  UniqueFd file(memfd_create("trace", MFD_CLOEXEC));
  const int written = file.get();
  FakeChannel fake(10'000, std::make_unique<wire::Trace>(std::move(file), false));
  std::atomic<uint32_t> bytes{sizeof(wire::MemoryInfo::Reply)};
  fake.start_worker([&](FakeChannel& worker, const wire::Record& record) {
    if (record.reply_slot == wire::kNoReply) return;
    const wire::MemoryInfo::Reply reply{5, 7};
    const CUresult result = bytes.load() == 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    worker.reply(record.reply_slot, result, &reply, bytes.load());
  });
  wire::MemoryInfo::Reply reply;
  EXPECT_EQ(fake.channel().call(wire::MemoryInfo{0}, &reply), CUDA_SUCCESS);
  bytes.store(0);  // the slot still has the last reply's bytes
  EXPECT_EQ(fake.channel().call(wire::MemoryInfo{1}, &reply), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(fake.channel().push(wire::Fence{1, 2, 3}), CUDA_SUCCESS);
  std::string text(4096, '\0');
  const ssize_t got = pread(written, text.data(), text.size(), 0);
  ASSERT_GT(got, 0);
  text.resize(static_cast<size_t>(got));
  EXPECT_NE(text.find(": MemoryInfo{device=0} = CUDA_SUCCESS {free=5, total=7} ("), text.npos)
      << text;
  EXPECT_NE(text.find(": MemoryInfo{device=1} = CUDA_ERROR_INVALID_DEVICE ("), text.npos) << text;
  EXPECT_NE(text.find(": Fence{stream=1, slot=2, value=3} = CUDA_SUCCESS ("), text.npos) << text;
}

TEST(Channel, ATailOverItsLimitIsNotSent) {
  FakeChannel fake;
  const std::string name(wire::kMaxNameBytes + 1, 'n');
  EXPECT_EQ(fake.channel().push(wire::GetFunction{}, {name}), CUDA_ERROR_INVALID_VALUE);
  wire::Record record;
  EXPECT_FALSE(fake.take(&record));
}

TEST(Channel, AFullRingWaitsForTheWorker) {
  FakeChannel fake;
  std::atomic<uint64_t> handled{0};
  std::atomic<uint32_t>& rest = fake.view().ring_control().consumer_sleeping;
  rest.store(static_cast<uint32_t>(wire::ConsumerRest::kNaps));
  const uint64_t records = 3 * wire::kRingBytes / wire::record_bytes(sizeof(wire::Fence));
  std::thread producer([&] {
    for (uint64_t i = 0; i < records; ++i) {
      ASSERT_EQ(fake.channel().push(wire::Fence{1, 0, i}), CUDA_SUCCESS);
    }
  });
  while (rest.load() != 0) std::this_thread::yield();  // never ends if the worker is not woken
  fake.start_worker([&](FakeChannel&, const wire::Record& record) {
    EXPECT_EQ(body_of<wire::Fence>(record).value, handled.load());
    handled.fetch_add(1);
  });
  producer.join();
  while (handled.load() < records) std::this_thread::yield();
  EXPECT_EQ(handled.load(), records);
}

TEST(Channel, WhoWaitsWakesAWorkerThatNaps) {
  FakeChannel fake;
  std::atomic<uint32_t>& rest = fake.view().ring_control().consumer_sleeping;
  constexpr auto kNaps = static_cast<uint32_t>(wire::ConsumerRest::kNaps);
  int looks = 0;
  const auto at_second_look = [&looks] { return ++looks > 1; };
  rest.store(kNaps);
  ASSERT_EQ(fake.channel().push(wire::Fence{1, 2, 3}), CUDA_SUCCESS);
  EXPECT_EQ(rest.load(), kNaps);
  EXPECT_EQ(fake.channel().wait(at_second_look), CUDA_SUCCESS);
  EXPECT_EQ(rest.load(), 0u);
  rest.store(kNaps);
  looks = 0;
  EXPECT_EQ(
      fake.channel().wait_behind(1, at_second_look, [](bool* /*asked*/) { return CUDA_SUCCESS; }),
      CUDA_SUCCESS);
  EXPECT_EQ(rest.load(), 0u);
}

TEST(StalledConsumer, HasStalledWhenItTakesNothingOfWhatIsThere) {
  constexpr uint64_t kBegin = 1'000'000;
  constexpr uint64_t kLong = StalledConsumer::kStalledNs;
  StalledConsumer consumer(kBegin);
  EXPECT_FALSE(consumer.note(64, false, kBegin + 1)) << "the first look";
  EXPECT_FALSE(consumer.note(64, false, kBegin + kLong));
  EXPECT_TRUE(consumer.note(64, false, kBegin + kLong + 1));
  EXPECT_FALSE(consumer.note(128, false, kBegin + kLong + 2)) << "it goes on";
  EXPECT_TRUE(consumer.note(128, false, kBegin + 2 * kLong + 2));
  EXPECT_FALSE(consumer.note(128, true, kBegin + 3 * kLong)) << "it has taken all there was";
}

TEST(Channel, TheEndOfTheSessionEndsEveryWait) {
  FakeChannel fake;
  CUresult waited = CUDA_SUCCESS;
  std::thread waiter([&] { waited = fake.channel().wait([] { return false; }); });
  while (fake.view().header().waiters.load() == 0) std::this_thread::yield();
  fake.view().header().status.store(CUDA_ERROR_ILLEGAL_ADDRESS);
  fake.wake();
  waiter.join();
  EXPECT_EQ(waited, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(fake.channel().push(wire::Fence{}), CUDA_ERROR_ILLEGAL_ADDRESS);
  fake.channel().fail(CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_EQ(fake.channel().status(), CUDA_ERROR_ILLEGAL_ADDRESS) << "the first reason stays";
}

TEST(Channel, AServerThatDiesSilentlyIsNoticed) {
  FakeChannel fake;
  fake.close_worker_socket();
  EXPECT_EQ(fake.channel().wait([] { return false; }, 1'000'000), CUDA_ERROR_MPS_RPC_FAILURE);
}

TEST(Channel, AsynchronousErrorsAreReportedOnce) {
  FakeChannel fake;
  fake.view().header().async_error.store(CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(fake.channel().take_async_error(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(fake.channel().take_async_error(), CUDA_SUCCESS);
}

// ---- Fences ------------------------------------------------------------------------------------

class FenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stream_.id = 9;
    stream_.context = &context_;
    ASSERT_TRUE(fences_.open(&stream_));
  }
  void write(FencePoint point) { fake_.view().fence(point.slot()).value.store(point.value()); }

  FakeChannel fake_;
  Fences fences_{fake_.channel()};
  Context context_;
  Stream stream_;
};

TEST_F(FenceTest, AnIdleStreamNeedsNoCommand) {
  FencePoint point;
  ASSERT_EQ(fences_.cover(fake_.channel().order(), stream_, &point), CUDA_SUCCESS);
  EXPECT_TRUE(fences_.reached(point));
  wire::Record record;
  EXPECT_FALSE(fake_.take(&record));
}

TEST_F(FenceTest, OneFenceCoversAllWorkBeforeIt) {
  const FencePoint first = fences_.after_work(fake_.channel().order(), stream_);
  const FencePoint second = fences_.after_work(fake_.channel().order(), stream_);
  EXPECT_EQ(first.bits(), second.bits());
  EXPECT_FALSE(fences_.reached(first));
  ASSERT_EQ(fences_.force(first), CUDA_SUCCESS);
  ASSERT_EQ(fences_.force(first), CUDA_SUCCESS);
  wire::Record record;
  ASSERT_TRUE(fake_.take(&record));
  EXPECT_EQ(record.opcode, wire::Opcode::kFence);
  EXPECT_EQ(body_of<wire::Fence>(record).stream, 9u);
  EXPECT_EQ(body_of<wire::Fence>(record).value, first.value());
  EXPECT_FALSE(fake_.take(&record)) << "a second fence for the same work";
  write(first);
  EXPECT_TRUE(fences_.reached(first));
}

TEST_F(FenceTest, TheLegacyStreamNeedsAFenceForTheWorkOfBlockingStreams) {
  Stream legacy;
  legacy.id = 4;
  legacy.kind = wire::StreamKind::kLegacy;
  legacy.context = &context_;
  ASSERT_TRUE(fences_.open(&legacy));
  const FencePoint work = fences_.after_work(fake_.channel().order(), stream_);
  EXPECT_FALSE(fences_.seems_idle(legacy));
  FencePoint point;
  wire::Record record;
  ASSERT_EQ(fences_.cover_own(fake_.channel().order(), legacy, &point), CUDA_SUCCESS);
  EXPECT_FALSE(fake_.take(&record)) << "it was given nothing itself";
  ASSERT_EQ(fences_.cover(fake_.channel().order(), legacy, &point), CUDA_SUCCESS);
  ASSERT_TRUE(fake_.take(&record));
  EXPECT_EQ(body_of<wire::Fence>(record).stream, 4u);
  EXPECT_FALSE(fences_.reached(point));
  ASSERT_EQ(fences_.cover(fake_.channel().order(), legacy, &point), CUDA_SUCCESS);
  EXPECT_FALSE(fake_.take(&record)) << "a second fence for the same work";
  write(work);
  write(point);
  EXPECT_TRUE(fences_.seems_idle(legacy));
}

TEST_F(FenceTest, NonBlockingStreamsAreNoneOfTheLegacyStreamsBusiness) {
  Stream legacy;
  legacy.kind = wire::StreamKind::kLegacy;
  legacy.context = &context_;
  ASSERT_TRUE(fences_.open(&legacy));
  stream_.kind = wire::StreamKind::kNonBlocking;
  fences_.after_work(fake_.channel().order(), stream_);
  EXPECT_TRUE(fences_.seems_idle(legacy));
  FencePoint point;
  wire::Record record;
  ASSERT_EQ(fences_.cover(fake_.channel().order(), legacy, &point), CUDA_SUCCESS);
  EXPECT_FALSE(fake_.take(&record));
}

TEST_F(FenceTest, ASlotIsReusedOnlyWhenDrainedAndItsValuesGrow) {
  const FencePoint last = fences_.after_work(fake_.channel().order(), stream_);
  ASSERT_EQ(fences_.close(fake_.channel().order(), &stream_), CUDA_SUCCESS);
  EXPECT_FALSE(fences_.retired_done());
  Stream other;
  other.context = &context_;
  ASSERT_TRUE(fences_.open(&other));
  EXPECT_NE(other.fence_slot, last.slot()) << "the old stream still runs";
  write(last);
  Stream third;
  third.context = &context_;
  ASSERT_TRUE(fences_.open(&third));
  EXPECT_EQ(third.fence_slot, last.slot());
  const FencePoint next = fences_.after_work(fake_.channel().order(), third);
  EXPECT_GT(next.value(), last.value());
  EXPECT_TRUE(fences_.reached(last));
  EXPECT_FALSE(fences_.reached(next));
}

TEST_F(FenceTest, ThereAreSoManySlots) {
  std::vector<Stream> more(wire::kFenceSlots);
  for (Stream& stream : more) stream.context = &context_;
  for (uint32_t i = 0; i + 1 < wire::kFenceSlots; ++i) ASSERT_TRUE(fences_.open(&more[i])) << i;
  EXPECT_FALSE(fences_.open(&more.back()));
  ASSERT_EQ(fences_.close(fake_.channel().order(), &more[7]), CUDA_SUCCESS);
  EXPECT_TRUE(fences_.open(&more.back()));
  EXPECT_EQ(more.back().fence_slot, more[7].fence_slot);
}

TEST_F(FenceTest, ASleepingWaiterAsksToBeWoken) {
  std::atomic<bool> asked{false};
  fake_.start_worker([&](FakeChannel& worker, const wire::Record& record) {
    if (record.opcode == wire::Opcode::kWakeAfter) {
      asked.store(true);
      write(FencePoint(stream_.fence_slot, 1));
      worker.wake();
    }
  });
  const FencePoint point = fences_.after_work(fake_.channel().order(), stream_);
  EXPECT_EQ(fences_.wait(point), CUDA_SUCCESS);
  EXPECT_TRUE(asked.load());
}

// ---- Lost work
// -----------------------------------------------------------------------------------

class LossTest : public FenceTest {
 protected:
  void SetUp() override {
    FenceTest::SetUp();
    other_.id = 10;
    other_.context = &context_;
    ASSERT_TRUE(fences_.open(&other_));
  }
  FencePoint work(Stream& stream) {
    const Channel::Order order = fake_.channel().order();
    fences_.after_work(order, stream);
    FencePoint point;
    EXPECT_EQ(fences_.cover(order, stream, &point), CUDA_SUCCESS);
    return point;
  }
  // As the worker does: all that was promised is stored.
  void lose(const Stream& stream, uint64_t good, uint32_t number = 7) {
    wire::FenceSlot& fence = fake_.view().fence(stream.fence_slot);
    fence.good.store(good);
    fence.lost.store(number);
    fence.value.store(stream.sequence.load());
  }
  // The streams that have been acknowledged since the last call.
  std::vector<wire::Id> acknowledged() {
    std::vector<wire::Id> streams;
    for (wire::Record record; fake_.take(&record);) {
      if (record.opcode != wire::Opcode::kStreamAcknowledge) continue;
      streams.push_back(body_of<wire::StreamAcknowledge>(record).stream);
      fake_.view().fence(streams.back() == 9 ? stream_.fence_slot : other_.fence_slot).lost = 0;
    }
    return streams;
  }
  using Ids = std::vector<wire::Id>;
  Stream other_;
};

TEST_F(LossTest, IsToldOnce) {
  const FencePoint good = work(stream_);
  const FencePoint bad = work(stream_);
  lose(stream_, good.value());
  EXPECT_EQ(fences_.wait(bad), CUDA_SUCCESS) << "waits of this library end, and tell nobody";
  EXPECT_EQ(fences_.tell(good), CUDA_SUCCESS) << "it was reached";
  EXPECT_EQ(acknowledged(), Ids{});
  EXPECT_EQ(fences_.tell(bad), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(fences_.tell(bad), CUDA_SUCCESS) << "before the worker has taken the command";
  EXPECT_EQ(acknowledged(), Ids{9});
  EXPECT_EQ(fences_.tell(bad), CUDA_SUCCESS);
  EXPECT_TRUE(fences_.is_lost(bad)) << "as copies have to know";
  EXPECT_FALSE(fences_.is_lost(good));
  EXPECT_EQ(fake_.channel().status(), CUDA_SUCCESS);
  const FencePoint later = work(stream_);
  write(later);
  EXPECT_EQ(fences_.tell(later), CUDA_SUCCESS);
  EXPECT_FALSE(fences_.is_lost(later));
}

TEST_F(LossTest, NobodyIsToldBeforeTheSessionHasMoved) {
  const FencePoint good = work(stream_);
  const FencePoint bad = work(stream_);
  std::atomic<uint32_t>& generation = fake_.view().header().generation;
  generation = 0xffff;  // the number has less bits
  lose(stream_, good.value(), wire::number_of_loss(generation + 1, 0));
  EXPECT_TRUE(fences_.reached(good));
  EXPECT_FALSE(fences_.reached(bad));
  ++generation;
  EXPECT_TRUE(fences_.reached(bad));
  EXPECT_EQ(fences_.tell(bad), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(LossTest, ALostSessionIsToldItsOwnError) {
  const FencePoint bad = work(stream_);
  lose(stream_, 0, wire::number_of_loss(fake_.view().header().generation + 1, 0));
  fake_.view().header().status = CUDA_ERROR_ASSERT;
  EXPECT_EQ(fences_.wait(bad), CUDA_ERROR_ASSERT);
}

TEST_F(LossTest, EachStreamIsTold) {
  const FencePoint one = work(stream_);
  const FencePoint two = work(other_);
  lose(stream_, 0);
  lose(other_, 0);
  EXPECT_EQ(fences_.tell(one), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(fences_.tell(two), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(acknowledged(), (Ids{9, 10}));
}

TEST_F(LossTest, AContextIsToldOnceForAllStreams) {
  const FencePoint points[] = {work(stream_), FencePoint(other_.fence_slot, 0)};
  lose(stream_, 0);
  lose(other_, 0);  // it has only waited for the first
  EXPECT_EQ(fences_.tell(points), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(acknowledged(), (Ids{9, 10}));
  EXPECT_EQ(fences_.tell(points), CUDA_SUCCESS);
}

TEST_F(LossTest, ADestroyedStreamIsToldWithItsContext) {
  work(stream_);
  ASSERT_EQ(fences_.close(fake_.channel().order(), &stream_), CUDA_SUCCESS);
  lose(stream_, 0);
  EXPECT_EQ(fences_.tell(std::span<const FencePoint>()), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(fences_.tell(std::span<const FencePoint>()), CUDA_SUCCESS);
  EXPECT_EQ(acknowledged(), Ids{});
}

TEST_F(LossTest, ALostStreamDoesNotSeemIdleUntilItIsTold) {
  const FencePoint point = work(stream_);
  EXPECT_FALSE(fences_.is_over(point));
  lose(stream_, 0);
  EXPECT_FALSE(fences_.seems_idle(stream_));
  EXPECT_FALSE(fences_.is_over(point)) << "who waits for it has to become lost";
  EXPECT_EQ(fences_.tell(point), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_TRUE(fences_.seems_idle(stream_));
}

TEST_F(LossTest, ALossOfAnotherWorkerIsToldAgain) {
  const FencePoint one = work(stream_);
  lose(stream_, 0);
  EXPECT_EQ(fences_.tell(one), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(acknowledged(), Ids{9});
  const FencePoint two = work(stream_);
  lose(stream_, one.value(), 8);
  EXPECT_EQ(fences_.tell(two), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(LossTest, AWaiterAsksTheNextWorkerAgain) {
  std::atomic<int> asked{0};
  fake_.start_worker([&](FakeChannel& worker, const wire::Record& record) {
    if (record.opcode != wire::Opcode::kWakeAfter) return;
    if (++asked == 1) {
      worker.view().header().generation.fetch_add(1);
    } else {
      write(FencePoint(stream_.fence_slot, 1));
    }
    worker.wake();
  });
  const FencePoint point = fences_.after_work(fake_.channel().order(), stream_);
  EXPECT_EQ(fences_.wait(point), CUDA_SUCCESS);
  EXPECT_EQ(asked.load(), 2);
}

// A time that the test sets. It knows when a waiting thread has acted on it.
class WatchedClock final : public Clock {
 public:
  [[nodiscard]] uint64_t now_ns() const override {
    reads_.fetch_add(1);
    return now_.load();
  }
  void sleep(uint64_t) const override { std::this_thread::yield(); }
  void advance(uint64_t ns) { now_.fetch_add(ns); }
  // Returns when the one thread that uses the clock has read this time in more than a whole round
  // of a wait.
  void await_round() const {
    const uint64_t enough = reads_.load() + 16;
    while (reads_.load() < enough) std::this_thread::yield();
  }

 private:
  std::atomic<uint64_t> now_{1'000'000'000};
  mutable std::atomic<uint64_t> reads_{0};
};

class LongWaitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stream_.id = 9;
    stream_.context = &context_;
    ASSERT_TRUE(fences_.open(&stream_));
  }
  // Until it spins.
  void start_spinning(FencePoint point) {
    waiter_ = std::thread([this, point] { EXPECT_EQ(fences_.wait_forced(point), CUDA_SUCCESS); });
    clock_.await_round();
  }
  // Until it naps.
  void start(FencePoint point) {
    start_spinning(point);
    while (!naps()) pass(1'000'000);
  }
  [[nodiscard]] bool naps() { return fake_.view().header().waiters.load() != 0; }
  void pass(uint64_t ns) {
    clock_.advance(ns);
    clock_.await_round();
  }
  // How often the worker has been asked for a wake, once the wait has ended.
  uint32_t end(FencePoint point) {
    fake_.view().fence(point.slot()).value.store(point.value());
    waiter_.join();
    uint32_t asked = 0;
    wire::Record record;
    while (fake_.take(&record)) asked += record.opcode == wire::Opcode::kWakeAfter ? 1 : 0;
    return asked;
  }

  WatchedClock clock_;
  FakeChannel fake_{kNapFromSpinNs, nullptr, &clock_};
  Fences fences_{fake_.channel()};
  Context context_;
  Stream stream_;
  std::thread waiter_;
};

TEST_F(LongWaitTest, AsksForAWakeOnceAfterAWhile) {
  const FencePoint point = fences_.after_work(fake_.channel().order(), stream_);
  ASSERT_EQ(fences_.force(point), CUDA_SUCCESS);
  start(point);
  for (int i = 0; i < 3; ++i) pass(kAskFromNs);
  EXPECT_EQ(end(point), 1u);
}

TEST_F(LongWaitTest, NapsWithoutAWakeBeforeThat) {
  const FencePoint point = fences_.after_work(fake_.channel().order(), stream_);
  ASSERT_EQ(fences_.force(point), CUDA_SUCCESS);
  start(point);
  clock_.await_round();
  EXPECT_EQ(end(point), 0u);
}

TEST_F(LongWaitTest, NapsAtOnceIfTheWorkerTakesNoCommands) {
  const FencePoint point = fences_.after_work(fake_.channel().order(), stream_);
  ASSERT_EQ(fences_.force(point), CUDA_SUCCESS);
  start_spinning(point);
  pass(kNapFromSpinNs + StalledConsumer::kStalledNs);
  EXPECT_TRUE(naps());
  EXPECT_EQ(end(point), 0u);
}

TEST_F(LongWaitTest, SpinsOnIfTheWorkerHasTakenAllCommands) {
  const FencePoint point = fences_.after_work(fake_.channel().order(), stream_);
  ASSERT_EQ(fences_.force(point), CUDA_SUCCESS);
  wire::Record record;
  ASSERT_TRUE(fake_.take(&record));
  start_spinning(point);
  pass(kNapFromSpinNs + StalledConsumer::kStalledNs);
  EXPECT_FALSE(naps());
  EXPECT_EQ(end(point), 0u);
}

// An event in the middle of what a stream was given: the wake would come with the stream's end.
TEST_F(LongWaitTest, DoesNotAskForAWakeBehindMoreWork) {
  const FencePoint event = fences_.take_next(fake_.channel().order(), stream_);
  fences_.after_work(fake_.channel().order(), stream_);
  start(event);
  for (int i = 0; i < 3; ++i) pass(kAskFromNs);
  EXPECT_EQ(end(event), 0u);
}

// While a thread waits for a stream's work, another thread destroys the stream: the worker does not
// know the stream any more, and is not asked for a wake behind it.
TEST_F(LongWaitTest, DoesNotAskForAWakeBehindADestroyedStream) {
  const FencePoint point = fences_.after_work(fake_.channel().order(), stream_);
  ASSERT_EQ(fences_.force(point), CUDA_SUCCESS);
  start(point);
  ASSERT_EQ(fences_.close(fake_.channel().order(), &stream_), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) pass(kAskFromNs);
  EXPECT_EQ(end(point), 0u);
}

// ---- Staging -----------------------------------------------------------------------------------

TEST_F(FenceTest, StagingPiecesAreDistinctAndComeBackWithTheirFence) {
  Staging staging(fake_.channel(), fences_);
  std::vector<Staging::Piece> pieces(kLargePieces);
  for (Staging::Piece& piece : pieces) {
    ASSERT_EQ(staging.acquire(kLargePieceBytes, &piece), CUDA_SUCCESS);
    memset(piece.data, static_cast<int>(piece.number), kLargePieceBytes);
  }
  for (const Staging::Piece& piece : pieces) {
    EXPECT_EQ(piece.data[0], static_cast<unsigned char>(piece.number));
    EXPECT_EQ(piece.data[kLargePieceBytes - 1], static_cast<unsigned char>(piece.number));
  }
  Staging::Piece more;
  EXPECT_EQ(staging.acquire(kLargePieceBytes, &more, Staging::Block::kNo), CUDA_ERROR_NOT_READY);
  Staging::Piece small;
  EXPECT_EQ(staging.acquire(1, &small, Staging::Block::kNo), CUDA_SUCCESS)
      << "small copies have pieces of their own";
  const FencePoint point = fences_.after_work(fake_.channel().order(), stream_);
  staging.release_after(pieces[5], point);
  EXPECT_EQ(staging.acquire(kLargePieceBytes, &more, Staging::Block::kNo), CUDA_ERROR_NOT_READY);
  write(point);
  ASSERT_EQ(staging.acquire(kLargePieceBytes, &more), CUDA_SUCCESS);
  EXPECT_EQ(more.number, pieces[5].number);
}

TEST_F(FenceTest, StagingThatHasRunOutAsksForAFence) {
  Staging staging(fake_.channel(), fences_);
  for (uint32_t i = 0; i < kLargePieces; ++i) {
    Staging::Piece piece;
    ASSERT_EQ(staging.acquire(kLargePieceBytes, &piece), CUDA_SUCCESS);
    staging.release_after(piece, fences_.after_work(fake_.channel().order(), stream_));
  }
  fake_.start_worker([this](FakeChannel& worker, const wire::Record& record) {
    if (record.opcode != wire::Opcode::kFence) return;
    const auto fence = body_of<wire::Fence>(record);
    write(FencePoint(fence.slot, fence.value));
    worker.wake();
  });
  Staging::Piece piece;
  EXPECT_EQ(staging.acquire(kLargePieceBytes, &piece), CUDA_SUCCESS);
}

}  // namespace
}  // namespace openmps::client
