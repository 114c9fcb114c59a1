// SPDX-License-Identifier: Apache-2.0
// A block from start to end: setting its warps up, running them in turns, faults, and the pool that
// makes the next block cheap. Called by the device model; one thread at a time per block.
#include "softgpu/interp/block.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

namespace openmps::softgpu {

void run_warp(WarpState* warp) {
  const Op* op = warp->pc;
  while (op) op = op->handler(op, warp, warp->regs, warp->mask);
}

namespace {
constexpr std::align_val_t kCacheLine{64};
}
void AlignedBytes::Free::operator()(std::byte* bytes) const {
  ::operator delete(bytes, kCacheLine);
}
void AlignedBytes::reserve(size_t bytes) {
  if (size_ >= bytes) return;
  bytes_.reset(static_cast<std::byte*>(::operator new(bytes, kCacheLine)));
  std::memset(bytes_.get(), 0, bytes);
  size_ = bytes;
}

Block::Block() { alone.blocks = {this}; }
Block::~Block() = default;

const Op* Block::raise(Warp* warp, const Op* op, CUresult code, uint64_t address,
                       const std::string& what, uint32_t lanes) {
  if (faulted) return nullptr;
  faulted = true;
  if (lanes == 0) lanes = warp->active;
  const uint32_t thread =
      warp->index * kWarpSize + (lanes ? static_cast<uint32_t>(__builtin_ctz(lanes)) : 0);
  const uint32_t* block = shape.block;
  auto triple = [](uint32_t x, uint32_t y, uint32_t z) {
    return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
  };
  fault_.code = code;
  fault_.address = address;
  fault_.text =
      "kernel " + kernel->name + ", block " + triple(index[0], index[1], index[2]) + ", thread " +
      triple(thread % block[0], thread / block[0] % block[1], thread / (block[0] * block[1])) +
      ", PTX line " + std::to_string(op->line) + ": " + what;
  return nullptr;
}

void Block::lanes_exited(WarpState* warp, uint32_t lanes) {
  live_threads -= static_cast<uint32_t>(__builtin_popcount(lanes));
  if (warp->alive == 0) --live_warps;
  for (Fragment& fragment : warp->fragments)
    if (fragment.state == Fragment::State::kSync) fragment.state = Fragment::State::kReady;
  for (uint32_t id = 0; id < kBarriers; ++id)
    if (barriers[id].arrived) check_barrier(id);
  cluster->lanes_exited(warp, lanes);
}

void Block::prepare_warp(uint32_t w) {
  WarpState& warp = *warps[w];
  const uint32_t first = w * kWarpSize;
  const uint32_t count = std::min(kWarpSize, threads - first);
  warp.fragments.clear();
  warp.free_records.clear();
  for (const auto& record : warp.records) warp.free_records.push_back(record.get());
  warp.free_frames.clear();
  for (const auto& frame : warp.frames) warp.free_frames.push_back(frame.get());
  warp.spins = 0;
  warp.cluster_arrived = 0;
  warp.force_sync = false;
  warp.index = w;
  warp.block = this;
  warp.ranges = &ranges;
  warp.shared = shared_memory.data();
  warp.shared_bytes = shared_bytes;
  warp.local = warp.local_memory.data();
  warp.params = params.data();
  warp.param_bytes = params.size();
  warp.alive = warp.active = count == kWarpSize ? kFullMask : (1u << count) - 1;
  warp.record = nullptr;
  warp.unguarded = 0;
  warp.frame = make_frame(&warp, kernel, 0);
  warp.pc = kernel->ops.data();
  if (!warp.frame) return;
  warp.frame->lanes = warp.alive;
  warp.regs = warp.frame->regs;
  // A warp that ran this kernel before still holds its constants.
  const bool fresh =
      warp.constants_of != program->serial || warp.constants_kernel != kernel->function;
  fill_frame(&warp, warp.frame,
             fresh                              ? Fill::kAll
             : warp.specials_of != shape_serial ? Fill::kSpecials
                                                : Fill::kBlockPlace);
  warp.constants_of = program->serial;
  warp.constants_kernel = kernel->function;
  warp.specials_of = shape_serial;
  update_mask(&warp);
}

void Block::prepare(const Launch& launch, const uint32_t block_index[3], uint64_t seed) {
  program = std::static_pointer_cast<const Linked>(launch.program);
  const CompiledProgram& compiled = *program->compiled;
  kernel = program->code(compiled.kernel_functions[launch.kernel]);
  const KernelInfo& info = compiled.kernels_[launch.kernel];
  memory = launch.memory;
  services = launch.services;
  nested = launch.nested;
  graph = launch.graph;
  last_errors.clear();
  LaunchShape now;
  for (int i = 0; i < 3; ++i) {
    now.grid[i] = launch.grid[i];
    now.block[i] = launch.block[i];
    now.cluster[i] = launch.cluster[i];
    index[i] = block_index[i];
  }
  now.explicit_cluster = launch.explicit_cluster;
  now.dynamic_shared = launch.dynamic_shared_bytes;
  now.sm_count = launch.sm_count;
  now.grid_workspace = launch.grid_workspace;
  if (now != shape) ++shape_serial;
  shape = now;
  const uint32_t* block = shape.block;
  threads = live_threads = block[0] * block[1] * block[2];
  warp_count = live_warps = (threads + kWarpSize - 1) / kWarpSize;
  const uint32_t alignment = compiled.dynamic_alignment;
  static_shared = (info.static_shared_bytes + alignment - 1) & ~(alignment - 1);
  params = launch.parameters;
  params.resize(info.parameter_bytes);
  retired = slice = 0;
  faulted = false;
  fault_ = {};
  next_warp = 0;
  shuffled = seed != 0;
  if (shuffled)
    random.seed(seed + block_index[0] + 65536 * (block_index[1] + 65536ull * block_index[2]));
  shared_bytes = static_shared + shape.dynamic_shared;
  reserved_shared = (shared_bytes + 15) & ~15u;
  if (info.uses_reserved_shared) shared_bytes = reserved_shared + kReservedSharedCap;
  shared_memory.reserve(shared_bytes + kSharedSlack);
  if (info.uses_reserved_shared)
    std::memset(shared_memory.data() + reserved_shared, 0, kReservedSharedCap);
  while (warps.size() < warp_count) warps.push_back(std::make_unique<WarpState>());
  for (Barrier& barrier : barriers) {
    // One that nobody waits at is as new: its release has cleared it.
    const size_t warps_before = barrier.arrived_of_warp.size();
    if (barrier.arrived == 0 && warps_before >= warp_count) continue;
    barrier.arrived = barrier.expected = barrier.popc = barrier.sync_arrived = 0;
    barrier.arrived_of_warp.assign(std::max<size_t>(warps_before, warp_count), 0);
  }
  schedule.resize(warp_count);
  for (uint32_t w = 0; w < warp_count; ++w) schedule[w] = w;
  for (uint32_t w = 0; w < warp_count; ++w) {
    prepare_warp(w);
    if (!warps[w]->frame) {
      faulted = true;
      fault_ = {CUDA_ERROR_LAUNCH_FAILED, 0, "kernel " + kernel->name + ": too much local memory"};
      return;
    }
  }
}

void Block::recycle() {
  program.reset();
  memory = nullptr;
  services = nullptr;
  last_texture = {};
  last_surface = {};
  cluster = &alone;
  alone.arrived = 0;
}

BlockState Block::run(uint64_t budget, const std::atomic<bool>* stop, uint32_t sm_index) {
  sm = sm_index;
  // Ranges may have vanished since the last call.
  ranges = {};
  last_texture = {};
  last_surface = {};
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
  if (!stop) stop = &never;
  while (!faulted && live_warps > 0) {
    bool progress = false;
    if (shuffled) std::shuffle(schedule.begin(), schedule.end(), random);
    for (uint32_t i = 0; i < warp_count; ++i) {
      next_warp = next_warp + 1 < warp_count ? next_warp + 1 : 0;
      WarpState& warp = *warps[schedule[next_warp]];
      if (!warp.alive || (!warp.active && !switch_fragment(&warp))) continue;
      progress = true;
      // Short turns of random length make schedules that round robin never shows.
      slice = static_cast<uint64_t>(
          shuffled ? std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % 200)) : left);
      warp.fuel = static_cast<int64_t>(slice);
      warp.stop = stop;
      run_warp(&warp);
      const int64_t used = static_cast<int64_t>(slice) - warp.fuel;
      retired += static_cast<uint64_t>(used);
      left -= used;
      slice = 0;
      warp.fuel = 0;
      if (faulted) return done(BlockState::kFaulted);
      if (left <= 0 || stop->load(std::memory_order_relaxed))
        return done(live_warps > 0 ? BlockState::kRunnable : BlockState::kFinished);
    }
    // Threads that wait for each other for ever hang, as they would on a GPU.
    if (!progress && live_warps > 0) return done(BlockState::kRunnable);
  }
  return done(faulted ? BlockState::kFaulted : BlockState::kFinished);
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
    std::lock_guard lock(pool().mutex);
    if (!pool().blocks.empty()) {
      std::unique_ptr<Block> block = std::move(pool().blocks.back());
      pool().blocks.pop_back();
      return block;
    }
  }
  return std::make_unique<Block>();
}

void give_back_block(std::unique_ptr<Block> block) {
  block->recycle();
  std::lock_guard lock(pool().mutex);
  if (pool().blocks.size() < kPooledBlocks) pool().blocks.push_back(std::move(block));
}

namespace {

// Owns a block and gives it back to the pool.
class BlockHandle final : public BlockRun {
 public:
  explicit BlockHandle(std::unique_ptr<Block> block) : block_(std::move(block)) {}
  ~BlockHandle() override { give_back_block(std::move(block_)); }
  BlockState run(uint64_t budget, const std::atomic<bool>* stop, uint32_t sm) override {
    return block_->run(budget, stop, sm);
  }
  const Fault& fault() const override { return block_->fault(); }
  uint64_t warp_instructions() const override { return block_->warp_instructions(); }

 private:
  std::unique_ptr<Block> block_;
};

}  // namespace

std::unique_ptr<BlockRun> start_block(const Launch& launch, const uint32_t block_index[3],
                                      uint64_t shuffle_seed) {
  std::unique_ptr<Block> block = take_block();
  block->prepare(launch, block_index, shuffle_seed);
  return std::make_unique<BlockHandle>(std::move(block));
}

}  // namespace openmps::softgpu
