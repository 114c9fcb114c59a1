// SPDX-License-Identifier: Apache-2.0
// A wait for a value that is not there stays in the worker with what is behind it, and nothing else
// does: the driver gets everything in an order that the program allows.
#include <algorithm>
#include <atomic>
#include <thread>

#include "session_fixture.h"

namespace openmps::worker {
namespace {

using wire::StreamKind;

class BacklogTest : public SessionFixture {
 protected:
  static constexpr uint64_t kWord = kStaging + 4096;  // behind the code that was staged

  void SetUp() override {
    SessionFixture::SetUp();
    load_module();
    create_stream(1, StreamKind::kNonBlocking);
    create_stream(2, StreamKind::kNonBlocking);
    // The driver numbers its streams as they are used: s1 and s2.
    launch(1);
    launch(2);
    EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
    // The driver has been asked about the kernel: stream_budget_test.cc.
    session_->modules.functions().find(1)->judged_block = {32, 1, 1};
    calls();
  }
  Status wait_for(wire::Id stream, uint64_t address, uint64_t value, uint32_t flags = 0,
                  uint32_t width = 4) {
    return send(wire::StreamWaitValue{{address, value, width, flags}, stream});
  }
  ContextGate& core_gate() { return session_->core.gate; }
  // As the last look told.
  bool awaits_stream_slot() {
    session_->submitter.advance();
    const auto row = static_cast<size_t>(wire::HeldFor::kStreamSlot);
    return session_->core.usage.row().held_now[row] != 0;
  }
  void stand(wire::Id stream) { EXPECT_TRUE(wait_for(stream, kWord, 1).ok()); }
  void put(uint64_t address, uint32_t value) {
    std::atomic_ref(*reinterpret_cast<uint32_t*>(address)).store(value);
  }
  // The value comes, and somebody looks.
  Calls come() {
    put(kWord, 1);
    session_->submitter.advance();
    return calls();
  }
  void record(wire::Id event, wire::Id stream) {
    EXPECT_TRUE(send(wire::EventRecord{event, stream, wire::kNoFence, 0, 0}).ok());
  }
  void wait_event(wire::Id stream, wire::Id event) {
    EXPECT_TRUE(send(wire::StreamWaitEvent{stream, event}).ok());
  }
};

TEST_F(BacklogTest, AWaitStaysHereWithWhatIsBehindIt) {
  stand(1);
  launch(1);
  EXPECT_TRUE(send(wire::Fence{1, 0, 5}).ok());
  EXPECT_EQ(calls(), Calls{});
  EXPECT_TRUE(session_->streams.idle()) << "quiet moments need not wait for it";
  const wire::ExecutorState& shown = session_->core.view.executor();
  EXPECT_EQ(shown.held, 3u);
  EXPECT_EQ(shown.value_waits, 1u);
  EXPECT_EQ(session_->core.view.value_wait(0).address, kWord);
  EXPECT_EQ(session_->core.view.value_wait(0).stream, 1u);
  launch(2);
  EXPECT_EQ(calls(), Calls{"launch s2 16"}) << "others go on";
  session_->submitter.advance();
  EXPECT_EQ(calls(), Calls{});
  const Calls gone = come();
  ASSERT_EQ(gone.size(), 5u);
  EXPECT_EQ(gone[1], "await s1") << "the GPU compares once more, in its turn";
  EXPECT_EQ(gone[3], "launch s1 16");
  EXPECT_EQ(gone[4], "write s1 5");
  EXPECT_EQ(session_->core.view.fence(0).value.load(), 5u);
  EXPECT_EQ(shown.held, 0u);
  launch(1);
  EXPECT_EQ(calls(), Calls{"launch s1 16"});
}

// Those that wait for one moment would make theirs one after the other when it comes.
TEST_F(BacklogTest, ItsStreamIsMadeMeanwhile) {
  create_stream(3, StreamKind::kNonBlocking);
  EXPECT_EQ(calls(), Calls{});
  stand(3);
  launch(3);
  EXPECT_EQ(calls(), Calls{"stream 0"});
  const Calls gone = come();
  EXPECT_EQ(std::ranges::count(gone, "stream 0"), 0);
  EXPECT_EQ(gone.back(), "launch s3 16");
}

// Room is made in a quiet moment, or given back. Until then nobody waits in the driver.
TEST_F(BacklogTest, WhatThereIsNoRoomForStaysHere) {
  driver_.make_room();
  worker_parts_.slots[0] = std::make_shared<StreamSlots>();
  ASSERT_EQ(worker_parts_.slots[0]->grow(driver_.table(), nullptr, 4), CUDA_SUCCESS);
  StreamSlot all = worker_parts_.slots[0]->take(4);
  driver_.hold(2, true);
  launch(2);
  create_stream(3, StreamKind::kNonBlocking);
  create_stream(4, StreamKind::kNonBlocking);
  calls();
  launch(3);
  launch(4);
  EXPECT_EQ(calls(), Calls{});
  session_->submitter.advance();
  EXPECT_EQ(calls(), Calls{}) << "stream 2 runs";
  EXPECT_TRUE(awaits_stream_slot());
  EXPECT_EQ(session_->core.view.executor().held, 2u);
  launch(1);
  EXPECT_EQ(calls(), Calls{"launch s1 16"}) << "others go on";
  all.reset();
  session_->submitter.advance();
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch s3 16", "stream 0", "launch s4 16"}));
  EXPECT_FALSE(awaits_stream_slot());
  driver_.hold(2, false);
}

TEST_F(BacklogTest, AQuietMomentMakesRoom) {
  driver_.make_room();
  worker_parts_.slots[0] = std::make_shared<StreamSlots>();
  ASSERT_EQ(worker_parts_.slots[0]->grow(driver_.table(), nullptr, 4), CUDA_SUCCESS);
  const StreamSlot all = worker_parts_.slots[0]->take(4);
  create_stream(3, StreamKind::kNonBlocking);
  driver_.hold(2, true);
  launch(2);
  launch(3);
  EXPECT_TRUE(awaits_stream_slot());
  driver_.hold(2, false);
  // Or the gate's own thread has begun to look for one.
  while (gate_.has_deferred() || gate_.is_collecting()) session_->service();
  session_->submitter.advance();
  EXPECT_EQ(calls().back(), "launch s3 16");
  EXPECT_FALSE(worker_parts_.slots[0]->are_short());
}

TEST_F(BacklogTest, SoDoesWhatIsBehindAHostFunctionThatTakesItsTime) {
  wire::CallbackSlot& slot = session_->core.view.callback(2);
  EXPECT_TRUE(send(wire::HostFunction{1, 2, 7, 3}).ok());
  record(1, 1);
  wait_event(2, 1);
  launch(2);
  EXPECT_EQ(slot.posted.load(), 1u) << "what asks for it goes at once";
  for (const std::string& call : calls()) EXPECT_FALSE(call.starts_with("await")) << call;
  EXPECT_TRUE(session_->streams.idle());
  session_->submitter.advance();
  EXPECT_EQ(session_->core.view.executor().held, 4u);
  EXPECT_EQ(session_->core.usage.row().held_now[static_cast<size_t>(wire::HeldFor::kHostFunction)],
            1u);
  slot.done = 1;
  session_->submitter.advance();
  EXPECT_EQ(calls().back(), "launch s2 16");
  EXPECT_EQ(session_->core.view.fence(3).value.load(), 7u);
}

TEST_F(BacklogTest, TheGpuWaitsForOneThatIsExpectedSoon) {
  EXPECT_TRUE(send(wire::HostFunction{1, 2, 7, 3, wire::kAnswersSoon}).ok());
  EXPECT_TRUE(session_->backlog.empty());
  EXPECT_FALSE(session_->streams.idle());
  session_->core.view.callback(2).done = 1;
}

// Others are told that it stands for its client only if it does.
TEST_F(BacklogTest, AQuietMomentIsHinderedByWhatTheGpuWaitsFor) {
  wire::ExecutorState shown{};
  GateClient other;
  other.shown = &shown;
  core_gate().add(other);
  const auto hindrance = [&] {
    EXPECT_FALSE(core_gate().run_quiescent({GatedCall::kModuleLoad, 0, &other, Patience::kOneHold},
                                           [] { return CUDA_SUCCESS; }));
    return shown.hindrances[0].why.load();
  };
  driver_.hold(2, true);
  launch(2);
  EXPECT_TRUE(send(wire::HostFunction{1, 2, 7, 3}).ok());
  EXPECT_EQ(hindrance(), wire::Hindrance::kRuns);
  EXPECT_TRUE(send(wire::HostFunction{1, 4, 8, 3, wire::kAnswersSoon}).ok());
  session_->core.view.callback(2).done = 1;
  session_->submitter.advance();
  EXPECT_EQ(hindrance(), wire::Hindrance::kHostFunction);
  session_->core.view.callback(4).done = 1;
  EXPECT_EQ(hindrance(), wire::Hindrance::kRuns);
  driver_.hold(2, false);
  core_gate().remove(other);
}

// Who sleeps is woken by who looks for all.
class WatchedBacklogTest : public BacklogTest {
 protected:
  void prepare() override {
    BacklogTest::prepare();
    worker_parts_.value_watch = std::make_unique<ValueWatch>(worker_parts_.clock);
    ASSERT_TRUE(worker_parts_.value_watch->start().ok());
  }
};

TEST_F(WatchedBacklogTest, AWordThatComesRingsForItsSession) {
  const auto& bell = session_->core.bell;
  const long holders = bell.use_count();
  bell->answer();
  stand(1);
  stand(1);
  EXPECT_FALSE(bell->rung().load());
  put(kWord, 1);
  while (!bell->rung().load()) std::this_thread::yield();
  session_->submitter.advance();
  EXPECT_TRUE(session_->backlog.empty());
  EXPECT_EQ(bell.use_count(), holders) << "nobody watches any more";
}

TEST_F(BacklogTest, EveryConditionIsTheGpus) {
  struct Case {
    uint32_t flags;
    uint64_t now;
    uint64_t wanted;
    bool there;
  };
  constexpr uint64_t kTop = 1ull << 31;
  const Case cases[] = {
      {CU_STREAM_WAIT_VALUE_GEQ, 5, 5, true},       {CU_STREAM_WAIT_VALUE_GEQ, 4, 5, false},
      {CU_STREAM_WAIT_VALUE_GEQ, 2, ~0u, true},  // in a circle
      {CU_STREAM_WAIT_VALUE_GEQ, kTop, 1, true},    {CU_STREAM_WAIT_VALUE_GEQ, kTop + 1, 1, false},
      {CU_STREAM_WAIT_VALUE_EQ, 5, 5, true},        {CU_STREAM_WAIT_VALUE_EQ, 6, 5, false},
      {CU_STREAM_WAIT_VALUE_AND, 6, 2, true},       {CU_STREAM_WAIT_VALUE_AND, 5, 2, false},
      {CU_STREAM_WAIT_VALUE_NOR, 6, 1, true},       {CU_STREAM_WAIT_VALUE_NOR, ~0u, 1, false},
      {CU_STREAM_WAIT_VALUE_NOR, kTop, ~0u, false},
  };
  for (const Case& c : cases) {
    put(kWord + 64, static_cast<uint32_t>(c.now));
    EXPECT_TRUE(wait_for(1, kWord + 64, c.wanted, c.flags).ok());
    EXPECT_EQ(session_->backlog.empty(), c.there) << c.flags << ": " << c.now << ", " << c.wanted;
    session_->backlog.drop();
  }
  std::atomic_ref(*reinterpret_cast<uint64_t*>(kWord + 64)).store(1ull << 40);
  EXPECT_TRUE(wait_for(1, kWord + 64, 1ull << 40, 0, 8).ok());
  EXPECT_TRUE(session_->backlog.empty());
  EXPECT_TRUE(wait_for(1, kWord + 64, (1ull << 40) + 1, 0, 8).ok());
  EXPECT_FALSE(session_->backlog.empty());
  session_->submitter.flush();
  put(kWord + 64, 1);
}

TEST_F(BacklogTest, AnotherStreamWaitsForAHeldRecord) {
  stand(1);
  record(1, 1);
  wait_event(2, 1);
  launch(2);
  EXPECT_EQ(calls(), Calls{"event"});
  const Calls gone = come();
  ASSERT_GE(gone.size(), 4u);
  EXPECT_EQ(std::vector(gone.end() - 3, gone.end()),
            (Calls{"record e1 s1", "wait s2 e1", "launch s2 16"}));
}

TEST_F(BacklogTest, AHeldWaitIsForTheRecordBeforeIt) {
  record(1, 2);
  stand(1);
  wait_event(1, 1);
  launch(1);
  calls();
  driver_.hold(2, true);
  launch(2);
  record(1, 2);
  EXPECT_EQ(calls(), (Calls{"launch s2 16", "event", "record e2 s2"})) << "it has its own event";
  const Calls gone = come();
  EXPECT_EQ(std::count(gone.begin(), gone.end(), "wait s1 e1"), 1);
  EXPECT_EQ(gone.back(), "launch s1 16");
  driver_.hold(2, false);
}

TEST_F(BacklogTest, TheLegacyStreamKeepsItsPlace) {
  create_stream(3, StreamKind::kLegacy);
  create_stream(4, StreamKind::kBlocking);
  create_stream(5, StreamKind::kBlocking);
  launch(4);
  calls();
  stand(4);
  launch(3);  // behind stream 4
  launch(5);  // behind the legacy stream
  launch(2);
  EXPECT_EQ(calls(), (Calls{"stream 0", "stream 0", "launch s2 16"})) << "theirs";
  const Calls gone = come();
  std::vector<std::string> launches;
  for (const std::string& call : gone) {
    if (call.starts_with("launch")) launches.push_back(call);
  }
  EXPECT_EQ(launches, (Calls{"launch s4 16", "launch s5 16"})) << "first the legacy stream";
}

TEST_F(BacklogTest, NobodyComesBehindAFenceOfTheLegacyStream) {
  create_stream(3, StreamKind::kLegacy);
  create_stream(4, StreamKind::kBlocking);
  create_stream(5, StreamKind::kBlocking);
  launch(5);
  calls();
  stand(4);
  EXPECT_TRUE(send(wire::Fence{3, 3, 5}).ok());
  EXPECT_TRUE(send(wire::WakeAfter{3}).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "stream 0"})) << "behind stream 4";
  launch(5);
  EXPECT_TRUE(send(wire::Fence{5, 5, 7}).ok());
  EXPECT_EQ(session_->core.view.fence(5).value.load(), 7u);
  launch(3);
  calls();
  EXPECT_TRUE(send(wire::Fence{5, 5, 8}).ok());
  EXPECT_EQ(session_->core.view.fence(5).value.load(), 8u) << "the launch is no matter of a fence";
  EXPECT_TRUE(send(wire::Fence{5, 5 | wire::kFenceInOrder, 9}).ok());
  EXPECT_EQ(session_->core.view.fence(5).value.load(), 8u) << "but of one in order";
  come();
  EXPECT_EQ(session_->core.view.fence(3).value.load(), 5u);
  EXPECT_EQ(session_->core.view.fence(5).value.load(), 9u);
}

