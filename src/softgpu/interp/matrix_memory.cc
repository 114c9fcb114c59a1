// SPDX-License-Identifier: Apache-2.0
// Matrices between memory and the lanes' registers: wmma.load, wmma.store, ldmatrix, stmatrix; and
// movmatrix. Run by the interpreter, on its thread.
#include <cstring>

#include "softgpu/interp/address.h"
#include "softgpu/interp/block.h"
#include "softgpu/ir/matrix_codes.h"

namespace openmps::softgpu {
namespace {

// The addresses of the lanes, as generic ones from which resolve() goes on.
void addresses_of(const Op* op, const std::byte* regs, bool shared, uint64_t* out) {
  if (!shared) {
    std::memcpy(out, regs + op->a, kWarpSize * sizeof(uint64_t));
    return;
  }
  const auto* from = reinterpret_cast<const uint32_t*>(regs + op->a);
  // resolve() adds the offset again; shared addresses wrap at 32 bits.
  for (uint32_t i = 0; i < kWarpSize; ++i) {
    out[i] = (kSharedWindow | static_cast<uint32_t>(from[i] + op->imm)) - op->imm;
  }
}

// Where the element in `slot` of `lane` lies, in bytes from the matrix's begin.
uint64_t element_offset(const FragmentCode& code, uint32_t lane, uint32_t slot, uint32_t slots,
                        uint64_t stride) {
  const uint32_t at = (lane * slots + slot) % (code.rows * code.columns);
  const uint32_t row = code.order_by_columns ? at % code.rows : at / code.columns;
  const uint32_t column = code.order_by_columns ? at / code.rows : at % code.columns;
  return (code.by_columns ? column * stride + row : row * stride + column) * (code.bits / 8);
}

// A lane's part of a fragment, as it lies in its registers one after the other.
constexpr uint32_t kMostFragmentBytes = 64;

// The parts of all lanes where neighbours in a lane are neighbours in memory too, so each lane
// needs one access for as many as there are in a row. False: they are not, or something can't be
// reached; then element by element finds out what. Nothing has been changed in registers.
template <bool is_load>
bool move_runs(const FragmentCode& code, const Op* op, Warp* warp, std::byte* regs,
               const uint64_t* base, const uint32_t* strides) {
  const uint32_t bytes = code.bits / 8, width = bytes == 8 ? 8 : 4;
  const uint32_t slots = code.registers * (width / bytes);
  const uint32_t inner = code.by_columns ? code.rows : code.columns;
  const uint32_t run = slots < inner ? slots : inner;
  const bool divides = slots % run == 0 && inner % run == 0;
  if (code.by_columns != code.order_by_columns || !divides ||
      code.registers * width > kMostFragmentBytes) {
    return false;
  }
  std::byte parts[kWarpSize][kMostFragmentBytes];
  const auto each_part = [&](auto&& visit) {
    for (uint32_t left = warp->active; left; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
      for (uint32_t i = 0; i < code.registers; ++i) {
        visit(parts[lane] + i * width, regs + op->extra[i] + lane * width);
      }
    }
  };
  if constexpr (!is_load) {
    each_part([&](std::byte* part, const std::byte* in) { std::memcpy(part, in, width); });
  }
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    for (uint32_t slot = 0; slot < slots; slot += run) {
      const uint64_t address =
          base[lane] + op->imm + element_offset(code, lane, slot, slots, strides[lane]);
      std::byte* part = parts[lane] + slot * bytes;
      if (address % bytes != 0) return false;
      if (is_load ? !read_generic(warp, lane, address, part, run * bytes)
                  : !write_generic(warp, lane, address, part, run * bytes)) {
        return false;
      }
    }
  }
  if constexpr (is_load) {
    each_part([&](const std::byte* part, std::byte* in) { std::memcpy(in, part, width); });
  }
  return true;
}

// a: address, b: stride in elements; extra: the fragment's registers.
template <bool is_load>
const Op* fragment(const Op* op, Warp* warp, std::byte* regs, [[maybe_unused]] uint32_t mask) {
  const FragmentCode code = FragmentCode::decode(op->aux);
  const uint32_t bytes = code.bits / 8, width = bytes == 8 ? 8 : 4, each = width / bytes;
  uint64_t base[kWarpSize], addresses[kWarpSize];
  addresses_of(op, regs, code.shared, base);
  const auto* strides = reinterpret_cast<const uint32_t*>(regs + op->b);
  const uint32_t slots = code.registers * each;
  warp->fuel -= slots;
  if (move_runs<is_load>(code, op, warp, regs, base, strides)) SOFTGPU_NEXT(op + 1);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      addresses[lane] = base[lane] + element_offset(code, lane, slot, slots, strides[lane]);
    }
    if (!resolve(warp, op, addresses, bytes, !is_load)) return nullptr;
    for (uint32_t left = warp->active; left; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
      std::byte* in_register = regs + op->extra[slot / each] + lane * width + slot % each * bytes;
      if constexpr (is_load) {
        std::memcpy(in_register, warp->pointers[lane], bytes);
      } else {
        std::memcpy(warp->pointers[lane], in_register, bytes);
      }
    }
  }
  SOFTGPU_NEXT(op + 1);
}

