// SPDX-License-Identifier: Apache-2.0
// The start of a server's worker, with the test as the daemon: what it is told of a worker that
// hangs, fails or is not there, and that the server ends then.
#include <gtest/gtest.h>

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
  Result<Packet> packet = receive_packet(sockets->second.get(), wire::kMaxMessageBytes, 0);
  EXPECT_TRUE(packet.ok() && wire::read_message(packet->data, &start.told).ok());
  return start;
}

TEST(ServerStart, AWorkerThatHangsIsGivenUpWithAReason) {
  const Start start =
      start_with({.worker_program = OPENMPS_FAKE_WORKER, .driver = "hang", .worker_ready_ms = 100});
  EXPECT_EQ(start.exit_status, 1);
  EXPECT_EQ(start.told.result, CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_NE(field_text(start.told.reason).find("did not become ready"), std::string_view::npos);
}

TEST(ServerStart, AWorkerThatCrashesIsGivenUpWithItsEnd) {
  const Start start = start_with({.worker_program = OPENMPS_FAKE_WORKER, .driver = "crash"});
  EXPECT_EQ(start.exit_status, 1);
  EXPECT_EQ(field_text(start.told.reason), "the worker was killed by signal 9 (Killed)");
}

TEST(ServerStart, AWorkerThatSaysWhyIsQuoted) {
  const Start start = start_with({.worker_program = OPENMPS_FAKE_WORKER, .driver = "none"});
  EXPECT_EQ(start.exit_status, 1);
  EXPECT_EQ(field_text(start.told.reason), "no CUDA device");
}

TEST(ServerStart, AWorkerThatIsNotThereIsNamed) {
  const Start start = start_with({.worker_program = "/nonexistent/openmps-worker"});
  EXPECT_EQ(start.exit_status, 1);
  EXPECT_NE(field_text(start.told.reason).find("/nonexistent/openmps-worker"),
            std::string_view::npos);
}

}  // namespace
}  // namespace openmps::server
