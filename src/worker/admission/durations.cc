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
  if (ns_.size() < kMost) {
    tries_.push_back(0);
    alone_ns_.push_back(0);
    been_alone_.push_back(false);
    ns_.push_back(0);
    return static_cast<uint32_t>(ns_.size() - 1);
  }
  const uint32_t number = next_++;
  if (next_ == kMost) next_ = kFirstGiven;
  return number;
}

void Durations::learn(std::span<const uint32_t> numbers, const Observed& seen, double part) {
  if (!adapt(ns_, numbers, seen, kUnknownNs)) return miss(numbers);
  for (const uint32_t number : numbers) {
    if (part == 1) been_alone_[number] = true;
    if (alone_ns_[number] != 0) continue;
    alone_ns_[number] = static_cast<uint32_t>(part * ns_[number]);
  }
}

void Durations::learn_alone(std::span<const uint32_t> numbers, const Observed& seen) {
  adapt(alone_ns_, numbers, seen, 0);
}

bool Durations::adapt(std::vector<uint32_t>& known, std::span<const uint32_t> numbers,
                      const Observed& seen, uint64_t unknown_ns) {
  const auto& [expected_ns, least_ns, most_ns] = seen;
  const uint64_t took = std::clamp(expected_ns, least_ns, std::max(least_ns, most_ns));
  if (took == expected_ns && most_ns > kSureNs && most_ns > kSure * least_ns) return false;
  const double factor = static_cast<double>(took) / static_cast<double>(expected_ns);
  for (const uint32_t number : numbers) {
    const uint64_t before = known[number] == 0 ? unknown_ns : known[number];
    if (before == 0) continue;
    known[number] =
        static_cast<uint32_t>(std::clamp(factor * static_cast<double>(before), double{kShortestNs},
                                         double{std::numeric_limits<uint32_t>::max()}));
  }
  return true;
}

void Durations::miss(std::span<const uint32_t> numbers) {
  for (const uint32_t number : numbers) {
    if (ns_[number] == 0 && ++tries_[number] >= kTries) ns_[number] = kUnknownNs;
  }
}

}  // namespace openmps::worker
