// SPDX-License-Identifier: Apache-2.0
// Turns of kernels that print, and whose text it is, on a driver whose events finish when the test
// says so and that prints the text in its buffer when a thread synchronises.
//
// Standard output is taken over while a KernelOutput captures it: what is to be expected is
// collected first and compared afterwards, so that a failure can be read.
#include "worker/printing/kernel_output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "base/shared_memory.h"
#include "session_fixture.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// What the driver's functions, which carry no state, see.
struct Printer {
  std::mutex mutex;
  std::map<CUevent, bool> finished;  // of the events that live
  std::map<CUevent, int> queries;
  std::string buffer;  // the printf FIFO of the context
  CUresult memory_info = CUDA_SUCCESS;
  CUevent recorded = nullptr;         // last
  std::chrono::milliseconds look{0};  // how long it takes to ask for the end of an event
  int ends_with_look = 0;             // an event that is asked for so often has ended by then,
  std::string last_words;             // with this text

  void print_locked() {
    for (size_t at = 0; at < buffer.size();) {
      const ssize_t written = write(STDOUT_FILENO, buffer.data() + at, buffer.size() - at);
      if (written <= 0) return;
      at += static_cast<size_t>(written);
    }
    buffer.clear();
  }
};
Printer* g_printer = nullptr;

// The tests' streams are numbers below this one.
constexpr uint64_t kOwnStreams = 1000;

DriverTable printing_driver(const DriverTable& base) {
  DriverTable table = base;
  table.cuEventCreate = [](CUevent* event, unsigned) {
    const std::lock_guard lock(g_printer->mutex);
    static uint64_t made = 0;
    *event = reinterpret_cast<CUevent>(++made);
    g_printer->finished[*event] = true;
    return CUDA_SUCCESS;
  };
  table.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
    *stream = reinterpret_cast<CUstream>(kOwnStreams);
    return CUDA_SUCCESS;
  };
  table.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
  table.cuEventDestroy_v2 = [](CUevent event) {
    const std::lock_guard lock(g_printer->mutex);
    return g_printer->finished.erase(event) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  };
  table.cuEventRecord = [](CUevent event, CUstream stream) {
    const std::lock_guard lock(g_printer->mutex);
    // A stream of the worker's own has nothing to wait for.
    g_printer->finished[event] = reinterpret_cast<uint64_t>(stream) >= kOwnStreams;
    g_printer->recorded = event;
    return CUDA_SUCCESS;
  };
  table.cuEventQuery = [](CUevent event) {
    const std::lock_guard lock(g_printer->mutex);
    std::this_thread::sleep_for(g_printer->look);
    if (++g_printer->queries[event] == g_printer->ends_with_look) {
      g_printer->finished[event] = true;
      g_printer->buffer += g_printer->last_words;
    }
    return g_printer->finished[event] ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  table.cuEventSynchronize = [](CUevent) {
    const std::lock_guard lock(g_printer->mutex);
    g_printer->print_locked();
    return CUDA_SUCCESS;
  };
  table.cuMemGetInfo_v2 = [](size_t*, size_t*) {
    const std::lock_guard lock(g_printer->mutex);
    return g_printer->memory_info;
  };
  table.cuCtxSynchronize = [] {
    const std::lock_guard lock(g_printer->mutex);
    g_printer->print_locked();
    return g_printer->memory_info;
  };
  return table;
}

// A session that prints, with its client's end of the ring.
struct Session {
  Session(const DriverTable& driver, const Devices& devices) {
    file = std::move(create_shared_file("output", wire::kChannelBytes)).value();
    mapping =
        std::move(map_shared(file.get(), 0, wire::kChannelBytes, MapAccess::kReadWrite)).value();
    const wire::ChannelView view(mapping.address());
    client.driver = &driver;
    client.devices = &devices;
    client.shown = &view.executor();
    client.ring = wire::OutputProducer(view);
    consumer = std::make_unique<wire::OutputConsumer>(view);
  }
  // What has come: pieces in brackets, errors with a '!'.
  std::string received() {
    std::string all;
    wire::OutputKind kind{};
    std::string text;
    while (consumer->take(&kind, &text)) {
      all += (kind == wire::OutputKind::kError ? "![" : "[") + text + "]";
    }
    return all;
  }

  UniqueFd file;
  Mapping mapping;
  KernelOutput::Client client;
  std::unique_ptr<wire::OutputConsumer> consumer;
};

