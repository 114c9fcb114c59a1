// SPDX-License-Identifier: Apache-2.0
// What is lost when a session's contexts are lost, and how the next worker treats lost streams.
#include "worker/session/hand_over.h"

#include <unistd.h>

#include <algorithm>

#include "empty_journal.h"
#include "session_fixture.h"
#include "wire/journal.h"
#include "worker/session/adoption.h"

namespace openmps::worker {
namespace {

using wire::StreamKind;

class HandOverTest : public SessionFixture {
 protected:
  void SetUp() override {
    SessionFixture::SetUp();
    load_module();
    view().header().generation.store(4);
  }
  void TearDown() override {
    driver_.poison(CUDA_SUCCESS);
    SessionFixture::TearDown();
  }
  [[nodiscard]] const wire::ChannelView& view() const { return session_->core.view; }
  void fence(wire::Id stream, uint64_t value) {
    EXPECT_TRUE(send(wire::Fence{stream, static_cast<uint32_t>(stream), value}).ok());
  }
  void call_function(wire::Id stream, uint32_t slot, uint64_t value) {
    EXPECT_TRUE(
        send(wire::HostFunction{stream, slot, value, static_cast<uint32_t>(stream), 0}).ok());
  }
  void record(wire::Id event, wire::Id stream, uint64_t value) {
    EXPECT_TRUE(
        send(wire::EventRecord{event, stream, static_cast<uint32_t>(stream), 0, value}).ok());
  }
  [[nodiscard]] uint64_t value(uint32_t slot) const { return view().fence(slot).value.load(); }
  [[nodiscard]] uint64_t good(uint32_t slot) const { return view().fence(slot).good.load(); }
  [[nodiscard]] uint32_t lost(uint32_t slot) const { return view().fence(slot).lost.load(); }

  // The driver reports a fault, which the session sees with its next command.
  HandingOver fault() {
    driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);
    return hand_over(*session_);
  }
};

TEST_F(HandOverTest, ASessionWithoutWorkIsMoved) {
  create_stream(1, StreamKind::kLegacy);
  const HandingOver over = fault();
  EXPECT_EQ(over.outcome, wire::Outcome::kMoved);
  EXPECT_EQ(over.streams, 0u);
  EXPECT_FALSE(over.has_kernel);
  EXPECT_EQ(lost(1), 0u);
}

TEST_F(HandOverTest, WorkBehindWhichAFenceIsReachedHasEnded) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  launch(1);
  fence(1, 1);
  launch(2);
  fence(2, 5);
  EXPECT_EQ(fault().outcome, wire::Outcome::kMoved);
  EXPECT_EQ(lost(1), 0u);
  EXPECT_EQ(lost(2), 0u);
}

TEST_F(HandOverTest, WorkWithoutAFenceIsLost) {
  create_stream(1, StreamKind::kNonBlocking);
  launch(1);
  fence(1, 3);
  launch(1);
  const HandingOver over = fault();
  EXPECT_EQ(over.outcome, wire::Outcome::kTold);
  EXPECT_EQ(over.streams, 1u);
  EXPECT_EQ(good(1), 3u);
  EXPECT_EQ(value(1), 3u);
  EXPECT_EQ(lost(1), wire::number_of_loss(5, 0));
}

TEST_F(HandOverTest, WorkThatTheDriverHasSeenEndIsNotLost) {
  create_stream(1, StreamKind::kNonBlocking);
  launch(1);
  EXPECT_TRUE(session_->streams.idle());
  EXPECT_EQ(fault().outcome, wire::Outcome::kMoved);
}

TEST_F(HandOverTest, ALookFindsWhatHasEnded) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  launch(1);
  launch(2);
  driver_.hold(2, true);
  launch(2);
  EXPECT_TRUE(session_->streams.look_for_ends());
  EXPECT_EQ(fault().streams, 1u);
  EXPECT_EQ(lost(1), 0u);
  EXPECT_NE(lost(2), 0u);
  driver_.hold(2, false);
}

// As everything does in a lost context.
TEST_F(HandOverTest, WorkThatSeemsToHaveEndedAfterTheFaultIsLost) {
  create_stream(1, StreamKind::kNonBlocking);
  launch(1);
  driver_.hold(1, true);
  fence(1, 1);
  driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(session_->streams.idle());
  EXPECT_FALSE(session_->is_idle());
  session_->service();
  EXPECT_EQ(hand_over(*session_).outcome, wire::Outcome::kTold);
  driver_.hold(1, false);
}

