// SPDX-License-Identifier: Apache-2.0
// Example clients, devices and snapshots for tests of `openmps ps`, `top`, `stat` and `advise`.
#pragma once

#include <string>

#include "observe/snapshot.h"

namespace openmps::observe {

inline constexpr uint64_t kSecond = 1'000'000'000;

inline Device some_device() { return {0, "GPU-1", "NVIDIA H200", 100, 8, 1ull << 34}; }

// A client of device 0 without any use.
inline Client some_client(uint64_t pid, const std::string& command) {
  Client client;
  client.pid = pid;
  client.id = pid;
  client.server = 17;
  client.device = "GPU-1";
  client.command = command;
  client.quality = "normal";
  client.use.emplace();
  client.use->age_ns = 10 * kSecond;
  client.use->gpu_ns = 0;
  client.use->devices.push_back({});
  client.use->held.push_back({"window", 0, 0});
  client.use->held.push_back({"value", 0, 0});
  return client;
}

// Adds the use of `sms` SMs for `ns`. The client's age does not change.
inline void run(Client* client, uint64_t ns, uint64_t sms) {
  client->use->gpu_ns = *client->use->gpu_ns + ns;
  client->use->sm_ns += ns * sms;
  Use::OnDevice& device = client->use->devices[0];
  device.gpu_ns += ns;
  device.sm_ns += ns * sms;
  device.compared_ns += ns;
  device.alone_ns += ns;
}

inline Snapshot some_snapshot(uint64_t at_ns, const std::vector<Client>& clients) {
  return {at_ns, {some_device()}, clients};
}

}  // namespace openmps::observe
