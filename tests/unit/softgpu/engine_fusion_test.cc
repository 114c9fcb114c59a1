// SPDX-License-Identifier: Apache-2.0
// Ops that the lowering joins (ir/fuse.cc) against a model that does one lane after the other: runs
// of shared loads with one address register, inner products, addresses of elements. Results, faults
// with their line, and the count of instructions must be those of the single instructions. ctest
// runs this with fusion and the vector forms switched on and off (SOFTGPU_PERF).
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kWords = 256;  // of shared memory
constexpr uint32_t kGuard = 0xdeadbeef;
constexpr int kRounds = 3000;
constexpr const char* kHeader =
    ".version 8.6\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 s[];\n";

// Parameters: p: two addresses per lane; q: results; r: contents of shared memory.
constexpr const char* kPrologue =
    "(.param .u64 p, .param .u64 q, .param .u64 r, .param .u32 lanes)\n{\n"
    ".reg .pred %p<4>; .reg .b32 %r<60>; .reg .f32 %f<60>; .reg .b64 %d<20>;\n"
    "ld.param.u64 %d0, [p]; ld.param.u64 %d1, [q]; ld.param.u64 %d2, [r];\n"
    "ld.param.u32 %r1, [lanes]; mov.u32 %r0, %tid.x;\n"
    "shr.u32 %r2, %r1, %r0; and.b32 %r2, %r2, 1; setp.ne.u32 %p0, %r2, 0;\n"
    "mul.wide.u32 %d3, %r0, 4; add.u64 %d4, %d0, %d3; add.u64 %d5, %d1, %d3; add.u64 %d6, %d2, "
    "%d3;\n"
    "ld.global.u32 %r3, [%d4]; ld.global.u32 %r4, [%d4+128]; shl.b32 %r5, %r0, 2;\n";
constexpr uint32_t kPrologueInstructions = 15;

std::string fill_shared() {
  std::string text;
  for (uint32_t at = 0; at < 4 * kWords; at += 4 * kLanes) {
    text += "ld.global.u32 %r6, [%d6+" + std::to_string(at) + "]; st.shared.u32 [%r5+" +
            std::to_string(at) + "], %r6;\n";
  }
  return text;
}
constexpr uint32_t kFillInstructions = 2 * kWords / kLanes;

class Fusion : public testing::Test {
 protected:
  uint32_t random(uint32_t below) { return static_cast<uint32_t>(engine_() % below); }

  // Byte addresses within shared memory, in shapes that lie in windows and in such that do not.
  void random_addresses(uint32_t* addresses) {
    const uint32_t shape = random(5), group = 8u << random(3);
    uint32_t start = random(kWords);
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (i % group == 0) start = random(kWords);
      const uint32_t word = shape == 0   ? start
                            : shape == 1 ? start + i % group
                            : shape == 2 ? start + random(8)
                            : shape == 3 ? start + (group - i % group)
                                         : random(kWords);
      addresses[i] = 4 * (word % kWords);
    }
    if (random(12) == 0) addresses[random(kLanes)] += 1 + random(3);
  }

  std::mt19937_64 engine_{29};
  Device device_;
  std::vector<uint32_t> addresses_ = std::vector<uint32_t>(2 * kLanes);
  std::vector<uint32_t> results_ = std::vector<uint32_t>(kLanes * 16);
  std::vector<uint32_t> shared_ = std::vector<uint32_t>(kWords);
};

// One load of a program: which of the two address registers, and the offset.
struct Load {
  uint32_t base;
  int offset;
};

