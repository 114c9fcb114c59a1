// SPDX-License-Identifier: Apache-2.0
// The decision between OpenMPS and pass-through, and the library's mark.
#include "client/entry/mode.h"

#include <pthread.h>

#include <cstring>

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

bool required() {
  const char* value = environment_variable("OPENMPS_REQUIRED");
  return value != nullptr && *value != '\0' && strcmp(value, "0") != 0;
}

void use_session() {
  install_interop_host();
  begin_call_record();
  install_remote_entries();
}

void decide() {
  prepare_unwinding();
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
  if (required()) {
    debug_line("no daemon at %s (%s), and OPENMPS_REQUIRED is set", path.c_str(),
               daemon.status().message().c_str());
    g_mode_error = CUDA_ERROR_MPS_CONNECTION_FAILED;
    use_session();
    return;
  }
  const char* choice = environment_variable("OPENMPS_DRIVER");
  Result<std::unique_ptr<Driver>> driver =
      load_driver(choice != nullptr ? choice : "auto", DriverProbe::kPassive);
  if (!driver.ok()) {
    debug_line("no daemon at %s, and no driver below: %s", path.c_str(),
               driver.status().message().c_str());
    g_mode_error = CUDA_ERROR_NO_DEVICE;
    use_session();
    return;
  }
  debug_line("no daemon at %s (%s): calls go to %s", path.c_str(),
             daemon.status().message().c_str(), (*driver)->path().c_str());
  install_pass_through_entries((*driver)->table());
  // The driver's library is never unloaded, so the string with the path is never freed.
  (void)driver.value().release();
}

}  // namespace

const std::string& control_socket_path() { return *g_socket_path; }

CUresult mode_error() { return g_mode_error; }

void resolve_mode() {
  const CancellationHeld held;
  pthread_once(&g_once, decide);
}

}  // namespace openmps::client
