// SPDX-License-Identifier: Apache-2.0
// Programs that connect and end: each gets a session, the shell shows it, and nothing is left
// behind when it has ended.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "base/subprocess.h"
#include "base/text.h"
#include "mps_fixture.h"
#include "wire/message.h"

namespace openmps {
namespace {

class ClientsTest : public MpsTest {
 protected:
  std::string server() {
    std::string list = shell("get_server_list\n").out;
    if (!list.empty()) list.pop_back();
    return list;
  }
  size_t open_files(const std::string& program) {
    const std::vector<pid_t> pids = processes(program);
    if (pids.size() != 1) return 0;
    const std::filesystem::directory_iterator fds("/proc/" + std::to_string(pids[0]) + "/fd");
    return static_cast<size_t>(std::distance(begin(fds), end(fds)));
  }
};

TEST_F(ClientsTest, AProgramGetsASessionAndTheShellShowsIt) {
  start_daemon();
  const Client client = join("python3 train.py");
  ASSERT_EQ(client.welcome.result, CUDA_SUCCESS) << client.welcome.reason;
  ASSERT_EQ(client.files.size(), 2u);
  EXPECT_EQ(client.header().magic, wire::kMagic);
  EXPECT_EQ(client.header().session, client.welcome.session);
  EXPECT_EQ(client.header().window_base, client.welcome.window_base);
  EXPECT_EQ(client.welcome.spin_us, 7u);
  EXPECT_EQ(client.welcome.limits.active_thread_percentage, 100);
  EXPECT_NE(fcntl(client.files[1].get(), F_GET_SEALS) & F_SEAL_WRITE, 0)
      << "the file of device facts is sealed against writes";

  const std::string pid = server();
  EXPECT_EQ(std::to_string(client.welcome.server_pid), pid);
  EXPECT_EQ(shell("get_server_status " + pid + "\n").out, "ACTIVE\n");
  const std::string me = std::to_string(getpid());
  EXPECT_EQ(shell("get_client_list " + pid + "\n").out, me + "\n");
  const std::string table = format_text(
      "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        "
      "\n"
      "%-10s1         %-15sGPU-008cbaa3-6cdc-9444    4026531836     python3        \n",
      me.c_str(), pid.c_str());
  EXPECT_EQ(shell("ps\n").out, table);
  EXPECT_EQ(shell("ps -p " + pid + "\n").out, table);
  EXPECT_NE(shell("ps --json\n").out.find("\"command\": \"python3 train.py\""), std::string::npos);
  EXPECT_EQ(shell("get_device_client_list\n").out, "[0] 00:00.0, NVIDIA H200\n" + me + ".1\n");
  EXPECT_EQ(shell("get_device_client_list " + pid + "\n").out,
            "[0] 00:00.0, NVIDIA H200\n" + me + ".1\n");
  const std::string devices = shell("device_query " + pid + "\n").out;
  EXPECT_NE(devices.find("\n\nServer " + pid + "\nDevice Ordinal"), std::string::npos) << devices;
  EXPECT_NE(shell("get_server_list --json\n").out.find("\"state\": \"ACTIVE\""), std::string::npos);
}

TEST_F(ClientsTest, AClientThatEndsIsRemovedFromTheLists) {
  start_daemon();
  { const Client client = join(); }
  EXPECT_TRUE(eventually([&] { return shell("ps\n").out.empty(); }));
  EXPECT_NE(server(), "") << "a server without clients keeps running";
  const std::string log = log_text("server.log");
  for (const char* line :
       {"Received new client request", "connected", "is ACTIVE",
        "exiting. Number of active client contexts is 0.", "disconnected",
        "Device NVIDIA H200 (uuid GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155) is associated"}) {
    EXPECT_NE(log.find(line), std::string::npos) << line;
  }
}

TEST_F(ClientsTest, SixtyClientsAtOnceHaveWindowsOfTheirOwn) {
  start_daemon();
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 60; ++i) {  // all send Hello before the server has started
    Result<UniqueFd> socket = connect_raw();
    ASSERT_TRUE(socket.ok());
    ASSERT_TRUE(send_packet(socket->get(), wire::message_bytes(hello("./p"))).ok());
    sockets.push_back(std::move(socket).value());
  }
  std::set<uint64_t> windows;
  std::vector<Client> clients;
  for (UniqueFd& socket : sockets) {
    clients.push_back(finish_join(std::move(socket)));
    ASSERT_EQ(clients.back().welcome.result, CUDA_SUCCESS) << clients.back().welcome.reason;
    windows.insert(clients.back().welcome.window_base);
  }
  EXPECT_EQ(windows.size(), 60u);
  EXPECT_EQ(processes("openmps-server").size(), 1u);
  EXPECT_EQ(processes("openmps-worker").size(), 1u);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return shell("ps\n").out.empty(); }));
}

