// SPDX-License-Identifier: Apache-2.0
// What a session gives up while its streams work: no command waits for them, nothing goes before
// its time, and what is kept gives way.
#include "session_fixture.h"

namespace openmps::worker {
namespace {

using wire::StreamKind;

class SessionReleasesTest : public SessionFixture {
 protected:
  void SetUp() override {
    SessionFixture::SetUp();
    load_module();
    create_stream(1, StreamKind::kNonBlocking);
    create_stream(2, StreamKind::kNonBlocking);
  }
  // Stream 1, the driver's first, has work that does not end.
  void start_work() {
    driver_.hold(1, true);
    launch(1);
    calls();
  }
  void end_work() { driver_.hold(1, false); }
  void unmap(uint64_t address, uint64_t bytes, uint32_t flags = 0) {
    const Status status = send(wire::MemoryUnmap{address, bytes, 0, flags});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  [[nodiscard]] uint64_t unmapped() const { return session_->core.view.header().unmapped.load(); }
  bool launches(wire::Id stream) {
    calls();
    launch(stream);
    const Calls made = calls();
    return !made.empty() && made.back().starts_with("launch");
  }
};

TEST_F(SessionReleasesTest, MemoryStaysUntilTheWorkBeforeHasEnded) {
  map(kBase, kUnit);
  start_work();
  unmap(kBase, kUnit);
  EXPECT_EQ(driver_.physical_bytes(), kUnit);
  EXPECT_EQ(unmapped(), 0u);
  EXPECT_FALSE(session_->memory.contains(kBase, 1)) << "nobody may name it";
  EXPECT_EQ(session_->memory.granted(0), kUnit) << "it counts";
  EXPECT_TRUE(launches(2)) << "other streams go on";
  // Work that came later has nothing to do with it.
  driver_.hold(2, true);
  launch(2);
  end_work();
  EXPECT_EQ(session_->service() == ~0ull, true);
  EXPECT_EQ(driver_.physical_bytes(), 0u);
  EXPECT_EQ(unmapped(), 1u);
  EXPECT_EQ(session_->memory.granted(0), 0u);
  driver_.hold(2, false);
}

TEST_F(SessionReleasesTest, ReleasesComeInTheOrderOfTheCommands) {
  for (uint64_t i = 0; i < 3; ++i) map(kBase + i * kUnit, kUnit);
  start_work();
  unmap(kBase, kUnit);
  driver_.hold(2, true);
  launch(2);
  unmap(kBase + kUnit, kUnit);
  unmap(kBase + 2 * kUnit, kUnit);
  EXPECT_LT(session_->service(), ~0ull) << "there is something to look for";
  driver_.hold(2, false);
  session_->service();
  EXPECT_EQ(unmapped(), 0u) << "the first waits for stream 1, the others for both";
  end_work();
  session_->service();
  EXPECT_EQ(unmapped(), 3u);
}

TEST_F(SessionReleasesTest, AMarkCoversStreamsThatHaveBeenDestroyed) {
  map(kBase, kUnit);
  start_work();
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  unmap(kBase, kUnit);
  session_->service();
  EXPECT_EQ(unmapped(), 0u);
  end_work();
  session_->service();
  EXPECT_EQ(unmapped(), 1u);
}

TEST_F(SessionReleasesTest, WithoutEventsEverythingHasToEnd) {
  map(kBase, kUnit);
  start_work();
  driver_.fail("event", CUDA_ERROR_OUT_OF_MEMORY);
  unmap(kBase, kUnit);
  session_->service();
  EXPECT_EQ(unmapped(), 0u);
  driver_.fail("event", CUDA_SUCCESS);
  end_work();
  session_->service();
  EXPECT_EQ(unmapped(), 1u);
}

TEST_F(SessionReleasesTest, AProgramsOwnMappingsGoAtOnce) {
  map(kBase, kUnit);
  start_work();
  unmap(kBase, kUnit, wire::kUnmapAtOnce);
  EXPECT_EQ(driver_.physical_bytes(), 0u);
  EXPECT_EQ(unmapped(), 0u) << "not one of those that are counted";
  map(kBase, kUnit);
  end_work();
}

TEST_F(SessionReleasesTest, ARangeCanOnlyBeMappedAsItWas) {
  map(kBase, 2 * kUnit);
  map(kBase + 2 * kUnit, kUnit);
  start_work();
  unmap(kBase, 2 * kUnit, wire::kUnmapKeep);
  unmap(kBase + 2 * kUnit, kUnit);
  const auto again = [&](uint64_t address, uint64_t bytes) {
    return send(wire::MemoryMap{address, bytes, 0});
  };
  EXPECT_EQ(again(kBase, kUnit).code(), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(again(kBase + 2 * kUnit, kUnit).code(), CUDA_ERROR_NOT_READY) << "it is given back";
  EXPECT_TRUE(is_violation(again(kBase + kUnit, kUnit)));
  calls();
  EXPECT_TRUE(again(kBase, 2 * kUnit).ok());
  EXPECT_EQ(calls(), Calls{}) << "nothing had happened to it";
  EXPECT_TRUE(session_->memory.contains(kBase, 2 * kUnit, true));
  // What was taken back is not given back by the command before.
  end_work();
  session_->service();
  EXPECT_EQ(unmapped(), 2u);
  EXPECT_TRUE(session_->memory.contains(kBase, 2 * kUnit, true));
  EXPECT_EQ(driver_.physical_bytes(), 2 * kUnit);
}

TEST_F(SessionReleasesTest, FreedMemoryIsKeptForItsSession) {
  map(kBase, kUnit);
  calls();
  for (int i = 0; i < 3; ++i) {
    unmap(kBase, kUnit, wire::kUnmapKeep);
    EXPECT_EQ(unmapped(), static_cast<uint64_t>(i + 1));
    EXPECT_FALSE(session_->memory.contains(kBase, 1));
    map(kBase, kUnit);
  }
  EXPECT_EQ(calls(), Calls{}) << "no driver call";
  unmap(kBase, kUnit, wire::kUnmapKeep);
  // Another range over it: the kept one makes way.
  map(kBase, 2 * kUnit);
  EXPECT_EQ(driver_.physical_bytes(), 2 * kUnit);
}

TEST_F(SessionReleasesTest, WhatIsKeptCountsAsFreeAndGivesWay) {
  map(kBase, kLimit);
  unmap(kBase, kLimit, wire::kUnmapKeep);
  EXPECT_EQ(driver_.physical_bytes(), kLimit);
  EXPECT_TRUE(send(wire::MemoryInfo{0}).ok());
  EXPECT_EQ(reply<wire::MemoryInfo::Reply>().free, kLimit);
  map(kBase + kLimit, kUnit);  // the session's limit
  EXPECT_EQ(driver_.physical_bytes(), kUnit);
}

TEST_F(SessionReleasesTest, WhoAsksForFreeMemoryHearsOfWhatHasEnded) {
  map(kBase, kLimit);
  start_work();
  unmap(kBase, kLimit);
  const auto free_bytes = [&] {
    EXPECT_TRUE(send(wire::MemoryInfo{0}).ok());
    return reply<wire::MemoryInfo::Reply>().free;
  };
  EXPECT_EQ(free_bytes(), 0u);
  end_work();
  EXPECT_EQ(free_bytes(), kLimit) << "nobody has looked in between";
}

TEST_F(SessionReleasesTest, OneSessionsKeptMemoryGivesWayToAnother) {
  map(kBase, kUnit);
  unmap(kBase, kUnit, wire::kUnmapKeep);
  SessionInfo info;
  info.id = 2;
  info.window = kWindow + 1;
  SessionParts other(driver_.table(), *devices_, gate_, worker_parts_, info);
  // The driver has no memory until the kept is back.
  driver_.limit_physical(2 * kUnit);
  ASSERT_TRUE(other.memory.map({wire::window_base(kWindow + 1), 2 * kUnit, 0}).ok());
  EXPECT_EQ(driver_.physical_bytes(), 2 * kUnit);
  EXPECT_EQ(session_->memory.granted(0), 0u);
  EXPECT_EQ(other.memory.map({wire::window_base(kWindow + 1) + 2 * kUnit, kUnit, 0}).code(),
            CUDA_ERROR_OUT_OF_MEMORY);
  other.release();
}

TEST_F(SessionReleasesTest, WhatOthersMayReachIsNeverKept) {
  map(kBase, kUnit);
  EXPECT_TRUE(send(wire::MemoryPublish{kBase, kUnit}).ok());
  unmap(kBase, kUnit, wire::kUnmapKeep);
  map(kBase + kUnit, kUnit);
  session_->physical.send = [](uint32_t, int) {};
  EXPECT_TRUE(send(wire::RangeExport{kBase + kUnit, 4096, 0, 7}).ok());
  unmap(kBase + kUnit, kUnit, wire::kUnmapKeep);
  EXPECT_EQ(session_->memory.granted(0), 0u);
}

TEST_F(SessionReleasesTest, PinnedPagesStayUntilTheWorkBeforeHasEnded) {
  EXPECT_TRUE(send(wire::HostRegister{kPinned, 2 * kUnit}).ok());
  start_work();
  EXPECT_TRUE(send(wire::HostUnregister{kPinned, 2 * kUnit}).ok());
  EXPECT_EQ(session_->core.view.header().unregistered.load(), 0u);
  EXPECT_FALSE(session_->memory.contains(kPinned, 1));
  EXPECT_TRUE(is_violation(send(wire::HostRegister{kPinned, 2 * kUnit})));
  EXPECT_TRUE(launches(2));
  end_work();
  session_->service();
  EXPECT_EQ(session_->core.view.header().unregistered.load(), 1u);
  EXPECT_TRUE(send(wire::HostRegister{kPinned, 2 * kUnit}).ok());
}

TEST_F(SessionReleasesTest, ImagesAndArraysStayUntilTheWorkBeforeHasEnded) {
  const wire::ArrayCreate shape{1, 0, 64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0};
  EXPECT_TRUE(send(shape).ok());
  wire::ImageCreate image{};
  image.image = 1;
  image.kind = wire::ImageKind::kTexture;
  image.type = CU_RESOURCE_TYPE_ARRAY;
  image.array = 1;
  const Status made = send(image);
  EXPECT_TRUE(made.ok()) << made.message();
  start_work();
  EXPECT_TRUE(send(wire::ImageDestroy{1}).ok());
  EXPECT_TRUE(send(wire::ArrayDestroy{1}).ok());
  EXPECT_NE(driver_.live().find("arrays 1"), std::string::npos) << driver_.live();
  EXPECT_NE(driver_.live().find("textures 1"), std::string::npos) << driver_.live();
  EXPECT_NE(session_->memory.granted(0), 0u);
  EXPECT_TRUE(launches(2));
  end_work();
  session_->service();
  EXPECT_EQ(driver_.live().find("arrays"), std::string::npos) << driver_.live();
  EXPECT_EQ(driver_.live().find("textures"), std::string::npos) << driver_.live();
  EXPECT_EQ(session_->memory.granted(0), 0u);
}

// The driver's calls wait for everybody's work; the session's executor does not.
TEST_F(SessionReleasesTest, WhatWaitsForANeighbourGoesWithoutTheSessionsThread) {
  EXPECT_TRUE(send(wire::HostRegister{kPinned, kUnit}).ok());
  EXPECT_TRUE(send(wire::ArrayCreate{1, 0, 64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0}).ok());
  CUstream neighbour = nullptr;
  ASSERT_EQ(driver_.table().cuStreamCreateWithPriority(&neighbour, CU_STREAM_NON_BLOCKING, 0),
            CUDA_SUCCESS);
  ContextGate::Stream* listed = gate_.add(neighbour, 0);
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  driver_.hold(1, true);  // the driver's first: the session has not used its own yet
  driver_.push(reinterpret_cast<uint64_t>(neighbour), [] { return true; });
  listed->set_busy();

  EXPECT_TRUE(send(wire::HostUnregister{kPinned, kUnit}).ok());
  EXPECT_TRUE(send(wire::ArrayDestroy{1}).ok());
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_EQ(session_->core.view.header().unregistered.load(), 0u);
  EXPECT_NE(driver_.live().find("arrays 1"), std::string::npos) << driver_.live();
  EXPECT_NE(driver_.live().find("execs 1"), std::string::npos) << driver_.live();
  EXPECT_NE(session_->memory.granted(0), 0u) << "it counts";
  EXPECT_TRUE(launches(2));
  const wire::ChannelView& view = session_->core.view;
  EXPECT_EQ(view.executor().returns, 2u);
  EXPECT_EQ(view.pending_return(0).kind, wire::ReturnKind::kHostMemory);
  EXPECT_EQ(view.pending_return(0).wait, wire::ReturnWait::kQuietMoment);
  EXPECT_EQ(view.pending_return(0).address, kPinned);
  EXPECT_EQ(view.pending_return(0).bytes, kUnit);
  EXPECT_EQ(view.pending_return(1).kind, wire::ReturnKind::kArray);
  EXPECT_GE(view.pending_return(1).bytes, 64u * 64 * sizeof(float));

  driver_.hold(1, false);
  while (!session_->core.releases.empty()) session_->service();
  EXPECT_EQ(view.executor().returns, 0u);
  EXPECT_EQ(session_->core.view.header().unregistered.load(), 1u);
  EXPECT_EQ(driver_.live().find("arrays"), std::string::npos) << driver_.live();
  // In the same quiet moment, but behind the others, and nobody is told.
  while (driver_.live().find("execs") != std::string::npos) session_->service();
  EXPECT_EQ(session_->memory.granted(0), 0u);
  EXPECT_TRUE(send(wire::HostRegister{kPinned, kUnit}).ok());
  gate_.remove(listed);
  driver_.table().cuStreamDestroy_v2(neighbour);
}

// What `openmps inspect` is told of what has not been given back.
TEST_F(SessionReleasesTest, WhatIsGivenUpIsShownUntilItGoes) {
  const wire::ChannelView& view = session_->core.view;
  const wire::ExecutorState& state = view.executor();
  map(kBase, kUnit);
  start_work();
  driver_.hold(2, true);
  launch(2);
  unmap(kBase, kUnit);
  const wire::PendingReturn& row = view.pending_return(0);
  EXPECT_EQ(state.returns, 1u);
  EXPECT_EQ(row.kind, wire::ReturnKind::kDeviceMemory);
  EXPECT_EQ(row.wait, wire::ReturnWait::kStreams);
  EXPECT_EQ(row.address, kBase);
  EXPECT_EQ(row.bytes, kUnit);
  EXPECT_NE(row.since_ns, 0u);
  EXPECT_EQ(state.return_stream, 2u) << "the last of the mark is looked at first";
  driver_.hold(2, false);
  session_->service();
  EXPECT_EQ(state.return_stream, 1u);
  EXPECT_EQ(state.returns, 1u);
  end_work();
  session_->service();
  EXPECT_EQ(state.returns, 0u);
  EXPECT_EQ(row.kind, wire::ReturnKind::kNone);
  EXPECT_EQ(state.return_stream, 0u);
}

TEST_F(SessionReleasesTest, MoreThanHasRowsIsCounted) {
  const wire::ChannelView& view = session_->core.view;
  EXPECT_TRUE(send(wire::ArrayCreate{1, 0, 64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0}).ok());
  wire::ImageCreate image{};
  image.kind = wire::ImageKind::kTexture;
  image.type = CU_RESOURCE_TYPE_ARRAY;
  image.array = 1;
  for (uint32_t i = 0; i <= wire::kShownReturns; ++i) {
    image.image = i + 1;
    EXPECT_TRUE(send(image).ok());
  }
  start_work();
  for (uint32_t i = 0; i <= wire::kShownReturns; ++i) {
    EXPECT_TRUE(send(wire::ImageDestroy{i + 1}).ok());
  }
  EXPECT_EQ(view.executor().returns, wire::kShownReturns + 1);
  EXPECT_EQ(view.pending_return(wire::kShownReturns - 1).kind, wire::ReturnKind::kImage);
  end_work();
  session_->service();
  EXPECT_EQ(view.executor().returns, 0u);
  for (uint32_t i = 0; i < wire::kShownReturns; ++i) {
    EXPECT_EQ(view.pending_return(i).kind, wire::ReturnKind::kNone) << i;
  }
  EXPECT_TRUE(send(wire::ArrayDestroy{1}).ok());
}

TEST_F(SessionReleasesTest, AResetContextsStreamsFinishByThemselves) {
  start_work();
  EXPECT_TRUE(send(wire::ContextReset{1, 0}).ok());
  EXPECT_FALSE(session_->streams.idle());
  create_stream(3, StreamKind::kNonBlocking);
  EXPECT_TRUE(launches(3));
  end_work();
  EXPECT_TRUE(session_->streams.idle());
}

class KeptMemoryTest : public SessionReleasesTest {
 protected:
  [[nodiscard]] uint64_t limit() const override { return 0; }
};

TEST_F(KeptMemoryTest, IsSoMuchAtMostAndTheOldestGoes) {
  constexpr uint64_t kHalf = kMostKeptBytes / 2;
  for (uint64_t i = 0; i < 3; ++i) map(kBase + i * kHalf, i < 2 ? kHalf : kUnit);
  for (uint64_t i = 0; i < 2; ++i) unmap(kBase + i * kHalf, kHalf, wire::kUnmapKeep);
  EXPECT_EQ(worker_parts_.kept_memory.bytes(0, 1), kMostKeptBytes);
  unmap(kBase + 2 * kHalf, kUnit, wire::kUnmapKeep);
  EXPECT_EQ(worker_parts_.kept_memory.bytes(0, 1), kHalf + kUnit);
  EXPECT_EQ(driver_.physical_bytes(), kHalf + kUnit);
  calls();
  map(kBase + kHalf, kHalf);
  EXPECT_EQ(calls(), Calls{}) << "the younger is still there";
}

TEST_F(KeptMemoryTest, IsKeptSoLongAtMost) {
  MemoryCache& cache = worker_parts_.kept_memory;
  map(kBase, kUnit);
  const uint64_t before = clock_.now_ns();
  unmap(kBase, kUnit, wire::kUnmapKeep);
  const uint64_t end = cache.clear_old(driver_.table(), 1, before);
  EXPECT_GE(end, before + kKeptNs);
  EXPECT_EQ(cache.clear_old(driver_.table(), 1, end - 1), end);
  EXPECT_EQ(driver_.physical_bytes(), kUnit);
  EXPECT_EQ(cache.clear_old(driver_.table(), 1, end), 0u);
  EXPECT_EQ(driver_.physical_bytes(), 0u);
}

// ---- Waits for values --------------------------------------------------------------------------

class OpenWaitsTest : public SessionReleasesTest {
 protected:
  void prepare() override { worker_parts_.performance.holds_waits = false; }
  Status wait(wire::Id stream, uint64_t address, uint32_t value) {
    return send(wire::StreamWaitValue{{address, value, 4, CU_STREAM_WAIT_VALUE_EQ}, stream});
  }
  [[nodiscard]] size_t remembered() const { return session_->waits.size(); }
};

TEST_F(OpenWaitsTest, AreForgottenByTheirStreamAlone) {
  EXPECT_TRUE(wait(1, kStaging, 1).ok());
  for (uint32_t i = 0; i < 100; ++i) EXPECT_TRUE(wait(2, kStaging + 8 + 4 * i, 0).ok());
  EXPECT_EQ(remembered(), 2u) << "the open one, and the last, at which nobody has looked";
}

TEST_F(OpenWaitsTest, TheSameWaitAgainIsOneWait) {
  driver_.hold(1, true);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(wait(1, kStaging, 1).ok());
  EXPECT_EQ(remembered(), 1u);
  EXPECT_TRUE(wait(1, kStaging, 2).ok());
  EXPECT_EQ(remembered(), 2u);
  driver_.hold(1, false);
}

TEST_F(OpenWaitsTest, AreBounded) {
  driver_.hold(1, true);
  launch(1);
  for (uint32_t i = 0; i < kMostOpenWaits; ++i) ASSERT_TRUE(wait(1, kStaging + 8 + 4 * i, 0).ok());
  calls();
  EXPECT_EQ(wait(1, kStaging, 7).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls(), Calls{}) << "refused before it is submitted";
  driver_.hold(1, false);
  EXPECT_TRUE(wait(1, kStaging + 8, 0).ok()) << "they have passed";
  EXPECT_EQ(remembered(), 1u);
}

TEST_F(OpenWaitsTest, EachStreamStandsAtItsOwn) {
  // Two streams need different values of one word, one after the other.
  for (const uint32_t value : {5u, 6u, 5u}) {
    EXPECT_TRUE(wait(1, kStaging, value).ok());
    EXPECT_TRUE(wait(2, kStaging, 11 - value).ok());
  }
  for (int rounds = 0; !session_->streams.idle(); ++rounds) {
    ASSERT_LT(rounds, 100);
    session_->fences.pass_all_waits();
  }
  session_->fences.pass_all_waits();
  EXPECT_EQ(remembered(), 0u);
}

TEST_F(OpenWaitsTest, NothingIsWrittenWhereTheProgramHasUnmapped) {
  map(kBase, kUnit);
  driver_.hold(1, true);
  EXPECT_TRUE(wait(1, kBase, 1).ok());
  unmap(kBase, kUnit, wire::kUnmapAtOnce);
  calls();
  session_->fences.pass_all_waits();
  EXPECT_EQ(calls(), Calls{});
  map(kBase, kUnit);
  driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);  // the fake memory is nobody's: nothing may run
  driver_.poison(CUDA_SUCCESS);
}

}  // namespace
}  // namespace openmps::worker
