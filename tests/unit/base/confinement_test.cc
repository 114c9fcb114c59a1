// SPDX-License-Identifier: Apache-2.0
// What a confined process may not do any more. Each case is a child of its own: what is given up is
// given up for good.
#include "base/confinement.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include "base/unique_fd.h"

namespace openmps {
namespace {

constexpr uid_t kSomebody = 65534;

bool refused(long result) { return result == -1 && errno == EPERM; }

// Whether `body` holds in a child that is confined as `role`. `log` is what it has written.
bool holds_in_child(Role role, const std::function<bool()>& body, std::string* log = nullptr) {
  const UniqueFd file(memfd_create("log", MFD_CLOEXEC));
  const pid_t child = fork();
  if (child == 0) {
    setenv("OPENMPS_CONFINE", "1", 1);  // in a sanitizer build, too
    _exit(confine(role, file.get()).ok() && body() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (log != nullptr) {
    log->resize(4096);
    log->resize(static_cast<size_t>(std::max<ssize_t>(0, pread(file.get(), log->data(), 4096, 0))));
  }
  return status == 0;
}

class ConfinementTest : public ::testing::TestWithParam<Role> {};
INSTANTIATE_TEST_SUITE_P(All, ConfinementTest,
                         ::testing::Values(Role::kDaemon, Role::kServer, Role::kWorker));

TEST_P(ConfinementTest, TheMachineAndOtherProcessesAreOutOfReach) {
  EXPECT_TRUE(holds_in_child(GetParam(), [] {
    char byte = 0;
    iovec part{&byte, 1};
    const pid_t parent = getppid();
    return refused(ptrace(PTRACE_ATTACH, parent, nullptr, nullptr)) &&
           refused(syscall(SYS_process_vm_readv, parent, &part, 1, &part, 1, 0)) &&
           refused(syscall(SYS_process_vm_writev, parent, &part, 1, &part, 1, 0)) &&
           refused(syscall(SYS_pidfd_getfd, 0, 0, 0)) && refused(unshare(CLONE_NEWUSER)) &&
           refused(syscall(SYS_mount, nullptr, "/nowhere", nullptr, 0, nullptr)) &&
           refused(syscall(SYS_bpf, 0, nullptr, 0)) &&
           refused(syscall(SYS_kexec_load, 0, 0, nullptr, 0)) &&
           refused(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, 0, 0, 0, 0)) &&
           refused(syscall(SYS_add_key, "user", "name", "x", 1, 0)) &&
           refused(syscall(SYS_io_uring_setup, 1, nullptr)) &&
           refused(syscall(SYS_perf_event_open, nullptr, 0, 0, 0, 0)) &&
           refused(syscall(SYS_userfaultfd, 0));
  }));
}

TEST_P(ConfinementTest, UsersAreTheDaemonsAndProgramsAreNotTheWorkers) {
  const Role role = GetParam();
  // Not setuid(), which asks each thread to do it: a sanitizer's have no such right either.
  EXPECT_EQ(holds_in_child(role, [] { return refused(syscall(SYS_setuid, getuid())); }),
            role != Role::kDaemon);
  const bool starts_programs = !holds_in_child(role, [] {
    execl("/bin/false", "false", nullptr);
    return errno == EPERM;
  });
  EXPECT_EQ(starts_programs, role != Role::kWorker);
}

TEST_P(ConfinementTest, TheWorkerHasNoNetwork) {
  const Role role = GetParam();
  EXPECT_EQ(holds_in_child(role, [] { return refused(socket(AF_INET, SOCK_STREAM, 0)); }),
            role == Role::kWorker);
  EXPECT_EQ(holds_in_child(role, [] { return refused(socket(AF_NETLINK, SOCK_RAW, 0)); }),
            role == Role::kWorker);
  EXPECT_TRUE(holds_in_child(role, [] { return socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }));
}

TEST_P(ConfinementTest, ARefusedCallIsNamedOnceInTheLog) {
  std::string log;
  EXPECT_TRUE(holds_in_child(
      GetParam(),
      [] {
        const bool first = refused(unshare(0)) && refused(unshare(0));
        return first && refused(syscall(SYS_userfaultfd, 0));
      },
      &log));
  const std::string expected =
      "The system call unshare " + std::to_string(SYS_unshare) + " was refused";
  const size_t at = log.find(expected);
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find(expected, at + 1), std::string::npos) << log;
  EXPECT_NE(log.find("The system call userfaultfd"), std::string::npos) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
}

TEST_P(ConfinementTest, ThreadsThatWereThereBeforeAreConfinedToo) {
  const UniqueFd file(memfd_create("log", MFD_CLOEXEC));
  const pid_t child = fork();
  if (child == 0) {
    setenv("OPENMPS_CONFINE", "1", 1);
    std::atomic<bool> go{false};
    bool held = false;
    std::thread before([&] {
      while (!go) sched_yield();
      held = refused(unshare(0)) && prctl(PR_GET_SECCOMP) == 2;
    });
    const bool confined = confine(GetParam(), file.get()).ok();
    go = true;
    before.join();
    _exit(confined && held ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_P(ConfinementTest, NoRightsAreGainedAndNobodyLooksIn) {
  const Role role = GetParam();
  EXPECT_TRUE(holds_in_child(role, [] { return prctl(PR_GET_DUMPABLE) == 0; }));
  const bool gains = role == Role::kDaemon && geteuid() == 0;  // it starts servers of other users
  EXPECT_TRUE(holds_in_child(
      role, [&] { return (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) == !gains; }));
}

// The case that all of it is for: a program of the same user.
TEST_P(ConfinementTest, AnotherProcessOfTheUserCanNotReadItsMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  for (const bool confined : {false, true}) {
    const pid_t target = fork();
    if (target == 0) {
      if (setgid(kSomebody) != 0 || setuid(kSomebody) != 0) _exit(2);
      // A change of user gives it up already; a started program has it.
      prctl(PR_SET_DUMPABLE, 1);
      setenv("OPENMPS_CONFINE", confined ? "1" : "0", 1);
      if (!confine(GetParam(), STDERR_FILENO).ok()) _exit(3);
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(target, &status, WUNTRACED), target);
    ASSERT_TRUE(WIFSTOPPED(status));
    const pid_t other = fork();
    if (other == 0) {
      if (setgid(kSomebody) != 0 || setuid(kSomebody) != 0) _exit(2);
      const std::string memory = "/proc/" + std::to_string(target) + "/environ";
      _exit(open(memory.c_str(), O_RDONLY) >= 0 ? 1 : 0);
    }
    ASSERT_EQ(waitpid(other, &status, 0), other);
    EXPECT_EQ(WEXITSTATUS(status), confined ? 0 : 1);
    EXPECT_EQ(kill(target, SIGKILL), 0);
    ASSERT_EQ(waitpid(target, &status, 0), target);
  }
}

TEST(Confinement, ADebuggersProcessIsLeftAsItIs) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("OPENMPS_CONFINE", "0", 1);
    const bool ok = confine(Role::kWorker, STDERR_FILENO).ok() && prctl(PR_GET_SECCOMP) == 0 &&
                    prctl(PR_GET_DUMPABLE) == 1;
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace openmps
