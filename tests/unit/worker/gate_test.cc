// SPDX-License-Identifier: Apache-2.0
// The gate before calls that wait for a whole context: what it waits for, whom it holds back, and
// that it gives up.
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "fake_driver.h"
#include "manual_clock.h"
#include "worker/device/context_gate.h"

namespace openmps::worker {
namespace {

// No limit is reached where a test does not want it: an hour.
constexpr uint64_t kNeverNs = 3'600'000'000'000;
constexpr GateLimits kPatient{.first_hold_ns = kNeverNs,
                              .longest_hold_ns = kNeverNs,
                              .open_ratio = 0,
                              .total_ns = kNeverNs,
                              .join_ns = kNeverNs};
// The first hold is short, and there are many.
constexpr GateLimits kShort{.first_hold_ns = 1'000'000,
                            .longest_hold_ns = 2'000'000,
                            .open_ratio = 1,
                            .total_ns = kNeverNs,
                            .join_ns = kNeverNs};
constexpr GateLimits with_driver_that_does_not_wait(GateLimits limits) {
  limits.loading_waits = false;
  return limits;
}

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
    listed->set_busy();
  }

  // Make a call in quiescence or, if there is none within the limit, beside running work.
  template <typename F>
  static CUresult run(ContextGate& gate, GatedCall call, uint32_t device, const GateClient* client,
                      F&& f) {
    return *gate.run_quiescent({call, device, client, Patience::kLimited, Otherwise::kCall}, f);
  }

  FakeDriver driver_;
  // Later than any time that a test goes back to.
  ManualClock clock_{1'000'000'000'000};
};

