// SPDX-License-Identifier: Apache-2.0
// Setting a block's warps up, running them in turns, and the pool. Called by the device model. See
// block_run.h.
#include "softgpu/interp/block_run.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>

#include "base/mutex.h"
#include "softgpu/interp/compiled.h"
#include "softgpu/interp/fragments.h"
#include "softgpu/interp/frames.h"

namespace openmps::softgpu {
namespace {

// Run `warp` from its pc until it gives up the processor.
void run_warp(WarpState* warp) {
  const Op* op = warp->pc;
  while (op) op = op->handler(op, warp, warp->regs, warp->mask);
}

void prepare_warp(Block& block, const Launch& launch, uint32_t w) {
  WarpState& warp = *block.warps[w];
  const uint32_t first = w * kWarpSize;
  const uint32_t count = std::min(kWarpSize, block.threads - first);
  warp.fragments.clear();
  warp.free_records.clear();
  for (const auto& record : warp.records) warp.free_records.push_back(record.get());
  warp.free_frames.clear();
  for (const auto& frame : warp.frames) warp.free_frames.push_back(frame.get());
  warp.spins = 0;
  warp.cluster_arrived = 0;
  warp.force_sync = false;
  warp.index = w;
  warp.block = &block;
  warp.ranges = &block.ranges;
  warp.shared = block.shared_memory.data();
  warp.shared_bytes = block.shared_bytes;
  warp.local = warp.local_memory.data();
  warp.params = launch.parameters.data();
  warp.param_bytes = launch.parameters.size();
  warp.alive = warp.active = count == kWarpSize ? kFullMask : (1u << count) - 1;
  warp.record = nullptr;
  warp.unguarded = 0;
  warp.frame = make_frame(&warp, block.kernel, 0);
  warp.pc = block.kernel->ops.data();
  if (!warp.frame) return;
  warp.frame->lanes = warp.alive;
  warp.regs = warp.frame->regs;
  // A warp that ran this kernel before still holds its constants.
  const bool fresh =
      warp.constants_of != block.program->serial || warp.constants_kernel != block.kernel->function;
  fill_frame(&warp, warp.frame,
             fresh                                    ? Fill::kAll
             : warp.specials_of != block.shape_serial ? Fill::kSpecials
                                                      : Fill::kBlockPlace);
  warp.constants_of = block.program->serial;
  warp.constants_kernel = block.kernel->function;
  warp.specials_of = block.shape_serial;
  update_mask(&warp);
  if (const CompiledKernel* compiled = block.kernel->compiled) {
    warp.compiled_state.reserve(compiled->state_bytes);
    *reinterpret_cast<CompiledState*>(warp.compiled_state.data()) = {0, 0};
  }
}

// Drop references before going to the pool.
void recycle(Block& block) {
  block.program = nullptr;
  block.memory = nullptr;
  block.services = nullptr;
  block.last_texture = {};
  block.last_surface = {};
  block.cluster = &block.alone;
  block.alone.arrived = 0;
}

// A range without an end holds nothing. Zeros all over would be a slow loop of the processor's own
// (rep stos).
void forget(RangeCache* cache) {
  for (CachedRange& range : cache->slots) range.end = range.writable_end = 0;
  for (CachedRange& range : cache->recent) range.end = range.writable_end = 0;
}

}  // namespace

void prepare(Block& block, const Launch& launch, const uint32_t block_index[3], uint64_t seed) {
  block.program = static_cast<const Linked*>(launch.program.get());
  const CompiledProgram& compiled = *block.program->compiled;
  block.kernel = block.program->code(compiled.kernel_functions[launch.kernel]);
  block.tier = block.kernel->tier.get();
  const KernelInfo& info = compiled.kernels_[launch.kernel];
  block.memory = launch.memory;
  block.services = launch.services;
  block.nested = launch.nested;
  block.graph = launch.graph;
  block.last_errors.clear();
  for (int i = 0; i < 3; ++i) block.index[i] = block_index[i];
  if (const GridShape& now = launch; now != block.shape) {
    block.shape = now;
    ++block.shape_serial;
  }
  if (block.tier != nullptr && seed == 0) {
    if (const Code* chosen = block.tier->choose(block)) block.kernel = chosen;
  }
  const uint32_t* size = block.shape.block;
  block.threads = block.live_threads = size[0] * size[1] * size[2];
  block.warp_count = block.live_warps = (block.threads + kWarpSize - 1) / kWarpSize;
  const uint32_t alignment = compiled.dynamic_alignment;
  block.static_shared = (info.static_shared_bytes + alignment - 1) & ~(alignment - 1);
  assert(launch.parameters.size() == info.parameter_bytes);
  block.retired = block.slice = 0;
  if (block.faulted) block.fault = {};
  block.faulted = false;
  block.next_warp = 0;
  block.shuffled = seed != 0;
  if (block.shuffled) {
    block.schedule.resize(block.warp_count);
    std::iota(block.schedule.begin(), block.schedule.end(), 0);
    block.random.seed(seed + block_index[0] + 65536 * (block_index[1] + 65536ull * block_index[2]));
  }
  block.shared_bytes = block.static_shared + block.shape.dynamic_shared_bytes;
  block.reserved_shared = (block.shared_bytes + 15) & ~15u;
  if (info.uses_reserved_shared) block.shared_bytes = block.reserved_shared + kReservedSharedCap;
  block.shared_memory.reserve(block.shared_bytes + kSharedSlack);
  if (info.uses_reserved_shared) {
    std::memset(block.shared_memory.data() + block.reserved_shared, 0, kReservedSharedCap);
  }
  while (block.warps.size() < block.warp_count) {
    block.warps.push_back(std::make_unique<WarpState>());
  }
  // The others are as new: their release has cleared them.
  for (uint32_t busy = block.busy_barriers; busy; busy &= busy - 1) {
    block.barriers[__builtin_ctz(busy)] = {};
  }
  block.busy_barriers = 0;
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    prepare_warp(block, launch, w);
    if (!block.warps[w]->frame) {
      block.faulted = true;
      block.fault = {CUDA_ERROR_LAUNCH_FAILED, 0,
                     "kernel " + block.kernel->name + ": too much local memory"};
      return;
    }
  }
}

