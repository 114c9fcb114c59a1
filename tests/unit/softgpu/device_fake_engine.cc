// SPDX-License-Identifier: Apache-2.0
// A stand-in for the PTX engine (engine.h) whose kernels do one known thing. Memory goes through
// the MemoryMap of the model, so unmapped addresses fault as they do in the real one.
#include "device_fake_engine.h"

#include <algorithm>
#include <cstring>

#include "softgpu/engine.h"

namespace openmps::softgpu {
namespace {

using testing::FakeAction;
using testing::FakeParameters;

KernelInfo make_kernel(const char* name, uint32_t shared) {
  KernelInfo info;
  info.name = name;
  info.parameters = {{0, 8}, {8, 8}, {16, 8}};
  info.parameter_bytes = sizeof(FakeParameters);
  info.static_shared_bytes = shared;
  info.registers = 32;
  return info;
}

class FakeProgram final : public Program {
 public:
  FakeProgram() {
    kernels_.push_back(make_kernel("run", 0));
    kernels_.push_back(make_kernel("wide", 64 << 10));
    kernels_.push_back(make_kernel("unusable", 0));
    kernels_.back().unusable = "uses too much shared data";
    kernels_.push_back(make_kernel("another", 0));
    globals_.push_back({"counter", 4, 4, false, false});
  }
  const std::vector<KernelInfo>& kernels() const override { return kernels_; }
  const std::vector<GlobalInfo>& globals() const override { return globals_; }

 private:
  std::vector<KernelInfo> kernels_;
  std::vector<GlobalInfo> globals_;
};

class FakeLinked final : public LinkedProgram {
 public:
  explicit FakeLinked(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  const Program& program() const override { return *program_; }

 private:
  std::shared_ptr<const Program> program_;
};

class FakeRun final : public BlockRun {
 public:
  FakeRun(const Launch& launch, uint64_t block) : launch_(launch), block_(block) {
    memcpy(&parameters_, launch.parameters.data(), sizeof parameters_);
  }

  BlockState run(uint64_t budget, const std::atomic<bool>* stop, uint32_t sm) override {
    switch (parameters_.action) {
      case FakeAction::kNothing: return BlockState::kFinished;
      case FakeAction::kAdd:
        return access([&](uint32_t* word) {
          __atomic_fetch_add(word, static_cast<uint32_t>(parameters_.value), __ATOMIC_SEQ_CST);
          return BlockState::kFinished;
        });
      case FakeAction::kWait:
        return access([&](uint32_t* word) { return wait(word, budget, stop); });
      case FakeAction::kFault: return fail(static_cast<CUresult>(parameters_.value), 0);
      case FakeAction::kPrint: launch_.services->print("hello\n"); return BlockState::kFinished;
      case FakeAction::kRecordSm:
        parameters_.address += block_ * sizeof(uint32_t);
        return access([&](uint32_t* word) {
          *word = sm + 1;
          return BlockState::kFinished;
        });
      case FakeAction::kGridSync: return grid_sync(budget, stop);
      case FakeAction::kCount:
        instructions_ += std::min(budget, parameters_.value - instructions_);
        return instructions_ < parameters_.value ? BlockState::kRunnable : BlockState::kFinished;
      case FakeAction::kAllocate:
        return report(launch_.services->allocate_device_heap(parameters_.value) != 0);
      case FakeAction::kTexture:
        return report(launch_.services->texture(parameters_.value) != nullptr);
      case FakeAction::kSurface:
        return report(launch_.services->surface(parameters_.value) != nullptr);
    }
    return fail(CUDA_ERROR_ILLEGAL_INSTRUCTION, 0);
  }

  const Fault& fault() const override { return fault_; }
  uint64_t warp_instructions() const override { return instructions_; }

 private:
  template <typename Body>
  BlockState access(Body&& body) {
    AddressRange range;
    if (!launch_.memory->find(parameters_.address, &range) ||
        parameters_.address + sizeof(uint32_t) > range.end || !range.writable) {
      return fail(CUDA_ERROR_ILLEGAL_ADDRESS, parameters_.address);
    }
    return body(reinterpret_cast<uint32_t*>(parameters_.address));
  }