TEST_F(HandOverTest, ThePromisedValuesOfLostStreamsAreStored) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  launch(1);
  fence(1, 1);
  driver_.hold(1, true);
  launch(1);
  fence(1, 2);
  fence(1, 7);
  launch(2);
  fence(2, 4);
  const HandingOver over = fault();
  EXPECT_EQ(over.outcome, wire::Outcome::kTold);
  EXPECT_EQ(over.streams, 1u);
  EXPECT_EQ(value(1), 7u);
  EXPECT_EQ(good(1), 1u);
  EXPECT_NE(lost(1), 0u);
  EXPECT_EQ(lost(2), 0u) << "nothing of it was under way";
  driver_.hold(1, false);
}

TEST_F(HandOverTest, TheKernelThatMayHaveRunIsNamed) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  launch(1);
  fence(1, 1);
  launch(2);
  driver_.hold(2, true);
  wire::Launch shape = launch_of(2);
  shape.grid[0] = 12;
  shape.block[1] = 3;
  EXPECT_TRUE(send(shape, std::string(16, '\0')).ok());
  fence(2, 1);
  const HandingOver over = fault();
  EXPECT_TRUE(over.has_kernel);
  EXPECT_EQ(over.stream, 2u);
  EXPECT_EQ(over.kernel, "kern");
  EXPECT_EQ(over.grid[0], 12u);
  EXPECT_EQ(over.block[1], 3u);
  driver_.hold(2, false);
}

TEST_F(HandOverTest, WorkThatIsNoKernelIsNoSuspect) {
  map(kBase, kUnit);
  create_stream(1, StreamKind::kNonBlocking);
  launch(1);
  fence(1, 1);
  driver_.hold(1, true);
  EXPECT_TRUE(send(wire::Memset{1, 4, kBase, 0, 16, 1, 0}).ok());
  fence(1, 2);
  const HandingOver over = fault();
  EXPECT_EQ(over.outcome, wire::Outcome::kTold);
  EXPECT_FALSE(over.has_kernel);
  driver_.hold(1, false);
}

TEST_F(HandOverTest, ACommandThatFindsTheContextLostIsNotLostItself) {
  create_stream(1, StreamKind::kNonBlocking);
  launch(1);
  fence(1, 1);
  driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(send(launch_of(1), std::string(16, '\0')).code(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(hand_over(*session_).outcome, wire::Outcome::kMoved) << "the next worker takes it";
}

TEST_F(HandOverTest, AFenceThatFindsTheContextLostIsNotLostItself) {
  create_stream(1, StreamKind::kNonBlocking);
  launch(1);
  fence(1, 1);
  driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(send(wire::Fence{1, 1, 2}).code(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(hand_over(*session_).outcome, wire::Outcome::kMoved) << "the next worker takes it";
  EXPECT_EQ(value(1), 1u);
}

TEST_F(HandOverTest, HeldWorkIsLost) {
  create_stream(1, StreamKind::kNonBlocking);
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging, 1, 4, CU_STREAM_WAIT_VALUE_EQ}, 1}).ok());
  call_function(1, 5, 1);
  fence(1, 2);
  ASSERT_FALSE(session_->backlog.empty());
  const HandingOver over = fault();
  EXPECT_EQ(over.outcome, wire::Outcome::kTold);
  EXPECT_FALSE(over.has_kernel);
  EXPECT_EQ(value(1), 2u);
  EXPECT_EQ(good(1), 0u);
}

TEST_F(HandOverTest, HeldWorkThatFindsTheContextLostIsLost) {
  create_stream(1, StreamKind::kNonBlocking);
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging, 1, 4, CU_STREAM_WAIT_VALUE_EQ}, 1}).ok());
  call_function(1, 5, 1);
  fence(1, 2);
  driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);
  session_->submitter.flush();
  EXPECT_TRUE(session_->backlog.empty());
  EXPECT_EQ(hand_over(*session_).outcome, wire::Outcome::kTold);
  EXPECT_EQ(value(1), 2u);
  EXPECT_EQ(good(1), 0u);
}