TEST_F(BacklogTest, AnOrderedCopyHoldsBackItsContextOnly) {
  create_stream(3, StreamKind::kNonBlocking, 2);
  map(kBase, kUnit);
  launch(3);
  calls();
  stand(1);
  EXPECT_TRUE(send(wire::Memcpy{1, wire::kOrderAllStreams, kBase, kBase + 64, 64}).ok());
  launch(2);
  EXPECT_EQ(calls(), Calls{}) << "behind the copy";
  launch(3);
  EXPECT_EQ(calls(), Calls{"launch s3 16"}) << "of another context";
  EXPECT_EQ(come().back(), "launch s2 16");
}

TEST_F(BacklogTest, LaunchesOfOneGraphKeepTheirOrder) {
  for (const wire::Id exec : {1u, 2u}) {
    EXPECT_TRUE(send(wire::GraphBegin{exec, 0}).ok());
    EXPECT_TRUE(send(wire::GraphNode{exec, wire::GraphNodeKind::kEmpty, 0, 0, 0}).ok());
    EXPECT_TRUE(send(wire::GraphInstantiate{0, exec}).ok());
  }
  calls();
  stand(1);
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  EXPECT_TRUE(send(wire::GraphLaunch{1, 2}).ok());
  launch(2);
  EXPECT_EQ(calls(), Calls{}) << "stream 2 comes behind the launch in stream 1";
  const Calls gone = come();
  ASSERT_GE(gone.size(), 3u);
  EXPECT_EQ(std::vector(gone.end() - 3, gone.end()),
            (Calls{"graph s1", "graph s2", "launch s2 16"}));
  EXPECT_TRUE(send(wire::GraphLaunch{1, 2}).ok());
  EXPECT_EQ(calls(), Calls{"graph s2"});
  put(kWord, 0);
  stand(1);
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  EXPECT_TRUE(send(wire::GraphLaunch{2, 2}).ok());
  EXPECT_EQ(calls(), Calls{"graph s2"}) << "another graph";
  EXPECT_EQ(come().back(), "graph s1");
}

