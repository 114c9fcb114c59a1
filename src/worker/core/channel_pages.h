// SPDX-License-Identifier: Apache-2.0
// The part of a session's channel that the GPU reads and writes, registered with the driver piece
// by piece as the session comes to use it: pages that are registered stay in memory, and most
// sessions use few of them. Session's thread only.
#pragma once

#include <bitset>
#include <cstdint>

#include "api/driver_table.h"
#include "cuda/status.h"
#include "wire/channel_view.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"
#include "worker/device/returns.h"

namespace openmps::worker {

inline constexpr unsigned kHostRegisterFlags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

class ChannelPages {
 public:
  ChannelPages(const DriverTable& driver, const Devices& devices, ContextGate& gate,
               const GateClient& gate_client, Returns& returns)
      : driver_(driver),
        devices_(devices),
        gate_(gate),
        gate_client_(gate_client),
        returns_(returns) {}
  ChannelPages(const ChannelPages&) = delete;
  ChannelPages& operator=(const ChannelPages&) = delete;

  // What every session needs: the first fences. `delta`: from the host's addresses of the part to
  // the devices'.
  Status open(const wire::ChannelView& view, uint64_t* delta);
  // Before the driver is told an address of the range: whatever of it is in the registered part of
  // the channel is registered. Errors: the driver's.
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
  // The session has nothing under way. What it has of the channel in its page tables goes, and its
  // staging arena's registrations do, as far as no other session's work is in the way: false if
  // some are left. The pages themselves are the client's, who may be filling them.
  bool release_idle();
  // The session ends. A context of device 0 is current.
  void release_all();

 private:
  static constexpr uint64_t kBytes = wire::kRegisteredEnd - wire::kRegisteredOffset;
  // Pieces, in the order of their addresses. A registration costs its call and its pages: the first
  // few fences and host functions are apart from all others, and so are the first pieces of the
  // staging arena, as clients cut it; a client that uses more copies much and gets more at a time.
  struct Piece {
    uint64_t begin;
    uint64_t end;
  };
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
  static Piece piece(uint32_t number);
  static uint32_t piece_at(uint64_t offset);

  Status use_part(uint64_t offset, uint64_t bytes);
  Status add(uint64_t begin, uint64_t end);
  bool give_back_staging();

  [[nodiscard]] CUcontext context() const { return devices_.at(0).context; }

  const DriverTable& driver_;
  const Devices& devices_;
  ContextGate& gate_;
  const GateClient& gate_client_;
  Returns& returns_;
  wire::ChannelView view_;
  uint64_t begin_ = 0;  // of the part; 0: it is not mapped
  bool whole_ = false;  // one registration: a device has addresses of its own for it
  std::bitset<kPieces> registered_;
};

}  // namespace openmps::worker
