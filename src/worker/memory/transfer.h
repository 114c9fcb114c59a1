// SPDX-License-Identifier: Apache-2.0
// Copies between device memory and registered host memory, a few pieces at a time, so that copies
// of other sessions are not behind gigabytes. Used by a session that has nothing under way; its
// thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "worker/core/session_core.h"
#include "worker/device/driver_event.h"
#include "worker/memory/host_store.h"

namespace openmps::worker {

class Transfer {
 public:
  enum class Direction { kToHost, kToDevice };
  // A copy engine stays with a stream as long as that has copies (an H200: a copy of 4 KiB waited
  // 160 ms for 8 GiB). So the stream runs empty after so many pieces, 2.4 ms on the bus of an H200,
  // and the copies of others come in between.
  static constexpr size_t kMostPieces = 8;
  static constexpr uint64_t kPieceBytes = uint64_t{16} << 20;

  // `gives_up`: the copies' results are not wanted any more.
  Transfer(SessionCore& core, uint32_t device, Direction direction, std::function<bool()> gives_up)
      : core_(core), device_(device), direction_(direction), gives_up_(std::move(gives_up)) {}
  // Waits for what is under way, unless the context is lost.
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Copy all bytes of the part. `done` is called when they have been copied, by a later call of
  // this object; it keeps the part and the memory alive. Errors: the driver's, of this or an
  // earlier copy; CUDA_ERROR_NOT_READY: gives_up. Then nothing more is called.
  Status add(uint64_t device_address, const HostStore::Part& part, std::function<Status()> done);
  // Until all is copied and done.
  Status finish();

 private:
  struct Piece {
    std::unique_ptr<DriverEvent> event;
    std::shared_ptr<std::function<Status()>> done;  // keeps alive what the copy uses
    bool is_last = false;                           // of an add()
  };
  Status open();
  Status begin(uint64_t device_address, unsigned char* host, uint64_t bytes, Piece piece);
  // Wait for the oldest piece.
  Status end_first();

  SessionCore& core_;
  const uint32_t device_;
  const Direction direction_;
  const std::function<bool()> gives_up_;
  CUstream stream_ = nullptr;
  StreamSlot slot_;
  std::deque<Piece> pieces_;
  std::deque<std::unique_ptr<DriverEvent>> unused_;
};

}  // namespace openmps::worker
