// SPDX-License-Identifier: Apache-2.0
// The copy engine. See transfer.h; the ordering of staged copies is that of the ring.
#include "client/transfer.h"

#include <string.h>

#include <algorithm>
#include <atomic>

#include "client/check.h"

namespace openmps::client {
namespace {

// From here on several threads copy: below, waking them costs more than it saves.
constexpr uint64_t kParallelBytes = 16 * wire::kMiB;
// Pieces that one thread keeps on their way from the device, so that copying out overlaps them.
constexpr size_t kReadAhead = 3;

// The part of a box that travels in one piece: `rows` rows of `width` bytes.
struct Batch {
  uint64_t width = 0;
  uint64_t rows = 0;
  uint64_t destination = 0;
  uint64_t source = 0;
  uint64_t column = 0;  // in the box, where it begins
  uint64_t row = 0;
  uint64_t slice = 0;
};

// A box cut into batches that fit a piece, by number, so that threads can take them in any order.
class Plan {
 public:
  explicit Plan(const Copy& copy) : copy_(copy) {
    const Box& box = copy.box;
    columns_ = std::min(box.width, kLargePieceBytes);
    rows_ = columns_ < box.width ? 1 : std::min(box.height, kLargePieceBytes / box.width);
    column_batches_ = (box.width + columns_ - 1) / columns_;
    row_batches_ = (box.height + rows_ - 1) / rows_;
  }
  [[nodiscard]] uint64_t count() const { return column_batches_ * row_batches_ * copy_.box.depth; }
  [[nodiscard]] uint64_t bytes() const {
    return copy_.box.width * copy_.box.height * copy_.box.depth;
  }
  [[nodiscard]] const Side& destination() const { return copy_.destination; }
  [[nodiscard]] const Side& source() const { return copy_.source; }

  [[nodiscard]] Batch batch(uint64_t number) const {
    const uint64_t column = number % column_batches_ * columns_;
    const uint64_t row = number / column_batches_ % row_batches_ * rows_;
    const uint64_t slice = number / column_batches_ / row_batches_;
    const auto place = [&](const Side& side) {
      return side.address + slice * side.slice + row * side.pitch + column;
    };
    return {std::min(columns_, copy_.box.width - column),
            std::min(rows_, copy_.box.height - row),
            place(copy_.destination),
            place(copy_.source),
            column,
            row,
            slice};
  }

 private:
  const Copy& copy_;
  uint64_t columns_;
  uint64_t rows_;
  uint64_t column_batches_;
  uint64_t row_batches_;
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

CUresult push_batch(Channel& channel, const Channel::Order& order, Stream& stream,
                    const Batch& batch, uint64_t destination_pitch, uint64_t source_pitch,
                    uint32_t flags) {
  if (batch.rows == 1) {
    return channel.push(
        order, wire::Memcpy{stream.id, flags, batch.destination, batch.source, batch.width});
  }
  return channel.push(
      order, wire::Memcpy3D{stream.id, flags, batch.destination, batch.source, destination_pitch,
                            source_pitch, destination_pitch * batch.rows, source_pitch * batch.rows,
                            batch.width, batch.rows, 1});
}

wire::ArraySide piece_side(const Staging::Piece& piece, const Batch& batch) {
  return {0, 0, 0, 0, 0, piece.address(), batch.width, batch.width * batch.rows};
}

// The same where the side that is not the piece is an array.
CUresult push_array_batch(Channel& channel, const Channel::Order& order, Stream& stream,
                          const Batch& batch, const wire::ArraySide& destination,
                          const wire::ArraySide& source, uint32_t flags) {
  return channel.push(
      order, wire::ArrayCopy{stream.id, flags, destination, source, batch.width, batch.rows, 1});
}

// One staged copy: what its threads share.
struct Staged {
  Channel& channel;
  Fences& fences;
  Staging& staging;
  Stream& stream;
  const Plan& plan;
  std::atomic<uint64_t> next{0};
  uint64_t end = 0;  // batches before this one are taken by anybody
  std::atomic<CUresult> result{CUDA_SUCCESS};

