// SPDX-License-Identifier: Apache-2.0
// What has happened since the daemon has started (docs/decisions/0055): what the clients of each
// server and group have used, in servers that have ended as well, and the last events. Used by
// ServerPool and the handlers of commands on the loop.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/device.h"
#include "wire/handshake.h"

namespace openmps::control {

// Events of each kind that are kept.
inline constexpr size_t kMostEventsOfKind = 32;
// Groups of servers that have ended: as many as four servers have (server::kMostGroupTotals). Above
// that their figures are those of the group "" of their server.
inline constexpr size_t kMostEndedGroups = 2048;
// Groups of a server that runs, which may be any program of its user: more than it has.
inline constexpr size_t kMostToldGroups = 2 * wire::kMaxWindows;

// What the clients of one group of a server have used.
struct TotalsLine {
  struct OnDevice {
    std::string uuid;
    wire::UsageCells<uint64_t, wire::kDeviceUses> uses{};
    uint64_t memory = 0;   // bytes that clients hold now
    uint64_t on_host = 0;  // of these, on the host
  };

  std::string server;  // its name
  std::string group;   // "": clients in no group
  uint64_t sessions = 0;
  uint32_t open = 0;  // of these, that are there now
  wire::Usage usage;  // without what is of a device
  std::vector<OnDevice> devices = {};

  [[nodiscard]] uint64_t use(wire::DeviceUse what) const;
  void add(const TotalsLine& other);
};

// `devices`: as that server counts them. Figures of other devices are left out.
TotalsLine totals_line(const std::string& server, const wire::TotalsRow& row,
                       const std::vector<Device>& devices);

struct EventLine {
  uint64_t number = 0;      // in the order of events, from 1
  std::string server = {};  // its name
  wire::EventKind kind = wire::EventKind::kNumber;
  uint64_t at_ns = 0;  // since 1970
  CUresult result = CUDA_SUCCESS;
  uint32_t pid = 0;  // of a client, with its ID; both 0: of none
  uint32_t id = 0;
  std::string command = {};
  std::string group = {};
  std::string domain = {};
  std::string text = {};
};

class History {
 public:
  // The last word of a server that runs on a group's clients that have ended.
  void note_totals(const std::string& server, const wire::TotalsRow& row,
                   const std::vector<Device>& devices);
  void on_server_gone(const std::string& server);
  // Of servers of that name that have ended, and by the last word of the one that runs, if it is
  // not there or does not answer.
  enum class With { kEndedServersOnly, kLastWord };
  [[nodiscard]] std::vector<TotalsLine> totals(const std::string& server, With with) const;
  // Names of servers of which there are figures.
  [[nodiscard]] std::vector<std::string> servers() const;

  // Sets the event's number.
  void note(EventLine event);
  // By number.
  [[nodiscard]] std::vector<EventLine> events() const;
  // How many there have been of each kind.
  using Counts = std::array<uint64_t, wire::kEventKinds>;
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  using Key = std::pair<std::string, std::string>;              // server, group
  std::map<std::string, std::map<uint32_t, TotalsLine>> told_;  // by server, then by its number
  std::map<Key, TotalsLine> ended_;
  std::array<std::deque<EventLine>, wire::kEventKinds> events_;
  Counts counts_{};
  uint64_t last_event_ = 0;
};

}  // namespace openmps::control
