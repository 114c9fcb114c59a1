// SPDX-License-Identifier: Apache-2.0
// The staging arena of the channel, cut into pieces through which pageable copies and images are
// transferred. A piece is free again once the stream that reads or writes the piece has reached a
// fence point behind that work. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "client/link/fence.h"
#include "cuda/abi.h"

namespace openmps::client {

// Two sizes, so that many small asynchronous copies do not use up the pieces of large ones.
// 512 KiB: at 55 GB/s a piece takes 10 us, above the cost of a command, and 28 of them cover the
// latency of several copying threads.
inline constexpr uint64_t kSmallPieceBytes = 16 * wire::kKiB;
inline constexpr uint64_t kLargePieceBytes = wire::kStagingPieceBytes;
inline constexpr uint32_t kSmallPieces = wire::kSmallStagingBytes / kSmallPieceBytes;
inline constexpr uint32_t kLargePieces =
    (wire::kStagingBytes - wire::kSmallStagingBytes) / kLargePieceBytes;
static_assert(kSmallPieces == 128 && kLargePieces == 28);

class Staging {
 public:
  struct Piece {
    unsigned char* data = nullptr;
    uint32_t number = 0;
    [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(data); }
  };

  Staging(Channel& channel, Fences& fences);

  enum class Block { kYes, kNo };
  // A piece of at least min(bytes, kLargePieceBytes). While all are in use it blocks, or returns
  // CUDA_ERROR_NOT_READY. Other errors: the session's end.
  [[nodiscard]] CUresult acquire(uint64_t bytes, Piece* piece, Block block = Block::kYes);
  void release(const Piece& piece);
  // The piece is free once `point` is reached.
  void release_after(const Piece& piece, FencePoint point);

 private:
  struct Busy {
    uint32_t number;
    FencePoint point;
  };
  struct Pool {
    std::vector<uint32_t> free;
    std::vector<Busy> busy;  // oldest first
  };

  [[nodiscard]] Pool& pool_of(uint32_t number) REQUIRES(lock_) {
    return pools_[number < kSmallPieces ? 0 : 1];
  }
  bool reap_locked(Pool& pool) REQUIRES(lock_);
  [[nodiscard]] unsigned char* data_of(uint32_t number) const;

  Fences& fences_;
  Channel& channel_;
  Mutex lock_{LockRank::kClientStaging};
  CondVar released_;
  Pool pools_[2] GUARDED_BY(lock_);  // small, large
};

}  // namespace openmps::client