TEST_F(HandOverTest, WorkOfADestroyedStreamIsLostToItsContext) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  create_stream(3, StreamKind::kNonBlocking, 2);
  launch(1);
  driver_.hold(1, true);
  launch(1);
  fence(1, 1);
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  const HandingOver over = fault();
  EXPECT_EQ(over.outcome, wire::Outcome::kTold);
  EXPECT_EQ(value(1), 1u);
  EXPECT_NE(lost(1), 0u);
  EXPECT_NE(lost(2), 0u);
  EXPECT_EQ(lost(3), 0u);
  driver_.hold(1, false);
}

TEST_F(HandOverTest, EventsOfLostStreamsAreListed) {
  for (wire::Id id = 1; id <= 3; ++id) EXPECT_TRUE(send(wire::EventCreate{id, 0, 0}).ok());
  create_stream(1, StreamKind::kNonBlocking);
  launch(1);
  record(1, 1, 1);
  driver_.hold(1, true);
  launch(1);
  record(2, 1, 2);
  fault();
  const wire::LostEvents& list = view().lost_events();
  ASSERT_EQ(list.count.load(), 1u);
  EXPECT_EQ(list.events[0].event.load(), 2u);
  EXPECT_EQ(list.events[0].stream.load(), 1u);
  driver_.hold(1, false);
}

TEST_F(HandOverTest, AnOlderLossBeginsEarlier) {
  create_stream(1, StreamKind::kNonBlocking);
  launch(1);
  fence(1, 3);
  view().fence(1).good.store(1);
  view().fence(1).lost.store(9);
  session_->losses.take_over();
  EXPECT_EQ(fault().outcome, wire::Outcome::kTold);
  EXPECT_EQ(good(1), 1u);
  EXPECT_EQ(lost(1), 9u);
}

// ---- In the next worker -------------------------------------------------------------------------

class LossesTest : public HandOverTest {
 protected:
  void SetUp() override {
    HandOverTest::SetUp();
    map(kBase, kUnit);
    for (wire::Id id = 1; id <= 2; ++id) EXPECT_TRUE(send(wire::EventCreate{id, 0, 0}).ok());
  }
  // As the former worker has left them.
  void lose(std::initializer_list<uint32_t> slots) {
    for (const uint32_t slot : slots) {
      view().fence(slot).value.store(10);
      view().fence(slot).good.store(5);
      view().fence(slot).lost.store(wire::number_of_loss(4, 0));
    }
    session_->losses.take_over();
  }
  void acknowledge(wire::Id stream) { EXPECT_TRUE(send(wire::StreamAcknowledge{stream}).ok()); }
  // Whether a launch in the stream is carried out.
  bool runs(wire::Id stream) {
    calls();
    launch(stream);
    for (const std::string& call : calls()) {
      if (call.starts_with("launch")) return true;
    }
    return false;
  }
};

TEST_F(LossesTest, ALostStreamDropsWorkUntilItIsAcknowledged) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  lose({1});
  EXPECT_FALSE(runs(1));
  EXPECT_TRUE(send(wire::Memset{1, 4, kBase, 0, 16, 1, 0}).ok());
  EXPECT_TRUE(send(wire::Memcpy{1, 0, kBase, kBase + 64, 16}).ok());
  EXPECT_EQ(calls(), Calls{});
  EXPECT_TRUE(runs(2)) << "another stream goes on";
  fence(1, 12);
  EXPECT_EQ(value(1), 12u) << "no wait hangs";
  EXPECT_EQ(good(1), 5u);
  acknowledge(1);
  EXPECT_EQ(lost(1), 0u);
  EXPECT_FALSE(session_->losses.any());
  EXPECT_TRUE(runs(1));
}

TEST_F(LossesTest, LossSpreadsThroughAnEvent) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  fence(2, 6);
  lose({1});
  record(1, 1, 11);
  EXPECT_TRUE(runs(2));
  EXPECT_TRUE(send(wire::StreamWaitEvent{2, 1, 0}).ok());
  EXPECT_FALSE(runs(2));
  EXPECT_EQ(good(2), 6u) << "what it had been given before is carried out";
  EXPECT_NE(lost(2), 0u);
  acknowledge(2);
  EXPECT_TRUE(runs(2));
  EXPECT_TRUE(runs(1)) << "the program has been told of what the second stream waited for";
  EXPECT_NE(lost(1), 0u) << "but not of this stream itself";
}

