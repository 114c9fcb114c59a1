// SPDX-License-Identifier: Apache-2.0
// Whole sessions on the fake driver: opening, the ring, replies, fences, wakes, host functions, and
// every way to end.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <thread>

#include "base/futex.h"
#include "worker_fixture.h"

namespace {

// How many threads can still be made; negative: any number.
std::atomic<int> threads_left{-1};

}  // namespace

// In the place of the library's, for the whole program: the system says that there is no thread
// left when a test wants it to.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*main)(void*), void* argument) {
  if (threads_left.load() == 0) return EAGAIN;
  if (threads_left.load() > 0) --threads_left;
  using Create = decltype(&pthread_create);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, main, argument);
}

namespace openmps::worker {
namespace {

using wire::Opcode;

size_t count_entries(const char* folder) {
  DIR* open = opendir(folder);
  size_t count = 0;
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

using SessionTest = WorkerFixture;

// One thread of the client waits for its code; the others go on, and so may the session's end.
TEST_F(SessionTest, CompilingHoldsUpNoOtherCommand) {
  const auto client = connect(10);
  memcpy(client->view().staging(), "code", 4);
  client->post(wire::BlobBegin{4, 1});
  client->post(wire::BlobData{1, 4, 0, client->staging()});
  wire::ReplySlot& slot = client->view().reply(1);
  slot.state.store(wire::ReplySlot::kPending);
  driver_.hold_compiling = true;
  client->post(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 0}, "", 1);
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS);
  EXPECT_EQ(slot.state.load(), wire::ReplySlot::kPending);
  driver_.hold_compiling = false;
  EXPECT_TRUE(client->wait([&] { return slot.state.load() == wire::ReplySlot::kDone; }));
  EXPECT_EQ(slot.result, CUDA_SUCCESS);
  EXPECT_EQ(client->call(wire::GetFunction{1, 1, wire::ModuleKind::kModule, 4}, "kern"),
            CUDA_SUCCESS);
  close(*client);
  EXPECT_EQ(driver_.live(), "");
}

TEST_F(SessionTest, ASessionEndsWhileItsCodeIsCompiled) {
  const auto client = connect(10);
  memcpy(client->view().staging(), "code", 4);
  client->post(wire::BlobBegin{4, 1});
  client->post(wire::BlobData{1, 4, 0, client->staging()});
  driver_.hold_compiling = true;
  client->post(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 0});
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS);
  close(*client);
  EXPECT_EQ(driver_.live(), "");
  driver_.hold_compiling = false;
  while (Background::busy()) std::this_thread::yield();
  EXPECT_EQ(driver_.live(), "") << "nobody wants what was compiled";
}

TEST_F(SessionTest, ClosingGivesEverythingBack) {
  const std::string before = driver_.live();
  const size_t files = count_entries("/proc/self/fd");
  const size_t threads = count_entries("/proc/self/task");
  for (uint32_t round = 0; round < 3; ++round) {
    const auto client = connect(10 + round);
    use_everything(*client);
    EXPECT_NE(driver_.live(), before);
    close(*client);
    EXPECT_EQ(driver_.physical_bytes(), 0u);
  }
  // The last thread is joined on the main thread, a moment after its session is closed, and then
  // its journal is closed. One of an earlier test may have been there at first, and have ended
  // meanwhile.
  const uint64_t end = now_ns() + kTestTimeoutNs;
  const auto wait_for = [end](const char* what, size_t most) {
    while (count_entries(what) > most && now_ns() < end) std::this_thread::yield();
    return count_entries(what);
  };
  EXPECT_LE(wait_for("/proc/self/task", threads), threads);
  EXPECT_EQ(wait_for("/proc/self/fd", files), files);
  // The watchdog's own probe is all that may be left.
  EXPECT_TRUE(driver_.live() == before || driver_.live() == "events 1 streams 1") << driver_.live();
}

// ---- Where the system has nothing left
// -----------------------------------------------------------

