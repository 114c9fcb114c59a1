// SPDX-License-Identifier: Apache-2.0
// Fuzz target of the configuration file: any text is a configuration whose limits are in range, or
// gives an error with the place of the mistake in printable characters. Linked with libFuzzer if
// clang is available; the corpus in corpus/config runs as a unit test.
#include <cstddef>
#include <cstdlib>

#include "base/text.h"
#include "control/config.h"
#include "control/settings.h"

namespace {

using namespace openmps;

void check(const control::Limits& limits) {
  for (const auto& [key, value] : limits) {
    const wire::LimitInfo& info = wire::info_of(key.limit);
    if (!(value >= info.least && value <= info.most)) abort();
    if (info.is_per_device ? !control::names_a_device(key.device) : !key.device.empty()) abort();
  }
  control::Settings settings;
  for (const std::string& line : settings.change({}, limits)) {
    if (line != printable(line)) abort();
  }
  (void)settings.resolved({});
  (void)settings.change(limits, {});
  if (settings.resolved({}) != wire::ClientLimits()) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto find_user = [](const std::string& name) {
    return name == "a" ? std::optional<uid_t>(1) : std::nullopt;
  };
  const Result<control::Config> config = control::parse_config(text, "f", find_user);
  if (!config.ok()) {
    const std::string& message = config.status().message();
    if (!message.starts_with("f:") || message != printable(message)) abort();
    return 0;
  }
  check(config->defaults);
  for (const auto& [uid, limits] : config->users) check(limits);
  control::StaticPartitions partitions;
  if (partitions.describe(config->partitions).size() != config->partitions.size()) abort();
  for (const control::PartitionRule& rule : config->partitions) {
    if (!partitions.named(rule.name).ok()) abort();
  }
  for (const std::string& line : partitions.place({{"", "GPU-a", "", 8, 0, 2, 4}})) {
    if (line != printable(line)) abort();
  }
  control::StaticPartitions next;
  next.restore(partitions.text());
  if (next.text() != partitions.text()) abort();
  for (const control::GroupRule& group : config->groups) {
    check(group.limits);
    if (!control::names_a_group(group.name)) abort();
    if (control::rule_of(config->groups, group.name) != &group) abort();
    (void)control::membership_of(config->groups, {1, "a", group.name}, {{"/a/b"}});
    for (const std::string& line : control::changes_of_group(nullptr, &group)) {
      if (line != printable(line)) abort();
    }
  }
  return 0;
}
