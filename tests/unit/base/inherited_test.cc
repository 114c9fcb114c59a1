// SPDX-License-Identifier: Apache-2.0
// What a process inherits from its parent: signals, timers, streams, limits. Each test changes them
// in a child process, so that the test's own process keeps its own.
#include "base/inherited.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "base/unique_fd.h"

namespace openmps {
namespace {

bool holds_in_child(const std::function<bool()>& condition) {
  const pid_t child = fork();
  if (child == 0) _exit(condition() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST(Inherited, SignalsAreAsInAFreshProcess) {
  EXPECT_TRUE(holds_in_child([] {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    for (const int signal : {SIGCHLD, SIGTERM, SIGHUP, SIGPIPE, SIGRTMAX}) {
      ::signal(signal, SIG_IGN);
    }
    forget_starter();
    sigset_t now;
    sigprocmask(SIG_SETMASK, nullptr, &now);
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction action {};
      if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return false;
      if (sigismember(&now, signal) == 1) return false;
    }
    return true;
  }));
}

TEST(Inherited, TimersAreStopped) {
  EXPECT_TRUE(holds_in_child([] {
    const itimerval hour{{0, 0}, {3600, 0}};
    for (const auto timer : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
      setitimer(timer, &hour, nullptr);
    }
    forget_starter();
    for (const auto timer : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
      itimerval left{};
      if (getitimer(timer, &left) != 0 || left.it_value.tv_sec != 0) return false;
    }
    return true;
  }));
}

TEST(Inherited, ClosedStandardStreamsBecomeDevNull) {
  const auto is_null = [](int fd) {
    struct stat here {};
    struct stat null {};
    return fstat(fd, &here) == 0 && stat("/dev/null", &null) == 0 && here.st_rdev == null.st_rdev;
  };
  for (const int closed : {0, 1, 2, 3}) {  // 3: all of them
    EXPECT_TRUE(holds_in_child([&] {
      for (int fd = 0; fd <= 2; ++fd) {
        if (closed == fd || closed == 3) close(fd);
      }
      forget_starter();
      const UniqueFd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
      return (closed == 3 ? is_null(0) && is_null(1) && is_null(2) : is_null(closed)) &&
             next.get() > 2;
    })) << closed;
  }
}

TEST(Inherited, LimitsAreRaisedAndHardLimitsThatAreTooLowAreNamed) {
  const auto limited = [](__rlimit_resource what, rlim_t soft, rlim_t hard) {
    const rlimit limit{soft, hard};
    return setrlimit(what, &limit) == 0;
  };
  constexpr Needs kNeeds{.file_bytes = 1 << 20, .address_bytes = 1 << 20};
  EXPECT_TRUE(holds_in_child([&] {
    rlimit stack{};
    return limited(RLIMIT_FSIZE, 1 << 10, 2 << 20) && limited(RLIMIT_STACK, 64 << 10, 64 << 20) &&
           raise_limits(kNeeds).ok() && getrlimit(RLIMIT_STACK, &stack) == 0 &&
           stack.rlim_cur == 8u << 20;
  }));
  const auto refusal = [&](__rlimit_resource what, rlim_t hard, const char* text) {
    return holds_in_child([&] {
      return limited(what, hard, hard) &&
             raise_limits(kNeeds).message().find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(refusal(RLIMIT_FSIZE, 1 << 10,
                      "files may have at most 1024 bytes (ulimit -f), 1048576 are needed"));
  EXPECT_TRUE(refusal(RLIMIT_STACK, 512 << 10, "(ulimit -s)"));
}

}  // namespace
}  // namespace openmps
