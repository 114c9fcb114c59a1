// SPDX-License-Identifier: Apache-2.0
// A block in execution: its warps, shared memory and barriers. Used by the handlers that are more
// than arithmetic, and by block.cc, which schedules warps. One thread at a time.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "softgpu/engine.h"
#include "softgpu/interp/cluster.h"
#include "softgpu/interp/warp.h"
#include "softgpu/ir/code.h"
#include "softgpu/program.h"
#include "softgpu/texture.h"

namespace openmps::softgpu {

// CUDA's limit of local memory per thread, and so of the call stack.
inline constexpr uint64_t kMaxLocalBytes = 512 * 1024;
// Calls need no local memory of their own, so their depth has a limit too.
inline constexpr uint32_t kMaxCallDepth = 4096;
inline constexpr uint32_t kBarriers = 16;  // of a block, by the architecture

// Back edges before a fragment lets others run: few in loops that may wait for somebody (each
// counts kWaitWeight), many in others, where giving up convergence only costs time.
inline constexpr uint32_t kSpinLimit = 1 << 17;
inline constexpr uint32_t kWaitWeight = 1 << 11;

// Shared memory that the system reserves of each block, of which cooperative groups use a part: as
// an H200 has it, but behind the kernel's own instead of before it.
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
  uint64_t specials_of = 0;  // Block::shape_serial
  std::vector<std::unique_ptr<FrameStorage>> frames;
  std::vector<FrameStorage*> free_frames;
  std::vector<std::byte> local_memory;
  uint32_t spins = 0;
  uint32_t cluster_arrived = 0;  // lanes whose phase of the cluster's barrier has not ended
  bool force_sync = false;       // run a *.sync instruction without the lanes that never come
};

// What special registers are made of, but for those of the block's place.
struct LaunchShape {
  uint32_t grid[3] = {}, block[3] = {}, cluster[3] = {};
  bool explicit_cluster = false;
  uint32_t dynamic_shared = 0, sm_count = 1;
  uint64_t grid_workspace = 0;
  bool operator==(const LaunchShape&) const = default;
};

struct Barrier {
  uint32_t arrived = 0;                   // threads
  uint32_t expected = 0;                  // threads, or 0: all that live
  uint32_t popc = 0;                      // bar.red: threads whose predicate is true
  uint32_t sync_arrived = 0;              // threads that take part in bar.red
  std::vector<uint32_t> arrived_of_warp;  // lanes; of the most warps that a block has had here
};

// The texture or surface that a handle named last: looking it up takes locks.
template <class T>
struct NamedObject {
  uint64_t handle = 0;
  std::shared_ptr<const T> object;
};

struct Block final : BlockRun {
  Block();
  ~Block() override;
  BlockState run(uint64_t budget, const std::atomic<bool>* stop, uint32_t sm) override;
  const Fault& fault() const override { return fault_; }
  uint64_t warp_instructions() const override { return retired; }

  void prepare(const Launch& launch, const uint32_t index[3], uint64_t seed);
  void recycle();  // drop references before going to the pool

  // Of the running warp; always nullptr.
  const Op* raise(Warp* warp, const Op* op, CUresult code, uint64_t address,
                  const std::string& what, uint32_t lanes = 0);

  // Rank in the cluster.
  [[nodiscard]] uint32_t cluster_rank() const {
    const uint32_t* size = shape.cluster;
    return index[0] % size[0] + size[0] * (index[1] % size[1] + size[1] * (index[2] % size[2]));
  }
  const Code& code_of(int32_t function) const { return *program->code(function); }
  std::byte* local_at(Warp* warp, uint32_t lane, uint64_t offset) {
    return warp->local + lane * warp->local_bytes + offset;
  }
  void check_barrier(uint32_t id);
  void lanes_exited(WarpState* warp, uint32_t lanes);

  std::shared_ptr<const Linked> program;
  const MemoryMap* memory = nullptr;
  DeviceServices* services = nullptr;
  NestedLaunches* nested = nullptr;
  GraphLaunches* graph = nullptr;
  std::vector<CUresult> last_errors;  // of runtime calls, by thread; empty: none yet
  const Code* kernel = nullptr;
  LaunchShape shape;
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
  Fault fault_;
  std::vector<std::unique_ptr<WarpState>> warps;
  uint32_t warp_count = 0;
  std::vector<uint32_t> schedule;
  uint32_t next_warp = 0;
  std::mt19937_64 random;
  bool shuffled = false;
  Barrier barriers[kBarriers];
  AlignedBytes shared_memory;
  std::vector<std::byte> params;
  RangeCache ranges = {};
  NamedObject<Texture> last_texture;  // for one run(), like `ranges`
  NamedObject<Image> last_surface;
  Cluster alone;  // of a block that was launched without others
  Cluster* cluster = &alone;

 private:
  void prepare_warp(uint32_t warp);
};

// block.cc: the pool that makes the next block cheap; any thread.
std::unique_ptr<Block> take_block();
void give_back_block(std::unique_ptr<Block> block);

// control.cc: fragments.
const Op* switch_fragment(WarpState* warp);  // nullptr: nothing can run now
void release_parked(WarpState* warp);        // lanes that wait at joins go on alone
void update_mask(Warp* warp);
Record* open_record(WarpState* warp, const Op* meet);
void leave_record(WarpState* warp, Record* record, Record* until, uint32_t lanes);
// Give up the processor in favour of other fragments and warps; continue at `pc` later.
const Op* give_way(WarpState* warp, const Op* pc);
inline WarpState* state_of(Warp* warp) { return static_cast<WarpState*>(warp); }

// call.cc: frames.
Frame* make_frame(WarpState* warp, const Code* code, uint64_t local_base);
// What a frame does not hold yet: everything; all but its code's constants; only the block's place,
// because it ran the same code in another block of the same launch, or of one just like it.
enum class Fill : uint8_t { kAll, kSpecials, kBlockPlace };
void fill_frame(WarpState* warp, Frame* frame, Fill fill);
void free_frame(WarpState* warp, Frame* frame);
void leave_frames(WarpState* warp, Frame* frame, uint32_t lanes);

// Checked access of `lane` at a generic address; null: a fault has been raised (address.cc).
std::byte* memory_for(Warp* warp, const Op* op, uint32_t lane, uint64_t address, uint64_t bytes,
                      uint64_t alignment, bool write);

// The parameters and the result of a function that the interpreter provides, up to 8 bytes of each.
uint64_t call_argument(Warp* warp, const CallSite& site, size_t i, uint32_t lane);
void set_call_result(Warp* warp, const CallSite& site, uint32_t lane, uint64_t value);

// Generic memory for services: false: not readable, or not writable.
bool read_generic(Warp* warp, uint32_t lane, uint64_t address, void* to, size_t bytes);
bool write_generic(Warp* warp, uint32_t lane, uint64_t address, const void* from, size_t bytes);
bool read_string(Warp* warp, uint32_t lane, uint64_t address, std::string* out);
// device_printf.cc
int format_printf(Warp* warp, uint32_t lane, uint64_t format, uint64_t arguments, std::string* out);

// Run `warp` from its pc until it gives up the processor.
void run_warp(WarpState* warp);

}  // namespace openmps::softgpu
