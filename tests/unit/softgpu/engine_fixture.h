// SPDX-License-Identifier: Apache-2.0
// A tiny device for the engine's tests: buffers of the test are the only memory a kernel may touch,
// blocks run one after the other or interleaved in small slices.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/engine.h"

namespace openmps::softgpu::test {

class Memory final : public MemoryMap {
 public:
  bool find(uint64_t address, AddressRange* range) const override {
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return false;
    const AddressRange& candidate = std::prev(after)->second;
    if (address >= candidate.end) return false;
    *range = candidate;
    return true;
  }
  void add(const void* data, size_t bytes, bool writable = true) {
    const auto begin = reinterpret_cast<uint64_t>(data);
    ranges_[begin] = {begin, begin + bytes, writable};
  }
  void remove(const void* data) { ranges_.erase(reinterpret_cast<uint64_t>(data)); }

 private:
  std::map<uint64_t, AddressRange> ranges_;
};

class Services final : public DeviceServices {
 public:
  explicit Services(Memory* memory) : memory_(memory) {}
  void print(std::string_view text) override { printed += text; }
  uint64_t allocate_device_heap(uint64_t bytes) override {
    heap_.push_back(std::make_unique<std::byte[]>(bytes + 16));
    memory_->add(heap_.back().get(), bytes);
    return reinterpret_cast<uint64_t>(heap_.back().get());
  }
  void free_device_heap(uint64_t address) override {
    memory_->remove(reinterpret_cast<void*>(address));
    ++freed;
  }
  uint64_t global_timer_ns() override { return ++timer_; }
  void set_timer(uint64_t ns) { timer_ = ns; }
  uint64_t stack_bytes() override { return stack; }

  std::string printed;
  int freed = 0;
  uint64_t stack = UINT64_MAX;

 private:
  Memory* memory_;
  std::vector<std::unique_ptr<std::byte[]>> heap_;
  uint64_t timer_ = 0;
};

// Parameters of a launch, laid out by the kernel's own description.
class Parameters {
 public:
  template <class T>
  Parameters& add(const T& value) {
    std::vector<std::byte> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    values_.push_back(std::move(bytes));
    return *this;
  }
  std::vector<std::byte> build(const KernelInfo& kernel) const {
    std::vector<std::byte> out(kernel.parameter_bytes);
    for (size_t i = 0; i < values_.size() && i < kernel.parameters.size(); ++i) {
      std::memcpy(out.data() + kernel.parameters[i].offset, values_[i].data(),
                  std::min<size_t>(values_[i].size(), kernel.parameters[i].size));
    }
    return out;
  }

 private:
  std::vector<std::vector<std::byte>> values_;
};

struct Dim {
  uint32_t x = 1, y = 1, z = 1;
};

struct Outcome {
  BlockState state = BlockState::kFinished;
  Fault fault;
  uint64_t warp_instructions = 0;
};

// The program's unsupported instructions, a line for each.
inline std::string unsupported_in(const Program& program) {
  std::string lines;
  for (const std::string& what : program.unsupported()) lines += what + "\n";
  return lines;
}

class Device {
 public:
  Device() : services(&memory) {}

  // False: see error.
  bool load(std::string_view ptx, uint32_t capability = 90) {
    return load(ptx, CompileOptions{capability});
  }
  bool load(std::string_view ptx, const CompileOptions& options) {
    program = compile(ptx.data(), ptx.size(), options, &error);
    if (!program) return false;
    std::vector<uint64_t> addresses;
    for (const GlobalInfo& global : program->globals()) {
      globals.push_back(std::make_unique<std::byte[]>(global.bytes + 256));
      const uint64_t raw = reinterpret_cast<uint64_t>(globals.back().get());
      addresses.push_back((raw + global.alignment - 1) & ~uint64_t{global.alignment - 1});
      memory.add(reinterpret_cast<void*>(addresses.back()), global.bytes, !global.is_constant);
    }
    linked = link(program, addresses);
    return true;
  }

  std::string unsupported() const { return unsupported_in(*program); }

  uint32_t kernel(std::string_view name) const {
    for (uint32_t i = 0; i < program->kernels().size(); ++i) {
      if (program->kernels()[i].name == name) return i;
    }
    return UINT32_MAX;
  }

  Launch make_launch(std::string_view name, Dim grid, Dim block, const Parameters& parameters,
                     uint32_t shared) {
    Launch launch;
    launch.program = linked;
    launch.kernel = kernel(name);
    launch.grid[0] = grid.x, launch.grid[1] = grid.y, launch.grid[2] = grid.z;
    launch.block[0] = block.x, launch.block[1] = block.y, launch.block[2] = block.z;
    launch.cluster[0] = cluster.x, launch.cluster[1] = cluster.y, launch.cluster[2] = cluster.z;
    launch.explicit_cluster = cluster_blocks() > 1;
    launch.dynamic_shared_bytes = shared;
    launch.parameters = parameters.build(program->kernels()[launch.kernel]);
    launch.memory = &memory;
    launch.services = &services;
    return launch;
  }

  uint32_t cluster_blocks() const { return cluster.x * cluster.y * cluster.z; }

  // Every block (or cluster) gets `budget` instructions in turn until all have ended, or `turns`
  // are over.
  Outcome run(std::string_view name, Dim grid, Dim block, const Parameters& parameters,
              uint32_t shared = 0, uint64_t seed = 0, uint64_t budget = 1 << 20,
              uint64_t turns = 1 << 20) {
    const Launch launch = make_launch(name, grid, block, parameters, shared);
    std::vector<std::unique_ptr<BlockRun>> open;
    for (uint32_t z = 0; z < grid.z / cluster.z; ++z) {
      for (uint32_t y = 0; y < grid.y / cluster.y; ++y) {
        for (uint32_t x = 0; x < grid.x / cluster.x; ++x) {
          const uint32_t index[3] = {x, y, z};
          open.push_back(cluster_blocks() == 1 ? start_block(launch, index, seed)
                                               : start_cluster(launch, index, {}, seed));
        }
      }
    }
    Outcome outcome;
    for (uint64_t turn = 0; turn < turns && !open.empty(); ++turn) {
      for (size_t i = 0; i < open.size();) {
        outcome.state = open[i]->run(budget, nullptr, 0);
        if (outcome.state == BlockState::kFaulted) {
          outcome.fault = open[i]->fault();
          return outcome;
        }
        if (outcome.state == BlockState::kFinished) {
          outcome.warp_instructions += open[i]->warp_instructions();
          open.erase(open.begin() + static_cast<ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
    }
    outcome.state = open.empty() ? BlockState::kFinished : BlockState::kRunnable;
    return outcome;
  }

  template <class T>
  T* buffer(std::vector<T>& data) {
    memory.add(data.data(), data.size() * sizeof(T));
    return data.data();
  }

  Dim cluster;  // of the launches
  Memory memory;
  Services services;
  CompileError error;
  std::shared_ptr<const Program> program;
  std::shared_ptr<const LinkedProgram> linked;
  std::vector<std::unique_ptr<std::byte[]>> globals;
};

}  // namespace openmps::softgpu::test
