// SPDX-License-Identifier: Apache-2.0
// The command language: a table of verbs with the positional words that each takes.
#include "control/command.h"

#include <span>
#include <vector>

#include "base/text.h"

namespace openmps::control {
namespace {

// A positional word lands in this member, in order.
using Place = std::string Command::*;

struct Form {
  std::string_view word;
  Verb verb;
  std::vector<Place> places;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> table = {
      {"quit", Verb::kQuit, {}},
      {"start_server", Verb::kStartServer, {}},
      {"shutdown_server", Verb::kShutdownServer, {&Command::server}},
      {"get_server_list", Verb::kGetServerList, {}},
      {"get_server_status", Verb::kGetServerStatus, {&Command::server}},
      {"get_client_list", Verb::kGetClientList, {&Command::server}},
      {"get_device_client_list", Verb::kGetDeviceClientList, {&Command::server}},
      {"ps", Verb::kPs, {}},
      {"device_query", Verb::kDeviceQuery, {&Command::server}},
      {"get_default_active_thread_percentage", Verb::kGetDefaultPercentage, {}},
      {"set_default_active_thread_percentage", Verb::kSetDefaultPercentage, {&Command::value}},
      {"get_active_thread_percentage", Verb::kGetPercentage, {&Command::server}},
      {"set_active_thread_percentage", Verb::kSetPercentage, {&Command::server, &Command::value}},
      {"get_default_device_pinned_mem_limit", Verb::kGetDefaultMemoryLimit, {&Command::device}},
      {"set_default_device_pinned_mem_limit",
       Verb::kSetDefaultMemoryLimit,
       {&Command::device, &Command::value}},
      {"get_device_pinned_mem_limit", Verb::kGetMemoryLimit, {&Command::server, &Command::device}},
      {"set_device_pinned_mem_limit",
       Verb::kSetMemoryLimit,
       {&Command::server, &Command::device, &Command::value}},
      {"get_default_client_priority", Verb::kGetDefaultPriority, {}},
      {"set_default_client_priority", Verb::kSetDefaultPriority, {&Command::value}},
      {"reload", Verb::kReload, {}},
      {"inspect", Verb::kInspect, {&Command::client}},
      {"whoami", Verb::kWhoAmI, {}},
      {"terminate_client", Verb::kTerminateClient, {&Command::server, &Command::client}},
      {"set_client_active_thread_percentage",
       Verb::kSetClientPercentage,
       {&Command::client, &Command::value}},
      {"set_client_sm_count",
       Verb::kSetClientSmCount,
       {&Command::client, &Command::device, &Command::value}},
      {"set_client_device_pinned_mem_limit",
       Verb::kSetClientMemoryLimit,
       {&Command::client, &Command::device, &Command::value}},
      {"set_client_priority", Verb::kSetClientPriority, {&Command::client, &Command::value}},
      {"get_group_list", Verb::kGetGroupList, {}},
      {"reserve_sms", Verb::kReserveSms, {&Command::client, &Command::device, &Command::value}},
      {"sm_partition", Verb::kSmPartition, {&Command::action, &Command::device, &Command::value}},
      {"lspart", Verb::kListPartitions, {}},
  };
  return table;
}

// Take an option with the words that belong to it from the front. False: not one of this command.
bool take_option(std::span<const std::string>* words, Command* command) {
  const std::string& option = words->front();
  const auto take_number = [&]() -> std::optional<uint32_t> {
    if (words->size() < 2) return std::nullopt;
    *words = words->subspan(1);
    const auto number = parse_unsigned(words->front(), UINT32_MAX);
    return number ? std::optional<uint32_t>(static_cast<uint32_t>(*number)) : std::nullopt;
  };
  if (option == "-uid" && command->verb == Verb::kStartServer) {
    command->uid = take_number();
  } else if (option == "-t" && command->verb == Verb::kQuit) {
    command->timeout_s = take_number();
  } else if (option == "-p" && command->verb == Verb::kPs && words->size() >= 2) {
    *words = words->subspan(1);
    command->server = words->front();
  } else if (option == "-f" && command->verb == Verb::kShutdownServer) {
    command->force = true;
  } else if (option == "--lend" && command->verb == Verb::kReserveSms) {
    command->lend = true;
  } else if (option == "--csv" && command->verb == Verb::kDeviceQuery) {
    command->csv = true;
  } else if (option == "--json" &&
             (command->verb == Verb::kPs || command->verb == Verb::kGetServerList ||
              command->verb == Verb::kInspect || command->verb == Verb::kDeviceQuery ||
              command->verb == Verb::kGetGroupList || command->verb == Verb::kListPartitions)) {
    command->json = true;
  } else {
    return false;
  }
  *words = words->subspan(1);
  return true;
}

}  // namespace

std::vector<std::string_view> command_words() {
  std::vector<std::string_view> words;
  for (const Form& form : forms()) words.push_back(form.word);
  return words;
}

Command parse_command(std::string_view line) {
  Command command;
  const std::vector<std::string> all = split_words(line);
  if (all.empty()) return command;
  command.word = all.front();
  const Form* form = nullptr;
  for (const Form& candidate : forms()) {
    if (candidate.word == command.word) form = &candidate;
  }
  if (form == nullptr) return command;
  command.verb = form->verb;
  std::span<const std::string> words(all);
  words = words.subspan(1);
  size_t place = 0;
  while (!words.empty()) {
    if (take_option(&words, &command)) continue;
    if (place < form->places.size()) {
      command.*form->places[place++] = words.front();
    } else if (command.unexpected.empty()) {
      command.unexpected = words.front();
    }
    words = words.subspan(1);
  }
  return command;
}

}  // namespace openmps::control