TEST_F(SessionTest, WithoutAThreadOnlyTheNewSessionIsRefused) {
  const auto first = connect(1, 10);
  use_everything(*first);
  threads_left = 0;
  const TestClient refused(2, 11);
  server_->open(refused);
  const auto answer = server_->expect<wire::SessionReady>();
  threads_left = -1;
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->session, 2u);
  EXPECT_EQ(answer->result, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_STRNE(answer->reason, "");
  EXPECT_EQ(first->call(wire::Ping{}), CUDA_SUCCESS);
  const auto second = connect(2, 11);  // number and window are free
  close(*second);
  close(*first);
}

TEST_F(SessionTest, WithoutADescriptorOnlyTheNewSessionIsRefused) {
  const auto first = connect(1, 10);
  wire::OpenSession open;  // the system has dropped what it could not pass
  open.session = 2;
  open.window = 11;
  ASSERT_TRUE(send_packet(server_->fd(), wire::message_bytes(open)).ok());
  const auto answer = server_->expect<wire::SessionReady>();
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->result, CUDA_ERROR_OPERATING_SYSTEM);
  wire::PassDescriptor lost;
  lost.session = 1;
  lost.ticket = 1;
  ASSERT_TRUE(send_packet(server_->fd(), wire::message_bytes(lost)).ok());
  EXPECT_TRUE(server_->expect<wire::DescriptorTaken>().ok());
  EXPECT_EQ(first->call(wire::Ping{}), CUDA_SUCCESS);
  close(*first);
}

TEST_F(SessionTest, SessionsRunSideBySide) {
  const auto first = connect(1, 10);
  const auto second = connect(2, 11);
  use_everything(*first);
  use_everything(*second);
  close(*first);
  EXPECT_EQ(second->call(wire::Ping{}), CUDA_SUCCESS);
  EXPECT_EQ(first->view().header().status.load(), CUDA_ERROR_MPS_RPC_FAILURE);
  close(*second);
}

TEST_F(SessionTest, RepliesAndAsynchronousErrors) {
  const auto client = connect();
  client->post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kBlocking, 0, 0});
  EXPECT_EQ(client->call(wire::MemoryInfo{0}), CUDA_SUCCESS);
  EXPECT_EQ(client->reply<wire::MemoryInfo::Reply>().total, kFakeTotalMemory);
  driver_.fail("wait", CUDA_ERROR_OUT_OF_MEMORY);
  driver_.fail("event", CUDA_ERROR_INVALID_VALUE);
  client->post(wire::EventCreate{1, 0, 0});
  client->post(wire::EventRecord{1, 1, wire::kNoFence, 0, 0});
  client->post(wire::Launch{1, 1, {1, 1, 1}, {1, 1, 1}, 0, 0, 0, 0});
  // The launch names no function: that ends the session, with the first error kept.
  EXPECT_TRUE(client->wait([&] { return client->view().header().status.load() != 0; }));
  EXPECT_EQ(client->view().header().async_error.load(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(client->view().header().async_error_opcode.load(),
            static_cast<uint32_t>(Opcode::kEventRecord));
  EXPECT_TRUE(server_->expect<wire::SessionFault>().ok());
  expect_closed(1);
}

TEST_F(SessionTest, FencesAndSleepers) {
  const auto client = connect();
  client->post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kBlocking, 0, 0});
  client->post(wire::Fence{1, 5, 42});
  EXPECT_TRUE(client->wait_fence(5, 42));
  // A sleeping client thread is woken behind held work.
  driver_.hold(1, true);
  wire::ChannelHeader& header = client->view().header();
  header.waiters.fetch_add(1);
  const uint32_t epoch = header.wake_epoch.load();
  client->post(wire::Fence{1, 5, 43});
  client->post(wire::WakeAfter{1});
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS);
  EXPECT_EQ(client->view().fence(5).value.load(), 42u);
  std::thread gpu([&] { driver_.hold(1, false); });
  while (header.wake_epoch.load() == epoch) futex_wait(&header.wake_epoch, epoch, 1'000'000'000);
  EXPECT_TRUE(client->wait_fence(5, 43));
  gpu.join();
  close(*client);
}

