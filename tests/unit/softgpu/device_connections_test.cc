// SPDX-License-Identifier: Apache-2.0
// Connections: what occupies one, and which streams wait when all are occupied, as seen on an H200.
// A kernel that may start is placed by the call that launches it, so the trace shows at once which
// wait.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>

#include "device_fixture.h"
#include "softgpu/device/machine/config.h"

namespace openmps::softgpu::testing {
namespace {

// As many as a context has unless told otherwise.
constexpr int kConnections = 8;

class ConnectionsTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    word_ = words(1);
    make_room();
    other_ = stream();
  }
  // Streams and graphs that are made later wait for nothing (stream_lots.h).
  static void make_room() {
    std::vector<CUstream> streams(4 * Config().hardware_queues);
    for (CUstream& s : streams) EXPECT_CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    for (CUstream s : streams) EXPECT_CU(cuStreamDestroy_v2(s));
  }
  // A kernel of another stream, launched now, runs.
  bool others_go_on() {
    const std::vector<uint64_t> before = placed();
    launch(other_, FakeAction::kNothing);
    if (placed().size() == before.size()) return false;
    EXPECT_CU(cuStreamSynchronize(other_));  // or the next one would wait for it
    return true;
  }
  std::vector<uint64_t> placed() const {
    std::vector<uint64_t> found;
    for (const TraceEvent& event : trace()) {
      if (event.category == "block" && event.name == "place" && event.stream == stream_id(other_)) {
        found.push_back(event.sequence);
      }
    }
    return found;
  }
  // Streams that come into some state until others stop. Returns how many it took; none: no stream
  // stopped.
  template <typename Hold>
  std::optional<int> streams_until_others_stop(Hold&& hold) {
    for (int streams = 1; streams <= 2 * kConnections; ++streams) {
      hold(stream());
      if (!others_go_on()) return streams;
    }
    return std::nullopt;
  }
  void let_go() {
    store(word_, 1);
    EXPECT_CU(cuCtxSynchronize());
  }
  void hold_by_a_kernel(CUstream s) { launch(s, FakeAction::kWait, address_of(word_), 1); }

  uint32_t* word_ = nullptr;
  CUstream other_ = nullptr;
};

TEST_F(ConnectionsTest, WaitsForValues) {
  EXPECT_EQ(streams_until_others_stop([&](CUstream s) {
              EXPECT_CU(cuStreamWaitValue32_v2(s, address_of(word_), 1, CU_STREAM_WAIT_VALUE_GEQ));
            }),
            kConnections);
  let_go();
}

TEST_F(ConnectionsTest, KernelsBehindRunningKernels) {
  EXPECT_EQ(streams_until_others_stop([&](CUstream s) {
              hold_by_a_kernel(s);
              launch(s, FakeAction::kNothing);
            }),
            kConnections);
  let_go();
}

TEST_F(ConnectionsTest, CopiesBehindRunningKernels) {
  uint32_t* filled = words(1);
  EXPECT_EQ(streams_until_others_stop([&](CUstream s) {
              hold_by_a_kernel(s);
              EXPECT_CU(cuMemsetD32Async(address_of(filled), 1, 1, s));
            }),
            kConnections);
  let_go();
}

// The recording stream holds one itself: its record waits for its kernel.
TEST_F(ConnectionsTest, WaitsForEvents) {
  CUstream recording = stream();
  CUevent recorded = event();
  hold_by_a_kernel(recording);
  EXPECT_CU(cuEventRecord(recorded, recording));
  EXPECT_EQ(
      streams_until_others_stop([&](CUstream s) { EXPECT_CU(cuStreamWaitEvent(s, recorded, 0)); }),
      kConnections - 1);
  let_go();
}

TEST_F(ConnectionsTest, PrioritiesShareThem) {
  int priority = 0;
  EXPECT_EQ(streams_until_others_stop([&](CUstream) {
              CUstream s = stream(CU_STREAM_NON_BLOCKING, priority--);
              EXPECT_CU(cuStreamWaitValue32_v2(s, address_of(word_), 1, CU_STREAM_WAIT_VALUE_GEQ));
            }),
            kConnections);
  let_go();
}

TEST_F(ConnectionsTest, RunningKernelsHoldNone) {
  EXPECT_EQ(streams_until_others_stop([&](CUstream s) { hold_by_a_kernel(s); }), std::nullopt);
  let_go();
}

TEST_F(ConnectionsTest, EventsWithoutTimingHoldNone) {
  EXPECT_EQ(streams_until_others_stop([&](CUstream s) {
              hold_by_a_kernel(s);
              EXPECT_CU(cuEventRecord(event(CU_EVENT_DISABLE_TIMING), s));
            }),
            std::nullopt);
  // With timing they do.
  EXPECT_EQ(streams_until_others_stop([&](CUstream s) {
              hold_by_a_kernel(s);
              EXPECT_CU(cuEventRecord(event(), s));
            }),
            kConnections);
  let_go();
}

// Nor is it in the way of streams that share its hardware queue.
TEST_F(ConnectionsTest, KernelsBehindWaitsAreInNoHardwareQueue) {
  CUstream standing = stream();
  EXPECT_CU(cuStreamWaitValue32_v2(standing, address_of(word_), 1, CU_STREAM_WAIT_VALUE_GEQ));
  launch(standing, FakeAction::kNothing);
  for (uint32_t i = 0; i < Config().hardware_queues; ++i) {
    other_ = stream();
    EXPECT_TRUE(others_go_on()) << i;
  }
  let_go();
}

