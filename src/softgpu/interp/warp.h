// SPDX-License-Identifier: Apache-2.0
// The state of a running warp, as every handler sees it. Plain data: lanes.cc and memory.cc are
// compiled once per instruction set, so nothing here may emit code that the linker could share.
//
// Lanes that run together form a fragment: one program position, one frame, one mask. A branch
// whose lanes disagree splits the fragment and opens a Record that names where they meet again (the
// immediate post-dominator); lanes wait there unless waiting could be for ever, see control.cc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softgpu/ir/frame.h"
#include "softgpu/ir/op.h"

namespace openmps::softgpu {

struct CachedRange {
  uint64_t begin;
  uint64_t end;
  uint64_t writable_end;  // end, or 0 if it may not be written
};
// Address ranges found last: one per slot of memory ops (each mostly accesses one buffer), and all
// of them, [0] the latest.
inline constexpr uint32_t kRangeSlots = 8;
inline constexpr uint32_t kCachedRanges = 8;
struct RangeCache {
  CachedRange slots[kRangeSlots];
  CachedRange recent[kCachedRanges];
};

// How the lanes' addresses of a shared load lie, kept from the first of a run of loads for the rest
// of it: for each vector register of lanes a window of words, and which word each lane reads.
inline constexpr uint32_t kMaxVectors = 4;  // vector registers that 32 words fill, at most
struct KeptWindow {
  alignas(64) uint32_t index[kWarpSize];
  const std::byte* begin[kMaxVectors];
  bool valid;
};
// What loads of windows may read (and not use) behind the end of shared memory.
inline constexpr uint64_t kSharedSlack = 128;

struct Code;
struct Block;
struct CallSite;

struct Frame {
  Frame* parent;
  const Code* code;
  std::byte* regs;
  const Op* return_to;
  const CallSite* site;
  uint64_t local_base;  // of this frame's variables in the lanes' local memory
  uint32_t lanes;       // lanes that run in this frame or in one it called
  uint32_t depth;
};

struct Record {
  Record* parent;
  Frame* frame;
  const Op* meet;     // the join where the lanes wait for each other
  uint32_t expected;  // lanes that will come
  uint32_t arrived;   // lanes that wait there
};

struct Warp {
  // The running fragment.
  uint32_t active;
  uint32_t mask;  // see Handler
  std::byte* regs;
  Frame* frame;
  Record* record;
  uint32_t unguarded;  // active, while a guarded instruction runs with fewer lanes
  const Op* pc;        // where to go on; valid while the warp is not running

  uint32_t alive;  // lanes that exist and have not exited
  uint32_t index;  // %warpid
  int64_t fuel;    // warp instructions until the next poll
  uint32_t spins;  // back edges since others had the processor, weighted
  const std::atomic<bool>* stop;
  RangeCache* ranges;
  std::byte* shared;
  uint64_t shared_bytes;
  std::byte* local;  // lane i at local + i * local_bytes
  uint64_t local_bytes;
  const std::byte* params;
  uint64_t param_bytes;
  Block* block;
  std::byte* pointers[kWarpSize];  // resolve()'s result
  uint64_t last_row[kRangeSlots];  // where loads of rows began, see prefetch_next()
  KeptWindow windows[kKeptWindows];
};

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Handlers jump to each other. Without optimisation they return to the loop of run_warp() instead.
#define SOFTGPU_NEXT(op_) return (op_)->handler((op_), warp, regs, mask)
#else
#define SOFTGPU_NEXT(op_) return (op_)
#endif

// Out of line, shared by all instruction sets (interp/address.cc).

// True if [begin, end) lies in one mapped range, which then is in the slot.
bool find_range(Warp* warp, uint64_t begin, uint64_t end, bool write, uint32_t slot = 0);
// Fill warp->pointers for the active lanes' accesses of `bytes` at addresses[lane] + offset, in any
// space. False: a fault has been recorded.
bool resolve(Warp* warp, const Op* op, const uint64_t* addresses, uint64_t bytes, bool write);
// The faults of shared and local accesses and of misalignment; always nullptr.
const Op* fault_shared(Warp* warp, const Op* op, uint64_t bytes);
const Op* fault_local(Warp* warp, const Op* op, uint64_t bytes);
const Op* fault_misaligned(Warp* warp, const Op* op, const uint64_t* addresses, uint64_t bytes);

// The groups among the lanes that have arrived at a *.sync instruction. A group is the lanes that
// name each other in their masks; lanes of several groups may run one instruction together.
enum class Gathered { kWait, kOneGroup, kSeveralGroups };
// Not all named lanes are here, or the lanes' masks differ: bring those together that wait for each
// other. kWait: the fragment has been put aside, go on at *next; else warp->active are whole groups
// (interp/collective.cc).
Gathered gather_lanes(Warp* warp, const Op* op, const Op** next);
// The lanes among `lanes` of the group of the first of them.
uint32_t first_group(const Warp* warp, const Op* op, uint32_t lanes);

}  // namespace openmps::softgpu