BlockState run(Block& block, uint64_t budget, const std::atomic<bool>* stop, uint32_t sm_index) {
  block.sm = sm_index;
  // Ranges may have vanished since the last call.
  forget(&block.ranges);
  block.last_texture = {};
  block.last_surface = {};
#if defined(__x86_64__)
  const unsigned saved = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(0x1f80);  // round to nearest, no flushing, no traps
#endif
  const uint64_t retired_before = block.retired;
  auto done = [&](BlockState state) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(saved);
#endif
    if (block.tier != nullptr) block.tier->count(block, block.retired - retired_before);
    return state;
  };
  auto left = static_cast<int64_t>(std::min<uint64_t>(budget, INT64_MAX));
  if (!stop) stop = &block.never;
  while (!block.faulted && block.live_warps > 0) {
    bool progress = false;
    if (block.shuffled) std::shuffle(block.schedule.begin(), block.schedule.end(), block.random);
    for (uint32_t i = 0; i < block.warp_count; ++i) {
      block.next_warp = block.next_warp + 1 < block.warp_count ? block.next_warp + 1 : 0;
      WarpState& warp =
          *block.warps[block.shuffled ? block.schedule[block.next_warp] : block.next_warp];
      if (!warp.alive || (!warp.active && !switch_fragment(&warp))) continue;
      progress = true;
      // Short turns of random length make schedules that round robin never shows.
      block.slice = static_cast<uint64_t>(
          block.shuffled ? std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % 200))
                         : left);
      warp.fuel = static_cast<int64_t>(block.slice);
      warp.stop = stop;
      run_warp(&warp);
      const int64_t used = static_cast<int64_t>(block.slice) - warp.fuel;
      block.retired += static_cast<uint64_t>(used);
      left -= used;
      block.slice = 0;
      warp.fuel = 0;
      if (block.faulted) return done(BlockState::kFaulted);
      if (left <= 0 || stop->load(std::memory_order_relaxed)) {
        return done(block.live_warps > 0 ? BlockState::kRunnable : BlockState::kFinished);
      }
    }
    // Threads that wait for each other for ever hang, as they would on a GPU.
    if (!progress && block.live_warps > 0) return done(BlockState::kRunnable);
  }
  return done(block.faulted ? BlockState::kFaulted : BlockState::kFinished);
}

namespace {

// Blocks kept for reuse: more than one worker thread per SM needs.
constexpr size_t kPooledBlocks = 64;

struct Pool {
  Mutex mutex{LockRank::kSoftBlockPool};
  std::vector<std::unique_ptr<Block>> blocks GUARDED_BY(mutex);
};

Pool& pool() {
  static Pool* const made = new Pool;  // immortal: blocks may end after static destruction
  return *made;
}

}  // namespace

std::unique_ptr<Block> take_block() {
  {
    const MutexLock lock(pool().mutex);
    if (!pool().blocks.empty()) {
      std::unique_ptr<Block> block = std::move(pool().blocks.back());
      pool().blocks.pop_back();
      return block;
    }
  }
  return std::make_unique<Block>();
}

void give_back_block(std::unique_ptr<Block> block) {
  recycle(*block);
  const MutexLock lock(pool().mutex);
  if (pool().blocks.size() < kPooledBlocks) pool().blocks.push_back(std::move(block));
}

namespace {

// Owns a block and gives it back to the pool.
class BlockHandle final : public BlockRun {
 public:
  explicit BlockHandle(std::unique_ptr<Block> block) : block_(std::move(block)) {}
  ~BlockHandle() override { give_back_block(std::move(block_)); }
  BlockState run(uint64_t budget, const std::atomic<bool>* stop, uint32_t sm) override {
    return softgpu::run(*block_, budget, stop, sm);
  }
  const Fault& fault() const override { return block_->fault; }
  uint64_t warp_instructions() const override { return block_->retired; }

 private:
  std::unique_ptr<Block> block_;
};

}  // namespace

std::unique_ptr<BlockRun> start_block(const Launch& launch, const uint32_t block_index[3],
                                      uint64_t shuffle_seed) {
  std::unique_ptr<Block> block = take_block();
  prepare(*block, launch, block_index, shuffle_seed);
  return std::make_unique<BlockHandle>(std::move(block));
}

}  // namespace openmps::softgpu
