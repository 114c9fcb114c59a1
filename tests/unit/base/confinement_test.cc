// SPDX-License-Identifier: Apache-2.0
// What a confined process must not do. Each case runs in a child process, since confinement can't
// be undone.
#include "base/confinement.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/unique_fd.h"

namespace openmps {
namespace {

constexpr uid_t kUser = 65534;  // any user but root

bool refused(long result) { return result == -1 && errno == EPERM; }

// Whether `body` is true in a child process that is confined as `role`. `log` gets the text that
// the child has logged.
bool holds_in_child(Role role, const std::function<bool()>& body, std::string* log = nullptr) {
  const UniqueFd file(memfd_create("log", MFD_CLOEXEC));
  const pid_t child = fork();
  if (child == 0) {
    setenv("OPENMPS_CONFINE", "1", 1);  // sanitizer builds do not confine by default
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

TEST_P(ConfinementTest, OnlyTheDaemonChangesUsersAndTheWorkerStartsNoPrograms) {
  const Role role = GetParam();
  // The system call, because setuid() makes every thread call it, also those of a sanitizer, which
  // may not either.
  EXPECT_EQ(holds_in_child(role, [] { return refused(syscall(SYS_setuid, getuid())); }),
            role != Role::kDaemon);
  const bool starts_programs = !holds_in_child(role, [] {
    execl("/bin/false", "false", nullptr);
    return errno == EPERM;
  });
  EXPECT_EQ(starts_programs, role != Role::kWorker);
}

TEST_P(ConfinementTest, OnlyTheDaemonHasANetwork) {
  const Role role = GetParam();
  for (const int family : {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK}) {
    EXPECT_EQ(holds_in_child(role, [&] { return refused(socket(family, SOCK_RAW, 0)); }),
              role != Role::kDaemon)
        << family;
    EXPECT_EQ(holds_in_child(
                  role, [&] { return refused(syscall(SYS_socketpair, family, SOCK_RAW, 0, 0)); }),
              role != Role::kDaemon)
        << family;
  }
  EXPECT_TRUE(holds_in_child(role, [] {
    int pair[2];
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
  }));
}

// A process has all capabilities in a user namespace that it has made.
TEST_P(ConfinementTest, NoCallMakesANamespace) {
  for (const unsigned flag : {CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWIPC,
                              CLONE_NEWUTS, CLONE_NEWCGROUP}) {
    for (const unsigned others : {0, CLONE_NEWUSER, CLONE_VM | CLONE_VFORK}) {
      EXPECT_TRUE(holds_in_child(GetParam(),
                                 [&] {
                                   const long made =
                                       syscall(SYS_clone, flag | others | SIGCHLD, 0, 0, 0, 0);
                                   if (made == 0) _exit(0);
                                   return refused(made);
                                 }))
          << std::hex << flag << " with " << others;
      EXPECT_TRUE(
          holds_in_child(GetParam(), [&] { return refused(unshare(static_cast<int>(flag))); }));
    }
    EXPECT_TRUE(holds_in_child(GetParam(), [&] {
      clone_args wish{};
      wish.flags = flag;
      wish.exit_signal = SIGCHLD;
      const long made = syscall(SYS_clone3, &wish, sizeof(wish));
      if (made == 0) _exit(0);
      return made == -1 && errno == ENOSYS;
    }));
  }
  EXPECT_TRUE(holds_in_child(GetParam(), [] {
    bool ran = false;
    std::thread([&] { ran = true; }).join();
    const pid_t child = fork();
    if (child == 0) _exit(3);
    int status = 0;
    return ran && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3;
  })) << "threads and processes can still be made";
}

long landlock_version() { return syscall(444 /* landlock_create_ruleset */, nullptr, 0, 1); }

// The entries of a process in /proc that can be opened.
std::string reached(pid_t process) {
  const std::string proc = "/proc/" + std::to_string(process);
  std::string found;
  for (const char* file : {"/mem", "/syscall", "/environ", "/maps"}) {
    const UniqueFd fd(open((proc + file).c_str(), O_RDONLY | O_CLOEXEC));
    char byte = 0;
    if (fd.valid() && (read(fd.get(), &byte, 1) >= 0 || errno == EIO)) found += file;
  }
  for (const char* link : {"/fd/0", "/cwd", "/root", "/exe"}) {
    if (access((proc + link).c_str(), F_OK) == 0) found += link;
  }
  const UniqueFd memory(open((proc + "/mem").c_str(), O_RDWR | O_CLOEXEC));
  if (memory.valid()) found += " /mem to write";
  return found;
}

// A confined process can't reach processes that it has not started by their entries in /proc, not
// even as root, except for the files that Linux shows to processes with CAP_PERFMON.
TEST_P(ConfinementTest, OtherProcessesCanNotBeReachedByProc) {
  if (landlock_version() < 2) GTEST_SKIP() << "this system has no Landlock";
  for (const bool as_root : {false, true}) {
    if (as_root && geteuid() != 0) continue;
    const pid_t child = fork();
    if (child == 0) {
      if (!as_root && geteuid() == 0) {
        if (setgid(kUser) != 0 || setuid(kUser) != 0) _exit(1);
      }
      prctl(PR_SET_DUMPABLE, 1);  // setuid() has cleared it
      const pid_t other = fork();
      if (other == 0) {
        for (;;) pause();
      }
      const bool is_reached = reached(other).ends_with("/exe /mem to write");
      const bool stays_away = holds_in_child(
          GetParam(), [&] { return reached(other) == (as_root ? "/environ/maps" : ""); });
      const bool has_its_own = holds_in_child(GetParam(), [] {
        const UniqueFd own(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
        return (own.valid() || geteuid() != 0) && access("/proc/thread-self/comm", R_OK) == 0;
      });
      kill(other, SIGKILL);
      if (!is_reached) _exit(2);
      if (!stays_away) _exit(3);
      _exit(has_its_own ? 0 : 4);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0) << (as_root ? "root" : "another user");
  }
}

// With Landlock, a confined process still renames files across folders, and makes no device files.
TEST_P(ConfinementTest, FilesAreMadeAndMoved) {
  char pattern[] = "/tmp/openmps-confined-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  const std::string root = pattern;
  EXPECT_TRUE(holds_in_child(GetParam(), [&] {
    const bool made =
        mkdir((root + "/a").c_str(), 0700) == 0 && mkdir((root + "/b").c_str(), 0700) == 0 &&
        UniqueFd(open((root + "/a/x").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)).valid();
    return made && rename((root + "/a/x").c_str(), (root + "/b/y").c_str()) == 0 &&
           link((root + "/b/y").c_str(), (root + "/a/z").c_str()) == 0;
  }));
  if (landlock_version() >= 2) {
    EXPECT_TRUE(holds_in_child(GetParam(), [&] {
      return mknod((root + "/null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0;
    }));
  }
  std::filesystem::remove_all(root);
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
  size_t refusals = 0;
  for (size_t found = 0; (found = log.find("was refused", found)) != std::string::npos; ++found) {
    ++refusals;
  }
  EXPECT_EQ(refusals, 2u) << log;
}

TEST_P(ConfinementTest, ThreadsThatExistAlreadyAreConfinedToo) {
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

TEST_P(ConfinementTest, NoPrivilegesAreGainedAndTheProcessIsNotDumpable) {
  const Role role = GetParam();
  EXPECT_TRUE(holds_in_child(role, [] { return prctl(PR_GET_DUMPABLE) == 0; }));
  // Root's daemon may, since it starts servers of other users.
  const bool gains = role == Role::kDaemon && geteuid() == 0;
  EXPECT_TRUE(holds_in_child(
      role, [&] { return (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) == !gains; }));
}

// What confinement is for: another program of the same user can't read the process's memory.
TEST_P(ConfinementTest, AnotherProcessOfTheUserCanNotReadItsMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  for (const bool confined : {false, true}) {
    const pid_t target = fork();
    if (target == 0) {
      if (setgid(kUser) != 0 || setuid(kUser) != 0) _exit(2);
      // A program is dumpable when it starts; setuid() has cleared that here.
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
      if (setgid(kUser) != 0 || setuid(kUser) != 0) _exit(2);
      const std::string memory = "/proc/" + std::to_string(target) + "/environ";
      _exit(open(memory.c_str(), O_RDONLY) >= 0 ? 1 : 0);
    }
    ASSERT_EQ(waitpid(other, &status, 0), other);
    EXPECT_EQ(WEXITSTATUS(status), confined ? 0 : 1);
    EXPECT_EQ(kill(target, SIGKILL), 0);
    ASSERT_EQ(waitpid(target, &status, 0), target);
  }
}

TEST(Confinement, CanBeSwitchedOffForDebuggers) {
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
