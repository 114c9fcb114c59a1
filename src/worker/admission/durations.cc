// SPDX-License-Identifier: Apache-2.0
// How long work takes. See durations.h.
#include "worker/admission/durations.h"

#include <algorithm>
#include <limits>

namespace openmps::worker {
namespace {

// The shortest duration that is learnt: below it a launch costs more than the kernel.
constexpr uint64_t kShortestNs = 500;
// Bounds teach something if they are within such a factor, or the upper one is at most kSureNs.
constexpr uint64_t kSure = 4;
constexpr uint64_t kSureNs = 100'000;

}  // namespace

uint32_t Durations::add() {
  if (kinds_.size() < kMost) {
    kinds_.emplace_back();
    return static_cast<uint32_t>(kinds_.size() - 1);
  }
  const uint32_t number = next_++;
  if (next_ == kMost) next_ = kFirstGiven;
  return number;
}

void Durations::learn(std::span<const uint32_t> numbers, const Observed& seen, double part) {
  if (!adapt(&Kind::ns, numbers, seen, kUnknownNs)) return miss(numbers);
  for (const uint32_t number : numbers) {
    Kind& kind = kinds_[number];
    if (part == 1) kind.been_alone = true;
    if (kind.alone_ns == 0) kind.alone_ns = static_cast<uint32_t>(part * kind.ns);
  }
}

void Durations::learn_alone(std::span<const uint32_t> numbers, const Observed& seen) {
  adapt(&Kind::alone_ns, numbers, seen, 0);
}

bool Durations::adapt(uint32_t Kind::*known, std::span<const uint32_t> numbers,
                      const Observed& seen, uint64_t unknown_ns) {
  const auto& [expected_ns, least_ns, most_ns] = seen;
  const uint64_t took = std::clamp(expected_ns, least_ns, std::max(least_ns, most_ns));
  if (took == expected_ns && most_ns > kSureNs && most_ns > kSure * least_ns) return false;
  const double factor = static_cast<double>(took) / static_cast<double>(expected_ns);
  for (const uint32_t number : numbers) {
    uint32_t& ns = kinds_[number].*known;
    const auto before = static_cast<double>(ns == 0 ? unknown_ns : ns);
    if (before == 0) continue;
    ns = static_cast<uint32_t>(std::clamp(factor * before, double{kShortestNs},
                                          double{std::numeric_limits<uint32_t>::max()}));
  }
  return true;
}

void Durations::miss(std::span<const uint32_t> numbers) {
  for (const uint32_t number : numbers) {
    Kind& kind = kinds_[number];
    if (kind.ns == 0 && ++kind.tries >= kTries) kind.ns = kUnknownNs;
  }
}

}  // namespace openmps::worker
