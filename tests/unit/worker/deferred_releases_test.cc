// SPDX-License-Identifier: Apache-2.0
// The two barriers of deferred releases: the end of a session's work, told by marks, and quiescence
// of the shared context. retirement_test.cc has them with a session's streams.
#include "worker/device/deferred_releases.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "fake_driver.h"
#include "manual_clock.h"
#include "wire/channel_view.h"

namespace openmps::worker {
namespace {

// A session with one stream, the work of which ends when the test says so.
class FakeWork final : public SessionWork {
 public:
  explicit FakeWork(FakeDriver& driver) : driver_(driver) {}

  // The stream has got work; `end()` of the number that is returned ends it.
  uint32_t begin() {
    is_marked_ = false;
    return ++last_;
  }
  void end(uint32_t work) { ended_ = std::max(ended_, work); }

  WorkMark mark() override {
    WorkMark made;
    if (std::exchange(is_marked_, true) || idle()) return made;
    CUevent event = nullptr;
    EXPECT_EQ(driver_.table().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    ends_[event] = last_;
    made.events.push_back({std::make_unique<DriverEvent>(driver_.table(), event, 0), kStream});
    return made;
  }
  bool has_passed(const DriverEvent& end) override { return ends_.at(end.handle) <= ended_; }
  bool idle() override { return ended_ == last_; }
  bool seem_idle() override { return idle(); }

  static constexpr uint32_t kStream = 7;

 private:
  FakeDriver& driver_;
  std::map<CUevent, uint32_t> ends_;
  bool is_marked_ = true;
  uint32_t last_ = 0;
  uint32_t ended_ = 0;
};

class DeferredReleasesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(channel_, MAP_FAILED);
    view_ = wire::ChannelView(static_cast<unsigned char*>(channel_));
    releases_.set_work(work_);
    ASSERT_EQ(driver_.table().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
    neighbour_ = gate_.add(stream_, 0);
  }
  void TearDown() override {
    while (gate_.is_collecting()) std::this_thread::yield();
    gate_.remove(neighbour_);
    munmap(channel_, wire::kChannelBytes);
  }

  void add_behind_work(int number) {
    releases_.add_behind_work({wire::ReturnKind::kCode}, [this, number] { note(number); });
  }
  DeferredReleases::Call call(int number) {
    return {GatedCall::kGreenDestroy, 0, nullptr, [this, number] {
              note(number);
              return CUDA_SUCCESS;
            }};
  }
  void add_quiescent(int number) {
    releases_.add_quiescent({wire::ReturnKind::kArray}, call(number), [this] { ++done_; });
  }
  // Another session's work, until end_neighbour().
  void begin_neighbour() {
    driver_.hold(1, true);
    driver_.push(reinterpret_cast<uint64_t>(stream_), [] { return true; });
    neighbour_->set_busy();
  }
  void end_neighbour() { driver_.hold(1, false); }
  void note(int number) {
    const std::lock_guard lock(mutex_);
    released_.push_back(number);
  }
  std::vector<int> released() {
    const std::lock_guard lock(mutex_);
    return released_;
  }
  [[nodiscard]] uint32_t shown() const { return view_.executor().returns; }

