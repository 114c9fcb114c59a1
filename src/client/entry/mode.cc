// SPDX-License-Identifier: Apache-2.0
// The decision between OpenMPS and pass-through, and the library's mark.
#include "client/entry/mode.h"

#include <pthread.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "api/client_hooks.h"
#include "base/environment.h"
#include "base/thread_end.h"
#include "client/debug.h"
#include "client/entry/call_record.h"
#include "client/entry/interop_host.h"
#include "driver/loader.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"

// What the driver loader looks for, so that it never takes this library for a driver.
extern "C" __attribute__((visibility("default"))) const char openmps_library_kind[] = "client";

namespace openmps::client {
namespace {

pthread_once_t g_once = PTHREAD_ONCE_INIT;
constinit CUresult g_mode_error = CUDA_SUCCESS;        // written once, under g_once
constinit const std::string* g_socket_path = nullptr;  // the same

// NVIDIA's tools that work inside of the driver in the program's own process, by what they set in
// its environment (seen with CUDA 13.0). Null: none does.
const char* tool_inside() {
  constexpr std::pair<const char*, const char*> kTools[] = {
      {"NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "ncu"},
      {"NV_SANITIZER_INJECTION_TRANSPORT_TYPE", "compute-sanitizer"}};
  for (const auto& [variable, tool] : kTools) {
    if (environment_variable(variable) != nullptr) return tool;
  }
  return nullptr;
}

// For a person who has started a tool.
void say(const std::string& line) {
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
}

void use_session() {
  install_interop_host();
  begin_call_record();
  install_remote_entries();
}

// Calls go to the driver below from now on. Error: there is none.
Status pass_through(std::string* path) {
  const char* choice = environment_variable("OPENMPS_DRIVER");
  Result<std::unique_ptr<Driver>> driver =
      load_driver(choice != nullptr ? choice : "auto", DriverProbe::kPassive);
  if (!driver.ok()) return driver.status();
  *path = (*driver)->path();
  install_pass_through_entries((*driver)->table());
  // The driver's library is never unloaded, so the string with the path is never freed.
  (void)driver.value().release();
  return Status();
}

// The program of a tool that would show nothing behind OpenMPS. False: the program is OpenMPS's.
bool runs_natively() {
  const char* const tool = tool_inside();
  if (tool == nullptr) return false;
  const std::string head = std::string("openmps: ") + tool + " works inside of NVIDIA's driver";
  if (wire::requires_daemon()) {
    say(head + ", and OPENMPS_REQUIRED is set: it will show nothing\n");
    return false;
  }
  std::string path;
  if (const Status passed = pass_through(&path); !passed.ok()) {
    say(head + ", and there is none (" + passed.message() + "): it will show nothing\n");
    return false;
  }
  say(head + ": the program runs on it, and not behind OpenMPS\n");
  return true;
}

void decide() {
  prepare_unwinding();
  if (runs_natively()) return;
  // Connected and closed again: a session begins with cuInit, which a forked child may make, too.
  const auto [directory, daemon] = wire::find_daemon();
  const std::string path = wire::control_socket_path(directory);
  // Never freed: threads may call while the process ends.
  g_socket_path = new std::string(path);
  if (daemon.ok()) {
    debug_line("the daemon at %s is there", path.c_str());
    use_session();
    return;
  }
  if (wire::requires_daemon()) {
    debug_line("no daemon at %s (%s), and OPENMPS_REQUIRED is set", path.c_str(),
               daemon.status().message().c_str());
    g_mode_error = CUDA_ERROR_MPS_CONNECTION_FAILED;
    use_session();
    return;
  }
  std::string driver;
  if (const Status passed = pass_through(&driver); !passed.ok()) {
    debug_line("no daemon at %s, and no driver below: %s", path.c_str(), passed.message().c_str());
    g_mode_error = CUDA_ERROR_NO_DEVICE;
    use_session();
    return;
  }
  debug_line("no daemon at %s (%s): calls go to %s", path.c_str(),
             daemon.status().message().c_str(), driver.c_str());
}

}  // namespace

const std::string& control_socket_path() { return *g_socket_path; }

CUresult mode_error() { return g_mode_error; }

void resolve_mode() {
  const CancellationHeld held;
  pthread_once(&g_once, decide);
}

}  // namespace openmps::client
