// SPDX-License-Identifier: Apache-2.0
// `openmps doctor`: checks what a program would use, in the order in which it would.
#include "cli/doctor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/environment.h"
#include "base/text.h"
#include "base/unix_socket.h"
#include "cli/installation.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"
#include "wire/handshake.h"

namespace openmps::cli {
namespace {

class Findings {
 public:
  void good(const std::string& text) { line("ok", text); }
  void note(const std::string& text) { line("note", text); }
  void problem(const std::string& text) {
    line("PROBLEM", text);
    ++problems_;
  }
  [[nodiscard]] int problems() const { return problems_; }

 private:
  static void line(const char* kind, const std::string& text) {
    printf("%-8s %s\n", kind, text.c_str());
  }
  int problems_ = 0;
};

bool same_file(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 &&
         first.st_ino == second.st_ino && first.st_dev == second.st_dev;
}

void check_installation(const Installation& installation, Findings* findings) {
  for (const std::string* program : {&installation.control_program, &installation.server_program,
                                     &installation.worker_program}) {
    if (access(program->c_str(), X_OK) != 0) {
      findings->problem(*program + " can't be run: " + strerror(errno));
    }
  }
  if (const std::string why = why_not_loadable(installation.client_library); why.empty()) {
    findings->good("client library " + installation.client_library);
  } else {
    findings->problem("programs can't load the client library: " + why);
  }
}

void check_library_path(const Installation& installation, Findings* findings) {
  const std::string found = library_on_path();
  if (found.empty()) {
    findings->note(
        "LD_LIBRARY_PATH leads to no libcuda.so.1: a program gets OpenMPS by `openmps "
        "run -- program`, or with LD_LIBRARY_PATH=" +
        installation.client_directory);
  } else if (same_file(found, installation.client_library)) {
    findings->good("LD_LIBRARY_PATH leads programs of this shell to the client library");
  } else {
    findings->note("LD_LIBRARY_PATH leads programs of this shell to " + found +
                   ", which is not this OpenMPS; `openmps run` puts ours in front");
  }
}

void check_driver(const Installation& installation, Findings* findings) {
  const std::string wish = environment_or("OPENMPS_DRIVER", "auto");
  const bool softgpu = access(installation.softgpu_library.c_str(), R_OK) == 0;
  const std::string nvidia = nvidia_library();
  const bool gpu = access("/dev/nvidiactl", F_OK) == 0;
  findings->note("OPENMPS_DRIVER is " + wish + " here; the daemon's own value counts for workers");
  if (gpu && !nvidia.empty()) {
    findings->note("NVIDIA's driver is installed: " + nvidia);
  } else {
    findings->note(std::string("no NVIDIA GPU to be seen: ") +
                   (gpu ? "no libcuda.so.1 of the system" : "/dev/nvidiactl is missing"));
  }
  if (softgpu) {
    findings->note("softgpu is installed: " + installation.softgpu_library);
  } else {
    findings->note("softgpu is not installed: " + installation.softgpu_library);
  }
  if (wish == "auto" && !softgpu && !(gpu && !nvidia.empty())) {
    findings->problem("there is no driver that a worker could use");
  }
}

// The socket of a daemon, or an invalid one with the reason among the findings.
UniqueFd check_daemon(Findings* findings) {
  auto [directory, socket] = wire::find_daemon();
  const std::string path = wire::control_socket_path(directory);
  if (access((directory + "/control").c_str(), F_OK) == 0) {
    findings->note("NVIDIA's daemon also uses " + directory +
                   "; the two do not disturb each other");
  }
  if (socket.ok()) {
    findings->good("a daemon serves " + directory);
    return std::move(socket).value();
  }
  if (socket.status().code() == CUDA_ERROR_NOT_PERMITTED) {
    findings->problem(socket.status().message());
  } else if (access(directory.c_str(), F_OK) != 0) {
    findings->problem("no daemon: the directory " + directory +
                      " is not there. Start one with `openmps-control -d`, or set "
                      "CUDA_MPS_PIPE_DIRECTORY to the daemon's");
  } else if (access(directory.c_str(), X_OK) != 0) {
    findings->problem("the directory " + directory + " can't be entered by user " +
                      std::to_string(geteuid()));
  } else if (access(path.c_str(), F_OK) == 0) {
    findings->problem("no process listens at " + path + " (" + socket.status().message() +
                      "): the daemon has died. Start one with `openmps-control -d`");
  } else {
    findings->problem("no daemon serves " + directory + " (" + socket.status().message() +
                      "). Start one with `openmps-control -d`");
  }
  return UniqueFd();
}

std::string ask(int socket, const char* command, int* exit_status) {
  Result<wire::ControlReply> reply = wire::call_control(socket, command);
  *exit_status = reply.ok() ? reply->exit_status : 1;
  std::string text = reply.ok() ? reply->text : reply.status().message();
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// "0: NVIDIA H200, PCI 0000:00.06.00, GPU-008cbaa3-..." from a line of device_query --csv.
std::string describe_device(const std::string& line) {
  enum Field { kOrdinal, kPci, kUuid, kName, kFields };
  std::string field[kFields];
  size_t start = 0;
  for (std::string& text : field) {
    const size_t end = std::min(line.find(',', start), line.size());
    text = line.substr(start, end - start);
    start = std::min(end + 1, line.size());
  }
  return field[kOrdinal] + ": " + field[kName] + ", PCI " + field[kPci] + ", " + field[kUuid];
}

// The answer that a program of this installation would get.
bool check_build(int socket, Findings* findings) {
  Result<wire::ControlReply> reply = wire::call_control(socket, "get_server_list");
  if (!reply.ok()) {
    findings->problem("the daemon does not answer: " + reply.status().message());
    return false;
  }
  const Status same = wire::check_build(reply->build, "daemon", "client");
  if (same.ok()) return true;
  findings->problem(same.message() + ": restart the daemon, or use the programs that belong to it");
  return false;
}

void check_server(int socket, Findings* findings) {
  int status = 0;
  const std::string servers = ask(socket, "get_server_list", &status);
  // By a namespace's socket nobody sees the servers.
  const bool sees_servers = status == 0;
  const std::string me = ask(socket, "whoami", &status);
  if (status == 0 && me.find("without a PID") != std::string::npos) {
    findings->note(
        "the daemon can't see this PID namespace: rules by cgroup do not fit programs that are "
        "started here, and commands name them by ID (id:3), as ps shows it");
  }
  if (!sees_servers) {
    findings->note("servers are not to be seen: " + servers);
  } else if (servers.empty()) {
    findings->note("no server runs; the first program starts one");
  } else {
    std::string pids = servers;
    std::replace(pids.begin(), pids.end(), '\n', ' ');
    findings->good("running servers: " + pids);
  }
  // Starts a server if none runs, as a program would.
  const std::string devices = ask(socket, "device_query --csv", &status);
  if (status != 0) {
    findings->problem(devices);
    return;
  }
  size_t start = 0;
  for (int line = 0; start < devices.size(); ++line) {
    const size_t end = std::min(devices.find('\n', start), devices.size());
    // Below a title and the heading.
    if (line >= 2) {
      findings->good("device " + describe_device(devices.substr(start, end - start)));
    }
    start = end + 1;
  }
}

void list_variables(Findings* findings) {
  for (const char* name :
       {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_CLIENT_PRIORITY", "CUDA_MPS_SM_PARTITION",
        "OPENMPS_QOS", "CUDA_VISIBLE_DEVICES", "OPENMPS_REQUIRED"}) {
    const char* value = environment_variable(name);
    if (value != nullptr) findings->note(std::string(name) + "=" + printable(value));
  }
}

}  // namespace

int run_doctor() {
  Findings findings;
  Result<Installation> installation = find_installation();
  if (!installation.ok()) {
    fprintf(stderr, "openmps: %s\n", installation.status().message().c_str());
    return 1;
  }
  check_installation(*installation, &findings);
  check_library_path(*installation, &findings);
  check_driver(*installation, &findings);
  list_variables(&findings);
  const UniqueFd socket = check_daemon(&findings);
  if (socket.valid() && check_build(socket.get(), &findings)) check_server(socket.get(), &findings);
  if (findings.problems() == 0) {
    printf("A program started with `openmps run` gets OpenMPS.\n");
    return 0;
  }
  printf("A program started with `openmps run` %s\n",
         socket.valid() ? "fails in cuInit." : "runs without OpenMPS, or fails with --required.");
  return 1;
}

}  // namespace openmps::cli
