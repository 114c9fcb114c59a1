// SPDX-License-Identifier: Apache-2.0
// Who is recorded, and who is told what, with a source that tells what a test wants.
#include "worker/recording/recorder.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/subprocess.h"
#include "base/unix_socket.h"
#include "worker/recording/calls.h"

namespace openmps::worker {
namespace {

using Item = cupti::RecordingReader::Item;

// For what another thread does soon: only bounds a hang.
constexpr int kLongMs = 20'000;

class FakeSource final : public ActivitySource {
 public:
  Status start(Listener& listener) override {
    ++starts;
    if (!refusal.empty()) return Status(CUDA_ERROR_NOT_SUPPORTED, refusal);
    listener_ = &listener;
    return Status();
  }
  void stop() override {
    listener_ = nullptr;
    ++stops;
  }
  void flush(Flush) override { ++flushes; }
  [[nodiscard]] uint64_t lost() const override { return dropped; }

  // That work has run.
  void tell(const GivenWork& work, const char* name = "step") {
    const cupti::Activity kernel{.kind = cupti::ActivityKind::kKernel, .begin_ns = 1, .end_ns = 2};
    const Ended ended{work, kernel, name};
    listener_.load()->take({&ended, 1});
  }

  std::string refusal;
  std::atomic<int> starts{0};
  std::atomic<int> stops{0};
  std::atomic<int> flushes{0};
  std::atomic<uint64_t> dropped{0};

 private:
  std::atomic<Listener*> listener_{nullptr};
};

// The reader of one recording.
class Reader {
 public:
  Reader() {
    auto ends = make_socket_pair();
    EXPECT_TRUE(ends.ok());
    near_ = std::move(ends->first);
    far_ = std::move(ends->second);
  }
  UniqueFd far() { return std::move(far_); }
  // The next item; nothing: the recording has ended.
  std::optional<Item> next() {
    while (items_.empty()) {
      Result<Packet> packet = receive_packet(near_.get(), 1u << 20, kLongMs);
      EXPECT_TRUE(packet.ok()) << packet.status().message();
      if (!packet.ok() || packet->closed) return std::nullopt;
      EXPECT_TRUE(reader_.read(packet->data, &items_).ok());
    }
    const Item item = items_.front();
    items_.erase(items_.begin());
    return item;
  }
  // Reads until there is one of this kind.
  std::optional<Item> next(Item::Kind kind) {
    std::optional<Item> item = next();
    while (item && item->kind != kind) item = next();
    return item;
  }
  void ask(uint64_t question) {
    ASSERT_EQ(send(near_.get(), &question, sizeof(question), 0), ssize_t{sizeof(question)});
  }
  void finish() { shutdown(near_.get(), SHUT_WR); }
  void leave() { near_.reset(); }
  [[nodiscard]] uint64_t lost() const { return reader_.lost(); }

 private:
  UniqueFd near_;
  UniqueFd far_;
  cupti::RecordingReader reader_;
  std::vector<Item> items_;
};

class RecorderTest : public testing::Test {
 protected:
  // What the driver would be given now.
  GivenWork give(Recorder::Member& member, uint64_t command, uint32_t stream = 1) {
    const Recorder::Giving giving(&member, stream, command);
    return current_work;
  }
  static bool soon(const std::function<bool()>& condition) {
    const uint64_t end = now_ns() + kLongMs * kNsPerMs;
    while (!condition() && now_ns() < end) std::this_thread::yield();
    return condition();
  }

