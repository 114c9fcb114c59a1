// SPDX-License-Identifier: Apache-2.0
// Loads, stores and shuffles of random lanes against a model that does one lane after the other:
// addresses that the interpreter recognises (the same, neighbouring, within a window) and such that
// it must not, some lanes switched off, ends of allocations, misalignment. ctest runs this with the
// vector forms switched on and off (SOFTGPU_PERF), so that they agree with each other, too.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <random>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kBytes = 1024;  // of each of two allocations, and of shared memory
constexpr uint32_t kGap = 512;     // before, between and behind: not mapped
constexpr int kOffsets[] = {0, 4, 60, -8, 3};
constexpr int kRounds = 6000;

using Bytes = std::vector<std::byte>;
using Addresses = std::array<int64_t, kLanes>;

struct Access {
  bool shared;
  bool store;
  uint32_t element_bytes;
  uint32_t elements;  // of a vector; 1: none
  int offset;         // of the instruction, an index into kOffsets
  uint32_t bytes() const { return element_bytes * elements; }
  std::string name() const {
    return std::string(store ? "st_" : "ld_") + (shared ? "shared_v" : "global_v") +
           std::to_string(elements) + "_" + std::to_string(8 * element_bytes) + "_" +
           std::to_string(offset);
  }
};
constexpr uint32_t kValueWords = 2;  // u64, of what a lane stores or loads

// p: addresses; q: values to store or results; r: what shared memory holds, before and after;
// lanes: those that do it.
std::string access_kernel(const Access& access) {
  const std::string bits = std::to_string(8 * access.element_bytes), what = "b" + bits;
  const std::string place = std::string("[") + (access.shared ? "%r5" : "%d6") + "+" +
                            std::to_string(kOffsets[access.offset]) + "]";
  const std::string space = access.shared ? "shared" : "global";
  std::string value, get, put;  // the registers, and how they are filled and written down
  for (uint32_t e = 0; e < access.elements; ++e) {
    const std::string one = (access.element_bytes == 8 ? "%w" : "%r") + std::to_string(10 + e);
    const std::string at = "[%d4+" + std::to_string(e * access.element_bytes) + "]";
    value += (e != 0 ? ", " : "") + one;
    get += "ld.global." + what + " " + one + ", " + at + ";\n";
    put += "st.global." + what + " " + at + ", " + one + ";\n";
  }
  if (access.elements != 1) value = "{" + value + "}";
  const std::string type =
      (access.elements != 1 ? "v" + std::to_string(access.elements) + "." : "") + what;
  std::string text = ".visible .entry " + access.name() +
                     "(.param .u64 p, .param .u64 q, .param .u64 r, .param .u32 lanes)\n{\n"
                     ".reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .b64 %w<20>;\n"
                     "ld.param.u64 %d0, [p]; ld.param.u64 %d1, [q]; ld.param.u64 %d2, [r];\n"
                     "ld.param.u32 %r1, [lanes]; mov.u32 %r0, %tid.x;\n"
                     "shr.u32 %r2, %r1, %r0; and.b32 %r2, %r2, 1; setp.ne.u32 %p0, %r2, 0;\n"
                     "mul.wide.u32 %d3, %r0, 8; add.u64 %d4, %d0, %d3; ld.global.u64 %d6, [%d4];\n"
                     "cvt.u32.u64 %r5, %d6; mul.wide.u32 %d3, %r0, 16; add.u64 %d4, %d1, %d3;\n" +
                     get +
                     "mul.wide.u32 %d3, %r0, 4; add.u64 %d5, %d2, %d3; shl.b32 %r6, %r0, 2;\n";
  for (uint32_t at = 0; at < kBytes; at += 4 * kLanes) {
    text += "ld.global.u32 %r9, [%d5+" + std::to_string(at) + "]; st.shared.u32 [%r6+" +
            std::to_string(at) + "], %r9;\n";
  }
  if (access.store) {
    text += "@%p0 st." + space + "." + type + " " + place + ", " + value + ";\n";
  } else {
    text += "@%p0 ld." + space + "." + type + " " + value + ", " + place + ";\n" + put;
  }
  for (uint32_t at = 0; at < kBytes; at += 4 * kLanes) {
    text += "ld.shared.u32 %r9, [%r6+" + std::to_string(at) + "]; st.global.u32 [%d5+" +
            std::to_string(at) + "], %r9;\n";
  }
  return text + "ret;\n}\n";
}

