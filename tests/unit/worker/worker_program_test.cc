// SPDX-License-Identifier: Apache-2.0
// The program openmps-worker on a real driver (softgpu in the build, or what OPENMPS_TEST_DRIVER
// names), under a small server and clients of the test: PTX, copies, fences, several sessions, a
// fault. OPENMPS_TEST_WORKER: its path. Prints what it measures.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/subprocess.h"
#include "test_client.h"
#include "wire/commands/code.h"
#include "wire/commands/device.h"
#include "wire/commands/graph.h"
#include "wire/commands/memory.h"
#include "wire/commands/stream.h"
#include "wire/device_facts.h"
#include "wire/usage_table.h"

namespace openmps::worker {
namespace {

// out[i] = in[i] + add; "fault" writes to address 0.
constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 out, .param .u64 in, .param .u32 value) {
  .reg .b32 %r<6>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r4, %r2, %r3, %r4;
  mul.wide.u32 %rd3, %r4, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r5, [%rd4];
  add.s32 %r5, %r5, %r1;
  add.s64 %rd5, %rd1, %rd3;
  st.global.u32 [%rd5], %r5;
  ret;
}
.visible .entry fault() {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  mov.u64 %rd1, 64;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

std::string text_of(const char* name, const char* fallback) {
  const char* value = getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

class WorkerProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto sockets = make_socket_pair();
    ASSERT_TRUE(sockets.ok());
    setenv("OPENMPS_CACHE_DIRECTORY", "", 1);  // nothing of earlier tests, or of its user
    SpawnOptions options;
    options.program = text_of("OPENMPS_TEST_WORKER", OPENMPS_TEST_WORKER_DEFAULT);
    options.arguments = {"--server-fd", "3", "--driver",
                         text_of("OPENMPS_TEST_DRIVER", OPENMPS_TEST_DRIVER_DEFAULT)};
    options.fds = {{sockets->second.get(), 3}, {2, 2}};
    options.die_with_parent = true;
    const uint64_t start = now_ns();
    auto pid = spawn(options);
    ASSERT_TRUE(pid.ok()) << pid.status().message();
    pid_ = *pid;
    sockets->second.reset();
    server_ = std::make_unique<TestServer>(std::move(sockets->first));
    std::vector<UniqueFd> fds;
    auto ready = server_->expect<wire::WorkerReady>(&fds);
    ASSERT_TRUE(ready.ok()) << ready.status().message();
    ASSERT_EQ(ready->result, 0u) << ready->reason;
    ASSERT_EQ(fds.size(), 2u);
    const auto usage = wire::UsageTable::open(fds[1].get());
    EXPECT_TRUE(usage.ok()) << usage.status().message();
    printf("worker start: %.1f ms\n", static_cast<double>(now_ns() - start) * 1e-6);
    auto mapped = map_shared(fds[0].get(), 0, sizeof(wire::Facts), MapAccess::kReadOnly);
    ASSERT_TRUE(mapped.ok());
    const auto* facts = static_cast<const wire::Facts*>(mapped->address());
    printf("device: %s, %.1f GiB, driver %d\n", facts->device[0].name,
           static_cast<double>(facts->device[0].total_memory) / static_cast<double>(wire::kGiB),
           facts->driver_version);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->hang_up();
    if (pid_ == 0) return;
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << describe_exit(status);
  }

  std::unique_ptr<TestClient> connect(uint32_t session) {
    auto client = std::make_unique<TestClient>(session, session);
    server_->open(*client);
    auto ready = server_->expect<wire::SessionReady>();
    EXPECT_TRUE(ready.ok() && ready->result == 0) << ready->reason;
    return client;
  }
  void close(uint32_t session) {
    server_->close(session);
    auto closed = server_->expect<wire::SessionClosed>();
    EXPECT_TRUE(closed.ok()) << closed.status().message();
  }
  // Stream 1 (legacy), module 1, functions 1 (add) and 2 (fault), memory at the window's start.
  void prepare(TestClient& client, wire::ModuleKind kind = wire::ModuleKind::kModule) {
    client.post(wire::StreamCreate{1, 1, 0, wire::StreamKind::kLegacy, 0, 0});
    memcpy(client.view().staging(), kPtx, sizeof(kPtx));
    client.post(wire::BlobBegin{sizeof(kPtx), 1});
    client.post(wire::BlobData{1, sizeof(kPtx), 0, client.staging()});
    EXPECT_EQ(client.call(wire::ModuleLoad{1, 1, 0, kind, 1024, 0}), CUDA_SUCCESS);
    EXPECT_EQ(client.call(wire::GetFunction{1, 1, kind, 3}, "add"), CUDA_SUCCESS);
    EXPECT_EQ(client.reply<wire::GetFunction::Reply>().parameter_count, 3u);
    EXPECT_EQ(client.reply<wire::GetFunction::Reply>().parameter_bytes, 20u);
    EXPECT_EQ(client.call(wire::GetFunction{1, 2, kind, 5}, "fault"), CUDA_SUCCESS);
    EXPECT_EQ(client.call(wire::MemoryMap{client.base(), wire::kMemoryGranularity, 0}),
              CUDA_SUCCESS);
  }
  static void add(TestClient& client, wire::Id stream, uint64_t out, uint64_t in, uint32_t value) {
    std::string parameters(20, '\0');
    memcpy(parameters.data(), &out, 8);
    memcpy(parameters.data() + 8, &in, 8);
    memcpy(parameters.data() + 16, &value, 4);
    client.post(wire::Launch{stream, 1, {4, 1, 1}, {256, 1, 1}, 0, 0, 20, 0}, parameters);
  }
  // The same as node `number` of a graph, behind the one before it.
  static void add_to_graph(TestClient& client, uint32_t number, uint64_t out, uint64_t in,
                           uint32_t value) {
    const wire::GraphEdge edge{number - 1, 0, 0, 0};
    const wire::Launch launch{0, 1, {4, 1, 1}, {256, 1, 1}, 0, 0, 20, 0};
    std::string text(sizeof(launch) + 20, '\0');
    memcpy(text.data(), &launch, sizeof(launch));
    memcpy(text.data() + sizeof(launch), &out, 8);
    memcpy(text.data() + sizeof(launch) + 8, &in, 8);
    memcpy(text.data() + sizeof(launch) + 16, &value, 4);
    const wire::GraphNode node{1, wire::GraphNodeKind::kKernel, number == 0 ? 0u : 1u,
                               static_cast<uint32_t>(text.size())};
    if (number != 0) text.insert(0, reinterpret_cast<const char*>(&edge), sizeof(edge));
    client.post(node, text);
  }
  bool synchronise(TestClient& client, wire::Id stream = 1) {
    client.post(wire::Fence{stream, stream, ++fence_});
    return client.wait_fence(stream, fence_);
  }
  // 1024 numbers there, through the kernel, and back.
  void compute(TestClient& client, uint32_t value) {
    auto* numbers = reinterpret_cast<uint32_t*>(client.view().staging());
    for (uint32_t i = 0; i < 1024; ++i) numbers[i] = i;
    client.post(wire::Memcpy{1, 0, client.base(), client.staging(), 4096});
    add(client, 1, client.base() + 4096, client.base(), value);
    client.post(wire::Memcpy{1, 0, client.staging(), client.base() + 4096, 4096});
    ASSERT_TRUE(synchronise(client)) << "status " << client.view().header().status.load();
    for (uint32_t i = 0; i < 1024; ++i) ASSERT_EQ(numbers[i], i + value) << i;
    EXPECT_EQ(client.view().header().async_error.load(), 0u)
        << "opcode " << client.view().header().async_error_opcode.load();
  }

  pid_t pid_ = 0;
  std::unique_ptr<TestServer> server_;
  uint64_t fence_ = 0;
};

double ms(uint64_t ns) { return static_cast<double>(ns) * 1e-6; }

TEST_F(WorkerProgramTest, ComputesForModulesAndLibraries) {
  for (const uint32_t kind : {0u, 1u}) {
    const uint64_t start = now_ns();
    const auto client = connect(1 + kind);
    const uint64_t opened = now_ns();
    prepare(*client, static_cast<wire::ModuleKind>(kind));
    const uint64_t prepared = now_ns();
    compute(*client, 7);
    const uint64_t computed = now_ns();
    close(1 + kind);
    printf("kind %u: open %.2f ms, load %.2f ms, first kernel %.2f ms, close %.2f ms\n", kind,
           ms(opened - start), ms(prepared - opened), ms(computed - prepared),
           ms(now_ns() - computed));
  }
}

TEST_F(WorkerProgramTest, SessionsComputeSideBySide) {
  constexpr uint32_t kClients = 4;
  std::vector<std::unique_ptr<TestClient>> clients;
  for (uint32_t i = 0; i < kClients; ++i) clients.push_back(connect(10 + i));
  for (auto& client : clients) prepare(*client);
  for (uint32_t round = 0; round < 20; ++round) {
    for (auto& client : clients) compute(*client, round * 100 + client->session());
  }
  for (auto& client : clients) close(client->session());
}

TEST_F(WorkerProgramTest, StreamsOrderAsTheLegacyStreamPromises) {
  const auto client = connect(1);
  prepare(*client);
  client->post(wire::StreamCreate{2, 1, 0, wire::StreamKind::kBlocking, 0, 0});
  auto* numbers = reinterpret_cast<uint32_t*>(client->view().staging());
  std::fill_n(numbers, 1024, 0u);
  client->post(wire::Memcpy{1, 0, client->base(), client->staging(), 4096});
  // In place, in turns on both streams: any lost order loses an addition.
  for (int i = 0; i < 200; ++i) add(*client, 1 + i % 2, client->base(), client->base(), 1);
  client->post(wire::Memcpy{1, 0, client->staging(), client->base(), 4096});
  ASSERT_TRUE(synchronise(*client));
  for (uint32_t i = 0; i < 1024; ++i) ASSERT_EQ(numbers[i], 200u) << i;
  close(1);
}

TEST_F(WorkerProgramTest, GraphsRunAgain) {
  const auto client = connect(1);
  prepare(*client);
  client->post(wire::StreamCreate{2, 1, 0, wire::StreamKind::kBlocking, 0, 0});
  auto* numbers = reinterpret_cast<uint32_t*>(client->view().staging());
  std::fill_n(numbers, 1024, 5u);
  client->post(wire::Memcpy{2, 0, client->base(), client->staging(), 4096});
  client->post(wire::GraphBegin{1, 0});
  for (uint32_t i = 0; i < 3; ++i) add_to_graph(*client, i, client->base(), client->base(), 1);
  ASSERT_EQ(client->call(wire::GraphInstantiate{0, 1}), CUDA_SUCCESS);
  for (int i = 0; i < 10; ++i) client->post(wire::GraphLaunch{1, 2});
  client->post(wire::Memcpy{2, 0, client->staging(), client->base(), 4096});
  ASSERT_TRUE(synchronise(*client, 2));
  for (uint32_t i = 0; i < 1024; ++i) ASSERT_EQ(numbers[i], 35u) << i;
  close(1);
}

TEST_F(WorkerProgramTest, HostFunctionsAndDeadClients) {
  const auto client = connect(1);
  prepare(*client);
  client->post(wire::HostFunction{1, 0, 0, wire::kNoFence, 0});
  client->post(wire::Fence{1, 0, 1});
  ASSERT_TRUE(client->wait([&] { return client->view().callback(0).posted.load() == 1; }));
  EXPECT_EQ(client->view().fence(0).value.load(), 0u);
  client->view().callback(0).done.store(1);
  ASSERT_TRUE(client->wait_fence(0, 1));
  // This one is never answered.
  client->post(wire::HostFunction{1, 1, 0, wire::kNoFence, 0});
  client->post(wire::StreamWaitValue{{client->base(), 77, 4, 1}, 1});
  ASSERT_TRUE(client->wait([&] { return client->view().callback(1).posted.load() == 1; }));
  close(1);
}

TEST_F(WorkerProgramTest, Rates) {
  const auto client = connect(1);
  prepare(*client);
  compute(*client, 1);
  constexpr int kLaunches = 4000;
  uint64_t start = now_ns();
  for (int i = 0; i < kLaunches; ++i) add(*client, 1, client->base(), client->base() + 4096, 1);
  const uint64_t issued = now_ns();
  ASSERT_TRUE(synchronise(*client));
  printf("launches: issue %.2f us, end to end %.2f us\n", ms(issued - start) * 1000 / kLaunches,
         ms(now_ns() - start) * 1000 / kLaunches);
  constexpr int kSyncs = 1000;
  std::vector<uint64_t> times;
  for (int i = 0; i < kSyncs; ++i) {
    start = now_ns();
    add(*client, 1, client->base(), client->base() + 4096, 1);
    ASSERT_TRUE(synchronise(*client));
    times.push_back(now_ns() - start);
  }
  std::sort(times.begin(), times.end());
  printf("launch + fence: p50 %.2f us, p99 %.2f us\n", ms(times[kSyncs / 2]) * 1000,
         ms(times[kSyncs * 99 / 100]) * 1000);
  EXPECT_EQ(client->call(wire::MemoryInfo{0}), CUDA_SUCCESS);
  const uint64_t before = client->reply<wire::MemoryInfo::Reply>().free;
  std::vector<std::unique_ptr<TestClient>> others;
  for (uint32_t i = 0; i < 8; ++i) {
    others.push_back(connect(20 + i));
    prepare(*others.back());
    compute(*others.back(), 3);
  }
  EXPECT_EQ(client->call(wire::MemoryInfo{0}), CUDA_SUCCESS);
  printf("device memory per further client: %.2f MiB\n",
         static_cast<double>(before - client->reply<wire::MemoryInfo::Reply>().free) / 8 /
             static_cast<double>(wire::kMiB));
  for (const auto& other : others) close(other->session());
  EXPECT_EQ(client->call(wire::MemoryInfo{0}), CUDA_SUCCESS);
  printf("device memory kept after they left: %.2f MiB\n",
         static_cast<double>(before - client->reply<wire::MemoryInfo::Reply>().free) /
             static_cast<double>(wire::kMiB));
  close(1);
}

TEST_F(WorkerProgramTest, ASessionOpensOnlyWhereItsSmsAreKept) {
  wire::Reserve reserve;
  reserve.number = 9;
  reserve.sms = 1;
  reserve.groups[0] = 0b10;
  ASSERT_TRUE(send_packet(server_->fd(), wire::message_bytes(reserve)).ok());
  const auto reserved = server_->expect<wire::Reserved>();
  ASSERT_TRUE(reserved.ok()) << reserved.status().message();
  EXPECT_EQ(reserved->result, CUDA_SUCCESS);
  reserve.number = 10;  // the same SMs
  ASSERT_TRUE(send_packet(server_->fd(), wire::message_bytes(reserve)).ok());
  EXPECT_EQ(server_->expect<wire::Reserved>()->result, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  for (const auto& [number, result] :
       {std::pair(9u, CUDA_SUCCESS), std::pair(10u, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)}) {
    const TestClient client(number, number);
    wire::Grant grant;
    grant.reservation = number;
    server_->open(client, grant);
    const auto ready = server_->expect<wire::SessionReady>();
    ASSERT_TRUE(ready.ok()) << ready.status().message();
    EXPECT_EQ(ready->result, result) << ready->reason;
    if (result != CUDA_SUCCESS) continue;
    server_->close(number);
    EXPECT_TRUE(server_->expect<wire::SessionClosed>().ok());
  }
}

TEST_F(WorkerProgramTest, FaultReachesEverySession) {
  const auto culprit = connect(1);
  const auto other = connect(2);
  prepare(*culprit);
  prepare(*other);
  compute(*other, 1);
  culprit->post(wire::Launch{1, 2, {1, 1, 1}, {1, 1, 1}, 0, 0, 0, 0});
  culprit->post(wire::Fence{1, 1, ++fence_});
  const uint64_t start = now_ns();
  auto lost = server_->expect<wire::WorkerLost>();
  ASSERT_TRUE(lost.ok()) << lost.status().message();
  printf("fault noticed after %.0f ms\n", ms(now_ns() - start));
  EXPECT_EQ(lost->result, static_cast<uint32_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
  std::map<uint32_t, wire::HandedOver> over;
  while (over.size() < 2) {
    auto one = server_->expect<wire::HandedOver>();
    ASSERT_TRUE(one.ok()) << one.status().message();
    if (one->outcome != wire::Outcome::kComing) over[one->session] = *one;
  }
  EXPECT_EQ(over[1].has_kernel, 1u);
  EXPECT_STREQ(over[1].kernel, "fault");
  EXPECT_EQ(over[2].has_kernel, 0u);
  EXPECT_EQ(over[2].outcome, wire::Outcome::kMoved) << over[2].reason;
  // The server decides what the clients are told.
  EXPECT_EQ(culprit->view().header().status.load(), 0u);
  EXPECT_EQ(other->view().header().status.load(), 0u);
}

// Where the worker's driver initialises, with these variables in the server's environment.
std::string start_on_probe(const char* wanted, const char* exported) {
  if (wanted != nullptr) setenv("OPENMPS_DEVICE_MAX_CONNECTIONS", wanted, 1);
  if (exported != nullptr) setenv("CUDA_DEVICE_MAX_CONNECTIONS", exported, 1);
  setenv("OPENMPS_CACHE_DIRECTORY", "", 1);
  auto sockets = make_socket_pair();
  SpawnOptions options;
  options.program = text_of("OPENMPS_TEST_WORKER", OPENMPS_TEST_WORKER_DEFAULT);
  options.arguments = {"--server-fd", "3", "--driver", OPENMPS_TEST_PROBE_DRIVER};
  options.fds = {{sockets->second.get(), 3}, {2, 2}};
  options.die_with_parent = true;
  auto pid = spawn(options);
  unsetenv("OPENMPS_DEVICE_MAX_CONNECTIONS");
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (!pid.ok()) return pid.status().message();
  sockets->second.reset();
  TestServer server(std::move(sockets->first));
  auto ready = server.expect<wire::WorkerReady>();
  waitpid(*pid, nullptr, 0);
  if (!ready.ok()) return ready.status().message();
  const std::string reason = ready->reason;
  return reason.substr(reason.rfind(' ') + 1);
}

TEST(WorkerEnvironment, TheDriverStartsWithAllHardwareQueues) {
  EXPECT_EQ(start_on_probe(nullptr, nullptr), "32");
  EXPECT_EQ(start_on_probe(nullptr, "1"), "32") << "a job script's, for its programs";
  EXPECT_EQ(start_on_probe("16", "1"), "16") << "the operator's";
  for (const char* nonsense : {"0", "33", "many", ""}) {
    EXPECT_EQ(start_on_probe(nonsense, nullptr), "32") << nonsense;
  }
}

}  // namespace
}  // namespace openmps::worker