TEST_F(LossesTest, AcknowledgingTheSourceLeavesTheOtherLost) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  lose({1});
  record(1, 1, 11);
  EXPECT_TRUE(send(wire::StreamWaitEvent{2, 1, 0}).ok());
  acknowledge(1);
  EXPECT_TRUE(runs(1));
  EXPECT_FALSE(runs(2));
}

TEST_F(LossesTest, AnEventIsLostUntilItIsRecordedAgain) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  create_stream(3, StreamKind::kNonBlocking);
  view().lost_events().events[0].event.store(1);
  view().lost_events().events[0].stream.store(1);
  view().lost_events().count.store(1);
  lose({1});
  EXPECT_TRUE(send(wire::StreamWaitEvent{2, 1, 0}).ok());
  EXPECT_FALSE(runs(2));
  record(1, 3, 1);
  EXPECT_TRUE(send(wire::StreamWaitEvent{3, 1, 0}).ok());
  EXPECT_TRUE(runs(3));
}

TEST_F(LossesTest, LegacyAndBlockingStreamsLoseTogether) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  create_stream(3, StreamKind::kNonBlocking);
  create_stream(4, StreamKind::kBlocking, 2);
  lose({2});
  EXPECT_FALSE(runs(1)) << "it comes behind the blocking stream";
  EXPECT_TRUE(runs(3));
  EXPECT_TRUE(runs(4)) << "of another context";
  acknowledge(1);
  EXPECT_TRUE(runs(1));
  EXPECT_TRUE(runs(2));
}

TEST_F(LossesTest, BlockingStreamsComeBehindALostLegacyStream) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  lose({1});
  fence(2, 1);
  EXPECT_EQ(lost(2), 0u) << "the program's own wait comes behind no other stream";
  EXPECT_FALSE(runs(2));
  EXPECT_NE(lost(2), 0u);
}

TEST_F(LossesTest, AnOrderedCopyOfALostStreamIsLostToItsContext) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  create_stream(3, StreamKind::kNonBlocking, 2);
  lose({1});
  EXPECT_TRUE(send(wire::Memcpy{1, wire::kOrderAllStreams, kBase, kBase + 64, 16}).ok());
  EXPECT_FALSE(runs(2));
  EXPECT_TRUE(runs(3));
}

TEST_F(LossesTest, JoiningALostContextIsALoss) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking, 2);
  lose({1});
  EXPECT_TRUE(send(wire::ContextJoin{2, 1}).ok());
  EXPECT_FALSE(runs(2));
}

TEST_F(LossesTest, FunctionsOfALostStreamAreDropped) {
  create_stream(1, StreamKind::kNonBlocking);
  lose({1});
  call_function(1, 9, 11);
  EXPECT_EQ(view().callback(9).posted.load(), wire::kCallbackDropped);
  EXPECT_EQ(value(1), 11u);
}

TEST_F(LossesTest, ANewStreamInALostSlotIsNotLost) {
  view().fence(1).lost.store(7);
  create_stream(1, StreamKind::kNonBlocking);
  EXPECT_EQ(lost(1), 0u);
  EXPECT_TRUE(runs(1));
}

TEST_F(LossesTest, WhateverTheClientWritesHarmsItAlone) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  wire::LostEvents& list = view().lost_events();
  list.count.store(~0u);
  for (wire::LostEvent& lost : list.events) {
    lost.event.store(~0ull);
    lost.stream.store(~0ull);
  }
  lose({1});
  EXPECT_TRUE(send(wire::StreamWaitEvent{2, 1, 0}).ok());
  EXPECT_FALSE(runs(2)) << "any event may be lost";
  acknowledge(2);
  EXPECT_TRUE(runs(1));
  EXPECT_TRUE(runs(2));
  EXPECT_FALSE(session_->losses.any());
}

// ---- From one worker to the next ----------------------------------------------------------------

