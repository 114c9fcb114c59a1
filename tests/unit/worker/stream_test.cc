// SPDX-License-Identifier: Apache-2.0
// Streams: what they ask of the driver, and the emulation of the legacy default stream as sequences
// of events and waits.
#include "session_fixture.h"

namespace openmps::worker {
namespace {

using wire::StreamKind;
using wire::ValueKind;

class StreamTest : public SessionFixture {
 protected:
  void SetUp() override {
    SessionFixture::SetUp();
    load_module();
  }
};

TEST_F(StreamTest, IsMadeAtItsFirstUse) {
  create_stream(1, StreamKind::kLegacy);
  EXPECT_EQ(calls(), Calls{});
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch s1 16"}));
}

TEST_F(StreamTest, OneStreamAlonePaysNothing) {
  for (const StreamKind kind :
       {StreamKind::kLegacy, StreamKind::kBlocking, StreamKind::kNonBlocking}) {
    const auto id = static_cast<wire::Id>(kind) + 1;
    create_stream(id, kind, id);  // a context of its own
    launch(id);
    calls();
    launch(id);
    launch(id);
    EXPECT_EQ(calls().size(), 2u) << "stream kind " << id;
  }
}

TEST_F(StreamTest, LegacyWorkWaitsForBlockingWork) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  launch(2);
  launch(2);
  calls();
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "record e1 s1", "wait s2 e1", "launch s2 16"}));
  launch(1);
  EXPECT_EQ(calls(), Calls{"launch s2 16"}) << "nothing new to wait for";
}

TEST_F(StreamTest, BlockingWorkWaitsForLegacyWorkOnce) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  create_stream(3, StreamKind::kBlocking);
  launch(1);
  calls();
  launch(2);
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "record e1 s1", "wait s2 e1", "launch s2 16"}));
  launch(2);
  EXPECT_EQ(calls(), Calls{"launch s2 16"});
  launch(3);
  EXPECT_EQ(calls(), (Calls{"stream 0", "wait s3 e1", "launch s3 16"})) << "one record for all";
}

TEST_F(StreamTest, NonBlockingStreamsStayOut) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kNonBlocking);
  launch(1);
  launch(2);
  calls();
  launch(1);
  launch(2);
  EXPECT_EQ(calls(), (Calls{"launch s1 16", "launch s2 16"}));
}

TEST_F(StreamTest, ContextsOfTheClientDoNotSynchronise) {
  create_stream(1, StreamKind::kLegacy, 1);
  create_stream(2, StreamKind::kBlocking, 2);
  launch(2);
  launch(1);
  launch(2);
  EXPECT_EQ(calls(),
            (Calls{"stream 0", "launch s1 16", "stream 0", "launch s2 16", "launch s1 16"}));
}

TEST_F(StreamTest, FencesWaitOnlyAsTheirProgramDoes) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  launch(1);
  launch(2);
  calls();
  // Synchronising with a blocking stream does not wait for later work of the legacy stream...
  launch(1);
  calls();
  EXPECT_TRUE(send(wire::Fence{2, 0, 1}).ok());
  EXPECT_EQ(calls(), Calls{"write s2 1"});
  // ... but synchronising with the legacy stream waits for the blocking ones.
  launch(2);
  calls();
  EXPECT_TRUE(send(wire::Fence{1, 1, 7}).ok());
  EXPECT_EQ(calls(), (Calls{"record e2 s2", "wait s1 e2", "write s1 7"}));
  EXPECT_EQ(session_->core.view.fence(1).value.load(), 7u);
  EXPECT_FALSE(session_->fences.ledger().pending(session_->core.view));
}

TEST_F(StreamTest, AnEventOnTheLegacyStreamIsABarrierIfItWaited) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  create_stream(3, StreamKind::kBlocking);
  EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  launch(2);
  EXPECT_TRUE(send(wire::EventRecord{1, 1, wire::kNoFence, 0, 0}).ok());
  calls();
  launch(3);
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "record e3 s2", "wait s3 e3", "launch s3 16"}));
}

TEST_F(StreamTest, SoIsOneBehindAFenceThatWaited) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  create_stream(3, StreamKind::kBlocking);
  EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  launch(2);
  EXPECT_TRUE(send(wire::Fence{1, 1, 7}).ok());
  EXPECT_TRUE(send(wire::EventRecord{1, 1, wire::kNoFence, 0, 0}).ok());
  calls();
  launch(3);
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "record e3 s2", "wait s3 e3", "launch s3 16"}));
  launch(3);
  EXPECT_EQ(calls(), Calls{"launch s3 16"}) << "a barrier is waited for once";
}

