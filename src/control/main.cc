// SPDX-License-Identifier: Apache-2.0
// openmps-control: the control daemon and its command shell, with the options of NVIDIA's.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "base/environment.h"
#include "base/inherited.h"
#include "base/text.h"
#include "control/command.h"
#include "control/config.h"
#include "control/daemon_start.h"
#include "control/module_command.h"
#include "control/shell.h"
#include "wire/daemon_search.h"
#include "wire/handshake.h"

namespace openmps::control {
namespace {

constexpr const char* kNvidiasName = "nvidia-cuda-mps-control";

constexpr const char* kHelp =
    R"(Share GPUs among processes: the OpenMPS control daemon and its command shell.

Usage: %s [options] [command]
  Without options and command, reads commands from standard input, one per line.

Options:
  -d, --daemon             Start the daemon in the background
  -f, --foreground         Start the daemon in the foreground
      --config FILE        Limits for the daemon to begin with, and for the command reload
      --check-config FILE  Say whether that file is right, and if not, where
  -a, --apply FILE         The same as --config; files of MPS's interface v3 are read, too
  -m, --multiuser          Servers of root's that have a name serve all users (also -M)
  -p, --protocol 2|3       Accepted: the commands of both are always there. 3 prints the modules
                           with --help, and lets -f read "quit" from standard input
      --quit               The command quit (with -p 3 also -q)
  -S, --static-partitioning
                           Clients run in partitions of SMs (sm_partition), and nowhere else
  -q, --ready-devices      Start a server with the daemon, so that devices are known at once
  -v, --version            Print the version
  -h, --help               Print this message

Modules of MPS's interface v3 (`MODULE help` and `MODULE VERB help` say more):
)";

constexpr const char* kHelpOfProtocol3 =
    R"(Share GPUs among processes: the OpenMPS control daemon and its command line.

Usage: %s [options] <module> <verb> [arguments] [--option=value]

Modules:
)";

constexpr const char* kHelpOfEnvironment =
    R"(
Environment:
  CUDA_MPS_PIPE_DIRECTORY  Directory of the daemon's socket (default: root's /run/openmps, or
                           /run/nvidia-mps by NVIDIA's name; other users' /tmp/nvidia-mps)
  CUDA_MPS_LOG_DIRECTORY   Directory of control.log and server.log (default /var/log/nvidia-mps)
  CUDA_MPS_PROTOCOL_VERSION  2 or 3, in the place of --protocol
  OPENMPS_DRIVER           auto, nvidia, softgpu or the path of a driver library
)";

// The name by which the program was called: NVIDIA's name is a link (cmake/OpenmpsCompat.cmake).
std::string program_name(const char* path) {
  const std::string_view text = path != nullptr ? path : "";
  const std::string_view name = text.substr(text.rfind('/') + 1);
  return name.empty() ? "openmps-control" : std::string(name);
}

int usage_error(const std::string& program, const std::string& what) {
  fprintf(stderr, "%s: %s; see %s --help\n", program.c_str(), what.c_str(), program.c_str());
  return 1;
}

// 3 if the program speaks MPS's interface v3: the environment overrides the option.
int protocol_of(std::string_view option) {
  const std::string variable = environment_or("CUDA_MPS_PROTOCOL_VERSION", "");
  return (variable.empty() ? option : std::string_view(variable)) == "3" ? 3 : 2;
}

int check_config(const std::string& program, const char* path) {
  const Status read = read_config(path).status();
  if (read.ok()) return 0;
  fprintf(stderr, "%s: %s\n", program.c_str(), read.message().c_str());
  return 1;
}

int help(const std::string& program, bool is_v3) {
  printf(is_v3 ? kHelpOfProtocol3 : kHelp, program.c_str());
  fputs(help_of_modules().c_str(), stdout);
  if (!is_v3) printf("\nCommands:\n%s", help_of_commands().c_str());
  fputs(kHelpOfEnvironment, stdout);
  return 0;
}

int run(int argc, char** argv) {
  const std::string program = program_name(argv[0]);
  DaemonOptions options;
  options.nvidia_names = program == kNvidiasName;
  options.pipe_directory = wire::pipe_directory_to_serve(options.nvidia_names);
  options.is_usual_directory = environment_or("CUDA_MPS_PIPE_DIRECTORY", "").empty();
  options.log_directory = environment_or("CUDA_MPS_LOG_DIRECTORY", wire::kDefaultLogDirectory);
  bool start = false;
  bool quits = false;
  bool has_short_quit = false;  // -q, which protocol 2 has for something else
  bool needs_help = false;
  std::string_view protocol = "2";
  int at = 1;
  for (; at < argc && argv[at][0] == '-'; ++at) {
    const std::string_view option = argv[at];
    if (option == "-d" || option == "--daemon") {
      start = true;
    } else if (option == "-f" || option == "--foreground" || option == "--forground") {
      // NVIDIA's program has the second spelling.
      start = options.foreground = true;
    } else if (option == "--config" || option == "--check-config" || option == "-a" ||
               option == "--apply") {
      if (++at == argc) return usage_error(program, std::string(option) + " needs a file");
      if (option == "--check-config") return check_config(program, argv[at]);
      options.config = argv[at];
    } else if (option == "-p" || option == "--protocol") {
      protocol = ++at < argc ? argv[at] : "";
      if (protocol != "2" && protocol != "3") {
        return usage_error(program, std::string(option) + " needs 2 or 3");
      }
    } else if (option == "-q") {
      has_short_quit = true;
    } else if (option == "--ready-devices") {
      options.ready_devices = true;
    } else if (option == "--quit") {
      quits = true;
    } else if (option == "-m" || option == "--multiuser" || option == "-M" ||
               option == "--multiuser-server" || option == "-multiuser-server") {
      if (geteuid() != 0) return usage_error(program, "only root's daemon can serve several users");
      options.multiuser = true;
    } else if (option == "-v" || option == "--version") {
      printf("OpenMPS control %s, CUDA MPS protocol 2. Binary version: 13000\n", OPENMPS_VERSION);
      return 0;
    } else if (option == "-h" || option == "--help") {
      needs_help = true;
    } else if (option == "-S" || option == "--static-partitioning") {
      options.static_partitions = true;
    } else {
      return usage_error(program, "unknown option " + std::string(option));
    }
  }
  const bool is_v3 = protocol_of(protocol) == 3;
  if (needs_help) return help(program, is_v3);
  quits = quits || (is_v3 && has_short_quit);
  options.ready_devices = options.ready_devices || (!is_v3 && has_short_quit);
  options.reads_input = is_v3 && options.foreground;
  if (quits) return run_one_command("quit");
  if (start) {
    if (is_v3) {
      printf("To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY=%s\n",
             options.pipe_directory.c_str());
      fflush(stdout);
    }
    if (at < argc) return usage_error(program, std::string("unexpected ") + argv[at]);
    return start_daemon(std::move(options));
  }
  if (!options.config.empty()) return usage_error(program, "--config and -a are for -d and -f");
  if (options.static_partitions) return usage_error(program, "-S is for -d and -f");
  if (at == argc) return run_shell();
  std::string command;
  for (; at < argc; ++at) command += (command.empty() ? "" : " ") + std::string(argv[at]);
  return run_one_command(command);
}

}  // namespace
}  // namespace openmps::control

int main(int argc, char** argv) {
  openmps::forget_starter();
  return openmps::control::run(argc, argv);
}
