// SPDX-License-Identifier: Apache-2.0
// Sums of sessions' figures (usage.h).
#include "wire/usage.h"

#include <functional>

namespace openmps::wire {
namespace {

template <size_t count>
void add(UsageCells<uint64_t, count>* to, const UsageCells<uint64_t, count>& from) {
  std::transform(to->begin(), to->end(), from.begin(), to->begin(), std::plus());
}

}  // namespace

void Usage::add_counters(const Usage& other) {
  is_known |= other.is_known;
  is_timed |= other.is_timed;
  age_ns += other.age_ns;
  add(&counts, other.counts);
  add(&held_times, other.held_times);
  add(&held_ns, other.held_ns);
  add(&lengths, other.lengths);
  add(&gap_ns, other.gap_ns);
  add(&part_ns, other.part_ns);
  for (uint32_t device = 0; device < kUsageDevices; ++device) {
    add(&devices[device], other.devices[device]);
  }
}

void Usage::add_present(const Usage& other) {
  add(&held_now, other.held_now);
  add(&memory, other.memory);
  add(&on_host, other.on_host);
}

}  // namespace openmps::wire