TEST_F(StreamTest, OrderedCopyHoldsBackOtherStreams) {
  map(kBase, wire::kMemoryGranularity);
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  const wire::Memcpy copy{1, wire::kOrderAllStreams, kBase, kStaging, 64};
  launch(2);
  calls();
  EXPECT_TRUE(send(copy).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "copy s2 64", "event", "record e1 s2"}));
  launch(2);
  EXPECT_EQ(calls(), (Calls{"wait s1 e1", "launch s1 16"}));
  launch(2);
  launch(1);
  EXPECT_EQ(calls(), (Calls{"launch s1 16", "launch s2 16"}));
}

TEST_F(StreamTest, OrderedCopyCostsNothingWithoutOtherStreams) {
  map(kBase, wire::kMemoryGranularity);
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  calls();
  const wire::Memcpy copy{1, wire::kOrderAllStreams, kBase, kStaging, 64};
  EXPECT_TRUE(send(copy).ok());
  EXPECT_TRUE(send(copy).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "copy s1 64", "copy s1 64"}));
  // A stream used for the first time later finds the order all the same.
  launch(2);
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "record e1 s1", "wait s2 e1", "launch s2 16"}));
}

TEST_F(StreamTest, OrderIsMarkedBeforeAWaitThatMayDependOnOthers) {
  map(kBase, wire::kMemoryGranularity);
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  const wire::Memcpy copy{1, wire::kOrderAllStreams, kBase, kStaging, 64};
  EXPECT_TRUE(send(copy).ok());
  calls();
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging, 9, 4, 0}, 1}).ok());
  EXPECT_EQ(calls(), (Calls{"event", "record e1 s1", "event", "await s1", "record e2 s1"}))
      << "before the wait, and behind it";
  // Stream 2 waits for the copy, not for the wait that it is about to satisfy itself.
  EXPECT_TRUE(send(wire::StreamWriteValue{{kStaging, 9, 4, 0}, 2}).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "wait s2 e1", "write s2 9"}));
  EXPECT_TRUE(session_->streams.idle());
}

TEST_F(StreamTest, OrderIsMarkedBeforeAWaitForAnEventOfAnotherContext) {
  map(kBase, wire::kMemoryGranularity);
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking, 2);
  EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  EXPECT_TRUE(send(wire::EventRecord{1, 2, wire::kNoFence, 0, 0}).ok());
  const wire::Memcpy copy{1, wire::kOrderAllStreams, kBase, kStaging, 64};
  EXPECT_TRUE(send(copy).ok());
  calls();
  EXPECT_TRUE(send(wire::StreamWaitEvent{1, 1}).ok());
  EXPECT_EQ(calls(), (Calls{"event", "record e2 s2", "wait s2 e1"}));
}

// What `openmps inspect` is told of a neighbour whose work is held back.
TEST_F(StreamTest, NeighboursAreToldWhoseMomentItIs) {
  wire::ExecutorState shown{};
  GateClient neighbour;
  neighbour.shown = &shown;
  gate_.add(neighbour);
  std::atomic<bool> entered{false};
  std::thread held_back;
  gate_.run_quiescent({GatedCall::kModuleUnload, 0, &session_->core.gate_client}, [&] {
    held_back = std::thread([&] {
      gate_.enter(neighbour, 0);
      entered = true;
      ContextGate::leave(neighbour);
    });
    while (!entered && shown.wait != wire::ExecutorWait::kHeldBack) std::this_thread::yield();
    return CUDA_SUCCESS;
  });
  held_back.join();
  EXPECT_EQ(shown.hindrances[0].session, session_->core.info.id);
  EXPECT_EQ(shown.hindrances[0].why, wire::Hindrance::kQuietMoment);
  gate_.remove(neighbour);
}

// What `openmps inspect` is told of them.
TEST_F(StreamTest, OpenWaitsAreShownUntilTheyHavePassed) {
  worker_parts_.performance.holds_waits = false;
  open_session();
  const wire::ChannelView& view = session_->core.view;
  const wire::ExecutorState& state = view.executor();
  create_stream(1, StreamKind::kNonBlocking);
  create_stream(2, StreamKind::kNonBlocking);
  auto* first = reinterpret_cast<std::atomic<uint32_t>*>(view.staging());
  auto* second = reinterpret_cast<std::atomic<uint64_t>*>(view.staging() + 8);
  *first = 0;
  *second = 0;
  const uint32_t equal = CU_STREAM_WAIT_VALUE_EQ;
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging, 9, 4, equal}, 1}).ok());
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging + 8, 5, 8, 0}, 2}).ok());
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging, 10, 4, equal}, 1}).ok());
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging, 10, 4, equal}, 1}).ok()) << "the same again";
  EXPECT_EQ(state.value_waits, 3u);
  EXPECT_EQ(view.value_wait(0).address, kStaging);
  EXPECT_EQ(view.value_wait(0).value, 9u);
  EXPECT_EQ(view.value_wait(0).stream, 1u);
  EXPECT_EQ(view.value_wait(0).how, 4 + equal * wire::kValueCondition);
  EXPECT_EQ(view.value_wait(1).address, kStaging + 8);
  EXPECT_EQ(view.value_wait(1).stream, 2u);
  EXPECT_EQ(view.value_wait(1).how, 8u);
  EXPECT_EQ(view.value_wait(2).value, 10u);
  EXPECT_GE(view.value_wait(2).since_ns, view.value_wait(0).since_ns);
  const uint64_t before = state.value_waits_seen_ns;
  EXPECT_NE(before, 0u);

  *second = 5;
  session_->service();
  EXPECT_EQ(state.value_waits, 2u);
  EXPECT_EQ(view.value_wait(1).how, 0u);
  EXPECT_NE(view.value_wait(0).how, 0u);
  EXPECT_GT(state.value_waits_seen_ns, before);
  *first = 9;
  session_->service();
  EXPECT_EQ(state.value_waits, 1u);
  EXPECT_EQ(view.value_wait(0).how, 0u);
  EXPECT_NE(view.value_wait(2).how, 0u);
  *first = 10;
  session_->service();
  EXPECT_EQ(state.value_waits, 0u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(view.value_wait(i).how, 0u) << i;
}