class KernelOutputTest : public ::testing::Test {
 protected:
  KernelOutputTest() : table_(printing_driver(fake_.table())) { g_printer = &printer_; }
  // It has to begin before standard error is taken over.
  static void SetUpTestSuite() { log("Kernels print"); }
  void SetUp() override {
    Result<Devices> devices = Devices::open(table_);
    ASSERT_TRUE(devices.ok());
    devices_ = std::make_unique<Devices>(std::move(devices).value());
    a_ = std::make_unique<Session>(table_, *devices_);
    b_ = std::make_unique<Session>(table_, *devices_);
    a_->client.session = 1;
    b_->client.session = 2;
    ASSERT_TRUE(output_->capture().ok());
    output_->add(a_->client);
    output_->add(b_->client);
  }
  void TearDown() override {
    stop_capturing();
    EXPECT_TRUE(printer_.finished.empty()) << "events that were not given back";
    g_printer = nullptr;
  }
  // From here on a failed expectation is seen.
  void stop_capturing() {
    if (output_ == nullptr) return;
    output_->remove(a_->client);
    output_->remove(b_->client);
    output_.reset();
  }

  void begin(Session& session, bool quiet = false) {
    output_->begin(session.client, quiet, never_);
  }
  // A launch that has its turn: the event behind its kernel.
  CUevent launched(Session& session, uint64_t stream = 1) {
    static_cast<void>(output_->mark(session.client, reinterpret_cast<CUstream>(stream), 0).ok());
    const std::lock_guard lock(printer_.mutex);
    return printer_.recorded;
  }
  CUevent launch(Session& session, uint64_t stream = 1) {
    begin(session);
    return launched(session, stream);
  }
  void finish(CUevent event, const std::string& text) {
    const std::lock_guard lock(printer_.mutex);
    printer_.buffer += text;
    printer_.finished[event] = true;
  }
  // Not finished after all: it has only printed so far.
  void run_on(CUevent event) {
    const std::lock_guard lock(printer_.mutex);
    printer_.finished[event] = false;
  }
  int queries(CUevent event) {
    const std::lock_guard lock(printer_.mutex);
    return printer_.queries[event];
  }
  // Prints once, so that it is known to print.
  void let_print(Session& session) {
    finish(launch(session), "x");
    output_->flush(session.client);
    static_cast<void>(session.received());
  }
  void fail_context(CUresult result, const std::string& standard_error) {
    {
      const std::lock_guard lock(printer_.mutex);
      printer_.memory_info = result;
    }
    static_cast<void>(write(STDERR_FILENO, standard_error.data(), standard_error.size()));
    const CUcontext contexts[] = {devices_->at(0).context};
    output_->context_lost(table_, contexts, result);
  }

  Printer printer_;
  FakeDriver fake_;
  DriverTable table_;
  std::unique_ptr<Devices> devices_;
  std::unique_ptr<KernelOutput> output_ = std::make_unique<KernelOutput>(monotonic_clock());
  std::unique_ptr<Session> a_, b_;
  const std::atomic<bool> never_{false};
};

TEST_F(KernelOutputTest, WhoseTurnASessionWaitsForIsShown) {
  const wire::ExecutorState& shown = *b_->client.shown;
  let_print(*a_);
  let_print(*b_);
  const CUevent event = launch(*a_);
  std::atomic<bool> began{false};
  std::thread waiting([&] {
    begin(*b_);
    began = true;
  });
  // Why is written last.
  while (!began && (shown.wait != wire::ExecutorWait::kPrintTurn ||
                    shown.hindrances[0].why != wire::Hindrance::kPrintTurn)) {
    std::this_thread::yield();
  }
  const bool waited = shown.wait == wire::ExecutorWait::kPrintTurn;
  const uint32_t session = shown.hindrances[0].session;
  const wire::Hindrance why = shown.hindrances[0].why;
  finish(event, "");
  waiting.join();
  const wire::ExecutorWait afterwards = shown.wait;
  finish(launched(*b_), "");
  stop_capturing();
  EXPECT_TRUE(waited);
  EXPECT_EQ(session, 1u);
  EXPECT_EQ(why, wire::Hindrance::kPrintTurn);
  EXPECT_EQ(afterwards, wire::ExecutorWait::kNone);
}

