// SPDX-License-Identifier: Apache-2.0
// Starting the control daemon: the starter makes the directory and takes the lock; the daemon
// process does the rest and reports over a pipe when it accepts connections.
#include "control/daemon_start.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/confinement.h"
#include "base/inherited.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "control/config.h"
#include "control/daemon.h"
#include "control/log_files.h"
#include "control/pipe_directory.h"
#include "control/service_manager.h"
#include "wire/daemon_search.h"
#include "wire/layout.h"

namespace openmps::control {
namespace {

constexpr unsigned long kWantedOpenFiles = 65536;  // servers and workers inherit it
// The daemon itself uses about 16 descriptors, and those for a new server have numbers above 32
// (base/subprocess.cc). With fewer the daemon could listen and not answer.
constexpr unsigned long kLeastOpenFiles = 48;
constexpr char kStarted = 'R';  // what the background process reports: all well

// For scripts that look for servers by their name (cmake/OpenmpsCompat.cmake).
constexpr const char* kServerByNvidiasName = "/../lib/openmps/compat/bin/nvidia-cuda-mps-server";

int fail(const std::string& reason) {
  fprintf(stderr, "openmps-control: %s\n", reason.c_str());
  return 1;
}

// To the byte what NVIDIA's daemon says.
int already_runs() {
  printf("An instance of this daemon is already running\n");
  return 1;
}

// Opens the logs in the log directory, or in the pipe directory if the first can't be written, with
// a message.
Status open_logs(const std::string& wanted, const std::string& fallback, LogFiles* logs) {
  const Status opened = logs->open(wanted);
  if (opened.ok()) return Status();
  OPENMPS_RETURN_IF_ERROR(logs->open(fallback));
  fprintf(stderr, "openmps-control: no logs in %s (%s); writing them to %s\n", wanted.c_str(),
          opened.message().c_str(), fallback.c_str());
  return Status();
}

void announce(const Log& log, const PipeDirectory& directory) {
  log.write("Starting control daemon using socket " + directory.socket_path());
  log.write("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=" +
            directory.path());
  log.write("OpenMPS control " OPENMPS_VERSION ", CUDA MPS Control binary version: 13000");
}

// As NVIDIA's daemon in the foreground: the end of its standard input ends it, and so does the word
// "quit" there. /dev/null, which service managers give, does not.
void quit_with_input(EventLoop& loop, Daemon& daemon) {
  struct stat info {};
  const bool is_stream =
      fstat(STDIN_FILENO, &info) == 0 &&
      (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) || isatty(STDIN_FILENO) != 0);
  if (!is_stream) return;
  (void)loop.watch(STDIN_FILENO, EPOLLIN, [&loop, &daemon](uint32_t) {
    char text[256];
    const ssize_t got = read(STDIN_FILENO, text, sizeof(text));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    const std::string_view words(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got > 0 && words.find("quit") == std::string_view::npos) return;
    loop.forget(STDIN_FILENO);
    daemon.on_signal(SIGTERM);
  });
}

// What the starter passes to the daemon process.
struct Start {
  Config config;
  ServiceManager manager;
  PipeDirectory directory;
  LogFiles logs;
};

// Runs the daemon, in its process. `report` tells the starter the outcome: "" for success.
int run(const DaemonOptions& options, Start start,
        const std::function<void(const std::string&)>& report) {
  ServiceManager& manager = start.manager;
  PipeDirectory& directory = start.directory;
  LogFiles& logs = start.logs;
  Log log("Control", logs.control());
  log.count_repeats();
  Result<std::string> here = program_directory();
  EventLoop loop;
  Status status = here.status();
  if (status.ok()) status = loop.open();
  if (!status.ok()) {
    directory.remove_entries();
    report(status.message());
    return 1;
  }
  const UniqueFd refusals = logs.control();
  bool confined_once = false;
  const auto confine_once = [&] {
    if (std::exchange(confined_once, true)) return;
    const Status confined = confine(Role::kDaemon, refusals.get());
    if (!confined.ok()) log.write("The daemon is not confined: " + confined.message());
  };
  Daemon daemon(loop, log, directory,
                *here + (options.nvidia_names ? kServerByNvidiasName : "/openmps-server"),
                logs.server());
  if (options.static_partitions) daemon.require_partitions();
  if (options.multiuser) daemon.serve_everybody();
  status =
      loop.watch_signals({SIGTERM, SIGINT, SIGHUP}, [&](int signal) { daemon.on_signal(signal); });
  if (status.ok()) status = logs.watch(loop);
  if (status.ok()) {
    Result<UniqueFd> socket = manager.has_socket() ? directory.use_socket(manager.take_socket())
                                                   : directory.open_socket();
    status = socket.ok() ? daemon.start(std::move(socket).value()) : socket.status();
  }
  if (!status.ok()) {
    directory.remove_entries();
    report(status.message());
    return 1;
  }
  if (driver_is_set_up()) {
    confine_once();
  } else {
    daemon.on_server_ready(confine_once);
  }
  announce(log, directory);
  if (!options.config.empty()) daemon.configure(options.config, std::move(start.config));
  if (options.ready_devices) daemon.prepare_devices();
  if (options.reads_input) quit_with_input(loop, daemon);
  report("");
  daemon.on_quit([&manager] { manager.notify("STOPPING=1"); });
  manager.notify("READY=1");
  manager.keep_watchdog(loop);
  status = loop.run();
  if (!status.ok()) {
    log.write("The control daemon failed: " + status.message());
    directory.remove_entries();
    return 1;
  }
  log.write("Exit with status 0");
  return 0;
}

void detach_from_terminal() {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int standard = 0; standard <= 2; ++standard) dup2(null.get(), standard);
  // Leave the current directory, so that its file system can be unmounted.
  if (chdir("/") != 0) return;
}

