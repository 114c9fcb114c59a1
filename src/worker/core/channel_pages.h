// SPDX-License-Identifier: Apache-2.0
// Registers the part of a session's channel that the GPU reads and writes with the driver, piece by
// piece when the session first uses one: registered pages are pinned, and most sessions use few of
// them. Session's thread only.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>

#include "api/driver_table.h"
#include "cuda/status.h"
#include "wire/channel_view.h"
#include "worker/device/context_gate.h"
#include "worker/device/deferred_releases.h"
#include "worker/device/devices.h"

namespace openmps::worker {

inline constexpr unsigned kHostRegisterFlags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

class ChannelPages {
 public:
  ChannelPages(const DriverTable& driver, const Devices& devices, ContextGate& gate,
               const GateClient& gate_client, DeferredReleases& releases)
      : driver_(driver),
        devices_(devices),
        gate_(gate),
        gate_client_(gate_client),
        releases_(releases) {}
  ChannelPages(const ChannelPages&) = delete;
  ChannelPages& operator=(const ChannelPages&) = delete;

  // Register what every session needs, the first fences. `delta`: what is added to a host address
  // of the channel to get the device address.
  Status open(const wire::ChannelView& view, uint64_t* delta);
  // Register what of the range is in the channel. Before the driver is told an address of the
  // range. Errors: the driver's.
  Status use(uint64_t address, uint64_t bytes) {
    const uint64_t offset = address - begin_;
    if (offset >= kBytes) [[likely]] {
      return Status();
    }
    return use_part(offset, bytes);
  }
  Status use(const void* host, uint64_t bytes) {
    return use(reinterpret_cast<uint64_t>(host), bytes);
  }
  // While the session has no unfinished work: unmap the worker's pages of the channel, and end the
  // registrations of the staging arena as far as no other session's work delays that. False: some
  // are left. The pages themselves belong to the client, which may be filling them.
  bool release_idle();
  // End all registrations; the session ends. A context of device 0 is current.
  void release_all();

 private:
  static constexpr uint64_t kBytes = wire::kRegisteredEnd - wire::kRegisteredOffset;
  // Pieces, in the order of their addresses. A registration costs a driver call and pinned pages,
  // so the first few fences, the first few host functions and the first pieces of the staging arena
  // are pieces of their own. A client that uses more of the arena copies much: later pieces are
  // larger.
  static constexpr uint32_t kFencePieces = 2;
  static constexpr uint32_t kCallbackPieces = 2;
  static constexpr uint64_t kSmallBytes = 64 * wire::kKiB;
  static constexpr uint32_t kSmallPieces = wire::kSmallStagingBytes / kSmallBytes;
  static constexpr uint32_t kLargePieces = 4;
  static constexpr uint64_t kGroupBytes = 4 * wire::kStagingPieceBytes;
  static constexpr uint64_t kFirstGroup =  // from the beginning of the arena
      wire::kSmallStagingBytes + kLargePieces * wire::kStagingPieceBytes;
  static constexpr uint32_t kGroups = (wire::kStagingBytes - kFirstGroup) / kGroupBytes;
  static_assert(kFirstGroup + kGroups * kGroupBytes == wire::kStagingBytes);
  static constexpr uint32_t kFirstStaging = kFencePieces + kCallbackPieces;
  static constexpr uint32_t kPieces = kFirstStaging + kSmallPieces + kLargePieces + kGroups;
  // Where each begins, which is where the one before it ends, and where the last one ends.
  static const std::array<uint64_t, kPieces + 1> kBegins;

  Status use_part(uint64_t offset, uint64_t bytes);
  Status add(uint64_t begin, uint64_t end);
  bool give_back_staging();

  [[nodiscard]] CUcontext context() const { return devices_.at(devices_.home()).context; }

  const DriverTable& driver_;
  const Devices& devices_;
  ContextGate& gate_;
  const GateClient& gate_client_;
  DeferredReleases& releases_;
  wire::ChannelView view_;
  uint64_t begin_ = 0;  // address of the registered part; 0: the channel is not mapped
  bool whole_ = false;  // all of it is one registration, since device addresses differ
  std::bitset<kPieces> registered_;
};

}  // namespace openmps::worker
