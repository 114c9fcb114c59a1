// SPDX-License-Identifier: Apache-2.0
// Limits of what a daemon and a server hold for peers (docs/limits.md): a peer within the limit is
// served, one beyond it is refused with a reason, and what is released can be used again.
#include <sys/epoll.h>
#include <algorithm>
#include <csignal>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "control/daemon.h"
#include "mps_fixture.h"
#include "wire/control_call.h"
#include "wire/message.h"

namespace openmps {
namespace {

class LimitsTest : public MpsTest {
 protected:
  // A program that has sent Hello and waits for its Welcome.
  UniqueFd ask(const std::string& command) {
    Result<UniqueFd> socket = connect_raw();
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    if (!socket.ok()) return {};
    EXPECT_TRUE(send_packet(socket->get(), wire::message_bytes(hello(command))).ok());
    return std::move(socket).value();
  }
  static bool is_open(const UniqueFd& socket) {
    return receive_packet(socket.get(), wire::kMaxMessageBytes, 0).status().code() ==
           CUDA_ERROR_TIMEOUT;
  }
  static bool closes(UniqueFd socket) {
    Client client;
    client.socket = std::move(socket);
    return client.wait_closed();
  }
};

TEST_F(LimitsTest, ClientsThatWaitForAServer) {
  const std::string go = directory_ + "/go";
  driver_ = "await:" + go;
  start_daemon();
  std::vector<UniqueFd> waiting;
  while (waiting.size() < control::kMaxPendingClients) waiting.push_back(ask("./waits"));
  const Client more = finish_join(ask("./more"));
  EXPECT_EQ(more.welcome.result, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
  EXPECT_STREQ(more.welcome.reason, "too many clients wait for the server to start");
  std::ofstream(go).close();
  std::vector<Client> clients;
  for (UniqueFd& socket : waiting) {
    clients.push_back(finish_join(std::move(socket)));
    ASSERT_EQ(clients.back().welcome.result, CUDA_SUCCESS) << clients.back().welcome.reason;
  }
}

TEST_F(LimitsTest, SilentConnections) {
  start_daemon();
  std::vector<UniqueFd> silent;
  while (silent.size() < control::kMaxConnections) {
    Result<UniqueFd> socket = connect_raw();
    ASSERT_TRUE(socket.ok()) << silent.size();
    silent.push_back(std::move(socket).value());
  }
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  EXPECT_TRUE(closes(std::move(silent.front())))
      << "the connection that has been silent longest is closed";
  for (size_t i = 1; i < silent.size(); ++i) EXPECT_TRUE(is_open(silent[i])) << i;
}

TEST_F(LimitsTest, TheLengthOfACommand) {
  start_daemon();
  Result<UniqueFd> socket = wire::connect_to_daemon(wire::control_socket_path(pipe_));
  ASSERT_TRUE(socket.ok()) << socket.status().message();
  const auto command = [&](size_t bytes) {
    const std::string line = "get_default_client_priority";
    return wire::call_control(socket->get(), line + std::string(bytes - line.size(), ' '));
  };
  Result<wire::ControlReply> longest = command(wire::kMaxCommandBytes);
  ASSERT_TRUE(longest.ok()) << longest.status().message();
  EXPECT_EQ(longest->text, "0\n");
  EXPECT_EQ(command(wire::kMaxCommandBytes + 1).status().code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(command(wire::kMaxCommandBytes).ok())
      << "nothing of a refused command is sent, so the connection is still good";
  // A peer that is not our shell may send a message that is too long.
  const wire::MessageHeader header{.kind = wire::MessageKind::kUiCommand,
                                   .bytes = sizeof(header) + wire::kMaxCommandBytes + 1};
  std::vector<std::byte> packet(header.bytes, std::byte{' '});
  memcpy(packet.data(), &header, sizeof(header));
  ASSERT_TRUE(send_packet(socket->get(), packet).ok());
  EXPECT_TRUE(closes(std::move(socket).value()));
  EXPECT_EQ(shell("get_default_client_priority\n").out, "0\n");
}

TEST_F(LimitsTest, DescriptorsOnTheirWayToTheWorker) {
  start_daemon();
  const Client other = join("./other");
  const Client client = join("./passes");  // the fake worker takes no descriptors
  Result<UniqueFd> memory = create_shared_file("passed", 4096);
  ASSERT_TRUE(memory.ok());
  const auto pass = [&](uint32_t ticket) {
    wire::PassDescriptor message;
    message.ticket = ticket;
    const int fd = memory->get();
    ASSERT_TRUE(send_packet(client.socket.get(), wire::message_bytes(message), {&fd, 1}).ok());
  };
  for (uint32_t ticket = 1; ticket <= wire::kMaxPassing; ++ticket) pass(ticket);
  EXPECT_TRUE(eventually([&] {
    return log_text("server.log")
               .find("fake worker: ticket " + std::to_string(wire::kMaxPassing)) !=
           std::string::npos;
  }));
  pass(wire::kMaxPassing + 1);
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  EXPECT_TRUE(is_open(client.socket));
  EXPECT_TRUE(is_open(other.socket));
  EXPECT_EQ(
      log_text("server.log").find("fake worker: ticket " + std::to_string(wire::kMaxPassing + 1)),
      std::string::npos)
      << "the worker gets no more until it has confirmed one";
}

// Needs root, since only root's daemon serves several users.
TEST_F(LimitsTest, UsersAtOnce) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kFirstUser = 20'000;  // no user has this uid
  // A directory from which any user can run the programs.
  bin_ = directory_ + "/bin";
  std::filesystem::copy(OPENMPS_FAKE_BIN, bin_);
  start_daemon();
  const auto start_server = [&](uid_t uid) {
    return shell(format_text("start_server -uid %u\n", uid)).out;
  };
  for (uid_t i = 0; i < control::kMaxServers; ++i) ASSERT_EQ(start_server(kFirstUser + i), "") << i;
  const std::string servers = shell("get_server_list\n").out;
  EXPECT_EQ(std::count(servers.begin(), servers.end(), '\n'), control::kMaxServers) << servers;
  const Client more = join();
  EXPECT_EQ(more.welcome.result, CUDA_ERROR_MPS_SERVER_NOT_READY);
  EXPECT_NE(strstr(more.welcome.reason, "64 servers already"), nullptr) << more.welcome.reason;
  kill(static_cast<pid_t>(atoi(servers.c_str())), SIGKILL);
  EXPECT_TRUE(eventually([&] { return join().welcome.result == CUDA_SUCCESS; }));
}

// The daemon runs in this process, with a time limit of 20 ms instead of the program's 10 s.
TEST_F(LimitsTest, SilenceAfterConnecting) {
  control::PipeDirectory directory;
  ASSERT_TRUE(directory.take(pipe_).ok());
  EventLoop loop;
  ASSERT_TRUE(loop.open().ok());
  const Log log("Control", UniqueFd());
  control::Daemon daemon(loop, log, directory, bin_ + "/openmps-server", UniqueFd(), 20);
  Result<UniqueFd> listener = directory.open_socket();
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  ASSERT_TRUE(daemon.start(std::move(listener).value()).ok());
  Result<UniqueFd> silent = connect_raw();
  ASSERT_TRUE(silent.ok());
  // After its first command a shell may be silent for any time.
  Result<UniqueFd> shell = connect_raw();
  ASSERT_TRUE(shell.ok());
  const wire::MessageHeader empty{.kind = wire::MessageKind::kUiCommand,
                                  .bytes = sizeof(wire::MessageHeader)};
  ASSERT_TRUE(send_packet(shell->get(), wire::message_bytes(empty)).ok());
  ASSERT_TRUE(loop.watch(silent->get(), EPOLLIN, [&](uint32_t) { loop.stop(); }).ok());
  ASSERT_TRUE(loop.run().ok());
  loop.forget(silent->get());
  EXPECT_TRUE(closes(std::move(silent).value()));
  Result<Packet> answer = receive_packet(shell->get(), wire::kMaxMessageBytes, kWaitMs);
  EXPECT_TRUE(answer.ok() && !answer->closed);
  EXPECT_TRUE(is_open(*shell));
  directory.remove_entries();
}

}  // namespace
}  // namespace openmps
