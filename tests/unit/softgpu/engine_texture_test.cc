// SPDX-License-Identifier: Apache-2.0
// Texture fetches, surface accesses and their faults, as the engine runs them on images of the
// test's own.
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "engine_fixture.h"
#include "softgpu/texture.h"

namespace openmps::softgpu::test {
namespace {

// A device whose textures and surfaces are known by small numbers.
class ImageServices final : public DeviceServices {
 public:
  void print(std::string_view) override {}
  uint64_t allocate_device_heap(uint64_t) override { return 0; }
  void free_device_heap(uint64_t) override {}
  uint64_t global_timer_ns() override { return 0; }
  std::shared_ptr<const Texture> texture(uint64_t handle) override {
    auto found = textures.find(handle);
    return found == textures.end() ? nullptr : found->second;
  }
  std::shared_ptr<const Image> surface(uint64_t handle) override {
    auto found = surfaces.find(handle);
    return found == surfaces.end() ? nullptr : found->second;
  }
  std::map<uint64_t, std::shared_ptr<Texture>> textures;
  std::map<uint64_t, std::shared_ptr<Image>> surfaces;
};

std::string kernel(const std::string& body) {
  return ".version 7.8\n.target sm_70\n.address_size 64\n"
         ".visible .entry k(.param .u64 p_handle, .param .u64 p_in, .param .u64 p_out) {\n"
         ".reg .b64 %rd<9>; .reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b16 %h<9>; .reg .pred "
         "%p<3>;\n"
         "ld.param.u64 %rd1, [p_handle]; ld.param.u64 %rd2, [p_in]; ld.param.u64 %rd3, [p_out];\n"
         "mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 16;\n"
         "add.u64 %rd5, %rd2, %rd4; add.u64 %rd6, %rd3, %rd4;\n"
         "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd5];\n"
         "mov.b32 %f2, %r2; mov.b32 %f3, %r3; mov.b32 %f4, %r4;\n" +
         body + "\nret; }\n";
}

struct Row {
  uint32_t word[4];
};
Row numbers(float x, float y = 0, float z = 0) {
  return {{std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(y), std::bit_cast<uint32_t>(z), 0}};
}
Row counts(int x, int y = 0, int z = 0, int w = 0) {
  return {{static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z),
           static_cast<uint32_t>(w)}};
}
float number(uint32_t word) { return std::bit_cast<float>(word); }

class TextureTest : public ::testing::Test {
 protected:
  // One thread per row of input; `body` leaves %rd6 the row of output to write.
  std::vector<Row> run(const std::string& body, std::vector<Row> in, uint64_t handle = 1) {
    std::vector<Row> out(in.size(), Row{{~0u, ~0u, ~0u, ~0u}});
    device.memory.add(in.data(), in.size() * sizeof(Row));
    device.memory.add(out.data(), out.size() * sizeof(Row));
    EXPECT_TRUE(device.load(kernel(body))) << device.error.log;
    EXPECT_EQ(device.unsupported(), "");
    Parameters parameters;
    parameters.add(handle)
        .add(reinterpret_cast<uint64_t>(in.data()))
        .add(reinterpret_cast<uint64_t>(out.data()));
    Launch launch = device.make_launch("k", {}, {static_cast<uint32_t>(in.size())}, parameters, 0);
    launch.services = &services;
    const uint32_t index[3] = {0, 0, 0};
    std::unique_ptr<BlockRun> block = start_block(launch, index, 0);
    state = block->run(1 << 20, nullptr, 0);
    fault = block->fault();
    return out;
  }
  Image image(void* data, uint32_t width, uint32_t height, TexelFormat format) {
    Image made;
    made.address = reinterpret_cast<uint64_t>(data);
    made.width = width;
    made.height = height;
    made.pitch = width * format.texel_bytes();
    made.slice = made.pitch * std::max(height, 1u);
    made.format = format;
    device.memory.add(data, made.slice);
    return made;
  }
  Texture* texture(const Image& level) {
    services.textures[1] = std::make_shared<Texture>();
    services.textures[1]->levels = {level};
    return services.textures[1].get();
  }

