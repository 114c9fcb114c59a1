// SPDX-License-Identifier: Apache-2.0
// The copy engine. See transfer.h; the ordering of staged copies is that of the ring.
#include "client/transfer.h"

#include <string.h>

#include <algorithm>
#include <atomic>

#include "client/graph_params.h"
#include "client/session.h"
#include "client/submit.h"
#include "cuda/box.h"
#include "cuda/copies.h"

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

CUresult push_batch(Session& session, const Channel::Order& order, Stream& stream,
                    const Batch& batch, uint64_t destination_pitch, uint64_t source_pitch,
                    uint32_t flags) {
  if (batch.rows == 1) {
    return session.channel.push(
        order, wire::Memcpy{stream.id, flags, batch.destination, batch.source, batch.width});
  }
  return session.channel.push(
      order, wire::Memcpy3D{stream.id, flags, batch.destination, batch.source, destination_pitch,
                            source_pitch, destination_pitch * batch.rows, source_pitch * batch.rows,
                            batch.width, batch.rows, 1});
}

// `column`, `row` and `slice` into the box.
wire::ArraySide array_side(const Side& side, uint64_t column, uint64_t row, uint64_t slice) {
  if (side.place != Place::kArray) return {0, 0, 0, 0, 0, side.address, side.pitch, side.slice};
  return {side.array->id, 0, side.x + column, side.y + row, side.z + slice, 0, 0, 0};
}

wire::ArraySide piece_side(const Staging::Piece& piece, const Batch& batch) {
  return {0, 0, 0, 0, 0, piece.address(), batch.width, batch.width * batch.rows};
}

// The same where the side that is not the piece is an array.
CUresult push_array_batch(Session& session, const Channel::Order& order, Stream& stream,
                          const Batch& batch, const wire::ArraySide& destination,
                          const wire::ArraySide& source, uint32_t flags) {
  return session.channel.push(
      order, wire::ArrayCopy{stream.id, flags, destination, source, batch.width, batch.rows, 1});
}

// One staged copy: what its threads share.
struct Staged {
  Session& session;
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
  Session& session = copy.session;
  Batch batch = copy.plan.batch(number);
  Staging::Piece piece;
  OPENMPS_CUDA_CHECK(session.staging.acquire(batch.width * batch.rows, &piece));
  copy_rows(piece.data, batch.width, reinterpret_cast<const unsigned char*>(batch.source),
            copy.plan.source().pitch, batch.width, batch.rows);
  batch.source = piece.address();
  const Channel::Order order = session.channel.order();
  const Side& destination = copy.plan.destination();
  const CUresult result =
      destination.place == Place::kArray
          ? push_array_batch(session, order, copy.stream, batch,
                             array_side(destination, batch.column, batch.row, batch.slice),
                             piece_side(piece, batch), flags)
          : push_batch(session, order, copy.stream, batch, destination.pitch, batch.width, flags);
  session.staging.release_after(piece, session.fences.after_staged_copy(order, copy.stream));
  return result;
}

void send_batches(void* argument) {
  Staged& copy = *static_cast<Staged*>(argument);
  uint64_t number = 0;
  while (copy.take(&number)) copy.keep(send_batch(copy, number, 0));
}

CUresult send(Session& session, Stream& stream, const Plan& plan, bool order_all) {
  Staged copy{.session = session, .stream = stream, .plan = plan};
  copy.end = plan.count() - 1;
  if (plan.bytes() >= kParallelBytes) {
    session.copy_pool.run(send_batches, &copy);
  } else {
    send_batches(&copy);
  }
  OPENMPS_CUDA_CHECK(copy.result.load());
  // The last batch comes behind all others in the stream, so its flag orders the whole copy.
  return send_batch(copy, copy.end, order_all ? wire::kOrderAllStreams : 0);
}

// ---- From the device ----------------------------------------------------------------------------

struct OnItsWay {
  Batch batch;
  Staging::Piece piece;
  FencePoint point;
};

