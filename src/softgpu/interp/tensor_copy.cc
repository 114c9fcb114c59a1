// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: boxes of a tensor between global memory and
// shared memory, where their elements lie densely, the innermost dimension first, and 16-byte
// chunks change places by the swizzle. A copy is done at once. Run by the interpreter.
#include <algorithm>
#include <cstring>
#include <vector>

#include "softgpu/interp/address.h"
#include "softgpu/interp/atomics.h"
#include "softgpu/interp/block.h"
#include "softgpu/interp/cluster.h"
#include "softgpu/ir/bulk_codes.h"
#include "softgpu/tensor_map.h"

namespace openmps::softgpu {
namespace {

// By the PTX ISA: of a tensor map's address and of a box in shared memory.
constexpr uint64_t kMapAlignment = 64;
constexpr uint64_t kBoxAlignment = 128;
// Where a box may begin along the innermost dimension, in bytes: an H200 faults elsewhere.
constexpr int64_t kRowAlignment = 16;
// A swizzle moves chunks of this size, by the number of their 128-byte line.
constexpr uint64_t kChunkBytes = 16;
constexpr uint32_t kChunkShift = 4;
constexpr uint32_t kLineShift = 7;

bool is_valid(const TensorMap& map, const BulkCode& code) {
  if (map.magic != kTensorMapMagic || map.rank != code.rank || map.im2col != code.im2col ||
      map.swizzle_bits > 3 || map.element > TensorElement::kTF32Ftz ||
      map.pixels > kMaxPixelsPerColumn) {
    return false;
  }
  for (uint32_t i = 0; i < map.rank; ++i) {
    if (map.box[i] == 0 || map.box[i] > kMaxBoxDimension || map.element_stride[i] == 0 ||
        map.element_stride[i] > kMaxElementStride) {
      return false;
    }
  }
  return true;
}

// One row of a box: the elements along the innermost dimension.
struct BoxRow {
  uint64_t address = 0;  // in global memory, of the first byte inside of the tensor
  uint64_t skip = 0;     // bytes before it
  uint64_t inside = 0;   // bytes inside of the tensor; 0: none
  bool before = false;   // begins at a negative index of some dimension
};

// The rows of a box in the order in which they lie in shared memory.
class BoxWalk {
 public:
  BoxWalk(const TensorMap& map, const int32_t* coordinates, const uint16_t* offsets)
      : map_(map), element_bytes_(tensor_element_bytes(map.element)) {
    for (uint32_t i = 0; i < map.rank; ++i) {
      at_[i] = begin_[i] = coordinates[i];
      end_[i] = at_[i] + map.box[i];
      if (!map.im2col || i == 0) continue;
      const bool is_pixel = i + 1 < map.rank;
      begin_[i] = is_pixel ? map.lower[i - 1] : at_[i];
      end_[i] = is_pixel ? int64_t{map.last[i]} + 1 + map.upper[i - 1] : INT64_MAX;
      if (is_pixel && offsets) offset_[i] = offsets[i - 1];
    }
  }
  [[nodiscard]] uint64_t rows() const {
    if (map_.im2col) return map_.pixels;
    uint64_t rows = 1;
    for (uint32_t i = 1; i < map_.rank; ++i) {
      rows *= (map_.box[i] + map_.element_stride[i] - 1u) / map_.element_stride[i];
    }
    return rows;
  }
  // Of im2col: whether the first pixel is one of those that the walk goes over.
  [[nodiscard]] bool begins_at_pixel() const {
    for (uint32_t i = 1; map_.im2col && i + 1 < map_.rank; ++i) {
      if (at_[i] < begin_[i] || at_[i] >= end_[i]) return false;
    }
    return true;
  }
  [[nodiscard]] uint64_t row_bytes() const { return uint64_t{map_.box[0]} * element_bytes_; }

  BoxRow next() {
    BoxRow row;
    const int64_t first = std::max<int64_t>(at_[0], 0);
    const int64_t end = std::min<int64_t>(end_[0], int64_t{map_.last[0]} + 1);
    bool inside = first < end;
    row.before = at_[0] < 0;
    row.address = map_.address + static_cast<uint64_t>(first) * element_bytes_;
    for (uint32_t i = 1; i < map_.rank; ++i) {
      const int64_t index = at_[i] + offset_[i];
      inside &= index >= 0 && index <= int64_t{map_.last[i]};
      row.before |= index < 0;
      row.address += static_cast<uint64_t>(index) * map_.stride[i - 1];
    }
    if (inside) {
      row.skip = static_cast<uint64_t>(first - at_[0]) * element_bytes_;
      row.inside = static_cast<uint64_t>(end - first) * element_bytes_;
    }
    advance();
    return row;
  }

