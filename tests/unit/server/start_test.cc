// SPDX-License-Identifier: Apache-2.0
// How a server starts its worker, with the test in the role of the daemon: the reports about a
// worker that hangs, fails or does not exist, and the end of the server after that.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>

#include "base/text.h"
#include "server/server.h"
#include "wire/message.h"

namespace openmps::server {
namespace {

struct Start {
  wire::ServerReady told;
  int exit_status = -1;
};

Start start_with(ServerOptions options) {
  Start start;
  EventLoop loop;
  const Log log("Server", UniqueFd());
  Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
  EXPECT_TRUE(sockets.ok() && loop.open().ok());
  Server server(loop, log, std::move(options));
  EXPECT_TRUE(server.start(std::move(sockets->first)).ok());
  EXPECT_TRUE(loop.run().ok());
  start.exit_status = server.exit_status();
  Result<Packet> packet =
      receive_packet(sockets->second.get(), wire::kMaxMessageBytes, 0, Descriptors::kTaken);
  EXPECT_TRUE(packet.ok() && wire::read_message(packet->data, &start.told).ok());
  return start;
}

TEST(ServerStart, FailsWithAReasonIfTheWorkerHangs) {
  const Start start =
      start_with({.worker = {.program = OPENMPS_FAKE_WORKER, .driver = "hang", .ready_ms = 100}});
  EXPECT_EQ(start.exit_status, 1);
  EXPECT_EQ(start.told.result, CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_NE(field_text(start.told.reason).find("did not become ready"), std::string_view::npos);
}

// A server, its log, and a folder for files of its workers. The test has the role of the daemon.
class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(loop_.open().ok());
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // `worker` without a program: the program is the fake worker.
  void start(WorkerOptions worker) {
    worker.program = OPENMPS_FAKE_WORKER;
    Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
    ASSERT_TRUE(sockets.ok());
    server_ = std::make_unique<Server>(loop_, log_, ServerOptions{.worker = std::move(worker)});
    ASSERT_TRUE(server_->start(std::move(sockets->first)).ok());
    daemon_ = std::move(sockets->second);
  }
  // Admits a client. The result is the client's end of its connection.
  UniqueFd admit(const std::string& command) {
    Result<std::pair<UniqueFd, UniqueFd>> client = make_socket_pair();
    EXPECT_TRUE(client.ok());
    wire::Admit admit;
    admit.pid = static_cast<uint32_t>(getpid());
    fill_field(admit.hello.command, command);
    const int connection = client->second.get();
    EXPECT_TRUE(send_packet(daemon_.get(), wire::message_bytes(admit), {&connection, 1}).ok());
    return std::move(client->first);
  }
  // Runs the server until the client has its Welcome.
  wire::Welcome welcome(const UniqueFd& client) {
    wire::Welcome welcome;
    welcome.result = CUDA_ERROR_UNKNOWN;
    EXPECT_TRUE(loop_
                    .watch(client.get(), EPOLLIN,
                           [&](uint32_t) {
                             Result<Packet> packet = receive_packet(
                                 client.get(), wire::kMaxMessageBytes, 0, Descriptors::kTaken);
                             EXPECT_TRUE(packet.ok() &&
                                         wire::read_message(packet->data, &welcome).ok());
                             loop_.forget(client.get());
                             stop_loop_();
                           })
                    .ok());
    EXPECT_TRUE(loop_.run().ok());
    return welcome;
  }
  [[nodiscard]] std::string logged() const {
    std::string text(1 << 16, '\0');
    const ssize_t bytes = pread(written_.get(), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, bytes)));
    return text;
  }

  std::string folder_ = std::filesystem::temp_directory_path() / "server-XXXXXX";
  EventLoop loop_;
  UniqueFd written_{memfd_create("log", MFD_CLOEXEC)};
  Log log_{"Server", UniqueFd(fcntl(written_.get(), F_DUPFD_CLOEXEC, 0))};
  std::unique_ptr<Server> server_;
  UniqueFd daemon_;
  // The loop runs until the server ends, which it does when daemon and clients have disconnected.
  std::function<void()> stop_loop_ = [this] { daemon_.reset(); };
};

TEST_F(ServerTest, AWorkerThatHangsAtItsStartIsReplaced) {
  start({.program = "", .driver = "hang-once:" + folder_ + "/hung", .ready_ms = 200});
  UniqueFd client = admit("./p");
  stop_loop_ = [&] {
    client.reset();
    daemon_.reset();
  };
  EXPECT_EQ(welcome(client).result, CUDA_SUCCESS);
  EXPECT_NE(logged().find("the worker did not become ready within 0 s: it is hanging"),
            std::string::npos)
      << logged();
}

TEST_F(ServerTest, AClientThatWaitsForAStoppedWorkerGetsAnotherWorker) {
  start({.program = "", .driver = "fake", .ping_ms = 20, .silent_ms = 200});
  UniqueFd client = admit("stop-once:" + folder_ + "/stopped");
  stop_loop_ = [&] {
    client.reset();
    daemon_.reset();
  };
  EXPECT_EQ(welcome(client).result, CUDA_SUCCESS);
  const std::string log = logged();
  EXPECT_NE(
      log.find("ms: it is stopped by a signal. Its clients wait for it; new ones get another"),
      std::string::npos)
      << log;
  EXPECT_NE(log.find("Server has started", log.find("Server has started") + 1), std::string::npos)
      << log;
}

