// SPDX-License-Identifier: Apache-2.0
// wgmma: products of small integers, which are exact in every type, for each layout in shared
// memory, each kind of element and each flag; that the four warps wait for each other; what may not
// be asked for.
#include <gtest/gtest.h>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

constexpr uint32_t kRows = 64, kThreads = 128, kImage = 64 * 1024, kSecond = 32 * 1024;

struct Kind {
  const char* type;
  uint32_t bits, depth;
};
constexpr Kind kF16{"f16", 16, 16}, kBF16{"bf16", 16, 16}, kTF32{"tf32", 32, 8};
constexpr Kind kE4M3{"e4m3", 8, 32}, kE5M2{"e5m2", 8, 32};
constexpr Kind kS8{"s8", 8, 32}, kU8{"u8", 8, 32}, kB1{"b1", 1, 256};

// The element whose value is that small integer.
uint32_t element(const Kind& kind, int value) {
  const std::string type = kind.type;
  if (type == "s8" || type == "u8" || type == "b1") return static_cast<uint32_t>(value) & 0xff;
  const auto bits = __builtin_bit_cast(uint32_t, static_cast<float>(value));
  if (type == "tf32") return bits;
  if (type == "bf16") return bits >> 16;
  if (value == 0) return 0;
  // The other formats have fewer bits of exponent, in the middle of which 1 lies, and of mantissa.
  const int mantissa = type == "f16" ? 10 : type == "e4m3" ? 3 : 2, bias = type == "e4m3" ? 7 : 15;
  const uint32_t sign = bits >> 31 << (kind.bits - 1);
  const auto exponent = static_cast<int>(bits >> 23 & 0xff) - 127 + bias;
  return sign | static_cast<uint32_t>(exponent) << mantissa | (bits & 0x7fffff) >> (23 - mantissa);
}

// How a matrix lies in shared memory: rows of `chunks` times 16 bytes along k or, transposed, along
// the other dimension.
struct Layout {
  uint32_t chunks = 1;
  bool transposed = false;
  uint32_t extra = 0;  // bytes between its parts, beyond what they take

  uint32_t row_bytes() const { return 16 * chunks; }
  // From eight rows to the next eight, and from one block of rows, as wide as they are, to the
  // next. Without a swizzle the blocks follow each other, with one the rows.
  struct Steps {
    uint32_t down, aside;
  };
  Steps steps(uint32_t majors, const Kind& kind) const {
    const uint32_t rows = transposed ? kind.depth : majors;
    const uint32_t width = (transposed ? majors : kind.depth) * kind.bits / 128;
    if (chunks == 1) return {width * (128 + extra) + extra, 128 + extra};
    const uint32_t down = 8 * row_bytes() + extra;
    return {down, rows / 8 * down + extra};
  }
  uint32_t bit_of(uint32_t major, uint32_t depth, const Kind& kind, uint32_t majors) const {
    const uint32_t row = transposed ? depth : major, width = 8 * row_bytes();
    const uint32_t bit = (transposed ? major : depth) * kind.bits;
    const Steps step = steps(majors, kind);
    uint32_t byte =
        row / 8 * step.down + row % 8 * row_bytes() + bit / width * step.aside + bit % width / 8;
    // Of each 128 bytes the number tells how the chunks of 16 bytes change places.
    if (chunks > 1) byte ^= byte / 128 % chunks * 16;
    return 8 * byte + bit % 8;
  }
  // Without a swizzle, what is "leading" depends on which way the rows go.
  uint64_t descriptor(uint32_t start, uint32_t majors, const Kind& kind) const {
    const Steps step = steps(majors, kind);
    uint64_t leading = step.aside, stride = step.down;
    if (chunks == 1 && transposed) std::swap(leading, stride);
    const uint64_t swizzle = chunks == 8 ? 1 : chunks == 4 ? 2 : chunks == 2 ? 3 : 0;
    return (start >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | swizzle << 62;
  }
};

struct Product {
  Kind a = kF16, b = kF16;
  const char* sum = "f32";
  uint32_t columns = 8;
  Layout layout_a, layout_b;
  bool from_registers = false;
  bool adds = true;
  bool negate_a = false, negate_b = false;
  const char* modifier = "";  // before the types
  const char* suffix = "";    // behind them