TEST_F(StreamTest, MoreOpenWaitsThanHaveRowsAreCounted) {
  worker_parts_.performance.holds_waits = false;
  open_session();
  const wire::ChannelView& view = session_->core.view;
  create_stream(1, StreamKind::kNonBlocking);
  memset(view.staging(), 0, 4);
  for (uint32_t i = 0; i <= wire::kShownValueWaits; ++i) {
    EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging, i + 1, 4, 0}, 1}).ok());
  }
  EXPECT_EQ(view.executor().value_waits, wire::kShownValueWaits + 1);
  EXPECT_EQ(view.value_wait(wire::kShownValueWaits - 1).value, wire::kShownValueWaits);
  memset(view.staging(), 0xff, 4);
  session_->service();
  EXPECT_EQ(view.executor().value_waits, 0u);
  EXPECT_TRUE(send(wire::StreamWaitValue{{kStaging, 77, 4, 0}, 1}).ok());
  EXPECT_EQ(view.value_wait(0).value, 77u) << "rows are used again";
}

TEST_F(StreamTest, BatchIsCheckedAsItsOperationsAloneAre) {
  create_stream(1, StreamKind::kNonBlocking);
  const auto batch = [this](std::vector<wire::ValueOperation> operations) {
    const std::string bytes(reinterpret_cast<const char*>(operations.data()),
                            operations.size() * sizeof(operations[0]));
    return send(wire::StreamBatch{1, static_cast<uint32_t>(operations.size())}, bytes);
  };
  const auto operation = [](ValueKind kind, uint32_t width, uint64_t address) {
    return wire::ValueOperation{{address, 0, width, 0}, kind};
  };
  const wire::ValueOperation write = operation(ValueKind::kWrite, 4, kStaging);
  const wire::ValueOperation barrier = operation(ValueKind::kBarrier, 0, 0);
  EXPECT_TRUE(batch({write, barrier, operation(ValueKind::kWait, 8, kStaging + 8)}).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "batch of 3 s1", "record e1 s1"}));
  EXPECT_TRUE(batch({}).ok());
  EXPECT_EQ(calls(), Calls{});
  for (const wire::ValueOperation& bad :
       {operation(ValueKind::kWrite, 4, kHost), operation(ValueKind::kWait, 4, kHost),
        operation(ValueKind::kWait, 8, kStaging + 4), operation(ValueKind::kWrite, 3, kStaging),
        operation(static_cast<ValueKind>(3), 4, kStaging)}) {
    EXPECT_TRUE(is_violation(batch({write, bad}))) << "and nothing of it is done";
    EXPECT_EQ(calls(), Calls{});
  }
  EXPECT_TRUE(batch(std::vector(wire::kMaxBatch, write)).ok());
  EXPECT_TRUE(is_violation(batch(std::vector(wire::kMaxBatch + 1, write))));
}

TEST_F(StreamTest, WaitsForReadOnlyMemoryAreLetPassAllTheSame) {
  map(kBase, wire::kMemoryGranularity);
  const wire::MemoryAccess reading{kBase, wire::kMemoryGranularity, 0,
                                   CU_MEM_ACCESS_FLAGS_PROT_READ};
  EXPECT_TRUE(send(reading).ok());
  const auto operand = [this](ValueKind kind) {
    return session_->memory.check_operand(
        range_of(wire::ValueOperation{{kBase + 8, 0, 4, 0}, kind}), "word");
  };
  EXPECT_TRUE(operand(ValueKind::kWait).ok());
  EXPECT_FALSE(operand(ValueKind::kWrite).ok());
  calls();
  session_->memory.allow_writes(kBase + 8);
  EXPECT_EQ(calls(), Calls{"access"});
  EXPECT_TRUE(operand(ValueKind::kWrite).ok());
  session_->memory.allow_writes(kBase + 8);
  session_->memory.allow_writes(kHost);  // nobody's
  EXPECT_EQ(calls(), Calls{});
}

