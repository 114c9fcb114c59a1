// SPDX-License-Identifier: Apache-2.0
// The daemon under a service manager. The test has that role: it passes the socket, and gets the
// daemon's notices when the daemon is ready, at intervals while it runs, and when it ends.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "mps_fixture.h"
#include "wire/control_call.h"
#include "wire/message.h"

namespace openmps {
namespace {

class ServiceTest : public MpsTest {
 protected:
  void SetUp() override {
    MpsTest::SetUp();
    std::filesystem::create_directory(pipe_);
    notices_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/notices", directory_.c_str());
    ASSERT_EQ(bind(notices_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  // Runs `openmps-control -f` as a service with the socket `passed`.
  pid_t start_service(int passed) {
    const pid_t child = fork();
    if (child != 0) return child;
    if (passed != 3 && (dup2(passed, 3) != 3 || fcntl(3, F_SETFD, 0) != 0)) _exit(126);
    if (passed == 3 && fcntl(3, F_SETFD, 0) != 0) _exit(126);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("NOTIFY_SOCKET", (directory_ + "/notices").c_str(), 1);
    // The socket holds ten notices. With this interval the test reads them before it is full.
    setenv("WATCHDOG_USEC", "1000000", 1);
    setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_.c_str(), 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", log_.c_str(), 1);
    setenv("OPENMPS_DRIVER", "fake", 1);
    if (geteuid() != 0) setenv("OPENMPS_CONFINE", "0", 1);
    execl((bin_ + "/openmps-control").c_str(), "openmps-control", "-f", nullptr);
    _exit(127);
  }

  std::string next_notice() const {
    pollfd ready{notices_.get(), POLLIN, 0};
    char text[256];
    if (poll(&ready, 1, kWaitMs) != 1) return "";
    const ssize_t bytes = recv(notices_.get(), text, sizeof(text), 0);
    return {text, static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
  }

  // Reads all notices that have arrived.
  void drain() const {
    char text[256];
    while (recv(notices_.get(), text, sizeof(text), MSG_DONTWAIT) > 0) {
    }
  }

  static std::string environment_of(pid_t pid) {
    const std::ifstream in("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }

  static int end_of(pid_t child) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  UniqueFd notices_;
};

TEST_F(ServiceTest, TheSocketOfAServiceManagerIsUsedAndNotRemoved) {
  const std::string path = wire::control_socket_path(pipe_);
  Result<UniqueFd> listener = listen_at(path, 0666);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  // A client connects before the daemon starts.
  Result<UniqueFd> first = connect_raw();
  ASSERT_TRUE(first.ok());
  UniqueFd early = std::move(first).value();
  ASSERT_TRUE(send_packet(early.get(), wire::message_bytes(hello("./early"))).ok());

  for (int round = 0; round < 2; ++round) {  // the second daemon gets the same socket
    const pid_t daemon = start_service(listener->get());
    EXPECT_EQ(next_notice(), "READY=1");
    EXPECT_EQ(next_notice(), "WATCHDOG=1");
    EXPECT_EQ(next_notice(), "WATCHDOG=1") << "the notice is repeated";
    EXPECT_EQ(daemon_pid(), daemon);
    if (round == 0) {
      const Client client = finish_join(std::exchange(early, UniqueFd()));
      EXPECT_EQ(client.welcome.result, CUDA_SUCCESS) << client.welcome.reason;
    }
    // Servers do not inherit the daemon's variables.
    EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
    for (const char* program : {"openmps-server", "openmps-worker"}) {
      for (const pid_t pid : processes(program)) {
        const std::string variables = environment_of(pid);
        EXPECT_EQ(variables.find("NOTIFY_SOCKET"), std::string::npos) << program;
        EXPECT_EQ(variables.find("LISTEN_"), std::string::npos) << program;
        EXPECT_EQ(variables.find("WATCHDOG_"), std::string::npos) << program;
      }
    }
    drain();
    EXPECT_EQ(shell("quit\n").status, 0);
    EXPECT_EQ(end_of(daemon), 0);
    std::string last = "WATCHDOG=1";
    while (last == "WATCHDOG=1") last = next_notice();
    EXPECT_EQ(last, "STOPPING=1");
    EXPECT_EQ(pipe_entries(), std::vector<std::string>{wire::kControlSocketName})
        << "only the service manager's socket is left";
    drain();
  }
  std::filesystem::remove(path);
}

TEST_F(ServiceTest, AnotherSocketIsRefused) {
  Result<UniqueFd> elsewhere = listen_at(directory_ + "/elsewhere", 0666);
  ASSERT_TRUE(elsewhere.ok());
  const UniqueFd silent(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const int passed : {elsewhere->get(), silent.get(), file.get()}) {
    EXPECT_EQ(end_of(start_service(passed)), 1);
    EXPECT_EQ(pipe_entries(), std::vector<std::string>{});
  }
}

TEST_F(ServiceTest, SocketsMeantForAnotherProcessAreNotUsed) {
  environment_ = "LISTEN_PID=1 LISTEN_FDS=1 NOTIFY_SOCKET=" + directory_ + "/nobody";
  start_daemon();
  EXPECT_EQ(shell("get_server_list\n").status, 0);
}

}  // namespace
}  // namespace openmps