  [[nodiscard]] bool take(uint64_t* number) {
    if (result.load(std::memory_order_relaxed) != CUDA_SUCCESS) return false;
    *number = next.fetch_add(1, std::memory_order_relaxed);
    return *number < end;
  }
  void keep(CUresult first) {
    CUresult none = CUDA_SUCCESS;
    if (first != CUDA_SUCCESS) result.compare_exchange_strong(none, first);
  }
};

// ---- To the device ------------------------------------------------------------------------------

CUresult send_batch(Staged& copy, uint64_t number, uint32_t flags) {
  Batch batch = copy.plan.batch(number);
  Staging::Piece piece;
  OPENMPS_CUDA_CHECK(copy.staging.acquire(batch.width * batch.rows, &piece));
  copy_rows(piece.data, batch.width, reinterpret_cast<const unsigned char*>(batch.source),
            copy.plan.source().pitch, batch.width, batch.rows);
  batch.source = piece.address();
  const Channel::Order order = copy.channel.order();
  const Side& destination = copy.plan.destination();
  const CUresult result =
      destination.place == Place::kArray
          ? push_array_batch(copy.channel, order, copy.stream, batch,
                             array_side(destination, batch.column, batch.row, batch.slice),
                             piece_side(piece, batch), flags)
          : push_batch(copy.channel, order, copy.stream, batch, destination.pitch, batch.width,
                       flags);
  copy.staging.release_after(piece, copy.fences.after_staged_copy(order, copy.stream));
  return result;
}

void send_batches(void* argument) {
  Staged& copy = *static_cast<Staged*>(argument);
  uint64_t number = 0;
  while (copy.take(&number)) copy.keep(send_batch(copy, number, 0));
}

}  // namespace

CUresult Transfers::send(Stream& stream, const Copy& box, bool order_all) {
  const Plan plan(box);
  Staged copy{
      .channel = channel_, .fences = fences_, .staging = staging_, .stream = stream, .plan = plan};
  copy.end = plan.count() - 1;
  if (plan.bytes() >= kParallelBytes) {
    copy_pool_.run(send_batches, &copy);
  } else {
    send_batches(&copy);
  }
  OPENMPS_CUDA_CHECK(copy.result.load());
  // The last batch comes behind all others in the stream, so its flag orders the whole copy.
  return send_batch(copy, copy.end, order_all ? wire::kOrderAllStreams : 0);
}

namespace {

// ---- From the device ----------------------------------------------------------------------------

struct OnItsWay {
  Batch batch;
  Staging::Piece piece;
  FencePoint point;
};

// Errors: also CUDA_ERROR_NOT_READY: no piece is free, and the caller has some to give back.
CUresult request_batch(Staged& copy, uint64_t number, Staging::Block block, OnItsWay* request) {
  request->batch = copy.plan.batch(number);
  Batch staged = request->batch;
  OPENMPS_CUDA_CHECK(copy.staging.acquire(staged.width * staged.rows, &request->piece, block));
  staged.destination = request->piece.address();
  const Channel::Order order = copy.channel.order();
  const Side& source = copy.plan.source();
  OPENMPS_CUDA_CHECK(
      source.place == Place::kArray
          ? push_array_batch(copy.channel, order, copy.stream, staged,
                             piece_side(request->piece, staged),
                             array_side(source, staged.column, staged.row, staged.slice), 0)
          : push_batch(copy.channel, order, copy.stream, staged, staged.width, source.pitch, 0));
  copy.fences.after_work(order, copy.stream);
  return copy.fences.cover(order, copy.stream, &request->point);
}

CUresult receive_batch(Staged& copy, const OnItsWay& request) {
  const CUresult result =
      copy.channel.wait([&] { return copy.fences.reached(request.point); }, copy.stream.id);
  if (result == CUDA_SUCCESS) {
    const Batch& batch = request.batch;
    copy_rows(reinterpret_cast<unsigned char*>(batch.destination), copy.plan.destination().pitch,
              request.piece.data, batch.width, batch.width, batch.rows);
  }
  copy.staging.release(request.piece);
  return result;
}

void receive_batches(void* argument) {
  Staged& copy = *static_cast<Staged*>(argument);
  OnItsWay requests[kReadAhead];
  size_t first = 0;
  size_t count = 0;
  uint64_t number = 0;
  bool taken = copy.take(&number);
  for (;;) {
    // Ask for the next ones before waiting for the oldest. Whoever holds pieces never waits for
    // more: threads that did would wait for each other.
    while (taken && count < kReadAhead) {
      const auto block = count == 0 ? Staging::Block::kYes : Staging::Block::kNo;
      const CUresult result =
          request_batch(copy, number, block, &requests[(first + count) % kReadAhead]);
      if (result == CUDA_ERROR_NOT_READY) break;
      copy.keep(result);
      if (result == CUDA_SUCCESS) ++count;
      taken = copy.take(&number);
    }
    if (count == 0) return;
    copy.keep(receive_batch(copy, requests[first]));
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
    copy_pool_.run(receive_batches, &copy);
  } else {
    receive_batches(&copy);
  }
  OPENMPS_CUDA_CHECK(output_.show(copy.result.load()));
  return output_.show(channel_.take_async_error());
}

// Copies on the host happen on the caller, behind all that a copy in the stream comes behind.
CUresult Transfers::copy_on_host(Stream& stream, const Copy& copy) {
  FencePoint point;
  {
    const Channel::Order order = channel_.order();
    OPENMPS_CUDA_CHECK(fences_.cover_in_order(order, stream, &point));
  }
  OPENMPS_CUDA_CHECK(streams_.wait(stream, point));
  copy_in_memory(copy);
  return CUDA_SUCCESS;
}

CUresult Transfers::push_direct(Stream& stream, const Copy& copy) {
  if (is_of_array(copy)) return streams_.push(stream, array_command(copy, stream.id));
  if (copy.box.height > 1 || copy.box.depth > 1) {
    return streams_.push(stream, box_command(copy, stream.id));
  }
  return streams_.push(stream, wire::Memcpy{stream.id, 0, copy.destination.address,
                                            copy.source.address, copy.box.width});
}

CUresult Transfers::copy(Stream& stream, const Copy& copy, bool wait) {
  const bool ends = wait && (places_.ends_before_return(stream, copy.destination.address) ||
                             places_.ends_before_return(stream, copy.source.address));
  const bool to_device = on_device(copy.destination);
  const bool from_device = on_device(copy.source);
  const bool on_host = !to_device && !from_device;
  if (!is_pageable(copy)) {
    OPENMPS_CUDA_CHECK(push_direct(stream, copy));
    // Between host memory every copy has ended when the call returns, as CUDA documents.
    return ends || on_host || (wait && !(to_device && from_device)) ? streams_.synchronize(stream)
                                                                    : CUDA_SUCCESS;
  }
  if (on_host) return copy_on_host(stream, copy);
  if (!to_device) return receive(stream, copy);
  // CUDA waits for the stream before it begins such a copy (its "API synchronization behavior").
  if (wait && !fences_.seems_idle(stream)) OPENMPS_CUDA_CHECK(streams_.synchronize(stream));
  OPENMPS_CUDA_CHECK(send(stream, copy, wait));
  return ends || (wait && contexts_.several.load(std::memory_order_relaxed))
             ? streams_.synchronize(stream)
             : CUDA_SUCCESS;
}

}  // namespace openmps::client
