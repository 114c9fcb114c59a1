// SPDX-License-Identifier: Apache-2.0
// See sm_partitions.h.
#include "worker/partitions/sm_partitions.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "worker/device/driver_check.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// Of a device one SM of so many is for ranks: 8 of an H200's 132.
constexpr uint32_t kShareForRanks = 16;
// No more than one of so many, 4 of these, are few: a session that has more to itself slows the
// others (12 of 132 cost n-body 65536 a third, decision 28).
constexpr uint32_t kShareOfFew = 32;

}  // namespace

SmPartitions::SmPartitions(const DriverTable& driver, const Devices& devices, ContextGate& gate,
                           ResourceDescriptors& descriptors)
    : devices_(devices), gate_(gate), contexts_(driver, devices, descriptors) {
  for (uint32_t device = 0; device < devices_.count(); ++device) {
    SmLayout& layout = plan_.layout(device);
    layout.sms = devices_.at(device).sms;
    layout.step = devices_.at(device).sm_steps.step;
  }
}

Status SmPartitions::divide_locked(uint32_t device) {
  if (plan_.layout(device).is_divided()) return Status();
  std::vector<uint32_t> group_sms;
  bool has_partial_group = false;
  OPENMPS_RETURN_IF_ERROR(contexts_.divide(device, &group_sms, &has_partial_group));
  plan_.set_groups(device, std::move(group_sms), has_partial_group);
  return Status();
}

// ---- Members ------------------------------------------------------------------------------------

// The SMs count as used before the green context exists, so that sessions which come meanwhile get
// others.
Status SmPartitions::join(Member& member, const GateClient* client) {
  const uint32_t device = member.device;
  SmSet set;
  {
    const MutexLock lock(mutex_);
    const SmTerms& terms = member.wish_.terms;
    const bool is_part = terms.group != nullptr && terms.group->sms(device) != 0;
    if (terms.sms != 0 || is_part || !plan_.reservations().empty()) {
      OPENMPS_RETURN_IF_ERROR(divide_locked(device));
    }
    OfDevice& of = of_[device];
    of.members.push_back(&member);
    of.is_shared = of.members.size() > 1;
    // The next launch of another session, which would start the watch, may be far away.
    if (of.is_shared) watch(device);
    plan_.add(member.wish_);
    const SmAssignment& assignment = member.wish_.assignment;
    member.restriction_ = assignment.restriction;
    if (assignment.is_whole_device) return Status();
    set = assignment.set;
    if (set.sms == 0) {
      leave_locked(member);
      return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                    "all SMs of device " + std::to_string(device) + " are others' alone");
    }
    member.part_ = contexts_.find(device, set);
    if (member.part_ != nullptr) return Status();
  }
  SmPart made;
  Status status;
  const auto make = [&] {
    status = contexts_.make(device, set, &made);
    return status.code();
  };
  const std::optional<CUresult> result =
      gate_.run_quiescent({GatedCall::kGreenCreate, device, client, Patience::kUnlessStuck}, make);
  if (!result) {
    put_off(member, client);
    return Status();
  }
  if (status.ok()) status = check(*result, "cuGreenCtxCreate");
  if (!status.ok()) {
    leave(member);
    return status;
  }
  // Meanwhile it may have been given another, or all.
  const MutexLock lock(mutex_);
  if (member.part_ == nullptr && !member.wish_.assignment.is_whole_device) member.part_ = made;
  return Status();
}

// To make the green context the driver would wait for a program, which may wait for this one.
void SmPartitions::put_off(Member& member, const GateClient* client) {
  log("Session " + std::to_string(client == nullptr ? 0 : client->session) +
      " runs on all SMs at first, not on those that it is to have: to make the set of them waits " +
      "for work that may not end");
  MissingSets missing;
  {
    const MutexLock lock(mutex_);
    const SmSet& set = member.wish_.assignment.set;
    if (lacks_set(member, set)) missing.push_back({member.device, set});
  }
  make_missing(missing);
}

void SmPartitions::leave(Member& member) {
  const MutexLock lock(mutex_);
  leave_locked(member);
}

void SmPartitions::leave_locked(Member& member) {
  OfDevice& of = of_[member.device];
  if (std::erase(of.members, &member) == 0) return;
  of.is_shared = of.members.size() > 1;
  plan_.remove(member.wish_);
  member.part_ = nullptr;
}