  Device device;
  ImageServices services;
  BlockState state = BlockState::kFinished;
  Fault fault;
};

constexpr TexelFormat kFloat{ChannelKind::kFloat, 4, 1};
constexpr TexelFormat kByte{ChannelKind::kUnsigned, 1, 1};
const char* const kFetch2d =
    "tex.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%f2, %f3}];\n"
    "st.global.v4.f32 [%rd6], {%f5, %f6, %f7, %f8};";

TEST_F(TextureTest, WeightsHaveEightFractionalBits) {
  float data[2] = {0, 1};
  texture(image(data, 2, 0, kFloat))->linear_filter = true;
  const std::vector<Row> got =
      run("tex.1d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%f2}];\n"
          "st.global.v4.f32 [%rd6], {%f5, %f6, %f7, %f8};",
          {numbers(0.5f), numbers(0.5f + 1 / 512.0f), numbers(0.5f + 1 / 1024.0f), numbers(1.25f),
           numbers(-9), numbers(9)});
  ASSERT_EQ(state, BlockState::kFinished) << fault.text;
  EXPECT_EQ(number(got[0].word[0]), 0);
  EXPECT_EQ(number(got[1].word[0]), 1 / 256.0f);  // half a step is rounded up
  EXPECT_EQ(number(got[2].word[0]), 0);
  EXPECT_EQ(number(got[3].word[0]), 0.75f);
  EXPECT_EQ(number(got[4].word[0]), 0);
  EXPECT_EQ(number(got[5].word[0]), 1);
  EXPECT_EQ(got[3].word[1], 0u) << "channels that are not there are zero";
}

TEST_F(TextureTest, AddressModes) {
  float data[4] = {10, 11, 12, 13};
  Texture* made = texture(image(data, 4, 1, kFloat));
  made->normalized_coordinates = true;
  made->border[0] = 99;
  const std::vector<Row> at = {numbers(-0.1f, 0.5f), numbers(1.3f, 0.5f), numbers(-0.4f, 0.5f)};
  const float expected[4][3] = {{13, 11, 12}, {10, 13, 10}, {10, 12, 11}, {99, 99, 99}};
  for (const AddressMode mode :
       {AddressMode::kWrap, AddressMode::kClamp, AddressMode::kMirror, AddressMode::kBorder}) {
    made->address[0] = mode;
    const std::vector<Row> got = run(kFetch2d, at);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(number(got[i].word[0]), expected[static_cast<int>(mode)][i])
          << static_cast<int>(mode) << " " << i;
    }
  }
  // Without normalised coordinates wrapping becomes clamping.
  made->normalized_coordinates = false;
  made->address[0] = AddressMode::kWrap;
  EXPECT_EQ(number(run(kFetch2d, {numbers(4.5f)})[0].word[0]), 13);
}

TEST_F(TextureTest, CoordinatesThatAreNoNumbers) {
  float data[4] = {10, 11, 12, 13};
  texture(image(data, 4, 1, kFloat))->linear_filter = true;
  const float nan = std::bit_cast<float>(0x7fc00000u), infinity = std::bit_cast<float>(0x7f800000u);
  run(kFetch2d, {numbers(nan, infinity), numbers(-infinity, nan), numbers(1e38f, -1e38f)});
  EXPECT_EQ(state, BlockState::kFinished);
}

