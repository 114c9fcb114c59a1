// SPDX-License-Identifier: Apache-2.0
// Copies of boxes of tensors: every rank, boxes that lie partly or wholly outside, strides between
// elements, swizzles, reductions, multicast, and the walk of im2col, against plain loops here.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "engine_fixture.h"
#include "softgpu/tensor_map.h"

namespace openmps::softgpu::test {
namespace {

constexpr uint32_t kBoxBytes = 16384;

std::string coordinates(uint32_t rank) {
  std::string text = "{%c0";
  for (uint32_t i = 1; i < rank; ++i) text += ", %c" + std::to_string(i);
  return text + "}";
}

// `body` runs in one block of one warp, in each block of a cluster; %m is the map, %box shared
// memory of 16 KiB, %b a barrier of one arrival, c the coordinates. Then the box goes to out, a
// block's behind the other's; or comes from there before.
std::string kernel(const std::string& body, bool loads) {
  const auto move = [](const std::string& one) {
    return "mov.u32 %at, %t;\nL: mad.lo.u32 %s, %at, 4, %box; mul.wide.u32 %g, %at, 4;\n"
           "add.s64 %g, %g, %out; " +
           one + "add.u32 %at, %at, 32; setp.lt.u32 %p, %at, 4096; @%p bra L;\n";
  };
  return ".version 8.6\n.target sm_90\n.address_size 64\n"
         ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .align 4 .b8 "
         "c[20],"
         " .param .u32 bytes) {\n"
         "  .shared .align 1024 .b8 box[16384]; .shared .align 8 .b64 bar;\n"
         "  .reg .b64 %m, %out, %g, %far; .reg .pred %p, %first; .reg .b16 %mask, %o0, %o1, %o2;\n"
         "  .reg .b32 %t, %s, %at, %box, %b, %bytes, %w, %c<5>, %rank;\n"
         "  mov.b64 %m, map; cvta.param.u64 %m, %m; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;\n"
         "  mov.u32 %rank, %cluster_ctarank; mul.wide.u32 %far, %rank, 16384;\n"
         "  add.s64 %out, %out, %far; ld.param.u32 %bytes, [bytes]; mov.u32 %box, box;\n"
         "  mov.u32 %b, bar; setp.eq.u32 %first, %t, 0;\n"
         "  ld.param.u32 %c0, [c]; ld.param.u32 %c1, [c+4]; ld.param.u32 %c2, [c+8];\n"
         "  ld.param.u32 %c3, [c+12]; ld.param.u32 %c4, [c+16];\n"
         "  @%first mbarrier.init.shared.b64 [%b], 1;\n"
         "  @%first mbarrier.arrive.expect_tx.shared.b64 _, [%b], %bytes;\n"
         "  barrier.cluster.arrive; barrier.cluster.wait;\n" +
         (loads
              ? body + "\nwait: mbarrier.try_wait.parity.shared.b64 %p, [%b], 0; @!%p bra wait;\n" +
                    move("ld.shared.u32 %w, [%s]; st.global.u32 [%g], %w;")
              : move("ld.global.u32 %w, [%g]; st.shared.u32 [%s], %w;") +
                    "fence.proxy.async.shared::cta; bar.sync 0;\n" + body +
                    "\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n") +
         "  ret;\n}\n";
}

struct Tensor {
  TensorMap map;
  std::vector<uint32_t> memory;  // of 4-byte elements
};

Tensor make_tensor(std::vector<uint32_t> sizes, std::vector<uint32_t> box,
                   std::vector<uint32_t> element_strides = {}) {
  Tensor tensor;
  TensorMap& map = tensor.map;
  map.magic = kTensorMapMagic;
  map.element = TensorElement::kU32;
  map.rank = static_cast<uint8_t>(sizes.size());
  uint64_t bytes = (sizes[0] + 3) / 4 * 16 + 16;  // rows are apart
  for (size_t i = 0; i < sizes.size(); ++i) {
    map.last[i] = sizes[i] - 1;
    map.box[i] = static_cast<uint16_t>(box[i]);
    map.element_stride[i] =
        static_cast<uint8_t>(i < element_strides.size() ? element_strides[i] : 1);
    if (i > 0) {
      map.stride[i - 1] = bytes;
      bytes *= sizes[i];
    }
  }
  tensor.memory.resize(bytes / 4);
  for (uint32_t i = 0; i < tensor.memory.size(); ++i) tensor.memory[i] = i * 2654435761u | 1;
  map.address = reinterpret_cast<uint64_t>(tensor.memory.data());
  return tensor;
}

// The element at these coordinates; null: outside.
uint32_t* element(Tensor& tensor, const int64_t* at) {
  uint64_t bytes = static_cast<uint64_t>(at[0]) * 4;
  for (uint32_t i = 0; i < tensor.map.rank; ++i) {
    if (at[i] < 0 || at[i] > tensor.map.last[i]) return nullptr;
    if (i > 0) bytes += static_cast<uint64_t>(at[i]) * tensor.map.stride[i - 1];
  }
  return &tensor.memory[bytes / 4];
}

// Runs body(word in the box, element) for each element of the box, in the order of PTX.
void each_in_box(Tensor& tensor, const int32_t* c,
                 const std::function<void(uint32_t, uint32_t*)>& body) {
  const TensorMap& map = tensor.map;
  uint32_t word = 0;
  const auto step = [&](uint32_t i) { return i < map.rank && i > 0 ? map.element_stride[i] : 1; };
  const auto size = [&](uint32_t i) { return i < map.rank ? map.box[i] : 1; };
  const auto from = [&](uint32_t i) { return i < map.rank ? c[i] : 0; };
  for (int64_t e = 0; e < size(4); e += step(4)) {
    for (int64_t d = 0; d < size(3); d += step(3)) {
      for (int64_t z = 0; z < size(2); z += step(2)) {
        for (int64_t y = 0; y < size(1); y += step(1)) {
          for (int64_t x = 0; x < size(0); ++x) {
            const int64_t at[5] = {from(0) + x, from(1) + y, from(2) + z, from(3) + d, from(4) + e};
            body(word++, element(tensor, at));
          }
        }
      }
    }
  }
}

// Where a word of a box lies: the 16-byte chunks of a 128-byte line change places.
uint32_t swizzled(uint32_t word, uint32_t bits) {
  const uint32_t line = word / 32, chunk = word % 32 / 4;
  return line * 32 + (chunk ^ (line % (1u << bits))) * 4 + word % 4;
}

class Tensors : public testing::Test {
 protected:
  using Words = std::vector<uint32_t>;
  // Runs `body`; `box` is what lies in shared memory, of all blocks.
  void run(const std::string& body, bool loads, Tensor& tensor, const int32_t* c, uint32_t bytes,
           Words& box, uint32_t cluster = 1) {
    Device device;
    ASSERT_TRUE(device.load(kernel(body, loads))) << device.error.log;
    ASSERT_EQ(device.unsupported(), "");
    device.buffer(tensor.memory);
    device.cluster = {cluster};
    struct Place {
      int32_t at[5];
    } place;
    std::copy_n(c, 5, place.at);
    outcome = device.run("k", {cluster}, {32},
                         Parameters().add(tensor.map).add(device.buffer(box)).add(place).add(bytes),
                         0, 0, 5000, 1000);
  }
  static std::string load_of(uint32_t rank) {
    return "@%first cp.async.bulk.tensor." + std::to_string(rank) +
           "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%box], [%m, " +
           coordinates(rank) + "], [%b];";
  }
  static std::string store_of(uint32_t rank, const std::string& reduction = "") {
    return "@%first cp." + std::string(reduction.empty() ? "" : "reduce.") + "async.bulk.tensor." +
           std::to_string(rank) + "d.global.shared::cta" + reduction + ".tile.bulk_group [%m, " +
           coordinates(rank) + "], [%box];";
  }
  void check_load(Tensor& tensor, const int32_t* c) {
    Words expected;
    each_in_box(tensor, c, [&](uint32_t, uint32_t* e) { expected.push_back(e ? *e : 0); });
    Words box(kBoxBytes / 4);
    run(load_of(tensor.map.rank), true, tensor, c, static_cast<uint32_t>(expected.size() * 4), box);
    ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
    for (uint32_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(box[swizzled(i, tensor.map.swizzle_bits)], expected[i])
          << "rank " << int{tensor.map.rank} << ", word " << i;
    }
  }
  Outcome outcome;
};

const std::vector<std::vector<uint32_t>> kSizes = {
    {100}, {40, 20}, {20, 9, 7}, {12, 6, 5, 4}, {9, 5, 4, 3, 3}};
const std::vector<std::vector<uint32_t>> kBoxes = {
    {64}, {16, 8}, {8, 5, 4}, {8, 4, 3, 2}, {4, 3, 2, 2, 2}};

// Where a box may begin along the innermost dimension, of words.
int32_t at_16_bytes(int32_t innermost) { return innermost / 4 * 4; }

TEST_F(Tensors, BoxesOfEveryRankComeFromInsideAndOutside) {
  std::mt19937 random(7);
  for (size_t i = 0; i < kSizes.size(); ++i) {
    Tensor tensor = make_tensor(kSizes[i], kBoxes[i]);
    for (int round = 0; round < 20; ++round) {
      int32_t c[5] = {};
      // From just before the tensor to just behind its end.
      for (size_t d = 0; d <= i; ++d) {
        c[d] = static_cast<int32_t>(random() % (kSizes[i][d] + kBoxes[i][d] + 2)) -
               static_cast<int32_t>(kBoxes[i][d]) - 1;
      }
      c[0] = at_16_bytes(c[0]);
      check_load(tensor, c);
    }
  }
}

TEST_F(Tensors, ElementsMayBeApart) {
  std::mt19937 random(8);
  // The innermost dimension has no stride.
  for (size_t i = 1; i < kSizes.size(); ++i) {
    Tensor tensor = make_tensor(kSizes[i], kBoxes[i], {3, 2, 3, 2, 8});
    for (int round = 0; round < 8; ++round) {
      int32_t c[5] = {};
      for (size_t d = 0; d <= i; ++d) {
        c[d] =
            static_cast<int32_t>(random() % kSizes[i][d]) - static_cast<int32_t>(kBoxes[i][d] / 2);
      }
      c[0] = at_16_bytes(c[0]);
      check_load(tensor, c);
    }
  }
}

TEST_F(Tensors, SwizzlesMoveChunks) {
  const int32_t c[5] = {4, -1};
  for (uint8_t bits = 1; bits <= 3; ++bits) {
    // Rows as long as the swizzle's span, and half of that.
    for (uint32_t words : {4u << bits, 2u << bits}) {
      if (words < 4) continue;
      Tensor tensor = make_tensor({64, 40}, {words, 32});
      tensor.map.swizzle_bits = bits;
      check_load(tensor, c);
    }
  }
}

TEST_F(Tensors, NumbersThatAreNotInTheTensor) {
  Tensor tensor = make_tensor({16, 4}, {16, 8});
  tensor.map.element = TensorElement::kF32;
  tensor.map.fill_nan = true;
  const int32_t c[5] = {};
  Words box(kBoxBytes / 4);
  run(load_of(2), true, tensor, c, 512, box);
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  EXPECT_EQ(box[63], *element(tensor, std::vector<int64_t>{15, 3}.data()));
  for (uint32_t i = 64; i < 128; ++i) ASSERT_GT(box[i] & 0x7fffffff, 0x7f800000u);
  tensor.map.fill_nan = false;
  tensor.map.element = TensorElement::kF32Ftz;
  tensor.memory[0] = 0x80000001;
  tensor.memory[1] = 0x00800001;
  run(load_of(2), true, tensor, c, 512, box);
  EXPECT_EQ(box[0], 0x80000000u);
  EXPECT_EQ(box[1], 0x00800001u);
}

TEST_F(Tensors, BoxesAreStoredAndReduced) {
  std::mt19937 random(9);
  const auto check = [&](size_t i, uint8_t bits, const std::string& reduction,
                         const std::function<uint32_t(uint32_t, uint32_t)>& f) {
    Tensor tensor = make_tensor(kSizes[i], kBoxes[i]);
    tensor.map.swizzle_bits = bits;
    for (int round = 0; round < 6; ++round) {
      int32_t c[5] = {};
      for (size_t d = 0; d <= i; ++d) {
        // Boxes to store do not begin before the tensor.
        c[d] = static_cast<int32_t>(random() % (kSizes[i][d] + 2));
      }
      c[0] = at_16_bytes(c[0]);
      Words box(kBoxBytes / 4);
      for (uint32_t& word : box) word = random();
      Tensor wanted = tensor;
      wanted.map.address = 0;
      each_in_box(wanted, c, [&](uint32_t word, uint32_t* e) {
        if (e) *e = f(*e, box[swizzled(word, bits)]);
      });
      run(store_of(tensor.map.rank, reduction), false, tensor, c, 0, box);
      ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
      ASSERT_EQ(tensor.memory, wanted.memory) << reduction << ", rank " << i + 1;
    }
  };
  for (size_t i = 0; i < kSizes.size(); ++i) {
    check(i, 0, "", [](uint32_t, uint32_t value) { return value; });
  }
  check(1, 2, "", [](uint32_t, uint32_t value) { return value; });
  check(1, 0, ".add", [](uint32_t old, uint32_t value) { return old + value; });
  check(2, 0, ".max", [](uint32_t old, uint32_t value) { return std::max(old, value); });
  check(4, 0, ".xor", [](uint32_t old, uint32_t value) { return old ^ value; });
}

TEST_F(Tensors, OneBoxForSeveralBlocks) {
  Tensor tensor = make_tensor({40, 20}, {16, 8});
  const int32_t c[5] = {4, 5};
  Words box(4 * kBoxBytes / 4, 9), expected;
  each_in_box(tensor, c, [&](uint32_t, uint32_t* e) { expected.push_back(*e); });
  // Block 2 of the cluster loads for all four, who wait at barriers of their own.
  run("setp.eq.u32 %p, %rank, 2; and.pred %p, %p, %first; mov.b16 %mask, 15;"
      "@%p cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
      "multicast::cluster [%box], [%m, {%c0, %c1}], [%b], %mask;",
      true, tensor, c, 512, box, 4);
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  for (uint32_t block = 0; block < 4; ++block) {
    for (uint32_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(box[block * kBoxBytes / 4 + i], expected[i]) << "block " << block << ", word " << i;
    }
  }
}

// A convolution's input: 8 channels of an 9 x 7 picture, 2 of them, a filter of 3 x 3 with a border
// of one pixel.
TEST_F(Tensors, Im2colWalksOverThePixelsOfAFilter) {
  constexpr int32_t kWidth = 9, kHeight = 7, kPixels = 50;
  Tensor tensor = make_tensor({8, kWidth, kHeight, 2}, {8, 1, 1, 1});
  tensor.map.im2col = true;
  tensor.map.pixels = kPixels;
  tensor.map.lower[0] = tensor.map.lower[1] = -1;
  tensor.map.upper[0] = tensor.map.upper[1] = -1;
  for (const auto& [offset_x, offset_y] : {std::pair{0, 0}, {2, 1}, {1, 2}}) {
    const int32_t c[5] = {0, 4, 3, 0};
    Words expected;
    int64_t at[5] = {0, c[1], c[2], c[3]};
    for (int32_t pixel = 0; pixel < kPixels; ++pixel) {
      for (int64_t channel = 0; channel < 8; ++channel) {
        const int64_t read[5] = {channel, at[1] + offset_x, at[2] + offset_y, at[3]};
        const uint32_t* e = element(tensor, read);
        expected.push_back(e ? *e : 0);
      }
      if (++at[1] < kWidth - 1) continue;
      at[1] = -1;
      if (++at[2] < kHeight - 1) continue;
      at[2] = -1;
      ++at[3];
    }
    Words box(kBoxBytes / 4);
    run("mov.b16 %o0, " + std::to_string(offset_x) + "; mov.b16 %o1, " + std::to_string(offset_y) +
            "; @%first cp.async.bulk.tensor.4d.shared::cluster.global.im2col."
            "mbarrier::complete_tx::bytes [%box], [%m, {%c0, %c1, %c2, %c3}], [%b], {%o0, %o1};",
        true, tensor, c, static_cast<uint32_t>(expected.size() * 4), box);
    ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
    box.resize(expected.size());
    ASSERT_EQ(box, expected) << offset_x << ", " << offset_y;
  }
}

TEST_F(Tensors, WhatIsNoMapOrTooLargeFaults) {
  const int32_t c[5] = {};
  Words box(kBoxBytes / 4);
  const auto fault_of = [&](Tensor tensor) {
    tensor.map.address = reinterpret_cast<uint64_t>(tensor.memory.data());
    run(load_of(2), true, tensor, c, 512, box);
    EXPECT_EQ(outcome.state, BlockState::kFaulted);
    return outcome.fault.code;
  };
  Tensor bad = make_tensor({40, 20}, {16, 8});
  bad.map.magic = 0;
  EXPECT_EQ(fault_of(bad), CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_EQ(fault_of(make_tensor({40, 20, 2}, {16, 8, 1})), CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_EQ(fault_of(make_tensor({256, 256}, {256, 256})), CUDA_ERROR_ILLEGAL_ADDRESS);
  Tensor elsewhere = make_tensor({40, 20}, {16, 8});
  elsewhere.map.last[1] = 100000;
  elsewhere.map.stride[0] = 1 << 30;
  EXPECT_EQ(fault_of(elsewhere), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Tensors, CopiesThatAnH200RefusesFault) {
  Words box(kBoxBytes / 4);
  const auto finishes = [&](const std::string& copy, bool loads, Tensor tensor,
                            const std::vector<int32_t>& begin) {
    tensor.map.address = reinterpret_cast<uint64_t>(tensor.memory.data());
    int32_t c[5] = {};
    std::ranges::copy(begin, c);
    // All of a box arrives, be it 16 rows of 8 words or 8 rows of 16.
    run(copy, loads, tensor, c, 512, box);
    if (outcome.state == BlockState::kFinished) return true;
    EXPECT_EQ(outcome.fault.code, CUDA_ERROR_ILLEGAL_INSTRUCTION) << outcome.fault.text;
    return false;
  };
  const std::string prefetch = "@%first cp.async.bulk.prefetch.tensor.";
  const Tensor plane = make_tensor({40, 20}, {16, 8});
  const std::string tile = prefetch + "2d.L2.global.tile [%m, " + coordinates(2) + "];";
  // Not at 16 bytes along the innermost dimension: none. Before the tensor: no stores. Behind it:
  // all.
  for (const std::string& copy : {load_of(2), tile, store_of(2), store_of(2, ".add")}) {
    const bool loads = copy == load_of(2), stores = !loads && copy != tile;
    EXPECT_FALSE(finishes(copy, loads, plane, {-2, 0})) << copy;
    EXPECT_FALSE(finishes(copy, loads, plane, {2, 0})) << copy;
    EXPECT_EQ(finishes(copy, loads, plane, {-4, 0}), !stores) << copy;
    EXPECT_EQ(finishes(copy, loads, plane, {0, -1}), !stores) << copy;
    EXPECT_TRUE(finishes(copy, loads, plane, {40, 20})) << copy;
  }
  // Pictures of 9 x 7 pixels, with a filter of 3 x 3 or none; 16 pixels are more than a row.
  const auto pictures = [](int16_t corner) {
    Tensor tensor = make_tensor({8, 9, 7, 2}, {8, 1, 1, 1});
    tensor.map.im2col = true;
    tensor.map.pixels = 16;
    for (int i = 0; i < 2; ++i) tensor.map.lower[i] = tensor.map.upper[i] = corner;
    return tensor;
  };
  const std::string load =
      "mov.b16 %o0, 0; @%first cp.async.bulk.tensor.4d.shared::cluster.global.im2col."
      "mbarrier::complete_tx::bytes [%box], [%m, {%c0, %c1, %c2, %c3}], [%b], {%o0, %o0};";
  const std::string fetch =
      "mov.b16 %o0, 0; " + prefetch + "4d.L2.global.im2col [%m, {%c0, %c1, %c2, %c3}], {%o0, %o0};";
  for (const std::string& copy : {load, fetch}) {
    const auto works = [&](const std::vector<int32_t>& c) {
      return finishes(copy, copy == load, pictures(-1), c);
    };
    EXPECT_TRUE(works({0, -1, -1, -1})) << copy;
    EXPECT_TRUE(works({-4, 7, 5, 2})) << copy;
    EXPECT_FALSE(works({0, -2, 0, 0})) << copy;
    EXPECT_FALSE(works({0, 8, 0, 0})) << copy;
    EXPECT_FALSE(works({0, 0, -2, 0})) << copy;
    EXPECT_FALSE(works({0, 0, 6, 0})) << copy;
  }
  const auto stores = [&](int16_t corner, const std::vector<int32_t>& c) {
    return finishes(
        "@%first cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group "
        "[%m, {%c0, %c1, %c2, %c3}], [%box];",
        false, pictures(corner), c);
  };
  EXPECT_TRUE(stores(0, {0, 0, 3, 0}));
  EXPECT_TRUE(stores(0, {8, 8, 6, 1}));
  EXPECT_FALSE(stores(0, {-4, 0, 3, 0}));
  EXPECT_FALSE(stores(0, {0, -1, 3, 0}));
  EXPECT_FALSE(stores(0, {0, 9, 3, 0}));
  EXPECT_FALSE(stores(0, {0, 0, 0, -1}));
  // The second row begins at pixel -1.
  EXPECT_FALSE(stores(-1, {0, 0, 3, 0}));
}

}  // namespace
}  // namespace openmps::softgpu::test
