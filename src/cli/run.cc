// SPDX-License-Identifier: Apache-2.0
// `openmps run`: environment, daemon, exec.
#include "cli/run.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <string_view>

#include "base/clock.h"
#include "base/environment.h"
#include "base/subprocess.h"
#include "base/unique_fd.h"
#include "base/unix_socket.h"
#include "cli/installation.h"
#include "wire/daemon_search.h"

namespace openmps::cli {
namespace {

// "" if a daemon answers; else why not.
std::string why_no_daemon() {
  const auto [directory, daemon] = wire::find_daemon();
  if (daemon.ok()) return "";
  return daemon.status().code() == CUDA_ERROR_NOT_PERMITTED ? daemon.status().message()
                                                            : "no daemon serves " + directory;
}

// How long another `openmps run --start` has to bring up the daemon that it was the first to start.
constexpr int kOthersStartMs = 5'000;

// What openmps-control says then, in the words of NVIDIA's daemon.
constexpr const char* kAlreadyRunning = "already running";

// Whether a daemon answers, now or soon.
bool has_daemon_soon() {
  constexpr int kLookMs = 10;
  const timespec pause{0, kLookMs * static_cast<long>(kNsPerMs)};
  for (int waited_ms = 0; waited_ms < kOthersStartMs; waited_ms += kLookMs) {
    if (why_no_daemon().empty()) return true;
    nanosleep(&pause, nullptr);
  }
  return false;
}

std::string read_all(int file) {
  std::string all;
  char text[4096];
  lseek(file, 0, SEEK_SET);
  for (ssize_t bytes; (bytes = read(file, text, sizeof(text))) > 0;) {
    all.append(text, static_cast<size_t>(bytes));
  }
  return all;
}

// False: the daemon could not be started, and what it says is on standard error.
bool start_daemon(const Installation& installation) {
  // Several ranks that start at once start one daemon. What the others' attempts say is nothing for
  // the output of the program.
  const UniqueFd said(memfd_create("openmps-start", MFD_CLOEXEC));
  if (!said.valid()) {
    fprintf(stderr, "openmps: memfd_create: %s\n", strerror(errno));
    return false;
  }
  SpawnOptions options;
  options.program = installation.control_program;
  options.arguments = {"-d"};
  options.fds = {{said.get(), 1}, {said.get(), 2}};
  Result<pid_t> pid = spawn(options);
  if (!pid.ok()) {
    fprintf(stderr, "openmps: %s\n", pid.status().message().c_str());
    return false;
  }
  int status = 0;
  // With SIGCHLD ignored, which the program has to inherit, there is no status, only the end.
  const bool is_told = waitpid(pid.value(), &status, 0) == pid.value();
  if ((is_told && WIFEXITED(status) && WEXITSTATUS(status) == 0) || why_no_daemon().empty()) {
    return true;
  }
  const std::string text = read_all(said.get());
  // The one that was first holds the directory, and may not listen yet.
  if (text.find(kAlreadyRunning) != std::string::npos && has_daemon_soon()) return true;
  fputs(text.c_str(), stderr);
  return false;
}

// Tools of NVIDIA's that work inside of the driver of the process that they start, or stop its
// kernels. Behind OpenMPS the kernels are in another process, beside those of others.
bool is_native_tool(std::string_view program) {
  constexpr std::string_view kTools[] = {"ncu",    "nsys",          "compute-sanitizer", "cuda-gdb",
                                         "nvprof", "cuda-memcheck", "nsight-compute"};
  program.remove_prefix(program.rfind('/') + 1);
  return std::ranges::find(kTools, program) != std::end(kTools);
}

// What a native tool runs finds the plain driver: our folder goes from the path.
std::string without(const std::string& folder, std::string_view path) {
  std::string rest;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string_view one = path.substr(begin, end - begin);
    if (one != folder) rest += (rest.empty() ? "" : ":") + std::string(one);
    begin = end + 1;
  }
  return rest;
}

// The libraries come first, whatever path the program's own have: PyTorch's look for CUPTI beside
// themselves. A program takes the one that is of its toolkit's version. False: they are not there.
bool preload_cupti(const Installation& installation) {
  std::string libraries = environment_or("LD_PRELOAD", "");
  for (const char* name : {"/cupti/libcupti.so.12", "/cupti/libcupti.so.13"}) {
    const std::string library = installation.client_directory + name;
    if (access(library.c_str(), R_OK) != 0) {
      fprintf(stderr, "openmps: --profile: %s: %s\n", library.c_str(), strerror(errno));
      return false;
    }
    libraries = library + (libraries.empty() ? "" : ":" + libraries);
  }
  setenv("LD_PRELOAD", libraries.c_str(), 1);
  return true;
}

// Replaces this process. Returns the exit status of a shell that can't.
int execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  fprintf(stderr, "openmps: %s: %s\n", argv[0], strerror(error));
  return error == ENOENT ? 127 : 126;
}

}  // namespace

int run_program(const RunOptions& options) {
  Result<Installation> installation = find_installation();
  if (!installation.ok()) {
    fprintf(stderr, "openmps: %s\n", installation.status().message().c_str());
    return 1;
  }
  if (const std::string why = why_not_loadable(installation->client_library); !why.empty()) {
    fprintf(stderr, "openmps: programs can't load the client library: %s\n", why.c_str());
    return 1;
  }
  const std::string before = environment_or("LD_LIBRARY_PATH", "");
  if (is_native_tool(options.command.front())) {
    const bool is_required = options.required || wire::requires_daemon();
    fprintf(stderr, "openmps: %s works inside of NVIDIA's driver: %s\n",
            options.command.front().c_str(),
            is_required ? "not running it without OpenMPS"
                        : "the program runs on it, and not behind OpenMPS");
    if (is_required) return 1;
    setenv("LD_LIBRARY_PATH", without(installation->client_directory, before).c_str(), 1);
    return execute(options.command);
  }
  if (const std::string why = why_no_daemon(); !why.empty()) {
    if (options.start) {
      if (!start_daemon(*installation)) return 1;
    } else {
      fprintf(stderr, "openmps: %s; %s. Start one with: %s -d\n", why.c_str(),
              options.required ? "not running the program" : "running the program without OpenMPS",
              installation->control_program.c_str());
      if (options.required) return 1;
    }
  }
  const std::string path = before.empty() ? installation->client_directory
                                          : installation->client_directory + ":" + before;
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  if (options.required) setenv("OPENMPS_REQUIRED", "1", 1);
  if (options.profile && !preload_cupti(*installation)) return 1;
  return execute(options.command);
}

}  // namespace openmps::cli