  uint32_t sum_bits() const { return std::string(sum) == "f16" ? 16 : 32; }
  uint32_t registers() const { return columns * sum_bits() / 64; }
  bool is_integer() const { return std::string(sum) == "s32"; }
};

std::string list(const char* name, uint32_t count) {
  std::string text = "{";
  for (uint32_t i = 0; i < count; ++i) text += (i ? ", %" : "%") + (name + std::to_string(i));
  return text + "}";
}

std::string instruction(const Product& p) {
  std::string text = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(p.columns) + "k" +
                     std::to_string(p.a.depth) + p.modifier + "." + p.sum + "." + p.a.type + "." +
                     p.b.type + p.suffix + " " + list("d", p.registers()) + ", " +
                     (p.from_registers ? list("a", 4) : "%da") + ", %db, %adds";
  if (!p.is_integer()) {
    text += std::string(p.negate_a ? ", -1" : ", 1") + (p.negate_b ? ", -1" : ", 1");
  }
  if (p.a.bits == 16) {
    if (!p.from_registers) text += p.layout_a.transposed ? ", 1" : ", 0";
    text += p.layout_b.transposed ? ", 1" : ", 0";
  }
  return text + ";\n";
}

// Shared memory becomes `image`; the registers of D and A come from memory, those of D go back.
// `after` comes behind the wait.
std::string kernel(const std::string& product, uint32_t registers, const std::string& after) {
  std::string text =
      ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 sh[];\n"
      ".visible .entry k(.param .u64 pimage, .param .u64 pa, .param .u64 pd, .param .u64 pda,\n"
      ".param .u64 pdb, .param .u32 padds) {\n"
      "  .reg .b64 %image, %a, %d, %at, %da, %db, %base; .reg .b32 %d<128>, %a<4>, %v<4>, %t, %s, "
      "%i,"
      " %n; .reg .pred %adds, %more;\n"
      "  ld.param.u64 %image, [pimage]; ld.param.u64 %a, [pa]; ld.param.u64 %d, [pd];\n"
      "  ld.param.u64 %da, [pda]; ld.param.u64 %db, [pdb]; ld.param.u32 %n, [padds];\n"
      "  setp.ne.u32 %adds, %n, 0; mov.u32 %t, %tid.x; mov.u32 %s, sh;\n"
      "  shr.u32 %i, %s, 4; cvt.u64.u32 %base, %i; add.s64 %da, %da, %base; add.s64 %db, %db, "
      "%base;\n"
      "  mul.lo.u32 %i, %t, 16;\n"
      "$copy: cvt.u64.u32 %at, %i; add.s64 %at, %at, %image; add.u32 %n, %s, %i;\n"
      "  ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%at]; st.shared.v4.b32 [%n], {%v0, %v1, %v2, "
      "%v3};\n"
      "  add.u32 %i, %i, 2048; setp.lt.u32 %more, %i, 65536; @%more bra $copy;\n"
      "  mul.wide.u32 %at, %t, 16; add.s64 %a, %a, %at;\n"
      "  ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%a];\n"
      "  mul.wide.u32 %at, %t, 512; add.s64 %d, %d, %at;\n";
  for (uint32_t i = 0; i < registers; ++i) {
    const std::string n = std::to_string(i);
    text += "  ld.global.b32 %d" + n + ", [%d+" + std::to_string(4 * i) + "];\n";
  }
  text += "  fence.proxy.async.shared::cta; bar.sync 0;\n  wgmma.fence.sync.aligned;\n  " +
          product + "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n" +
          after;
  for (uint32_t i = 0; i < registers; ++i) {
    const std::string n = std::to_string(i);
    text += "  st.global.b32 [%d+" + std::to_string(4 * i) + "], %d" + n + ";\n";
  }
  return text + "  ret;\n}\n";
}

struct Matrices {
  explicit Matrices(const Product& made)
      : p(made), image(kImage), a(4 * kThreads), d(128 * kThreads) {
    for (uint32_t row = 0; row < kRows; ++row) {
      for (uint32_t k = 0; k < p.a.depth; ++k) {
        const uint32_t bits = element(p.a, value_a(row, k));
        if (p.from_registers) {
          put_in_registers(row, k, bits);
        } else {
          put(p.layout_a.bit_of(row, k, p.a, kRows), p.a.bits, bits);
        }
      }
    }
    for (uint32_t column = 0; column < p.columns; ++column) {
      for (uint32_t k = 0; k < p.b.depth; ++k) {
        put(8 * kSecond + p.layout_b.bit_of(column, k, p.b, p.columns), p.b.bits,
            element(p.b, value_b(k, column)));
      }
    }
    each_sum([&](uint32_t& word, uint32_t shift, uint32_t row, uint32_t column) {
      word |= sum_bits(before(row, column)) << shift;
    });
  }
  static bool is_unsigned(const Kind& kind) { return kind.type[0] == 'u' || kind.bits == 1; }
  int value_a(uint32_t row, uint32_t k) const {
    if (p.a.bits == 1) return (row * 7 + k * k * 3) % 5 % 2;
    return static_cast<int>((3 * row + 5 * k + row * k % 7) % 9) - (is_unsigned(p.a) ? 0 : 4);
  }
  int value_b(uint32_t k, uint32_t column) const {
    if (p.b.bits == 1) return (column * 5 + k * 3 + k * column) % 7 % 2;
    return static_cast<int>((7 * k + 2 * column + k * column % 5) % 9) - (is_unsigned(p.b) ? 0 : 4);
  }
  static int before(uint32_t row, uint32_t column) {
    return static_cast<int>((row + 3 * column) % 21) - 10;
  }
  int expected(uint32_t row, uint32_t column) const {
    int sum = 0;
    for (uint32_t k = 0; k < p.a.depth; ++k) sum += value_a(row, k) * value_b(k, column);
    if (p.negate_a != p.negate_b) sum = -sum;
    return sum + (p.adds ? before(row, column) : 0);
  }
  uint32_t sum_bits(int value) const {
    return p.is_integer()       ? static_cast<uint32_t>(value)
           : p.sum_bits() == 16 ? element(kF16, value)
                                : element(kTF32, value);
  }
  void put(uint32_t bit, uint32_t bits, uint32_t value) {
    for (uint32_t i = 0; i < bits; ++i) {
      image[(bit + i) / 8] |= static_cast<uint8_t>((value >> i & 1) << (bit + i) % 8);
    }
  }
  // Lane 4 * row + c of a warp has 32 bits of a row for each of c = 0 to 3, then those of eight
  // rows below, then the second half of k.
  void put_in_registers(uint32_t row, uint32_t k, uint32_t value) {
    const uint32_t each = 32 / p.a.bits, half = p.a.depth / 2;
    const uint32_t lane = row % 8 * 4 + k % half / each;
    const uint32_t index = row % 16 / 8 + k / half * 2;
    a[(row / 16 * 32 + lane) * 4 + index] |= value << (k % each * p.a.bits);
  }
  template <class F>
  void each_sum(F visit) {
    for (uint32_t row = 0; row < kRows; ++row) {
      for (uint32_t column = 0; column < p.columns; ++column) {
        const uint32_t thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
        const uint32_t slot = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
        const uint32_t bit = slot * p.sum_bits();
        visit(d[thread * 128 + bit / 32], bit % 32, row, column);
      }
    }
  }