// service() may have looked at the demand before the last note() and have changed the set after it.
SmPart SmPartitions::part(Member& member, uint64_t now) {
  const MutexLock lock(mutex_);
  if (needs_more(member, now)) lift_restriction_locked(member);
  return member.part_;
}

void SmPartitions::set(Member& member, const SmTerms& terms) {
  MissingSets missing;
  {
    const MutexLock lock(mutex_);
    SmTerms& current = member.wish_.terms;
    if (current == terms || !divide_locked(member.device).ok()) return;
    const bool same_lease = current.reservation == terms.reservation && current.rank == terms.rank;
    if (!same_lease) member.changes_.fetch_add(1, std::memory_order_release);
    current = terms;
    apply_locked(member.device, &missing);
  }
  make_missing(missing);
}

void SmPartitions::change(const SessionGroup& group) {
  MissingSets missing;
  {
    const MutexLock lock(mutex_);
    for (uint32_t device = 0; device < devices_.count(); ++device) {
      const bool is_here = plan_.has_group(device, group);
      if (is_here && divide_locked(device).ok()) apply_locked(device, &missing);
    }
  }
  make_missing(missing);
}

// ---- Putting the plan into force ----------------------------------------------------------------

void SmPartitions::give_locked(Member& member, SmPart part) {
  if (part == member.part_) return;
  member.part_ = std::move(part);
  member.changes_.fetch_add(1, std::memory_order_release);
}

// The member is to have that, and has something else.
bool SmPartitions::lacks_set(const Member& member, const SmSet& set) {
  const SmAssignment& assignment = member.wish_.assignment;
  if (assignment.is_whole_device || assignment.set != set) return false;
  if (set.sms == 0) return false;  // nothing is left for it: it keeps what it has
  return member.part_ == nullptr || member.part_->set != set;
}

void SmPartitions::apply_locked(uint32_t device, MissingSets* missing) {
  plan_.assign_all(device);
  for (Member* member : of_[device].members) {
    const SmAssignment& assignment = member->wish_.assignment;
    member->restriction_.store(assignment.restriction, std::memory_order_relaxed);
    if (assignment.is_whole_device) {
      give_locked(*member, nullptr);
    } else if (lacks_set(*member, assignment.set)) {
      SmPart there = contexts_.find(device, assignment.set);
      if (there != nullptr) {
        give_locked(*member, std::move(there));
      } else if (std::ranges::find(*missing, Missing{device, assignment.set}) == missing->end()) {
        missing->push_back({device, assignment.set});
      }
    }
  }
}

// Green contexts are made at the next quiescence of their device.
void SmPartitions::make_missing(const MissingSets& missing) {
  for (const Missing& one : missing) {
    gate_.defer(
        GatedCall::kGreenCreate, one.device,
        [weak = weak_from_this(), one] {
          if (const auto self = weak.lock(); self != nullptr) self->make(one);
          return CUDA_SUCCESS;
        },
        ContextGate::Urgency::kSoon);
  }
}

// Makes nothing if no member is to have the set any more.
void SmPartitions::make(const Missing& missing) {
  const std::vector<Member*>& members = of_[missing.device].members;
  const auto lacks_it = [&](const Member* member) { return lacks_set(*member, missing.set); };
  {
    const MutexLock lock(mutex_);
    if (std::ranges::none_of(members, lacks_it)) return;
  }
  SmPart made;
  if (const Status status = contexts_.make(missing.device, missing.set, &made); !status.ok()) {
    log("A set of SMs can't be made, and those who should have it keep what they have: " +
        status.message());
    return;
  }
  const MutexLock lock(mutex_);
  for (Member* member : members) {
    if (lacks_it(member)) give_locked(*member, made);
  }
}

// ---- SMs that are kept for some -----------------------------------------------------------------

Result<uint32_t> SmPartitions::reserve(uint32_t number, const SmPlan::Reserve& wanted) {
  MissingSets missing;
  uint32_t reserved = 0;
  {
    const MutexLock lock(mutex_);
    OPENMPS_RETURN_IF_ERROR(divide_locked(wanted.device));
    const Result<uint32_t> kept = plan_.reserve(number, wanted);
    if (!kept.ok()) return kept.status();
    reserved = *kept;
    apply_locked(wanted.device, &missing);
  }
  make_missing(missing);
  return reserved;
}

