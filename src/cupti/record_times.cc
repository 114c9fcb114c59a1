// SPDX-License-Identifier: Apache-2.0
#include "cupti/record_times.h"

#include <algorithm>
#include <iterator>

#include "base/clock.h"

namespace openmps::cupti {
namespace {

// A reading is good if both clocks are read within this time; it takes about 50 ns. What is between
// the two may be a switch to another thread.
constexpr uint64_t kNearNs = 2'000;
constexpr int kAttempts = 4;

}  // namespace

RecordTimes::Reading RecordTimes::read(Source source) {
  Reading best;
  uint64_t best_width = UINT64_MAX;
  for (int i = 0; i < kAttempts && best_width > kNearNs; ++i) {
    const uint64_t before = now_ns();
    const uint64_t time = source();
    const uint64_t width = now_ns() - before;
    if (width >= best_width) continue;
    best_width = width;
    best = {before + width / 2, time};
  }
  return best;
}

void RecordTimes::add(Reading reading) {
  if (covers(reading.ns)) return;  // another thread's is newer
  if (readings_.size() >= kMostReadings) {
    size_t kept = 0;
    for (size_t i = 0; i < readings_.size(); i += 2) readings_[kept++] = readings_[i];
    readings_.resize(kept);
  }
  readings_.push_back(reading);
}

uint64_t RecordTimes::at(uint64_t ns) const {
  if (readings_.empty()) return ns;
  if (readings_.size() == 1) return readings_[0].time + (ns - readings_[0].ns);
  // The two readings around it; for a time before or after all of them, the two that are nearest.
  auto after =
      std::lower_bound(readings_.begin() + 1, std::prev(readings_.end()), ns,
                       [](const Reading& one, uint64_t wanted) { return one.ns < wanted; });
  const Reading& b = *after;
  const Reading& a = *std::prev(after);
  const double rate =
      static_cast<double>(static_cast<int64_t>(b.time - a.time)) / static_cast<double>(b.ns - a.ns);
  const auto since = static_cast<double>(static_cast<int64_t>(ns - a.ns));
  return a.time + static_cast<uint64_t>(static_cast<int64_t>(since * rate));
}

}  // namespace openmps::cupti