  BlockState report(bool holds) {
    return access([&](uint32_t* word) {
      __atomic_fetch_add(word, holds ? 1u : 0u, __ATOMIC_SEQ_CST);
      return BlockState::kFinished;
    });
  }

  BlockState wait(uint32_t* word, uint64_t budget, const std::atomic<bool>* stop) {
    for (uint64_t i = 0; i < budget; ++i) {
      if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= parameters_.value) {
        return BlockState::kFinished;
      }
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) break;
      ++instructions_;
    }
    return BlockState::kRunnable;
  }

  BlockState grid_sync(uint64_t budget, const std::atomic<bool>* stop) {
    AddressRange range;
    if (!launch_.memory->find(launch_.grid_workspace, &range)) {
      return fail(CUDA_ERROR_ILLEGAL_ADDRESS, launch_.grid_workspace);
    }
    return access([&](uint32_t* word) {
      if (!arrived_) __atomic_fetch_add(word, 1u, __ATOMIC_SEQ_CST);
      arrived_ = true;
      return wait(word, budget, stop);
    });
  }

  BlockState fail(CUresult code, uint64_t address) {
    fault_ = {code, address, "fake fault"};
    return BlockState::kFaulted;
  }

  const Launch& launch_;
  const uint64_t block_;
  FakeParameters parameters_;
  Fault fault_;
  uint64_t instructions_ = 0;
  bool arrived_ = false;
};

}  // namespace

std::shared_ptr<const Program> compile(const void* image, size_t, const CompileOptions&,
                                       CompileError* error) {
  if (strcmp(static_cast<const char*>(image), testing::kFakeImage) == 0) {
    return std::make_shared<FakeProgram>();
  }
  if (strcmp(static_cast<const char*>(image), testing::kFakeMachineCode) == 0) {
    error->code = CUDA_ERROR_NO_BINARY_FOR_GPU;
    error->log = "machine code";
    return nullptr;
  }
  error->code = CUDA_ERROR_INVALID_PTX;
  error->log = "ptxas fatal: line 1: not the fake image";
  return nullptr;
}

std::shared_ptr<const LinkedProgram> link(std::shared_ptr<const Program> program,
                                          std::vector<uint64_t> global_addresses) {
  for (size_t i = 0; i < global_addresses.size(); ++i) {
    memset(reinterpret_cast<void*>(global_addresses[i]), 0, program->globals()[i].bytes);
  }
  return std::make_shared<FakeLinked>(std::move(program));
}

// All of one after the other: none of these kernels waits for another block of its cluster.
class FakeCluster final : public BlockRun {
 public:
  FakeCluster(const Launch& launch, const uint32_t cluster_index[3], std::vector<uint32_t> sms)
      : sms_(std::move(sms)) {
    for (uint32_t x = 0; x < launch.cluster[0]; ++x) {
      const uint32_t index[3] = {cluster_index[0] * launch.cluster[0] + x, cluster_index[1],
                                 cluster_index[2]};
      blocks_.push_back(start_block(launch, index, 0));
    }
  }
  BlockState run(uint64_t budget, const std::atomic<bool>* stop, uint32_t) override {
    for (; at_ < blocks_.size(); ++at_) {
      const BlockState state = blocks_[at_]->run(budget, stop, sms_[at_]);
      if (state != BlockState::kFinished) return state;
    }
    return BlockState::kFinished;
  }
  const Fault& fault() const override { return blocks_[at_]->fault(); }
  uint64_t warp_instructions() const override { return 0; }

 private:
  std::vector<uint32_t> sms_;
  std::vector<std::unique_ptr<BlockRun>> blocks_;
  size_t at_ = 0;
};

std::unique_ptr<BlockRun> start_cluster(const Launch& launch, const uint32_t cluster_index[3],
                                        const std::vector<uint32_t>& sms, uint64_t) {
  return std::make_unique<FakeCluster>(launch, cluster_index, sms);
}

std::unique_ptr<BlockRun> start_block(const Launch& launch, const uint32_t block_index[3],
                                      uint64_t) {
  uint64_t block = block_index[0] +
                   static_cast<uint64_t>(launch.grid[0]) *
                       (block_index[1] + static_cast<uint64_t>(launch.grid[1]) * block_index[2]);
  return std::make_unique<FakeRun>(launch, block);
}

}  // namespace openmps::softgpu