TEST_F(SessionTest, WhileCoresAreShortAThreadNapsBeforeItSleeps) {
  const uint64_t in_an_hour = now_ns() + 3'600'000'000'000;
  for (int i = 0; i < 2; ++i) spins_.shortage.note_gap(1, std::nullopt, in_an_hour);
  const auto client = connect();
  const auto rests = [&client](wire::ConsumerRest how) {
    const std::atomic<uint32_t>& rest = client->view().ring_control().consumer_sleeping;
    return rest.load() == static_cast<uint32_t>(how);
  };
  EXPECT_TRUE(client->wait([&] {
    if (rests(wire::ConsumerRest::kAsleep)) client->post(wire::Ping{});
    return rests(wire::ConsumerRest::kNaps);
  }));
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS) << "a nap ends, though nobody ends it";
  EXPECT_TRUE(client->wait([&] { return rests(wire::ConsumerRest::kAsleep); }));
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS);
  close(*client);
}

TEST_F(SessionTest, HostFunctionHoldsItsStreamUntilTheClientHasRunIt) {
  const auto client = connect();
  client->post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kBlocking, 0, 0});
  client->post(wire::HostFunction{1, 3, 0, wire::kNoFence, 0});
  client->post(wire::Fence{1, 0, 1});
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS);
  EXPECT_EQ(client->view().callback(3).posted.load(), 1u);
  EXPECT_EQ(client->view().fence(0).value.load(), 0u);
  client->view().callback(3).done.store(1);
  driver_.hold(1, false);  // the fake GPU looks again
  EXPECT_TRUE(client->wait_fence(0, 1));
  close(*client);
}

TEST_F(SessionTest, AHostFunctionsOwnFenceComesBehindIt) {
  const auto client = connect();
  client->post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kBlocking, 0, 0});
  client->post(wire::HostFunction{1, 3, 7, 2, wire::kAnswersSoon});
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS);
  EXPECT_EQ(client->view().callback(3).posted.load(), 1u);
  EXPECT_EQ(client->view().promise(2).value.load(), 7u);
  EXPECT_EQ(client->view().fence(2).value.load(), 0u);
  client->view().callback(3).done.store(1);
  driver_.hold(1, false);  // the fake GPU looks again
  EXPECT_TRUE(client->wait_fence(2, 7));
  close(*client);
}

// A thread of the client that sleeps meanwhile is woken.
TEST_F(SessionTest, AHostFunctionThatTakesItsTimeIsWaitedForHere) {
  const auto client = connect();
  client->post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kBlocking, 0, 0});
  client->post(wire::HostFunction{1, 3, 7, 2, 0});
  const auto& rest = client->view().ring_control().consumer_sleeping;
  EXPECT_TRUE(client->wait([&] {
    return client->view().executor().held.load() == 1 &&
           rest.load() == static_cast<uint32_t>(wire::ConsumerRest::kAsleep);
  }));
  EXPECT_EQ(client->view().callback(3).posted.load(), 1u);
  client->view().callback(3).done.store(1);
  client->nudge();
  EXPECT_TRUE(client->wait_fence(2, 7));
  EXPECT_EQ(client->view().executor().held.load(), 0u);
  close(*client);
}

TEST_F(SessionTest, DeadClientLeavesNoStreamWaiting) {
  const auto client = connect();
  client->post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kNonBlocking, 0, 0});
  client->post(wire::StreamCreate{2, 1, 0, wire::StreamKind::kNonBlocking, 0, 0});
  client->post(wire::HostFunction{1, 0, 0, wire::kNoFence, 0});
  client->post(wire::HostFunction{1, 1, 0, wire::kNoFence, wire::kAnswersSoon});
  for (const uint32_t value : {7u, 3u, 9u}) {
    client->post(wire::StreamWaitValue{{client->staging(), value, 4, CU_STREAM_WAIT_VALUE_EQ}, 2});
  }
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS);
  close(*client);  // drains, or never answers
}

