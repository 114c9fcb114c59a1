// SPDX-License-Identifier: Apache-2.0
// Starting another program of ours, over fork and exec.
#include "base/subprocess.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/text.h"
#include "base/unique_fd.h"

namespace openmps {
namespace {

// Descriptors that the child keeps are first moved above every number that they may be given.
constexpr int kAboveTargets = 32;

// What went wrong in the child, sent to the parent over a pipe that a successful exec closes.
struct ChildFailure {
  int step = 0;
  int error = 0;
};
enum Step { kStepFds = 1, kStepUser, kStepParentGone, kStepExec };

const char* step_name(int step) {
  switch (step) {
    case kStepFds: return "passing descriptors";
    case kStepUser: return "changing the user";
    case kStepParentGone: return "the parent has ended";
    default: return "exec";
  }
}

// A copy above every number that a child is given. Where there are no such numbers, because few
// files may be open, there are too many: the system calls that an invalid argument.
int copy_above(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, kAboveTargets);
  if (copy < 0 && errno == EINVAL) errno = EMFILE;
  return copy;
}

[[noreturn]] void fail_child(int pipe, Step step) {
  const ChildFailure failure{step, errno};
  const ssize_t written = write(pipe, &failure, sizeof(failure));
  (void)written;
  _exit(127);
}

void become_user(const SpawnOptions& options, int failure_pipe) {
  if (!options.uid) return;
  const passwd* user = getpwuid(*options.uid);
  const gid_t gid = options.gid;
  const bool groups_set =
      user != nullptr ? initgroups(user->pw_name, gid) == 0 : setgroups(1, &gid) == 0;
  if (!groups_set || setgid(gid) != 0 || setuid(*options.uid) != 0) {
    fail_child(failure_pipe, kStepUser);
  }
  // The driver keeps caches under HOME.
  if (user != nullptr) setenv("HOME", user->pw_dir, 1);
}

void place_fds(const SpawnOptions& options, int failure_pipe) {
  std::vector<std::pair<int, int>> wanted = options.fds;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int standard = 0; standard <= 2; ++standard) {
    const bool named = std::any_of(wanted.begin(), wanted.end(),
                                   [&](const auto& entry) { return entry.second == standard; });
    if (!named) wanted.emplace_back(null, standard);
  }
  for (auto& [from, to] : wanted) {
    from = copy_above(from);
    if (from < 0) fail_child(failure_pipe, kStepFds);
  }
  for (const auto& [from, to] : wanted) {
    if (dup2(from, to) < 0) fail_child(failure_pipe, kStepFds);
  }
}

[[noreturn]] void run_child(const SpawnOptions& options, char* const* argv, pid_t parent,
                            int failure_pipe) {
  const int above = copy_above(failure_pipe);
  if (above < 0) fail_child(failure_pipe, kStepFds);
  failure_pipe = above;
  if (options.new_session) setsid();
  place_fds(options, failure_pipe);
  become_user(options, failure_pipe);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  // After the change of user, which clears it.
  if (options.die_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) fail_child(failure_pipe, kStepParentGone);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(options.program.c_str(), argv);
  fail_child(failure_pipe, kStepExec);
}

}  // namespace

Result<pid_t> spawn(const SpawnOptions& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string("pipe: ") + strerror(errno));
  }
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  std::vector<char*> argv{const_cast<char*>(options.program.c_str())};
  for (const std::string& argument : options.arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string("fork: ") + strerror(errno));
  }
  if (pid == 0) run_child(options, argv.data(), parent, writer.get());
  writer.reset();
  ChildFailure failure;
  ssize_t got = 0;
  do {
    got = read(reader.get(), &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof(failure))) return pid;
  (void)waitpid(pid, nullptr, 0);
  return Status(CUDA_ERROR_OPERATING_SYSTEM,
                format_text("starting %s: %s: %s", options.program.c_str(), step_name(failure.step),
                            strerror(failure.error)));
}

Result<std::string> program_directory() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0 || length == static_cast<ssize_t>(sizeof(path))) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM,
                  std::string("reading /proc/self/exe: ") + strerror(errno));
  }
  const std::string_view whole(path, static_cast<size_t>(length));
  return std::string(whole.substr(0, whole.rfind('/')));
}

unsigned long raise_open_files_limit(unsigned long wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t before = limit.rlim_cur;
  const rlim_t target = std::min<rlim_t>(limit.rlim_max, wanted);
  if (before >= target) return before;
  limit.rlim_cur = target;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? target : before;
}

void close_inherited_descriptors(int first) {
  // Linux 5.9; on older kernels the descriptors stay, as they would in any program.
  (void)syscall(SYS_close_range, static_cast<unsigned>(first), ~0u, 0u);
}

std::string describe_exit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return format_text("was killed by signal %d (%s)", WTERMSIG(wait_status),
                       strsignal(WTERMSIG(wait_status)));
  }
  return format_text("exited with status %d", WEXITSTATUS(wait_status));
}

std::string describe_state(pid_t pid) {
  // Behind the name, which may have any character.
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  const bool is_read = name_end != std::string::npos && name_end + 2 < text.size();
  switch (is_read ? text[name_end + 2] : '?') {
    case 'T': return "stopped by a signal";
    case 't': return "stopped by a debugger";
    case 'D': return "stuck in a system call";
    case 'Z': return "gone";
    default: return "hanging";
  }
}

}  // namespace openmps