void SmPartitions::release(uint32_t number) {
  MissingSets missing;
  {
    const MutexLock lock(mutex_);
    const auto found = plan_.reservations().find(number);
    if (found == plan_.reservations().end()) return;
    const uint32_t device = found->second.device;
    plan_.reservations().erase(found);
    apply_locked(device, &missing);
  }
  make_missing(missing);
}

bool SmPartitions::keeps(uint32_t number) {
  const MutexLock lock(mutex_);
  return plan_.reservations().contains(number);
}

bool SmPartitions::keeps_some(uint32_t device) {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(plan_.reservations(), [device](const auto& entry) {
    return !entry.second.is_for_ranks && entry.second.device == device;
  });
}

// From the last group on: SMs that fill no group are of the least use to others.
void SmPartitions::prepare_for_ranks(uint32_t device, uint32_t sms) {
  OfDevice& of = of_[device];
  SmSet others;
  {
    const MutexLock lock(mutex_);
    if (!divide_locked(device).ok()) return;
    const SmLayout& layout = plan_.layout(device);
    const uint32_t wanted = std::min(sms != 0 ? sms : layout.sms / kShareForRanks, layout.sms);
    for (size_t i = layout.group_sms.size(); i-- > 1 && layout.sms_of(of.for_ranks) < wanted;) {
      of.for_ranks.set(i);
    }
    if (of.for_ranks.none()) return;
    others = layout.set_of(layout.all_groups() & ~of.for_ranks);
  }
  prepare(device, {&others, 1});
}

void SmPartitions::keep_for_ranks(uint32_t device) {
  MissingSets missing;
  {
    const MutexLock lock(mutex_);
    OfDevice& of = of_[device];
    if (of.lease_of_ranks != nullptr || of.for_ranks.none()) return;
    of.lease_of_ranks = plan_.reserve_for_ranks(device, of.for_ranks);
    for (Member* member : of.members) member->changes_.fetch_add(1, std::memory_order_release);
    apply_locked(device, &missing);
  }
  make_missing(missing);
}

// As many as may be: the driver splits off whole steps, and leaves the few.
void SmPartitions::prepare_few(uint32_t device) {
  const MutexLock lock(mutex_);
  if (!divide_locked(device).ok()) return;
  SmLayout& layout = plan_.layout(device);
  const uint32_t least = layout.sms - layout.sms / kShareOfFew;
  const uint32_t remaining = (least + layout.step - 1) / layout.step * layout.step;
  if (remaining >= layout.sms || !contexts_.split_off_few(device, remaining)) return;
  SmLayout divided = layout;
  divided.remaining_sms = remaining;
  divided.few_sms = layout.sms - remaining;
  const SmSet sets[] = {divided.remaining(), divided.few()};
  if (prepare(device, sets)) layout = divided;
}

bool SmPartitions::prepare(uint32_t device, std::span<const SmSet> sets) {
  for (const SmSet& set : sets) {
    SmPart made;
    if (const Status status = contexts_.make(device, set, &made); !status.ok()) {
      log("SMs for those who want short answers: a set can't be made: " + status.message());
      return false;
    }
    of_[device].prepared.push_back(std::move(made));
  }
  return true;
}

std::shared_ptr<Lease> SmPartitions::lease(const Member& member) {
  const MutexLock lock(mutex_);
  const SmTerms& terms = member.wish_.terms;
  if (const SmReservation* own = plan_.reservation_of(member.device, terms); own != nullptr) {
    return own->lease;
  }
  const auto ranks = plan_.reservations().find(SmPlan::kRanksNumber + member.device);
  const bool has_lower = terms.rank < Rank::kBestEffort;
  return ranks != plan_.reservations().end() && has_lower ? ranks->second.lease : nullptr;
}

// ---- What work needs ----------------------------------------------------------------------------

// Leaves the other members, and green contexts that are missing, to service(): the caller may be
// between the gate's enter() and leave().
void SmPartitions::note(Member& member, const Demand& demand, uint64_t now) {
  const uint32_t device = member.device;
  member.demand_.note(demand, few(device), now);
  const bool is_long = demand.ns >= Demand::kLongNs;
  if (is_long && of_[device].is_shared.load(std::memory_order_relaxed)) watch(device);
  if (!needs_more(member, now)) [[likely]]
    return;
  {
    const MutexLock lock(mutex_);
    lift_restriction_locked(member);
  }
  wake_();
}

void SmPartitions::watch(uint32_t device) {
  std::atomic<bool>& is_watched = of_[device].is_watched;
  if (few(device) == 0 || is_watched.load(std::memory_order_relaxed)) return;
  if (!is_watched.exchange(true)) wake_();
}