constexpr uint32_t kTileRows = 8;
constexpr uint32_t kTileRowBytes = 16;

// Which two of a tile's elements a lane's register holds: row and column of element e.
uint32_t tile_element(uint32_t lane, uint32_t e, bool transposed) {
  const uint32_t major = lane / 4, minor = lane % 4 * 2 + e;
  return transposed ? minor * kTileRows + major : major * kTileRows + minor;
}

// a: the lanes' addresses, of a row each; extra: a register for each tile.
template <bool is_load>
const Op* tiles(const Op* op, Warp* warp, std::byte* regs, uint32_t mask) {
  const TileCode code = TileCode::decode(op->aux);
  const uint32_t rows = code.count * kTileRows;
  uint64_t addresses[kWarpSize];
  addresses_of(op, regs, code.shared, addresses);
  // The addresses of the lanes beyond the tiles' rows mean nothing.
  const uint32_t active = warp->active & (rows == kWarpSize ? kFullMask : (1u << rows) - 1);
  if (active == 0) SOFTGPU_NEXT(op + 1);
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    if (!(active >> lane & 1)) addresses[lane] = addresses[__builtin_ctz(active)];
  }
  if (!resolve(warp, op, addresses, kTileRowBytes, !is_load)) return nullptr;
  for (uint32_t t = 0; t < code.count; ++t) {
    uint16_t tile[kTileRows * kTileRows] = {};
    auto* values = reinterpret_cast<uint16_t*>(regs + op->extra[t]);
    const auto row_at = [&](uint32_t row) -> std::byte* {
      const uint32_t lane = t * kTileRows + row;
      return active >> lane & 1 ? warp->pointers[lane] : nullptr;
    };
    if constexpr (is_load) {
      for (uint32_t row = 0; row < kTileRows; ++row) {
        if (const std::byte* from = row_at(row)) {
          std::memcpy(tile + row * kTileRows, from, kTileRowBytes);
        }
      }
    }
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      for (uint32_t e = 0; e < 2; ++e) {
        uint16_t& element = tile[tile_element(lane, e, code.transposed)];
        if constexpr (is_load) {
          if (mask >> lane & 1) values[2 * lane + e] = element;
        } else {
          element = values[2 * lane + e];
        }
      }
    }
    if constexpr (!is_load) {
      for (uint32_t row = 0; row < kTileRows; ++row) {
        if (std::byte* to = row_at(row)) std::memcpy(to, tile + row * kTileRows, kTileRowBytes);
      }
    }
  }
  SOFTGPU_NEXT(op + 1);
}

// d: the transposed tile of a.
const Op* tile_transpose(const Op* op, Warp* warp, std::byte* regs, uint32_t mask) {
  uint16_t from[2 * kWarpSize];
  std::memcpy(from, regs + op->a, sizeof from);
  auto* to = reinterpret_cast<uint16_t*>(regs + op->d);
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    for (uint32_t e = 0; e < 2; ++e) {
      // A tile's elements lie in the lanes' registers in the order of its rows.
      if (mask >> lane & 1) to[2 * lane + e] = from[tile_element(lane, e, true)];
    }
  }
  SOFTGPU_NEXT(op + 1);
}

}  // namespace

void add_matrix_memory_handlers(HandlerTable* table) {
  const auto put = [&](IrOp op, Handler handler) {
    table->handlers[static_cast<size_t>(op)] = handler;
  };
  put(IrOp::k_fragment_load, fragment<true>);
  put(IrOp::k_fragment_store, fragment<false>);
  put(IrOp::k_tile_load, tiles<true>);
  put(IrOp::k_tile_store, tiles<false>);
  put(IrOp::k_tile_transpose, tile_transpose);
}

}  // namespace openmps::softgpu