// Errors: also CUDA_ERROR_NOT_READY: no piece is free, and the caller has some to give back.
CUresult request_batch(Staged& copy, uint64_t number, Staging::Block block, OnItsWay* request) {
  Session& session = copy.session;
  request->batch = copy.plan.batch(number);
  Batch staged = request->batch;
  OPENMPS_CUDA_CHECK(session.staging.acquire(staged.width * staged.rows, &request->piece, block));
  staged.destination = request->piece.address();
  const Channel::Order order = session.channel.order();
  const Side& source = copy.plan.source();
  OPENMPS_CUDA_CHECK(
      source.place == Place::kArray
          ? push_array_batch(session, order, copy.stream, staged,
                             piece_side(request->piece, staged),
                             array_side(source, staged.column, staged.row, staged.slice), 0)
          : push_batch(session, order, copy.stream, staged, staged.width, source.pitch, 0));
  session.fences.after_work(order, copy.stream);
  return session.fences.cover(order, copy.stream, &request->point);
}

CUresult receive_batch(Staged& copy, const OnItsWay& request) {
  Session& session = copy.session;
  const CUresult result =
      session.channel.wait([&] { return session.fences.reached(request.point); }, copy.stream.id);
  if (result == CUDA_SUCCESS) {
    const Batch& batch = request.batch;
    copy_rows(reinterpret_cast<unsigned char*>(batch.destination), copy.plan.destination().pitch,
              request.piece.data, batch.width, batch.width, batch.rows);
  }
  session.staging.release(request.piece);
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

CUresult receive(Session& session, Stream& stream, const Plan& plan) {
  Staged copy{.session = session, .stream = stream, .plan = plan};
  copy.end = plan.count();
  if (plan.bytes() >= kParallelBytes) {
    session.copy_pool.run(receive_batches, &copy);
  } else {
    receive_batches(&copy);
  }
  OPENMPS_CUDA_CHECK(copy.result.load());
  return session.channel.take_async_error();
}

// ---- Checks -------------------------------------------------------------------------------------

// Whole texels within the array. What texels of other formats are is the driver's to judge.
CUresult check_array_side(const Side& side, const Box& box) {
  const CUDA_ARRAY3D_DESCRIPTOR& d = side.array->descriptor;
  const uint64_t texel = side.array->texel_bytes;
  const auto fits = [](uint64_t begin, uint64_t length, uint64_t end) {
    return begin <= end && length <= end - begin;
  };
  if (!fits(side.y, box.height, std::max<uint64_t>(d.Height, 1)) ||
      !fits(side.z, box.depth, std::max<uint64_t>(d.Depth, 1))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (texel == 0) return CUDA_SUCCESS;
  return side.x % texel == 0 && box.width % texel == 0 && fits(side.x, box.width, d.Width * texel)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_side(const Session& session, const Side& side, const Box& box, bool writable) {
  if (side.place == Place::kArray) return check_array_side(side, box);
  const uint64_t bytes =
      cuda::span_of_box(box.width, box.height, box.depth, side.pitch, side.slice);
  if (bytes == cuda::kTooManyBytes) return CUDA_ERROR_INVALID_VALUE;
  if (box.height > 1 && side.pitch < box.width) return CUDA_ERROR_INVALID_VALUE;
  switch (side.place) {
    case Place::kDevice:
      return session.memory.contains(side.address, bytes, writable) ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_INVALID_VALUE;
    case Place::kPinned:
      return session.pinned.contains(side.address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case Place::kPageable: return side.address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case Place::kArray: break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool contiguous(const Side& side, const Box& box) {
  if (side.place == Place::kArray) return false;
  return (box.height == 1 || side.pitch == box.width) &&
         (box.depth == 1 || side.slice == box.width * box.height);
}

bool on_device(const Side& side) {
  return side.place == Place::kDevice || side.place == Place::kArray;
}

// Copies on the host happen on the caller, behind all that a copy in the stream comes behind.
CUresult copy_on_host(Session& session, Stream& stream, const Copy& copy) {
  FencePoint point;
  {
    const Channel::Order order = session.channel.order();
    OPENMPS_CUDA_CHECK(session.fences.cover_in_order(order, stream, &point));
  }
  OPENMPS_CUDA_CHECK(wait_in_stream(session, stream, point));
  copy_in_memory(copy);
  return CUDA_SUCCESS;
}

CUresult push_direct(Session& session, Stream& stream, const Copy& copy) {
  if (is_of_array(copy)) return push_work(session, stream, array_command(copy, stream.id));
  if (copy.box.height > 1 || copy.box.depth > 1) {
    return push_work(session, stream, box_command(copy, stream.id));
  }
  return push_work(
      session, stream,
      wire::Memcpy{stream.id, 0, copy.destination.address, copy.source.address, copy.box.width});
}

// A copy that was checked and copies something.
struct Transfer {
  const Copy& copy;
  bool wait;

  CUresult describe(Session&, Work* work) const {
    // What ends before the call returns can't be in a graph; between device memory nothing does.
    if (wait && !between_devices()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *work = copy_work(copy);
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    if (!session.managed.any()) [[likely]] {
      return carry_out(session, stream);
    }
    OPENMPS_CUDA_CHECK(session.managed.send(session, stream));
    OPENMPS_CUDA_CHECK(carry_out(session, stream));
    return wait ? session.managed.fetch(session) : CUDA_SUCCESS;
  }

 private:
  [[nodiscard]] bool between_devices() const {
    return on_device(copy.destination) && on_device(copy.source);
  }
  CUresult carry_out(Session& session, Stream& stream) const;
};

CUresult Transfer::carry_out(Session& session, Stream& stream) const {
  const bool ends = wait && (ends_before_return(session, stream, copy.destination.address) ||
                             ends_before_return(session, stream, copy.source.address));
  const bool on_host = !on_device(copy.destination) && !on_device(copy.source);
  if (!is_pageable(copy)) {
    OPENMPS_CUDA_CHECK(push_direct(session, stream, copy));
    // Between host memory every copy has ended when the call returns, as CUDA documents.
    return ends || on_host || (wait && !between_devices()) ? synchronize_stream(session, stream)
                                                           : CUDA_SUCCESS;
  }
  if (on_host) return copy_on_host(session, stream, copy);
  const Plan plan(copy);
  if (!on_device(copy.destination)) return session.output.show(receive(session, stream, plan));
  // CUDA waits for the stream before it begins such a copy (its "API synchronization behavior").
  if (wait && !session.fences.seems_idle(stream)) {
    OPENMPS_CUDA_CHECK(synchronize_stream(session, stream));
  }
  OPENMPS_CUDA_CHECK(send(session, stream, plan, wait));
  return ends || (wait && session.several_contexts.load(std::memory_order_relaxed))
             ? synchronize_stream(session, stream)
             : CUDA_SUCCESS;
}

}  // namespace

bool ends_before_return(const Session& session, const Stream& stream, uint64_t address) {
  return (stream.context->flags.load(std::memory_order_relaxed) & CU_CTX_SYNC_MEMOPS) != 0 ||
         session.memory.has_sync_memops(address);
}

CUresult check_copy(const Session& session, const Copy& copy) {
  OPENMPS_CUDA_CHECK(check_side(session, copy.destination, copy.box, true));
  return check_side(session, copy.source, copy.box, false);
}

wire::ArrayCopy array_command(const Copy& copy, wire::Id target) {
  const Box& box = copy.box;
  return {target,
          0,
          array_side(copy.destination, 0, 0, 0),
          array_side(copy.source, 0, 0, 0),
          box.width,
          box.height,
          box.depth};
}

wire::Memcpy3D box_command(const Copy& copy, wire::Id target) {
  const auto& [destination, source, box] = copy;
  return {target,
          0,
          destination.address,
          source.address,
          destination.pitch,
          source.pitch,
          destination.slice,
          source.slice,
          box.width,
          box.height,
          box.depth};
}

void copy_in_memory(const Copy& copy) {
  const auto& [destination, source, box] = copy;
  for (uint64_t slice = 0; slice < box.depth; ++slice) {
    for (uint64_t row = 0; row < box.height; ++row) {
      memmove(
          reinterpret_cast<void*>(destination.address + slice * destination.slice +
                                  row * destination.pitch),
          reinterpret_cast<const void*>(source.address + slice * source.slice + row * source.pitch),
          box.width);
    }
  }
}

Place place_of_device(const Session& session, uint64_t address) {
  return session.pinned.in_heap(address) ? Place::kPinned : Place::kDevice;
}

Place place_of_host(const Session& session, uint64_t address) {
  if (session.pinned.in_heap(address)) return Place::kPinned;
  return session.memory.in_window(address) ? Place::kDevice : Place::kPageable;
}

Place place_of_any(const Session& session, uint64_t address) {
  const Place place = place_of_host(session, address);
  // What is left may be a module's global, which the driver places outside of the window.
  return place == Place::kPageable && session.memory.contains(address, 1) ? Place::kDevice : place;
}

Side side_of(const Session& session, Named named, uint64_t address) {
  if (named != Named::kDevice) address = session.registered.device_address(address);
  switch (named) {
    case Named::kDevice: return {.address = address, .place = place_of_device(session, address)};
    case Named::kHost: return {.address = address, .place = place_of_host(session, address)};
    case Named::kAny: break;
  }
  return {.address = address, .place = place_of_any(session, address)};
}

namespace {

CUresult resolve_side(const Session& session, const cuda::CopySide& named, const cuda::CopyBox& box,
                      Side* side) {
  switch (named.type) {
    case CU_MEMORYTYPE_HOST: *side = side_of(session, Named::kHost, named.address); break;
    case CU_MEMORYTYPE_DEVICE: *side = side_of(session, Named::kDevice, named.address); break;
    case CU_MEMORYTYPE_UNIFIED: *side = side_of(session, Named::kAny, named.address); break;
    case CU_MEMORYTYPE_ARRAY:
      side->array = session.arrays.find(named.array);
      if (side->array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      side->place = Place::kArray;
      side->x = named.x;
      side->y = named.y;
      side->z = named.z;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  side->pitch = named.pitch_of(box);
  side->slice = side->pitch * named.rows_of(box);
  if (named.x + box.width > side->pitch && box.height > 1) return CUDA_ERROR_INVALID_VALUE;
  // The place is that of the pointer; the box begins at an offset from it.
  side->address += named.z * side->slice + named.y * side->pitch + named.x;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult read_copy_3d(const Session& session, const Context& context, const CUDA_MEMCPY3D& named,
                      Copy* copy) {
  if (named.srcLOD != 0 || named.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto most = static_cast<uint64_t>(
      session.device(context.device).attribute[CU_DEVICE_ATTRIBUTE_MAX_PITCH]);
  if (named.dstPitch > most || named.srcPitch > most) return CUDA_ERROR_INVALID_VALUE;
  const cuda::CopyBox whole = cuda::box_of(named);
  copy->box = Box{whole.width, whole.height, whole.depth};
  OPENMPS_CUDA_CHECK(resolve_side(session, cuda::destination_of(named), whole, &copy->destination));
  return resolve_side(session, cuda::source_of(named), whole, &copy->source);
}

CUresult transfer(Session& session, Stream& stream, const Copy& copy, bool wait) {
  if (copy.box.empty()) return CUDA_SUCCESS;
  OPENMPS_CUDA_CHECK(check_copy(session, copy));
  const Box& box = copy.box;
  if (box.height * box.depth == 1 || !contiguous(copy.destination, box) ||
      !contiguous(copy.source, box)) {
    return submit(session, stream, Transfer{copy, wait});
  }
  const Copy row{copy.destination, copy.source, {.width = box.width * box.height * box.depth}};
  return submit(session, stream, Transfer{row, wait});
}

}  // namespace openmps::client