TEST_F(TextureTest, LevelsThatAreNoNumbers) {
  float fine[4] = {10, 10, 10, 10}, coarse[1] = {20};
  Texture* made = texture(image(fine, 2, 2, kFloat));
  made->levels.push_back(image(coarse, 1, 1, kFloat));
  made->normalized_coordinates = true;
  made->max_level = 1;
  const char* const fetch =
      "tex.level.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%f2, %f3}], %f4;\n"
      "st.global.v4.f32 [%rd6], {%f5, %f6, %f7, %f8};";
  const float nan = std::bit_cast<float>(0x7fc00000u), infinity = std::bit_cast<float>(0x7f800000u);
  const std::vector<Row> at = {numbers(0.5f, 0.5f, nan), numbers(0.5f, 0.5f, infinity),
                               numbers(0.5f, 0.5f, -infinity), numbers(0.5f, 0.5f, 0.5f)};
  for (const bool linear : {false, true}) {
    made->linear_levels = linear;
    const std::vector<Row> got = run(fetch, at);
    ASSERT_EQ(state, BlockState::kFinished) << fault.text;
    EXPECT_EQ(number(got[0].word[0]), 10);
    EXPECT_EQ(number(got[1].word[0]), 20);
    EXPECT_EQ(number(got[2].word[0]), 10);
    EXPECT_EQ(number(got[3].word[0]), linear ? 15 : 20);
  }
  made->level_bias = made->min_level = made->max_level = nan;
  EXPECT_EQ(number(run(fetch, at)[1].word[0]), 10);
}

TEST_F(TextureTest, IntegersAsIntegersAndAsNumbers) {
  uint8_t data[4] = {0, 51, 255, 7};
  Texture* made = texture(image(data, 4, 1, kByte));
  EXPECT_EQ(number(run(kFetch2d, {numbers(1.5f)})[0].word[0]), 51 / 255.0f);
  made->read_as_integer = true;
  EXPECT_EQ(run(kFetch2d, {numbers(2.5f)})[0].word[0], 255u);
}

TEST_F(TextureTest, AGuardedFetchLeavesOtherLanesAlone) {
  float data[4] = {10, 11, 12, 13};
  texture(image(data, 4, 1, kFloat));
  const std::vector<Row> got =
      run("mov.f32 %f5, 0f40A00000; setp.eq.u32 %p1, %r1, 1;\n"
          "@%p1 tex.2d.v4.f32.f32 {%f5, _, _, _}, [%rd1, {%f2, %f3}];\n"
          "st.global.f32 [%rd6], %f5;",
          {numbers(0), numbers(2), numbers(3)});
  EXPECT_EQ(number(got[0].word[0]), 5);
  EXPECT_EQ(number(got[1].word[0]), 12);
  EXPECT_EQ(number(got[2].word[0]), 5);
}

// The lanes of a warp are fetched together; each gets what it would get alone.
TEST_F(TextureTest, LanesWithLevelsOfTheirOwn) {
  float fine[16], coarse[4] = {100, 110, 120, 130};
  for (int i = 0; i < 16; ++i) fine[i] = static_cast<float>(i * i);
  Texture* made = texture(image(fine, 4, 4, kFloat));
  made->levels.push_back(image(coarse, 2, 2, kFloat));
  made->normalized_coordinates = made->linear_filter = true;
  made->max_level = 1;
  made->address[0] = AddressMode::kMirror;
  made->address[1] = AddressMode::kBorder;
  made->border[0] = -7;
  std::vector<Row> at;
  for (int lane = 0; lane < 32; ++lane) {
    at.push_back(numbers(static_cast<float>(lane) * 0.17f - 2, static_cast<float>(lane % 7) * 0.2f,
                         static_cast<float>(lane % 5) * 0.25f));
  }
  const char* const fetch =
      "tex.level.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%f2, %f3}], %f4;\n"
      "st.global.v4.f32 [%rd6], {%f5, %f6, %f7, %f8};";
  for (const bool linear : {false, true}) {
    made->linear_levels = linear;
    const std::vector<Row> together = run(fetch, at);
    ASSERT_EQ(state, BlockState::kFinished) << fault.text;
    for (size_t lane = 0; lane < at.size(); ++lane) {
      EXPECT_EQ(together[lane].word[0], run(fetch, {at[lane]})[0].word[0]) << lane;
    }
  }
}

