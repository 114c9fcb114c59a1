// SPDX-License-Identifier: Apache-2.0
// The static SM partitions of a daemon: the chunks of each device that a partition has, for the
// clients of all servers or of one (docs/decisions/0030, 0048). With option -S each client has to
// be in one. A partition lasts until it is removed or the daemon ends;
// the workers with clients in it reserve its SMs. Used by ServerPool and the handlers of commands
// on the loop.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/device.h"
#include "cuda/status.h"
#include "wire/handshake.h"

namespace openmps::control {

// The only device whose UUID begins so; nothing: there is none, or more than one.
std::optional<uint32_t> find_by_uuid(std::string_view beginning,
                                     const std::vector<Device>& devices);

// A partition of the configuration.
struct PartitionRule {
  std::string name;    // like a group's: not digits alone, the ids of `sm_partition add`
  std::string device;  // a number, or the beginning of a UUID
  uint32_t chunks = 0;
  std::string server = {};          // whose clients may be in it; "": those of all servers
  bool includes_remainder = false;  // the SMs that fill no chunk, too
  bool is_shareable = false;        // lends SMs that idle, and may borrow (decision 51)
  uint32_t most_chunks = 0;         // with what it borrows; 0: `chunks`

  // Unique on its device: names of partitions are unique within a server, and have no '.'.
  [[nodiscard]] std::string id() const { return server.empty() ? name : server + "." + name; }
};

// Why no partition can have the rule's most chunks; "": some device's can.
std::string fault_of_most_chunks(const PartitionRule& rule);

class StaticPartitions {
 public:
  struct Partition {
    std::string uuid;    // of its device
    std::string id;      // a name (PartitionRule::id()), or a number, used once only
    std::string server;  // whose clients may be in it; "": those of all servers
    uint32_t chunks = 0;
    uint32_t most_chunks = 0;    // with what it borrows; not less than `chunks`
    bool has_remainder = false;  // has the SMs that fill no chunk, too
    wire::StaticPartition place;
    bool is_leaving = false;  // being removed: no client is let in

    // The value of CUDA_MPS_SM_PARTITION for the partition.
    [[nodiscard]] std::string name() const { return uuid + "/" + id; }
    // Its name within its server.
    [[nodiscard]] std::string short_name() const {
      return server.empty() ? id : id.substr(server.size() + 1);
    }
  };

  // Adds a partition of the free chunks with the lowest numbers; without a name it gets the next
  // number. The rule's device counts for nothing. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: too
  // few chunks are free, there are none, another partition has the remainder, or that can't be the
  // most chunks;
  // CUDA_ERROR_ALREADY_ACQUIRED: the device has one of that id.
  Result<const Partition*> add(uint32_t ordinal, const Device& device, const PartitionRule& rule);
  // The partitions of the configuration. New ones are made when the devices are known; existing
  // ones are never changed. Returns a line for each that will be made, and for each existing one
  // that the configuration describes in another way.
  std::vector<std::string> describe(const std::vector<PartitionRule>& rules);
  // By id or by name, in which the UUID may be cut. Null: there is none.
  [[nodiscard]] Partition* find(std::string_view text);
  // By its server and its name within that.
  [[nodiscard]] Partition* find(std::string_view server, std::string_view uuid,
                                std::string_view short_name);
  // Those of a server that does not exist any more.
  void remove_of(std::string_view server);
  // The partition of a client, by its device and by its place as its server states that, which may
  // count the devices in another way. Null: the place has no SMs.
  [[nodiscard]] const Partition* find(std::string_view uuid, wire::StaticPartition place) const;
  void remove(const Partition* partition);
  // The partition that a client of the server names: by a whole name, or by a name alone. One that
  // is not made yet has the device wire::kMaxDevices. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
  // with the reason.
  [[nodiscard]] Result<wire::StaticPartition> named(std::string_view text,
                                                    std::string_view server = "");
  [[nodiscard]] const std::list<Partition>& all() const { return all_; }
  // There are none, and none will be made.
  [[nodiscard]] bool empty() const { return all_.empty() && described_.empty(); }

  // All partitions as text, from which a next daemon restores them if this one is killed. restore()
  // skips malformed lines.
  [[nodiscard]] std::string text() const;
  void restore(const std::string& text);
  // Finds the devices of restored partitions, which have wire::kMaxDevices before this and also
  // after it if their device is missing. Then makes the described partitions. Returns a line for
  // each that was made, and for each that can't be made, which is forgotten.
  std::vector<std::string> place(const std::vector<Device>& devices);

 private:
  std::list<Partition> all_;
  std::vector<PartitionRule> described_;  // those that are not made yet
  uint64_t last_ = 0;
};

}  // namespace openmps::control