  Product p;
  std::vector<uint8_t> image;
  std::vector<uint32_t> a, d;
};

BlockState run(Matrices& m, const std::string& after = "", uint32_t b_start = kSecond,
               uint32_t shared = kImage) {
  Device device;
  EXPECT_TRUE(device.load(kernel(instruction(m.p), m.p.registers(), after))) << device.error.log;
  EXPECT_EQ(device.unsupported(), "") << instruction(m.p);
  return device
      .run("k", {}, {kThreads},
           Parameters()
               .add(device.buffer(m.image))
               .add(device.buffer(m.a))
               .add(device.buffer(m.d))
               .add(m.p.layout_a.descriptor(0, kRows, m.p.a))
               .add(m.p.layout_b.descriptor(b_start, m.p.columns, m.p.b))
               .add(uint32_t{m.p.adds}),
           shared)
      .state;
}

void check(const Product& product, const std::string& after = "") {
  SCOPED_TRACE(instruction(product) + " chunks " + std::to_string(product.layout_a.chunks) + ", " +
               std::to_string(product.layout_b.chunks));
  Matrices m(product);
  ASSERT_EQ(run(m, after), BlockState::kFinished);
  int wrong = 0;
  m.each_sum([&](const uint32_t& word, uint32_t shift, uint32_t row, uint32_t column) {
    const uint32_t mask = m.p.sum_bits() == 16 ? 0xffff : ~0u;
    if ((word >> shift & mask) != m.sum_bits(m.expected(row, column)) && ++wrong <= 3) {
      ADD_FAILURE() << row << ", " << column << ": " << std::hex << (word >> shift & mask)
                    << " instead of " << m.sum_bits(m.expected(row, column));
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(GroupMatrices, EveryLayout) {
  for (const uint32_t a : {1u, 2u, 4u, 8u}) {
    for (const uint32_t b : {1u, 2u, 4u, 8u}) {
      for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
          Product p;
          p.columns = 40;
          p.layout_a = {a, transpose_a}, p.layout_b = {b, transpose_b};
          check(p);
        }
      }
    }
  }
}

// Distances that are not those of a matrix whose parts follow each other.
TEST(GroupMatrices, PartsApart) {
  for (const uint32_t chunks : {1u, 2u, 8u}) {
    for (const bool transposed : {false, true}) {
      Product p;
      p.columns = 64;
      p.layout_a = {chunks, transposed, 1024}, p.layout_b = {chunks, transposed, 2048};
      if (chunks == 1) p.layout_a.extra = 16, p.layout_b.extra = 64;
      check(p);
    }
  }
}

TEST(GroupMatrices, EveryWidth) {
  for (uint32_t columns = 8; columns <= 256; columns += 8) {
    Product p;
    p.columns = columns;
    p.layout_a = p.layout_b = {4};
    check(p);
    p.sum = "f16", p.from_registers = true;
    check(p);
  }
}

TEST(GroupMatrices, EveryElement) {
  const std::pair<Kind, Kind> kinds[] = {{kF16, kF16},   {kBF16, kBF16}, {kTF32, kTF32},
                                         {kE4M3, kE4M3}, {kE4M3, kE5M2}, {kE5M2, kE4M3},
                                         {kE5M2, kE5M2}, {kS8, kS8},     {kS8, kU8},
                                         {kU8, kS8},     {kU8, kU8},     {kB1, kB1}};
  for (const auto& [a, b] : kinds) {
    for (const uint32_t chunks : {1u, 2u, 4u, 8u}) {
      for (const bool from_registers : {false, true}) {
        Product p;
        p.a = a, p.b = b, p.columns = 32;
        p.layout_a = p.layout_b = {chunks};
        p.from_registers = from_registers;
        const bool integer = a.type[0] == 's' || a.type[0] == 'u' || a.bits == 1;
        if (integer) p.sum = "s32";
        if (a.bits == 1) p.suffix = ".and.popc";
        check(p);
        if (a.bits == 8 && !integer) {
          p.sum = "f16";
          check(p);
        }
      }
    }
  }
}

TEST(GroupMatrices, FlagsOfFactorsAndSum) {
  for (const bool negate_a : {false, true}) {
    for (const bool negate_b : {false, true}) {
      for (const bool adds : {false, true}) {
        Product p;
        p.negate_a = negate_a, p.negate_b = negate_b, p.adds = adds;
        check(p);
        p.a = p.b = kE4M3, p.from_registers = true;
        check(p);
      }
    }
  }
}

TEST(GroupMatrices, SumsThatSaturate) {
  for (const bool saturates : {false, true}) {
    Product p;
    p.a = p.b = kU8, p.sum = "s32";
    p.modifier = saturates ? ".satfinite" : "";
    Matrices m(p);
    m.each_sum([](uint32_t& word, uint32_t, uint32_t, uint32_t) { word = INT32_MAX - 1; });
    ASSERT_EQ(run(m), BlockState::kFinished);
    m.each_sum([&](const uint32_t& word, uint32_t, uint32_t row, uint32_t column) {
      const auto sum = static_cast<uint32_t>(m.expected(row, column) - m.before(row, column));
      ASSERT_GT(sum, 1u);
      EXPECT_EQ(word, saturates ? uint32_t{INT32_MAX} : INT32_MAX - 1 + sum);
    });
  }
}

// The second half of a row of 64 elements: a descriptor that begins within the swizzle's pattern.
TEST(GroupMatrices, ADescriptorMayBeginWithinThePattern) {
  for (const uint32_t chunks : {4u, 8u}) {
    Product p;
    p.layout_a = p.layout_b = {chunks};
    Matrices m(p);
    // What begins 32 bytes on in each row of B is twice what lies at its begin.
    for (uint32_t column = 0; column < p.columns; ++column) {
      for (uint32_t k = 0; k < p.b.depth; ++k) {
        m.put(8 * kSecond + p.layout_b.bit_of(column, k + 16, p.b, p.columns), 16,
              element(p.b, 2 * m.value_b(k, column)));
      }
    }
    ASSERT_EQ(run(m, "", kSecond + 32), BlockState::kFinished);
    m.each_sum([&](const uint32_t& word, uint32_t, uint32_t row, uint32_t column) {
      EXPECT_EQ(word, m.sum_bits(2 * m.expected(row, column) - m.before(row, column)));
    });
  }
}

// Whoever is first behind the wait overwrites the factors of the others.
TEST(GroupMatrices, NobodyGoesOnBeforeAllHaveRead) {
  Product p;
  p.columns = 16;
  check(p,
        "  mov.u32 %v0, 0; mul.lo.u32 %i, %t, 4; add.u32 %s, %s, %i;\n"
        "$clear: st.shared.b32 [%s], %v0; add.u32 %s, %s, 512; setp.lt.u32 %more, %s, 65536;\n"
        "  @%more bra $clear;\n");
}

TEST(GroupMatrices, BeyondSharedMemory) {
  Product p;
  p.columns = 16;
  Matrices m(p);
  EXPECT_EQ(run(m, "", kImage - 256), BlockState::kFaulted);
}

TEST(GroupMatrices, ProductsThatThereAreNot) {
  const std::string two = "{%d0, %d1}, ", four = "{%d0, %d1, %d2, %d3}, ", in = "%da, %db, %adds";
  for (const std::string& code :
       {"m64n8k16.f32.f16.f16 " + two + in + ", 1, 1, 0, 0;",     // registers
        "m64n8k8.f32.f16.f16 " + four + in + ", 1, 1, 0, 0;",     // k
        "m64n8k16.f16.bf16.bf16 " + two + in + ", 1, 1, 0, 0;",   // a sum of bf16 is f32
        "m64n8k16.f32.f16.bf16 " + four + in + ", 1, 1, 0, 0;",   // factors of one type
        "m64n8k16.f32.f16.f16 " + four + in + ", 1, 1;",          // flags
        "m64n8k16.f32.f16.f16 " + four + in + ", 2, 1, 0, 0;",    // a scale
        "m64n8k32.f32.e4m3.e4m3 " + four + in + ", 1, 1, 0, 1;",  // transposed bytes
        "m64n8k32.s32.s8.s8 " + four + in + ", 1, 1;",            // integers are not negated
        "m64n40k32.s32.s8.s8 {" + list("d", 20).substr(1) + ", " + in + ";",  // a width of floats
        "m64n8k256.s32.b1.b1 " + four + in + ";",                             // which operation
        "m64n8k16.satfinite.f32.f16.f16 " + four + in + ", 1, 1, 0, 0;"}) {
    Device device;
    ASSERT_TRUE(device.load(kernel("wgmma.mma_async.sync.aligned." + code + "\n", 20, "")))
        << code << device.error.log;
    EXPECT_NE(device.unsupported(), "") << code;
  }
}

}  // namespace
}  // namespace openmps::softgpu::test
