// SPDX-License-Identifier: Apache-2.0
// openmps: the user's front end. The only file that includes CLI11.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cli/doctor.h"
#include "cli/installation.h"
#include "cli/ps.h"
#include "cli/run.h"

namespace {

int exec_control(std::vector<const char*> words) {
  openmps::Result<openmps::cli::Installation> installation = openmps::cli::find_installation();
  if (installation.ok()) {
    // The command shell knows how; it prints the errors too.
    words.insert(words.begin(), "openmps-control");
    words.push_back(nullptr);
    execv(installation->control_program.c_str(), const_cast<char* const*>(words.data()));
  }
  fprintf(stderr, "openmps: openmps-control can't be run: %s\n", strerror(errno));
  return 1;
}

// Take the words after the first "--" off the command line: they are the program's, whatever they
// look like. Without one, the program begins at the first word that is not an option of ours.
std::vector<std::string> take_program(int* argc, char** argv) {
  std::vector<std::string> program;
  for (int i = 1; i < *argc; ++i) {
    if (strcmp(argv[i], "--") != 0) continue;
    program.assign(argv + i + 1, argv + *argc);
    *argc = i;
  }
  return program;
}

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): ends the program
  CLI::App app("OpenMPS: many processes share one GPU context", "openmps");
  app.set_version_flag("--version", "openmps " OPENMPS_VERSION);
  app.require_subcommand(1);
  std::string pipe_directory;

  CLI::App* run = app.add_subcommand("run", "Run a program with OpenMPS: openmps run -- prog args");
  openmps::cli::RunOptions run_options;
  run->add_flag("--required", run_options.required, "Fail instead of running without OpenMPS");
  run->add_flag("--start", run_options.start, "Start a daemon if none runs");
  run->prefix_command();

  CLI::App* ps = app.add_subcommand("ps", "List the programs that use OpenMPS, and what they use");
  bool json = false;
  openmps::cli::PsOptions ps_options;
  ps->add_flag("--json", json, "For scripts: all that is known");
  const CLI::Option* watch =
      ps->add_option("--watch", ps_options.every_s,
                     "Again and again, each so many seconds (default 1): shares and rates are "
                     "those since the last time")
          ->expected(0, 1)
          ->default_str("1")
          ->check(CLI::Range(openmps::cli::kShortestWatchS, openmps::cli::kLongestWatchS));
  ps->add_option("--times", ps_options.times, "With --watch: stop after so many times")
      ->check(CLI::PositiveNumber);

  CLI::App* inspect = app.add_subcommand(
      "inspect", "Say what a program is at: its queue, its executor, and who waits for what");
  std::string session;
  inspect->add_option("session", session, "The ID or the PID, as ps shows them")->required();
  inspect->add_flag("--json", json, "For scripts");

  CLI::App* doctor = app.add_subcommand(
      "doctor", "Say which driver, daemon and server a program would get, and why");
  for (CLI::App* command : {run, ps, inspect, doctor}) {
    command->add_option("--pipe-directory", pipe_directory,
                        "The daemon's directory (default: CUDA_MPS_PIPE_DIRECTORY)");
  }
  run_options.command = take_program(&argc, argv);
  CLI11_PARSE(app, argc, argv);

  if (!pipe_directory.empty()) setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_directory.c_str(), 1);
  if (*ps) {
    ps_options.json = json;
    if (watch->count() != 0 && ps_options.every_s == 0) ps_options.every_s = 1;
    ps_options.clears = ps_options.every_s != 0 && !json && isatty(STDOUT_FILENO) != 0;
    return openmps::cli::run_ps(ps_options);
  }
  if (*inspect) {
    std::vector<const char*> words{"inspect", session.c_str()};
    if (json) words.push_back("--json");
    return exec_control(words);
  }
  if (*doctor) return openmps::cli::run_doctor();
  const std::vector<std::string> rest = run->remaining();
  run_options.command.insert(run_options.command.begin(), rest.begin(), rest.end());
  if (run_options.command.empty()) {
    fprintf(stderr, "openmps: which program? For example: openmps run -- ./nbody 4096 100\n");
    return 1;
  }
  return openmps::cli::run_program(run_options);
}
