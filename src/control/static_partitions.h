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

class StaticPartitions {
 public:
  struct Partition {
    std::string uuid;  // of its device
    std::string id;    // never used again by this daemon
    uint32_t chunks = 0;
    wire::StaticPartition place;
    bool is_leaving = false;  // being removed: no client is let in

    // What CUDA_MPS_SM_PARTITION says.
    [[nodiscard]] std::string name() const { return uuid + "/" + id; }
  };

  // The chunks of lowest number that are free. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: there are
  // not so many, or no number at all.
  Result<const Partition*> add(uint32_t ordinal, const Device& device, uint32_t chunks);
  // By its id or its name, whose UUID may be cut. Null: there is none.
  [[nodiscard]] Partition* find(std::string_view text);
  void remove(const Partition* partition);
  // For a client that says so. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION with the reason.
  [[nodiscard]] Result<wire::StaticPartition> named(std::string_view text);
  [[nodiscard]] const std::list<Partition>& all() const { return all_; }

  // All of them as text, with which the next daemon goes on if this one is killed. What is
  // malformed in it is left out.
  [[nodiscard]] std::string text() const;
  void restore(const std::string& text);
  // Which devices there are: what has been restored is nowhere (wire::kMaxDevices) before this, and
  // stays there if its device is none of them.
  void place(const std::vector<Device>& devices);

 private:
  std::list<Partition> all_;
  uint64_t last_ = 0;
};

}  // namespace openmps::control
