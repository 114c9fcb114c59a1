// SPDX-License-Identifier: Apache-2.0
// openmps: the user's front end. The only file that includes CLI11.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cli/advise.h"
#include "cli/cdi.h"
#include "cli/doctor.h"
#include "cli/installation.h"
#include "cli/ps.h"
#include "cli/run.h"
#include "cli/stat.h"
#include "cli/top.h"
#include "cli/trace.h"
#include "observe/figures.h"

namespace {

int exec_control(std::vector<const char*> words) {
  openmps::Result<openmps::cli::Installation> installation = openmps::cli::find_installation();
  if (installation.ok()) {
    // The command shell carries it out and prints errors.
    words.insert(words.begin(), "openmps-control");
    words.push_back(nullptr);
    execv(installation->control_program.c_str(), const_cast<char* const*>(words.data()));
  }
  fprintf(stderr, "openmps: openmps-control can't be run: %s\n", strerror(errno));
  return 1;
}

// Moves a program's memory to the host, and back.
struct Suspension {
  std::string session;
  bool until_used = false;
};

std::pair<CLI::App*, CLI::App*> add_suspension(CLI::App& app, Suspension* options) {
  CLI::App* suspend = app.add_subcommand(
      "suspend", "Move a program's GPU memory to the host; its GPU work waits until resume");
  suspend->add_flag("--until-used", options->until_used,
                    "The memory comes back by itself with the program's next GPU call");
  CLI::App* resume = app.add_subcommand("resume", "Let a suspended program go on");
  for (CLI::App* command : {suspend, resume}) {
    command->add_option("session", options->session, "The PID or id:ID, as ps shows it")
        ->required();
  }
  return {suspend, resume};
}

// Removes the words after the first "--" from the command line: they are the program and its
// arguments, even if they look like options. Without "--" the program begins at the first word that
// is not an option of ours.
std::vector<std::string> take_program(int* argc, char** argv) {
  std::vector<std::string> program;
  for (int i = 1; i < *argc; ++i) {
    if (strcmp(argv[i], "--") != 0) continue;
    program.assign(argv + i + 1, argv + *argc);
    *argc = i;
  }
  return program;
}

CLI::Range pause_range() {
  return {openmps::observe::kShortestPauseS, openmps::observe::kLongestPauseS};
}

CLI::App* add_top(CLI::App& app, openmps::cli::TopOptions* options) {
  CLI::App* top = app.add_subcommand(
      "top", "Watch what devices and programs do: SM time, kernels, memory, copies, waits");
  top->add_option("--delay", options->delay_s, "Seconds between two looks (default 1)")
      ->check(pause_range());
  top->add_flag("--once", options->once, "One interval as text; also if there is no terminal");
  std::vector<std::string> columns;
  for (size_t i = 0; i < openmps::observe::kColumns; ++i) {
    columns.emplace_back(openmps::observe::heading_of(static_cast<openmps::observe::Column>(i)));
  }
  top->add_option_function<std::string>(
         "--sort",
         [options](const std::string& name) {
           options->order.by = *openmps::observe::column_of(name);
         },
         "A column, as in the heading (default sm%)")
      ->check(CLI::IsMember(columns))
      ->option_text("COLUMN");
  top->add_option("--filter", options->filter,
                  "Only the program with that PID, or those with that in their command or group");
  top->callback([options] {
    options->order.ascending = openmps::observe::ascends_by_nature(options->order.by);
  });
  return top;
}

CLI::App* add_stat(CLI::App& app, openmps::cli::StatOptions* options) {
  CLI::App* stat = app.add_subcommand("stat", "The same as lines or JSON, for scripts");
  stat->add_flag("--json", options->json, "An object for each interval, each on a line");
  const CLI::Option* interval =
      stat->add_option("--interval", options->interval_s,
                       "Seconds that the rates are of (default 1), again and again")
          ->check(pause_range());
  const CLI::Option* count =
      stat->add_option("--count", options->count, "Stop after so many intervals")
          ->check(CLI::PositiveNumber);
  stat->add_option("--filter", options->filter, "As for top");
  stat->callback([=] {
    if (interval->count() != 0 && count->count() == 0) options->count = 0;
  });
  return stat;
}

CLI::App* add_advise(CLI::App& app, openmps::cli::AdviseOptions* options) {
  CLI::App* advise = app.add_subcommand(
      "advise", "Say whether sharing helps a program, which part of the SMs to give it, and why");
  advise->add_option("pid", options->name, "As ps shows it")->required();
  advise
      ->add_option("--for", options->for_s,
                   "Watch it for so many seconds, instead of going by all that it has done")
      ->check(pause_range());
  advise->add_flag("--json", options->json, "For scripts");
  return advise;
}

CLI::App* add_trace(CLI::App& app, openmps::cli::TraceOptions* options) {
  CLI::App* trace = app.add_subcommand(
      "trace", "Record when programs' kernels and copies run on the GPUs, for Perfetto");
  trace->add_option("session", options->client,
                    "The PID or id:ID, as ps shows it (default: all of yours)");
  trace->add_option("--seconds", options->seconds, "For how long (default 5); Ctrl-C ends it, too")
      ->check(CLI::Range(openmps::observe::kShortestPauseS, openmps::cli::kLongestTraceS));
  trace->add_option("--output", options->output,
                    "The file (default " + options->output + "); - is standard output");
  return trace;
}

// The command behind `openmps cdi`.
CLI::App* add_cdi(CLI::App& app, openmps::cli::CdiOptions* options) {
  CLI::App* cdi =
      app.add_subcommand("cdi", "Shares for containers, by the Container Device Interface");
  cdi->require_subcommand(1);
  CLI::App* generate = cdi->add_subcommand(
      "generate", "Write the file that lets container engines give a container a share");
  generate->add_option("share", options->shares,
                       "SERVER/NAMESPACE: only these (default: all that the daemon has)");
  generate->add_option("--output", options->output,
                       "The file (default " + options->output + "); - is standard output");
  generate->add_option("--vendor", options->vendor,
                       "Of the devices (default " + options->vendor + ")");
  generate->add_option("--class", options->device_class,
                       "Of the devices (default " + options->device_class + ")");
  generate->add_option("--library", options->library,
                       "The client library for containers (default: this installation's)");
  generate->add_flag(
      "--all", options->all,
      "Also the device `all`: the daemon's own directory, without a namespace's limits");
  return generate;
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
  run->add_flag("--profile", run_options.profile,
                "torch.profiler and others that use CUPTI see the program's kernels");
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
          ->check(pause_range());
  ps->add_option("--times", ps_options.times, "With --watch: stop after so many times")
      ->check(CLI::PositiveNumber);

  openmps::cli::TopOptions top_options;
  const CLI::App* top = add_top(app, &top_options);
  openmps::cli::StatOptions stat_options;
  const CLI::App* stat = add_stat(app, &stat_options);
  openmps::cli::AdviseOptions advise_options;
  const CLI::App* advise = add_advise(app, &advise_options);

  openmps::cli::TraceOptions trace_options;
  const CLI::App* trace = add_trace(app, &trace_options);

  openmps::cli::CdiOptions cdi_options;
  CLI::App* cdi = add_cdi(app, &cdi_options);

  CLI::App* inspect = app.add_subcommand(
      "inspect", "Say what a program is at: its queue, its executor, and who waits for what");
  std::string session;
  inspect->add_option("session", session, "The ID or the PID, as ps shows them")->required();
  inspect->add_flag("--json", json, "For scripts");

  Suspension suspension;
  const auto [suspend, resume] = add_suspension(app, &suspension);

  CLI::App* doctor = app.add_subcommand(
      "doctor", "Say which driver, daemon and server a program would get, and why");
  for (CLI::App* command : app.get_subcommands({})) {
    if (command == cdi->get_parent()) command = cdi;
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
  if (*top) return openmps::cli::run_top(top_options);
  if (*stat) return openmps::cli::run_stat(stat_options);
  if (*advise) return openmps::cli::run_advise(advise_options);
  if (*trace) return openmps::cli::run_trace(trace_options);
  if (*inspect) {
    std::vector<const char*> words{"inspect", session.c_str()};
    if (json) words.push_back("--json");
    return exec_control(words);
  }
  if (*suspend) {
    std::vector<const char*> words{"suspend", suspension.session.c_str()};
    if (suspension.until_used) words.push_back("--until-used");
    return exec_control(words);
  }
  if (*resume) return exec_control({"resume", suspension.session.c_str()});
  if (*doctor) return openmps::cli::run_doctor();
  if (*cdi) return openmps::cli::generate_cdi(cdi_options);
  const std::vector<std::string> rest = run->remaining();
  run_options.command.insert(run_options.command.begin(), rest.begin(), rest.end());
  if (run_options.command.empty()) {
    fprintf(stderr, "openmps: which program? For example: openmps run -- ./nbody 4096 100\n");
    return 1;
  }
  return openmps::cli::run_program(run_options);
}