TEST_F(BacklogTest, WhatIsGivenUpBehindHeldWorkStays) {
  map(kBase, kUnit);
  map(kBase + kUnit, kUnit);
  stand(1);
  launch(1);
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase, kUnit, 0, 0}).ok());
  driver_.hold(2, true);
  launch(2);
  EXPECT_TRUE(send(wire::MemoryUnmap{kBase + kUnit, kUnit, 0, 0}).ok());
  session_->service();
  EXPECT_EQ(session_->core.view.header().unmapped.load(), 0u);
  driver_.hold(1, true);
  come();
  session_->service();
  EXPECT_EQ(session_->core.view.header().unmapped.load(), 0u) << "it runs";
  driver_.hold(1, false);
  session_->service();
  EXPECT_EQ(session_->core.view.header().unmapped.load(), 0u) << "so does stream 2";
  driver_.hold(2, false);
  session_->service();
  EXPECT_EQ(session_->core.view.header().unmapped.load(), 2u);
}

// Its code lives as long.
TEST_F(BacklogTest, AModuleEndsBehindWhatUsesIt) {
  stand(1);
  launch(1);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  session_->service();
  EXPECT_EQ(calls(), Calls{});
  EXPECT_EQ(driver_.live().find("libraries 1"), 0u) << driver_.live();
  EXPECT_EQ(come().back(), "launch s1 16");
  session_->service();
  EXPECT_EQ(driver_.live().find("libraries"), std::string::npos) << driver_.live();
}