// The member has had work of late for which what it is to have for now is not enough.
bool SmPartitions::needs_more(const Member& member, uint64_t now) {
  const auto had = [&](RecentDemand::Kind kind) { return member.demand_.had(kind, now); };
  switch (member.restriction_.load(std::memory_order_relaxed)) {
    case Restriction::kNone: return false;
    case Restriction::kFewSms: return had(RecentDemand::kWide);
    case Restriction::kRemainingSms: return had(RecentDemand::kWhole) || had(RecentDemand::kAllSms);
    case Restriction::kExcludedSms: return had(RecentDemand::kWhole);
  }
  return false;
}

void SmPartitions::lift_restriction_locked(Member& member) {
  SmWish& wish = member.wish_;
  wish.needs_whole_device = true;
  wish.place = SmSet::Kind::kGroups;
  plan_.assign(wish);
  member.restriction_ = wish.assignment.restriction;
  if (wish.assignment.is_whole_device) give_locked(member, nullptr);
  of_[member.device].is_stale |= !wish.assignment.is_whole_device;
}

// Whether it has changed who keeps off the SMs, or what a session of lower rank may not do without.
bool SmPartitions::review_reservation_locked(SmReservation& reservation, uint64_t now,
                                             uint64_t* next) {
  const uint32_t device = reservation.device;
  const Lease::Review review =
      reservation.is_for_ranks
          ? reservation.lease->review_ranks(
                now, [this, device](Rank from) { return crowded_(device, from); })
          : reservation.lease->review(now);
  *next = review.next_ns;
  bool changed =
      std::exchange(reservation.excludes_from, review.excludes_from) != review.excludes_from;
  if (!reservation.is_for_ranks || !review.excludes_from.has_value()) return changed;
  for (Member* member : of_[device].members) {
    SmWish& wish = member->wish_;
    const bool needs_whole = member->demand_.had(RecentDemand::kWhole, now);
    changed |= std::exchange(wish.needs_whole_device, needs_whole) != needs_whole;
    changed |= std::exchange(wish.place, SmSet::Kind::kGroups) != SmSet::Kind::kGroups;
  }
  return changed;
}

// Whether it has changed where the work of a session goes. Reservations go first.
bool SmPartitions::review_small_work_locked(uint32_t device, uint64_t now) {
  OfDevice& of = of_[device];
  std::vector<SmallWorkReview::Session> sessions;
  for (Member* member : of.members) {
    sessions.push_back({&member->demand_, member->wish_.assignment.has_limit()});
  }
  const bool may_divide = std::ranges::none_of(plan_.reservations(), [device](const auto& entry) {
    const SmReservation& reservation = entry.second;
    return reservation.device == device &&
           (!reservation.is_for_ranks || reservation.excludes_from.has_value());
  });
  const bool is_crowded = may_divide && crowded_(device, Rank::kLatency);
  if (!of.small_work.review(sessions, may_divide, is_crowded, few(device), now)) {
    of.is_watched = false;
  }
  bool changed = false;
  for (size_t i = 0; i < sessions.size(); ++i) {
    const SmSet::Kind place = sessions[i].place;
    changed |= std::exchange(of.members[i]->wish_.place, place) != place;
  }
  return changed;
}

uint64_t SmPartitions::service(uint64_t now) {
  MissingSets missing;
  uint64_t next = 0;
  const auto look_at = [&next](uint64_t ns) {
    if (ns != 0 && (next == 0 || ns < next)) next = ns;
  };
  {
    const MutexLock lock(mutex_);
    const auto apply = [&](uint32_t device, bool changed) {
      mutex_.assert_held();
      changed |= std::exchange(of_[device].is_stale, false);
      if (changed) apply_locked(device, &missing);
    };
    for (auto& [number, reservation] : plan_.reservations()) {
      if (reservation.lease == nullptr) continue;
      uint64_t look = 0;
      apply(reservation.device, review_reservation_locked(reservation, now, &look));
      look_at(look);
    }
    for (uint32_t device = 0; device < devices_.count(); ++device) {
      if (!of_[device].is_watched) continue;
      apply(device, review_small_work_locked(device, now));
      if (of_[device].is_watched) look_at(now + kCrowdLookNs);
    }
  }
  make_missing(missing);
  return next;
}

}  // namespace openmps::worker
