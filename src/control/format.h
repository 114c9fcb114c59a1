// SPDX-License-Identifier: Apache-2.0
// The output of commands: tables and lists as NVIDIA's daemon prints them, byte by byte, and JSON
// for scripts. Pure functions, called by the handlers of commands.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/device.h"
#include "control/history.h"
#include "control/listing.h"
#include "wire/handshake.h"

namespace openmps::control {

struct ClientLine {
  uint32_t pid = 0;  // 0: the daemon can't see it (client_name.h)
  uint32_t id = 0;
  uint32_t server = 0;
  uint32_t namespace_inode = 0;
  std::string device_uuid;  // not its number: a server may count devices in another way
  std::string command;
  bool ending = false;  // the program has gone, and its work has not ended yet
  wire::Usage usage{};
  double active_thread_percentage = 100;
  wire::Quality quality = wire::Quality::kNormal;
  std::string group = {};            // "": none
  wire::StaticPartition place = {};  // no SMs: in no static partition
  std::string partition = {};        // the name of the partition
  bool silent = false;               // its worker does not answer
  uint32_t moves = 0;                // how often it has moved to another worker
  std::string stays = {};            // why it could not move; "": it could
  std::string domain = {};           // its fault domain
  uint32_t claimed_pid = 0;          // the PID that the client states
  wire::Residence residence = wire::Residence::kDevice;

  // Of its memory, bytes that are on the host now.
  [[nodiscard]] uint64_t host_bytes() const;
};

// A device of device_query's JSON form.
struct DeviceLine {
  Device device;
  uint32_t ordinal = 0;  // the daemon's, as in ps
  // What the clients of the caller's namespace have of it together. Nothing: the caller has not
  // come by a namespace's socket.
  struct Share {
    uint32_t sms = 0;
    uint64_t memory_bytes = 0;
  };
  std::optional<Share> share = {};
};

struct GroupLine {
  std::string name;
  uint32_t id = 0;
  uint32_t server = 0;
  uint32_t members = 0;
  wire::ClientLimits limits;
  std::array<uint64_t, wire::kMaxDevices> memory{};  // bytes in use by device
};

// The state of a session (wire/handshake.h).
struct Inspected {
  wire::SessionReport report;
  std::vector<wire::WaitRow> waits;
  // As ClientLine has them.
  wire::Residence residence = wire::Residence::kDevice;
  uint64_t host_bytes = 0;
};

struct ServerLine {
  uint32_t pid = 0;
  uint32_t uid = 0;
  std::string state;
  std::string name;
};

// A device and its static partitions, in chunks.
struct DevicePartitions {
  struct Partition {
    std::string id;
    uint32_t chunks = 0;
    bool has_clients = false;
    bool is_shareable = false;
    uint32_t most_chunks = 0;  // with what it borrows
  };
  std::string uuid;
  uint32_t chunk_sms = 0;
  uint32_t chunks = 0;
  std::vector<Partition> partitions = {};

  [[nodiscard]] uint32_t used_chunks() const;
};

// Names of clients as commands take them, PIDs as a rule, one per line. Clients that end are
// marked, here and in the other lists.
std::string format_client_list(const std::vector<ClientLine>& clients);
// Empty for no clients. Ends with a note if a client has no PID.
std::string format_ps(const std::vector<ClientLine>& clients);
std::string format_ps_json(const std::vector<ClientLine>& clients);
// What has come of moving a client's memory to the host, as one line.
std::string format_suspended(const std::string& client, uint64_t moved_bytes,
                             uint64_t stayed_bytes);
// A line for each group: its members, limits and use.
std::string format_groups(const std::vector<GroupLine>& groups);
std::string format_groups_json(const std::vector<GroupLine>& groups);
// A row for each server, group and device.
Listing totals_listing(const std::vector<TotalsLine>& totals);
std::string format_totals_json(const std::vector<TotalsLine>& totals);
// Times are those of this machine's time zone.
std::string format_events(const std::vector<EventLine>& events);
// `counts`: of all events there have been; nothing: they are not shown.
std::string format_events_json(const std::vector<EventLine>& events,
                               const std::optional<History::Counts>& counts);
// "worker-started"; "" for a number without a name, which only a broken peer sends.
const char* name_of(wire::EventKind kind);
std::string format_server_list_json(const std::vector<ServerLine>& servers);
std::string format_device_clients(const std::vector<Device>& devices,
                                  const std::vector<ClientLine>& clients);
// The queued commands, what the executor does, and what waits for what.
std::string format_inspected(const Inspected& inspected);
std::string format_inspected_json(const Inspected& inspected);
// One block of device_query: `title`, the heading and the rows.
std::string format_devices(const std::string& title, const std::vector<Device>& devices, bool csv);
// lspart: a row for each device, then a row for each of its partitions.
std::string format_partitions(const std::vector<DevicePartitions>& devices);
std::string format_partitions_json(const std::vector<DevicePartitions>& devices);
std::string format_devices_json(const std::vector<DeviceLine>& devices);

}  // namespace openmps::control