class TwoWorkersTest : public HandOverTest {
 protected:
  void SetUp() override {
    SessionFixture::SetUp();
    journal_ = make_empty_journal();
    open_journal();
    ring_.emplace(view());
  }
  // Work that needs neither code nor memory.
  void work(wire::Id stream) {
    EXPECT_TRUE(send(wire::StreamWriteValue{{kStaging, 1, 4, 0}, stream}).ok());
  }
  void open_journal() {
    const Status opened = session_->core.journal.open(UniqueFd(dup(journal_.get())));
    ASSERT_TRUE(opened.ok()) << opened.message();
  }
  void describe(SessionInfo& info) const override { info.adoption = adoption_; }
  // The worker is lost, and the session goes on in the next one.
  HandingOver move() {
    HandingOver over = fault();
    adoption_ = wire::Adoption::kHandedOver;
    go_on();
    return over;
  }
  // The same, without a word of the former worker. Returns how many streams are lost.
  uint32_t die() {
    driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);  // nothing ends any more
    adoption_ = wire::Adoption::kFound;
    return go_on();
  }
  uint32_t go_on() {
    const Status adopted = try_to_go_on();
    EXPECT_TRUE(adopted.ok()) << adopted.message();
    view().header().generation.fetch_add(1);
    calls();
    return adopted_.lost_streams;
  }
  Status try_to_go_on() {
    session_->drain();
    session_->release();
    session_.reset();
    driver_.poison(CUDA_SUCCESS);
    open_session();
    open_journal();
    adopted_ = {};
    return adopt(*session_, &adopted_);
  }
  bool runs(wire::Id stream) {
    calls();
    work(stream);
    return !calls().empty();
  }
  // Stream 1 has recorded two events, of which the first is reached; 2 and 3 have no work.
  void record_two_events() {
    for (wire::Id id = 1; id <= 2; ++id) EXPECT_TRUE(send(wire::EventCreate{id, 0, 0}).ok());
    for (wire::Id id = 1; id <= 3; ++id) create_stream(id, StreamKind::kNonBlocking);
    work(1);
    record(1, 1, 1);
    driver_.hold(1, true);
    work(1);
    record(2, 1, 2);
  }
  // Stream 1 is lost, 2 waits for the first event and 3 for the second.
  void expect_loss_by_the_second() {
    EXPECT_FALSE(runs(1));
    EXPECT_TRUE(send(wire::StreamWaitEvent{2, 1, 0}).ok());
    EXPECT_TRUE(runs(2)) << "the first event was reached";
    EXPECT_TRUE(send(wire::StreamWaitEvent{3, 2, 0}).ok());
    EXPECT_FALSE(runs(3)) << "the second was not";
  }

  wire::Adoption adoption_ = wire::Adoption::kNone;
  Adopted adopted_;

 private:
  UniqueFd journal_;
};

TEST_F(TwoWorkersTest, AnIdleSessionGoesOn) {
  create_stream(1, StreamKind::kLegacy);
  work(1);
  fence(1, 1);
  EXPECT_EQ(move().outcome, wire::Outcome::kMoved);
  EXPECT_FALSE(session_->losses.any());
  EXPECT_TRUE(runs(1));
  fence(1, 2);
  EXPECT_EQ(value(1), 2u);
  EXPECT_EQ(lost(1), 0u);
}

TEST_F(TwoWorkersTest, WhatIsLostIsDroppedUntilItIsTold) {
  record_two_events();
  EXPECT_EQ(move().outcome, wire::Outcome::kTold);
  EXPECT_EQ(value(1), 2u);
  EXPECT_EQ(good(1), 1u);
  expect_loss_by_the_second();
  const uint32_t first_loss = lost(1);
  EXPECT_TRUE(send(wire::StreamAcknowledge{1}).ok());
  EXPECT_TRUE(runs(1));
  EXPECT_NE(lost(3), 0u);
  EXPECT_NE(lost(3), first_loss);
}

TEST_F(TwoWorkersTest, ALossOutlivesASecondWorker) {
  create_stream(1, StreamKind::kNonBlocking);
  work(1);
  driver_.hold(1, true);
  work(1);
  fence(1, 1);
  move();
  const uint32_t number = lost(1);
  fence(1, 2);
  EXPECT_EQ(move().outcome, wire::Outcome::kTold) << "nobody has been told";
  EXPECT_EQ(lost(1), number);
  EXPECT_EQ(good(1), 0u);
  EXPECT_FALSE(runs(1));
}

TEST_F(TwoWorkersTest, WhatIsSetOfAFunctionEndsWithItsModule) {
  load_module();
  EXPECT_TRUE(
      send(wire::FunctionSetAttribute{1, wire::FunctionSetting::kAttribute, 8, 1024, 0}).ok());
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(move().outcome, wire::Outcome::kMoved)
      << "an attribute of no function is not set again";
}

