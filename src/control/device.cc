// SPDX-License-Identifier: Apache-2.0
// Device lists as servers send them.
#include "control/device.h"

#include <algorithm>

#include "base/text.h"
#include "wire/handshake.h"

namespace openmps::control {

std::vector<Device> parse_devices(std::string_view text) {
  std::vector<Device> devices;
  while (!text.empty() && devices.size() < wire::kMaxDevices) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = line.find('\t');
    const size_t second = first == std::string_view::npos ? first : line.find('\t', first + 1);
    if (second == std::string_view::npos) continue;
    devices.push_back(Device{printable(line.substr(0, first)),
                             printable(line.substr(first + 1, second - first - 1)),
                             printable(line.substr(second + 1))});
  }
  return devices;
}

}  // namespace openmps::control
