// SPDX-License-Identifier: Apache-2.0
// Who goes next, where sessions want the same device: one replaceable object between what they have
// to do and what the driver is given of it (decision 25). It decides from what each of them wants
// and has had, and keeps nothing; FairShares (shares.h) keeps the figures and asks. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace openmps::worker {

// How much of a stream's work the driver may have beyond what runs, if nobody is in the way: what a
// quiet moment waits for, and long enough for a thread to come and give more (a wake-up is late by
// 0.1 ms as a rule).
inline constexpr uint64_t kWindowNs = 2'000'000;

// Of a session among the others. A lower one goes first.
enum class Rank : uint32_t {
  kLatency = 0,     // OPENMPS_QOS=latency
  kNormal = 1,      // as MPS's priority 0
  kBestEffort = 2,  // as MPS's priority 1, "below normal"
};

// What a session wants of a device.
struct Claim {
  Rank rank = Rank::kNormal;
  // That its work keeps busy, on average.
  uint32_t sms = 0;
  // What it has had of the device of late, in nanoseconds of all SMs together (FairShare::used_ns).
  uint64_t used_ns = 0;
};

// How it may go on, until that is decided anew.
struct Grant {
  uint64_t window_ns = kWindowNs;
  bool waits = false;  // no work for SMs is submitted: others come first
};

class Policy {
 public:
  Policy() = default;
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // `others`: those that have unfinished work on the device, which has so many SMs.
  [[nodiscard]] virtual Grant decide(const Claim& mine, std::span<const Claim> others,
                                     uint32_t sms) const = 0;
};

// The default: sessions of a rank that compete have equal parts of the device, and those of a
// higher rank go first. Nobody waits while there are SMs for all, or for who copies only.
class FairSharePolicy : public Policy {
 public:
  // So far may one be ahead of another: what long kernels take, and times what that one has had,
  // since all of it is estimated. With half as much equal programs were held back by turns, and
  // eight of them took up to 18 % longer (decision 25).
  static constexpr uint64_t kLeadNs = 10'000'000;
  static constexpr uint64_t kLeadTimes = 3;
  // The window beside a higher rank's work: what is before that when it comes.
  static constexpr uint64_t kShortWindowNs = 500'000;

  [[nodiscard]] Grant decide(const Claim& mine, std::span<const Claim> others,
                             uint32_t sms) const override;
};

// The driver's priority for what the program has asked to have at `asked`, in a session of that
// rank; the device has those from `least` to `greatest`, numerically lower. Latency sessions have
// the highest, best-effort ones the lowest, others what they ask for.
[[nodiscard]] int32_t driver_priority(Rank rank, int32_t asked, int32_t least, int32_t greatest);

}  // namespace openmps::worker