// Code is loaded, contexts come and go, others are told of events: what has nothing to do with it
// stays.
TEST_F(BacklogTest, WhatConcernsOthersStays) {
  create_stream(3, StreamKind::kNonBlocking, 2);
  create_stream(4, StreamKind::kNonBlocking, 2);
  launch(3);
  record(1, 2);
  ASSERT_TRUE(send(wire::EventPublish{1}).ok());
  stand(1);
  launch(1);
  stand(4);
  calls();
  EXPECT_TRUE(send(wire::BlobBegin{5, 2}).ok());
  memcpy(session_->core.view.staging(), "other", 5);
  EXPECT_TRUE(send(wire::BlobData{2, 5, 0, kStaging}).ok());
  EXPECT_TRUE(send(wire::ModuleLoad{2, 2, 0, wire::ModuleKind::kModule, 0, 0}).ok());
  EXPECT_TRUE(send(wire::GetFunction{2, 2, wire::ModuleKind::kModule, 4}, "kern").ok());
  record(1, 2);
  EXPECT_TRUE(send(wire::Ping{}).ok());
  EXPECT_EQ(session_->backlog.size(), 3u);
  EXPECT_TRUE(send(wire::ContextReset{2, 0}).ok());
  EXPECT_EQ(session_->backlog.size(), 2u) << "its streams end, with what they were given";
  put(kWord, 1);
  session_->backlog.drop();
}

