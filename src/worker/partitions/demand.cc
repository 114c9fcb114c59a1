// SPDX-License-Identifier: Apache-2.0
// See demand.h.
#include "worker/partitions/demand.h"

#include <algorithm>
#include <bit>

namespace openmps::worker {
namespace {

// Small work needs at most such a share of the few SMs at a time, so the work of so many sessions
// fits there at once.
constexpr uint32_t kFewShare = 2;
// More sessions have the few SMs only while all their small work takes no more than such a share of
// the SMs' time, counted as the work takes alone, of which it takes twice there. Eight that send
// requests are answered in 0.34 to 0.9 ms on an H200, where it takes 30 ms beside long kernels;
// eight that always have something keep others out of the few SMs for up to a second (decision 31).
constexpr uint64_t kLightShare = 2;
// Several of a program's requests.
constexpr uint64_t kWeighNs = 50'000'000;

bool is_recent(uint64_t ns, uint64_t now) { return ns != 0 && ns + kRecentNs > now; }

}  // namespace

void RecentDemand::note(const Demand& demand, uint32_t few_sms, uint64_t now) {
  const bool fits = uint64_t{demand.sms_needed} * kFewShare <= few_sms;
  const auto note = [&](Kinds kind, bool is_of_kind) {
    if (is_of_kind) had_ns_[std::countr_zero(kind)].store(now, std::memory_order_relaxed);
  };
  note(kAny, true);
  note(kWide, !fits);
  note(kSlow, !demand.is_guess && demand.ns > Demand::kShortNs);
  // Small work that has waited for others' blocks seems to take long.
  note(kLong, demand.ns >= Demand::kLongNs && !(demand.is_guess && fits));
  note(kAllSms, demand.needs_all_sms);
  note(kWhole, demand.sms_needed == kWholeDevice);
  if (fits) sm_ns_.fetch_add(demand.sm_ns, std::memory_order_relaxed);
}

bool RecentDemand::had(Kinds kinds, uint64_t now) const {
  for (; kinds != 0; kinds &= kinds - 1) {
    const std::atomic<uint64_t>& had_ns = had_ns_[std::countr_zero(kinds)];
    if (is_recent(had_ns.load(std::memory_order_relaxed), now)) return true;
  }
  return false;
}

uint64_t Lease::review(uint64_t now) {
  if (!in_use_.load()) return 0;
  uint64_t last = 0;
  for (const std::atomic<uint64_t>& used_ns : used_ns_) last = std::max<uint64_t>(last, used_ns);
  if (is_recent(last, now)) return last + kRecentNs;
  in_use_ = false;
  return 0;
}

Lease::RanksReview Lease::review_ranks(uint64_t now,
                                       const std::function<bool(Rank from)>& is_crowded) {
  RanksReview review;
  if (!in_use_.load()) return review;
  for (size_t row = 0; row < kRanks && !review.excludes_from.has_value(); ++row) {
    if (!is_recent(used_ns_[row], now)) continue;
    review.next_ns = now + kCrowdLookNs;
    const Rank below{static_cast<uint32_t>(row) + 1};
    if (is_crowded(below)) crowded_ns_[row] = now;
    if (is_recent(crowded_ns_[row], now)) review.excludes_from = below;
  }
  if (review.next_ns == 0) in_use_ = false;
  return review;
}

bool SmallWorkReview::few_suffice(std::span<const Session> sessions, uint32_t few_sms,
                                  uint64_t now) {
  const uint64_t elapsed = now - weighed_ns_;
  size_t count = 0;
  uint64_t sm_ns = 0;
  for (const Session& session : sessions) {
    const uint64_t its_ns = elapsed >= kWeighNs ? session.demand->take_sm_ns() : 0;
    if (session.place != SmSet::Kind::kFew) continue;
    ++count;
    sm_ns += its_ns;
  }
  if (elapsed >= kWeighNs) {
    if (sm_ns > elapsed / kLightShare * few_sms) heavy_ns_ = now;
    weighed_ns_ = now;
  }
  return count <= kFewShare || !is_recent(heavy_ns_, now);
}

// Long kernels that can't be kept off the few SMs would keep small work waiting there for ever.
bool SmallWorkReview::review(std::span<Session> sessions, bool may_divide, bool is_crowded,
                             uint32_t few_sms, uint64_t now) {
  using Kind = SmSet::Kind;
  if (may_divide && is_crowded) crowded_ns_ = now;
  bool divides = may_divide && is_recent(crowded_ns_, now);
  bool any_long = false;
  bool any_small = false;
  for (Session& session : sessions) {
    const auto had = [&](RecentDemand::Kinds kinds) { return session.demand->had(kinds, now); };
    session.place = Kind::kGroups;
    if (had(RecentDemand::kLong)) {
      session.place = Kind::kRemaining;
      any_long = true;
      divides = divides && !session.has_limit && !had(RecentDemand::kAllSms | RecentDemand::kWhole);
    } else if (had(RecentDemand::kAny) && !had(RecentDemand::kWide | RecentDemand::kSlow) &&
               !session.has_limit) {
      session.place = Kind::kFew;
      any_small = true;
    }
  }
  divides = few_suffice(sessions, few_sms, now) && divides && any_long && any_small;
  if (!divides) {
    for (Session& session : sessions) session.place = Kind::kGroups;
  }
  return any_long;
}

}  // namespace openmps::worker
