// SPDX-License-Identifier: Apache-2.0
// Giving up rights, over prctl, libseccomp and Landlock. See confinement.h.
#include "base/confinement.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "base/environment.h"
#include "base/unique_fd.h"

namespace openmps {
namespace {

// Looking into other processes, and changing them.
constexpr const char* kOtherProcesses[] = {
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"};

// Changing the machine. Most need root, which a daemon may be; all of them have been ways to become
// it.
constexpr const char* kMachine[] = {"acct",
                                    "add_key",
                                    "adjtimex",
                                    "bpf",
                                    "clock_adjtime",
                                    "clock_settime",
                                    "delete_module",
                                    "fanotify_init",
                                    "finit_module",
                                    "fsconfig",
                                    "fsmount",
                                    "fsopen",
                                    "fspick",
                                    "init_module",
                                    "io_uring_enter",
                                    "io_uring_register",
                                    "io_uring_setup",
                                    "ioperm",
                                    "iopl",
                                    "kexec_file_load",
                                    "kexec_load",
                                    "keyctl",
                                    "lookup_dcookie",
                                    "modify_ldt",
                                    "mount",
                                    "mount_setattr",
                                    "move_mount",
                                    "nfsservctl",
                                    "open_by_handle_at",
                                    "open_tree",
                                    "perf_event_open",
                                    "pivot_root",
                                    "quotactl",
                                    "quotactl_fd",
                                    "reboot",
                                    "request_key",
                                    "setdomainname",
                                    "sethostname",
                                    "setns",
                                    "settimeofday",
                                    "swapoff",
                                    "swapon",
                                    "syslog",
                                    "umount2",
                                    "unshare",
                                    "uselib",
                                    "userfaultfd",
                                    "vhangup",
                                    "vmsplice"};

// Flags of clone() that make namespaces: a new user namespace has all rights in itself, and with
// them parts of the kernel that are out of reach without. CLONE_NEWTIME is unshare()'s and
// clone3()'s only.
constexpr unsigned kNamespaces[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                    CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};

// Becoming another user: the daemon's alone, when it starts a user's server.
constexpr const char* kUsers[] = {"capset",    "chroot",    "setfsgid", "setfsuid",
                                  "setgid",    "setgroups", "setregid", "setresgid",
                                  "setresuid", "setreuid",  "setuid"};

// Starting programs: a worker, which has everything loaded that it needs, starts none.
constexpr const char* kPrograms[] = {"execve", "execveat"};

// Numbers of system calls on x86-64 end below 512, where those of the x32 ABI begin.
constexpr int kCalls = 512;

struct Refusals {
  int log_fd = -1;
  const char* names[kCalls] = {};  // filled before the first can come
  std::atomic<bool> seen[kCalls] = {};
};
Refusals g_refusals;

void append(char* line, size_t size, const char* text) {
  strncat(line, text, size - strlen(line) - 1);
}

void append_number(char* line, size_t size, int number) {
  char digits[12];
  char* at = digits + sizeof(digits) - 1;
  *at = '\0';
  do {
    *--at = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  append(line, size, at);
}

// SIGSYS, on the thread that called: EPERM, and one line for each call. Only what a handler may
// use.
void on_refused_call(int, siginfo_t* info, void* context) {
  auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RAX] = -EPERM;
  const int number = info->si_syscall;
  if (number < 0 || number >= kCalls || g_refusals.seen[number].exchange(true)) return;
  const int error = errno;
  char line[160] = "The system call ";
  const char* name = g_refusals.names[number];
  append(line, sizeof(line), name != nullptr ? name : "of number");
  append(line, sizeof(line), " ");
  append_number(line, sizeof(line), number);
  append(line, sizeof(line), " was refused to process ");
  append_number(line, sizeof(line), getpid());
  append(line, sizeof(line), ": docs/security.md, OPENMPS_CONFINE\n");
  const ssize_t written = write(g_refusals.log_fd, line, strlen(line));
  (void)written;
  errno = error;
}

bool wanted() {
  const char* choice = environment_variable("OPENMPS_CONFINE");
  if (choice != nullptr && *choice != '\0') return strcmp(choice, "0") != 0;
#ifdef OPENMPS_SANITIZED
  return false;  // their run time looks into its own process
#else
  return true;
#endif
}

Status failed(const char* what, int error) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string(what) + ": " + strerror(error));
}

class Filter {
 public:
  Filter() : context_(seccomp_init(SCMP_ACT_ALLOW)) {}
  ~Filter() {
    if (context_ != nullptr) seccomp_release(context_);
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  void refuse(std::span<const char* const> names) {
    for (const char* name : names) {
      const int number = seccomp_syscall_resolve_name(name);
      // Unknown to this libseccomp, or not there on this architecture.
      if (number >= 0) keep(seccomp_rule_add(context_, SCMP_ACT_TRAP, number, 0));
    }
  }
  void refuse_sockets_but_unix() {
    for (const int call : {SCMP_SYS(socket), SCMP_SYS(socketpair)}) {
      keep(seccomp_rule_add(context_, SCMP_ACT_TRAP, call, 1, SCMP_A0(SCMP_CMP_NE, AF_UNIX)));
    }
  }
  void refuse_namespaces() {
    for (const unsigned flag : kNamespaces) {
      keep(seccomp_rule_add(context_, SCMP_ACT_TRAP, SCMP_SYS(clone), 1,
                            SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag)));
    }
    // Its flags are in memory, which a filter can't look at. glibc takes clone() then.
    keep(seccomp_rule_add(context_, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0));
  }
  // 0, or a negative errno.
  int load() {
    if (context_ == nullptr) return -ENOMEM;
    // All threads, those of the driver too.
    keep(seccomp_attr_set(context_, SCMP_FLTATR_CTL_TSYNC, 1));
    // Up to Linux 5.15 a filter turns speculative stores off; nothing here runs another's code.
    keep(seccomp_attr_set(context_, SCMP_FLTATR_CTL_SSB, 1));
    // no_new_privs is ours to set: a daemon of root's does without.
    keep(seccomp_attr_set(context_, SCMP_FLTATR_CTL_NNP, 0));
    return error_ == 0 ? seccomp_load(context_) : error_;
  }

