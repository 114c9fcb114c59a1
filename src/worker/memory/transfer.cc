// SPDX-License-Identifier: Apache-2.0
// See transfer.h.
#include "worker/memory/transfer.h"

#include <algorithm>
#include <utility>

#include "base/adaptive_wait.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// Between two looks at a piece, which takes 0.3 ms.
constexpr WaitPlan kPiecePlan{.nap_until_ns = kNever, .nap = {10'000, 200'000}};

}  // namespace

Transfer::~Transfer() {
  if (stream_ == nullptr || !core_.use(device_).ok()) return;
  // The copies of pieces without an event behind them have ended when the stream has.
  AdaptiveWait wait(core_.clock, kPiecePlan);
  while (!pieces_.empty() && core_.driver.cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY) {
    wait.pause();
  }
  pieces_.clear();
  unused_.clear();
  core_.driver.cuStreamDestroy_v2(stream_);
}

Status Transfer::open() {
  OPENMPS_RETURN_IF_ERROR(core_.use(device_));
  if (stream_ != nullptr) return Status();
  slot_ = core_.take_slots({device_});
  return check(core_.driver.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
               "cuStreamCreateWithPriority of a transfer");
}

// A copy lies in one registered block.
Status Transfer::add(uint64_t device_address, const HostStore::Part& part,
                     std::function<Status()> done) {
  OPENMPS_RETURN_IF_ERROR(open());
  const auto shared = std::make_shared<std::function<Status()>>(std::move(done));
  for (uint64_t at = 0; at < part.bytes();) {
    const uint64_t in_block =
        HostStore::kBlockBytes - (part.offset() + at) % HostStore::kBlockBytes;
    const uint64_t piece = std::min({part.bytes() - at, in_block, kPieceBytes});
    OPENMPS_RETURN_IF_ERROR(
        begin(device_address + at, part.data() + at, piece,
              {.event = nullptr, .done = shared, .is_last = at + piece == part.bytes()}));
    at += piece;
  }
  return Status();
}

Status Transfer::begin(uint64_t device_address, unsigned char* host, uint64_t bytes, Piece piece) {
  if (pieces_.size() >= kMostPieces) OPENMPS_RETURN_IF_ERROR(finish());
  OPENMPS_RETURN_IF_ERROR(core_.use(device_));
  if (unused_.empty()) {
    OPENMPS_RETURN_IF_ERROR(DriverEvent::make(core_.driver, device_, &piece.event));
  } else {
    piece.event = std::move(unused_.front());
    unused_.pop_front();
  }
  const CUresult result =
      direction_ == Direction::kToHost
          ? core_.driver.cuMemcpyDtoHAsync_v2(host, device_address, bytes, stream_)
          : core_.driver.cuMemcpyHtoDAsync_v2(device_address, host, bytes, stream_);
  OPENMPS_RETURN_IF_ERROR(check(result, "a copy between device and host"));
  pieces_.push_back(std::move(piece));  // the copy is under way from here on
  return check(core_.driver.cuEventRecord(pieces_.back().event->handle, stream_), "cuEventRecord");
}

Status Transfer::end_first() {
  AdaptiveWait wait(core_.clock, kPiecePlan);
  CUresult result = CUDA_ERROR_NOT_READY;
  for (;;) {
    OPENMPS_RETURN_IF_ERROR(core_.use(device_));
    result = core_.driver.cuEventQuery(pieces_.front().event->handle);
    if (result != CUDA_ERROR_NOT_READY) break;
    if (gives_up_()) return Status(CUDA_ERROR_NOT_READY, "the copies are not wanted any more");
    wait.pause();
  }
  OPENMPS_RETURN_IF_ERROR(check(result, "the end of a copy between device and host"));
  Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  unused_.push_back(std::move(piece.event));
  return piece.is_last ? (*piece.done)() : Status();
}

Status Transfer::finish() {
  while (!pieces_.empty()) OPENMPS_RETURN_IF_ERROR(end_first());
  return Status();
}

}  // namespace openmps::worker
