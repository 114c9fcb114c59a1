// SPDX-License-Identifier: Apache-2.0
// A block in execution: its warps, shared memory and barriers. Used by the handlers that are more
// than arithmetic, and by block_run.cc, which schedules warps. One thread at a time.
#pragma once

#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "softgpu/engine.h"
#include "softgpu/interp/warp.h"
#include "softgpu/ir/code.h"
#include "softgpu/ir/program.h"
#include "softgpu/texture.h"

namespace openmps::softgpu {

// CUDA's limit of local memory per thread, and so of the call stack.
inline constexpr uint64_t kMaxLocalBytes = 512 * 1024;
// Calls need no local memory of their own, so their depth has a limit too.
inline constexpr uint32_t kMaxCallDepth = 4096;
inline constexpr uint32_t kBarriers = 16;  // of a block, by the architecture
// Four neighbouring warps, which compute matrices together; each group has a barrier of its own.
inline constexpr uint32_t kGroupWarps = 4;
inline constexpr uint32_t kGroups = 8;  // of the largest block

// Back edges before a fragment lets others run: few in loops that may wait for other threads (each
// counts kWaitWeight), many in others, where giving up convergence only costs time.
inline constexpr uint32_t kSpinLimit = 1 << 17;
inline constexpr uint32_t kWaitWeight = 1 << 11;

// Shared memory that the system reserves in each block, partly for cooperative groups: as much as
// on an H200, but behind the kernel's own instead of before it.
inline constexpr uint32_t kReservedSharedCap = 1024;
inline constexpr uint32_t kReservedSharedBytes = 288;

struct Fragment {
  enum class State : uint8_t { kReady, kBarrier, kCluster, kSync };
  Frame* frame = nullptr;
  Record* record = nullptr;
  const Op* pc = nullptr;
  uint32_t mask = 0;
  State state = State::kReady;
  uint32_t barrier = 0;
};

// Memory on cache lines: moves of vector registers that cross lines cost double.
class AlignedBytes {
 public:
  std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }
  void reserve(size_t bytes);  // zeroed if it had to grow; what was there is lost then

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte, Free> bytes_;
  size_t size_ = 0;
};

struct WarpState : Warp {
  std::vector<Fragment> fragments;  // all but the running one; front runs next
  std::vector<std::unique_ptr<Record>> records;
  std::vector<Record*> free_records;
  struct FrameStorage {
    Frame frame;
    AlignedBytes memory;
  };
  FrameStorage root;          // of the kernel; keeps its constants while the same kernel runs
  uint64_t constants_of = 0;  // Linked::serial
  int32_t constants_kernel = -1;
  uint64_t specials_of = 0;     // Block::shape_serial
  AlignedBytes compiled_state;  // of machine code (compiled.h)
  std::vector<std::unique_ptr<FrameStorage>> frames;
  std::vector<FrameStorage*> free_frames;
  std::vector<std::byte> local_memory;
  uint32_t cluster_arrived = 0;  // lanes whose phase of the cluster's barrier has not ended
  bool force_sync = false;       // run a *.sync instruction without the lanes that never come
};

struct Barrier {
  uint32_t arrived = 0;                   // threads
  uint32_t expected = 0;                  // threads, or 0: all that live
  uint32_t popc = 0;                      // bar.red: threads whose predicate is true
  uint32_t sync_arrived = 0;              // threads that take part in bar.red
  std::vector<uint32_t> arrived_of_warp;  // lanes; of the most warps that have met here
};

// The texture or surface that a handle named last: looking it up takes locks.
template <class T>
struct NamedObject {
  uint64_t handle = 0;
  std::shared_ptr<const T> object;
};

// The blocks of a cluster, which reach each other's shared memory and meet at one barrier. One
// thread runs them all in turn, so nothing that they share needs atomics. A block that was launched
// without clusters is one by itself.
struct Cluster {
  // Of the block with that rank; null: there is none.
  [[nodiscard]] Block* block_at(uint32_t rank) const {
    return rank < blocks.size() ? blocks[rank] : nullptr;
  }

  std::vector<Block*> blocks;  // by rank
  uint32_t arrived = 0;        // living threads that have arrived in this phase of the barrier
};

struct Block {
  Block() { alone.blocks = {this}; }

  // Of the running warp; always nullptr.
  const Op* raise(Warp* warp, const Op* op, CUresult code, uint64_t address,
                  const std::string& what, uint32_t lanes = 0);

  // Rank in the cluster.
  [[nodiscard]] uint32_t cluster_rank() const {
    const uint32_t* size = shape.cluster;
    return index[0] % size[0] + size[0] * (index[1] % size[1] + size[1] * (index[2] % size[2]));
  }
  // A thread's %tid.
  [[nodiscard]] std::array<uint32_t, 3> place_of(uint32_t thread) const {
    const uint32_t* size = shape.block;
    return {thread % size[0], thread / size[0] % size[1], thread / (size[0] * size[1])};
  }
  const Code& code_of(int32_t function) const { return *program->code(function); }
  std::byte* local_at(Warp* warp, uint32_t lane, uint64_t offset) {
    return warp->local + lane * warp->local_bytes + offset;
  }

  // Of the launch, which outlives the block.
  const Linked* program = nullptr;
  const MemoryMap* memory = nullptr;
  DeviceServices* services = nullptr;
  NestedLaunches* nested = nullptr;
  GraphLaunches* graph = nullptr;
  std::vector<CUresult> last_errors;  // of runtime calls, by thread; empty: none yet
  const Code* kernel = nullptr;
  KernelTier* tier = nullptr;  // of the kernel, if it may be compiled
  GridShape shape;
  uint64_t shape_serial = 1;  // counts the changes of `shape`
  uint32_t index[3] = {};
  uint32_t threads = 0, live_threads = 0, live_warps = 0;
  uint32_t static_shared = 0;
  uint32_t shared_bytes = 0;     // that the kernel can reach
  uint32_t reserved_shared = 0;  // where what the system reserves begins, behind the rest
  uint32_t sm = 0;
  uint64_t retired = 0;
  uint64_t slice = 0;  // fuel that the running warp started with
  std::atomic<bool> never{false};
  bool faulted = false;
  Fault fault;
  std::vector<std::unique_ptr<WarpState>> warps;
  uint32_t warp_count = 0;
  uint32_t next_warp = 0;
  bool shuffled = false;
  std::vector<uint32_t> schedule;  // of warps, if shuffled
  std::mt19937_64 random;
  Barrier barriers[kBarriers + kGroups];  // those with a name, then those of groups
  uint32_t busy_barriers = 0;             // a bit for each that threads have arrived at
  AlignedBytes shared_memory;
  RangeCache ranges = {};
  NamedObject<Texture> last_texture;  // for one run(), like `ranges`
  NamedObject<Image> last_surface;
  Cluster alone;  // of a block that was launched without others
  Cluster* cluster = &alone;
};

// "x,y,z", for what people read.
std::string comma_separated(const uint32_t place[3]);

inline WarpState* state_of(Warp* warp) { return static_cast<WarpState*>(warp); }

}  // namespace openmps::softgpu
