// SPDX-License-Identifier: Apache-2.0
// Fuzz target of the shell's command language: any bytes parse to a Command whose parts come from
// the line, and a setting command never leads to a value out of range. Linked with libFuzzer if
// clang is available; the corpus in corpus/command runs as a unit test.
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "control/command.h"
#include "control/module_command.h"
#include "control/settings.h"
#include "control/static_partitions.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace openmps::control;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const Command command = parse_command(line);
  for (const std::string* part : {&command.word, &command.server, &command.client, &command.device,
                                  &command.value, &command.action, &command.unexpected}) {
    if (line.find(*part) == std::string_view::npos) abort();
    if (part->find_first_of(" \t\r") != std::string::npos) abort();
  }
  Settings settings;
  for (const openmps::wire::LimitInfo& info : openmps::wire::limit_table()) {
    const std::string device = info.is_per_device ? command.device : "";
    (void)settings.set(info.limit, device, command.value);
    (void)info.answer(settings.value(info.limit, device));
  }
  const openmps::wire::ClientLimits limits = settings.resolved({});
  if (!(limits.active_thread_percentage > 0 && limits.active_thread_percentage <= 100)) abort();
  if (limits.client_priority > 1 && limits.client_priority != openmps::wire::kNoPriority) abort();
  (void)parse_devices(line);
  StaticPartitions partitions;
  (void)partitions.add(0, {"", "GPU-1", "", 8, 0, 2, 4}, {.name = "", .device = "", .chunks = 1});
  // Lines of MPS's interface v3 are commands or have an answer.
  const openmps::control::ParsedModuleCommand parsed = openmps::control::parse_module_command(line);
  if (!parsed.answer && parsed.command.verb == nullptr) abort();
  if (partitions.named(command.value).ok() && !command.value.starts_with("G")) abort();
  return 0;
}
