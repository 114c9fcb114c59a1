// SPDX-License-Identifier: Apache-2.0
// Device lists as servers send them.
#include "control/device.h"

#include <algorithm>

#include "base/text.h"
#include "wire/handshake.h"

namespace openmps::control {
namespace {

constexpr size_t kFields = 9;
constexpr size_t kFieldsOfOlder = 7;

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t tab = 0; tab != std::string_view::npos; line.remove_prefix(tab + 1)) {
    tab = line.find('\t');
    fields.push_back(line.substr(0, tab));
    if (tab == std::string_view::npos) break;
  }
  return fields;
}

}  // namespace

std::vector<Device> parse_devices(std::string_view text) {
  std::vector<Device> devices;
  while (!text.empty() && devices.size() < wire::kMaxDevices) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::vector<std::string_view> fields = split(line);
    if (fields.size() != kFields && fields.size() != kFieldsOfOlder) continue;
    const bool has_all = fields.size() == kFields;
    const std::optional<uint64_t> sms = parse_unsigned(fields[3], UINT32_MAX);
    const std::optional<uint64_t> memory = parse_unsigned(fields[4], UINT64_MAX);
    const std::optional<uint64_t> chunk = parse_unsigned(fields[5], UINT32_MAX);
    const std::optional<uint64_t> in_chunks = parse_unsigned(fields[6], UINT32_MAX);
    const std::optional<uint64_t> capability =
        has_all ? parse_unsigned(fields[7], UINT32_MAX) : std::optional<uint64_t>(0);
    const std::optional<uint64_t> cuda =
        has_all ? parse_unsigned(fields[8], UINT32_MAX) : std::optional<uint64_t>(0);
    if (!sms || !memory || !chunk || !in_chunks || !capability || !cuda) continue;
    const uint64_t chunks = *chunk == 0 ? 0 : *in_chunks / *chunk;
    devices.push_back(Device{printable(fields[0]), printable(fields[1]), printable(fields[2]),
                             static_cast<uint32_t>(*sms), *memory, static_cast<uint32_t>(*chunk),
                             static_cast<uint32_t>(chunks), static_cast<uint32_t>(*capability),
                             static_cast<uint32_t>(*cuda)});
  }
  return devices;
}

}  // namespace openmps::control