class Lanes : public testing::Test {
 protected:
  uint32_t random(uint32_t below) { return static_cast<uint32_t>(engine_() % below); }
  uint32_t random_mask() {
    switch (random(3)) {
      case 0: return static_cast<uint32_t>(engine_());
      case 1: return 1u << random(kLanes);
      default: return ~0u;
    }
  }

  // Offsets in [0, size) mostly, in one of the shapes that programs make.
  Addresses random_addresses(uint32_t size, uint32_t element) {
    const auto step = static_cast<int64_t>(element);
    auto base = [&] { return static_cast<int64_t>(random(size / element)) * step; };
    const int64_t first =
        random(4) == 0 ? static_cast<int64_t>(size) - step * (1 + random(33)) : base();
    const uint32_t group = 1u << (2 + random(4));  // lanes that have something in common
    Addresses result{};
    const uint32_t shape = random(8), row = 8 + random(9);
    int64_t start = first;
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (i % group == 0 && i != 0) start = base();
      const int64_t in_group = i % group;
      switch (shape) {
        case 0: result[i] = first; break;
        case 1: result[i] = first + i * step; break;
        case 2: result[i] = start; break;
        case 3: result[i] = start + in_group * step; break;
        case 4: result[i] = start + random(16) * step; break;
        case 5: result[i] = start - in_group * step; break;
        case 6: result[i] = first + (i / row * (row + 4) + i % row) * step; break;
        default: result[i] = base(); break;
      }
    }
    if (random(12) == 0)  // all misaligned
      for (int64_t& address : result) address += element / 2;
    if (random(8) == 0) result[random(kLanes)] = base();
    if (random(16) == 0) result[random(kLanes)] += 1 + random(7);
    if (random(32) == 0) result[random(kLanes)] = static_cast<int64_t>(size) - random(2 * element);
    if (random(32) == 0) result[random(kLanes)] = -static_cast<int64_t>(random(64));
    return result;
  }

  std::mt19937_64 engine_{20};
};

struct Expected {
  CUresult code = CUDA_SUCCESS;
  uint64_t address = 0;
};

