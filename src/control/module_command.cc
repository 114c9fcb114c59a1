// SPDX-License-Identifier: Apache-2.0
// See module_command.h.
#include "control/module_command.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.h"

namespace openmps::control {
namespace {

// Where the help of a verb or an option begins.
constexpr size_t kHelpColumn = 34;

struct Module {
  std::string_view name;
  std::string_view help;
};
constexpr Module kModules[] = {
    {"server", "Servers with a name of their own"},
    {"namespace", "Sets of clients with limits together, each with its own directory"},
    {"client", "Running clients"},
    {"device", "The devices of this machine"},
    {"sm-partition", "SMs of a device that are kept for the clients that name them"},
    {"feature", "What is switched on"},
    {"memacct", "Memory accounting"},
    {"context-share", "Clients of a server share one context per device"},
};

const std::vector<const ModuleVerb*>& all_verbs() {
  static const std::vector<const ModuleVerb*> kAll = [] {
    std::vector<const ModuleVerb*> all;
    for (const std::span<const ModuleVerb> rows :
         {server_verbs(), namespace_verbs(), client_verbs(), device_verbs(), partition_verbs(),
          feature_verbs()}) {
      for (const ModuleVerb& row : rows) all.push_back(&row);
    }
    return all;
  }();
  return kAll;
}

std::string with_arguments(const ModuleVerb& row) {
  std::string text(row.verb);
  for (const std::string_view word : row.words) text += " <" + std::string(word) + ">";
  for (const std::string_view word : row.optional) text += " [<" + std::string(word) + ">]";
  return text;
}

std::string option_text(const ModuleOption& option) {
  return "--" + std::string(option.name) +
         (option.value.empty() ? ""
          : option.is_switch   ? "[=" + std::string(option.value) + "]"
                               : "=" + std::string(option.value));
}

std::string line_of(const std::string& what, std::string_view help) {
  std::string text = "  " + what;
  text += text.size() + 2 > kHelpColumn ? "\n" + std::string(kHelpColumn, ' ')
                                        : std::string(kHelpColumn - text.size(), ' ');
  return text + std::string(help) + "\n";
}

std::string help_of_module(const Module& module) {
  std::string text = std::string(module.name) + ": " + std::string(module.help) + "\n\n";
  for (const ModuleVerb* row : all_verbs()) {
    if (row->module == module.name) text += line_of(with_arguments(*row), row->help);
  }
  return text + line_of("<verb> help", "The verb's options");
}

std::string help_of_verb(const ModuleVerb& row) {
  std::string text =
      std::string(row.module) + " " + with_arguments(row) + ": " + std::string(row.help) + "\n";
  if (!row.options.empty()) text += "\n";
  for (const ModuleOption& option : row.options) text += line_of(option_text(option), option.help);
  return text;
}

Reply error(const std::string& text) { return {"Error: " + text + "\n", 1}; }

// What is wrong with the words and options; "": nothing.
std::string read_arguments(std::span<const std::string> words, ModuleCommand* command) {
  const ModuleVerb& verb = *command->verb;
  for (const std::string& word : words) {
    const bool has_dashes = word.starts_with("--");
    const size_t equals = word.find('=');
    if (!has_dashes && equals == std::string::npos) {
      command->words.push_back(word);
      continue;
    }
    const std::string name = word.substr(has_dashes ? 2 : 0, equals - (has_dashes ? 2 : 0));
    const auto option = std::ranges::find(verb.options, name, &ModuleOption::name);
    if (option == verb.options.end()) return "unknown option '" + printable(word) + "'";
    const bool has_value = equals != std::string::npos;
    if (has_value == option->value.empty() && !(option->is_switch && !has_value)) {
      return "option '--" + name + "' takes " +
             (has_value ? "no value" : "a value: " + option_text(*option));
    }
    const std::string value = has_value ? word.substr(equals + 1) : option->is_switch ? "true" : "";
    if (!command->options.emplace(name, value).second) return "option '--" + name + "' twice";
  }
  if (command->words.size() < verb.words.size()) {
    return "missing <" + std::string(verb.words[command->words.size()]) + ">";
  }
  if (command->words.size() > verb.words.size() + verb.optional.size()) {
    return "unexpected argument '" +
           printable(command->words[verb.words.size() + verb.optional.size()]) + "'";
  }
  return "";
}

std::string upper(std::string_view text) {
  std::string made(text);
  for (char& c : made) c = static_cast<char>(toupper(c));
  return made;
}

}  // namespace

bool is_module_command(std::string_view line) {
  const std::vector<std::string> words = split_words(line);
  return !words.empty() &&
         std::ranges::find(kModules, words.front(), &Module::name) != std::end(kModules);
}

ParsedModuleCommand parse_module_command(std::string_view line) {
  const std::vector<std::string> words = split_words(line);
  const auto module = words.empty() ? std::end(kModules)
                                    : std::ranges::find(kModules, words.front(), &Module::name);
  if (module == std::end(kModules)) return {{}, error("unknown module; see --help")};
  if (words.size() < 2 || words[1] == "help" || words[1] == "--help" || words[1] == "-h") {
    Reply help{help_of_module(*module)};
    help.exit_status = words.size() < 2 ? 1 : 0;
    return {{}, help};
  }
  const auto verb = std::ranges::find_if(all_verbs(), [&](const ModuleVerb* row) {
    return row->module == module->name && row->verb == words[1];
  });
  if (verb == all_verbs().end()) {
    return {{},
            error("module '" + words[0] + "' has no verb '" + printable(words[1]) + "'; see '" +
                  words[0] + " help'")};
  }
  if (words.size() > 2 && (words[2] == "help" || words[2] == "--help" || words[2] == "-h")) {
    return {{}, Reply{help_of_verb(**verb)}};
  }
  ParsedModuleCommand parsed{{.verb = *verb}, std::nullopt};
  const std::string wrong = read_arguments(std::span(words).subspan(2), &parsed.command);
  if (!wrong.empty()) {
    parsed.answer = error(wrong + "; see '" + words[0] + " " + words[1] + " help'");
  }
  return parsed;
}

void run_module_command(std::string_view line, ServerPool& servers, User caller, const Door& door,
                        const Done& done) {
  ParsedModuleCommand parsed = parse_module_command(line);
  if (parsed.answer) return done(*parsed.answer);
  const ModuleVerb& verb = *parsed.command.verb;
  verb.run({servers, std::move(parsed.command), caller, door, done});
}

std::string help_of_modules() {
  std::string text;
  for (const Module& module : kModules) text += line_of(std::string(module.name), module.help);
  return text + line_of("<module> help", "The module's verbs");
}

std::string manual_of_modules() {
  std::string text;
  const auto roff = [](std::string_view plain) {
    std::string made;
    for (const char c : plain) made += c == '-' ? "\\-" : c == '"' ? "\\(dq" : std::string(1, c);
    return made;
  };
  for (const ModuleVerb* row : all_verbs()) {
    text += ".TP\n.B " + roff(std::string(row->module) + " " + with_arguments(*row));
    for (const ModuleOption& option : row->options) text += roff(" [" + option_text(option) + "]");
    text += "\n" + roff(row->help) + ".\n";
  }
  return text;
}

void ModuleCall::show(const Listing& listing) const {
  const Result<std::string> text = format_listing(listing, command.option("format").value_or(""));
  if (!text.ok()) return fail(text.status().message());
  done({*text});
}

bool ModuleCall::may_change(const std::string& server) const {
  const NamedServer* const named = servers.named().find(server);
  const std::optional<uid_t> owner =
      named != nullptr ? std::optional(named->user.uid) : user_of_server_name(server);
  const bool may = door.is_main() && may_control(caller.uid, owner.value_or(geteuid()), geteuid());
  if (may) return true;
  const std::string what = upper(command.verb->module) + " " + upper(command.verb->verb);
  done({door.is_main()
            ? format_text("Insufficient privileges for UID %u. '%s' requires server owner.\n",
                          caller.uid, what.c_str())
            : "Insufficient privileges: '" + what +
                  "' is not for those who come by a namespace's socket.\n",
        1});
  return false;
}

bool ModuleCall::may_see(const std::string& server) const {
  if (!door.is_main()) return server == door.server;
  const NamedServer* const named = servers.named().find(server);
  const std::optional<uid_t> owner =
      named != nullptr ? std::optional(named->user.uid) : user_of_server_name(server);
  if (may_control(caller.uid, owner.value_or(geteuid()), geteuid())) return true;
  return named != nullptr && std::ranges::any_of(named->namespaces, [&](const auto& entry) {
           return servers.named().may_come(server, entry.first, caller.uid);
         });
}

bool ModuleCall::may_see(const std::string& server, const std::string& name) const {
  if (!door.is_main()) return server == door.server && name == door.group;
  const NamedServer* const named = servers.named().find(server);
  const std::optional<uid_t> owner =
      named != nullptr ? std::optional(named->user.uid) : user_of_server_name(server);
  return may_control(caller.uid, owner.value_or(geteuid()), geteuid()) ||
         servers.named().may_come(server, name, caller.uid);
}

std::vector<std::string> servers_seen_by(const ModuleCall& call) {
  std::vector<std::string> names;
  for (const auto& [name, server] : call.servers.named().all()) names.push_back(name);
  for (const ServerProcess* server : call.servers.all()) {
    if (call.servers.named().find(server->name()) == nullptr) names.push_back(server->name());
  }
  std::erase_if(names, [&call](const std::string& name) { return !call.may_see(name); });
  std::ranges::sort(names);
  return names;
}

std::vector<ModuleOption> limit_options() {
  return {
      {"pinned-memory-limit", "<size>", "Device memory of all its clients, like 4G or 0=4G,1=512M"},
      {"active-thread-percentage", "<1-100>", "Share of each device's SMs of all its clients"},
      {"client-priority", "<0|1>", "0 normal, 1 below normal"},
      {"sm-count", "<SMs>",
       "SMs of each device instead of a percentage, like 16 or by device like 0=16,1=8"},
      {"work-time-limit", "<seconds>", "How long work may take without any of it ending"},
      {"borrow-sms", "<bool>", "More SMs than that while others have no work for them"},
      {"weight", "<0.01-100>", "Its part of the time on SMs that others want, too; usual: 1"},
      {"guaranteed-memory", "<size>",
       "Device memory that stays while its clients are idle, like 4G or 0=4G,1=512M; what is "
       "beyond "
       "goes to the host when others need memory"},
      {"on-pressure", "<word>",
       "When memory is short, and none of those that have borrowed it is idle: oom, wait or "
       "terminate"}};
}

namespace {

// The value that lifts any limit.
constexpr std::string_view kLift = "none";

struct LimitOption {
  std::string_view name;
  wire::Limit limit;
};
constexpr LimitOption kLimitOptions[] = {{"active-thread-percentage", wire::Limit::kPercentage},
                                         {"client-priority", wire::Limit::kPriority},
                                         {"work-time-limit", wire::Limit::kWorkTime},
                                         {"borrow-sms", wire::Limit::kBorrow},
                                         {"weight", wire::Limit::kWeight},
                                         {"on-pressure", wire::Limit::kOnPressure}};
// Amounts of memory, also by device.
constexpr LimitOption kMemoryOptions[] = {{"pinned-memory-limit", wire::Limit::kMemory},
                                          {"guaranteed-memory", wire::Limit::kGuaranteedMemory}};
constexpr std::string_view kSmCountOption = "sm-count";

}  // namespace

Result<LimitChanges> limits_of_options(const ModuleCommand& command) {
  LimitChanges changes;
  const auto wrong = [](std::string_view name, const std::string& text, std::string_view expected) {
    return Status(CUDA_ERROR_INVALID_VALUE, "--" + std::string(name) + "=" + printable(text) +
                                                ": expected " + std::string(expected) +
                                                ", or none");
  };
  for (const LimitOption& option : kLimitOptions) {
    const auto text = command.option(option.name);
    if (!text) continue;
    const wire::LimitInfo& info = wire::info_of(option.limit);
    const LimitKey key{option.limit, info.is_per_device ? kEveryDevice : ""};
    // 0 %, 0 SMs and 0 seconds mean no limit, as with MPS.
    const auto value = *text == kLift ? std::optional<wire::LimitValue>(0) : info.parse(*text);
    const bool has_zero =
        option.limit != wire::Limit::kPriority && info.notation != wire::Notation::kWord;
    const bool lifts = *text == kLift || (*text == "0" && has_zero);
    if (lifts) {
      changes[key] = std::nullopt;
      continue;
    }
    if (!value || !(*value >= info.least && *value <= info.most)) {
      return wrong(option.name, *text, info.expected);
    }
    changes[key] = *value;
  }
  if (const auto text = command.option(kSmCountOption)) {
    Limits read;
    if (*text == kLift || *text == "0") {
      changes[{wire::Limit::kSmCount, kEveryDevice}] = std::nullopt;
    } else if (!read_sm_counts(*text, &read)) {
      return wrong(kSmCountOption, *text,
                   std::string(wire::info_of(wire::Limit::kSmCount).expected) +
                       ", or numbers by device like 0=16,1=8");
    }
    for (const auto& [key, value] : read) changes[key] = value;
  }
  for (const LimitOption& option : kMemoryOptions) {
    const auto text = command.option(option.name);
    if (!text) continue;
    Limits read;
    if (*text != kLift && !read_memory_limits(*text, option.limit, &read)) {
      return wrong(option.name, *text, "a size like 4G, or sizes by device like 0=4G,1=512M");
    }
    if (*text == kLift) read[{option.limit, kEveryDevice}] = 0;
    for (const auto& [key, value] : read) {
      changes[key] = value == 0 ? std::nullopt : std::optional(value);
    }
  }
  return changes;
}

Result<std::optional<wire::Quality>> quality_of_options(const ModuleCommand& command) {
  const auto text = command.option("quality");
  if (!text) return std::optional<wire::Quality>();
  const auto quality = quality_of_text(*text);
  if (quality) return quality;
  return Status(CUDA_ERROR_INVALID_VALUE,
                "--quality=" + printable(*text) + ": expected latency, normal or best-effort");
}

std::string limit_text(const GroupRule& rule, wire::Limit limit) {
  const wire::LimitInfo& info = wire::info_of(limit);
  if (info.notation == wire::Notation::kSize) {
    const std::string text = memory_limits_text(rule.limits, limit);
    return text.empty() ? kNoValue : text;
  }
  for (const auto& [key, value] : rule.limits) {
    if (key.limit != limit) continue;
    const bool is_word =
        info.notation == wire::Notation::kWord || info.notation == wire::Notation::kSwitch;
    if (is_word) return info.text(value);
    return limit == wire::Limit::kPercentage ? format_text("%.2f", value)
                                             : format_text("%g", value);
  }
  return kNoValue;
}

}  // namespace openmps::control
