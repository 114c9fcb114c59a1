// SPDX-License-Identifier: Apache-2.0
// The command line of MPS's interface v3: <module> <verb> with words and options. Each verb is one
// row, with what carries it out and its text in the help. The rows are in the *_module.cc files,
// each beside its handlers. Parsing is pure, any input is a command or an error.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/command_call.h"
#include "control/doors.h"
#include "control/listing.h"

namespace openmps::control {

struct ModuleCall;

struct ModuleOption {
  std::string_view name;   // without the dashes
  std::string_view value;  // what stands for its value in the help; "": it is a flag
  std::string_view help;
  bool is_switch = false;  // without its value it means true
};

struct ModuleVerb {
  std::string_view module;
  std::string_view verb;
  std::vector<std::string_view> words = {};     // that have to be there, as the help names them
  std::vector<std::string_view> optional = {};  // that may follow
  std::vector<ModuleOption> options = {};
  void (*run)(const ModuleCall& call);
  std::string_view help;
};

// The rows of each file.
std::span<const ModuleVerb> server_verbs();
std::span<const ModuleVerb> namespace_verbs();
std::span<const ModuleVerb> client_verbs();
std::span<const ModuleVerb> device_verbs();
std::span<const ModuleVerb> partition_verbs();
std::span<const ModuleVerb> feature_verbs();

struct ModuleCommand {
  const ModuleVerb* verb = nullptr;
  std::vector<std::string> words = {};
  std::map<std::string, std::string, std::less<>> options = {};

  // A word; "": it is not there.
  [[nodiscard]] std::string word(size_t index) const {
    return index < words.size() ? words[index] : "";
  }
  [[nodiscard]] std::optional<std::string> option(std::string_view name) const {
    const auto found = options.find(name);
    return found == options.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] bool has(std::string_view flag) const { return options.contains(flag); }
};

// A verb that is being carried out. `done` is called once, now or later.
struct ModuleCall {
  ServerPool& servers;
  ModuleCommand command;
  User caller;
  Door door;  // by which the caller has come: a namespace's lets it see that namespace alone
  Done done;

  // "Error: ...", exit status 1.
  void fail(const std::string& reason) const { done({"Error: " + reason + "\n", 1}); }
  void finish(const Status& status) const {
    if (status.ok()) return done({});
    fail(status.message());
  }
  // The listing as --format says.
  void show(const Listing& listing) const;
  // Whether the caller may change what the server has; else the call is done.
  [[nodiscard]] bool may_change(const std::string& server) const;
  // Whether the caller may see the server, and one namespace of it.
  [[nodiscard]] bool may_see(const std::string& server) const;
  [[nodiscard]] bool may_see(const std::string& server, const std::string& name) const;
};

// Servers that the caller may see, named ones and those of users that run, by name.
std::vector<std::string> servers_seen_by(const ModuleCall& call);

// The limits that options state: what they are set to, or nothing to lift them.
Result<LimitChanges> limits_of_options(const ModuleCommand& command);
// The options that limits_of_options() reads.
std::vector<ModuleOption> limit_options();
// The quality that the option states, or nothing. CUDA_ERROR_INVALID_VALUE: it is none.
Result<std::optional<wire::Quality>> quality_of_options(const ModuleCommand& command);
// The value of a limit of a namespace as lists show it, or kNoValue.
std::string limit_text(const GroupRule& rule, wire::Limit limit);

// Whether the line's first word is a module.
bool is_module_command(std::string_view line);
// A command, or the answer to give: help, or what is wrong (exit status 1).
struct ParsedModuleCommand {
  ModuleCommand command;
  std::optional<Reply> answer;
};
ParsedModuleCommand parse_module_command(std::string_view line);
void run_module_command(std::string_view line, ServerPool& servers, User caller, const Door& door,
                        const Done& done);
// The modules, for --help with protocol 3.
std::string help_of_modules();
// The section of the manual page, as roff.
std::string manual_of_modules();

}  // namespace openmps::control
