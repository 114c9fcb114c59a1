// SPDX-License-Identifier: Apache-2.0
// The static SM partitions of a daemon (option -S): the chunks of each device that a partition has,
// for all users (docs/decisions/0030). A partition lasts until it is removed or the daemon ends;
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
};

class StaticPartitions {
 public:
  struct Partition {
    std::string uuid;  // of its device
    std::string id;    // a name of the configuration, or a number, used once only
    uint32_t chunks = 0;
    wire::StaticPartition place;
    bool is_leaving = false;  // being removed: no client is let in

    // The value of CUDA_MPS_SM_PARTITION for the partition.
    [[nodiscard]] std::string name() const { return uuid + "/" + id; }
  };

  // Adds a partition of the free chunks with the lowest numbers; without an id it gets the next
  // number. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: too few chunks are free, or `chunks` is 0.
  Result<const Partition*> add(uint32_t ordinal, const Device& device, uint32_t chunks,
                               const std::string& id = "");
  // The partitions of the configuration. New ones are made when the devices are known; existing
  // ones are never changed. Returns a line for each that will be made, and for each existing one
  // that the configuration describes in another way.
  std::vector<std::string> describe(const std::vector<PartitionRule>& rules);
  // By id or by name, in which the UUID may be cut. Null: there is none.
  [[nodiscard]] Partition* find(std::string_view text);
  // The partition of a client's place. Null: the place has no SMs.
  [[nodiscard]] const Partition* find(const wire::StaticPartition& place) const;
  void remove(const Partition* partition);
  // The partition that a client names: by a whole name, or by a name of the configuration alone.
  // One that is not made yet has the device wire::kMaxDevices.
  // CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION with the reason.
  [[nodiscard]] Result<wire::StaticPartition> named(std::string_view text);
  [[nodiscard]] const std::list<Partition>& all() const { return all_; }

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