TEST_F(SessionTest, ADeadClientsOldestWaitIsPassedHoweverManyCameAfter) {
  const auto client = connect();
  client->post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kNonBlocking, 0, 0});
  client->post(wire::StreamCreate{2, 1, 0, wire::StreamKind::kNonBlocking, 0, 0});
  const auto wait = [&](wire::Id stream, uint64_t address, uint32_t value) {
    client->post(wire::StreamWaitValue{{address, value, 4, CU_STREAM_WAIT_VALUE_EQ}, stream});
  };
  wait(1, client->staging(), 1);
  // All of these pass at once, each for something else.
  constexpr uint32_t kPassed = 6000;
  for (uint32_t i = 0; i < kPassed; ++i) wait(2, client->staging() + 8 + 4 * i, 0);
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS);
  close(*client);  // drains, or never answers
}

TEST_F(SessionTest, WorkInFlightIsDrainedBeforeMemoryGoes) {
  const auto client = connect();
  use_everything(*client);
  driver_.hold(2, true);
  client->post(wire::Launch{2, 1, {1, 1, 1}, {1, 1, 1}, 0, 0, 16, 0}, std::string(16, 'x'));
  EXPECT_EQ(client->call(wire::Ping{}), CUDA_SUCCESS);
  driver_.take_calls();
  server_->close(1);
  EXPECT_TRUE(server_->quiet(50));
  EXPECT_EQ(driver_.physical_bytes(), wire::kMemoryGranularity) << "still mapped under the work";
  // Another session opens meanwhile.
  const auto other = connect(2, 12);
  driver_.hold(2, false);
  expect_closed(1);
  EXPECT_EQ(driver_.physical_bytes(), 0u);
  close(*other);
}

// Host pages can't be given back beside a kernel; the session's end does not wait for that, nor
// does it wait for somebody who looks for a quiet moment of his own.
TEST_F(SessionTest, EndsBesideANeighboursEndlessWorkAndKeepsItsWindow) {
  const auto neighbour = connect(1, 10);
  use_everything(*neighbour);
  driver_.hold(2, true);
  neighbour->post(wire::Launch{2, 1, {1, 1, 1}, {1, 1, 1}, 0, 0, 16, 0}, std::string(16, 'x'));
  EXPECT_EQ(neighbour->call(wire::Ping{}), CUDA_SUCCESS);
  std::atomic<bool> loaded{false};
  GateClient gate_client;
  std::thread loader([&] {
    gate_.run_quiescent({GatedCall::kModuleLoad, 0, &gate_client}, [] { return CUDA_SUCCESS; });
    loaded = true;
  });

  const auto client = connect(2, 12);
  close(*client);
  EXPECT_TRUE(server_->quiet(50));
  EXPECT_EQ(server_->free_windows(), 0u) << "the driver still has its pages";
  EXPECT_FALSE(loaded);
  driver_.hold(2, false);
  loader.join();
  Result<uint32_t> window = server_->free_window();
  ASSERT_TRUE(window.ok()) << window.status().message();
  EXPECT_EQ(*window, 12u);
  close(*connect(3, 12));
  close(*neighbour);
}

TEST_F(SessionTest, GarbageInTheRingEndsOnlyItsSession) {
  const auto good = connect(1, 10);
  const auto bad = connect(2, 11);
  use_everything(*bad);
  memset(bad->view().ring_data(), 0xa5, wire::kRingBytes);
  bad->view().ring_control().tail.fetch_add(4096);
  // The doorbell that a client would ring.
  bad->view().ring_control().consumer_sleeping.store(0);
  futex_wake(&bad->view().ring_control().consumer_sleeping, 1);
  auto fault = server_->expect<wire::SessionFault>();
  ASSERT_TRUE(fault.ok()) << fault.status().message();
  EXPECT_EQ(fault->session, 2u);
  EXPECT_EQ(fault->result, static_cast<uint32_t>(CUDA_ERROR_MPS_RPC_FAILURE));
  EXPECT_NE(std::string(fault->reason), "");
  expect_closed(2);
  EXPECT_EQ(bad->view().header().status.load(), CUDA_ERROR_MPS_RPC_FAILURE);
  server_->close(2);  // crosses: ignored
  EXPECT_EQ(good->call(wire::Ping{}), CUDA_SUCCESS);
  close(*good);
}