TEST_F(KernelOutputTest, TextComesOnceItsKernelHasFinished) {
  const CUevent event = launch(*a_);
  const bool running = output_->flush(a_->client);
  const std::string early = a_->received();
  finish(event, "hello\n");
  const bool still = output_->flush(a_->client);
  const std::string text = a_->received();
  const bool again = output_->flush(a_->client);
  const std::string others = b_->received();
  stop_capturing();
  EXPECT_TRUE(running);
  EXPECT_EQ(early, "");
  EXPECT_FALSE(still);
  EXPECT_EQ(text, "[hello\n]");
  EXPECT_FALSE(again);
  EXPECT_EQ(a_->received(), "");
  EXPECT_EQ(others, "");
}

// The second session is seen to ask for the end of the first one's kernel, again and again, before
// that kernel ends; only then may it launch.
TEST_F(KernelOutputTest, SessionsThatPrintTakeTurns) {
  let_print(*a_);
  let_print(*b_);
  const CUevent event = launch(*a_);
  const int before = queries(event);
  std::atomic<bool> begun{false};
  std::string first_text;
  std::thread other([&] {
    begin(*b_);
    begun.store(true);
    first_text = a_->received();  // taken out before the turn went on
  });
  while (queries(event) < before + 3 && !begun.load()) std::this_thread::yield();
  const bool waited = !begun.load();
  finish(event, "of a\n");
  other.join();
  finish(launched(*b_), "of b\n");
  output_->flush(b_->client);
  const std::string second = b_->received(), rest = a_->received();
  stop_capturing();
  EXPECT_TRUE(waited);
  EXPECT_EQ(first_text, "[of a\n]");
  EXPECT_EQ(second, "[of b\n]");
  EXPECT_EQ(rest, "");
}

TEST_F(KernelOutputTest, TheStreamsOfASessionShareItsTurn) {
  const CUevent one = launch(*a_, 1), two = launch(*a_, 2);
  finish(two, "two ");
  const bool running = output_->flush(a_->client);
  finish(one, "one");
  const bool still = output_->flush(a_->client);
  const std::string text = a_->received();
  stop_capturing();
  EXPECT_NE(one, two);
  EXPECT_TRUE(running);
  EXPECT_FALSE(still);
  EXPECT_EQ(text, "[two ][one]");
}

// One event per stream with unfinished kernels is enough, and those that have finished are used
// again.
TEST_F(KernelOutputTest, EventsAreUsedAgain) {
  const CUevent first = launch(*a_, 1), again = launch(*a_, 1);
  finish(again, "");
  output_->flush(a_->client);
  const CUevent other_stream = launch(*a_, 2);
  finish(other_stream, "");
  size_t events;
  {
    const std::lock_guard lock(printer_.mutex);
    events = printer_.finished.size();
  }
  stop_capturing();
  EXPECT_EQ(first, again);
  EXPECT_EQ(first, other_stream);
  EXPECT_EQ(events, 2u) << "that one, and one to have the driver print";
}

// Most kernels that could print never do, and may wait for those of other sessions: no kernel waits
// for them long. Text is still whose kernel has ended.
TEST_F(KernelOutputTest, NobodyWaitsLongForASessionThatHasNeverPrinted) {
  const CUevent stuck = launch(*a_);
  begin(*b_);  // returns although a's kernel goes on
  finish(launched(*b_), "of b");
  output_->flush(b_->client);
  const std::string of_a = a_->received(), of_b = b_->received();
  finish(stuck, "of a");
  output_->flush(a_->client);
  const std::string late_a = a_->received(), late_b = b_->received();
  stop_capturing();
  EXPECT_EQ(of_a, "");
  EXPECT_EQ(of_b, "[of b]");
  EXPECT_EQ(late_a, "[of a]");
  EXPECT_EQ(late_b, "");
}

// On a machine that stalls for a while the kernel may not have run either: a long look counts as a
// short one.
TEST_F(KernelOutputTest, TimeInWhichNobodyLooksDoesNotCount) {
  const CUevent slow = launch(*a_);
  {
    const std::lock_guard lock(printer_.mutex);
    printer_.look = std::chrono::milliseconds(40);  // twice what the turn is waited for
    printer_.ends_with_look = 6;
    printer_.last_words = "of a";
  }
  begin(*b_);
  const int looks = queries(slow);
  const std::string of_a = a_->received(), early_b = b_->received();
  finish(launched(*b_), "of b");
  output_->flush(b_->client);
  const std::string of_b = b_->received(), rest = a_->received();
  stop_capturing();
  EXPECT_EQ(looks, 6);
  EXPECT_EQ(of_a, "[of a]");
  EXPECT_EQ(early_b, "");
  EXPECT_EQ(of_b, "[of b]");
  EXPECT_EQ(rest, "");
}