// Another session may wait for it as soon as the record has been made.
TEST_F(BacklogTest, ARecordThatOthersSeeGoesWithWhatItComesBehind) {
  create_stream(3, StreamKind::kNonBlocking);
  create_stream(4, StreamKind::kNonBlocking);
  record(1, 3);
  ASSERT_TRUE(send(wire::EventPublish{1}).ok());
  EXPECT_TRUE(send(wire::EventCreate{2, 0, 0}).ok());
  stand(1);
  launch(1);
  stand(2);
  launch(2);
  record(2, 2);
  stand(4);
  launch(3);
  wait_event(3, 2);
  calls();
  record(1, 3);
  const Calls gone = calls();
  EXPECT_EQ(gone.back(), "record e1 s3");
  EXPECT_EQ(std::ranges::count(gone, "await s2"), 1);
  EXPECT_EQ(std::ranges::count(gone, "await s1"), 0);
  EXPECT_EQ(session_->backlog.size(), 3u) << "streams 1 and 4";
  put(kWord, 1);
  session_->backlog.drop();
}

TEST_F(BacklogTest, ALaunchWithAnEventDoesNotStayHere) {
  CUlaunchAttribute completion{};
  completion.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  completion.value.launchCompletionEvent.event = reinterpret_cast<CUevent>(uintptr_t{1});
  stand(1);
  wire::Launch command = launch_of(1);
  command.attribute_count = 1;
  std::string tail(sizeof(completion) + 16, '\0');
  memcpy(tail.data(), &completion, sizeof(completion));
  EXPECT_TRUE(send(command, tail).ok());
  EXPECT_TRUE(calls().back().starts_with("launch-ex s1"));
  EXPECT_TRUE(session_->backlog.empty());
  put(kWord, 1);
}

