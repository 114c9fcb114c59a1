// SPDX-License-Identifier: Apache-2.0
// See mps_fixture.h.
#include "mps_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/text.h"
#include "wire/control_call.h"
#include "wire/message.h"

namespace openmps {
namespace {

// The contents of a file, as far as they can be read: a process may end while its files in /proc
// are read.
std::string read_file(const std::string& path) {
  const std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

bool eventually(const std::function<bool()>& condition) {
  const uint64_t deadline = now_ns() + uint64_t{kWaitMs} * 1'000'000;
  while (!condition()) {
    if (now_ns() > deadline) return false;
    const timespec pause{0, 3'000'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

bool Client::wait_closed() const {
  Result<Packet> packet = receive_packet(socket.get(), wire::kMaxMessageBytes, kWaitMs);
  return packet.ok() && packet->closed;
}

void MpsTest::SetUp() {
  char pattern[] = "/tmp/openmps-test-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  directory_ = pattern;
  chmod(pattern, 0755);
  pipe_ = directory_ + "/pipe";
  log_ = directory_ + "/log";
}

void MpsTest::TearDown() {
  if (std::filesystem::exists(wire::control_socket_path(pipe_))) shell("quit -t 0\n");
  EXPECT_TRUE(eventually([&] {
    return processes("openmps-control").empty() && processes("openmps-server").empty() &&
           processes("openmps-worker").empty();
  })) << "daemon, server or worker still run";
  EXPECT_EQ(pipe_entries(), std::vector<std::string>{});
  if (HasFailure()) printf("%s%s", log_text("control.log").c_str(), log_text("server.log").c_str());
  std::filesystem::remove_all(directory_);
}

Outcome MpsTest::shell(const std::string& input) {
  const std::string path = directory_ + "/input";
  std::ofstream(path, std::ios::binary) << input;
  return control({"<" + path});
}

Outcome MpsTest::control(const std::vector<std::string>& arguments) {
  std::string line = "CUDA_MPS_PIPE_DIRECTORY='" + pipe_ + "' CUDA_MPS_LOG_DIRECTORY='" + log_ +
                     // Only root can see the environment of a confined process.
                     (geteuid() != 0 ? "' OPENMPS_CONFINE='0" : "") + "' OPENMPS_DRIVER='" +
                     driver_ + "' " + environment_ + " timeout 40 " + bin_ + "/" + program_;
  for (const std::string& argument : arguments) line += " " + argument;
  line += " 2>&1";
  Outcome outcome;
  FILE* program = popen(line.c_str(), "re");
  if (program == nullptr) return outcome;
  char buffer[4096];
  size_t got = 0;
  while ((got = fread(buffer, 1, sizeof(buffer), program)) > 0) outcome.out.append(buffer, got);
  const int status = pclose(program);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

void MpsTest::start_daemon(const std::string& option) {
  const Outcome started = control({"-d", option});
  ASSERT_EQ(started.status, 0) << started.out;
  ASSERT_EQ(started.out, "");
}

Result<UniqueFd> MpsTest::connect_raw() const {
  return connect_to(wire::control_socket_path(pipe_));
}

wire::Hello MpsTest::hello(const std::string& command) {
  wire::Hello hello;
  hello.pid = static_cast<uint32_t>(getpid());
  hello.namespace_inode = 4026531836u;
  fill_field(hello.command, command);
  return hello;
}

Client MpsTest::join(const std::string& command, const std::string& group) {
  Result<UniqueFd> socket = connect_raw();
  EXPECT_TRUE(socket.ok()) << socket.status().message();
  if (!socket.ok()) return {};
  wire::Hello first = hello(command);
  fill_field(first.group, group);
  EXPECT_TRUE(send_packet(socket->get(), wire::message_bytes(first)).ok());
  return finish_join(std::move(socket).value());
}

Client MpsTest::finish_join(UniqueFd socket) {
  Client client;
  client.socket = std::move(socket);
  client.welcome.result = CUDA_ERROR_UNKNOWN;
  Result<Packet> packet =
      receive_packet(client.socket.get(), wire::kMaxMessageBytes, kWaitMs, Descriptors::kTaken);
  EXPECT_TRUE(packet.ok()) << packet.status().message();
  if (!packet.ok()) return client;
  EXPECT_FALSE(packet->closed) << "closed without a Welcome";
  const Status read = wire::read_message(packet->data, &client.welcome);
  EXPECT_TRUE(read.ok()) << read.message();
  client.files = std::move(packet->fds);
  if (read.ok() && client.welcome.result == CUDA_SUCCESS && client.files.size() == 2) {
    Result<Mapping> page = map_shared(client.files[0].get(), 0, 4096, MapAccess::kReadWrite);
    EXPECT_TRUE(page.ok()) << page.status().message();
    if (page.ok()) client.header_page = std::move(page).value();
  }
  return client;
}

std::vector<pid_t> MpsTest::processes(const std::string& program) const {
  std::vector<pid_t> found;
  const std::string mark = "CUDA_MPS_PIPE_DIRECTORY=" + pipe_;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    const auto pid = parse_unsigned(name, INT32_MAX);
    if (!pid) continue;
    // A zombie's environment is empty.
    const std::string environment = read_file("/proc/" + name + "/environ");
    if ((environment + '\0').find(mark + '\0') == std::string::npos) continue;
    const std::string command = read_file("/proc/" + name + "/cmdline");
    const std::string first = command.substr(0, command.find('\0'));
    if (first.substr(first.rfind('/') + 1) == program) found.push_back(static_cast<pid_t>(*pid));
  }
  return found;
}

void MpsTest::kill_daemon() {
  const UniqueFd daemon(static_cast<int>(syscall(SYS_pidfd_open, daemon_pid(), 0)));
  ASSERT_TRUE(daemon.valid());
  ASSERT_EQ(syscall(SYS_pidfd_send_signal, daemon.get(), SIGKILL, nullptr, 0), 0);
  pollfd ended{.fd = daemon.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&ended, 1, kWaitMs), 1);
}

pid_t MpsTest::daemon_pid() const {
  return static_cast<pid_t>(atoi(read_file(pipe_ + "/openmps-control.pid").c_str()));
}

std::string MpsTest::log_text(const std::string& name) const {
  return read_file(log_ + "/" + name);
}

std::vector<std::string> MpsTest::pipe_entries() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(pipe_, error)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

}  // namespace openmps