TEST_F(StreamTest, DestroyedBlockingStreamIsStillWaitedFor) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  launch(1);
  launch(2);
  calls();
  EXPECT_TRUE(send(wire::StreamDestroy{2}).ok());
  EXPECT_EQ(calls(), (Calls{"event", "record e2 s2", "destroy stream"}));
  launch(1);
  EXPECT_EQ(calls(), (Calls{"wait s1 e2", "destroy event", "launch s1 16"}));
}

TEST_F(StreamTest, DestroyedBlockingStreamIsWaitedForByALegacyStreamThatComesLater) {
  create_stream(2, StreamKind::kBlocking);
  launch(2);
  EXPECT_TRUE(send(wire::StreamDestroy{2}).ok());
  calls();
  create_stream(1, StreamKind::kLegacy);
  EXPECT_TRUE(send(wire::Fence{1, 0, 1}).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "wait s2 e1", "destroy event", "write s2 1"}));
}

TEST_F(StreamTest, FenceInOrderWaitsAsWorkDoes) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  launch(1);
  launch(2);
  launch(1);
  calls();
  EXPECT_TRUE(send(wire::Fence{2, wire::kFenceInOrder | 3, 1}).ok());
  EXPECT_EQ(calls(), (Calls{"record e1 s1", "wait s2 e1", "write s2 1"}));
  EXPECT_EQ(session_->core.view.fence(3).value.load(), 1u);
}

TEST_F(StreamTest, DestroyedBusyStreamLivesUntilItsWorkEnds) {
  create_stream(1, StreamKind::kNonBlocking);
  driver_.hold(1, true);
  launch(1);
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  EXPECT_FALSE(session_->streams.idle()) << "its work is not done";
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch s1 16"}));
  driver_.hold(1, false);
  EXPECT_TRUE(session_->streams.idle());
  EXPECT_EQ(calls(), Calls{"destroy stream"});
}

TEST_F(StreamTest, GraphRunsAsWorkOfItsStream) {
  create_stream(1, StreamKind::kLegacy);
  create_stream(2, StreamKind::kBlocking);
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  EXPECT_TRUE(send(wire::GraphNode{1, wire::GraphNodeKind::kEmpty, 0, 0}).ok());
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  EXPECT_TRUE(send(wire::GraphLaunch{1, 2}).ok());
  calls();
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "record e1 s1", "wait s2 e1", "launch s2 16"}));
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
}

TEST_F(StreamTest, ResetDropsTheStreamsOfOneContext) {
  create_stream(1, StreamKind::kLegacy, 1);
  create_stream(2, StreamKind::kBlocking, 1);
  create_stream(3, StreamKind::kBlocking, 2);
  launch(1);
  launch(2);
  launch(3);
  EXPECT_TRUE(send(wire::ContextReset{1, 0}).ok());
  EXPECT_TRUE(is_violation(send(wire::Fence{1, 0, 1})));
  EXPECT_TRUE(is_violation(send(wire::Fence{2, 0, 1})));
  EXPECT_TRUE(send(wire::Fence{3, 0, 1}).ok());
}

TEST_F(StreamTest, DriverErrorsAreTheProgramsNotViolations) {
  create_stream(1, StreamKind::kLegacy);
  driver_.fail("launch", CUDA_ERROR_INVALID_VALUE);
  const Status status = send(launch_of(1), std::string(16, '\0'));
  EXPECT_EQ(status.code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(is_violation(status));
}

TEST_F(StreamTest, LaunchAttributesAreTranslated) {
  create_stream(1, StreamKind::kNonBlocking);
  EXPECT_TRUE(send(wire::EventCreate{4, 0, 0}).ok());
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent.event = reinterpret_cast<CUevent>(4);
  wire::Launch command = launch_of(1);
  command.attribute_count = 1;
  command.flags = wire::kLaunchCooperative;
  const std::string variable =
      std::string(reinterpret_cast<const char*>(&attribute), sizeof(attribute)) +
      std::string(16, '\0');
  EXPECT_TRUE(send(command, variable).ok());
  EXPECT_EQ(calls(), (Calls{"event", "stream 0", "launch-ex s1 a12 a2"}));
}

TEST_F(StreamTest, TooFewParametersAreRefused) {
  create_stream(1, StreamKind::kNonBlocking);
  wire::Launch command = launch_of(1);
  command.parameter_bytes = 8;
  EXPECT_EQ(send(command, std::string(8, '\0')).code(), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace openmps::worker
