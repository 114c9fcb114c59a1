// SPDX-License-Identifier: Apache-2.0
// Hostile peers pass descriptors whose last close() takes an hour to a daemon and a server, where
// descriptors are expected and where they are not. Other clients are served meanwhile, and no
// descriptor is kept.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>

#include "mps_fixture.h"
#include "wire/control_call.h"
#include "wire/message.h"
#include "wire/trust.h"

namespace openmps {
namespace {

constexpr uid_t kStranger = 65534;  // the user "nobody"

class StrangersTest : public MpsTest {
 protected:
  void SetUp() override {
    MpsTest::SetUp();
    start_daemon();
    open_before_ = descriptors_of(daemon_pid());
  }
  void TearDown() override {
    expect_nothing_kept();
    MpsTest::TearDown();
  }

  // A TCP connection with unread data. The last close() of the returned descriptor blocks for an
  // hour, except in a process that ends.
  UniqueFd slow_to_close() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), generic, sizeof(address)), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), generic, &length), 0);
    UniqueFd slow(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(slow.get(), generic, sizeof(address)), 0);
    silent_.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<char> data(1 << 16);
    while (send(slow.get(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
    }
    const linger hour{1, 3600};
    EXPECT_EQ(setsockopt(slow.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
    return slow;
  }

  // Sends `data` with `count` descriptors of one file that is slow to close. `reader` is stopped
  // until the packet holds the last reference to the file. A child process sends it, since the
  // implied close() of a process that ends does not block.
  void send_slow(pid_t reader, int socket, std::span<const std::byte> data, size_t count = 1) {
    UniqueFd slow = slow_to_close();
    Result<std::pair<UniqueFd, UniqueFd>> go = make_socket_pair();
    ASSERT_TRUE(go.ok());
    ASSERT_EQ(kill(reader, SIGSTOP), 0);
    const pid_t child = fork();
    if (child == 0) {
      char byte = 0;
      const bool told = read(go->second.get(), &byte, 1) == 1;
      _exit(told && send_with(socket, data, std::vector<int>(count, slow.get())) ? 0 : 1);
    }
    slow.reset();
    EXPECT_EQ(write(go->first.get(), "g", 1), 1);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(kill(reader, SIGCONT), 0);
  }

  // Unlike send_packet(), sends any number of descriptors.
  static bool send_with(int socket, std::span<const std::byte> data, const std::vector<int>& fds) {
    iovec part{const_cast<std::byte*>(data.data()), data.size()};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
    return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(data.size());
  }

  // Connects as another user if this process may change its user.
  UniqueFd connect_as_stranger() const {
    const bool root = geteuid() == 0;
    EXPECT_TRUE(!root || seteuid(kStranger) == 0);
    Result<UniqueFd> socket = connect_raw();
    EXPECT_TRUE(!root || seteuid(0) == 0);
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    return socket.ok() ? std::move(socket).value() : UniqueFd();
  }

  static bool closed(UniqueFd socket) {
    Client client;
    client.socket = std::move(socket);
    return client.wait_closed();
  }

  void expect_served() {
    EXPECT_EQ(control({"get_default_client_priority"}).out, "0\n");
    EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  }

  static size_t descriptors_of(pid_t pid) {
    std::error_code error;
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd", error);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

  void expect_nothing_kept() {
    EXPECT_EQ(shell("quit -t 0\n").status, 0) << "quit must not wait for the hostile peers";
    EXPECT_TRUE(eventually([&] { return processes("openmps-control").empty(); }));
  }

  size_t open_before_ = 0;
  std::vector<UniqueFd> silent_;  // the ends of the slow connections that do not read
};

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

TEST_F(StrangersTest, DescriptorsWithAFirstPacketDoNotBlockOthers) {
  const wire::Hello good = hello("./stranger");
  const auto said = wire::message_bytes(good);
  const wire::MessageHeader command{.kind = wire::MessageKind::kUiCommand,
                                    .bytes = sizeof(wire::MessageHeader)};
  const std::vector<std::vector<std::byte>> packets = {
      bytes_of_text("garbage"),
      {said.begin(), said.end()},
      {said.begin(), said.end() - 1},
      {wire::message_bytes(command).begin(), wire::message_bytes(command).end()},
      std::vector<std::byte>(100'000, std::byte{0x41}),  // longer than any message
  };
  for (const auto& packet : packets) {
    for (const size_t count : {size_t{1}, kMaxPassedFds + 1, size_t{200}}) {
      UniqueFd socket = connect_as_stranger();
      send_slow(daemon_pid(), socket.get(), packet, count);
      EXPECT_TRUE(closed(std::move(socket))) << packet.size() << " bytes, " << count;
    }
  }
  expect_served();
  // Two more than before for the server that has started; none of the hostile peers' is left.
  EXPECT_TRUE(eventually([&] { return descriptors_of(daemon_pid()) <= open_before_ + 2; }));
  EXPECT_TRUE(eventually([&] { return processes("openmps-control").size() == 1; }));
}

TEST_F(StrangersTest, UnreadDescriptorsDoNotBlockOthers) {
  // Behind a first packet that ends the connection, and behind a shell's command.
  UniqueFd first = connect_as_stranger();
  ASSERT_EQ(kill(daemon_pid(), SIGSTOP), 0);
  ASSERT_TRUE(send_packet(first.get(), bytes_of_text("garbage")).ok());
  send_slow(daemon_pid(), first.get(), bytes_of_text("more"));
  EXPECT_TRUE(closed(std::move(first)));
  const wire::MessageHeader empty{.kind = wire::MessageKind::kUiCommand,
                                  .bytes = sizeof(wire::MessageHeader)};
  UniqueFd shell = connect_as_stranger();
  ASSERT_TRUE(send_packet(shell.get(), wire::message_bytes(empty)).ok());
  send_slow(daemon_pid(), shell.get(), wire::message_bytes(empty));
  shell.reset();
  // Also on more connections than the daemon keeps.
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 530; ++i) {
    idle.push_back(connect_as_stranger());
    if (i < 20) send_slow(daemon_pid(), idle.back().get(), bytes_of_text("garbage"));
  }
  expect_served();
}

TEST_F(StrangersTest, DescriptorsOfARefusedProgramDoNotBlockOthers) {
  // Root's daemon has a server for every user, and these connections go to that server.
  for (int i = 0; i < 3; ++i) {
    UniqueFd socket = connect_as_stranger();
    const wire::Hello good = hello("./stranger");
    ASSERT_TRUE(send_packet(socket.get(), wire::message_bytes(good)).ok());
    send_slow(daemon_pid(), socket.get(), bytes_of_text("behind Hello"));
    socket.reset();
  }
  expect_served();
}

TEST_F(StrangersTest, DescriptorsOfAClientDoNotBlockOtherClients) {
  const Client good = join("./good");
  ASSERT_EQ(good.welcome.result, CUDA_SUCCESS);
  const auto server = static_cast<pid_t>(good.welcome.server_pid);
  wire::PassDescriptor message;
  message.ticket = 1;
  // A socket in place of memory; two descriptors; a packet that is no message; a connection that
  // ends with unread packets.
  for (const size_t count : {1, 2, 200}) {
    Client bad = join("./bad");
    send_slow(server, bad.socket.get(), wire::message_bytes(message), count);
    EXPECT_TRUE(bad.wait_closed()) << count;
  }
  Client bad = join("./bad");
  send_slow(server, bad.socket.get(), bytes_of_text("garbage"));
  EXPECT_TRUE(bad.wait_closed());
  bad = join("./bad");
  ASSERT_EQ(kill(server, SIGSTOP), 0);
  ASSERT_TRUE(send_packet(bad.socket.get(), bytes_of_text("garbage")).ok());
  send_slow(server, bad.socket.get(), wire::message_bytes(message));
  EXPECT_TRUE(bad.wait_closed());
  expect_served();
  EXPECT_EQ(good.header().status.load(), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([&] { return shell("ps\n").out.find("./bad") == std::string::npos; }));
  EXPECT_NE(shell("ps\n").out.find("./good"), std::string::npos);
}

// The answer to a demand for proof is given once for each connection, to whatever comes behind it.
TEST_F(StrangersTest, AProofIsGivenOnce) {
  const UniqueFd shell = std::move(connect_raw()).value();
  EXPECT_TRUE(wire::demand_proof(shell.get(), geteuid()).ok());
  const Result<wire::ControlReply> reply = wire::call_control(shell.get(), "get_server_list");
  EXPECT_TRUE(reply.ok() && reply->exit_status == 0) << reply.status().message();
  EXPECT_FALSE(wire::demand_proof(shell.get(), geteuid()).ok()) << "behind a command";

  const UniqueFd twice = std::move(connect_raw()).value();
  EXPECT_TRUE(wire::demand_proof(twice.get(), geteuid()).ok());
  EXPECT_FALSE(wire::demand_proof(twice.get(), geteuid()).ok());

  const UniqueFd other = std::move(connect_raw()).value();
  EXPECT_FALSE(wire::demand_proof(other.get(), kStranger).ok()) << "the peer's user is stated";

  UniqueFd program = std::move(connect_raw()).value();
  EXPECT_TRUE(wire::demand_proof(program.get(), geteuid()).ok());
  const wire::Hello said = hello("./program");
  ASSERT_TRUE(send_packet(program.get(), wire::message_bytes(said)).ok());
  EXPECT_EQ(finish_join(std::move(program)).welcome.result, CUDA_SUCCESS);
}

TEST_F(StrangersTest, AFloodOfConnectionsIsCounted) {
  constexpr int kFlood = 5000;
  for (int i = 0; i < kFlood; ++i) connect_as_stranger();
  expect_served();
  // Any other line is written after the counts of repeated lines.
  EXPECT_TRUE(eventually([&] {
    shell("ps\n");
    const std::regex count("Accepting connection\\.\\.\\. \\.\\.\\. (\\d+) times");
    const std::string log = log_text("control.log");
    int counted = 0;
    for (std::sregex_iterator at(log.begin(), log.end(), count), end; at != end; ++at) {
      counted += std::stoi((*at)[1]);
    }
    return counted > kFlood / 2;
  }));
  EXPECT_LT(log_text("control.log").size(), 64u << 10);
}

class LogFilesTest : public MpsTest {
 protected:
  // Fills a log; its last line is `line`.
  void fill(const std::string& name, const std::string& line) {
    std::filesystem::create_directories(log_);
    std::ofstream(log_ + "/" + name) << line;
    std::filesystem::resize_file(log_ + "/" + name, 16u << 20);
  }
  std::string first_line(const std::string& name) const {
    std::ifstream in(log_ + "/" + name, std::ios::binary);
    std::string line;
    std::getline(in, line);
    return line;
  }
  std::uintmax_t size(const std::string& name) const {
    std::error_code error;
    return std::filesystem::file_size(log_ + "/" + name, error);
  }
};

TEST_F(LogFilesTest, FullLogsRotateAndTheOldestIsDeleted) {
  for (int i = 1; i <= 3; ++i) {
    fill("control.log." + std::to_string(i), "old " + std::to_string(i) + "\n");
  }
  fill("control.log", "full\n");
  start_daemon();
  EXPECT_TRUE(eventually([&] { return size("control.log") < 4096; }));
  EXPECT_EQ(first_line("control.log.1"), "full");
  EXPECT_EQ(size("control.log.1"), 16u << 20);
  EXPECT_EQ(first_line("control.log.2"), "old 1");
  EXPECT_EQ(first_line("control.log.3"), "old 2");
  EXPECT_FALSE(std::filesystem::exists(log_ + "/control.log.4"));
}

// Servers and workers write into server.log themselves.
TEST_F(LogFilesTest, ALogThatAServerHasFilledRotates) {
  start_daemon();
  const Client client = join("./first");
  ASSERT_EQ(client.welcome.result, CUDA_SUCCESS);
  const std::string before = first_line("server.log");
  std::filesystem::resize_file(log_ + "/server.log", 16u << 20);
  ASSERT_EQ(join("./second").welcome.result, CUDA_SUCCESS);
  EXPECT_TRUE(eventually([&] { return size("server.log") < 1u << 20; }));
  EXPECT_EQ(first_line("server.log.1"), before);
  ASSERT_EQ(join("./third").welcome.result, CUDA_SUCCESS);
  EXPECT_TRUE(eventually(
      [&] { return log_text("server.log").find("connected: ./third") != std::string::npos; }));
}

}  // namespace
}  // namespace openmps
