// SPDX-License-Identifier: Apache-2.0
// See command.h.
#include "control/command.h"

#include <algorithm>

#include "base/text.h"

namespace openmps::control {
namespace {

std::optional<uint32_t> number_of(std::string_view text) {
  const auto number = parse_unsigned(text, UINT32_MAX);
  return number ? std::optional(static_cast<uint32_t>(*number)) : std::nullopt;
}

// The column where the help of an option or a command begins.
constexpr size_t kHelpColumn = 27;

// `text` with its marks as fonts of roff, in the font `plain` outside of them.
std::string roff(std::string_view text, const std::string& plain) {
  std::string made = plain;
  bool is_bold = plain == "\\fB";
  for (const char c : text) {
    switch (c) {
      case '`':
        is_bold = !is_bold;
        made += is_bold ? "\\fB" : plain;
        break;
      case '<': made += "\\fI<"; break;
      case '>': made += is_bold ? ">\\fB" : ">" + plain; break;
      case '-': made += is_bold ? "\\-" : "-"; break;
      case '"': made += "\\(dq"; break;
      default: made += c;
    }
  }
  return made;
}

std::string with_arguments(const CommandInfo& row) {
  std::string text(row.word);
  if (!row.arguments.empty()) text += " " + std::string(row.arguments);
  return text;
}

}  // namespace

const CommandOption kUidOption{"-uid", true, [](Command* command, std::string_view argument) {
                                 command->uid = number_of(argument);
                               }};
const CommandOption kTimeoutOption{"-t", true, [](Command* command, std::string_view argument) {
                                     command->timeout_s = number_of(argument);
                                   }};
const CommandOption kServerOption{
    "-p", true, [](Command* command, std::string_view argument) { command->server = argument; }};
const CommandOption kForceOption{"-f", false,
                                 [](Command* command, std::string_view) { command->force = true; }};
const CommandOption kLendOption{"--lend", false,
                                [](Command* command, std::string_view) { command->lend = true; }};
const CommandOption kCsvOption{"--csv", false,
                               [](Command* command, std::string_view) { command->csv = true; }};
const CommandOption kJsonOption{"--json", false,
                                [](Command* command, std::string_view) { command->json = true; }};
const CommandOption kWorkerOption{
    "--worker", false, [](Command* command, std::string_view) { command->worker = true; }};
const CommandOption kLeaveOption{"--leave-servers", false, [](Command* command, std::string_view) {
                                   command->leave_servers = true;
                                 }};
const CommandOption kUntilUsedOption{
    "--until-used", false, [](Command* command, std::string_view) { command->until_used = true; }};

const CommandOption kRecordOption{
    "--record", false, [](Command* command, std::string_view) { command->records = true; }};

std::vector<const CommandInfo*> all_commands() {
  std::vector<const CommandInfo*> all;
  for (const std::span<const CommandInfo> rows :
       {server_commands(), client_commands(), limit_commands(), partition_commands(),
        history_commands(), daemon_commands()}) {
    for (const CommandInfo& row : rows) all.push_back(&row);
  }
  return all;
}

Command parse_command(std::string_view line) {
  static const std::vector<const CommandInfo*> kAll = all_commands();
  Command command;
  const std::vector<std::string> all_words = split_words(line);
  std::span<const std::string> words(all_words);
  const auto take = [&words] {
    if (words.empty()) return std::string();
    const std::string& word = words.front();
    words = words.subspan(1);
    return word;
  };
  command.word = take();
  const auto info = std::ranges::find(kAll, command.word, &CommandInfo::word);
  if (info == kAll.end()) return command;
  command.info = *info;
  size_t place = 0;
  while (!words.empty()) {
    const std::string word = take();
    const auto option =
        std::ranges::find(command.info->options, word, [](const auto* one) { return one->word; });
    if (option != command.info->options.end()) {
      (*option)->set(&command, (*option)->takes_word ? take() : "");
    } else if (place < command.info->places.size()) {
      command.*command.info->places[place++] = word;
    } else if (command.unexpected.empty()) {
      command.unexpected = word;
    }
  }
  return command;
}

std::string help_of_commands() {
  const std::string indent(kHelpColumn, ' ');
  std::string text;
  for (const CommandInfo* row : all_commands()) {
    const std::string head = "  " + with_arguments(*row);
    text += head;
    std::string_view help = row->help;
    bool is_beside = head.size() + 2 <= kHelpColumn;
    while (!help.empty()) {
      const std::string_view line = help.substr(0, help.find('\n'));
      help.remove_prefix(std::min(help.size(), line.size() + 1));
      text += is_beside ? std::string(kHelpColumn - head.size(), ' ') : "\n" + indent;
      text += line;
      is_beside = false;
    }
    text += '\n';
  }
  return text;
}

std::string manual_of_commands() {
  std::string text;
  bool continues = false;
  for (const CommandInfo* row : all_commands()) {
    text += (continues ? ".TQ\n" : ".TP\n") + roff(with_arguments(*row), "\\fB") + "\\fR\n";
    if (!row->manual.empty()) text += roff(row->manual, "\\fR") + "\n";
    continues = row->manual.empty();
  }
  return text;
}

}  // namespace openmps::control