TEST_F(ClientsTest, ClientsBeyondTheLimitAreRefused) {
  raise_open_files_limit(4 * wire::kMaxWindows);  // this process holds three for each client
  start_daemon();
  std::vector<Client> clients;
  for (uint32_t i = 0; i < wire::kMaxWindows; ++i) {
    clients.push_back(join());
    ASSERT_EQ(clients.back().welcome.result, CUDA_SUCCESS) << i << clients.back().welcome.reason;
  }
  const Client more = join();
  EXPECT_EQ(more.welcome.result, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
  EXPECT_STRNE(more.welcome.reason, "");
  const std::string table = shell("ps\n").out;
  EXPECT_EQ(static_cast<uint32_t>(std::count(table.begin(), table.end(), '\n')),
            wire::kMaxWindows + 1)
      << "ps lists all clients";
  clients.pop_back();
  EXPECT_TRUE(eventually([&] { return join().welcome.result == CUDA_SUCCESS; }));
}

TEST_F(ClientsTest, KilledClientsLeaveNoDescriptors) {
  start_daemon();
  const Client survivor = join("./survivor");
  ASSERT_EQ(survivor.welcome.result, CUDA_SUCCESS);
  size_t server_files = 0;
  size_t worker_files = 0;
  size_t daemon_files = 0;
  // Between fork() and exec(), processes() counts a child as an instance of its parent's program,
  // and open_files() returns 0.
  ASSERT_TRUE(eventually([&] {
    server_files = open_files("openmps-server");
    worker_files = open_files("openmps-worker");
    daemon_files = open_files("openmps-control");
    return server_files != 0 && worker_files != 0 && daemon_files != 0;
  }));
  for (int i = 0; i < 40; ++i) {
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      // Killed sometimes right after Hello, sometimes with its session open.
      Result<UniqueFd> socket = connect_raw();
      if (!socket.ok()) _exit(1);
      const bool sent = send_packet(socket->get(), wire::message_bytes(hello("./victim"))).ok();
      if (i % 2 == 0) {
        (void)receive_packet(socket->get(), wire::kMaxMessageBytes, kWaitMs, Descriptors::kTaken)
            .ok();
      }
      const ssize_t written = write(ready[1], sent ? "y" : "n", 1);
      (void)written;
      while (true) pause();
    }
    char answer = 0;
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    close(ready[0]);
    close(ready[1]);
  }
  EXPECT_TRUE(eventually([&] {
    // Fewer descriptors than at first are possible: one may have been about to close then.
    return open_files("openmps-server") <= server_files &&
           open_files("openmps-worker") <= worker_files &&
           open_files("openmps-control") <= daemon_files;
  })) << open_files("openmps-server")
      << " of " << server_files;
  EXPECT_EQ(survivor.header().status.load(), CUDA_SUCCESS);
  const Client next = join();
  EXPECT_EQ(next.welcome.result, CUDA_SUCCESS);
}

TEST_F(ClientsTest, SettingsApplyToLaterClients) {
  start_daemon();
  shell(
      "set_default_active_thread_percentage 40\nset_default_client_priority 1\n"
      "set_default_device_pinned_mem_limit GPU-008cbaa3 2G\n");
  const Client first = join();
  EXPECT_EQ(first.welcome.limits.active_thread_percentage, 40);
  EXPECT_EQ(first.welcome.limits.client_priority, 1u);
  EXPECT_EQ(first.welcome.limits.memory_limit[0], 2 * wire::kGiB);
  const std::string pid = server();
  EXPECT_EQ(shell("set_active_thread_percentage " + pid + " 33\n").out, "33.0\n");
  EXPECT_EQ(shell("get_active_thread_percentage " + pid + "\n").out, "33.0\n");
  EXPECT_EQ(shell("get_device_pinned_mem_limit " + pid + " 0\n").out, "");
  EXPECT_EQ(shell("set_device_pinned_mem_limit " + pid + " 0 3G\n").out, "");
  EXPECT_EQ(shell("get_device_pinned_mem_limit " + pid + " 0\n").out, "3G\n");
  EXPECT_EQ(shell("get_default_active_thread_percentage\n").out, "40.0\n");
  const Client second = join();
  EXPECT_EQ(second.welcome.limits.active_thread_percentage, 33);
  EXPECT_EQ(second.welcome.limits.memory_limit[0], 3 * wire::kGiB);
  EXPECT_EQ(first.welcome.limits.active_thread_percentage, 40);
}