class LostContexts : public FaultListener {
 public:
  void fence_promised() override {}
  void context_lost(CUresult, const std::string&) override {}
  [[nodiscard]] bool hands_over() const override { return true; }
};

// A command that fails in a lost context is executed again, whatever its error is: what it uses is
// there in the next worker.
TEST_F(TwoWorkersTest, AGraphThatFindsTheContextLostIsDescribedInTheNextWorker) {
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  EXPECT_TRUE(send(wire::GraphNode{1, wire::GraphNodeKind::kEmpty, 0, 0, 0}).ok());
  const LostContexts lost;
  session_->faults = &lost;
  driver_.fail("instantiate", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(send(wire::GraphInstantiate{0, 1}).code(), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(move().outcome, wire::Outcome::kMoved);
  driver_.fail("instantiate", CUDA_SUCCESS);
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
}

TEST_F(TwoWorkersTest, AGraphThatCanNotBeMadeIsForgotten) {
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  EXPECT_TRUE(send(wire::GraphNode{1, wire::GraphNodeKind::kEmpty, 0, 0, 0}).ok());
  driver_.fail("instantiate", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(send(wire::GraphInstantiate{0, 1}).code(), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(move().outcome, wire::Outcome::kMoved);
  driver_.fail("instantiate", CUDA_SUCCESS);
  EXPECT_FALSE(send(wire::GraphInstantiate{0, 1}).ok());
}

TEST_F(TwoWorkersTest, TheNextWorkersKeepOffItsAddresses) {
  const auto places = [this] { return session_->core.journal.view().header().places.load(); };
  EXPECT_EQ(places(), 0u);
  EXPECT_TRUE(send(wire::AddressReserve{wire::kExtentBytes, wire::kMemoryGranularity}).ok());
  const uint64_t address = reply<wire::AddressReserve::Reply>().address;
  const uint32_t there = wire::places_of(address, address + wire::kExtentBytes);
  EXPECT_NE(there, 0u);
  EXPECT_EQ(places(), there);
  move();
  EXPECT_EQ(places(), there);
  EXPECT_TRUE(send(wire::AddressFree{address, wire::kExtentBytes}).ok());
  EXPECT_EQ(places(), 0u);
}

// ---- A worker that says nothing -----------------------------------------------------------------

TEST_F(TwoWorkersTest, WhatIsKnownToHaveEndedIsNotLostWithADeadWorker) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kNonBlocking);
  work(1);
  fence(1, 1);
  EXPECT_EQ(die(), 0u);
  EXPECT_FALSE(session_->losses.any());
  EXPECT_TRUE(runs(1));
  EXPECT_TRUE(runs(2));
  fence(1, 2);
  EXPECT_EQ(value(1), 2u);
}

TEST_F(TwoWorkersTest, WhatMayNotHaveEndedIsLostWithADeadWorker) {
  record_two_events();
  EXPECT_EQ(die(), 1u);
  EXPECT_EQ(good(1), 1u);
  EXPECT_EQ(value(1), 2u) << "nobody waits for ever";
  EXPECT_EQ(lost(1), wire::number_of_loss(1, 0));
  EXPECT_EQ(lost(2), 0u);
  expect_loss_by_the_second();
  EXPECT_TRUE(send(wire::StreamAcknowledge{1}).ok());
  EXPECT_TRUE(send(wire::StreamAcknowledge{3}).ok());
  EXPECT_FALSE(session_->losses.any());
  EXPECT_TRUE(runs(1));
  EXPECT_TRUE(runs(3));
}

// Later work of every stream comes behind such a copy, and behind the work of a stream that is
// gone.
TEST_F(TwoWorkersTest, WithAnOrderedCopyAllStreamsAreLostWithADeadWorker) {
  for (wire::Id id = 1; id <= 2; ++id) create_stream(id, StreamKind::kNonBlocking);
  driver_.hold(1, true);
  EXPECT_TRUE(send(wire::Memcpy{1, wire::kOrderAllStreams, kStaging, kStaging + 64, 8}).ok());
  work(1);
  fence(1, 1);
  EXPECT_EQ(die(), 2u);
  EXPECT_TRUE(send(wire::StreamAcknowledge{1}).ok());
  EXPECT_TRUE(send(wire::StreamAcknowledge{2}).ok());
  work(1);
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  EXPECT_EQ(die(), 1u);
  EXPECT_FALSE(runs(2));
}

// What was held back, or was part of a batch, the driver had not been given.
TEST_F(TwoWorkersTest, WorkThatNoFenceFollowsIsLostWithADeadWorker) {
  create_stream(1, StreamKind::kNonBlocking);
  work(1);
  fence(1, 1);
  work(1);
  EXPECT_EQ(die(), 1u);
  EXPECT_EQ(good(1), 1u);
  EXPECT_EQ(value(1), 1u);
  EXPECT_TRUE(send(wire::StreamAcknowledge{1}).ok());
  fence(1, 2);
  EXPECT_EQ(die(), 0u) << "the next worker begins with nothing under way";
}

TEST_F(TwoWorkersTest, FunctionsThatWereNotPostedAreDropped) {
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  work(1);
  driver_.hold(1, true);
  call_function(1, 5, 1);
  call_function(2, 6, 1);
  EXPECT_EQ(view().callback(6).posted.load(), 1u);
  // The client will post one more, which this worker has not taken.
  EXPECT_EQ(view().callback(7).posted.load(), 0u);
  const HandingOver over = move();
  EXPECT_EQ(over.outcome, wire::Outcome::kTold);
  EXPECT_EQ(over.streams, 2u);
  EXPECT_EQ(view().callback(5).posted.load(), wire::kCallbackDropped);
  EXPECT_EQ(view().callback(6).posted.load(), 1u) << "it runs";
  EXPECT_EQ(view().callback(7).posted.load(), 0u);
  EXPECT_EQ(value(1), 1u);
  EXPECT_EQ(value(2), 1u);
}

TEST_F(TwoWorkersTest, AFunctionThatWasNotPostedIsDroppedWithADeadWorker) {
  create_stream(1, StreamKind::kNonBlocking);
  work(1);
  driver_.hold(1, true);
  call_function(1, 3, 1);
  EXPECT_EQ(die(), 1u);
  EXPECT_EQ(view().callback(3).posted.load(), wire::kCallbackDropped);
}

TEST_F(TwoWorkersTest, AJournalThatWasBeingChangedIsRefused) {
  create_stream(1, StreamKind::kNonBlocking);
  session_->core.journal.note_position(view().ring_control().head + 64);  // that is not done
  adoption_ = wire::Adoption::kFound;
  EXPECT_EQ(try_to_go_on().code(), CUDA_ERROR_MPS_RPC_FAILURE);
}

// ---- What is given again
// -------------------------------------------------------------------------

class GivenAgainTest : public TwoWorkersTest {
 protected:
  void SetUp() override {
    TwoWorkersTest::SetUp();
    create_stream(1, StreamKind::kNonBlocking);
    work(1);
    fence(1, 1);
    driver_.hold(1, true);
  }
  void describe(SessionInfo& info) const override {
    TwoWorkersTest::describe(info);
    info.replay = replay_;
  }
  void copy(uint64_t destination, uint64_t source, uint64_t bytes = 64) {
    EXPECT_TRUE(send(wire::Memcpy{1, 0, destination, source, bytes}).ok());
  }
  void fill(uint64_t destination) {
    EXPECT_TRUE(send(wire::Memset{1, 4, destination, 0, 16, 1, 0}).ok());
  }
  // The session goes on in another worker. How many commands are executed again; 0: the work of
  // the stream is lost.
  uint32_t again(bool dies = false) {
    driver_.hold(1, true);
    if (dies) {
      die();
    } else {
      fault();
      adoption_ = wire::Adoption::kHandedOver;
      go_on();
    }
    EXPECT_EQ(adopted_.given_again != 0, adopted_.lost_streams == 0);
    EXPECT_EQ(session_->pending.size(), adopted_.given_again);
    EXPECT_EQ(lost(1) != 0, adopted_.lost_streams != 0);
    return adopted_.given_again;
  }

  wire::Replay replay_ = wire::Replay::kCopies;
};

TEST_F(GivenAgainTest, CopiesAndFillsFromTheLastReachedFenceOn) {
  copy(kStaging, kStaging + 4096);
  fill(kStaging + 8192);
  fence(1, 2);
  EXPECT_EQ(again(), 3u);
  EXPECT_EQ(value(1), 1u) << "the second fence has not been reached";
  EXPECT_EQ(session_->pending.front().opcode, wire::Opcode::kMemcpy);
  EXPECT_EQ(session_->pending.back().opcode, wire::Opcode::kFence);
}

TEST_F(GivenAgainTest, NotTwice) {
  replay_ = wire::Replay::kAlways;
  work(1);
  fence(1, 2);
  EXPECT_EQ(again(), 2u);
  EXPECT_EQ(again(true), 0u) << "it may be what ends the workers";
}

// Nor is it forgotten, if its worker is lost before it has been executed.
TEST_F(GivenAgainTest, NotTwiceByAWorkerThatHandsItOver) {
  replay_ = wire::Replay::kAlways;
  work(1);
  fence(1, 2);
  EXPECT_EQ(again(), 2u);
  EXPECT_EQ(again(), 0u);
  EXPECT_EQ(good(1), 1u);
  EXPECT_EQ(value(1), 2u);
}

TEST_F(GivenAgainTest, NotTwiceIfNoFenceIsBehindIt) {
  replay_ = wire::Replay::kAlways;
  work(1);
  EXPECT_EQ(again(), 1u);
  EXPECT_EQ(again(true), 0u);
}

TEST_F(GivenAgainTest, AlsoOfAWorkerThatHasDied) {
  copy(kStaging, kStaging + 4096);
  fence(1, 2);
  EXPECT_EQ(again(true), 2u);
}

TEST_F(GivenAgainTest, AChainOfCopiesIsTheSameTwice) {
  copy(kStaging, kStaging + 4096);
  copy(kStaging + 8192, kStaging);
  fence(1, 2);
  EXPECT_EQ(again(), 3u);
}

TEST_F(GivenAgainTest, ACopyWhoseSourceIsWrittenLaterIsNot) {
  copy(kStaging, kStaging + 4096);
  fill(kStaging + 4096 + 32);
  fence(1, 2);
  EXPECT_EQ(again(), 0u);
}

TEST_F(GivenAgainTest, ACopyWithinItselfIsNot) {
  copy(kStaging, kStaging + 32);
  fence(1, 2);
  EXPECT_EQ(again(), 0u);
}

TEST_F(GivenAgainTest, OtherWorkIsNot) {
  work(1);
  fence(1, 2);
  EXPECT_EQ(again(), 0u);
}

TEST_F(GivenAgainTest, OtherWorkIsIfTheProgramSaysSo) {
  replay_ = wire::Replay::kAlways;
  work(1);
  fence(1, 2);
  EXPECT_EQ(again(), 2u);
}

TEST_F(GivenAgainTest, NothingIsIfTheProgramSaysSo) {
  replay_ = wire::Replay::kNever;
  copy(kStaging, kStaging + 4096);
  fence(1, 2);
  EXPECT_EQ(again(), 0u);
}

TEST_F(GivenAgainTest, WhatAnOlderLossHasLeftIsNot) {
  create_stream(2, StreamKind::kNonBlocking);
  view().fence(2).lost.store(wire::number_of_loss(70, 0));
  fill(kStaging);
  fence(1, 2);
  EXPECT_EQ(again(), 0u) << "the program has not been told of that";
}

TEST_F(GivenAgainTest, AFunctionIsThatWasNotPosted) {
  replay_ = wire::Replay::kAlways;
  work(1);
  call_function(1, 5, 2);
  EXPECT_EQ(again(), 2u);
  EXPECT_EQ(view().callback(5).posted.load(), 0u);
}

TEST_F(GivenAgainTest, AFunctionIsNotThatMayHaveRun) {
  replay_ = wire::Replay::kAlways;
  work(1);
  call_function(1, 5, 2);
  view().callback(5).posted.store(1);
  EXPECT_EQ(again(), 0u);
}

TEST_F(GivenAgainTest, WorkIsWhoseObjectsAreAsTheyWere) {
  replay_ = wire::Replay::kAlways;
  EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  EXPECT_TRUE(send(wire::EventCreate{2, 0, 0}).ok());
  work(1);
  record(1, 1, 2);
  EXPECT_TRUE(send(wire::EventDestroy{2}).ok());
  EXPECT_EQ(again(), 2u);
}

TEST_F(GivenAgainTest, WorkIsNotWhoseObjectsHaveEnded) {
  replay_ = wire::Replay::kAlways;
  EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  work(1);
  record(1, 1, 2);
  EXPECT_TRUE(send(wire::EventDestroy{1}).ok());
  EXPECT_EQ(again(), 0u);
}

}  // namespace
}  // namespace openmps::worker
