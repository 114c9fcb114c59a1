// SPDX-License-Identifier: Apache-2.0
// See transfer.h. The ring orders the commands of staged copies.
#include "client/context/transfer.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "client/check.h"

namespace openmps::client {
namespace {

// Several threads copy from this size on. Below, waking them costs more than it saves.
constexpr uint64_t kParallelBytes = 16 * wire::kMiB;
// Pieces that one thread has the device fill while the thread copies out of another one.
constexpr size_t kReadAhead = 3;

// A copy cut into numbered parts that fit a piece; threads take the parts in any order.
class Plan {
 public:
  explicit Plan(const Copy& copy) : copy_(copy) {
    const Box& box = copy.box;
    columns_ = std::min(box.width, kLargePieceBytes);
    rows_ = columns_ < box.width ? 1 : std::min(box.height, kLargePieceBytes / box.width);
    column_parts_ = (box.width + columns_ - 1) / columns_;
    row_parts_ = (box.height + rows_ - 1) / rows_;
  }
  [[nodiscard]] uint64_t count() const { return column_parts_ * row_parts_ * copy_.box.depth; }
  [[nodiscard]] uint64_t bytes() const {
    return copy_.box.width * copy_.box.height * copy_.box.depth;
  }

  // Rows of one slice.
  [[nodiscard]] Copy part(uint64_t number) const {
    const uint64_t column = number % column_parts_ * columns_;
    const uint64_t row = number / column_parts_ % row_parts_ * rows_;
    const uint64_t slice = number / column_parts_ / row_parts_;
    return part_of(
        copy_, column, row, slice,
        {std::min(columns_, copy_.box.width - column), std::min(rows_, copy_.box.height - row), 1});
  }

 private:
  const Copy& copy_;
  uint64_t columns_;
  uint64_t rows_;
  uint64_t column_parts_;
  uint64_t row_parts_;
};

void copy_rows(unsigned char* destination, uint64_t destination_pitch, const unsigned char* source,
               uint64_t source_pitch, uint64_t width, uint64_t rows) {
  if (rows == 1 || (destination_pitch == width && source_pitch == width)) {
    memcpy(destination, source, width * rows);
    return;
  }
  for (uint64_t row = 0; row < rows; ++row) {
    memcpy(destination + row * destination_pitch, source + row * source_pitch, width);
  }
}

uint64_t bytes_of(const Box& box) { return box.width * box.height; }

Side side_of(const Staging::Piece& piece, const Box& box) {
  return {.address = piece.address(),
          .place = Place::kPinned,
          .pitch = box.width,
          .slice = bytes_of(box)};
}

// One staged copy, as used by all threads that take part in it.
struct Staged {
  Channel& channel;
  Fences& fences;
  Staging& staging;
  Stream& stream;
  const Plan& plan;
  std::atomic<uint64_t> next{0};
  uint64_t end = 0;  // parts before this one are taken by anybody
  std::atomic<CUresult> result{CUDA_SUCCESS};