TEST_F(ClientsTest, StartServerStartsAServerWithoutClients) {
  start_daemon();
  EXPECT_EQ(shell(format_text("start_server -uid %u\n", geteuid())).out, "");
  const std::string pid = server();
  ASSERT_NE(pid, "");
  EXPECT_TRUE(
      eventually([&] { return shell("get_server_status " + pid + "\n").out == "ACTIVE\n"; }));
  EXPECT_EQ(std::to_string(join().welcome.server_pid), pid);
}

TEST_F(ClientsTest, QuitWaitsForClients) {
  start_daemon();
  Client client = join();
  std::thread leave([&] {
    // The client disconnects only after the daemon has logged that it waits.
    EXPECT_TRUE(eventually([&] {
      return log_text("control.log").find("1 active worker threads") != std::string::npos;
    }));
    EXPECT_EQ(join().welcome.result, CUDA_ERROR_MPS_SERVER_NOT_READY)
        << "no client is admitted after quit";
    EXPECT_EQ(client.header().status.load(), CUDA_SUCCESS);
    client.socket.reset();
  });
  const Outcome quit = shell("quit\n");
  leave.join();
  EXPECT_EQ(quit.status, 0) << quit.out;
  EXPECT_EQ(pipe_entries(), std::vector<std::string>{});
  EXPECT_TRUE(processes("openmps-server").empty());
  EXPECT_TRUE(processes("openmps-worker").empty());
}

TEST_F(ClientsTest, QuitWithATimeoutEndsClients) {
  start_daemon();
  const Client client = join();
  const std::string pid = server();
  EXPECT_EQ(shell("quit -t 1\n").status, 0);
  EXPECT_EQ(client.header().status.load(), CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_TRUE(client.wait_closed());
  // The daemon answers the shell first and writes its last line when it ends.
  ASSERT_TRUE(eventually([&] { return processes("openmps-control").empty(); }));
  const std::string log = log_text("control.log");
  for (const std::string& line :
       {std::string("quit command issued with timeout of 1"),
        "Try shutting down server " + pid + ", backoff is disabled",
        "Server " + pid + " has 1 active worker threads. Server will not shutdown.",
        "Control will try shutting down server " + pid + " again in at most 200ms",
        "Try shutting down server " + pid + ", backoff is enabled",
        "Control will try shutting down server " + pid + " again in at most 400ms",
        "Force shutting down server " + pid, "Server " + pid + " exited with status 0",
        std::string("Exit with status 0")}) {
    EXPECT_NE(log.find("] " + line + "\n"), std::string::npos) << line;
  }
}

TEST_F(ClientsTest, ShutdownServerLetsClientsFinishAndNewClientsWait) {
  start_daemon();
  EXPECT_EQ(shell("shutdown_server 7\n").out, "Server 7 not found\n");
  Client client = join();
  const std::string first = server();
  std::thread leave([&] {
    EXPECT_TRUE(eventually([&] {
      return log_text("control.log").find("It will shut down with the last.") != std::string::npos;
    }));
    Result<UniqueFd> socket = connect_raw();
    ASSERT_TRUE(socket.ok());
    ASSERT_TRUE(send_packet(socket->get(), wire::message_bytes(hello("./next"))).ok());
    EXPECT_TRUE(eventually([&] {
      return log_text("control.log").find("push client to pending list") <
             log_text("control.log").rfind("push client to pending list");
    })) << "the new client waits";
    EXPECT_EQ(client.header().status.load(), CUDA_SUCCESS);
    client.socket.reset();
    const Client next = finish_join(std::move(socket).value());
    EXPECT_EQ(next.welcome.result, CUDA_SUCCESS) << next.welcome.reason;
    EXPECT_NE(std::to_string(next.welcome.server_pid), first);
  });
  const Outcome ended = shell("shutdown_server " + first + "\n");
  leave.join();
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.status, 0);
}

TEST_F(ClientsTest, ShutdownServerByForceEndsItsClients) {
  start_daemon();
  const Client client = join();
  const std::string first = server();
  EXPECT_EQ(shell("shutdown_server " + first + " -f\n").out, "");
  EXPECT_EQ(client.header().status.load(), CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_EQ(shell("get_server_list\n").out, "") << "the server has ended when the command returns";
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS) << "the next client gets another server";
}

// The server that device_query has started is ending, so start_server has to start another one.
TEST_F(ClientsTest, StartServerWhileAnotherServerEnds) {
  start_daemon();
  const std::string start = format_text("start_server -uid %u\n", geteuid());
  EXPECT_EQ(shell("device_query\n" + start).status, 0);
  const std::string pid = server();
  ASSERT_NE(pid, "");
  EXPECT_TRUE(
      eventually([&] { return shell("get_server_status " + pid + "\n").out == "ACTIVE\n"; }));
}