TEST_F(TextureTest, LanesWithTexturesOfTheirOwn) {
  float first[2] = {1, 2}, second[2] = {3, 4};
  texture(image(first, 2, 0, kFloat));
  services.textures[2] = std::make_shared<Texture>();
  services.textures[2]->levels = {image(second, 2, 0, kFloat)};
  services.textures[2]->linear_filter = true;
  const std::vector<Row> got =
      run("and.b32 %r6, %r1, 1; cvt.u64.u32 %rd7, %r6; add.u64 %rd1, %rd1, %rd7;\n"
          "tex.1d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%f2}];\n"
          "st.global.v4.f32 [%rd6], {%f5, %f6, %f7, %f8};",
          {numbers(0.5f), numbers(0.5f), numbers(1.5f), numbers(1.0f), numbers(0.0f)});
  ASSERT_EQ(state, BlockState::kFinished) << fault.text;
  const float expected[5] = {1, 3, 2, 3.5f, 1};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(number(got[i].word[0]), expected[i]) << i;
}

// Only what is read must be mapped, not all of the image.
TEST_F(TextureTest, ATextureOfWhichAPartIsMapped) {
  float data[8] = {10, 11, 12, 13, 14, 15, 16, 17};
  Image whole = image(data, 8, 1, kFloat);
  device.memory.remove(data);
  device.memory.add(data, 4 * sizeof(float));
  texture(whole);
  EXPECT_EQ(number(run(kFetch2d, {numbers(3.5f), numbers(0)})[0].word[0]), 13);
  EXPECT_EQ(state, BlockState::kFinished) << fault.text;
  run(kFetch2d, {numbers(3.5f), numbers(4.5f)});
  EXPECT_EQ(state, BlockState::kFaulted);
  EXPECT_EQ(fault.address, reinterpret_cast<uint64_t>(data + 4));
}