// Where the model says that a load faults, or -1.
int faulting_lane(const Load& load, const std::vector<uint32_t>& addresses, uint32_t lanes) {
  for (uint32_t i = 0; i < kLanes; ++i) {
    const uint32_t at = addresses[load.base * kLanes + i] + static_cast<uint32_t>(load.offset);
    if ((lanes >> i & 1) && (at % 4 != 0 || at + uint64_t{4} > 4 * kWords)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// Loads that alternate between two registers, one of which changes in between; some are done by
// some lanes only.
TEST_F(Fusion, RunsOfSharedLoads) {
  constexpr Load kLoads[] = {{0, 0}, {1, 4},   {0, 8},   {0, -4}, {1, 64},
                             {1, 0}, {0, 128}, {1, 124}, {0, 60}};
  constexpr size_t kChange = 5;  // before this load the second register grows by 8
  const auto body = [&](const char* guard, bool wide = false) {
    std::string text = wide ? "cvt.u64.u32 %d13, %r3; cvt.u64.u32 %d14, %r4;\n" : "";
    for (size_t i = 0; i < std::size(kLoads); ++i) {
      if (i == kChange) text += wide ? "add.u64 %d14, %d14, 8;\n" : "add.u32 %r4, %r4, 8;\n";
      text += std::string(i % 2 ? "" : guard) + "ld.shared.u32 %r" + std::to_string(10 + i) +
              (wide ? ", [%d1" : ", [%r") + std::to_string(3 + kLoads[i].base) + "+" +
              std::to_string(kLoads[i].offset) + "];\n";
    }
    return text;
  };
  const auto results = [&] {
    std::string text;
    for (size_t i = 0; i < std::size(kLoads); ++i) {
      text += "st.global.u32 [%d5+" + std::to_string(128 * i) + "], %r" + std::to_string(10 + i) +
              ";\n";
    }
    return text;
  };
  std::string preset;
  for (size_t i = 0; i < std::size(kLoads); ++i) {
    preset += "mov.u32 %r" + std::to_string(10 + i) + ", " + std::to_string(kGuard) + ";\n";
  }
  const std::string before = kPrologue + fill_shared() + preset;
  // All lanes; every second load guarded; a branch around all; and all of that with addresses of 64
  // bits.
  const std::string text = kHeader + (".visible .entry all" + before) + body("") + results() +
                           "ret;\n}\n.visible .entry guarded" + before + body("@%p0 ") + results() +
                           "ret;\n}\n.visible .entry branch" + before + "@!%p0 bra over;\n" +
                           body("") + "over:\n" + results() + "ret;\n}\n.visible .entry wide" +
                           before + body("", true) + results() +
                           "ret;\n}\n.visible .entry guarded_wide" + before + body("@%p0 ", true) +
                           results() + "ret;\n}\n";
  ASSERT_TRUE(device_.load(text)) << device_.error.log;
  device_.buffer(addresses_), device_.buffer(results_), device_.buffer(shared_);
  int faults = 0, good = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const char* const kernel =
        std::array{"all", "guarded", "branch", "wide", "guarded_wide"}[random(5)];
    const bool is_guarded = kernel[0] == 'g', is_whole = kernel[0] == 'a' || kernel[0] == 'w';
    const uint32_t lanes = is_whole || random(3) == 0 ? ~0u : static_cast<uint32_t>(engine_());
    random_addresses(addresses_.data());
    random_addresses(addresses_.data() + kLanes);
    for (uint32_t& word : shared_) word = static_cast<uint32_t>(engine_());
    std::vector<uint32_t> moved = addresses_, model(results_.size(), kGuard);
    int fault = -1, line_of_fault = -1;
    for (size_t l = 0; l < std::size(kLoads) && fault < 0; ++l) {
      if (l == kChange) {
        for (uint32_t i = 0; i < kLanes; ++i) moved[kLanes + i] += 8;
      }
      const uint32_t doing = is_guarded && l % 2 ? ~0u : lanes;
      fault = faulting_lane(kLoads[l], moved, doing);
      if (fault >= 0) line_of_fault = static_cast<int>(l);
      for (uint32_t i = 0; i < kLanes && fault < 0; ++i) {
        if (doing >> i & 1) {
          model[l * kLanes + i] =
              shared_[(moved[kLoads[l].base * kLanes + i] + kLoads[l].offset) / 4];
        }
      }
    }
    const Outcome outcome = device_.run(
        kernel, {1}, {kLanes},
        Parameters().add(addresses_.data()).add(results_.data()).add(shared_.data()).add(lanes),
        4 * kWords);
    if (fault >= 0) {
      ++faults;
      ASSERT_EQ(outcome.state, BlockState::kFaulted);
      ASSERT_EQ(outcome.fault.address,
                static_cast<uint32_t>(moved[kLoads[line_of_fault].base * kLanes + fault] +
                                      kLoads[line_of_fault].offset));
      // The line of that very load.
      std::string wanted = "%r" + std::to_string(10 + line_of_fault) + ", [";
      size_t at = text.find(std::string("entry ") + kernel + "(");
      at = text.find("ld.shared.u32 " + wanted, at);
      const auto line =
          1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
      ASSERT_NE(outcome.fault.text.find("thread (" + std::to_string(fault) + ",0,0), PTX line " +
                                        std::to_string(line) + ":"),
                std::string::npos)
          << outcome.fault.text << ", line " << line;
      continue;
    }
    ++good;
    ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
    for (size_t i = 0; i < std::size(kLoads) * kLanes; ++i) ASSERT_EQ(results_[i], model[i]) << i;
    if (is_whole) {
      ASSERT_EQ(outcome.warp_instructions, kPrologueInstructions + kFillInstructions +
                                               3 * std::size(kLoads) + 2 +
                                               (kernel[0] == 'w' ? 2 + std::size(kLoads) : 0));
    }
  }
  EXPECT_GT(good, kRounds / 10);
  EXPECT_GT(faults, kRounds / 10);
}

// The loop of a matrix product, unrolled: chains of steps, one of whose words and one of
// whose sums are used again. Also with addresses of 64 bits, which are cut off for each load.
class InnerProducts : public Fusion, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Addresses, InnerProducts, testing::Bool(),
                         [](const auto& info) { return info.param ? "Wide" : "Narrow"; });
TEST_P(InnerProducts, AreThoseOfSteps) {
  const bool wide = GetParam();
  constexpr int kSteps = 12;
  constexpr int kSecondChain = 8;  // starts from 0 again
  constexpr int kSharedWord = 5;   // this step's first word is added to the result
  std::string text = kHeader + (".visible .entry product" + (kPrologue + fill_shared())) +
                     "mov.f32 %f0, 0f3F800000;\nmov.f32 %f30, 0f00000000;\n" +
                     (wide ? "cvt.u64.u32 %d13, %r3;\ncvt.u64.u32 %d14, %r4;\n" : "");
  const std::string first = wide ? "[%d13+" : "[%r3+", second = wide ? "[%d14+" : "[%r4+";
  uint32_t instructions = kPrologueInstructions + kFillInstructions + 2 + (wide ? 2 : 0);
  for (int k = 0; k < kSteps; ++k) {
    const std::string sum = k < kSecondChain ? "%f0" : "%f30";
    text += "ld.shared.f32 %f" + std::to_string(1 + 2 * k) + ", " + first + std::to_string(4 * k) +
            "];\nld.shared.f32 %f" + std::to_string(31 + k) + ", " + second +
            std::to_string(16 * k) + "];\n";
    const std::string next = "%f" + std::to_string(2 + 2 * k);
    const std::string last =
        k == 0 || k == kSecondChain ? sum : "%f" + std::to_string(2 + 2 * (k - 1));
    text += "fma.rn.f32 " + next + ", %f" + std::to_string(31 + k) + ", %f" +
            std::to_string(1 + 2 * k) + ", " + last + ";\n";
    instructions += wide ? 5 : 3;
  }
  // The results: both chains, a sum in the middle, the word that is used again.
  text += "st.global.f32 [%d5], %f" + std::to_string(2 * kSecondChain) +
          ";\nst.global.f32 [%d5+128], %f" + std::to_string(2 * kSteps) +
          ";\nst.global.f32 [%d5+256], %f6;\nst.global.f32 [%d5+384], %f" +
          std::to_string(1 + 2 * kSharedWord) + ";\nret;\n}\n";
  instructions += 5;
  ASSERT_TRUE(device_.load(text)) << device_.error.log;
  device_.buffer(addresses_), device_.buffer(results_), device_.buffer(shared_);
  int good = 0, faults = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    random_addresses(addresses_.data());
    random_addresses(addresses_.data() + kLanes);
    if (random(2)) {
      for (uint32_t& address : addresses_) address = address / 2 & ~3u;  // in the first half
    }
    for (uint32_t& word : shared_) {
      word = std::bit_cast<uint32_t>(static_cast<float>(random(2000)) / 1000 - 1);
    }
    int fault = -1;
    for (int k = 0; k < kSteps && fault < 0; ++k) {
      fault = faulting_lane({0, 4 * k}, addresses_, ~0u);
      if (fault < 0) fault = faulting_lane({1, 16 * k}, addresses_, ~0u);
    }
    const Outcome outcome = device_.run(
        "product", {1}, {kLanes},
        Parameters().add(addresses_.data()).add(results_.data()).add(shared_.data()).add(~0u),
        4 * kWords);
    if (fault >= 0) {
      ++faults;
      ASSERT_EQ(outcome.state, BlockState::kFaulted);
      continue;
    }
    ++good;
    ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
    ASSERT_EQ(outcome.warp_instructions, instructions);
    for (uint32_t i = 0; i < kLanes; ++i) {
      auto word = [&](uint32_t base, int offset) {
        return std::bit_cast<float>(shared_[(addresses_[base * kLanes + i] + offset) / 4]);
      };
      float sums[kSteps];
      for (int k = 0; k < kSteps; ++k) {
        const float before = k == 0 ? 1.f : k == kSecondChain ? 0.f : sums[k - 1];
        sums[k] = std::fma(word(1, 16 * k), word(0, 4 * k), before);
      }
      auto result = [&](uint32_t row) { return std::bit_cast<float>(results_[row * kLanes + i]); };
      ASSERT_EQ(result(0), sums[kSecondChain - 1]) << i;
      ASSERT_EQ(result(1), sums[kSteps - 1]) << i;
      ASSERT_EQ(result(2), sums[2]) << i;
      ASSERT_EQ(result(3), word(0, 4 * kSharedWord)) << i;
    }
  }
  EXPECT_GT(good, kRounds / 10);
  EXPECT_GT(faults, kRounds / 10);
}

