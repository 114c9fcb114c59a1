// SPDX-License-Identifier: Apache-2.0
// Failures: clients that break the protocol, workers and servers that fail or die. The affected
// client gets the error that CUDA documents, with a reason; no other client is affected.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "base/text.h"
#include "mps_fixture.h"
#include "wire/message.h"

namespace openmps {
namespace {

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

class FailuresTest : public MpsTest {
 protected:
  std::string status() {
    std::string list = shell("get_server_list\n").out;
    return list.empty() ? "" : shell("get_server_status " + list).out;
  }
  // In another worker.
  static bool went_on(const Client& client) { return client.header().generation.load() != 0; }
};

TEST_F(FailuresTest, TheNextWorkerWaitsForADeviceInExclusiveProcessMode) {
  driver_ = "exclusive:" + directory_ + "/device";
  start_daemon();
  const Client culprit = join("lose-context");
  // Before that, a client may still get a session in the worker whose context is lost.
  ASSERT_TRUE(eventually([&] {
    return log_text("server.log").find("handling a fatal GPU error") != std::string::npos;
  }));
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  EXPECT_NE(log_text("server.log").find("starts when the one that ends has left"),
            std::string::npos)
      << "the test needs a worker that is not started before the old one has ended";
}

TEST_F(FailuresTest, TheServersStateFollowsItsWorkers) {
  const std::string there = directory_ + "/there";
  driver_ = "await:" + there;
  start_daemon();
  EXPECT_EQ(shell(format_text("start_server -uid %u\n", geteuid())).status, 0);
  EXPECT_EQ(status(), "INITIALIZING\n");
  const UniqueFd made(open(there.c_str(), O_CREAT | O_CLOEXEC | O_RDONLY, 0600));
  EXPECT_TRUE(eventually([&] { return status() == "ACTIVE\n"; }));
  ASSERT_EQ(unlink(there.c_str()), 0);
  const Client culprit = join("lose-context");
  EXPECT_TRUE(eventually([&] { return status() == "FAULT\n"; }));
  const UniqueFd again(open(there.c_str(), O_CREAT | O_CLOEXEC | O_RDONLY, 0600));
  EXPECT_TRUE(eventually([&] { return status() == "ACTIVE\n"; }));
}

TEST_F(FailuresTest, AClientOfAnotherProtocolVersionGetsTheReason) {
  start_daemon();
  const Client good = join("./good");
  wire::Hello old = hello("./old");
  old.header.version = 99;
  Result<UniqueFd> socket = connect_raw();
  ASSERT_TRUE(socket.ok());
  ASSERT_TRUE(send_packet(socket->get(), wire::message_bytes(old)).ok());
  const Client refused = finish_join(std::move(socket).value());
  EXPECT_EQ(refused.welcome.result, CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_NE(strstr(refused.welcome.reason, "protocol version 99 instead of 4"), nullptr)
      << refused.welcome.reason;

  // A client of the same protocol version, but built from other descriptions of the commands.
  wire::Hello other = hello("./other");
  ++other.build;
  socket = connect_raw();
  ASSERT_TRUE(socket.ok());
  ASSERT_TRUE(send_packet(socket->get(), wire::message_bytes(other)).ok());
  const Client stranger = finish_join(std::move(socket).value());
  EXPECT_EQ(stranger.welcome.result, CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_NE(strstr(stranger.welcome.reason, "different builds of OpenMPS"), nullptr)
      << stranger.welcome.reason;
  EXPECT_NE(log_text("control.log").find("different builds of OpenMPS"), std::string::npos);

  // A Hello of another size.
  wire::Hello longer = hello("./longer");
  std::vector<std::byte> bytes(sizeof(longer) + 8);
  longer.header.bytes = static_cast<uint32_t>(bytes.size());
  memcpy(bytes.data(), &longer, sizeof(longer));
  socket = connect_raw();
  ASSERT_TRUE(socket.ok());
  ASSERT_TRUE(send_packet(socket->get(), bytes).ok());
  EXPECT_EQ(finish_join(std::move(socket).value()).welcome.result,
            CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_EQ(good.header().status.load(), CUDA_SUCCESS);
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
}

TEST_F(FailuresTest, ConnectionsThatSendGarbageAreClosed) {
  start_daemon();
  const Client good = join("./good");
  std::vector<std::vector<std::byte>> packets;
  packets.emplace_back(1, std::byte{0});
  packets.emplace_back(15, std::byte{0xff});
  packets.emplace_back(sizeof(wire::Hello), std::byte{0xff});
  packets.emplace_back(100'000, std::byte{0x41});  // longer than any message
  const wire::MessageHeader lying{.kind = wire::MessageKind::kUiCommand, .bytes = 4000};
  packets.emplace_back(sizeof(lying));
  memcpy(packets.back().data(), &lying, sizeof(lying));
  // Messages that only servers and workers get.
  for (const wire::MessageKind kind :
       {wire::MessageKind::kAdmit, wire::MessageKind::kServerReady, wire::MessageKind::kAnswer,
        wire::MessageKind::kShutdown, wire::MessageKind{12345}}) {
    const wire::MessageHeader header{.kind = kind, .bytes = sizeof(wire::MessageHeader)};
    packets.emplace_back(sizeof(header));
    memcpy(packets.back().data(), &header, sizeof(header));
  }
  for (const auto& packet : packets) {
    Result<UniqueFd> socket = connect_raw();
    ASSERT_TRUE(socket.ok());
    const int passed[] = {0, 1};
    ASSERT_TRUE(send_packet(socket->get(), packet, passed).ok());
    Client peer;
    peer.socket = std::move(socket).value();
    EXPECT_TRUE(peer.wait_closed()) << packet.size();
  }
  EXPECT_EQ(good.header().status.load(), CUDA_SUCCESS);
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
}

TEST_F(FailuresTest, AShellThatSendsGarbageIsDisconnected) {
  start_daemon();
  Result<UniqueFd> socket = connect_raw();
  ASSERT_TRUE(socket.ok());
  const wire::MessageHeader empty{.kind = wire::MessageKind::kUiCommand,
                                  .bytes = sizeof(wire::MessageHeader)};
  ASSERT_TRUE(send_packet(socket->get(), wire::message_bytes(empty)).ok());
  Result<Packet> reply = receive_packet(socket->get(), wire::kMaxMessageBytes, kWaitMs);
  ASSERT_TRUE(reply.ok() && !reply->closed);
  ASSERT_TRUE(send_packet(socket->get(), std::as_bytes(std::span("garbage", 7))).ok());
  Client peer;
  peer.socket = std::move(socket).value();
  EXPECT_TRUE(peer.wait_closed());
  EXPECT_EQ(shell("get_server_list\n").status, 0);
}

TEST_F(FailuresTest, AClientThatSendsGarbageAfterItsWelcomeIsDisconnected) {
  start_daemon();
  const Client good = join("./good");
  const Client bad = join("./bad");
  ASSERT_TRUE(send_packet(bad.socket.get(), std::as_bytes(std::span("garbage", 7))).ok());
  EXPECT_TRUE(bad.wait_closed());
  EXPECT_TRUE(eventually([&] { return shell("ps\n").out.find("./bad") == std::string::npos; }));
  EXPECT_NE(shell("ps\n").out.find("./good"), std::string::npos);
  EXPECT_EQ(good.header().status.load(), CUDA_SUCCESS);
}

TEST_F(FailuresTest, IdleConnectionsDoNotKeepProgramsOut) {
  start_daemon();
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 700; ++i) {  // more idle connections than the daemon keeps
    Result<UniqueFd> socket = connect_raw();
    ASSERT_TRUE(socket.ok()) << i;
    idle.push_back(std::move(socket).value());
  }
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  EXPECT_EQ(shell("get_default_client_priority\n").out, "0\n");
}

TEST_F(FailuresTest, SessionsOutliveAWorkerThatDiesButNotTheOneThatEndsTwo) {
  start_daemon();
  const Client one = join("./one");
  const Client two = join("./two");
  const std::vector<pid_t> first = processes("openmps-worker");
  ASSERT_EQ(first.size(), 1u);
  const Client culprit = join("kill-worker");
  EXPECT_TRUE(culprit.wait_closed());
  EXPECT_EQ(culprit.header().status.load(), CUDA_ERROR_MPS_RPC_FAILURE);
  for (const Client* client : {&one, &two}) {
    EXPECT_TRUE(eventually([&] { return went_on(*client); }));
    EXPECT_EQ(client->header().status.load(), CUDA_SUCCESS);
    EXPECT_GT(client->header().wake_epoch.load(), 0u) << "waiters are woken";
  }
  const Client next = join("./next");
  EXPECT_EQ(next.welcome.result, CUDA_SUCCESS) << next.welcome.reason;
  EXPECT_EQ(next.welcome.server_pid, one.welcome.server_pid) << "the server survives";
  EXPECT_NE(processes("openmps-worker"), first);
  EXPECT_EQ(status(), "ACTIVE\n");
  EXPECT_NE(log_text("server.log").find("killed by signal 9"), std::string::npos);
  EXPECT_NE(log_text("server.log").find("its command was being executed when two workers died"),
            std::string::npos);
}

TEST_F(FailuresTest, AClientWhoseWorkerDiesWhileTheSessionOpensGetsTheNextOne) {
  start_daemon();
  const Client one = join("./one");
  const Client unlucky = join("kill-once:" + directory_ + "/killed");
  EXPECT_EQ(unlucky.welcome.result, CUDA_SUCCESS) << unlucky.welcome.reason;
  EXPECT_EQ(unlucky.header().status.load(), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([&] { return went_on(one); }));
  EXPECT_EQ(one.header().status.load(), CUDA_SUCCESS);
  EXPECT_NE(log_text("server.log").find("waits for the next worker"), std::string::npos);
}

TEST_F(FailuresTest, AClientWhoseSessionKillsTwoWorkersGetsTheReason) {
  start_daemon();
  const Client client = join("kill-worker-on-open");
  EXPECT_EQ(client.welcome.result, CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_NE(strstr(client.welcome.reason, "killed by signal 9"), nullptr) << client.welcome.reason;
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
}

TEST_F(FailuresTest, AWorkerThatSendsGarbageIsReplaced) {
  start_daemon();
  const Client one = join("./one");
  const Client client = join("garbage-from-worker");
  EXPECT_TRUE(eventually([&] { return went_on(one); }));
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  EXPECT_NE(log_text("server.log").find("breaks the protocol"), std::string::npos);
}

TEST_F(FailuresTest, ASessionThatTheWorkerRefusesGetsTheReason) {
  start_daemon();
  const Client refused = join("refuse-me");
  EXPECT_EQ(refused.welcome.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_STREQ(refused.welcome.reason, "no memory for a session");
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  EXPECT_EQ(shell("quit\n").status, 0) << "quit must not wait for the refused session";
}

TEST_F(FailuresTest, AViolationEndsThatSessionOnly) {
  start_daemon();
  const Client good = join("./good");
  const Client bad = join("violate");
  ASSERT_EQ(bad.welcome.result, CUDA_SUCCESS);
  EXPECT_TRUE(bad.wait_closed());
  EXPECT_EQ(bad.header().status.load(), CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_EQ(good.header().status.load(), CUDA_SUCCESS);
  EXPECT_NE(log_text("server.log").find("(violate) is ended with CUDA error 806: a bad command"),
            std::string::npos);
}

TEST_F(FailuresTest, AfterALostContextNewClientsGetAnotherWorkerAtOnce) {
  start_daemon();
  const Client one = join("./one");
  const std::vector<pid_t> first = processes("openmps-worker");
  const Client culprit = join("lose-context");
  for (const Client* client : {&one, &culprit}) {
    EXPECT_TRUE(
        eventually([&] { return client->header().status.load() == CUDA_ERROR_ILLEGAL_ADDRESS; }));
  }
  // The next client is served while the lost worker still runs.
  const Client next = join("./next");
  EXPECT_EQ(next.welcome.result, CUDA_SUCCESS) << next.welcome.reason;
  EXPECT_EQ(status(), "ACTIVE\n");
  EXPECT_EQ(next.header().status.load(), CUDA_SUCCESS);
  // The lost worker ends, which frees the memory of its context.
  EXPECT_TRUE(eventually([&] { return processes("openmps-worker").size() == 1; }));
  EXPECT_NE(processes("openmps-worker"), first);
  EXPECT_EQ(one.header().status.load(), CUDA_ERROR_ILLEGAL_ADDRESS) << "the first error is kept";
  const std::string log = log_text("server.log");
  EXPECT_NE(log.find("kernel hit 0x10"), std::string::npos);
  EXPECT_NE(log.find("The following clients have a sticky error set:"), std::string::npos);
}

TEST_F(FailuresTest, AClientWhoseSessionOpensInALostContextGetsTheNextWorker) {
  start_daemon();
  const Client one = join("./one");
  // This client loses the context of a worker that has another session: the first, not the second.
  const Client unlucky = join("lose-context-on-open");
  EXPECT_EQ(unlucky.welcome.result, CUDA_SUCCESS) << unlucky.welcome.reason;
  EXPECT_EQ(unlucky.header().status.load(), CUDA_SUCCESS);
  EXPECT_EQ(one.header().status.load(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(FailuresTest, AContextLostWhileItsLastClientEndsIsReplacedOnce) {
  start_daemon();
  const Client culprit = join("lose-context-at-close");
  ASSERT_EQ(culprit.welcome.result, CUDA_SUCCESS);
  ASSERT_EQ(shutdown(culprit.socket.get(), SHUT_RDWR), 0);
  ASSERT_TRUE(
      eventually([&] { return occurrences(log_text("server.log"), "Server has started") == 2u; }));
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  EXPECT_EQ(occurrences(log_text("server.log"), "Server has started"), 2u);
}

TEST_F(FailuresTest, ClientsOfAWorkerWithoutADeviceGetTheReason) {
  driver_ = "none";
  start_daemon();
  const Client client = join();
  EXPECT_EQ(client.welcome.result, CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_STREQ(client.welcome.reason, "no CUDA device");
  EXPECT_EQ(shell("device_query\n").out, "The devices are not known: no CUDA device\n");
  EXPECT_TRUE(eventually([&] { return shell("get_server_list\n").out.empty(); }));
  EXPECT_EQ(occurrences(log_text("control.log"), "Starting new server"), 2u)
      << "a start that fails with a stated reason is not repeated";
}

TEST_F(FailuresTest, ClientsOfAWorkerThatCrashesAtStartGetTheReason) {
  driver_ = "crash";
  start_daemon();
  const Client client = join();
  EXPECT_EQ(client.welcome.result, CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_NE(strstr(client.welcome.reason, "signal 9"), nullptr) << client.welcome.reason;
}

TEST_F(FailuresTest, TheWorkerOfAKilledServerEndsAndTheNextClientGetsAnotherServer) {
  start_daemon();
  const Client one = join();
  const std::vector<pid_t> workers = processes("openmps-worker");
  ASSERT_EQ(kill(static_cast<pid_t>(one.welcome.server_pid), SIGKILL), 0);
  EXPECT_TRUE(one.wait_closed());
  EXPECT_TRUE(eventually([&] { return processes("openmps-worker").empty(); }));
  ASSERT_TRUE(eventually([&] { return shell("get_server_list\n").out.empty(); }));
  const Client two = join();
  EXPECT_EQ(two.welcome.result, CUDA_SUCCESS) << two.welcome.reason;
  EXPECT_NE(two.welcome.server_pid, one.welcome.server_pid);
  EXPECT_NE(log_text("control.log").find("killed by signal 9"), std::string::npos);
}

TEST_F(FailuresTest, ADaemonThatIsKilledDoesNotDisturbAClient) {
  start_daemon();
  Client one = join();
  kill_daemon();
  start_daemon();
  const Client two = join();
  EXPECT_EQ(two.welcome.result, CUDA_SUCCESS);
  EXPECT_EQ(two.welcome.server_pid, one.welcome.server_pid) << "the server rejoins";
  EXPECT_EQ(one.header().status.load(), CUDA_SUCCESS);
  EXPECT_EQ(processes("openmps-server").size(), 1u);
}

TEST_F(FailuresTest, AServerWithoutADaemonEndsWithItsLastClient) {
  start_daemon();
  Client one = join();
  kill_daemon();
  EXPECT_FALSE(processes("openmps-server").empty());
  one.socket.reset();
  EXPECT_TRUE(eventually([&] { return processes("openmps-server").empty(); }));
  start_daemon();  // removes the files that the killed daemon has left
}

// The orderly form: an upgrade ends the daemon and nothing else.
TEST_F(FailuresTest, ADaemonThatLeavesItsServersDoesNotDisturbAClient) {
  start_daemon();
  Client one = join();
  EXPECT_EQ(shell("quit --leave-servers\n").status, 0);
  EXPECT_TRUE(eventually([&] { return processes("openmps-control").empty(); }));
  EXPECT_EQ(shell("ps\n").out, "Cannot find MPS control daemon process\n");
  EXPECT_EQ(processes("openmps-server").size(), 1u);
  start_daemon();
  const Client two = join();
  EXPECT_EQ(two.welcome.server_pid, one.welcome.server_pid) << "the next daemon has the server";
  EXPECT_EQ(one.header().status.load(), CUDA_SUCCESS);
}

TEST_F(FailuresTest, ADaemonWithoutServersLeavesNothing) {
  start_daemon();
  EXPECT_EQ(shell("quit --leave-servers\n").status, 0);
  EXPECT_EQ(pipe_entries(), std::vector<std::string>{});
}

// They have connected before the daemon was told to leave: one has sent its Hello, which starts the
// server, the other one sends it while the daemon waits for that server.
TEST_F(FailuresTest, ClientsThatWaitForAServerGetItBeforeTheDaemonLeaves) {
  start_daemon();
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 2; ++i) {
    Result<UniqueFd> socket = connect_raw();
    ASSERT_TRUE(socket.ok());
    sockets.push_back(std::move(socket).value());
  }
  const auto say_hello = [&](size_t which) {
    return send_packet(sockets[which].get(), wire::message_bytes(hello("./waits"))).ok();
  };
  ASSERT_TRUE(say_hello(0));
  std::thread late([&] {
    EXPECT_TRUE(eventually(
        [&] { return log_text("control.log").find("The daemon ends.") != std::string::npos; }));
    EXPECT_TRUE(say_hello(1));
  });
  EXPECT_EQ(shell("quit --leave-servers\n").status, 0);
  late.join();
  std::vector<Client> clients;
  for (UniqueFd& socket : sockets) clients.push_back(finish_join(std::move(socket)));
  for (const Client& client : clients) {
    EXPECT_EQ(client.welcome.result, CUDA_SUCCESS) << client.welcome.reason;
  }
  EXPECT_TRUE(eventually([&] { return processes("openmps-control").empty(); }));
  start_daemon();
  EXPECT_EQ(join().welcome.server_pid, clients[0].welcome.server_pid);
}

// Connections that claim to be a server that rejoins: one of another build, and a second one of a
// user.
TEST_F(FailuresTest, ServersOfAnotherBuildAndSecondServersCanNotRejoin) {
  start_daemon();
  const auto rejoin = [&](uint64_t build) {
    Result<UniqueFd> socket = connect_raw();
    EXPECT_TRUE(socket.ok());
    wire::Rejoin message;
    fill_field(message.server, format_text("uid_%u", geteuid()));
    message.build = build;
    EXPECT_TRUE(send_packet(socket->get(), wire::message_bytes(message)).ok());
    Result<Packet> answer = receive_packet(socket->get(), wire::kMaxMessageBytes);
    wire::Shutdown shutdown;
    return answer.ok() && wire::read_message(answer->data, &shutdown).ok() && shutdown.force == 0;
  };
  EXPECT_TRUE(rejoin(wire::kBuildHash + 1));
  EXPECT_EQ(shell("get_server_list\n").out, "");
  const Client one = join();
  EXPECT_TRUE(rejoin(wire::kBuildHash));
  EXPECT_NE(log_text("control.log").find("is not taken back, there is another one already"),
            std::string::npos);
  EXPECT_EQ(shell("get_server_list\n").out, std::to_string(one.welcome.server_pid) + "\n");
}

}  // namespace
}  // namespace openmps