// A kernel that prints and does not end loses the turn once, and is not waited for again: the text
// of the others is theirs, what it said before is its own.
TEST_F(KernelOutputTest, AKernelThatDoesNotEndIsWaitedForOnce) {
  let_print(*a_);
  let_print(*b_);
  const CUevent endless = launch(*a_);
  finish(endless, "start\n");
  run_on(endless);
  std::string texts_b;
  int looks = 0;  // for the end of a's kernel, by the launches after the first
  for (int i = 0; i < 3; ++i) {
    const int before = queries(endless);
    begin(*b_);
    if (i != 0) looks += queries(endless) - before;
    finish(launched(*b_), "b" + std::to_string(i) + "\n");
    output_->flush(b_->client);
    texts_b += b_->received();
  }
  const std::string of_a = a_->received();
  finish(endless, "end\n");
  output_->flush(a_->client);
  const std::string last_a = a_->received(), last_b = b_->received();
  stop_capturing();
  EXPECT_EQ(of_a, "[start\n]");
  EXPECT_EQ(texts_b, "[b0\n][b1\n][b2\n]");
  EXPECT_EQ(looks, 2) << "one each: it is not waited for again";
  EXPECT_EQ(last_a, "[end\n]");
  EXPECT_EQ(last_b, "");
}

// Two sessions whose kernels end between two looks: no text is lost.
TEST_F(KernelOutputTest, TextOfTwoThatEndTogetherReachesBoth) {
  const CUevent of_a = launch(*a_);
  begin(*b_);
  const CUevent of_b = launched(*b_);
  finish(of_a, "");
  finish(of_b, "whose?");
  output_->flush(b_->client);
  const std::string first = a_->received(), second = b_->received();
  stop_capturing();
  EXPECT_EQ(first, "[whose?]");
  EXPECT_EQ(second, "[whose?]");
}

// What a running kernel has printed comes when its client asks, as without OpenMPS.
TEST_F(KernelOutputTest, TextOfARunningKernelComes) {
  const CUevent event = launch(*a_);
  finish(event, "so far");
  run_on(event);
  const bool running = output_->flush(a_->client);
  const std::string text = a_->received();
  finish(event, "");
  stop_capturing();
  EXPECT_TRUE(running);
  EXPECT_EQ(text, "[so far]");
}

// A kernel that has long been silent runs beside a session that prints: so it is that one's text.
TEST_F(KernelOutputTest, BesideASilentKernelItIsTheTextOfTheOneThatPrints) {
  let_print(*a_);
  const CUevent of_a = launch(*a_);
  begin(*b_, true);
  finish(launched(*b_), "words");
  output_->flush(b_->client);
  const std::string first = a_->received(), second = b_->received();
  finish(of_a, "");
  stop_capturing();
  EXPECT_EQ(first, "[words]");
  EXPECT_EQ(second, "");
}

TEST_F(KernelOutputTest, ASilentKernelsFirstWordsReachItsSession) {
  begin(*b_, true);
  finish(launched(*b_), "error 7");
  output_->flush(a_->client);
  const std::string first = a_->received(), second = b_->received();
  stop_capturing();
  EXPECT_EQ(first, "");
  EXPECT_EQ(second, "[error 7]");
}

TEST_F(KernelOutputTest, AQuietKernelIsLaunchedBesideOthers) {
  let_print(*a_);
  let_print(*b_);
  const CUevent of_a = launch(*a_);
  const int before = queries(of_a);
  begin(*b_, true);
  const int asked = queries(of_a) - before;
  finish(launched(*b_), "");
  finish(of_a, "");
  stop_capturing();
  EXPECT_EQ(asked, 0);
}

// Its session ends: it must not wait for the kernel of another one.
TEST_F(KernelOutputTest, AWaitEndsWithItsSession) {
  let_print(*a_);
  let_print(*b_);
  const CUevent of_a = launch(*a_);
  const int before = queries(of_a);
  const std::atomic<bool> stop{true};
  output_->begin(b_->client, false, stop);
  const int asked = queries(of_a) - before;
  output_->cancel(b_->client);
  finish(of_a, "");
  stop_capturing();
  EXPECT_EQ(asked, 1);
}