// Two words just loaded, one of which is not multiplied but added: the update of a row by another.
TEST_F(Fusion, LoadedWordsThatAreAdded) {
  const std::string text = kHeader + (".visible .entry update" + (kPrologue + fill_shared())) +
                           "mov.f32 %f0, 0f40400000;\n"  // 3
                           "ld.shared.f32 %f1, [%r3];\nld.shared.f32 %f2, [%r4];\n"
                           "ld.shared.f32 %f3, [%r3+4];\nld.shared.f32 %f4, [%r4+4];\n"
                           "fma.rn.f32 %f5, %f0, %f4, %f3;\n"
                           "ld.shared.f32 %f6, [%r3+8];\nld.shared.f32 %f7, [%r4+8];\n"
                           "fma.rn.f32 %f8, %f6, %f0, %f7;\n"
                           "add.f32 %f1, %f1, %f2;\n"
                           "st.global.f32 [%d5], %f1;\nst.global.f32 [%d5+128], %f5;\n"
                           "st.global.f32 [%d5+256], %f8;\nret;\n}\n";
  ASSERT_TRUE(device_.load(text)) << device_.error.log;
  device_.buffer(addresses_), device_.buffer(results_), device_.buffer(shared_);
  for (uint32_t i = 0; i < kLanes; ++i) addresses_[i] = 4 * i, addresses_[kLanes + i] = 256;
  for (uint32_t i = 0; i < kWords; ++i) shared_[i] = std::bit_cast<uint32_t>(1.f + 5.f * i);
  const Outcome outcome = device_.run(
      "update", {1}, {kLanes},
      Parameters().add(addresses_.data()).add(results_.data()).add(shared_.data()).add(~0u),
      4 * kWords);
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  for (uint32_t i = 0; i < kLanes; ++i) {
    auto word = [&](uint32_t base, uint32_t offset) {
      return std::bit_cast<float>(shared_[(addresses_[base * kLanes + i] + offset) / 4]);
    };
    auto result = [&](uint32_t row) { return std::bit_cast<float>(results_[row * kLanes + i]); };
    EXPECT_EQ(result(0), word(0, 0) + word(1, 0)) << i;
    EXPECT_EQ(result(1), std::fma(3.f, word(1, 4), word(0, 4))) << i;
    EXPECT_EQ(result(2), std::fma(word(0, 8), 3.f, word(1, 8))) << i;
  }
}

