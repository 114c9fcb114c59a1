// SPDX-License-Identifier: Apache-2.0
// The limits in force: the daemon's defaults for coming servers, and each server's copy for its
// coming clients. Set by commands and by the configuration; lost on quit. Used on the daemon's
// loop.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/device.h"
#include "control/limits.h"
#include "wire/client_limits.h"

namespace openmps::control {

// An ordinal, or the UUID of one of these or its beginning.
std::optional<uint32_t> find_device(std::string_view text, const std::vector<Device>& devices);

class Settings {
 public:
  // Sets a limit as a command states it. Of a limit per device, `device` is an ordinal or a UUID,
  // which is not checked, and 0 lifts the limit. False: `text` is no value of the limit, or there
  // is no device; nothing has changed.
  bool set(wire::Limit limit, std::string_view device, std::string_view text);
  // The value set for exactly this spelling of the device, else the limit's value where none is
  // set.
  [[nodiscard]] wire::LimitValue value(wire::Limit limit, std::string_view device = "") const;
  // With the devices' UUIDs resolved: where several spellings name a device, the last one set wins.
  [[nodiscard]] wire::ClientLimits resolved(const std::vector<Device>& devices) const;

  // Each limit that `now` states in another way than `before` replaces what is set; one that is not
  // stated any more is unset. Returns a line for each change: "what: from -> to".
  std::vector<std::string> change(const Limits& before, const Limits& now);

 private:
  void put(const LimitKey& key, std::optional<wire::LimitValue> value);

  std::vector<std::pair<LimitKey, wire::LimitValue>> set_;  // in the order of setting
};

}  // namespace openmps::control