// What waits is the driver's only when it may go. The client is told to wait long before there is
// no room for more.
TEST_F(BacklogTest, ItIsBounded) {
  const std::atomic<uint32_t>& is_full = session_->core.view.is_full(1);
  stand(1);
  for (size_t i = 1; i < kMostHeldItems - 1; ++i) launch(1);
  EXPECT_EQ(is_full.load(), 0u);
  launch(1);
  EXPECT_EQ(is_full.load(), 1u);
  while (!session_->backlog.is_full()) launch(1);
  EXPECT_EQ(calls(), Calls{});
  EXPECT_EQ(session_->core.view.is_full(2).load(), 0u);
  launch(2);
  EXPECT_EQ(session_->core.view.is_full(2).load(), 0u) << "one that does not wait is not full";
  stand(2);
  for (size_t i = 1; i < kDriverItems; ++i) launch(2);
  EXPECT_EQ(session_->core.view.is_full(2).load(), 1u) << "as full as the driver's may be";
  EXPECT_EQ(calls(), Calls{"launch s2 16"});
  session_->backlog.drop();
}

// Parameters count, too.
TEST_F(BacklogTest, ItIsBoundedInBytes) {
  stand(1);
  wire::Launch command = launch_of(1);
  command.parameter_bytes = 4096;
  const std::string tail(4096, '\0');
  session_->modules.functions().find(1)->parameter_bytes = 4096;
  size_t launches = 0;
  for (; !session_->backlog.is_full(); ++launches) ASSERT_TRUE(send(command, tail).ok());
  EXPECT_LE(launches, kMostHeldBytes / 4096);
  session_->backlog.drop();
  EXPECT_FALSE(session_->backlog.is_full());
}