TEST_F(Lanes, LoadsAndStores) {
  std::vector<Access> accesses;
  std::string text =
      ".version 8.6\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 s[];\n";
  for (bool shared : {false, true}) {
    for (bool store : {false, true}) {
      for (const auto& [bytes, elements] :
           {std::pair{4u, 1u}, {4u, 2u}, {4u, 4u}, {8u, 1u}, {8u, 2u}}) {
        for (int offset = 0; offset < static_cast<int>(std::size(kOffsets)); ++offset) {
          accesses.push_back({shared, store, bytes, elements, offset});
          text += access_kernel(accesses.back());
        }
      }
    }
  }
  Device device;
  ASSERT_TRUE(device.load(text)) << device.error.log;

  // Two allocations, one behind the other; the second may not be written.
  alignas(64) static std::byte storage[3 * kGap + 2 * kBytes];
  std::byte* const memory = storage + kGap;
  device.memory.add(memory, kBytes);
  device.memory.add(memory + kBytes + kGap, kBytes, false);
  std::vector<int64_t> addresses(kLanes);
  std::vector<uint64_t> values(kLanes * kValueWords);
  std::vector<uint32_t> shared(kBytes / 4);
  device.buffer(addresses);
  device.buffer(values);
  device.buffer(shared);
  int faults = 0, good = 0;

  for (int round = 0; round < kRounds; ++round) {
    const Access& access = accesses[random(static_cast<uint32_t>(accesses.size()))];
    SCOPED_TRACE(access.name() + ", round " + std::to_string(round));
    const uint32_t lanes = random_mask();
    const int offset = kOffsets[access.offset];
    Addresses relative = random_addresses(kBytes, access.bytes());
    if (!access.shared && random(4) == 0)  // some lanes in the other allocation
      for (uint32_t i = random(2) * 16; i < kLanes; ++i) relative[i] += kBytes + kGap;
    for (auto& byte : storage) byte = static_cast<std::byte>(engine_());
    for (uint32_t& word : shared) word = static_cast<uint32_t>(engine_());
    for (uint64_t& value : values) value = engine_();
    // The instruction adds its offset to the registers' addresses.
    const int64_t base =
        access.shared ? 0 : static_cast<int64_t>(reinterpret_cast<uint64_t>(memory));
    for (uint32_t i = 0; i < kLanes; ++i) {
      addresses[i] = base + relative[i] - (random(8) ? offset : 0);
    }

    // The model.
    std::vector<std::byte> model(storage, storage + sizeof storage);
    std::vector<uint32_t> model_shared = shared;
    std::vector<uint64_t> model_values = values;
    Expected expected;
    auto is_inside = [&](int64_t at) {
      auto in = [&](int64_t begin) { return at >= begin && at + access.bytes() <= begin + kBytes; };
      return in(0) || (!access.shared && !access.store && in(kBytes + kGap));
    };
    auto address_of = [&](uint32_t lane) {
      const auto full = static_cast<uint64_t>(addresses[lane] + offset);
      return access.shared ? static_cast<uint64_t>(static_cast<uint32_t>(full)) : full;
    };
    auto fault = [&](CUresult code, uint64_t address) {
      if (expected.code == CUDA_SUCCESS) expected = {code, address};
    };
    // Global: misalignment of any lane comes first, as one check finds it.
    if (!access.shared) {
      for (uint32_t i = 0; i < kLanes; ++i) {
        if ((lanes >> i & 1) && address_of(i) % access.bytes() != 0) {
          fault(CUDA_ERROR_MISALIGNED_ADDRESS, address_of(i));
        }
      }
    }
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (!(lanes >> i & 1)) continue;
      if (!is_inside(static_cast<int64_t>(address_of(i)) - base)) {
        fault(CUDA_ERROR_ILLEGAL_ADDRESS, address_of(i));
      } else if (address_of(i) % access.bytes() != 0) {
        fault(CUDA_ERROR_MISALIGNED_ADDRESS, address_of(i));
      }
    }
    if (expected.code == CUDA_SUCCESS) {
      for (uint32_t i = 0; i < kLanes; ++i) {
        if (!(lanes >> i & 1)) continue;
        const uint64_t at = address_of(i);
        std::byte* place = access.shared
                               ? reinterpret_cast<std::byte*>(model_shared.data()) + at
                               : model.data() + (at - reinterpret_cast<uint64_t>(storage));
        if (access.store) {
          std::memcpy(place, &model_values[i * kValueWords], access.bytes());
        } else {
          std::memcpy(&model_values[i * kValueWords], place, access.bytes());
        }
      }
    }

    const Outcome outcome = device.run(
        access.name(), {1}, {kLanes},
        Parameters().add(addresses.data()).add(values.data()).add(shared.data()).add(lanes),
        kBytes);
    ASSERT_EQ(outcome.fault.code, expected.code) << outcome.fault.text;
    if (expected.code == CUDA_SUCCESS) {
      ++good;
      ASSERT_EQ(outcome.state, BlockState::kFinished);
      ASSERT_EQ(shared, model_shared);
    } else {
      ++faults;
      ASSERT_EQ(outcome.fault.address, expected.address) << outcome.fault.text;
    }
    ASSERT_EQ(values, model_values);
    ASSERT_EQ(std::memcmp(storage, model.data(), sizeof storage), 0);
  }
  EXPECT_GT(good, kRounds / 4);
  EXPECT_GT(faults, kRounds / 20);
}

