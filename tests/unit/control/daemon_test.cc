// SPDX-License-Identifier: Apache-2.0
// The daemon as a program: its start, a second start, a start after SIGKILL, quit, and the texts of
// the shell.
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "control/command.h"
#include "mps_fixture.h"
#include "wire/control_call.h"

namespace openmps {
namespace {

using DaemonTest = MpsTest;

TEST_F(DaemonTest, WithoutADaemonTheShellSaysSo) {
  const Outcome outcome = shell("get_server_list\n");
  EXPECT_EQ(outcome.out, "Cannot find MPS control daemon process\n");
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(DaemonTest, ASecondDaemonIsRefusedAndTheFirstStays) {
  start_daemon();
  const pid_t first = daemon_pid();
  const Outcome second = control({"-d"});
  EXPECT_EQ(second.out, "An instance of this daemon is already running\n");
  EXPECT_EQ(second.status, 1);
  EXPECT_EQ(daemon_pid(), first);
  EXPECT_EQ(shell("get_server_list\n").status, 0);
}

TEST_F(DaemonTest, TheDirectoryIsForSeveralUsers) {
  start_daemon();
  struct stat at {};
  ASSERT_EQ(stat(pipe_.c_str(), &at), 0);
  EXPECT_EQ(at.st_mode & 0777, 0755u);
  ASSERT_EQ(stat(wire::control_socket_path(pipe_).c_str(), &at), 0);
  EXPECT_EQ(at.st_mode & 0777, 0666u);
}

// The daemon prints one line with the reason, and makes no file.
TEST_F(DaemonTest, ADirectoryThatOthersCouldWriteIsRefused) {
  std::filesystem::create_directory(pipe_);
  const auto refused_for = [&](const std::string& why) {
    const Outcome outcome = control({"-d"});
    EXPECT_EQ(outcome.status, 1) << why;
    EXPECT_NE(outcome.out.find(pipe_), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find(why), std::string::npos) << outcome.out;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
    EXPECT_EQ(pipe_entries(), std::vector<std::string>{});
  };
  for (const mode_t mode : {0777u, 0775u, 01777u, 0757u}) {
    ASSERT_EQ(chmod(pipe_.c_str(), mode), 0);
    refused_for("can be written by other users");
  }
  ASSERT_EQ(chmod(pipe_.c_str(), 0755), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(pipe_.c_str(), 65534, 65534), 0);
    refused_for("is user 65534's");
    ASSERT_EQ(chown(pipe_.c_str(), 0, 0), 0);
  }
  const std::string target = directory_ + "/target";
  std::filesystem::rename(pipe_, target);
  std::filesystem::create_directory_symlink(target, pipe_);
  refused_for("is a symbolic link");
  EXPECT_TRUE(std::filesystem::is_empty(target));
  std::filesystem::remove(pipe_);
  std::filesystem::rename(target, pipe_);
  for (const mode_t mode : {0700u, 0755u}) {
    ASSERT_EQ(chmod(pipe_.c_str(), mode), 0);
    start_daemon();
    EXPECT_EQ(shell("quit\n").status, 0);
  }
}

// A chmod() after the creation would leave a moment with other permissions.
TEST_F(DaemonTest, TheSocketIsCreatedWithItsFinalPermissions) {
  std::filesystem::create_directory(pipe_);
  const UniqueFd notices(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(notices.get(), pipe_.c_str(), IN_CREATE | IN_ATTRIB), 0);
  start_daemon();
  alignas(inotify_event) char buffer[4096];
  const ssize_t got = read(notices.get(), buffer, sizeof(buffer));
  std::string seen;
  for (ssize_t at = 0; at < got;) {
    const auto* notice = reinterpret_cast<const inotify_event*>(buffer + at);
    if (notice->len != 0 && std::string_view(notice->name) == wire::kControlSocketName) {
      seen += (notice->mask & IN_CREATE) != 0 ? "made " : "changed ";
    }
    at += static_cast<ssize_t>(sizeof(inotify_event) + notice->len);
  }
  EXPECT_EQ(seen, "made ");
}

TEST_F(DaemonTest, ANewDaemonReplacesTheFilesOfAKilledOne) {
  start_daemon();
  const pid_t first = daemon_pid();
  kill_daemon();
  EXPECT_EQ(pipe_entries().size(), 3u) << "the test needs stale entries";
  EXPECT_EQ(shell("ps\n").out, "Cannot find MPS control daemon process\n");
  start_daemon();
  EXPECT_NE(daemon_pid(), first);
  EXPECT_EQ(shell("ps\n").out, "Server not found\n");
}

// A user who can open the lock file could lock it, and so keep every daemon from starting.
TEST_F(DaemonTest, OtherUsersCanNotOpenTheLockFile) {
  const std::string lock = pipe_ + "/openmps-control.lock";
  const auto mode = [&lock] {
    struct stat at {};
    return stat(lock.c_str(), &at) == 0 ? at.st_mode & 0777u : 0u;
  };
  start_daemon();
  EXPECT_EQ(mode(), 0600u);
  kill_daemon();
  ASSERT_EQ(chmod(lock.c_str(), 0644), 0);  // as an older version has left it
  start_daemon();
  EXPECT_EQ(mode(), 0600u);
}

// The daemon started by the name of NVIDIA's program.
class CompatTest : public MpsTest {
 protected:
  static constexpr const char* kName = "nvidia-cuda-mps-control";
  void SetUp() override {
    MpsTest::SetUp();
    std::filesystem::create_directory(directory_ + "/compat");
    std::filesystem::create_symlink(bin_ + "/openmps-control", directory_ + "/compat/" + kName);
    by_name(kName);
  }
  void by_name(const std::string& name) {
    bin_ = name == kName ? directory_ + "/compat" : OPENMPS_FAKE_BIN;
    program_ = name;
  }
  std::string pid_file() const { return pipe_ + "/nvidia-cuda-mps-control.pid"; }
  std::string pid_text() const {
    std::ifstream file(pid_file());
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(CompatTest, APidFileWithNvidiasNameExistsWhileTheDaemonRuns) {
  start_daemon();
  EXPECT_EQ(pid_text(), std::to_string(daemon_pid()) + "\n");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(pid_file())));
  EXPECT_EQ(shell("quit\n").status, 0);
  EXPECT_EQ(pipe_entries(), std::vector<std::string>{});
  // The next daemon replaces or removes the file of a killed one, whatever the next one's name.
  start_daemon();
  kill_daemon();
  EXPECT_NE(pid_text(), "") << "the test needs a stale PID file";
  start_daemon();
  EXPECT_EQ(pid_text(), std::to_string(daemon_pid()) + "\n");
  kill_daemon();
  by_name("openmps-control");
  start_daemon();
  EXPECT_FALSE(std::filesystem::exists(pid_file()));
}

TEST_F(CompatTest, APidFileOfNvidiasDaemonIsKeptWhileThatRuns) {
  // A process with the name of NVIDIA's daemon, by which ours recognises it.
  std::filesystem::copy_file("/bin/sleep", directory_ + "/" + kName);
  const pid_t other = fork();
  if (other == 0) {
    execl((directory_ + "/" + kName).c_str(), kName, "1000", nullptr);
    _exit(127);
  }
  const std::string text = std::to_string(other) + "\n";
  std::filesystem::create_directory(pipe_);
  std::ofstream(pid_file()) << text;
  EXPECT_TRUE(eventually([&] {
    std::ifstream comm("/proc/" + std::to_string(other) + "/comm");
    std::string name;
    return comm >> name && name == "nvidia-cuda-mps";
  }));
  start_daemon();
  EXPECT_EQ(pid_text(), text);
  EXPECT_EQ(shell("quit\n").status, 0);
  EXPECT_EQ(pid_text(), text);
  kill(other, SIGKILL);
  ASSERT_EQ(waitpid(other, nullptr, 0), other);
  start_daemon();
  EXPECT_EQ(pid_text(), std::to_string(daemon_pid()) + "\n");
}

TEST_F(DaemonTest, QuitLeavesNoFiles) {
  start_daemon();
  const Outcome quit = shell("quit\n");
  EXPECT_EQ(quit.out, "");
  EXPECT_EQ(quit.status, 0);
  EXPECT_EQ(pipe_entries(), std::vector<std::string>{}) << "no files are left when quit returns";
  start_daemon();
  EXPECT_EQ(control({"quit"}).status, 0) << "a command may be an argument, too";
  EXPECT_EQ(pipe_entries(), std::vector<std::string>{});
  EXPECT_NE(log_text("control.log").find("Exit with status 0"), std::string::npos);
}

TEST_F(DaemonTest, TerminationSignalsEndTheDaemon) {
  for (const int signal : {SIGTERM, SIGINT}) {
    start_daemon();
    ASSERT_EQ(kill(daemon_pid(), signal), 0);
    ASSERT_TRUE(eventually([&] { return processes("openmps-control").empty(); }));
    EXPECT_EQ(pipe_entries(), std::vector<std::string>{});
  }
}

TEST_F(DaemonTest, APathThatIsTooLongIsRefusedBeforeFilesAreMade) {
  pipe_ = directory_ + "/" + std::string(90, 'x');
  const Outcome outcome = control({"-d"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("too long"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("107"), std::string::npos) << outcome.out;
  EXPECT_FALSE(std::filesystem::exists(pipe_));
}

TEST_F(DaemonTest, APipeDirectoryThatCantBeMadeIsAnError) {
  std::ofstream(pipe_) << "a file";
  const Outcome outcome = control({"-d"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find(pipe_), std::string::npos) << outcome.out;
  std::filesystem::remove(pipe_);
}

TEST_F(DaemonTest, LogsFallBackToThePipeDirectoryWithAWarning) {
  std::ofstream(log_) << "a file";
  const Outcome outcome = control({"-d"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.out.find("writing them to " + pipe_), std::string::npos) << outcome.out;
  EXPECT_EQ(shell("quit\n").status, 0);
  EXPECT_TRUE(std::filesystem::remove(pipe_ + "/control.log"));
  EXPECT_TRUE(std::filesystem::remove(pipe_ + "/server.log"));
}

TEST_F(DaemonTest, TheDaemonClosesInheritedDescriptors) {
  const UniqueFd inherited(open((directory_ + "/held").c_str(), O_CREAT | O_RDWR, 0600));
  ASSERT_TRUE(inherited.valid());  // deliberately not close-on-exec
  start_daemon();
  std::error_code error;
  const std::string fds = "/proc/" + std::to_string(daemon_pid()) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(fds)) {
    EXPECT_NE(std::filesystem::read_symlink(entry.path(), error), directory_ + "/held");
  }
}

TEST_F(DaemonTest, InTheForegroundItRunsUntilQuit) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_.c_str(), 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", log_.c_str(), 1);
    execl((bin_ + "/openmps-control").c_str(), "openmps-control", "-f", nullptr);
    _exit(127);
  }
  ASSERT_TRUE(eventually([&] { return connect_raw().ok(); }));
  EXPECT_EQ(daemon_pid(), child);
  EXPECT_EQ(shell("quit\n").status, 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// tests/e2e/transcript.py compares the answer to each command with that of NVIDIA's daemon.
TEST_F(DaemonTest, TheShellReadsOneOrSeveralLines) {
  start_daemon();
  EXPECT_EQ(shell("get_server_status 7").out, "Server 7 not found\n") << "no newline needed";
  EXPECT_EQ(shell("nonsense\nget_default_client_priority\n").out,
            "Unknown command \"nonsense\"\n0\n")
      << "several commands over one connection";
}

// Only servers know the devices, so the daemon starts one, which ends after it has answered.
TEST_F(DaemonTest, DeviceQueryPrintsTheTableOfNvidiasDaemon) {
  start_daemon();
  EXPECT_EQ(shell("device_query\n").out,
            "Default\n"
            "Device Ordinal  PCI IDs        UUID                                      Name       "
            "                       Attributes\n"
            "0               0000:00.06.00  GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155  NVIDIA H200"
            "                       N/A\n");
  EXPECT_EQ(shell("device_query --csv\n").out,
            "Default\n"
            "Device Ordinal,PCI IDs,UUID,Name,Attributes\n"
            "0,0000:00.06.00,GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155,NVIDIA H200,N/A\n");
  EXPECT_TRUE(eventually([&] { return shell("get_server_list\n").out.empty(); }));
}

TEST_F(DaemonTest, EveryCommandAndAnswerIsLogged) {
  start_daemon();
  shell("set_default_active_thread_percentage 25\nbad\x1b[2Jword\n");
  shell("quit\n");
  const std::string log = log_text("control.log");
  const std::string stamp = R"(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} Control [ \d]{4}\d+\] )";
  for (const char* text :
       {"Accepting connection\\.\\.\\.", "NEW UI", "Cmd:set_default_active_thread_percentage 25",
        "25\\.0", "Cmd:bad\\?\\[2Jword", "Unknown command \"bad\\?\\[2Jword\"", "UI closed",
        "Exit with status 0"}) {
    EXPECT_TRUE(std::regex_search(log, std::regex("(^|\n)" + stamp + text + "\n"))) << text << log;
  }
}

TEST_F(DaemonTest, WrongOptionsAreErrors) {
  EXPECT_EQ(control({"--nonsense"}).status, 1);
  EXPECT_EQ(control({"-S"}).status, 1) << "-S needs -d or -f";
  EXPECT_EQ(control({"-d", "quit"}).status, 1);
  EXPECT_EQ(control({"--version"}).status, 0);
  const std::string help = control({"--help"}).out;
  EXPECT_NE(help.find("\nCommands:\n" + control::help_of_commands() + "\nEnvironment:\n"),
            std::string::npos);
}

}  // namespace
}  // namespace openmps
