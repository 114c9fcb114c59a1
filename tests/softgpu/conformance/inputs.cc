// SPDX-License-Identifier: Apache-2.0
// See inputs.h.
#include "inputs.h"

#include <iterator>

namespace conformance {
namespace {

struct Random {  // splitmix64
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>((next() >> 32) % limit); }
  template <class T, size_t n>
  T one_of(const T (&values)[n]) {
    return values[below(n)];
  }
};

constexpr uint64_t kIntegers[] = {0,
                                  1,
                                  2,
                                  ~0ull,
                                  0x7f,
                                  0x80,
                                  0xff,
                                  0x7fff,
                                  0x8000,
                                  0xffff,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0xffffffff80000000,
                                  0x7fffffffffffffff,
                                  0x8000000000000000,
                                  0x0123456789abcdef};
constexpr uint32_t kF32s[] = {
    0,          0x80000000, 0x3f800000, 0xbf800000, 1,          0x80000001, 0x007fffff, 0x00800000,
    0x80800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffc12345,
    0x4f000000, 0xcf000000, 0x4f800000, 0x5f000000, 0x3f000000, 0x3fc00000, 0x40200000, 0xbf000000,
    0x477fe000, 0x477ff000, 0x33000000, 0x33800000, 0x43800000, 0x437f8000};
constexpr uint64_t kF64s[] = {0,
                              0x8000000000000000,
                              0x3ff0000000000000,
                              0xbff0000000000000,
                              1,
                              0x000fffffffffffff,
                              0x0010000000000000,
                              0x7fefffffffffffff,
                              0x7ff0000000000000,
                              0xfff0000000000000,
                              0x7ff8000000000000,
                              0x7ff0000000000001,
                              0xfff8123400000000,
                              0x41dfffffffc00000,
                              0x41f0000000000000,
                              0x43e0000000000000,
                              0xc3e0000000000000,
                              0x3fe0000000000000,
                              0x3ff8000000000000,
                              0x36a0000000000000,
                              0x47efffffe0000000,
                              0x3690000000000000};
constexpr uint16_t kF16s[] = {0,      0x8000, 0x3c00, 0xbc00, 1,      0x8001, 0x03ff,
                              0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01,
                              0xfe12, 0x3800, 0x3e00, 0x4100, 0x7800, 0x1400};
constexpr uint16_t kBF16s[] = {0,      0x8000, 0x3f80, 0xbf80, 1,      0x8001, 0x007f,
                               0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81,
                               0xffc1, 0x3f00, 0x3fc0, 0x4020, 0x4f00, 0x3380};

uint64_t integer(Random& random) {
  switch (random.below(4)) {
    case 0: return random.one_of(kIntegers);
    case 1: return static_cast<uint64_t>(static_cast<int64_t>(random.next()) >> random.below(63));
    default: return random.next();
  }
}

// Half of the numbers have exponents near each other, so that additions round.
uint32_t f32(Random& random) {
  switch (random.below(4)) {
    case 0: return random.one_of(kF32s);
    case 1: return static_cast<uint32_t>(random.next());
    default: return (static_cast<uint32_t>(random.next()) & 0x87ffffff) + 0x3c000000;
  }
}
uint64_t f64(Random& random) {
  switch (random.below(4)) {
    case 0: return random.one_of(kF64s);
    case 1: return random.next();
    default: return (random.next() & 0x80ffffffffffffff) + 0x3f80000000000000;
  }
}
uint64_t halves(Random& random, bool bfloat) {
  uint64_t word = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t pick = random.below(4);
    const auto bits = static_cast<uint16_t>(random.next());
    const uint16_t special = bfloat ? random.one_of(kBF16s) : random.one_of(kF16s);
    const uint16_t near = bfloat ? static_cast<uint16_t>((bits & 0x83ff) + 0x3e00)
                                 : static_cast<uint16_t>((bits & 0x8fff) + 0x3400);
    word |= static_cast<uint64_t>(pick == 0 ? special : pick == 1 ? bits : near) << (16 * i);
  }
  return word;
}

// Divides the lanes into groups: each lane gets the mask of all lanes with the same label. The
// groups differ from warp to warp: all lanes, tiles, one lane alone, random groups.
void collective(Random& random, uint32_t warp, ThreadInputs* lanes) {
  uint32_t labels[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    switch (warp % 8) {
      case 0: labels[lane] = 0; break;
      case 1: labels[lane] = lane / 16; break;
      case 2: labels[lane] = lane / 8; break;
      case 3: labels[lane] = lane / 4; break;
      case 4: labels[lane] = lane == 13; break;
      case 5: labels[lane] = lane % 2; break;
      case 6: labels[lane] = random.below(2); break;
      default: labels[lane] = random.below(7); break;
    }
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint32_t mask = 0;
    for (uint32_t other = 0; other < kLanes; ++other) {
      mask |= static_cast<uint32_t>(labels[other] == labels[lane]) << other;
    }
    lanes[lane][0] = mask;
    lanes[lane][1] = random.next();
    lanes[lane][2] = random.next();
    lanes[lane][3] = warp == 14 ? 1 : warp == 15 ? lane == 5 : random.below(4) != 0;
  }
}

enum class Element { kBits, kF16, kBF16, kTF32, kE4M3, kE5M2, kF32, kF64 };

