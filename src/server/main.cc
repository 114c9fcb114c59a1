// SPDX-License-Identifier: Apache-2.0
// openmps-server: started by openmps-control with its end of a socket pair as --control-fd, the
// place where daemons listen as --control-socket, and server.log as standard error. Never started
// by hand.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/confinement.h"
#include "base/environment.h"
#include "base/inherited.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "server/server.h"
#include "wire/kept.h"

namespace openmps::server {
namespace {

// The largest OPENMPS_DRAIN_SECONDS.
constexpr uint64_t kMostDrainSeconds = 3600;

uint64_t drain_ms(const Log& log) {
  const std::string text = environment_or("OPENMPS_DRAIN_SECONDS", "");
  if (text.empty()) return kDrainMs;
  const auto seconds = parse_unsigned(text, kMostDrainSeconds);
  if (seconds && *seconds != 0) return *seconds * 1000;
  log.write(format_text("OPENMPS_DRAIN_SECONDS=%s is not a number from 1 to %llu: ignored",
                        printable(text).c_str(),
                        static_cast<unsigned long long>(kMostDrainSeconds)));
  return kDrainMs;
}

int fail(const std::string& reason) {
  fprintf(stderr, "openmps-server: %s\n", reason.c_str());
  return 1;
}

// Called once before the first client is served: at the start, or after the first worker has set up
// the kernel driver.
class Confined {
 public:
  explicit Confined(const Log& log) : log_(log) {}
  void now() {
    if (std::exchange(done_, true)) return;
    const Status status = confine(Role::kServer, STDERR_FILENO);
    if (!status.ok()) log_.write("The server is not confined: " + status.message());
  }

 private:
  const Log& log_;
  bool done_ = false;
};

// OPENMPS_SPARE=auto|on|off.
Spare choose_spare(const Log& log) {
  const std::string wish = environment_or("OPENMPS_SPARE", "auto");
  if (wish == "on") return Spare::kOn;
  if (wish == "off") return Spare::kOff;
  if (wish != "auto") {
    log.write("OPENMPS_SPARE=" + printable(wish) + " is neither auto, on nor off: ignored");
  }
  return Spare::kAuto;
}

// OPENMPS_QUARANTINE=on|off.
bool choose_quarantine(const Log& log) {
  const std::string wish = environment_or("OPENMPS_QUARANTINE", "on");
  if (wish != "on" && wish != "off") {
    log.write("OPENMPS_QUARANTINE=" + printable(wish) + " is neither on nor off: ignored");
  }
  return wish != "off";
}

// OPENMPS_GPU_DOMAINS=on|off.
bool choose_gpu_domains(const Log& log) {
  const std::string wish = environment_or("OPENMPS_GPU_DOMAINS", "on");
  if (wish != "on" && wish != "off") {
    log.write("OPENMPS_GPU_DOMAINS=" + printable(wish) + " is neither on nor off: ignored");
  }
  return wish != "off";
}

int run(int control_fd, const std::string& control_socket, const std::string& name) {
  UniqueFd daemon(fcntl(control_fd, F_DUPFD_CLOEXEC, 10));
  if (!daemon.valid()) {
    return fail(format_text("--control-fd %d: %s", control_fd, strerror(errno)));
  }
  close(control_fd);
  const uint64_t most_kept = wire::most_kept(raise_open_files_limit(wire::kMostOpenFiles));
  const Log log("Server", UniqueFd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10)));
  log.write("OpenMPS server " OPENMPS_VERSION);
  report_refused_calls(STDERR_FILENO);
  Confined confined(log);
  if (driver_is_set_up()) confined.now();

  Result<std::string> here = program_directory();
  if (!here.ok()) return fail(here.status().message());
  EventLoop loop;
  Server server(loop, log,
                ServerOptions{.worker = {.program = *here + "/openmps-worker",
                                         .driver = environment_or("OPENMPS_DRIVER", "auto"),
                                         .spare = choose_spare(log)},
                              .name = name,
                              .control_socket = control_socket,
                              .drain_ms = drain_ms(log),
                              .has_quarantine = choose_quarantine(log),
                              .has_gpu_domains = choose_gpu_domains(log),
                              .most_kept = most_kept,
                              .on_worker_ready = [&] { confined.now(); }});
  Status status = loop.open();
  if (status.ok()) {
    status = loop.watch_signals({SIGTERM, SIGINT, SIGHUP}, [&](int signal) {
      log.write(format_text("Signal %d: the server ends", signal));
      server.force_stop();
    });
  }
  if (status.ok()) status = server.start(std::move(daemon));
  if (status.ok()) status = loop.run();
  if (!status.ok()) {
    log.write("MPS server failed: " + status.message());
    return 1;
  }
  return server.exit_status();
}

}  // namespace
}  // namespace openmps::server

int main(int argc, char** argv) {
  openmps::forget_starter();
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--version" || first == "-v") {
    printf("OpenMPS server %s. Binary version: 13000\n", OPENMPS_VERSION);
    return 0;
  }
  const bool ours = argc == 7 && first == "--control-fd" &&
                    std::string_view(argv[3]) == "--control-socket" &&
                    std::string_view(argv[5]) == "--name";
  const auto fd = ours ? openmps::parse_unsigned(argv[2], 1 << 20) : std::nullopt;
  if (!fd) {
    fprintf(stderr,
            "openmps-server is started by openmps-control when a client comes, not by hand.\n"
            "Start the daemon with: openmps-control -d\n");
    return 1;
  }
  return openmps::server::run(static_cast<int>(*fd), argv[4], argv[6]);
}
