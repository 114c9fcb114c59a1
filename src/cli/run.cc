// SPDX-License-Identifier: Apache-2.0
// `openmps run`: environment, daemon, exec.
#include "cli/run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/environment.h"
#include "base/subprocess.h"
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

// False: the daemon could not be started, and has printed why.
bool start_daemon(const Installation& installation) {
  SpawnOptions options;
  options.program = installation.control_program;
  options.arguments = {"-d"};
  options.fds = {{1, 1}, {2, 2}};
  Result<pid_t> pid = spawn(options);
  if (!pid.ok()) {
    fprintf(stderr, "openmps: %s\n", pid.status().message().c_str());
    return false;
  }
  int status = 0;
  // With SIGCHLD ignored, which the program has to inherit, there is no status, only the end.
  const bool is_told = waitpid(pid.value(), &status, 0) == pid.value();
  // Another `openmps run --start` may have started one first.
  return (is_told && WIFEXITED(status) && WEXITSTATUS(status) == 0) || why_no_daemon().empty();
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
  const std::string before = environment_or("LD_LIBRARY_PATH", "");
  const std::string path = before.empty() ? installation->client_directory
                                          : installation->client_directory + ":" + before;
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  if (options.required) setenv("OPENMPS_REQUIRED", "1", 1);
  std::vector<char*> argv;
  for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  fprintf(stderr, "openmps: %s: %s\n", argv[0], strerror(error));
  return error == ENOENT ? 127 : 126;
}

}  // namespace openmps::cli