 private:
  void advance() {
    for (uint32_t i = 1; i < map_.rank; ++i) {
      at_[i] += map_.im2col && i + 1 == map_.rank ? 1 : map_.element_stride[i];
      if (at_[i] < end_[i]) return;
      at_[i] = begin_[i];
    }
  }

  const TensorMap& map_;
  const uint32_t element_bytes_;
  int64_t at_[kMaxTensorRank] = {};
  int64_t begin_[kMaxTensorRank] = {};  // where a dimension goes on after its end
  int64_t end_[kMaxTensorRank] = {};
  int64_t offset_[kMaxTensorRank] = {};  // im2col: of the filter
};

// f32 without subnormal numbers.
void flush_subnormals(std::vector<std::byte>* box) {
  for (size_t at = 0; at + 4 <= box->size(); at += 4) {
    uint32_t bits;
    std::memcpy(&bits, box->data() + at, sizeof bits);
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
    std::memcpy(box->data() + at, &bits, sizeof bits);
  }
}

// Elements outside of the tensor: zeros, or quiet NaNs.
void fill_outside(const TensorMap& map, std::vector<std::byte>* box) {
  std::fill(box->begin(), box->end(), std::byte{0});
  if (!map.fill_nan) return;
  const uint32_t bytes = tensor_element_bytes(map.element);
  for (size_t at = 0; at < box->size(); at += bytes) {
    std::memset(box->data() + at, 0xff, bytes);
    (*box)[at + bytes - 1] = std::byte{0x7f};
  }
}

// Runs body(offset in the box, place in shared memory, bytes) for what lies together. `address` is
// where the box begins, `shared` its memory.
template <class Body>
void each_piece(const TensorMap& map, uint64_t address, std::byte* shared, uint64_t bytes,
                Body&& body) {
  if (map.swizzle_bits == 0) return body(0, shared, bytes);
  const uint64_t which = (uint64_t{1} << map.swizzle_bits) - 1;
  for (uint64_t at = 0; at < bytes; at += kChunkBytes) {
    const uint64_t exchanged = ((address + at) >> kLineShift & which) << kChunkShift;
    const uint64_t place = ((address + at) ^ exchanged) - address;
    body(at, shared + place, std::min(kChunkBytes, bytes - at));
  }
}

AtomicType atomic_type(TensorElement element) {
  switch (element) {
    case TensorElement::kU32: return AtomicType::kU32;
    case TensorElement::kS32: return AtomicType::kS32;
    case TensorElement::kU64: return AtomicType::kU64;
    case TensorElement::kS64: return AtomicType::kS64;
    case TensorElement::kF16: return AtomicType::kF16;
    case TensorElement::kBF16: return AtomicType::kBF16;
    case TensorElement::kF64: return AtomicType::kF64;
    default: return AtomicType::kF32;
  }
}

// The copy of one lane.
class BoxCopy {
 public:
  BoxCopy(Warp* warp, const Op* op, uint32_t lane, const BulkCode& code)
      : warp_(warp), op_(op), lane_(lane), code_(code) {}

  // False: a fault has been raised.
  bool read_map(uint64_t address) {
    const std::byte* bytes =
        memory_for(warp_, op_, lane_, address, sizeof map_, kMapAlignment, false);
    if (!bytes) return false;
    std::memcpy(&map_, bytes, sizeof map_);
    const bool narrow = map_.element == TensorElement::kU8 || map_.element == TensorElement::kU16;
    if (is_valid(map_, code_) && !(code_.reduces && narrow)) return true;
    return refuse("no tensor map for this copy", address);
  }
  // The coordinates that an H200 accepts for a copy; a store may have no negative index besides.
  bool begins_well(const BoxWalk& walk, int32_t innermost) {
    if (innermost * int64_t{tensor_element_bytes(map_.element)} % kRowAlignment != 0) {
      return refuse("a box that begins at element " + std::to_string(innermost) +
                    ", not at 16 bytes");
    }
    return walk.begins_at_pixel() || refuse("a pixel outside of the map's box of pixels");
  }
  bool measure(const BoxWalk& walk) {
    const uint64_t bytes = walk.rows() * walk.row_bytes();
    if (bytes <= kSharedOffsetMask) {
      box_.resize(bytes);
      return true;
    }
    warp_->block->raise(warp_, op_, CUDA_ERROR_ILLEGAL_ADDRESS, 0,
                        "a box of " + std::to_string(bytes) + " bytes", 1u << lane_);
    return false;
  }
  bool load(BoxWalk walk, uint64_t to, const uint16_t* ranks) {
    fill_outside(map_, &box_);
    for (uint64_t r = 0; r < walk.rows(); ++r) {
      const BoxRow row = walk.next();
      if (row.inside == 0) continue;
      const std::byte* from = global(row, false);
      if (!from) return false;
      std::memcpy(box_.data() + r * walk.row_bytes() + row.skip, from, row.inside);
    }
    if (map_.element == TensorElement::kF32Ftz || map_.element == TensorElement::kTF32Ftz) {
      flush_subnormals(&box_);
    }
    SharedPlaces places(to, ranks);
    for (uint64_t address; places.next(&address);) {
      std::byte* at = shared(address);
      if (!at) return false;
      each_piece(map_, address, at, box_.size(),
                 [&](uint64_t offset, std::byte* place, uint64_t n) {
                   std::memcpy(place, box_.data() + offset, n);
                 });
    }
    return true;
  }
  bool store(BoxWalk walk, uint64_t from) {
    std::byte* at = shared(from);
    if (!at) return false;
    each_piece(map_, from, at, box_.size(),
               [&](uint64_t offset, const std::byte* place, uint64_t n) {
                 std::memcpy(box_.data() + offset, place, n);
               });
    for (uint64_t r = 0; r < walk.rows(); ++r) {
      const BoxRow row = walk.next();
      if (row.before) return refuse("a store to a negative index");
      if (row.inside == 0) continue;
      std::byte* to = global(row, true);
      if (!to) return false;
      const std::byte* values = box_.data() + r * walk.row_bytes() + row.skip;
      if (code_.reduces) {
        update_array(code_.op, atomic_type(map_.element), to, values, row.inside);
      } else {
        std::memcpy(to, values, row.inside);
      }
    }
    return true;
  }

