// SPDX-License-Identifier: Apache-2.0
// A daemon that inherits ignored or blocked signals, limits, closed standard streams or a removed
// current directory serves and ends like any other, or fails at once with the reason.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "mps_fixture.h"

namespace openmps {
namespace {

class StarterTest : public MpsTest {
 protected:
  // Runs `openmps-control -d` in a child process that has called `prepare`. The result is the exit
  // status and the text on standard error.
  Outcome start_from(const std::function<void()>& prepare) {
    const std::string said = directory_ + "/said";
    const pid_t child = fork();
    if (child == 0) {
      setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_.c_str(), 1);
      setenv("CUDA_MPS_LOG_DIRECTORY", log_.c_str(), 1);
      setenv("OPENMPS_DRIVER", "fake", 1);
      if (geteuid() != 0) setenv("OPENMPS_CONFINE", "0", 1);
      dup2(open(said.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600), STDERR_FILENO);
      prepare();
      execl((bin_ + "/openmps-control").c_str(), "openmps-control", "-d", nullptr);
      _exit(127);
    }
    Outcome outcome;
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::ifstream file(said);
    outcome.out.assign(std::istreambuf_iterator<char>(file), {});
    return outcome;
  }
  static void limit(__rlimit_resource what, rlim_t soft, rlim_t hard) {
    const rlimit limit{soft, hard};
    if (setrlimit(what, &limit) != 0) _exit(126);
  }
  void expect_service_and_end() {
    EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
    EXPECT_EQ(shell("quit\n").status, 0) << "124: quit took more than 40 s";
    EXPECT_TRUE(eventually([&] {
      return processes("openmps-control").empty() && processes("openmps-server").empty();
    }));
  }
};

TEST_F(StarterTest, IgnoredAndBlockedSignals) {
  const Outcome started = start_from([] {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);
  });
  ASSERT_EQ(started.status, 0) << started.out;
  expect_service_and_end();
}

TEST_F(StarterTest, ClosedStandardStreams) {
  const Outcome started = start_from([] {
    for (int fd = 0; fd <= 2; ++fd) close(fd);
  });
  ASSERT_EQ(started.status, 0) << started.out;
  for (const char* fd : {"0", "1", "2"}) {
    std::error_code error;
    const std::string path = "/proc/" + std::to_string(daemon_pid()) + "/fd/" + fd;
    EXPECT_EQ(std::filesystem::read_symlink(path, error), "/dev/null") << fd;
  }
  EXPECT_EQ(control({"-d"}).out, "An instance of this daemon is already running\n")
      << "the daemon still holds its lock";
  expect_service_and_end();
}

TEST_F(StarterTest, LimitsThatCanBeRaised) {
  const Outcome started = start_from([] {
    rlimit now{};
    for (const auto what : {RLIMIT_FSIZE, RLIMIT_STACK}) {
      getrlimit(what, &now);
      limit(what, 256 << 10, now.rlim_max);
    }
    umask(0777);
  });
  ASSERT_EQ(started.status, 0) << started.out;
  expect_service_and_end();
}

TEST_F(StarterTest, LimitsThatAreTooLowAreNamed) {
  const std::pair<__rlimit_resource, std::string> cases[] = {
    {RLIMIT_FSIZE, "files may have at most 536870912 bytes (ulimit -f), "},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers need more
    {RLIMIT_AS, "the address space may have at most 536870912 bytes (ulimit -v), "},
#endif
  };
  for (const auto& [what, text] : cases) {
    const Outcome refused = start_from([what = what] { limit(what, 1 << 29, 1 << 29); });
    EXPECT_EQ(refused.status, 1) << text;
    EXPECT_TRUE(refused.out.starts_with("openmps-control: " + text)) << refused.out;
    EXPECT_FALSE(std::filesystem::exists(pipe_)) << "the daemon makes no files";
  }
}

TEST_F(StarterTest, ACurrentDirectoryThatWasRemoved) {
  const auto leave = [this] {
    const std::string gone = directory_ + "/gone";
    if (mkdir(gone.c_str(), 0700) != 0 || chdir(gone.c_str()) != 0 || rmdir(gone.c_str()) != 0) {
      _exit(126);
    }
  };
  const Outcome refused = start_from([&] {
    leave();
    setenv("CUDA_MPS_PIPE_DIRECTORY", "pipe", 1);
  });
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.out.find("the pipe directory pipe is below the current directory: "),
            std::string::npos)
      << refused.out;
  ASSERT_EQ(start_from(leave).status, 0);
  expect_service_and_end();
}

}  // namespace
}  // namespace openmps
