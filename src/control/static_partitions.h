// SPDX-License-Identifier: Apache-2.0
// The static SM partitions of a daemon (option -S): which chunks of which device are whose, for all
// users (docs/decisions/0030). They last until they are removed or the daemon ends, and are kept by
// the workers that have clients in them. Used by ServerPool and CommandRunner on the loop.
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

// The one device whose UUID begins so; none, or more than one: nothing.
std::optional<uint32_t> find_by_uuid(std::string_view beginning,
                                     const std::vector<Device>& devices);

// A partition of the configuration.
struct PartitionRule {
  std::string name;    // as of a group: not digits alone, which are the ids of `sm_partition add`
  std::string device;  // a number, or the beginning of a UUID
  uint32_t chunks = 0;
};

class StaticPartitions {
 public:
  struct Partition {
    std::string uuid;  // of its device
    std::string id;    // of the configuration, or a number that this daemon never uses again
    uint32_t chunks = 0;
    wire::StaticPartition place;
    bool is_leaving = false;  // being removed: no client is let in

    // What CUDA_MPS_SM_PARTITION says.
    [[nodiscard]] std::string name() const { return uuid + "/" + id; }
  };

  // The chunks of lowest number that are free; without an id it gets the next number.
  // CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: there are not so many, or no number at all.
  Result<const Partition*> add(uint32_t ordinal, const Device& device, uint32_t chunks,
                               const std::string& id = "");
  // What the configuration says now. Those of its partitions that are not there yet are made when
  // the devices are known; what is there is never changed by this. Returns a line for each that
  // is to be made, and for each that stays what it is against the configuration's word.
  std::vector<std::string> describe(const std::vector<PartitionRule>& rules);
  // By its id or its name, whose UUID may be cut. Null: there is none.
  [[nodiscard]] Partition* find(std::string_view text);
  // Which one a client is in. Null: none, as its place has no SMs.
  [[nodiscard]] const Partition* find(const wire::StaticPartition& place) const;
  void remove(const Partition* partition);
  // For a client that says so: a whole name, or the configuration's alone. One that is still to be
  // made is nowhere, as after restore(). CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION with the reason.
  [[nodiscard]] Result<wire::StaticPartition> named(std::string_view text);
  [[nodiscard]] const std::list<Partition>& all() const { return all_; }

  // All of them as text, with which the next daemon goes on if this one is killed. What is
  // malformed in it is left out.
  [[nodiscard]] std::string text() const;
  void restore(const std::string& text);
  // Which devices there are: what has been restored is nowhere (wire::kMaxDevices) before this, and
  // stays there if its device is none of them. Then makes what has been described. Returns a line
  // for each that was made, and for each that can't be, which is forgotten.
  std::vector<std::string> place(const std::vector<Device>& devices);

 private:
  std::list<Partition> all_;
  std::vector<PartitionRule> described_;  // and not made yet
  uint64_t last_ = 0;
};

}  // namespace openmps::control