TEST_F(TextureTest, FaultsOfTextures) {
  float data[4] = {};
  texture(image(data, 4, 1, kFloat));
  run(kFetch2d, {numbers(0)}, 77);
  EXPECT_EQ(state, BlockState::kFaulted);
  EXPECT_EQ(fault.code, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_NE(fault.text.find("0x4d is no texture object"), std::string::npos) << fault.text;
  device.memory.remove(data);
  run(kFetch2d, {numbers(0)});
  EXPECT_EQ(fault.code, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(TextureTest, FormattedStoresAreConverted) {
  int8_t bytes[8] = {};
  services.surfaces[1] = std::make_shared<Image>(image(bytes, 4, 1, {ChannelKind::kSigned, 1, 2}));
  run("sust.p.2d.v2.b32.trap [%rd1, {%r2, 0}], {%r3, %r4};",
      {counts(0, 5, -6), counts(1, 1000, -1000), counts(3, 7, 8)});
  ASSERT_EQ(state, BlockState::kFinished) << fault.text;
  const int8_t expected[8] = {5, -6, 127, -128, 0, 0, 7, 8};
  EXPECT_EQ(memcmp(bytes, expected, 8), 0);
  uint16_t halves[2] = {};
  services.surfaces[1] = std::make_shared<Image>(image(halves, 2, 1, {ChannelKind::kFloat, 2, 1}));
  run("mov.f32 %f5, 0f3FC00000; sust.p.2d.f32.trap [%rd1, {%r2, 0}], {%f5};", {counts(1)});
  EXPECT_EQ(halves[1], 0x3e00);
}

TEST_F(TextureTest, BoundariesOfSurfaces) {
  uint32_t data[4] = {1, 2, 3, 4};
  services.surfaces[1] = std::make_shared<Image>(image(data, 4, 1, {ChannelKind::kUnsigned, 4, 1}));
  const auto load = [](const char* boundary) {
    return "suld.b.2d.b32." + std::string(boundary) + " {%r6}, [%rd1, {%r2, %r3}];\n" +
           "st.global.b32 [%rd6], %r6;";
  };
  EXPECT_EQ(run(load("clamp"), {counts(400)})[0].word[0], 4u);
  EXPECT_EQ(run(load("zero"), {counts(400)})[0].word[0], 0u);
  EXPECT_EQ(run(load("zero"), {counts(-4)})[0].word[0], 0u);
  EXPECT_EQ(state, BlockState::kFinished);
  run(load("trap"), {counts(16)});
  EXPECT_EQ(fault.code, CUDA_ERROR_LAUNCH_FAILED);
  run(load("trap"), {counts(2)});
  EXPECT_EQ(fault.code, CUDA_ERROR_MISALIGNED_ADDRESS);
  run("sust.b.2d.b64.zero [%rd1, {%r2, 0}], {%rd2};", {counts(-8), counts(16)});
  EXPECT_EQ(state, BlockState::kFinished);
  EXPECT_EQ(data[0], 1u);
}

TEST_F(TextureTest, Queries) {
  float data[12] = {};
  texture(image(data, 4, 3, kFloat));
  services.surfaces[1] = std::make_shared<Image>(image(data, 4, 3, kFloat));
  const std::vector<Row> got =
      run("txq.width.b32 %r5, [%rd1]; txq.num_mipmap_levels.b32 %r6, [%rd1];\n"
          "suq.height.b32 %r7, [%rd1]; suq.depth.b32 %r8, [%rd1];\n"
          "st.global.v4.b32 [%rd6], {%r5, %r6, %r7, %r8};",
          {counts(0)});
  EXPECT_EQ(got[0].word[0], 4u);
  EXPECT_EQ(got[0].word[1], 1u);
  EXPECT_EQ(got[0].word[2], 3u);
  EXPECT_EQ(got[0].word[3], 0u);
}

TEST(TextureTextTest, WhatIsNotSupportedIsNamed) {
  Device device;
  ASSERT_TRUE(
      device.load(kernel("tex.2dms.v4.f32.s32 {%f5, %f6, %f7, %f8}, "
                         "[%rd1, {%f2, %f3, %f4, %f4}];")));
  EXPECT_NE(device.unsupported().find("tex.2dms.v4.f32.s32"), std::string::npos);
  Device missing;
  ASSERT_TRUE(missing.load(kernel("tex.3d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%f2, %f3}];")));
  EXPECT_NE(missing.unsupported().find("too few coordinates"), std::string::npos);
  Device none;
  EXPECT_FALSE(none.load(kernel("tex.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1];")));
}

// Six faces of 4 x 4 texels, which are numbered through; `layers` cubes behind each other.
class CubeTest : public TextureTest {
 protected:
  static constexpr uint32_t kSize = 4, kFace = kSize * kSize;
  Texture* cubes(uint32_t count) {
    texels.resize(6 * count * kFace);
    for (uint32_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<float>(i);
    Image faces = image(texels.data(), kSize, kSize, {ChannelKind::kFloat, 4, 1});
    device.memory.add(texels.data(), texels.size() * 4);
    faces.layers = 6 * count;
    Texture* made = texture(faces);
    made->normalized_coordinates = true;
    // Whatever the mode, a face's edge clamps.
    for (AddressMode& mode : made->address) mode = AddressMode::kWrap;
    return made;
  }
  std::vector<float> texels;
};

const char kCube[] =
    "tex.cube.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%f2, %f3, %f4, %f4}];"
    "st.global.f32 [%rd6], %f5;";

TEST_F(CubeTest, DirectionsNameFaces) {
  cubes(1);
  // Along each axis, a little to the side: s and t as the programming guide's table has them, by
  // which s goes to 0.75 and t to 0.625, or to the other side.
  const struct {
    float x, y, z;
    uint32_t face, column, row;
  } kRows[] = {{1, 0.25f, 0.5f, 0, 1, 1},  {-1, 0.25f, 0.5f, 1, 3, 1}, {0.5f, 1, 0.25f, 2, 3, 2},
               {0.5f, -1, 0.25f, 3, 3, 1}, {0.5f, 0.25f, 1, 4, 3, 1},  {0.5f, 0.25f, -1, 5, 1, 1},
               {2, -1.5f, -1.5f, 0, 3, 3}, {-8, -6, -6, 1, 0, 3},      {3, 3, 3, 4, 3, 0},
               {-3, 3, 1, 2, 0, 2}};
  std::vector<Row> in;
  for (const auto& row : kRows) in.push_back(numbers(row.x, row.y, row.z));
  const std::vector<Row> out = run(kCube, in);
  ASSERT_EQ(state, BlockState::kFinished) << fault.text;
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(number(out[i].word[0]),
              static_cast<float>(kRows[i].face * kFace + kRows[i].row * kSize + kRows[i].column))
        << "row " << i;
  }
}

TEST_F(CubeTest, FiltersWithinAFace) {
  cubes(1)->linear_filter = true;
  // Between two texels; at the face's edge and its corner.
  const std::vector<Row> out = run(kCube, {numbers(-0.5f, 0.75f, 1), numbers(-0.25f, 0.25f, 1),
                                           numbers(-1, 0.75f, 1.0f), numbers(-0.99f, 0.99f, 1)});
  ASSERT_EQ(state, BlockState::kFinished) << fault.text;
  const float first = 4 * kFace;
  EXPECT_EQ(number(out[0].word[0]), first + 0.5f);
  EXPECT_EQ(number(out[1].word[0]), first + 5);
  EXPECT_EQ(number(out[2].word[0]), first);
  EXPECT_EQ(number(out[3].word[0]), first);
}

TEST_F(CubeTest, LayersAreCubes) {
  cubes(3);
  const std::vector<Row> out =
      run("mov.u32 %r9, 2; tex.acube.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%r9, %f2, %f3, %f4}];"
          "st.global.f32 [%rd6], %f5;",
          {numbers(1, 0.25f, 0.5f)});
  ASSERT_EQ(state, BlockState::kFinished) << fault.text;
  EXPECT_EQ(number(out[0].word[0]), (2 * 6 + 0) * kFace + 1 * kSize + 1);
}

TEST_F(CubeTest, LevelsAndResidency) {
  Texture* made = cubes(1);
  Image small = made->levels[0];
  std::vector<float> last(6, 100);
  small.width = small.height = 1;
  small.pitch = small.slice = 4;
  small.address = reinterpret_cast<uint64_t>(last.data());
  device.memory.add(last.data(), 24);
  made->levels.push_back(small);
  made->max_level = 1;
  const std::vector<Row> out =
      run("mov.f32 %f9, 0f3F800000; mov.u32 %r9, 0;"
          "tex.level.cube.v4.f32.f32 {%f5, %f6, %f7, %f8}|%p1, [%rd1, {%f2, %f3, %f4, %f4}], %f9;"
          "@%p1 mov.u32 %r9, 1; st.global.f32 [%rd6], %f5; st.global.u32 [%rd6 + 4], %r9;",
          {numbers(1, 0, 0)});
  ASSERT_EQ(state, BlockState::kFinished) << fault.text;
  EXPECT_EQ(number(out[0].word[0]), 100);
  EXPECT_EQ(out[0].word[1], 1u);
}

TEST_F(TextureTest, GradientsChooseTheLevel) {
  std::vector<float> large(64, 1), middle(16, 2), small(4, 3);
  const TexelFormat format{ChannelKind::kFloat, 4, 1};
  Texture* made = texture(image(large.data(), 8, 8, format));
  made->levels.push_back(image(middle.data(), 4, 4, format));
  made->levels.push_back(image(small.data(), 2, 2, format));
  made->normalized_coordinates = true;
  made->max_level = 2;
  // Steps of a texel, of two and of four in one direction, in both, and of none.
  const std::vector<Row> out =
      run("mov.f32 %f9, 0f00000000;"
          "tex.grad.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd1, {%f9, %f9}], {%f2, %f9}, {%f9, %f3};"
          "st.global.f32 [%rd6], %f5;",
          {numbers(0.125f, 0), numbers(0.25f, 0.125f), numbers(0.125f, -0.5f), numbers(4, 4),
           numbers(0, 0)});
  ASSERT_EQ(state, BlockState::kFinished) << fault.text;
  const float kExpected[] = {1, 2, 3, 3, 1};
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(number(out[i].word[0]), kExpected[i]) << i;
}

}  // namespace
}  // namespace openmps::softgpu::test