  [[nodiscard]] const TensorMap& map() const { return map_; }
  [[nodiscard]] uint64_t bytes() const { return box_.size(); }

 private:
  bool refuse(const std::string& text, uint64_t address = 0) {
    warp_->block->raise(warp_, op_, CUDA_ERROR_ILLEGAL_INSTRUCTION, address, text, 1u << lane_);
    return false;
  }
  std::byte* global(const BoxRow& row, bool write) {
    return memory_for(warp_, op_, lane_, row.address, row.inside,
                      tensor_element_bytes(map_.element), write);
  }
  // A swizzle permutes within its lines, so whole lines must be there.
  std::byte* shared(uint64_t address) {
    const uint64_t line = kChunkBytes << map_.swizzle_bits;
    const uint64_t bytes =
        map_.swizzle_bits == 0 ? box_.size() : (box_.size() + line - 1) / line * line;
    return shared_for(warp_, op_, lane_, address, bytes, kBoxAlignment);
  }

  Warp* warp_;
  const Op* op_;
  const uint32_t lane_;
  const BulkCode code_;
  TensorMap map_;
  std::vector<std::byte> box_;  // dense
};

// a: the tensor map's address; b: that of the box in shared memory, both generic; c: ranks, of a
// multicast; extra: the coordinates, and of im2col the offsets; d: bytes of the box. aux: BulkCode.
const Op* h_tensor_copy(const Op* op, Warp* warp, std::byte* regs, uint32_t) {
  const BulkCode code = BulkCode::decode(op->aux);
  const auto* maps = reinterpret_cast<const uint64_t*>(regs + op->a);
  const auto* boxes = reinterpret_cast<const uint64_t*>(regs + op->b);
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    int32_t coordinates[kMaxTensorRank] = {};
    uint16_t offsets[kMaxTensorRank] = {};
    for (uint32_t i = 0; i < code.rank; ++i) {
      coordinates[i] = reinterpret_cast<const int32_t*>(regs + op->extra[i])[lane];
    }
    const bool has_offsets = code.im2col && !code.stores;
    for (uint32_t i = 0; has_offsets && i + 2 < code.rank; ++i) {
      offsets[i] = reinterpret_cast<const uint16_t*>(regs + op->extra[code.rank + i])[lane];
    }
    const auto* ranks =
        code.multicast ? reinterpret_cast<const uint16_t*>(regs + op->c) + lane : nullptr;
    BoxCopy copy(warp, op, lane, code);
    if (!copy.read_map(maps[lane])) return nullptr;
    const BoxWalk walk(copy.map(), coordinates, offsets);
    if (!copy.begins_well(walk, coordinates[0])) return nullptr;
    if (code.prefetches) continue;
    if (!copy.measure(walk)) return nullptr;
    if (!(code.stores ? copy.store(walk, boxes[lane]) : copy.load(walk, boxes[lane], ranks))) {
      return nullptr;
    }
    if (!code.stores) {
      reinterpret_cast<uint32_t*>(regs + op->d)[lane] = static_cast<uint32_t>(copy.bytes());
    }
  }
  return op + 1;
}

}  // namespace

void add_tensor_handlers(HandlerTable* table) {
  table->handlers[static_cast<size_t>(IrOp::k_tensor_copy)] = h_tensor_copy;
}

}  // namespace openmps::softgpu
