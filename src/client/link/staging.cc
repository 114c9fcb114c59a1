// SPDX-License-Identifier: Apache-2.0
// See staging.h. Fences for busy pieces are forced only when pieces run out.
#include "client/link/staging.h"

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread_end.h"

namespace openmps::client {
namespace {

// Between two looks at the session's status while other threads fill all pieces.
constexpr uint64_t kHeldPauseNs = 10 * kNsPerMs;

}  // namespace

Staging::Staging(Channel& channel, Fences& fences) : fences_(fences), channel_(channel) {
  for (uint32_t i = 0; i < kSmallPieces; ++i) pools_[0].free.push_back(kSmallPieces - 1 - i);
  for (uint32_t i = 0; i < kLargePieces; ++i) {
    pools_[1].free.push_back(kSmallPieces + kLargePieces - 1 - i);
  }
}

unsigned char* Staging::data_of(uint32_t number) const {
  unsigned char* start = channel_.view().staging();
  if (number < kSmallPieces) return start + number * kSmallPieceBytes;
  return start + kSmallPieces * kSmallPieceBytes + (number - kSmallPieces) * kLargePieceBytes;
}

bool Staging::reap_locked(Pool& pool) {
  size_t kept = 0;
  for (const Busy& busy : pool.busy) {
    if (fences_.reached(busy.point)) {
      pool.free.push_back(busy.number);
    } else {
      pool.busy[kept++] = busy;
    }
  }
  pool.busy.resize(kept);
  return !pool.free.empty();
}

CUresult Staging::acquire(uint64_t bytes, Piece* piece, Block block) {
  const MutexLock guard(lock_);
  Pool& pool = pools_[bytes <= kSmallPieceBytes ? 0 : 1];
  while (pool.free.empty() && !reap_locked(pool)) {
    const CUresult status = channel_.status();
    if (status != CUDA_SUCCESS) return status;
    if (block == Block::kNo) return CUDA_ERROR_NOT_READY;
    const CancellationHeld held;
    if (pool.busy.empty()) {
      released_.wait_for(lock_, kHeldPauseNs);
      continue;
    }
    const FencePoint oldest = pool.busy.front().point;
    const MutexUnlock unlocked(lock_);
    const CUresult result = fences_.wait(oldest);
    if (result != CUDA_SUCCESS) return result;
  }
  piece->number = pool.free.back();
  piece->data = data_of(piece->number);
  pool.free.pop_back();
  return CUDA_SUCCESS;
}

void Staging::release(const Piece& piece) {
  const MutexLock guard(lock_);
  pool_of(piece.number).free.push_back(piece.number);
  released_.notify_one();
}

void Staging::release_after(const Piece& piece, FencePoint point) {
  const MutexLock guard(lock_);
  pool_of(piece.number).busy.push_back({piece.number, point});
  released_.notify_one();
}

}  // namespace openmps::client