// index * size + base with signed and unsigned indices, and products that must be kept because
// something else reads them, because the index changes before the sum, or in a loop.
TEST_F(Fusion, AddressesOfElements) {
  std::string text = std::string(kHeader) + ".visible .entry elements" + kPrologue +
                     "mul.wide.u32 %d3, %r0, 8; add.u64 %d7, %d1, %d3;\n";
  struct Case {
    const char* type;
    uint32_t size;
  };
  constexpr Case kCases[] = {{"s32", 2}, {"s32", 4}, {"s32", 8},  {"s32", 16}, {"u32", 2},
                             {"u32", 4}, {"u32", 8}, {"u32", 16}, {"s32", 12}};
  uint32_t rows = 0;
  auto store = [&](const char* value) {
    text +=
        std::string("st.global.u64 [%d7+") + std::to_string(256 * rows++) + "], " + value + ";\n";
  };
  for (const Case& c : kCases) {
    text += std::string("mul.wide.") + c.type + " %d8, %r3, " + std::to_string(c.size) +
            "; add.s64 %d9, %d2, %d8;\n";
    store("%d9");
  }
  text += "mul.wide.s32 %d10, %r3, 4; mov.u32 %r7, %r3; mov.u32 %r3, 5; add.s64 %d11, %d10, %d2;\n";
  store("%d11");
  text += "mul.wide.s32 %d12, %r7, 4; add.s64 %d13, %d12, %d2; add.s64 %d13, %d13, %d12;\n";
  store("%d13");
  // The sum uses the product of the round before.
  text +=
      "mov.u32 %r8, 0;\n"
      "again: add.s64 %d15, %d14, %d2; mul.wide.s32 %d14, %r7, 4; add.u32 %r7, %r7, 1;\n"
      "add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 2; @%p1 bra again;\n";
  store("%d15");
  text += "ret;\n}\n";
  ASSERT_TRUE(device_.load(text)) << device_.error.log;
  std::vector<uint64_t> results(rows * kLanes);
  device_.buffer(addresses_), device_.buffer(results);
  for (uint32_t i = 0; i < kLanes; ++i) {
    addresses_[i] = i == 0 ? 0x80000000u : static_cast<uint32_t>(engine_());
  }
  const uint64_t base = 0x123456789abc;
  const Outcome outcome = device_.run(
      "elements", {1}, {kLanes},
      Parameters().add(addresses_.data()).add(results.data()).add(base).add(~0u), 4 * kWords);
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const uint32_t index = addresses_[i];
    auto product = [&](const Case& c) {
      return c.type[0] == 's' ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(index)} *
                                                      static_cast<int64_t>(c.size))
                              : uint64_t{index} * c.size;
    };
    for (size_t c = 0; c < std::size(kCases); ++c) {
      EXPECT_EQ(results[c * kLanes + i], base + product(kCases[c]))
          << kCases[c].type << kCases[c].size;
    }
    const uint64_t four = product({"s32", 4});
    EXPECT_EQ(results[9 * kLanes + i], base + four);
    EXPECT_EQ(results[10 * kLanes + i], base + 2 * four);
    EXPECT_EQ(results[11 * kLanes + i], base + four);
  }
}

}  // namespace
}  // namespace openmps::softgpu::test
