// SPDX-License-Identifier: Apache-2.0
// The execution of a cluster: its blocks, in turn, on the thread that calls run(). Called by the
// device model; one thread at a time per cluster.
#include <algorithm>
#include <random>

#include "softgpu/interp/block_run.h"

namespace openmps::softgpu {
namespace {

// Warp instructions of one block before the next has its turn: few, because blocks of a cluster
// wait for each other; many beside what a change of blocks costs.
constexpr uint64_t kTurn = 2048;

class ClusterRun final : public BlockRun {
 public:
  ClusterRun(const Launch& launch, const uint32_t cluster_index[3],
             const std::vector<uint32_t>& sms, uint64_t seed)
      : random_(seed), shuffled_(seed != 0) {
    const uint32_t* size = launch.cluster;
    for (uint32_t rank = 0; rank < size[0] * size[1] * size[2]; ++rank) {
      const uint32_t inside[3] = {rank % size[0], rank / size[0] % size[1],
                                  rank / (size[0] * size[1])};
      uint32_t index[3];
      for (int i = 0; i < 3; ++i) index[i] = cluster_index[i] * size[i] + inside[i];
      std::unique_ptr<Block> block = take_block();
      prepare(*block, launch, index, seed);
      block->cluster = &cluster_;
      cluster_.blocks.push_back(block.get());
      members_.push_back({std::move(block), rank < sms.size() ? sms[rank] : 0});
    }
  }
  ~ClusterRun() override {
    for (Member& member : members_) give_back_block(std::move(member.block));
  }

  // What `sm` was chosen for each block is known since the start.
  BlockState run(uint64_t budget, const std::atomic<bool>* stop, uint32_t) override {
    uint64_t used = 0;
    bool progress = true, open = true;
    while (used < budget && progress && open) {
      progress = open = false;
      if (shuffled_) std::shuffle(members_.begin(), members_.end(), random_);
      for (Member& member : members_) {
        Block& block = *member.block;
        if (block.live_warps == 0) continue;
        const uint64_t before = block.retired;
        const BlockState state = softgpu::run(block, std::min(kTurn, budget), stop, member.sm);
        if (state == BlockState::kFaulted) {
          faulted_ = &block;
          return state;
        }
        used += block.retired - before;
        // A block that finished without a counted instruction may still have released a barrier.
        progress |= block.retired != before || state == BlockState::kFinished;
        open |= state == BlockState::kRunnable;
        if (stop && stop->load(std::memory_order_relaxed)) return state_now();
      }
    }
    return state_now();
  }

  const Fault& fault() const override { return faulted_->fault; }
  uint64_t warp_instructions() const override {
    uint64_t sum = 0;
    for (const Member& member : members_) sum += member.block->retired;
    return sum;
  }

 private:
  struct Member {
    std::unique_ptr<Block> block;
    uint32_t sm;
  };
  [[nodiscard]] BlockState state_now() const {
    const bool finished = std::all_of(members_.begin(), members_.end(), [](const Member& member) {
      return member.block->live_warps == 0;
    });
    return finished ? BlockState::kFinished : BlockState::kRunnable;
  }

  Cluster cluster_;
  std::vector<Member> members_;
  const Block* faulted_ = nullptr;
  std::mt19937_64 random_;
  const bool shuffled_;
};

}  // namespace

std::unique_ptr<BlockRun> start_cluster(const Launch& launch, const uint32_t cluster_index[3],
                                        const std::vector<uint32_t>& sms, uint64_t shuffle_seed) {
  return std::make_unique<ClusterRun>(launch, cluster_index, sms, shuffle_seed);
}

}  // namespace openmps::softgpu
