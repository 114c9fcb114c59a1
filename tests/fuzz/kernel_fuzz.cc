// SPDX-License-Identifier: Apache-2.0
// Fuzz target of softgpu's interpreter: the input is the text of a module. Each of its kernels that
// compiles runs one block of two warps, the second of them not full, on memory whose bounds the
// sanitizer checks; if the module uses clusters, also a cluster of two such blocks. A kernel may
// finish, fault or use up its budget of instructions; it must not touch other memory.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "softgpu/engine.h"
#include "softgpu/texture.h"

namespace openmps::softgpu {
namespace {

constexpr uint64_t kArenaBytes = 64 * 1024;
constexpr uint64_t kBudget = 2000;  // warp instructions, so that endless loops end soon
// The device model refuses launches with more shared memory.
constexpr uint32_t kMostShared = 48 * 1024;
constexpr uint32_t kMostLocal = 64 * 1024;
constexpr uint32_t kMostParameterBytes = 32764;

// The memory of a kernel: one range, as long as its heap block.
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

// The handles of textures and surfaces are numbers whose bits describe them: 0 to 2 the shape, 3 to
// 5 the texel format, 6 and 7 the address mode, then filter, normalized coordinates, integers,
// buffer. All texels are in the arena.
constexpr uint64_t kMostImage = 1 << 12;
constexpr uint32_t kImageWidth = 8;
constexpr uint32_t kImageHeight = 4;

Image image_of(uint64_t number, uint64_t address) {
  constexpr TexelFormat kFormats[] = {
      {ChannelKind::kFloat, 4, 1},    {ChannelKind::kFloat, 2, 2},  {ChannelKind::kUnsigned, 1, 4},
      {ChannelKind::kUnsigned, 2, 2}, {ChannelKind::kSigned, 4, 4}, {ChannelKind::kSigned, 1, 1},
      {ChannelKind::kFloat, 4, 4},    {ChannelKind::kSigned, 2, 4}};
  // Shapes: 1D, 2D, 3D, layered 1D, layered 2D, cube, layered cube, 2D.
  const uint32_t shape = number & 7;
  Image image;
  image.address = address;
  image.format = kFormats[number >> 3 & 7];
  image.width = kImageWidth;
  image.height = shape == 0 || shape == 3 ? 0 : kImageHeight;
  image.depth = shape == 2 ? 4 : 0;
  const bool cube = shape == 5 || shape == 6;
  if (cube) image.width = kImageHeight;
  image.layers = shape == 3 || shape == 4 ? 4 : shape == 5 ? 6 : shape == 6 ? 12 : 0;
  image.pitch = kImageWidth * image.format.texel_bytes();
  image.slice = image.pitch * kImageHeight;
  return image;
}

class Services final : public DeviceServices {
 public:
  explicit Services(const Arena& arena) : arena_(arena) {}
  void print(std::string_view text) override { printed_ += text.size(); }
  uint64_t allocate_device_heap(uint64_t) override { return 0; }
  void free_device_heap(uint64_t) override {}
  uint64_t global_timer_ns() override { return 1'000'000; }
  std::shared_ptr<const Texture> texture(uint64_t handle) override {
    if (handle >= kMostImage) return nullptr;
    auto texture = std::make_shared<Texture>();
    texture->levels = {image_of(handle, arena_.begin()), image_of(handle, arena_.begin() + 4096)};
    for (AddressMode& mode : texture->address) mode = static_cast<AddressMode>(handle >> 6 & 3);
    texture->normalized_coordinates = (handle >> 9 & 1) != 0;
    texture->read_as_integer = (handle >> 10 & 1) != 0;
    // The driver refuses linear filtering of texels that are read as integers.
    const TexelFormat& format = texture->levels[0].format;
    const bool numbers = format.kind == ChannelKind::kFloat ||
                         (format.channel_bytes < 4 && !texture->read_as_integer);
    texture->linear_filter = texture->linear_levels = (handle >> 8 & 1) != 0 && numbers;
    texture->buffer = (handle >> 11 & 1) != 0 && (handle & 7) == 0;
    texture->max_level = 1;
    return texture;
  }
  std::shared_ptr<const Image> surface(uint64_t handle) override {
    if (handle >= kMostImage) return nullptr;
    return std::make_shared<Image>(image_of(handle, arena_.begin()));
  }

 private:
  const Arena& arena_;
  size_t printed_ = 0;
};

// Places the globals one after the other at the start of the arena. False if they don't fit.
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
         Services* services, uint32_t blocks) {
  const KernelInfo& info = program->program().kernels()[kernel];
  if (!info.unusable.empty() || info.static_shared_bytes > kMostShared ||
      info.local_bytes > kMostLocal || info.parameter_bytes > kMostParameterBytes) {
    return;
  }
  Launch launch;
  launch.program = program;
  launch.kernel = kernel;
  launch.block[0] = 40;
  launch.grid[0] = launch.cluster[0] = blocks;
  launch.dynamic_shared_bytes = 256;
  launch.memory = &arena;
  launch.services = services;
  // Every aligned word of eight bytes among the parameters is a pointer into the arena; other
  // parameters are bytes of the arena.
  launch.parameters.resize(info.parameter_bytes);
  for (size_t at = 0; at + 8 <= launch.parameters.size(); at += 8) {
    const uint64_t address = arena.begin() + kArenaBytes / 2;
    memcpy(&launch.parameters[at], &address, sizeof(address));
  }
  const uint32_t first[3] = {0, 0, 0};
  const std::unique_ptr<BlockRun> running =
      blocks == 1 ? start_block(launch, first, 0) : start_cluster(launch, first, {}, 0);
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
  Services services(arena);
  std::vector<uint64_t> addresses;
  if (!place(*program, arena, &addresses)) return 0;
  const std::shared_ptr<const LinkedProgram> linked = link(program, addresses);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const uint32_t most_blocks = text.find("cluster") == std::string_view::npos ? 1 : 2;
  for (uint32_t kernel = 0; kernel < program->kernels().size(); ++kernel) {
    for (uint32_t blocks = 1; blocks <= most_blocks; ++blocks) {
      run(linked, kernel, arena, &services, blocks);
    }
  }
  return 0;
}