  FakeDriver driver_;
  ManualClock clock_;
  ContextGate gate_{driver_.table(), {}, clock_};
  GateClient client_;
  void* channel_ = mmap(nullptr, wire::kChannelBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  wire::ChannelView view_;
  ShownReturns rows_{view_};
  FakeWork work_{driver_};
  DeferredReleases releases_{driver_.table(), gate_, client_, std::make_shared<Bell>(), rows_};
  CUstream stream_ = nullptr;
  ContextGate::Stream* neighbour_ = nullptr;
  std::mutex mutex_;
  std::vector<int> released_;  // guarded by mutex_: the gate's thread makes calls
  int done_ = 0;
};

using Numbers = std::vector<int>;

TEST_F(DeferredReleasesTest, WithoutWorkAReleaseIsMadeAtOnce) {
  add_behind_work(1);
  add_quiescent(2);
  EXPECT_EQ(released(), (Numbers{1, 2}));
  EXPECT_EQ(done_, 1);
  EXPECT_TRUE(releases_.empty());
  EXPECT_EQ(shown(), 0u);
}

TEST_F(DeferredReleasesTest, AReleaseWaitsForTheWorkBeforeItAlone) {
  const uint32_t first = work_.begin();
  add_behind_work(1);
  const uint32_t second = work_.begin();
  add_behind_work(2);
  add_behind_work(3);
  EXPECT_EQ(released(), Numbers{});
  EXPECT_EQ(shown(), 3u);
  EXPECT_EQ(view_.executor().return_stream, FakeWork::kStream);
  work_.end(first);
  releases_.sweep();
  EXPECT_EQ(released(), Numbers{1});
  work_.end(second);
  releases_.sweep();
  EXPECT_EQ(released(), (Numbers{1, 2, 3}));
  EXPECT_EQ(shown(), 0u);
  EXPECT_EQ(view_.executor().return_stream, 0u);
}

TEST_F(DeferredReleasesTest, BehindHeldWorkAMarkIsMadeOnceThatIsSubmitted) {
  work_.held = {1, 1};
  EXPECT_TRUE(releases_.is_behind_held());
  add_behind_work(1);
  releases_.sweep();
  EXPECT_EQ(released(), Numbers{}) << "nothing runs, but the work is still to come";
  const uint32_t submitted = work_.begin();
  work_.held = {2, 2};
  add_behind_work(2);
  releases_.sweep();
  EXPECT_EQ(released(), Numbers{});
  work_.end(submitted);
  releases_.sweep();
  EXPECT_EQ(released(), Numbers{1}) << "the second one is behind work that is still held";
  work_.held = {2, SessionWork::Held::kNone};
  releases_.sweep();
  EXPECT_EQ(released(), (Numbers{1, 2}));
}

TEST_F(DeferredReleasesTest, AReleaseThatFindsNoMemoryIsCalledAgain) {
  const uint32_t work = work_.begin();
  add_behind_work(1);
  releases_.add_behind_work({wire::ReturnKind::kCode}, [this, refused = false]() mutable {
    if (!std::exchange(refused, true)) throw std::bad_alloc();
    note(2);
  });
  add_behind_work(3);
  work_.end(work);
  EXPECT_THROW(releases_.sweep(), std::bad_alloc);
  EXPECT_EQ(released(), Numbers{1});
  releases_.sweep();
  EXPECT_EQ(released(), (Numbers{1, 2, 3}));
}

// What a green context's graphs run in is destroyed behind the graphs.
TEST_F(DeferredReleasesTest, CallsComeInTheOrderInWhichTheyWereAdded) {
  begin_neighbour();
  releases_.add_graph(call(1), 1, false);
  EXPECT_EQ(shown(), 0u) << "nobody waits for a graph";
  EXPECT_TRUE(releases_.empty());
  add_quiescent(2);
  add_quiescent(3);
  EXPECT_EQ(shown(), 2u);
  EXPECT_EQ(done_, 0);
  end_neighbour();
  while (!releases_.empty()) {
    std::this_thread::yield();
    releases_.sweep();
  }
  EXPECT_EQ(released(), (Numbers{1, 2, 3}));
  EXPECT_EQ(done_, 2);
  EXPECT_EQ(shown(), 0u);
}

TEST_F(DeferredReleasesTest, QuiescenceIsLookedForOnceGraphsHaveManyNodes) {
  begin_neighbour();
  releases_.add_graph(call(1), 8000, false);
  EXPECT_FALSE(gate_.is_collecting());
  releases_.add_graph(call(2), 8000, false);
  EXPECT_TRUE(gate_.is_collecting());
  end_neighbour();
  while (gate_.has_deferred()) std::this_thread::yield();
  while (gate_.is_collecting()) std::this_thread::yield();
  EXPECT_EQ(released(), (Numbers{1, 2}));
  // Those that have been destroyed do not count any more.
  begin_neighbour();
  releases_.add_graph(call(3), 8000, false);
  EXPECT_FALSE(gate_.is_collecting());
  releases_.add_graph(call(4), 1, true);
  EXPECT_TRUE(gate_.is_collecting()) << "stream slots are short";
  end_neighbour();
}

TEST_F(DeferredReleasesTest, ACallIsMadeAfterTheSessionsEnd) {
  begin_neighbour();
  auto kept = std::make_shared<int>(0);
  releases_.set_kept(kept);
  add_quiescent(1);
  releases_.end();
  EXPECT_GT(kept.use_count(), 1) << "the call keeps it";
  end_neighbour();
  while (gate_.is_collecting()) std::this_thread::yield();
  EXPECT_EQ(released(), Numbers{1});
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_EQ(done_, 0) << "the session has ended";
}

}  // namespace
}  // namespace openmps::worker