// Needs root, which can start programs of two users.
TEST_F(ClientsTest, UsersHaveServersOfTheirOwnAtTheSameTime) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kOther = 65534;
  // A directory from which any user can run the programs.
  bin_ = directory_ + "/bin";
  std::filesystem::copy(OPENMPS_FAKE_BIN, bin_);
  start_daemon();
  const Client ours = join("./ours");
  ASSERT_EQ(ours.welcome.result, CUDA_SUCCESS) << ours.welcome.reason;
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(kOther) != 0 || setuid(kOther) != 0) _exit(1);
    const Client theirs = join("./theirs");
    // This user must not give commands that change root's daemon.
    const Outcome quit = control({"quit"});
    const bool right = theirs.welcome.result == CUDA_SUCCESS && quit.status == 1 &&
                       quit.out.find("Permission denied") != std::string::npos;
    const ssize_t written = write(ready[1], right ? "y" : "n", 1);
    (void)written;
    while (true) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_EQ(processes("openmps-server").size(), 2u);
  std::set<uid_t> owners;
  for (const char* program : {"openmps-server", "openmps-worker"}) {
    for (const pid_t pid : processes(program)) {
      struct stat at {};
      ASSERT_EQ(stat(("/proc/" + std::to_string(pid)).c_str(), &at), 0);
      owners.insert(at.st_uid);
    }
  }
  EXPECT_EQ(owners, (std::set<uid_t>{0, kOther}));
  const std::string table = shell("ps\n").out;
  EXPECT_NE(table.find("./ours"), std::string::npos);
  EXPECT_NE(table.find("./theirs"), std::string::npos);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  close(ready[0]);
  close(ready[1]);
}

// Needs root, which can start programs of two users. The sessions of both users have equal IDs,
// since each server numbers its own sessions.
TEST_F(ClientsTest, UsersInspectTheirOwnSessionsOnly) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kOther = 65534;
  constexpr uid_t kThird = 65533;  // has no session
  bin_ = directory_ + "/bin";
  std::filesystem::copy(OPENMPS_FAKE_BIN, bin_);
  start_daemon();
  const Client ours = join("./ours");
  ASSERT_EQ(ours.welcome.result, CUDA_SUCCESS) << ours.welcome.reason;
  const std::string our_pid = std::to_string(getpid());
  int said[2];
  int go_on[2];
  ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(go_on, O_CLOEXEC), 0);
  // A child process of user `uid` inspects our session by its PID, its own by its PID, and session
  // ID 1, which both sessions have. It writes the outcomes as one line.
  const auto look_as = [&](uid_t uid, bool with_session) {
    const pid_t child = fork();
    if (child != 0) return child;
    close(go_on[1]);  // so that the child's read() ends when the parent closes its end
    if (setgid(uid) != 0 || setuid(uid) != 0) _exit(1);
    Client theirs;
    if (with_session) theirs = join("./theirs");
    std::string all;
    for (const std::string& session : {our_pid, std::to_string(getpid()), std::string("1")}) {
      const Outcome looked = control({"inspect", session});
      all +=
          std::to_string(looked.status) + " " + looked.out.substr(0, looked.out.find('\n')) + "; ";
      // At most one report is expected.
      if (looked.out.find("Session", 1) != std::string::npos) all += "and more; ";
    }
    all += "\n";
    const ssize_t written = write(said[1], all.data(), all.size());
    char end = 0;
    _exit(written != static_cast<ssize_t>(all.size()) || read(go_on[0], &end, 1) < 0 ? 1 : 0);
  };
  const auto told = [&] {
    std::string line;
    char next = 0;
    while (read(said[0], &next, 1) == 1 && next != '\n') line += next;
    return line;
  };
  const pid_t other = look_as(kOther, true);
  const std::string their_pid = std::to_string(other);
  EXPECT_EQ(told(), "1 There is no session " + our_pid + "; 0 Session 1 of process " + their_pid +
                        "; 0 Session 1 of process " + their_pid + "; ");
  const pid_t third = look_as(kThird, false);
  EXPECT_EQ(told(), "1 There is no session " + our_pid + "; 1 There is no session " +
                        std::to_string(third) + "; 1 There is no session 1; ");
  // Root inspects all sessions.
  for (const std::string& pid : {our_pid, their_pid}) {
    EXPECT_EQ(shell("inspect " + pid + "\n").out.find("Session 1 of process " + pid + "\n"), 0u);
  }
  const std::string both = shell("inspect 1\n").out;
  for (const std::string& pid : {our_pid, their_pid}) {
    EXPECT_NE(both.find("Session 1 of process " + pid + "\n"), std::string::npos) << both;
  }
  for (const int end : {go_on[0], go_on[1], said[0], said[1]}) close(end);
  for (const pid_t child : {other, third}) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace openmps