TEST_F(Lanes, Shuffles) {
  const char* const modes[] = {"up", "down", "bfly", "idx"};
  std::string text = ".version 8.6\n.target sm_80\n.address_size 64\n";
  for (const char* mode : modes) {
    text +=
        std::string(".visible .entry ") + mode +
        "(.param .u64 p, .param .u32 lanes)\n{\n"
        ".reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<20>;\n"
        "ld.param.u64 %d0, [p]; ld.param.u32 %r1, [lanes]; mov.u32 %r0, %tid.x;\n"
        "shr.u32 %r2, %r1, %r0; and.b32 %r2, %r2, 1; setp.ne.u32 %p0, %r2, 0;\n"
        "mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1; setp.ne.u32 %p1, %r0, %r0;\n"
        "ld.global.u32 %r3, [%d2]; ld.global.u32 %r4, [%d2+128]; ld.global.u32 %r5, [%d2+256];\n"
        "mov.u32 %r6, 77;\n"
        "@%p0 shfl.sync." +
        mode +
        ".b32 %r6|%p1, %r3, %r4, %r5, %r1;\n"
        "st.global.u32 [%d2+384], %r6; selp.u32 %r7, 1, 0, %p1; st.global.u32 [%d2+512], %r7;\n"
        "ret;\n}\n";
  }
  Device device;
  ASSERT_TRUE(device.load(text)) << device.error.log;
  std::vector<uint32_t> data(5 * kLanes);
  device.buffer(data);
  for (int round = 0; round < kRounds; ++round) {
    const uint32_t mode = random(4), lanes = random_mask() | 1u << random(kLanes);
    SCOPED_TRACE(std::string(modes[mode]) + ", round " + std::to_string(round));
    for (uint32_t& word : data) word = static_cast<uint32_t>(engine_());
    if (random(2)) {  // as programs do: one distance and width for all
      const uint32_t clamp = mode == 0 ? 0 : 31, width = 1u << random(6);
      for (uint32_t i = 0; i < kLanes; ++i) {
        data[kLanes + i] = data[kLanes];
        data[2 * kLanes + i] = (32 - width) << 8 | clamp;
      }
    }
    const std::vector<uint32_t> before = data;
    const Outcome outcome =
        device.run(modes[mode], {1}, {kLanes}, Parameters().add(data.data()).add(lanes));
    ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (!(lanes >> lane & 1)) {
        ASSERT_EQ(data[3 * kLanes + lane], 77u) << lane;
        ASSERT_EQ(data[4 * kLanes + lane], 0u) << lane;
        continue;
      }
      // The manual's pseudocode.
      const int b = before[kLanes + lane] & 31, c = static_cast<int>(before[2 * kLanes + lane]);
      const int segment = c >> 8 & 31, clamp = c & 31, self = static_cast<int>(lane);
      const int last = (self & segment) | (clamp & ~segment), first = self & segment;
      int from = mode == 0   ? self - b
                 : mode == 1 ? self + b
                 : mode == 2 ? self ^ b
                             : first | (b & ~segment);
      const bool in_range = mode == 0 ? from >= last : from <= last;
      if (!in_range) from = self;
      ASSERT_EQ(data[4 * kLanes + lane], in_range ? 1u : 0u) << lane;
      if (lanes >> from & 1) {
        ASSERT_EQ(data[3 * kLanes + lane], before[from]) << lane;
      }
    }
  }
}

// One bit of a predicate per lane, from every kind of comparison that has a register of signs.
TEST_F(Lanes, Comparisons) {
  const std::array<std::string, 6> types = {"s32", "u32", "s64", "u64", "f32", "f64"};
  const std::array<std::string, 6> relations = {"eq", "ne", "lt", "le", "gt", "ge"};
  std::string text = ".version 8.6\n.target sm_80\n.address_size 64\n";
  for (const std::string& type : types) {
    const std::string bits = type.substr(1);
    text += ".visible .entry " + type +
            "(.param .u64 p)\n{\n.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b" +
            bits +
            " %v<4>;\nld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 8;\n"
            "add.u64 %d2, %d0, %d1; ld.global.b" +
            bits + " %v0, [%d2]; ld.global.b" + bits + " %v1, [%d2+256];\nmov.u32 %r1, 0;\n";
    for (size_t i = 0; i < relations.size(); ++i) {
      text += "setp." + relations[i] + "." + type + " %p0, %v0, %v1; selp.u32 %r2, " +
              std::to_string(1 << i) + ", 0, %p0; or.b32 %r1, %r1, %r2;\n";
    }
    text += "st.global.u32 [%d2+512], %r1;\nret;\n}\n";
  }
  Device device;
  ASSERT_TRUE(device.load(text)) << device.error.log;
  std::vector<uint64_t> data(3 * kLanes);
  device.buffer(data);
  auto check = [&]<class T>(const char* kernel, T) {
    for (int round = 0; round < kRounds / 20; ++round) {
      for (uint32_t i = 0; i < kLanes; ++i) {
        data[i] = engine_() >> random(64);
        data[kLanes + i] = random(2) ? data[i] : engine_();
        if (random(8) == 0) data[i] = ~uint64_t{0};  // -1, or not a number
      }
      const Outcome outcome = device.run(kernel, {1}, {kLanes}, Parameters().add(data.data()));
      ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
      for (uint32_t i = 0; i < kLanes; ++i) {
        T a, b;
        std::memcpy(&a, &data[i], sizeof a);
        std::memcpy(&b, &data[kLanes + i], sizeof b);
        // "ne" of PTX is ordered: false for what is not a number.
        const uint32_t expected = (a == b) | (a < b || a > b) << 1 | (a < b) << 2 | (a <= b) << 3 |
                                  (a > b) << 4 | (a >= b) << 5;
        ASSERT_EQ(static_cast<uint32_t>(data[2 * kLanes + i]), expected) << kernel << " " << i;
      }
    }
  };
  check("s32", int32_t{});
  check("u32", uint32_t{});
  check("s64", int64_t{});
  check("u64", uint64_t{});
  check("f32", float{});
  check("f64", double{});
}

}  // namespace
}  // namespace openmps::softgpu::test