TEST_F(ConnectionsTest, ChainsInsideOfGraphsHoldNone) {
  CUstream captured = stream();
  CUgraph graph = nullptr;
  EXPECT_CU(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
  hold_by_a_kernel(captured);
  for (int i = 0; i < 5; ++i) launch(captured, FakeAction::kNothing);
  EXPECT_CU(cuStreamEndCapture(captured, &graph));
  std::vector<CUgraphExec> execs;
  EXPECT_EQ(streams_until_others_stop([&](CUstream s) {
              CUgraphExec exec = nullptr;
              EXPECT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
              EXPECT_CU(cuGraphLaunch(exec, s));
              execs.push_back(exec);
            }),
            std::nullopt);
  // What is behind a graph does.
  for (int i = 0; i < kConnections; ++i) {
    EXPECT_TRUE(others_go_on());
    EXPECT_CU(cuGraphLaunch(execs[i], stream()));  // behind its last launch
  }
  EXPECT_FALSE(others_go_on());
  let_go();
  for (CUgraphExec exec : execs) EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
}

TEST_F(ConnectionsTest, OneThatIsFreeAgainServesTheOthers) {
  uint32_t* single = words(1);
  CUstream first = stream();
  EXPECT_CU(cuStreamWaitValue32_v2(first, address_of(single), 1, CU_STREAM_WAIT_VALUE_GEQ));
  for (int i = 1; i < kConnections; ++i) {
    EXPECT_CU(cuStreamWaitValue32_v2(stream(), address_of(word_), 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  store(single, 1);
  EXPECT_CU(cuStreamSynchronize(first));
  EXPECT_TRUE(others_go_on());
  EXPECT_CU(cuStreamSynchronize(other_));
  let_go();
}

// A context has its own.
TEST_F(ConnectionsTest, OtherContextsGoOn) {
  for (int i = 0; i < kConnections; ++i) {
    EXPECT_CU(cuStreamWaitValue32_v2(stream(), address_of(word_), 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  CUcontext second = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&second, 0, 0));
  CUmodule module = nullptr;
  CUfunction run = nullptr;
  EXPECT_CU(cuModuleLoadData(&module, kFakeImage));
  EXPECT_CU(cuModuleGetFunction(&run, module, "run"));
  EXPECT_CU(try_launch(run, nullptr, {}));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_CU(cuCtxDestroy_v2(second));
  EXPECT_CU(cuCtxSetCurrent(context_));
  let_go();
}

// Streams that wait for each other in every way always come to their ends: what has been submitted
// first never is behind what waits for it.
TEST_F(ConnectionsTest, NothingWaitsForItself) {
  constexpr int kStreams = 3 * kConnections;
  std::mt19937 random(7);
  std::vector<CUstream> streams(kStreams);
  std::vector<CUevent> events(kStreams);
  for (CUstream& s : streams) s = stream(random() % 2 == 0 ? CU_STREAM_NON_BLOCKING : 0);
  for (CUevent& e : events) e = event(CU_EVENT_DISABLE_TIMING);
  uint32_t* count = words(1);
  uint32_t launches = 0;
  for (CUstream s : streams) {
    hold_by_a_kernel(s);
    launch(s, FakeAction::kNothing);
  }
  for (int i = 0; i < 1000; ++i) {
    const CUstream s = i % 100 == 0 ? nullptr : streams[random() % kStreams];
    switch (random() % 3) {
      case 0: EXPECT_CU(cuEventRecord(events[random() % kStreams], s)); break;
      case 1: EXPECT_CU(cuStreamWaitEvent(s, events[random() % kStreams], 0)); break;
      default:
        launch(s, FakeAction::kAdd, address_of(count), 1);
        ++launches;
        break;
    }
  }
  EXPECT_EQ(load(count), 0u);
  let_go();
  EXPECT_EQ(load(count), launches);
}

// After a fault everything ends, whatever was first in a connection.
TEST_F(ConnectionsTest, AFaultEmptiesThem) {
  uint32_t* gate = words(1);
  CUstream faulty = stream();
  launch(faulty, FakeAction::kWait, address_of(gate), 1);
  launch(faulty, FakeAction::kFault, 0, CUDA_ERROR_ASSERT);
  for (int i = 0; i < 2 * kConnections; ++i) {
    CUstream s = stream();
    hold_by_a_kernel(s);
    launch(s, FakeAction::kNothing);
    EXPECT_CU(cuStreamWaitValue32_v2(s, address_of(word_), 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  store(gate, 1);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
}

uint32_t configured(const char* wanted, const char* there) {
  const auto set = [](const char* name, const char* value) {
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  };
  set("CUDA_DEVICE_MAX_CONNECTIONS", wanted);
  set("SOFTGPU_CONNECTIONS", there);
  const Result<Config> config = read_config();
  set("CUDA_DEVICE_MAX_CONNECTIONS", nullptr);
  set("SOFTGPU_CONNECTIONS", nullptr);
  return config.ok() ? config->connections : 12345;
}

TEST(ConnectionsConfig, AsTheProgramWantsUpToWhatIsThere) {
  EXPECT_EQ(configured(nullptr, nullptr), 8u);
  EXPECT_EQ(configured("32", nullptr), 32u);
  EXPECT_EQ(configured("128", nullptr), 32u);
  EXPECT_EQ(configured("1", nullptr), 1u);
  EXPECT_EQ(configured("0", nullptr), 8u);
  EXPECT_EQ(configured("many", nullptr), 8u);
  EXPECT_EQ(configured("32", "4"), 4u);
  EXPECT_EQ(configured("32", "0"), 0u);
  EXPECT_EQ(configured(nullptr, "many"), 12345u);
}

}  // namespace
}  // namespace openmps::softgpu::testing