TEST_F(SessionTest, ReplySlotsAreChecked) {
  const auto client = connect();
  client->post(wire::Ping{}, "", 256);
  EXPECT_TRUE(server_->expect<wire::SessionFault>().ok());
  expect_closed(1);
}

TEST_F(SessionTest, OpeningFailsWithAReason) {
  TestClient wrong(1, 10);
  wrong.view().header().version = 99;
  server_->open(wrong);
  auto ready = server_->expect<wire::SessionReady>();
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(ready->result, static_cast<uint32_t>(CUDA_ERROR_MPS_RPC_FAILURE));
  driver_.fail("register", CUDA_ERROR_OUT_OF_MEMORY);
  const TestClient refused(2, 10);
  server_->open(refused);
  ready = server_->expect<wire::SessionReady>();
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(ready->result, static_cast<uint32_t>(CUDA_ERROR_OUT_OF_MEMORY));
  driver_.fail("register", CUDA_SUCCESS);
  close(*connect(3, 10));  // the window is free
}

TEST_F(SessionTest, LostContextIsNoticedWhileAFenceIsOpen) {
  const auto waiting = connect(1, 10);
  const auto idle = connect(2, 11);
  waiting->post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kNonBlocking, 0, 0});
  waiting->post(wire::Fence{1, 0, 1});
  EXPECT_TRUE(waiting->wait_fence(0, 1));
  driver_.hold(1, true);
  waiting->post(wire::Fence{1, 0, 2});
  EXPECT_EQ(waiting->call(wire::Ping{}), CUDA_SUCCESS);
  driver_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);
  auto fault = server_->expect<wire::SessionFault>();
  ASSERT_TRUE(fault.ok()) << fault.status().message();
  EXPECT_EQ(fault->session, 0u);
  EXPECT_EQ(fault->result, static_cast<uint32_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
  for (const auto* client : {&waiting, &idle}) {  // the server is told first
    EXPECT_TRUE((*client)->wait(
        [&] { return (*client)->view().header().status.load() == CUDA_ERROR_ILLEGAL_ADDRESS; }));
  }
  // Closing does not wait for work that will never end.
  close(*waiting);
  close(*idle);
  // Nobody comes in any more: the next worker serves them.
  const TestClient late(3, 12);
  server_->open(late);
  auto ready = server_->expect<wire::SessionReady>();
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(ready->result, static_cast<uint32_t>(CUDA_ERROR_MPS_SERVER_NOT_READY));
  driver_.poison(CUDA_SUCCESS);
  driver_.hold(1, false);
}

TEST_F(SessionTest, FactsAreSealed) {
  auto facts = collect_facts(driver_.table(), *devices_, true);
  ASSERT_TRUE(facts.ok());
  EXPECT_FALSE(map_shared(facts->get(), 0, 4096, MapAccess::kReadWrite).ok());
  auto mapped = map_shared(facts->get(), 0, sizeof(wire::Facts), MapAccess::kReadOnly);
  ASSERT_TRUE(mapped.ok());
  const auto* content = static_cast<const wire::Facts*>(mapped->address());
  EXPECT_EQ(content->device_count, 1u);
  EXPECT_EQ(content->software, 1u);
  EXPECT_STREQ(content->device[0].name, "Fake GPU");
  EXPECT_EQ(content->device[0].attribute[CU_DEVICE_ATTRIBUTE_WARP_SIZE], 1);
  EXPECT_EQ(content->device[0].attribute[CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED], 1);
  for (const CUdevice_attribute attribute :
       {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
        CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED}) {
    EXPECT_EQ(content->device[0].attribute[attribute], 0) << "the driver has " << attribute;
  }
  EXPECT_EQ(content->device[0].attribute_result[200], CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace openmps::worker