// A number with `mantissa` and `exponent` bits. kNear: numbers of similar size and either sign.
uint64_t number(Random& random, int exponent, int mantissa, Case::Spread spread) {
  const uint64_t all = (uint64_t{1} << exponent) - 1;
  const uint64_t sign = random.next() & 1;
  uint64_t e = spread == Case::Spread::kNear ? all / 2 - 2 + random.below(4)
                                             : random.below(static_cast<uint32_t>(all));
  uint64_t m = random.next() & ((uint64_t{1} << mantissa) - 1);
  if (spread == Case::Spread::kSpecial && random.below(16) == 0) {
    e = random.below(3) != 0 ? all : 0;
    if (random.below(3) != 0) m = 0;
  }
  return sign << (exponent + mantissa) | e << mantissa | m;
}

uint64_t element(Random& random, Element kind, Case::Spread spread) {
  switch (kind) {
    case Element::kF16: return number(random, 5, 10, spread);
    case Element::kBF16: return number(random, 8, 7, spread);
    case Element::kTF32: return number(random, 8, 23, spread) & ~0x1fffull;
    case Element::kE4M3: return number(random, 4, 3, spread);
    case Element::kE5M2: return number(random, 5, 2, spread);
    case Element::kF32: return number(random, 8, 23, spread);
    case Element::kF64: return number(random, 11, 52, spread);
    default: return random.next();
  }
}
int bits_of(Element kind) {
  switch (kind) {
    case Element::kF16:
    case Element::kBF16: return 16;
    case Element::kE4M3:
    case Element::kE5M2: return 8;
    case Element::kTF32:
    case Element::kF32: return 32;
    default: return 64;
  }
}

Element element_named(const std::string& name) {
  if (name == "f16") return Element::kF16;
  if (name == "bf16") return Element::kBF16;
  if (name == "tf32") return Element::kTF32;
  if (name == "e4m3") return Element::kE4M3;
  if (name == "e5m2") return Element::kE5M2;
  if (name == "f32") return Element::kF32;
  if (name == "f64") return Element::kF64;
  return Element::kBits;
}

// Words 0 to 7: A, 8 to 11: B, 12 to 15: C. A word holds one f64, or two registers of other types.
void matrix(Random& random, const Case& one, ThreadInputs* thread) {
  // The opcode's last four parts are the types of d, a, b and c.
  std::vector<std::string> parts;
  const std::string head = one.title();
  for (size_t at = 0; at != std::string::npos;) {
    const size_t dot = head.find('.', at);
    parts.push_back(head.substr(at, dot == std::string::npos ? dot : dot - at));
    at = dot == std::string::npos ? dot : dot + 1;
  }
  const size_t n = parts.size();
  const Element kinds[3] = {element_named(parts[n - 3]), element_named(parts[n - 2]),
                            element_named(parts[n - 1])};
  for (uint32_t word = 0; word < kInputWords; ++word) {
    const Element kind = kinds[word < 8 ? 0 : word < 12 ? 1 : 2];
    const int bits = bits_of(kind);
    uint64_t value = 0;
    for (int at = 0; at < 64; at += bits) value |= element(random, kind, one.spread) << at;
    (*thread)[word] = value;
  }
}

// The words of a warp: the lower half of the lanes has factors, the upper half sums.
void tile(Random& random, const Case& one, uint32_t lane, ThreadInputs* thread) {
  const Element kind = element_named(lane < kLanes / 2 ? one.factor : one.sum);
  const int bits = bits_of(kind);
  for (uint64_t& word : *thread) {
    word = 0;
    for (int at = 0; at < 64; at += bits) word |= element(random, kind, one.spread) << at;
  }
}

uint64_t any_value(Random& random, Inputs inputs) {
  switch (inputs) {
    case Inputs::kF32: return f32(random);
    case Inputs::kF64: return f64(random);
    case Inputs::kF16: return halves(random, false);
    case Inputs::kBF16: return halves(random, true);
    case Inputs::kFP8: return random.next();
    default: return integer(random);
  }
}

}  // namespace

uint64_t hash_of(const void* data, size_t bytes) {  // FNV-1a
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t h = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3ull;
  return h;
}

std::vector<ThreadInputs> make_inputs(const Case& one) {
  const std::string name = one.name();
  Random random{hash_of(name.data(), name.size())};
  std::vector<ThreadInputs> threads(kThreads);
  if (one.inputs == Inputs::kCollective) {
    for (uint32_t warp = 0; warp < kWarps; ++warp) {
      collective(random, warp, &threads[static_cast<size_t>(warp) * kLanes]);
    }
    return threads;
  }
  for (ThreadInputs& thread : threads) {
    if (one.inputs == Inputs::kMatrix) {
      matrix(random, one, &thread);
      continue;
    }
    if (one.inputs == Inputs::kTile) {
      tile(random, one, static_cast<uint32_t>(&thread - threads.data()) % kLanes, &thread);
      continue;
    }
    for (uint64_t* word = thread.data(); word < thread.data() + 3; ++word) {
      *word = any_value(random, one.inputs);
    }
    // Shift amounts: mostly below the width, some beyond every width.
    if (one.inputs == Inputs::kShift) {
      for (int i = 1; i < 3; ++i) {
        if (random.below(8) != 0) thread[static_cast<size_t>(i)] = random.below(72);
      }
    }
    thread[3] = random.below(2);
    if (!one.memory) continue;
    for (uint64_t* word = thread.data() + 4; word < thread.data() + kInputWords; ++word) {
      *word = any_value(random, one.inputs);
      // Two numbers of 32 bits.
      if (one.inputs == Inputs::kF32) *word |= any_value(random, one.inputs) << 32;
    }
  }
  return threads;
}

}  // namespace conformance