TEST_F(GateTest, WaitsForBusyStreamsOfItsDeviceOnly) {
  ContextGate gate(driver_.table(), kPatient, clock_);
  ContextGate::Stream* here = gate.add(stream(), 0);
  ContextGate::Stream* elsewhere = gate.add(stream(), 1);
  give_work(here, 1);
  give_work(elsewhere, 2);
  std::atomic<bool> called{false};
  std::thread caller([&] {
    EXPECT_EQ(run(gate, GatedCall::kModuleLoad, 0, nullptr,
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
  EXPECT_EQ(gate.calls(GatedCall::kModuleLoad), 1u);
  gate.remove(here);
  gate.remove(elsewhere);
}

TEST_F(GateTest, ASubmissionComesBeforeOrAfterTheCall) {
  ContextGate gate(driver_.table(), kPatient, clock_);
  GateClient client;
  gate.add(client);
  gate.enter(client, 0);
  std::atomic<bool> calling{false};
  std::thread caller([&] {
    run(gate, GatedCall::kFunctionLoad, 0, nullptr, [&] {
      calling = true;
      return CUDA_SUCCESS;
    });
  });
  EXPECT_FALSE(calling) << "in the middle of a submission";
  ContextGate::leave(client);
  caller.join();
  EXPECT_TRUE(calling);
  gate.enter(client, 0);  // open again
  gate.enter(client, 1);
  ContextGate::leave(client);
  gate.remove(client);
}

// A hold that is known to be too short would only cost others time.
TEST_F(GateTest, NobodyIsHeldBackForWhatIsKnownToRunForLong) {
  GateLimits limits = kPatient;
  limits.open_ratio = 1;
  ContextGate gate(driver_.table(), limits, clock_);
  ContextGate::Stream* busy = gate.add(stream(), 0);
  give_work(busy, 1);
  busy->ends_ns = ~0ull;
  std::atomic<bool> called{false};
  std::thread caller([&] {
    run(gate, GatedCall::kModuleLoad, 0, nullptr, [&] {
      called = true;
      return CUDA_SUCCESS;
    });
  });
  GateClient client;
  gate.add(client);
  // Held back, one of these would not return.
  const uint64_t begin = clock_.now_ns();
  while (clock_.now_ns() - begin < 50'000'000) {
    gate.enter(client, 0);
    ContextGate::leave(client);
  }
  EXPECT_EQ(gate.calls(GatedCall::kModuleLoad), 0u);
  EXPECT_FALSE(called);
  busy->ends_ns = 0;
  driver_.hold(1, false);
  caller.join();
  EXPECT_TRUE(called);
  gate.remove(client);
  gate.remove(busy);
}

TEST_F(GateTest, NearItsEndIsWhatIsKnownToEndSoon) {
  ContextGate gate(driver_.table(), kPatient, clock_);
  EXPECT_EQ(gate.near_end_ns(0), 0u);
  ContextGate::Stream* long_one = gate.add(stream(), 0);
  ContextGate::Stream* short_one = gate.add(stream(), 0);
  give_work(long_one, 1);
  give_work(short_one, 2);
  const uint64_t end = clock_.now_ns() + kNeverNs;
  long_one->ends_ns = end;
  short_one->ends_ns = clock_.now_ns();
  EXPECT_LT(gate.near_end_ns(0), end);
  EXPECT_GT(gate.near_end_ns(0), clock_.now_ns());
  EXPECT_EQ(gate.near_end_ns(1), 0u);
  long_one->ends_ns = short_one->ends_ns = clock_.now_ns();
  EXPECT_LT(gate.near_end_ns(0), clock_.now_ns());
  long_one->ends_ns = clock_.now_ns() / 2;
  EXPECT_LT(gate.near_end_ns(0), clock_.now_ns()) << "it may have ended";
  short_one->ends_ns = clock_.now_ns() / 2;
  EXPECT_GT(gate.near_end_ns(0), clock_.now_ns()) << "nothing is known of what is that late";
  driver_.hold(1, false);
  driver_.hold(2, false);
  gate.remove(long_one);
  gate.remove(short_one);
}

TEST_F(GateTest, NewWorkIsHeldBackDuringTheCall) {
  ContextGate gate(driver_.table(), kPatient, clock_);
  GateClient client;
  gate.add(client);
  std::atomic<bool> returned{false};
  std::thread other;
  run(gate, GatedCall::kFunctionLoad, ContextGate::kAllDevices, nullptr, [&] {
    std::atomic<bool> started{false};
    other = std::thread([&] {
      started = true;
      gate.enter(client, 3);
      EXPECT_TRUE(returned);
      ContextGate::leave(client);
    });
    while (!started) std::this_thread::yield();
    returned = true;
    return CUDA_SUCCESS;
  });
  other.join();
  gate.remove(client);
}

// Work that needs other work to go on is let through between the tries.
TEST_F(GateTest, LetsWorkThroughBetweenTries) {
  ContextGate gate(driver_.table(), kShort, clock_);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  std::atomic<bool> looked_at{false};
  std::atomic<bool> passed{false};
  driver_.push(reinterpret_cast<uint64_t>(listed->handle), [&] {
    looked_at = true;
    return passed.load();
  });
  listed->set_busy();
  GateClient client;
  gate.add(client);
  std::thread other([&] {
    while (!looked_at) std::this_thread::yield();
    gate.enter(client, 0);
    passed = true;
    ContextGate::leave(client);
  });
  run(gate, GatedCall::kModuleUnload, 0, nullptr, [&] {
    EXPECT_TRUE(passed);
    return CUDA_SUCCESS;
  });
  other.join();
  gate.remove(client);
  gate.remove(listed);
}

// Work that never ends does not keep the call from being made.
TEST_F(GateTest, GivesUpInTheEnd) {
  GateLimits limits = kShort;
  limits.total_ns = 30'000'000;
  ContextGate gate(driver_.table(), limits, clock_);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  bool called = false;
  run(gate, GatedCall::kModuleUnload, 0, nullptr, [&] {
    EXPECT_FALSE(driver_.idle(reinterpret_cast<uint64_t>(listed->handle)));
    called = true;
    return CUDA_SUCCESS;
  });
  EXPECT_TRUE(called);
  gate.remove(listed);
}

TEST_F(GateTest, WhatMustNotWaitInTheDriverIsNotCalledWithoutQuiescence) {
  GateLimits limits = kShort;
  limits.total_ns = 30'000'000;
  ContextGate gate(driver_.table(), limits, clock_);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  const auto call = [&] {
    return gate.run_quiescent({GatedCall::kLimit, 0}, [] { return CUDA_ERROR_INVALID_VALUE; });
  };
  EXPECT_EQ(call(), CUDA_ERROR_INVALID_VALUE) << "the call's own result";
  give_work(listed, 1);
  EXPECT_EQ(call(), std::nullopt);
  driver_.hold(1, false);
  EXPECT_EQ(call(), CUDA_ERROR_INVALID_VALUE);
  gate.remove(listed);
}

TEST_F(GateTest, NobodyWaitsAnyMoreForWorkThatNeverEnds) {
  ContextGate gate(driver_.table(), kShort, clock_);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  uint32_t called = 0;
  const auto call = [&](GatedCall what) {
    return run(gate, what, 0, nullptr, [&] {
      ++called;
      return CUDA_ERROR_INVALID_VALUE;
    });
  };
  gate.give_up();
  EXPECT_EQ(call(GatedCall::kModuleLoad), CUDA_ERROR_MPS_SERVER_NOT_READY);
  EXPECT_EQ(call(GatedCall::kFunctionLoad), CUDA_ERROR_MPS_SERVER_NOT_READY);
  EXPECT_EQ(called, 0u);
  // It has ended after all.
  driver_.hold(1, false);
  EXPECT_EQ(call(GatedCall::kModuleLoad), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(called, 1u);
  gate.remove(listed);
}

// A client that is stopped in the middle of its host function, or whose stream waits for a value.
// A driver whose loading does not wait for that is called after the first hold, and from then on at
// once.
TEST_F(GateTest, WhatItsClientMustActForIsNotHeldBackFor) {
  ContextGate gate(driver_.table(), with_driver_that_does_not_wait(kShort), clock_);
  GateClient client;
  gate.add(client);
  bool owes = true;
  gate.set_debt(client, [&owes] { return owes; });
  ContextGate::Stream* host_function = gate.add(stream(), 0, &client);
  ContextGate::Stream* value = gate.add(stream(), 0);
  give_work(host_function, 1);
  give_work(value, 2);
  value->waits = true;
  int calls = 0;
  for (int i = 0; i < 2; ++i) {
    run(gate, GatedCall::kModuleLoad, 0, &client, [&] { return ++calls, CUDA_SUCCESS; });
    EXPECT_NE(host_function->outlasted_ns.load(), 0u);
    EXPECT_NE(value->outlasted_ns.load(), 0u);
  }
  EXPECT_EQ(calls, 2);
  // It has ended: the next work of that stream is waited for again.
  owes = false;
  value->waits = false;
  driver_.hold(1, false);
  driver_.hold(2, false);
  run(gate, GatedCall::kModuleLoad, 0, &client, [&] { return ++calls, CUDA_SUCCESS; });
  EXPECT_EQ(host_function->outlasted_ns.load(), 0u);
  EXPECT_EQ(value->outlasted_ns.load(), 0u);
  gate.set_debt(client, nullptr);
  gate.remove(client);
  gate.remove(host_function);
  gate.remove(value);
}

// A driver whose loading waits for it must not be called: it would hold up everybody meanwhile.
// Nobody is held back, either.
TEST_F(GateTest, ADriverThatWouldWaitForAClientIsNotCalled) {
  ContextGate gate(driver_.table(), kShort, clock_);
  GateClient loader;
  GateClient neighbour;
  gate.add(loader);
  gate.add(neighbour);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  listed->waits = true;
  std::atomic<bool> called{false};
  std::thread caller([&] {
    run(gate, GatedCall::kModuleLoad, 0, &loader, [&] {
      EXPECT_TRUE(driver_.idle(reinterpret_cast<uint64_t>(listed->handle)));
      called = true;
      return CUDA_SUCCESS;
    });
  });
  while (listed->outlasted_ns == 0) std::this_thread::yield();
  // The first hold may be under way still; after it nothing closes.
  gate.enter(neighbour, 0);
  ContextGate::leave(neighbour);
  EXPECT_FALSE(called);
  driver_.hold(1, false);
  caller.join();
  EXPECT_TRUE(called);
  gate.remove(loader);
  gate.remove(neighbour);
  gate.remove(listed);
}

// A caller that can do without the call is told so beside work that may never end, without a
// search.
TEST_F(GateTest, ACallThatCanBeSkippedDoesNotWaitForWorkThatMayNeverEnd) {
  GateLimits limits = kShort;
  limits.total_ns = limits.endless_ns = 5'000'000;
  ContextGate gate(driver_.table(), limits, clock_);
  GateClient client;
  gate.add(client);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  int calls = 0;
  const auto run = [&] {
    return gate.run_quiescent({GatedCall::kGreenCreate, 0, &client, Patience::kUnlessStuck},
                              [&] { return ++calls, CUDA_SUCCESS; });
  };
  EXPECT_FALSE(run());
  const uint64_t start = clock_.now_ns();
  EXPECT_FALSE(run());
  EXPECT_LT(clock_.now_ns() - start, limits.total_ns) << "it is known by now";
  EXPECT_EQ(calls, 0);
  driver_.hold(1, false);
  EXPECT_EQ(run(), CUDA_SUCCESS);
  EXPECT_EQ(calls, 1);
  gate.remove(client);
  gate.remove(listed);
}

TEST_F(GateTest, ButForWhatOnlyRunsLong) {
  GateLimits limits = kShort;
  limits.total_ns = 1'000'000;
  limits.endless_ns = kNeverNs;
  ContextGate gate(driver_.table(), limits, clock_);
  GateClient client;
  gate.add(client);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  std::atomic<bool> called{false};
  std::thread caller([&] {
    EXPECT_EQ(gate.run_quiescent({GatedCall::kGreenCreate, 0, &client, Patience::kUnlessStuck},
                                 [&] { return called = true, CUDA_SUCCESS; }),
              CUDA_SUCCESS);
  });
  while (listed->outlasted_ns == 0) std::this_thread::yield();
  EXPECT_FALSE(called);
  driver_.hold(1, false);
  caller.join();
  EXPECT_TRUE(called);
  gate.remove(client);
  gate.remove(listed);
}

// Another session looks for quiescence as well, and can't skip the call.
TEST_F(GateTest, NorForAnotherSessionThatWaitsForIt) {
  ContextGate gate(driver_.table(), kShort, clock_);
  GateClient loader;
  GateClient client;
  gate.add(loader);
  gate.add(client);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  listed->waits = true;
  std::thread caller(
      [&] { run(gate, GatedCall::kModuleLoad, 0, &loader, [] { return CUDA_SUCCESS; }); });
  while (listed->outlasted_ns == 0) std::this_thread::yield();
  EXPECT_FALSE(gate.run_quiescent({GatedCall::kGreenCreate, 0, &client, Patience::kUnlessStuck},
                                  [] { return CUDA_SUCCESS; }));
  driver_.hold(1, false);
  caller.join();
  gate.remove(loader);
  gate.remove(client);
  gate.remove(listed);
}

// The client is gone that wanted to load: its session must end.
TEST_F(GateTest, AWaitEndsWithItsSession) {
  ContextGate gate(driver_.table(), kShort, clock_);
  std::atomic<bool> stop{false};
  GateClient client;
  client.stop = &stop;
  gate.add(client);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  bool called = false;
  std::thread caller([&] {
    EXPECT_EQ(run(gate, GatedCall::kFunctionLoad, 0, &client,
                  [&] { return called = true, CUDA_SUCCESS; }),
              CUDA_ERROR_NOT_READY);
  });
  stop = true;
  caller.join();
  EXPECT_FALSE(called);
  driver_.hold(1, false);
  gate.remove(client);
  gate.remove(listed);
}

// Ends only if all calls are made in one moment of quiescence.
TEST_F(GateTest, CallsThatWaitTogetherUseOneQuiescence) {
  constexpr int kCalls = 3;
  ContextGate gate(driver_.table(), kPatient, clock_);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  std::atomic<int> inside{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < kCalls; ++i) {
    callers.emplace_back([&] {
      run(gate, GatedCall::kModuleLoad, 0, nullptr, [&] {
        ++inside;
        while (inside != kCalls) std::this_thread::yield();
        return CUDA_SUCCESS;
      });
    });
  }
  EXPECT_EQ(inside, 0);
  driver_.hold(1, false);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(gate.calls(GatedCall::kModuleLoad), static_cast<uint64_t>(kCalls));
  gate.remove(listed);
}

// Unloading has time: nobody waits for it, and it waits for everything.
TEST_F(GateTest, DeferredCallsAreMadeInTheNextQuiescence) {
  ContextGate gate(driver_.table(), kPatient, clock_);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  ContextGate::Stream* elsewhere = gate.add(stream(), 1);
  std::vector<int> done;
  const auto later = [&](uint32_t device, int number) {
    gate.defer(GatedCall::kLibraryUnload, device,
               [&done, number] { return done.push_back(number), CUDA_SUCCESS; });
  };
  later(0, 1);
  EXPECT_EQ(done, std::vector<int>({1})) << "nothing runs";
  give_work(listed, 1);
  give_work(elsewhere, 2);
  later(0, 2);
  later(1, 3);
  later(ContextGate::kAllDevices, 4);
  EXPECT_EQ(done, std::vector<int>({1}));
  driver_.hold(1, false);
  run(gate, GatedCall::kModuleLoad, 0, nullptr, [] { return CUDA_SUCCESS; });
  EXPECT_EQ(done, std::vector<int>({1, 2})) << "that device's only";
  driver_.hold(2, false);
  run(gate, GatedCall::kModuleLoad, ContextGate::kAllDevices, nullptr, [] { return CUDA_SUCCESS; });
  EXPECT_EQ(done, std::vector<int>({1, 2, 3, 4}));
  gate.remove(listed);
  gate.remove(elsewhere);
}

TEST_F(GateTest, ACallThatFindsNoMemoryIsMadeInALaterQuiescence) {
  ContextGate gate(driver_.table(), kPatient, clock_);
  int refused = 0;
  int made = 0;
  for (int i = 0; i < 2; ++i) {
    gate.defer(GatedCall::kLibraryUnload, 0, [&, first = i == 0]() mutable {
      if (std::exchange(first, false)) {
        ++refused;
        throw std::bad_alloc();
      }
      ++made;
      return CUDA_SUCCESS;
    });
  }
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(made, 2) << "the second call's quiescence";
  EXPECT_FALSE(gate.has_deferred());
}

TEST_F(GateTest, ALostContextIsQuiescent) {
  ContextGate gate(driver_.table(), kPatient, clock_);
  ContextGate::Stream* listed = gate.add(stream(), 0);
  give_work(listed, 1);
  driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(
      run(gate, GatedCall::kModuleUnload, 0, nullptr, [] { return CUDA_ERROR_ILLEGAL_ADDRESS; }),
      CUDA_ERROR_ILLEGAL_ADDRESS);
  gate.remove(listed);
}

// What a session shows of a wait: whose work it waits for.
class ShownGateTest : public GateTest {
 protected:
  struct Seen {
    uint32_t session;
    uint32_t stream;
    wire::Hindrance why;
    bool operator==(const Seen&) const = default;
  };
  static std::vector<Seen> seen(const wire::ExecutorState& state) {
    std::vector<Seen> rows;
    for (const wire::ShownHindrance& row : state.hindrances) {
      if (row.why == wire::Hindrance::kNone) break;
      rows.push_back({row.session, row.stream, row.why});
    }
    return rows;
  }
  static void await(const wire::ExecutorState& state, wire::ExecutorWait wait,
                    const std::vector<Seen>& rows) {
    while (state.wait != wait || seen(state) != rows) std::this_thread::yield();
  }
  static void be(GateClient& client, uint32_t session, wire::ExecutorState& state) {
    client.session = session;
    client.shown = &state;
  }

  wire::ExecutorState loads_{};
  wire::ExecutorState other_{};
};

TEST_F(ShownGateTest, TheStreamsThatPreventQuiescenceAndWhy) {
  ContextGate gate(driver_.table(), kPatient, clock_);
  GateClient loader;
  GateClient owing;
  GateClient submitting;
  be(loader, 1, loads_);
  owing.session = 4;
  submitting.session = 5;
  for (GateClient* client : {&loader, &owing, &submitting}) gate.add(*client);
  bool owes = true;
  gate.set_debt(owing, [&owes] { return owes; });
  std::vector<ContextGate::Stream*> listed = {
      gate.add(stream(), 0, &loader, {1, 9}), gate.add(stream(), 0, nullptr, {2, 7}),
      gate.add(stream(), 0, nullptr, {3, 6}), gate.add(stream(), 0, &owing, {4, 5}),
      gate.add(stream(), 0, nullptr, {6, 8}), gate.add(stream(), 0, nullptr, {7, 8}),
      gate.add(stream(), 1, nullptr, {8, 8}), gate.add(stream(), 0, nullptr, {3, 2})};
  for (uint32_t i = 0; i < listed.size(); ++i) {
    if (i != 5) give_work(listed[i], i + 1);  // session 7 has nothing to do
  }
  listed[1]->waits = true;
  listed[4]->outlasted_ns = clock_.now_ns();
  listed[7]->waits = true;  // beside a stream of the same session that only runs
  gate.enter(submitting, 0);
  std::thread caller(
      [&] { run(gate, GatedCall::kModuleUnload, 0, &loader, [] { return CUDA_SUCCESS; }); });
  await(loads_, wire::ExecutorWait::kQuietMoment,
        {{5, 0, wire::Hindrance::kSubmits},
         {1, 9, wire::Hindrance::kRuns},
         {2, 7, wire::Hindrance::kAwaitsValue},
         {3, 2, wire::Hindrance::kAwaitsValue},
         {4, 5, wire::Hindrance::kHostFunction},
         {6, 8, wire::Hindrance::kOutlasts}});
  // What has ended is in nobody's way.
  ContextGate::leave(submitting);
  driver_.hold(2, false);
  driver_.hold(4, false);
  driver_.hold(8, false);
  await(loads_, wire::ExecutorWait::kQuietMoment,
        {{1, 9, wire::Hindrance::kRuns},
         {3, 6, wire::Hindrance::kRuns},
         {6, 8, wire::Hindrance::kOutlasts}});
  for (const uint32_t number : {1u, 3u, 5u, 7u}) driver_.hold(number, false);
  caller.join();
  EXPECT_EQ(loads_.wait, wire::ExecutorWait::kNone);
  gate.set_debt(owing, nullptr);
  for (ContextGate::Stream* stream : listed) gate.remove(stream);
  for (GateClient* client : {&loader, &owing, &submitting}) gate.remove(*client);
}

// Neighbours have most of the time; programs that start together do not wait for each other's part.
TEST_F(ShownGateTest, OnlyASessionThatAsksForNoQuiescenceIsOwedTime) {
  GateLimits limits = kPatient;
  limits.open_ratio = 1'000'000;  // seconds for microseconds: still owed when the test looks
  limits.most_owed_ns = 0;
  limits.asker_ns = 10'000'000'000;  // a session that never asked counts as having asked at 0
  ContextGate gate(driver_.table(), limits, clock_);
  GateClient neighbour;
  GateClient starts;
  be(neighbour, 1, other_);
  be(starts, 2, other_);
  gate.add(neighbour);
  gate.add(starts);
  const auto hold_back = [&](GateClient& client) {
    std::thread held;
    run(gate, GatedCall::kFunctionLoad, 0, nullptr, [&] {
      held = std::thread([&] {
        gate.enter(client, 0);
        ContextGate::leave(client);
      });
      while (other_.wait != wire::ExecutorWait::kHeldBack) std::this_thread::yield();
      return CUDA_SUCCESS;
    });
    held.join();
  };
  const auto call = [] { return CUDA_SUCCESS; };
  EXPECT_TRUE(
      gate.run_quiescent({GatedCall::kFunctionLoad, 0, &neighbour, Patience::kOneHold}, call));
  EXPECT_EQ(run(gate, GatedCall::kFunctionLoad, 0, &starts, call), CUDA_SUCCESS);
  hold_back(starts);
  EXPECT_EQ(gate.owed(0), 0u);
  hold_back(neighbour);  // it has looked, and held nobody back
  EXPECT_GT(gate.owed(0), 0u);
  gate.remove(neighbour);
  gate.remove(starts);
}

TEST_F(ShownGateTest, TheSessionWhoseQuiescenceOthersWaitFor) {
  GateLimits limits = kPatient;
  limits.join_ns = 0;  // no call joins the quiescence of another
  ContextGate gate(driver_.table(), limits, clock_);
  GateClient loader;
  GateClient later;
  be(loader, 1, loads_);
  be(later, 2, other_);
  for (GateClient* client : {&loader, &later}) gate.add(*client);
  const std::vector<Seen> held = {{1, 0, wire::Hindrance::kQuietMoment}};
  std::thread second;
  run(gate, GatedCall::kModuleLoad, 0, &loader, [&] {
    // While the call is made: another's call, and then another's work.
    second = std::thread([&] {
      run(gate, GatedCall::kModuleLoad, 0, &later, [] { return CUDA_SUCCESS; });
      EXPECT_EQ(other_.wait, wire::ExecutorWait::kNone);
    });
    await(other_, wire::ExecutorWait::kQuietMoment, held);
    return CUDA_SUCCESS;
  });
  second.join();
  std::thread worker;
  run(gate, GatedCall::kModuleLoad, 0, &loader, [&] {
    other_.hindrances[0].why = wire::Hindrance::kNone;
    worker = std::thread([&] {
      gate.enter(later, 0);
      ContextGate::leave(later);
    });
    await(other_, wire::ExecutorWait::kHeldBack, held);
    return CUDA_SUCCESS;
  });
  worker.join();
  EXPECT_EQ(other_.wait, wire::ExecutorWait::kNone);
  for (GateClient* client : {&loader, &later}) gate.remove(*client);
}

// A call that others make for the session, and the time between two tries.
TEST_F(ShownGateTest, AWaitBetweenTwoHoldsIsShownToo) {
  ContextGate gate(driver_.table(), kShort, clock_);
  GateClient session;
  be(session, 1, loads_);
  gate.add(session);
  ContextGate::Stream* listed = gate.add(stream(), 0, nullptr, {2, 3});
  give_work(listed, 1);
  const std::vector<Seen> neighbour = {{2, 3, wire::Hindrance::kRuns}};
  int looks = 0;
  gate.wait_until(
      [&] {
        EXPECT_EQ(loads_.wait, wire::ExecutorWait::kQuietMoment);
        if (looks == 1) {
          EXPECT_EQ(seen(loads_), neighbour);
        }
        return ++looks == 2;
      },
      session);
  EXPECT_EQ(looks, 2);
  EXPECT_EQ(loads_.wait, wire::ExecutorWait::kNone);
  bool looked = false;
  EXPECT_TRUE(gate.retry(session, [&](uint64_t hold_ns) {
    if (hold_ns != 0) return false;
    looked = true;
    EXPECT_EQ(loads_.wait, wire::ExecutorWait::kQuietMoment);
    EXPECT_EQ(seen(loads_), neighbour);
    return true;
  }));
  EXPECT_TRUE(looked);
  driver_.hold(1, false);
  gate.remove(session);
  gate.remove(listed);
}

}  // namespace
}  // namespace openmps::worker