 private:
  void keep(int result) {
    if (error_ == 0 && result < 0) error_ = result;
  }
  scmp_filter_ctx context_;
  int error_ = 0;
};

// Landlock, by the kernel's numbers: headers may be older than the kernel. A process in a domain of
// its own looks into no process outside (memory, descriptors, environment: whatever asks for the
// right to trace it), whoever it is. A domain has to restrict files, too: it makes no device files,
// which none of ours does.
constexpr long kLandlockCreateRuleset = 444;
constexpr long kLandlockAddRule = 445;
constexpr long kLandlockRestrictSelf = 446;
// The first that lets files be renamed from one directory to another (Linux 5.19).
constexpr long kLandlockNeeded = 2;
constexpr uint64_t kMakeCharacterDevice = 1 << 6;
constexpr uint64_t kMakeBlockDevice = 1 << 11;
constexpr uint64_t kRefer = 1 << 13;

struct [[gnu::packed]] LandlockPath {
  uint64_t allowed = 0;
  int32_t parent = -1;
};

Status enter_domain() {
  const uint64_t handled = kMakeCharacterDevice | kMakeBlockDevice | kRefer;
  const UniqueFd rules(
      static_cast<int>(syscall(kLandlockCreateRuleset, &handled, sizeof(handled), 0)));
  if (!rules.valid()) return failed("landlock_create_ruleset", errno);
  // What is not said of renaming is refused everywhere.
  const UniqueFd root(open("/", O_PATH | O_CLOEXEC));
  const LandlockPath everywhere{kRefer, root.get()};
  if (syscall(kLandlockAddRule, rules.get(), 1 /* path beneath */, &everywhere, 0) != 0) {
    return failed("landlock_add_rule", errno);
  }
  if (syscall(kLandlockRestrictSelf, rules.get(), 0) != 0) {
    return failed("landlock_restrict_self", errno);
  }
  return Status();
}

}  // namespace

void report_refused_calls(int log_fd) {
  g_refusals.log_fd = log_fd;
  for (int i = 0; i < kCalls; ++i) {
    // Never freed: the handler reads them to the end.
    if (g_refusals.names[i] == nullptr) {
      g_refusals.names[i] = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, i);
    }
  }
  struct sigaction action {};
  action.sa_sigaction = on_refused_call;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGSYS, &action, nullptr);
}

bool driver_is_set_up() {
  return access("/dev/nvidia-uvm", F_OK) == 0 || access("/usr/bin/nvidia-modprobe", X_OK) != 0;
}

Status confine(Role role, int log_fd) {
  if (!wanted()) return Status();
  report_refused_calls(log_fd);
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return failed("PR_SET_DUMPABLE", errno);
  // Root's daemon may install a filter without; its servers of other users set it themselves.
  if (role != Role::kDaemon || geteuid() != 0) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("PR_SET_NO_NEW_PRIVS", errno);
  }
  Filter filter;
  filter.refuse(kOtherProcesses);
  filter.refuse(kMachine);
  filter.refuse_namespaces();
  if (role != Role::kDaemon) {
    filter.refuse(kUsers);
    filter.refuse_sockets_but_unix();
  }
  if (role == Role::kWorker) filter.refuse(kPrograms);
  int loaded = filter.load();
  // Root of a container, without CAP_SYS_ADMIN.
  if (loaded == -EACCES && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) loaded = filter.load();
  if (loaded != 0) return failed("the filter of system calls", -loaded);
  return keep_to_itself(log_fd);
}

Status keep_to_itself(int log_fd) {
  static bool done = false;
  if (!wanted() || std::exchange(done, true)) return Status();
  const long version =
      syscall(kLandlockCreateRuleset, nullptr, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
  if (version < kLandlockNeeded) {
    dprintf(
        log_fd,
        "Linux's Landlock is not there (version %ld): process %d could look into other processes "
        "of its user by /proc\n",
        std::max(0L, version), getpid());
    return Status();
  }
  return enter_domain();
}

}  // namespace openmps