TEST(ServerStart, FailsWithTheSignalThatKilledTheWorker) {
  const Start start = start_with({.worker = {.program = OPENMPS_FAKE_WORKER, .driver = "crash"}});
  EXPECT_EQ(start.exit_status, 1);
  EXPECT_EQ(field_text(start.told.reason), "the worker was killed by signal 9 (Killed)");
}

TEST(ServerStart, FailsWithTheReasonThatTheWorkerReports) {
  const Start start = start_with({.worker = {.program = OPENMPS_FAKE_WORKER, .driver = "none"}});
  EXPECT_EQ(start.exit_status, 1);
  EXPECT_EQ(field_text(start.told.reason), "no CUDA device");
}

TEST(ServerStart, FailsWithTheNameOfAMissingProgram) {
  const Start start = start_with({.worker = {.program = "/nonexistent/openmps-worker"}});
  EXPECT_EQ(start.exit_status, 1);
  EXPECT_NE(field_text(start.told.reason).find("/nonexistent/openmps-worker"),
            std::string_view::npos);
}

// A worker without clients dies repeatedly: the pauses between starts grow.
TEST(ServerStart, AWorkerThatDiesIdleIsReplacedWithGrowingPauses) {
  constexpr int kStarts = 4;  // two without a pause, one after 100 ms, one after 200 ms
  EventLoop loop;
  const UniqueFd written(memfd_create("log", MFD_CLOEXEC));
  const Log log("Server", UniqueFd(fcntl(written.get(), F_DUPFD_CLOEXEC, 0)));
  Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
  ASSERT_TRUE(sockets.ok() && loop.open().ok());
  Server server(loop, log,
                {.worker = {.program = OPENMPS_FAKE_WORKER, .driver = "crash-when-ready"}});
  // The daemon closes its connection after the report about the last start.
  UniqueFd daemon = std::move(sockets->second);
  int starts = 0;
  ASSERT_TRUE(loop.watch(daemon.get(), EPOLLIN,
                         [&](uint32_t) {
                           Result<Packet> packet = receive_packet(
                               daemon.get(), wire::kMaxMessageBytes, 0, Descriptors::kTaken);
                           ASSERT_TRUE(packet.ok() && !packet->closed);
                           const auto header = wire::read_header(packet->data);
                           ASSERT_TRUE(header.ok());
                           // Otherwise it is an event.
                           if (header->kind != wire::MessageKind::kServerReady) return;
                           if (++starts < kStarts) return;
                           loop.forget(daemon.get());
                           daemon.reset();
                         })
                  .ok());
  ASSERT_TRUE(server.start(std::move(sockets->first)).ok());
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(server.exit_status(), 0);
  EXPECT_EQ(starts, kStarts);
  std::string text(1 << 16, '\0');
  text.resize(
      static_cast<size_t>(std::max<ssize_t>(0, pread(written.get(), text.data(), text.size(), 0))));
  const size_t first = text.find("The next worker starts in 100 ms");
  const size_t second = text.find("The next worker starts in 200 ms");
  ASSERT_NE(first, std::string::npos) << text;
  ASSERT_NE(second, std::string::npos) << text;
  EXPECT_LT(first, second);
  EXPECT_EQ(text.find("The next worker starts in 100 ms", first + 1), std::string::npos) << text;
}

// The daemon passes each client to the server of the user that the kernel reports for its
// connection. The server checks the user again.
TEST(ServerStart, AClientOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EventLoop loop;
  const Log log("Server", UniqueFd());
  Result<std::pair<UniqueFd, UniqueFd>> daemon = make_socket_pair();
  ASSERT_EQ(seteuid(65534), 0);
  Result<std::pair<UniqueFd, UniqueFd>> client = make_socket_pair();
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(daemon.ok() && client.ok() && loop.open().ok());
  Server server(loop, log, {.worker = {.program = OPENMPS_FAKE_WORKER, .driver = "fake"}});
  ASSERT_TRUE(server.start(std::move(daemon->first)).ok());
  wire::Admit admit;  // from a daemon that takes the client for one of the server's user
  const int connection = client->second.get();
  ASSERT_TRUE(send_packet(daemon->second.get(), wire::message_bytes(admit), {&connection, 1}).ok());
  wire::Welcome welcome;
  ASSERT_TRUE(loop.watch(client->first.get(), EPOLLIN,
                         [&](uint32_t) {
                           Result<Packet> packet =
                               receive_packet(client->first.get(), wire::kMaxMessageBytes, 0);
                           EXPECT_TRUE(packet.ok() &&
                                       wire::read_message(packet->data, &welcome).ok());
                           loop.forget(client->first.get());
                           daemon->second.reset();  // the server ends with its last client
                         })
                  .ok());
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(welcome.result, CUDA_ERROR_NOT_PERMITTED);
}

}  // namespace
}  // namespace openmps::server
