// SPDX-License-Identifier: Apache-2.0
// The worker has no memory left while a session ends: that session's matter alone. The program's
// operator new refuses one request, or all, of the thread that a test names.
#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <new>
#include <regex>

#include "wire/commands/array.h"
#include "wire/commands/device.h"
#include "wire/commands/graph.h"
#include "wire/commands/memory.h"
#include "wire/commands/stream.h"
#include "worker_fixture.h"

namespace {

std::atomic<pid_t> starved{0};  // the thread; 0: none
std::atomic<long> granted{0};   // requests of it that still succeed
std::atomic<long> refusals{0};  // how many are refused then; further ones succeed

bool refused() {
  if (starved.load() == 0 || starved.load() != gettid()) return false;
  if (openmps::worker::FakeDriver::is_in_call()) return false;
  return --granted < 0 && --refusals >= 0;
}

}  // namespace

// In the place of the library's, for the whole program.
void* operator new(size_t bytes) {
  if (refused()) throw std::bad_alloc();
  void* made = malloc(bytes == 0 ? 1 : bytes);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return refused() ? nullptr : malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* block) noexcept { free(block); }
void operator delete(void* block, size_t) noexcept { free(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { free(block); }

namespace openmps::worker {
namespace {

class NoMemoryTest : public WorkerFixture {
 protected:
  void TearDown() override {
    starved = 0;
    WorkerFixture::TearDown();
  }
  static pid_t thread_of(const TestClient& client) {
    const std::string name = "sess-" + std::to_string(client.session());
    DIR* threads = opendir("/proc/self/task");
    pid_t found = 0;
    while (const dirent* thread = readdir(threads)) {
      std::string comm;
      std::getline(std::ifstream(std::string("/proc/self/task/") + thread->d_name + "/comm"), comm);
      if (comm == name) found = atoi(thread->d_name);
    }
    closedir(threads);
    return found;
  }
  static void starve(const TestClient& client, long after, long requests) {
    granted = after;
    refusals = requests;
    starved = thread_of(client);
    ASSERT_NE(starved.load(), 0);
  }
  // Something of each kind that a session's end has to give back.
  static void use(TestClient& client) {
    const uint64_t pinned = client.base() + wire::kDeviceBytes + wire::kPinnedOffset;
    client.post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kLegacy, 0, 0});
    client.post(wire::StreamCreate{2, 1, 0, wire::StreamKind::kBlocking, 0, 0});
    client.post(wire::EventCreate{1, CU_EVENT_INTERPROCESS, 0});
    client.post(wire::EventRecord{1, 1, 0, 0, 1});
    EXPECT_EQ(client.call(wire::EventPublish{1}), CUDA_SUCCESS);
    client.post(wire::MemoryMap{client.base(), 2 * wire::kMemoryGranularity, 0});
    client.post(wire::AddressReserve{wire::kMemoryGranularity, wire::kMemoryGranularity});
    client.post(wire::HostRegister{pinned, 4096});
    client.post(wire::HostRegister{pinned + 4096, 4096});
    client.post(wire::ArrayCreate{1, 0, 64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0});
    client.post(wire::GraphBegin{1, 0});
    client.post(wire::GraphNode{1, wire::GraphNodeKind::kEmpty, 0, 0});
    client.post(wire::GraphInstantiate{0, 1});
    client.post(wire::GraphLaunch{1, 2});
    finish(client);
  }
  // A wait that its end has to pass, and what goes behind it.
  static void wait_for_ever(TestClient& client) {
    const uint64_t pinned = client.base() + wire::kDeviceBytes + wire::kPinnedOffset;
    client.post(wire::StreamWaitValue{{client.staging(), 7, 4, CU_STREAM_WAIT_VALUE_EQ}, 2});
    client.post(wire::HostUnregister{pinned, 4096});
    client.post(wire::ArrayDestroy{1});
    finish(client);
  }
  static void finish(TestClient& client) {
    EXPECT_EQ(client.call(wire::Ping{}), CUDA_SUCCESS);
    EXPECT_EQ(client.view().header().async_error.load(), 0u)
        << "opcode " << client.view().header().async_error_opcode.load();
  }
  // What lives, but for the watchdog's own probe, which comes when it likes.
  std::string left_behind() {
    return std::regex_replace(driver_.live(), std::regex("^events 1 | ?streams 1$"), "");
  }
  // Of this session; that its executor has failed may be said before.
  bool closed(uint32_t session) {
    Result<Packet> packet = server_->next();
    wire::SessionFault fault;
    if (packet.ok() && wire::read_message(packet->data, &fault).ok()) {
      EXPECT_EQ(fault.session, session);
      packet = server_->next();
    }
    wire::SessionClosed closed;
    const bool good = packet.ok() && wire::read_message(packet->data, &closed).ok();
    EXPECT_TRUE(good);
    EXPECT_EQ(closed.session, session);
    EXPECT_EQ(closed.tainted, 0u);
    return good;
  }
};

// One request fails, each of them once.
TEST_F(NoMemoryTest, ASessionEndsWhicheverRequestFails) {
  const auto neighbour = connect(1, 10);
  const std::string before = left_behind();
  uint32_t session = 2;
  for (long request = 0;; ++request, ++session) {
    SCOPED_TRACE("request " + std::to_string(request));
    const auto client = connect(session, 11);
    use(*client);
    wait_for_ever(*client);
    starve(*client, request, 1);
    server_->close(session);
    ASSERT_TRUE(closed(session));
    starved = 0;
    EXPECT_EQ(neighbour->call(wire::Ping{}), CUDA_SUCCESS);
    EXPECT_EQ(left_behind(), before);
    if (refusals.load() > 0) break;  // the session has not asked so often
  }
  EXPECT_GT(session, 3u) << "there was something to refuse";
  close(*neighbour);
}

TEST_F(NoMemoryTest, ASessionThatHasNoneWaitsAndItsNeighboursDoNot) {
  const auto neighbour = connect(1, 10);
  const auto client = connect(2, 11);
  use(*client);
  wait_for_ever(*client);
  starve(*client, 0, LONG_MAX);
  server_->close(2);
  // It asks again and again.
  while (refusals.load() > LONG_MAX - 3) std::this_thread::yield();
  use(*neighbour);
  starved = 0;
  EXPECT_TRUE(closed(2));
  close(*neighbour);
}

}  // namespace
}  // namespace openmps::worker