  [[nodiscard]] bool take(uint64_t* number) {
    if (result.load(std::memory_order_relaxed) != CUDA_SUCCESS) return false;
    *number = next.fetch_add(1, std::memory_order_relaxed);
    return *number < end;
  }
  CUresult push(const Channel::Order& order, const Copy& part, uint32_t flags) const {
    return with_command(part, stream.id, flags,
                        [&](const auto& command) { return channel.push(order, command); });
  }
  void keep(CUresult first) {
    CUresult none = CUDA_SUCCESS;
    if (first != CUDA_SUCCESS) result.compare_exchange_strong(none, first);
  }
};

// ---- To the device ------------------------------------------------------------------------------

CUresult send_part(Staged& copy, uint64_t number, uint32_t flags) {
  Copy part = copy.plan.part(number);
  Staging::Piece piece;
  OPENMPS_CUDA_CHECK(copy.staging.acquire(bytes_of(part.box), &piece));
  copy_rows(piece.data, part.box.width, reinterpret_cast<const unsigned char*>(part.source.address),
            part.source.pitch, part.box.width, part.box.height);
  part.source = side_of(piece, part.box);
  const Channel::Order order = copy.channel.order();
  const CUresult result = copy.push(order, part, flags);
  copy.staging.release_after(piece, copy.fences.after_staged_copy(order, copy.stream));
  return result;
}

void send_parts(void* argument) {
  Staged& copy = *static_cast<Staged*>(argument);
  uint64_t number = 0;
  while (copy.take(&number)) copy.keep(send_part(copy, number, 0));
}

}  // namespace

// Contiguous bytes that fit one piece, as in most copies.
CUresult Transfers::send_run(Stream& stream, const Copy& run, uint32_t flags) {
  Staging::Piece piece;
  OPENMPS_CUDA_CHECK(staging_.acquire(run.box.width, &piece));
  memcpy(piece.data, reinterpret_cast<const void*>(run.source.address), run.box.width);
  const Channel::Order order = channel_.order();
  const CUresult result = channel_.push(
      order,
      wire::Memcpy{stream.id, flags, run.destination.address, piece.address(), run.box.width});
  staging_.release_after(piece, fences_.after_staged_copy(order, stream));
  return result;
}

CUresult Transfers::send(Stream& stream, const Copy& box, bool order_all) {
  const bool one_row = box.box.height == 1 && box.box.depth == 1;
  if (one_row && box.box.width <= kLargePieceBytes && !is_of_array(box)) {
    return send_run(stream, box, order_all ? wire::kOrderAllStreams : 0);
  }
  const Plan plan(box);
  Staged copy{
      .channel = channel_, .fences = fences_, .staging = staging_, .stream = stream, .plan = plan};
  copy.end = plan.count() - 1;
  if (plan.bytes() >= kParallelBytes) {
    copy_pool_.run(send_parts, &copy);
  } else {
    send_parts(&copy);
  }
  OPENMPS_CUDA_CHECK(copy.result.load());
  // The last part is behind all others in the stream, so the flag of the last part orders the copy.
  return send_part(copy, copy.end, order_all ? wire::kOrderAllStreams : 0);
}

namespace {

// ---- From the device ----------------------------------------------------------------------------

struct Requested {
  Copy part;
  Staging::Piece piece;
  FencePoint point;
};

// Errors: also CUDA_ERROR_NOT_READY with Block::kNo: no piece is free.
CUresult request_part(Staged& copy, uint64_t number, Staging::Block block, Requested* request) {
  request->part = copy.plan.part(number);
  Copy staged = request->part;
  OPENMPS_CUDA_CHECK(copy.staging.acquire(bytes_of(staged.box), &request->piece, block));
  staged.destination = side_of(request->piece, staged.box);
  const Channel::Order order = copy.channel.order();
  OPENMPS_CUDA_CHECK(copy.push(order, staged, 0));
  copy.fences.after_work(order, copy.stream);
  return copy.fences.cover(order, copy.stream, &request->point);
}

CUresult receive_part(Staged& copy, const Requested& request) {
  CUresult result = copy.fences.wait_forced(request.point);
  // Whoever was told before: the piece has not been filled.
  if (result == CUDA_SUCCESS && copy.fences.is_lost(request.point)) [[unlikely]] {
    static_cast<void>(copy.fences.tell(request.point));
    result = CUDA_ERROR_LAUNCH_FAILED;
  }
  if (result == CUDA_SUCCESS) {
    const Copy& part = request.part;
    copy_rows(reinterpret_cast<unsigned char*>(part.destination.address), part.destination.pitch,
              request.piece.data, part.box.width, part.box.width, part.box.height);
  }
  copy.staging.release(request.piece);
  return result;
}

void receive_parts(void* argument) {
  Staged& copy = *static_cast<Staged*>(argument);
  Requested requests[kReadAhead];
  size_t first = 0;
  size_t count = 0;
  uint64_t number = 0;
  bool taken = copy.take(&number);
  for (;;) {
    // Request the next parts before waiting for the oldest. A thread that holds pieces never blocks
    // for another one, because threads that did could deadlock.
    while (taken && count < kReadAhead) {
      const auto block = count == 0 ? Staging::Block::kYes : Staging::Block::kNo;
      const CUresult result =
          request_part(copy, number, block, &requests[(first + count) % kReadAhead]);
      if (result == CUDA_ERROR_NOT_READY) break;
      copy.keep(result);
      if (result == CUDA_SUCCESS) ++count;
      taken = copy.take(&number);
    }
    if (count == 0) return;
    copy.keep(receive_part(copy, requests[first]));
    first = (first + 1) % kReadAhead;
    --count;
  }
}

}  // namespace

CUresult Transfers::receive(Stream& stream, const Copy& box) {
  const Plan plan(box);
  Staged copy{
      .channel = channel_, .fences = fences_, .staging = staging_, .stream = stream, .plan = plan};
  copy.end = plan.count();
  if (plan.bytes() >= kParallelBytes) {
    copy_pool_.run(receive_parts, &copy);
  } else {
    receive_parts(&copy);
  }
  OPENMPS_CUDA_CHECK(output_.show(copy.result.load()));
  return output_.show(channel_.take_async_error());
}

// Copies between host memory on the calling thread, after the work that a copy in the stream would
// wait for.
CUresult Transfers::copy_on_host(Stream& stream, const Copy& copy) {
  FencePoint point;
  {
    const Channel::Order order = channel_.order();
    OPENMPS_CUDA_CHECK(fences_.cover_in_order(order, stream, &point));
  }
  OPENMPS_CUDA_CHECK(streams_.wait(point));
  copy_in_memory(copy);
  return CUDA_SUCCESS;
}

inline CUresult Transfers::push(Stream& stream, const Copy& copy) {
  return with_command(copy, stream.id, 0,
                      [&](const auto& command) { return streams_.push(stream, command); });
}

CUresult Transfers::copy(Stream& stream, const Copy& copy, bool wait) {
  const bool ends = wait && (places_.ends_before_return(stream, copy.destination.address) ||
                             places_.ends_before_return(stream, copy.source.address));
  const bool to_device = on_device(copy.destination);
  const bool from_device = on_device(copy.source);
  const bool on_host = !to_device && !from_device;
  if (!is_pageable(copy)) {
    OPENMPS_CUDA_CHECK(push(stream, copy));
    // CUDA documents that a copy between host memory has ended when the call returns.
    return ends || on_host || (wait && !(to_device && from_device)) ? streams_.synchronize(stream)
                                                                    : CUDA_SUCCESS;
  }
  if (on_host) return copy_on_host(stream, copy);
  if (!to_device) return receive(stream, copy);
  // CUDA waits for the stream before it begins such a copy ("API synchronization behavior").
  if (wait && !fences_.seems_idle(stream)) OPENMPS_CUDA_CHECK(streams_.synchronize(stream));
  OPENMPS_CUDA_CHECK(send(stream, copy, wait));
  return ends || (wait && contexts_.several.load(std::memory_order_relaxed))
             ? streams_.synchronize(stream)
             : CUDA_SUCCESS;
}

}  // namespace openmps::client