// One of a session's streams that has nothing to do makes room for another: so it goes on, whatever
// others wait for.
TEST_F(BacklogTest, AStreamThatHasNothingToDoMakesRoom) {
  driver_.make_room();
  worker_parts_.slots[0] = std::make_shared<StreamSlots>();
  ASSERT_EQ(worker_parts_.slots[0]->grow(driver_.table(), nullptr, 4), CUDA_SUCCESS);
  const StreamSlot others = worker_parts_.slots[0]->take(3);
  driver_.hold(2, true);
  launch(2);  // so no quiet moment comes
  constexpr wire::Id kFirst = 10, kStreams = 6;
  for (wire::Id stream = kFirst; stream < kFirst + kStreams; ++stream) {
    create_stream(stream, stream % 2 == 0 ? StreamKind::kBlocking : StreamKind::kLegacy, stream);
  }
  calls();
  for (int round = 0; round < 2; ++round) {
    for (wire::Id stream = kFirst; stream < kFirst + kStreams; ++stream) {
      launch(stream);
      EXPECT_TRUE(session_->backlog.empty()) << stream;
      EXPECT_TRUE(calls().back().starts_with("launch s")) << stream;
    }
  }
  EXPECT_TRUE(session_->streams.streams().find(kFirst)->handle == nullptr);
  driver_.hold(2, false);
}

// What a stream that rests was given counts as done for those who come behind it.
TEST_F(BacklogTest, WhoRestsIsWaitedForNoMore) {
  driver_.make_room();
  worker_parts_.slots[0] = std::make_shared<StreamSlots>();
  ASSERT_EQ(worker_parts_.slots[0]->grow(driver_.table(), nullptr, 4), CUDA_SUCCESS);
  const StreamSlot others = worker_parts_.slots[0]->take(3);
  map(kBase, kUnit);
  driver_.hold(2, true);
  launch(2);
  create_stream(10, StreamKind::kLegacy, 7);
  create_stream(11, StreamKind::kBlocking, 7);
  create_stream(12, StreamKind::kBlocking, 7);
  launch(10);
  EXPECT_TRUE(send(wire::Memcpy{11, wire::kOrderAllStreams, kBase, kBase + 64, 64}).ok());
  launch(12);
  launch(10);
  launch(11);
  EXPECT_TRUE(send(wire::StreamDestroy{11}).ok());
  launch(10);
  EXPECT_TRUE(session_->backlog.empty());
  session_->submitter.end_batch();
  const Calls gone = calls();
  EXPECT_EQ(
      std::ranges::count_if(gone, [](const auto& call) { return call.starts_with("launch"); }), 6);
  driver_.hold(2, false);
}

TEST_F(BacklogTest, ItGoesWithItsClient) {
  stand(1);
  launch(1);
  session_->drain();
  EXPECT_EQ(calls(), Calls{});
}

TEST_F(BacklogTest, AnErrorIsThatOfItsCommand) {
  stand(1);
  launch(1);
  driver_.fail("launch", CUDA_ERROR_INVALID_VALUE);
  come();
  const Submitter::Progress progress = session_->submitter.take_progress();
  EXPECT_TRUE(progress.any);
  EXPECT_EQ(progress.failed, wire::Opcode::kLaunch);
  EXPECT_EQ(progress.status.code(), CUDA_ERROR_INVALID_VALUE);
  driver_.fail("launch", CUDA_SUCCESS);
}

}  // namespace
}  // namespace openmps::worker