TEST_F(KernelOutputTest, AFailedLaunchGivesTheTurnBack) {
  let_print(*a_);
  let_print(*b_);
  begin(*a_);
  const bool launching = output_->flush(a_->client);
  output_->cancel(a_->client);
  const bool after = output_->flush(a_->client);
  finish(launch(*b_), "b");
  output_->flush(b_->client);
  const std::string of_a = a_->received(), of_b = b_->received();
  stop_capturing();
  EXPECT_TRUE(launching) << "between turn and mark nothing has finished";
  EXPECT_FALSE(after);
  EXPECT_EQ(of_a, "");
  EXPECT_EQ(of_b, "[b]");
}

TEST_F(KernelOutputTest, TheLastWordsOfASessionThatEndsAreItsOwn) {
  finish(launch(*a_), "bye");
  output_->remove(a_->client);
  const std::string of_a = a_->received();
  finish(launch(*b_), "b");
  output_->flush(b_->client);
  const std::string of_b = b_->received();
  stop_capturing();
  EXPECT_EQ(of_a, "[bye]");
  EXPECT_EQ(of_b, "[b]");
}

TEST_F(KernelOutputTest, AFailedAssertGoesToAllWhoseKernelsHaveAsserts) {
  a_->client.asserts.store(true);
  const CUevent event = launch(*b_);
  finish(event, "printed before\n");
  fail_context(
      CUDA_ERROR_ASSERT,
      "something else\nk.cu:7: void k(): block: [0,0,0], thread: [1,0,0] Assertion `x > 0` "
      "failed.\nmore\n");
  const std::string of_a = a_->received(), of_b = b_->received();
  stop_capturing();
  EXPECT_EQ(of_a,
            "![k.cu:7: void k(): block: [0,0,0], thread: [1,0,0] Assertion `x > 0` failed.\n]");
  EXPECT_EQ(of_b, "[printed before\n]");
}

TEST_F(KernelOutputTest, AnotherFaultIsNoAssert) {
  a_->client.asserts.store(true);
  fail_context(CUDA_ERROR_ILLEGAL_ADDRESS, "Assertion `old` failed.\n");
  const std::string of_a = a_->received();
  stop_capturing();
  EXPECT_EQ(of_a, "");
}

// A kernel of another session, which ends once a session has been seen to wait for its turn.
struct Watched {
  const wire::ExecutorState* shown = nullptr;
  uint32_t waits_for = 0;  // the session whose turn it is, as shown

  static CUresult query(CUevent) {
    const wire::ExecutorState& state = *current->shown;
    if (state.wait != wire::ExecutorWait::kPrintTurn ||
        state.hindrances[0].why != wire::Hindrance::kPrintTurn) {
      return CUDA_ERROR_NOT_READY;
    }
    current->waits_for = state.hindrances[0].session;
    return CUDA_SUCCESS;
  }
  static inline Watched* current = nullptr;
};

class PrintingSessionTest : public SessionFixture {};

// What `openmps inspect` is told of a session whose kernel may print.
TEST_F(PrintingSessionTest, ShowsThatItWaitsForItsTurn) {
  const std::string image = "call vprintf;";
  EXPECT_TRUE(send(wire::BlobBegin{image.size(), 1}).ok());
  memcpy(session_->core.view.staging(), image.data(), image.size());
  EXPECT_TRUE(send(wire::BlobData{1, static_cast<uint32_t>(image.size()), 0, kStaging}).ok());
  EXPECT_TRUE(send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 0}).ok());
  EXPECT_TRUE(send(wire::GetFunction{1, 1, wire::ModuleKind::kModule, 4}, "kern").ok());
  create_stream(1, wire::StreamKind::kNonBlocking);
  Watched watched{&session_->core.view.executor()};
  Watched::current = &watched;
  DriverTable table = driver_.table();
  table.cuEventQuery = Watched::query;
  CUstream stream = nullptr;
  ASSERT_EQ(table.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  KernelOutput& output = worker_parts_.output;
  KernelOutput::Client other;
  other.driver = &table;
  other.devices = devices_.get();
  other.session = 9;
  output.add(other);
  const std::atomic<bool> never{false};
  output.begin(other, false, never);
  EXPECT_TRUE(output.mark(other, stream, 0).ok());
  launch(1);
  EXPECT_EQ(watched.waits_for, 9u);
  EXPECT_EQ(watched.shown->wait, wire::ExecutorWait::kNone);
  output.remove(other);
  EXPECT_EQ(table.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  Watched::current = nullptr;
}

}  // namespace
}  // namespace openmps::worker