  FakeSource& source_ = *new FakeSource;  // the recorder's
  std::atomic<bool> is_quiet_{true};
  std::atomic<int> quiet_asked_{0};
  Recorder recorder_{monotonic_clock(), std::unique_ptr<ActivitySource>(&source_),
                     [this](const std::function<void()>& stop) {
                       ++quiet_asked_;
                       if (is_quiet_) stop();
                       return is_quiet_.load();
                     },
                     0};
};

TEST_F(RecorderTest, NobodyIsRecordedUnlessSomebodyAsks) {
  Recorder::Member member(recorder_, 3, 4711, "train.py");
  EXPECT_FALSE(member.is_on());
  EXPECT_EQ(give(member, 16).session, 0u);
  EXPECT_EQ(source_.starts, 0);
}

TEST_F(RecorderTest, AReaderIsToldWhoseCommandWasRunWhen) {
  Recorder::Member member(recorder_, 3, 4711, "train.py");
  Recorder::Member other(recorder_, 4, 4712, "serve.py");
  Reader reader;
  recorder_.record(3, reader.far());
  const std::optional<Item> session = reader.next(Item::Kind::kSession);
  ASSERT_TRUE(session);
  EXPECT_EQ(session->pid, 4711u);
  EXPECT_EQ(*session->text, "train.py");
  ASSERT_TRUE(reader.next(Item::Kind::kAnswer));
  EXPECT_TRUE(member.is_on());
  EXPECT_FALSE(other.is_on());
  const GivenWork work = give(member, 160, 7);
  EXPECT_EQ(work.session, 3u);
  EXPECT_EQ(current_work.session, 0u) << "what the thread gives afterwards is nobody's";
  source_.tell(work);
  reader.ask(5);
  const std::optional<Item> kernel = reader.next(Item::Kind::kActivity);
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->recorded.session, 3u);
  EXPECT_EQ(kernel->recorded.stream, 7u);
  EXPECT_EQ(kernel->recorded.command, 160u);
  EXPECT_EQ(*kernel->text, "step");
  const std::optional<Item> answer = reader.next(Item::Kind::kAnswer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->answer, 5u);
}

TEST_F(RecorderTest, TheSourceIsTakenAwayWithTheLastReader) {
  Recorder::Member member(recorder_, 3, 1, "");
  Reader one;
  Reader other;
  recorder_.record(3, one.far());
  recorder_.record(3, other.far());
  ASSERT_TRUE(one.next(Item::Kind::kAnswer));
  ASSERT_TRUE(other.next(Item::Kind::kAnswer));
  source_.tell(give(member, 16));
  one.leave();
  EXPECT_TRUE(other.next(Item::Kind::kActivity));
  EXPECT_EQ(source_.stops, 0);
  EXPECT_TRUE(member.is_on());
  other.leave();
  EXPECT_TRUE(soon([&] { return source_.stops == 1; }));
  EXPECT_TRUE(soon([&] { return !member.is_on(); }));
  Reader again;
  recorder_.record(3, again.far());
  EXPECT_TRUE(again.next(Item::Kind::kAnswer));
  EXPECT_EQ(source_.starts, 2);
}

// What is not taken away at a quiet moment costs programs their work.
TEST_F(RecorderTest, TheSourceIsTakenAwayWhenTheDevicesAreQuiet) {
  is_quiet_ = false;
  Recorder::Member member(recorder_, 3, 1, "");
  Reader reader;
  recorder_.record(3, reader.far());
  ASSERT_TRUE(reader.next(Item::Kind::kAnswer));
  reader.leave();
  EXPECT_TRUE(soon([&] { return quiet_asked_ >= 2; }));
  EXPECT_EQ(source_.stops, 0);
  Reader again;
  recorder_.record(3, again.far());
  EXPECT_TRUE(again.next(Item::Kind::kAnswer));
  EXPECT_EQ(source_.starts, 1);
  again.leave();
  is_quiet_ = true;
  EXPECT_TRUE(soon([&] { return source_.stops == 1; }));
}

TEST(RecordedCallsTest, TheLastOnesAreKnown) {
  RecordedCalls calls;
  GivenWork work;
  EXPECT_FALSE(calls.find(0, &work));
  current_work = {.session = 3, .stream = 7, .command = 160, .given_ns = 5};
  calls.note(1);
  current_work.stream = 8;
  calls.note(2);
  ASSERT_TRUE(calls.find(1, &work));
  EXPECT_EQ(work.session, 3u);
  EXPECT_EQ(work.stream, 7u);
  EXPECT_EQ(work.command, 160u);
  EXPECT_EQ(work.given_ns, 5u);
  calls.note(1 + RecordedCalls::kMost);  // takes its place
  EXPECT_FALSE(calls.find(1, &work));
  EXPECT_TRUE(calls.find(2, &work));
  EXPECT_TRUE(calls.find(1 + RecordedCalls::kMost, &work));
  current_work = {};
}

TEST_F(RecorderTest, WhoFinishesGetsTheRest) {
  Recorder::Member member(recorder_, 3, 1, "");
  Reader reader;
  recorder_.record(3, reader.far());
  ASSERT_TRUE(reader.next(Item::Kind::kAnswer));
  source_.tell(give(member, 16));
  source_.tell(give(member, 32));
  reader.finish();
  EXPECT_TRUE(reader.next(Item::Kind::kActivity));
  EXPECT_TRUE(reader.next(Item::Kind::kActivity));
  EXPECT_FALSE(reader.next());
}

TEST_F(RecorderTest, ARecordingEndsWithItsSession) {
  Reader reader;
  {
    Recorder::Member member(recorder_, 3, 1, "");
    recorder_.record(3, reader.far());
    ASSERT_TRUE(reader.next(Item::Kind::kAnswer));
    source_.tell(give(member, 16));
  }
  EXPECT_TRUE(reader.next(Item::Kind::kActivity));
  EXPECT_FALSE(reader.next());
  Reader late;
  recorder_.record(3, late.far());
  EXPECT_FALSE(late.next(Item::Kind::kActivity));
}

TEST_F(RecorderTest, ItSaysWhyNothingIsRecorded) {
  source_.refusal = "there is no CUPTI";
  Recorder::Member member(recorder_, 3, 1, "");
  Reader reader;
  recorder_.record(3, reader.far());
  const std::optional<Item> failure = reader.next(Item::Kind::kFailure);
  ASSERT_TRUE(failure);
  EXPECT_EQ(*failure->text, "there is no CUPTI");
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(source_.stops, 0);
}

TEST_F(RecorderTest, WhatASlowReaderDoesNotTakeIsCounted) {
  Recorder::Member member(recorder_, 3, 1, "");
  Reader reader;
  recorder_.record(3, reader.far());
  ASSERT_TRUE(reader.next(Item::Kind::kAnswer));
  const GivenWork work = give(member, 16);
  uint64_t told = 0;
  const size_t most = kMostUnsentBytes / sizeof(cupti::Recorded) + 10'000;
  for (; told < most; ++told) source_.tell(work);
  source_.dropped = 7;  // by the source itself
  reader.finish();
  uint64_t came = 0;
  while (std::optional<Item> item = reader.next()) came += item->kind == Item::Kind::kActivity;
  EXPECT_LT(came, told);
  EXPECT_EQ(came + reader.lost(), told + 7);
}

TEST_F(RecorderTest, TooManyReadersAreToldSo) {
  Recorder::Member member(recorder_, 3, 1, "");
  raise_open_files_limit(2 * kMostRecordings);
  Reader readers;
  const UniqueFd far = readers.far();
  for (size_t i = 0; i < kMostRecordings; ++i) {
    UniqueFd connection(dup(far.get()));
    ASSERT_TRUE(connection.valid());
    recorder_.record(3, std::move(connection));
  }
  Reader one_more;
  recorder_.record(3, one_more.far());
  EXPECT_TRUE(one_more.next(Item::Kind::kFailure));
  EXPECT_FALSE(one_more.next());
  EXPECT_TRUE(member.is_on());
  readers.leave();
  EXPECT_TRUE(soon([&] { return !member.is_on(); }));
}

}  // namespace
}  // namespace openmps::worker
