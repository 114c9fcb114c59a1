// SPDX-License-Identifier: Apache-2.0
// See grant.h.
#include "kubernetes/grant.h"

#include <algorithm>

namespace openmps::kubernetes {
namespace {

// The daemon has no limit that keeps a namespace off a GPU: 0 means no limit.
constexpr Part kNextToNothing{1, 1 << 10};

}  // namespace

std::string options_of(const Grant& grant, const std::vector<observe::Device>& node) {
  std::string sms;
  std::string memory;
  for (const observe::Device& device : node) {
    const auto found = grant.parts.find(device.uuid);
    const Part& part = found == grant.parts.end() ? kNextToNothing : found->second;
    const std::string key = (sms.empty() ? "" : ",") + device.uuid + "=";
    sms += key + std::to_string(std::max(part.sms, kNextToNothing.sms));
    memory += key + std::to_string(std::max(part.memory_bytes, kNextToNothing.memory_bytes) >> 10);
    memory += "K";
  }
  return " --sm-count=" + sms + " --pinned-memory-limit=" + memory +
         " --borrow-sms=" + (grant.borrows ? "true" : "false") +
         " --quality=" + (grant.quality.empty() ? "normal" : grant.quality);
}

std::string first_options_of(const Grant& grant) {
  std::string text;
  for (const auto& [uuid, name] : grant.partitions) {
    text += (text.empty() ? " --sm-partitions=" : ",") + uuid + "=" + name;
  }
  return text;
}

std::string visible_devices(const Grant& grant, const std::vector<observe::Device>& node) {
  std::string text;
  for (const observe::Device& device : node) {
    if (grant.parts.contains(device.uuid)) text += (text.empty() ? "" : ",") + device.uuid;
  }
  return text;
}

}  // namespace openmps::kubernetes
