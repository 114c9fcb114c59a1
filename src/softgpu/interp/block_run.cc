// SPDX-License-Identifier: Apache-2.0
// Setting a block's warps up, running them in turns, and the pool. Called by the device model. See
// block_run.h.
#include "softgpu/interp/block_run.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "softgpu/interp/fragments.h"
#include "softgpu/interp/frames.h"

namespace openmps::softgpu {
namespace {

// Run `warp` from its pc until it gives up the processor.
void run_warp(WarpState* warp) {
  const Op* op = warp->pc;
  while (op) op = op->handler(op, warp, warp->regs, warp->mask);
}

void prepare_warp(Block& block, uint32_t w) {
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
  warp.params = block.params.data();
  warp.param_bytes = block.params.size();
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
}

// Drop references before going to the pool.
void recycle(Block& block) {
  block.program.reset();
  block.memory = nullptr;
  block.services = nullptr;
  block.last_texture = {};
  block.last_surface = {};
  block.cluster = &block.alone;
  block.alone.arrived = 0;
}

}  // namespace

void prepare(Block& block, const Launch& launch, const uint32_t block_index[3], uint64_t seed) {
  block.program = std::static_pointer_cast<const Linked>(launch.program);
  const CompiledProgram& compiled = *block.program->compiled;
  block.kernel = block.program->code(compiled.kernel_functions[launch.kernel]);
  const KernelInfo& info = compiled.kernels_[launch.kernel];
  block.memory = launch.memory;
  block.services = launch.services;
  block.nested = launch.nested;
  block.graph = launch.graph;
  block.last_errors.clear();
  LaunchShape now;
  for (int i = 0; i < 3; ++i) {
    now.grid[i] = launch.grid[i];
    now.block[i] = launch.block[i];
    now.cluster[i] = launch.cluster[i];
    block.index[i] = block_index[i];
  }
  now.explicit_cluster = launch.explicit_cluster;
  now.dynamic_shared = launch.dynamic_shared_bytes;
  now.sm_count = launch.sm_count;
  now.grid_workspace = launch.grid_workspace;
  if (now != block.shape) ++block.shape_serial;
  block.shape = now;
  const uint32_t* size = block.shape.block;
  block.threads = block.live_threads = size[0] * size[1] * size[2];
  block.warp_count = block.live_warps = (block.threads + kWarpSize - 1) / kWarpSize;
  const uint32_t alignment = compiled.dynamic_alignment;
  block.static_shared = (info.static_shared_bytes + alignment - 1) & ~(alignment - 1);
  block.params = launch.parameters;
  block.params.resize(info.parameter_bytes);
  block.retired = block.slice = 0;
  block.faulted = false;
  block.fault = {};
  block.next_warp = 0;
  block.shuffled = seed != 0;
  if (block.shuffled) {
    block.random.seed(seed + block_index[0] + 65536 * (block_index[1] + 65536ull * block_index[2]));
  }
  block.shared_bytes = block.static_shared + block.shape.dynamic_shared;
  block.reserved_shared = (block.shared_bytes + 15) & ~15u;
  if (info.uses_reserved_shared) block.shared_bytes = block.reserved_shared + kReservedSharedCap;
  block.shared_memory.reserve(block.shared_bytes + kSharedSlack);
  if (info.uses_reserved_shared) {
    std::memset(block.shared_memory.data() + block.reserved_shared, 0, kReservedSharedCap);
  }
  while (block.warps.size() < block.warp_count) {
    block.warps.push_back(std::make_unique<WarpState>());
  }
  for (Barrier& barrier : block.barriers) {
    // One that nobody waits at is as new: its release has cleared it.
    const size_t warps_before = barrier.arrived_of_warp.size();
    if (barrier.arrived == 0 && warps_before >= block.warp_count) continue;
    barrier.arrived = barrier.expected = barrier.popc = barrier.sync_arrived = 0;
    barrier.arrived_of_warp.assign(std::max<size_t>(warps_before, block.warp_count), 0);
  }
  block.schedule.resize(block.warp_count);
  for (uint32_t w = 0; w < block.warp_count; ++w) block.schedule[w] = w;
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    prepare_warp(block, w);
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
  block.ranges = {};
  block.last_texture = {};
  block.last_surface = {};
#if defined(__x86_64__)
  const unsigned saved = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(0x1f80);  // round to nearest, no flushing, no traps
#endif
  auto done = [&](BlockState state) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(saved);
#endif
    return state;
  };
  auto left = static_cast<int64_t>(std::min<uint64_t>(budget, INT64_MAX));
  if (!stop) stop = &block.never;
  while (!block.faulted && block.live_warps > 0) {
    bool progress = false;
    if (block.shuffled) std::shuffle(block.schedule.begin(), block.schedule.end(), block.random);
    for (uint32_t i = 0; i < block.warp_count; ++i) {
      block.next_warp = block.next_warp + 1 < block.warp_count ? block.next_warp + 1 : 0;
      WarpState& warp = *block.warps[block.schedule[block.next_warp]];
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
  std::mutex mutex;
  std::vector<std::unique_ptr<Block>> blocks;
};

Pool& pool() {
  static Pool* const made = new Pool;  // immortal: blocks may end after static destruction
  return *made;
}

}  // namespace

std::unique_ptr<Block> take_block() {
  {
    const std::lock_guard lock(pool().mutex);
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
  const std::lock_guard lock(pool().mutex);
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