int run_in_background(const DaemonOptions& options, Start start) {
  const auto give_up = [&](const std::string& reason) {
    start.directory.remove_entries();
    return fail(reason);
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return give_up(std::string("pipe: ") + strerror(errno));
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = fork();
  if (child < 0) return give_up(std::string("fork: ") + strerror(errno));
  if (child == 0) {
    reader.reset();
    setsid();
    return run(options, std::move(start), [&](const std::string& error) {
      const std::string text = error.empty() ? std::string(1, kStarted) : error;
      const ssize_t written = write(writer.get(), text.data(), text.size());
      (void)written;  // a starter that was killed does not stop the daemon
      writer.reset();
      if (error.empty()) detach_from_terminal();
    });
  }
  writer.reset();
  std::string text;
  char buffer[512];
  ssize_t got = 0;
  while ((got = read(reader.get(), buffer, sizeof(buffer))) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  if (text.size() == 1 && text.front() == kStarted) return 0;
  int status = 0;
  (void)waitpid(child, &status, 0);
  return give_up(text.empty() ? "the daemon ended while it started: " + describe_exit(status)
                              : text);
}

}  // namespace

int start_daemon(DaemonOptions options) {
  Start start;
  const Status passed = start.manager.read_environment();
  close_inherited_descriptors(start.manager.has_socket() ? 4 : 3);
  if (!passed.ok()) return fail(passed.message());
  if (!options.config.empty()) {
    // An absolute path, because reload reads the file after the daemon has left this directory.
    std::error_code error;
    options.config = std::filesystem::absolute(options.config, error).string();
    if (error) return fail("the configuration is below the current directory: " + error.message());
    Result<Config> read = read_config(options.config);
    if (!read.ok()) return fail(read.status().message());
    start.config = std::move(read).value();
    if (const Status fits = check_mode(start.config, options.static_partitions); !fits.ok()) {
      return fail(options.config + ": " + fits.message());
    }
  }
  if (const unsigned long open = raise_open_files_limit(kWantedOpenFiles); open < kLeastOpenFiles) {
    return fail(format_text("at most %lu files may be open, %lu are needed (ulimit -n)", open,
                            kLeastOpenFiles));
  }
  // A session reserves a window of addresses and has a file of that size.
  const Needs needs{.file_bytes = wire::kHostBytes, .address_bytes = wire::kWindowBytes};
  if (const Status raised = raise_limits(needs); !raised.ok()) return fail(raised.message());
  umask(022);
  signal(SIGPIPE, SIG_IGN);
  if (options.is_usual_directory && !start.manager.has_socket()) {
    const std::string other = wire::other_daemon_than(options.pipe_directory);
    if (!other.empty()) {
      (void)fail(other +
                 " has a daemon, which programs find. For one more, which they find only "
                 "by the same variable, set CUDA_MPS_PIPE_DIRECTORY");
      return already_runs();
    }
  }
  PipeDirectory& directory = start.directory;
  if (options.nvidia_names) directory.use_nvidia_names();
  if (const Status taken = directory.take(options.pipe_directory, start.manager.has_socket());
      !taken.ok()) {
    if (taken.code() != CUDA_ERROR_ALREADY_ACQUIRED) return fail(taken.message());
    return already_runs();
  }
  if (const Status opened = open_logs(options.log_directory, directory.path(), &start.logs);
      !opened.ok()) {
    directory.remove_entries();
    return fail(opened.message());
  }
  if (!options.foreground) return run_in_background(options, std::move(start));
  return run(options, std::move(start), [](const std::string& error) {
    if (!error.empty()) (void)fail(error);
  });
}

}  // namespace openmps::control
