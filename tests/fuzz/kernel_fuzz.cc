// SPDX-License-Identifier: Apache-2.0
// Fuzz target of softgpu's interpreter: the input is the text of a module. Each of its kernels that
// can be used runs one block of two warps, the second not full, for a while, on memory of which the
// sanitizer knows the ends. It may finish, fault or use up its budget; it may touch nothing else.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <string_view>
#include <vector>

#include "softgpu/engine.h"

namespace openmps::softgpu {
namespace {

constexpr uint64_t kArenaBytes = 64 * 1024;
constexpr uint64_t kBudget = 2000;  // warp instructions: a loop that does not end costs no more
// As the device model refuses them before a launch.
constexpr uint32_t kMostShared = 48 * 1024;
constexpr uint32_t kMostLocal = 64 * 1024;
constexpr uint32_t kMostParameterBytes = 32764;

// One range, exactly as long as its heap block.
class Arena final : public MemoryMap {
 public:
  Arena() : bytes_(new unsigned char[kArenaBytes]()) {}
  bool find(uint64_t address, AddressRange* range) const override {
    if (address < begin() || address >= begin() + kArenaBytes) return false;
    *range = {begin(), begin() + kArenaBytes, true};
    return true;
  }
  [[nodiscard]] uint64_t begin() const { return reinterpret_cast<uint64_t>(bytes_.get()); }

 private:
  std::unique_ptr<unsigned char[]> bytes_;
};

class Services final : public DeviceServices {
 public:
  void print(std::string_view text) override { printed_ += text.size(); }
  uint64_t allocate_device_heap(uint64_t) override { return 0; }
  void free_device_heap(uint64_t) override {}
  uint64_t global_timer_ns() override { return 1'000'000; }

 private:
  size_t printed_ = 0;
};

// Globals one after the other at the start of the arena; false if they don't fit.
bool place(const Program& program, const Arena& arena, std::vector<uint64_t>* addresses) {
  uint64_t at = 0;
  for (const GlobalInfo& global : program.globals()) {
    if (global.alignment > kArenaBytes || global.bytes > kArenaBytes) return false;
    at = (at + global.alignment - 1) / global.alignment * global.alignment;
    if (at + global.bytes > kArenaBytes) return false;
    addresses->push_back(arena.begin() + at);
    at += global.bytes;
  }
  return true;
}

void run(const std::shared_ptr<const LinkedProgram>& program, uint32_t kernel, const Arena& arena,
         Services* services) {
  const KernelInfo& info = program->program().kernels()[kernel];
  if (!info.unusable.empty() || info.static_shared_bytes > kMostShared ||
      info.local_bytes > kMostLocal || info.parameter_bytes > kMostParameterBytes) {
    return;
  }
  Launch launch;
  launch.program = program;
  launch.kernel = kernel;
  launch.block[0] = 40;
  launch.dynamic_shared_bytes = 256;
  launch.memory = &arena;
  launch.services = services;
  // Every parameter that can be one is a pointer into the arena, all others are its bytes.
  launch.parameters.resize(info.parameter_bytes);
  for (size_t at = 0; at + 8 <= launch.parameters.size(); at += 8) {
    const uint64_t address = arena.begin() + kArenaBytes / 2;
    memcpy(&launch.parameters[at], &address, sizeof(address));
  }
  const uint32_t block[3] = {0, 0, 0};
  const std::unique_ptr<BlockRun> running = start_block(launch, block, 0);
  if (running->run(kBudget, nullptr, 0) != BlockState::kFaulted) return;
  if (running->fault().code == CUDA_SUCCESS || running->fault().text.empty()) abort();
}

}  // namespace
}  // namespace openmps::softgpu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace openmps::softgpu;
  if (size == 0 || data[0] >= 0x80) return 0;  // no text: fatbin_fuzz's input
  CompileError error;
  const std::shared_ptr<const Program> program =
      compile(data, size, {.compute_capability = 90}, &error);
  if (program == nullptr) return 0;
  const Arena arena;
  Services services;
  std::vector<uint64_t> addresses;
  if (!place(*program, arena, &addresses)) return 0;
  const std::shared_ptr<const LinkedProgram> linked = link(program, addresses);
  for (uint32_t kernel = 0; kernel < program->kernels().size(); ++kernel) {
    run(linked, kernel, arena, &services);
  }
  return 0;
}
