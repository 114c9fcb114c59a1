// SPDX-License-Identifier: Apache-2.0
// What the work of sessions needs of a device's SMs, and what follows from that: who may do with
// few SMs, who has to have all, and whether reserved SMs are in use. Everything is told the time,
// in nanoseconds of the monotonic clock. No driver, no locks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "worker/admission/fair_share.h"
#include "worker/admission/policy.h"
#include "worker/partitions/sm_set.h"

namespace openmps::worker {

// Demand::sms_needed of work that has to have the whole device.
inline constexpr uint32_t kWholeDevice = ~0u;

// Work counts as recent, and reserved SMs as used, for so long: giving SMs to others makes sessions
// move their streams, and a session that wants the SMs back at once would have to wait for the
// others' kernels.
inline constexpr uint64_t kRecentNs = 1'000'000'000;
// The time between two looks at whether sessions fill the device.
inline constexpr uint64_t kCrowdLookNs = 10'000'000;

// What a piece of work needs.
struct Demand {
  uint32_t sms_needed = 0;     // the fewest SMs on which all its blocks run at once
  bool needs_all_sms = false;  // without the few SMs it takes much longer, or may never end
  uint64_t ns = 0;             // how long each of its kernels takes alone on the device,
  bool is_guess = false;       // or less: it has been seen beside other work only
  uint64_t sm_ns = 0;          // SMs times `ns` of all its kernels, each taken to be short

  // A kernel of so long is worth to be kept off some SMs.
  static constexpr uint64_t kLongNs = FairShares::kLongKernelNs;
  // The longest kernel of work that may run on the few SMs. There it may take some times as long as
  // on all SMs, which is less than to wait for others' blocks.
  static constexpr uint64_t kShortNs = kLongNs / 4;
  // What a kernel whose time is a guess counts as in sm_ns: as many small ones take.
  static constexpr uint64_t kGuessNs = 10'000;
};

// What the work of one session has needed of late. note() is the session's thread's, the rest any
// thread's.
class RecentDemand {
 public:
  // Kinds of work, added up.
  using Kinds = uint32_t;
  static constexpr Kinds kNone = 0;
  static constexpr Kinds kAny = 1;
  static constexpr Kinds kWide = 2;     // needs more than its share of the few SMs
  static constexpr Kinds kSlow = 4;     // has kernels that are not short
  static constexpr Kinds kLong = 8;     // has long kernels
  static constexpr Kinds kAllSms = 16;  // takes much longer without the few SMs
  static constexpr Kinds kWhole = 32;   // has to have the whole device

  // `few_sms`: SMs that small work may have to itself.
  void note(const Demand& demand, uint32_t few_sms, uint64_t now);
  // There has been work of one of the kinds within kRecentNs.
  [[nodiscard]] bool had(Kinds kinds, uint64_t now) const;
  // The sum of Demand::sm_ns of the work that fits on the few SMs, since the last call.
  uint64_t take_sm_ns() { return sm_ns_.exchange(0, std::memory_order_relaxed); }

 private:
  // When there was work of each kind last; 0: never.
  std::array<std::atomic<uint64_t>, 6> had_ns_{};
  std::atomic<uint64_t> sm_ns_{0};
};

// Sessions of rank `from` or below fill the device with long kernels.
using Crowded = std::function<bool(uint32_t device, Rank from)>;

// SMs that others have while none of the sessions for which they are reserved has work.
class Lease {
 public:
  // A session of that rank has work: the others leave the SMs soon, or have left them. True: the
  // first such use since the lease was idle, so review() is due. Any thread.
  bool use(Rank rank, uint64_t now) {
    const auto row = std::min(static_cast<size_t>(rank), kRanks - 1);
    used_ns_[row].store(now, std::memory_order_relaxed);
    return !in_use_.load(std::memory_order_relaxed) && !in_use_.exchange(true);
  }
  // It has been used since review() found it idle. Any thread.
  [[nodiscard]] bool is_in_use() const { return in_use_.load(std::memory_order_relaxed); }

  // Those for whom the SMs are reserved have them until then, when the next review is due; 0: the
  // others have them until use() says so. One caller at a time.
  uint64_t review(uint64_t now);
  struct RanksReview {
    std::optional<Rank> excludes_from;  // the ranks from there on keep off the SMs; none: no rank
    uint64_t next_ns = 0;               // when the next review is due; 0: when use() says so
  };
  // As review(), of SMs that are reserved for all sessions that have a rank below them: lower ranks
  // keep off while they fill the device. `is_crowded(Rank from)`: as Crowded.
  RanksReview review_ranks(uint64_t now, const std::function<bool(Rank from)>& is_crowded);

 private:
  static constexpr size_t kRanks = 2;  // the ranks that have others below them
  std::atomic<bool> in_use_{false};
  std::array<std::atomic<uint64_t>, kRanks> used_ns_{};  // last, by rank; 0: never
  std::array<uint64_t, kRanks> crowded_ns_{};
};

// Whether small work has the few SMs of a device to itself while others fill the device with long
// kernels (docs/decisions/0031). One caller at a time.
class SmallWorkReview {
 public:
  struct Session {
    RecentDemand* demand = nullptr;
    bool has_limit = false;                    // it stays on its SMs, whatever its work needs
    SmSet::Kind place = SmSet::Kind::kGroups;  // the answer; kGroups: anywhere
  };
  // Say of each session of the device where its work goes. `may_divide`: no SMs of the
  // device are reserved; `is_crowded`: all sessions together fill it with long kernels. False: none
  // of them has long kernels, so nothing has to be looked at until one has.
  bool review(std::span<Session> sessions, bool may_divide, bool is_crowded, uint32_t few_sms,
              uint64_t now);

 private:
  [[nodiscard]] bool few_suffice(std::span<const Session> sessions, uint32_t few_sms, uint64_t now);

  // The last times; 0: never.
  uint64_t crowded_ns_ = 0;  // the device was crowded
  uint64_t weighed_ns_ = 0;  // the small work was weighed
  uint64_t heavy_ns_ = 0;    // the small work was too much for the few SMs
};

}  // namespace openmps::worker
