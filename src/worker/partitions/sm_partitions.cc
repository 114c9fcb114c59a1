// SPDX-License-Identifier: Apache-2.0
// See sm_partitions.h.
#include "worker/partitions/sm_partitions.h"

#include <algorithm>
#include <optional>
#include <string>

#include "worker/device/driver_check.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// Of a device one SM of so many is for ranks: 8 of an H200's 132.
constexpr uint32_t kShareForRanks = 16;
// No more than one of so many, 4 of these, are few: a session that has more to itself slows the
// others (12 of 132 cost n-body 65536 a third, decision 28).
constexpr uint32_t kShareOfFew = 32;
// Others have no work if they have had none for so long: some times what a program needs between
// two pieces of work, and what it costs to move streams and graphs.
constexpr uint64_t kOthersIdleNs = 20'000'000;
// The time between two looks at whether they have.
constexpr uint64_t kBorrowLookNs = 5'000'000;

// The earliest of two times; 0: never.
void look_at(uint64_t ns, uint64_t* next) {
  if (ns != 0 && (*next == 0 || ns < *next)) *next = ns;
}

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
  SmLayout& layout = plan_.layout(device);
  return layout.is_divided() ? Status() : contexts_.divide(device, &layout);
}

// ---- Members ------------------------------------------------------------------------------------

// The SMs count as used before the green context exists, so that sessions which come meanwhile get
// others.
Status SmPartitions::join(Member& member, const GateClient* client) {
  const uint32_t device = member.wish_.device;
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
    const bool borrows = terms.borrows || (terms.group != nullptr && terms.group->borrows());
    if (borrows) wake_();
    const SmAssignment& assignment = member.wish_.assignment;
    member.too_few_for_ = assignment.too_few_for;
    // What its partition borrows it gets like the other members, once that is there.
    set = plan_.own_set(member.wish_);
    const bool has_borrowed = plan_.has_borrowed(member.wish_);
    if (assignment.is_whole_device && !has_borrowed) return Status();
    member.part_ = contexts_.find(device, set);
    if (has_borrowed) {
      of.is_stale = true;
      wake_();
    }
    if (member.part_ != nullptr) return Status();
  }
  if (set.sms == 0) {
    leave(member);
    return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                  "all SMs of device " + std::to_string(device) + " are others' alone");
  }
  Result<SmPart> made = SmPart();
  const auto make = [&] {
    made = contexts_.make(device, set);
    return made.status().code();
  };
  const std::optional<CUresult> result =
      gate_.run_quiescent({GatedCall::kGreenCreate, device, client, Patience::kUnlessStuck}, make);
  // To make the green context the driver would wait for a program, which may wait for this one.
  if (!result) {
    log("Session " + std::to_string(client == nullptr ? 0 : client->session) +
        " runs on all SMs at first, not on those that it is to have: to make the set of them " +
        "waits for work that may not end");
    make_missing(device);
    return Status();
  }
  if (*result != CUDA_SUCCESS) {
    leave(member);
    return made.ok() ? check(*result, "cuGreenCtxCreate") : made.status();
  }
  // Meanwhile it may have been given another, or all.
  const MutexLock lock(mutex_);
  const bool has_borrowed = plan_.has_borrowed(member.wish_);
  if (member.part_ == nullptr && (!member.wish_.assignment.is_whole_device || has_borrowed)) {
    member.part_ = *made;
  }
  if (has_borrowed) {
    of_[device].is_stale = true;
    wake_();
  }
  return Status();
}

void SmPartitions::connect(std::function<void()> wake, Crowded crowded,
                           PerDevice<FairShares>* shares) {
  wake_ = std::move(wake);
  crowded_ = std::move(crowded);
  shares_ = shares;
  for (uint32_t device = 0; shares != nullptr && device < devices_.count(); ++device) {
    (*shares)[device].on_others_work(wake_);
  }
}

void SmPartitions::leave(Member& member) {
  const MutexLock lock(mutex_);
  OfDevice& of = of_[member.wish_.device];
  if (std::erase(of.members, &member) == 0) return;
  of.is_shared = of.members.size() > 1;
  plan_.remove(member.wish_);
  member.part_ = nullptr;
}

// service() may have looked at the demand before the last note() and have changed the set after it.
SmPart SmPartitions::part(Member& member, uint64_t now) {
  const MutexLock lock(mutex_);
  if (member.needs_more(now)) lift_restriction_locked(member);
  return member.part_;
}

void SmPartitions::set(Member& member, const SmTerms& terms) {
  const uint32_t device = member.wish_.device;
  {
    const MutexLock lock(mutex_);
    SmTerms& current = member.wish_.terms;
    if (current == terms || !divide_locked(device).ok()) return;
    const bool same_lease = current.reservation == terms.reservation && current.rank == terms.rank;
    if (!same_lease) member.changes_.fetch_add(1, std::memory_order_release);
    current = terms;
    apply_locked(device);
  }
  make_missing(device);
  wake_();  // it may borrow from now on, or no longer
}

void SmPartitions::change(const SessionGroup& group) {
  for (uint32_t device = 0; device < devices_.count(); ++device) {
    {
      const MutexLock lock(mutex_);
      if (!plan_.has_group(device, group) || !divide_locked(device).ok()) continue;
      apply_locked(device);
    }
    make_missing(device);
  }
  wake_();  // it may borrow from now on, or no longer
}

SmPart SmPartitions::lasting(const Member& member, SmPart part) {
  const MutexLock lock(mutex_);
  if (!plan_.has_borrowed(member.wish_)) return part;
  SmPart own = member.own_ != nullptr
                   ? member.own_
                   : contexts_.find(member.wish_.device, plan_.own_set(member.wish_));
  return own != nullptr ? own : part;
}

// ---- Putting the plan into force ----------------------------------------------------------------

void SmPartitions::give_locked(Member& member, SmPart part) {
  if (part == member.part_) return;
  if (member.own_ == nullptr && plan_.is_lifted(member.wish_)) member.own_ = member.part_;
  member.part_ = std::move(part);
  member.changes_.fetch_add(1, std::memory_order_release);
}

// The member is to have a set, and has something else. Where nothing is left for it, it keeps what
// it has.
bool SmPartitions::lacks_set(const Member& member) {
  const SmAssignment& assignment = member.wish_.assignment;
  if (assignment.is_whole_device || assignment.set.sms == 0) return false;
  return member.part_ == nullptr || member.part_->set != assignment.set;
}

void SmPartitions::apply_locked(uint32_t device) {
  plan_.assign_all(device);
  for (Member* member : of_[device].members) {
    const SmAssignment& assignment = member->wish_.assignment;
    member->too_few_for_.store(assignment.too_few_for, std::memory_order_relaxed);
    if (assignment.is_whole_device) {
      give_locked(*member, nullptr);
    } else if (lacks_set(*member)) {
      SmPart there = contexts_.find(device, assignment.set);
      if (there != nullptr) give_locked(*member, std::move(there));
    }
    if (!plan_.is_lifted(member->wish_)) member->own_ = nullptr;
  }
}

// Green contexts are made at the next quiescence of their device.
void SmPartitions::make_missing(uint32_t device) {
  std::vector<SmSet> missing;
  {
    const MutexLock lock(mutex_);
    for (const Member* member : of_[device].members) {
      const SmSet& set = member->wish_.assignment.set;
      const bool is_listed = std::ranges::find(missing, set) != missing.end();
      if (lacks_set(*member) && !is_listed) missing.push_back(set);
    }
  }
  for (const SmSet& set : missing) {
    gate_.defer(
        GatedCall::kGreenCreate, device,
        [weak = weak_from_this(), device, set] {
          if (const auto self = weak.lock(); self != nullptr) self->make(device, set);
          return CUDA_SUCCESS;
        },
        ContextGate::Urgency::kSoon);
  }
}

// Makes nothing if no member is to have the set any more.
void SmPartitions::make(uint32_t device, const SmSet& set) {
  const std::vector<Member*>& members = of_[device].members;
  const auto lacks_it = [&](const Member* member) {
    return member->wish_.assignment.set == set && lacks_set(*member);
  };
  {
    const MutexLock lock(mutex_);
    if (std::ranges::none_of(members, lacks_it)) return;
  }
  const Result<SmPart> made = contexts_.make(device, set);
  if (!made.ok()) {
    log("A set of SMs can't be made; the sessions that should have it keep their SMs: " +
        made.status().message());
    return;
  }
  const MutexLock lock(mutex_);
  for (Member* member : members) {
    if (lacks_it(member)) give_locked(*member, *made);
  }
}

// ---- SMs that are kept for some -----------------------------------------------------------------

Result<uint32_t> SmPartitions::reserve(uint32_t number, const SmPlan::Reserve& wanted) {
  Result<uint32_t> reserved = 0;
  {
    const MutexLock lock(mutex_);
    OPENMPS_RETURN_IF_ERROR(divide_locked(wanted.device));
    reserved = plan_.reserve(number, wanted);
    if (!reserved.ok()) return reserved;
    apply_locked(wanted.device);
  }
  make_missing(wanted.device);
  return reserved;
}

void SmPartitions::release(uint32_t number) {
  uint32_t device = 0;
  {
    const MutexLock lock(mutex_);
    const auto found = plan_.reservations().find(number);
    if (found == plan_.reservations().end()) return;
    device = found->second.device;
    plan_.reservations().erase(found);
    apply_locked(device);
  }
  make_missing(device);
}

bool SmPartitions::keeps(uint32_t number) {
  const MutexLock lock(mutex_);
  return plan_.reservations().contains(number);
}

bool SmPartitions::keeps_some(uint32_t device) {
  const MutexLock lock(mutex_);
  return keeps_some_locked(device);
}

bool SmPartitions::keeps_some_locked(uint32_t device) {
  return std::ranges::any_of(plan_.reservations(),
                             [device](const auto& entry) { return entry.second.device == device; });
}

// From the last group on: SMs that fill no group are of the least use to others.
void SmPartitions::prepare_for_ranks(uint32_t device, uint32_t sms) {
  const MutexLock lock(mutex_);
  if (!divide_locked(device).ok()) return;
  const SmLayout& layout = plan_.layout(device);
  SmGroups& groups = plan_.for_ranks(device).groups;
  const uint32_t wanted = std::min(sms != 0 ? sms : layout.sms / kShareForRanks, layout.sms);
  for (size_t i = layout.group_sms.size(); i-- > 1 && layout.sms_of(groups) < wanted;) {
    groups.set(i);
  }
  if (groups.any()) prepare(device, layout.set_of(layout.all_groups() & ~groups));
}

void SmPartitions::keep_for_ranks(uint32_t device) {
  const MutexLock lock(mutex_);
  OfDevice& of = of_[device];
  if (plan_.for_ranks(device).groups.none() || std::exchange(of.keeps_for_ranks, true)) return;
  for (Member* member : of.members) member->changes_.fetch_add(1, std::memory_order_release);
}

// As many as may be: the driver splits off whole steps, and leaves the few.
void SmPartitions::prepare_few(uint32_t device) {
  const MutexLock lock(mutex_);
  if (!divide_locked(device).ok()) return;
  SmLayout& layout = plan_.layout(device);
  const uint32_t least = layout.sms - layout.sms / kShareOfFew;
  const uint32_t remaining = (least + layout.step - 1) / layout.step * layout.step;
  if (remaining >= layout.sms || !contexts_.split_off_few(device, remaining)) return;
  layout.few_sms = layout.sms - remaining;
  if (!prepare(device, layout.remaining()) || !prepare(device, layout.few())) layout.few_sms = 0;
}

bool SmPartitions::prepare(uint32_t device, const SmSet& set) {
  Result<SmPart> made = contexts_.make(device, set);
  if (made.ok()) {
    of_[device].prepared.push_back(*std::move(made));
  } else {
    log("The SMs kept for sessions of higher rank: their set can't be made: " +
        made.status().message());
  }
  return made.ok();
}

std::shared_ptr<Lease> SmPartitions::lease(const Member& member) {
  const MutexLock lock(mutex_);
  const SmTerms& terms = member.wish_.terms;
  const SmReservation* const own = plan_.reservation_of(member.wish_.device, terms);
  if (own != nullptr) return own->lease;
  const OfDevice& of = of_[member.wish_.device];
  const bool has_lower = terms.rank < Rank::kBestEffort;
  return of.keeps_for_ranks && has_lower ? of.lease_of_ranks : nullptr;
}

// ---- What work needs ----------------------------------------------------------------------------

// Leaves the other members, and green contexts that are missing, to service(): the caller may be
// between the gate's enter() and leave().
void SmPartitions::note(Member& member, const Demand& demand, uint64_t now) {
  const uint32_t device = member.wish_.device;
  member.demand_.note(demand, few(device), now);
  const bool is_long = demand.ns >= Demand::kLongNs;
  if (is_long && of_[device].is_shared.load(std::memory_order_relaxed)) watch(device);
  if (!member.needs_more(now)) [[likely]]
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

void SmPartitions::lift_restriction_locked(Member& member) {
  SmWish& wish = member.wish_;
  wish.needs_whole_device = true;
  wish.place = SmSet::Kind::kGroups;
  plan_.assign(wish);
  member.too_few_for_ = wish.assignment.too_few_for;
  if (wish.assignment.is_whole_device) give_locked(member, nullptr);
  of_[wish.device].is_stale |= !wish.assignment.is_whole_device;
}

// Whether it has changed who keeps off the SMs that are reserved, or what a session of lower rank
// may not do without.
bool SmPartitions::review_reservations_locked(uint32_t device, uint64_t now, uint64_t* next) {
  bool changed = false;
  for (auto& [number, reservation] : plan_.reservations()) {
    if (reservation.device != device || reservation.lease == nullptr) continue;
    // A kernel may take longer than work counts as recent.
    for (const Member* member : of_[device].members) {
      const bool is_its = plan_.reservation_of(device, member->wish_.terms) == &reservation;
      if (shares_ == nullptr || !is_its || !(*shares_)[device].works(member->session())) continue;
      reservation.lease->use(member->wish_.terms.rank, now);
    }
    const uint64_t end_ns = reservation.lease->review(now);
    const bool is_lent = end_ns == 0;
    changed |= std::exchange(reservation.is_lent, is_lent) != is_lent;
    look_at(end_ns, next);
  }
  const Lease::RanksReview review = of_[device].lease_of_ranks->review_ranks(
      now, [this, device](Rank from) { return crowded_(device, from); });
  look_at(review.next_ns, next);
  std::optional<Rank>& from = plan_.for_ranks(device).excludes_from;
  changed |= std::exchange(from, review.excludes_from) != review.excludes_from;
  if (!from.has_value()) return changed;
  for (Member* member : of_[device].members) {
    SmWish& wish = member->wish_;
    const bool needs_whole = member->demand_.had(RecentDemand::kWhole, now);
    changed |= std::exchange(wish.needs_whole_device, needs_whole) != needs_whole;
    changed |= std::exchange(wish.place, SmSet::Kind::kGroups) != SmSet::Kind::kGroups;
  }
  return changed;
}

FairShares::Owners SmPartitions::sessions_inside_locked(uint32_t device) {
  FairShares::Owners inside;
  for (const Member* member : of_[device].members) {
    const bool has_own = plan_.reservation_of(device, member->wish_.terms) != nullptr;
    if (has_own) inside.push_back(member->session());
  }
  return inside;
}

// Whether a session, a group or a partition has others' SMs from now on, or no longer. Who might
// get some is known to FairShares before it is asked, so that no work of others begins unseen. Work
// on reserved SMs is nobody's hindrance: these are lent only while there is none (Lease).
bool SmPartitions::review_borrowers_locked(uint32_t device, uint64_t now, uint64_t* next) {
  std::vector<std::pair<SmWish*, const void*>> wishes;
  for (auto& [group, together] : plan_.groups(device)) {
    if (group->borrows() && group->sms(device) != 0) {
      wishes.emplace_back(&together, group);
    } else if (together.is_lifted) {
      wishes.emplace_back(&together, nullptr);
    }
  }
  for (Member* member : of_[device].members) {
    SmWish& wish = member->wish_;
    if (wish.whole != nullptr || wish.terms.group != nullptr) continue;
    if (wish.terms.borrows && wish.terms.sms != 0) {
      wishes.emplace_back(&wish, member->owner());
    } else if (wish.is_lifted) {
      wishes.emplace_back(&wish, nullptr);
    }
  }
  bool may_partitions = false;  // have others' SMs, reserved or not
  bool is_some_lent = false;
  for (const auto& [number, reservation] : plan_.reservations()) {
    if (reservation.device != device) continue;
    is_some_lent |= reservation.is_lent;
    may_partitions |= reservation.most_sms != 0 && !reservation.is_lent;
  }
  OfDevice& of = of_[device];
  const bool may_any = !wishes.empty() || may_partitions;
  if (shares_ == nullptr || (!may_any && !of.has_borrowers)) return false;
  FairShares& shares = (*shares_)[device];
  const FairShares::Owners inside = sessions_inside_locked(device);
  const auto with_inside = [&inside](const void* owner) {
    FairShares::Owners owners = inside;
    owners.push_back(owner);
    return owners;
  };
  std::vector<FairShares::Owners> borrowers;
  for (const auto& [wish, owner] : wishes) {
    if (owner != nullptr) borrowers.push_back(with_inside(owner));
  }
  const bool may_sessions = !borrowers.empty();
  if (may_partitions) borrowers.push_back(inside);
  shares.set_borrowers(borrowers);
  borrowers.clear();
  bool changed = false;
  for (const auto& [wish, owner] : wishes) {
    const bool lifts =
        owner != nullptr && !shares.others_work(with_inside(owner), now - kOthersIdleNs);
    changed |= std::exchange(wish->is_lifted, lifts) != lifts;
    if (lifts) borrowers.push_back(with_inside(owner));
  }
  bool looks = may_sessions && borrowers.empty();
  const bool has_free = may_partitions && !shares.others_work(inside, now - kOthersIdleNs);
  for (auto& [number, reservation] : plan_.reservations()) {
    if (reservation.device != device || reservation.most_sms == 0) continue;
    const bool borrows = has_free && !reservation.is_lent;
    changed |= std::exchange(reservation.has_free, borrows) != borrows;
  }
  if (has_free) borrowers.push_back(inside);
  looks |= may_partitions && !has_free;
  if (looks) look_at(now + kBorrowLookNs, next);
  of.has_borrowers = !borrowers.empty() || may_partitions;
  shares.set_borrowers(std::move(borrowers), may_partitions && is_some_lent);
  return changed;
}

// Whether it has changed where the work of a session goes. Reservations go first.
bool SmPartitions::review_small_work_locked(uint32_t device, uint64_t now) {
  OfDevice& of = of_[device];
  std::vector<SmallWorkReview::Session> sessions;
  for (Member* member : of.members) {
    sessions.push_back({&member->demand_, member->wish_.assignment.has_limit()});
  }
  const bool may_divide =
      !keeps_some_locked(device) && !plan_.for_ranks(device).excludes_from.has_value();
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
  uint64_t next = 0;
  for (uint32_t device = 0; device < devices_.count(); ++device) {
    OfDevice& of = of_[device];
    bool changed = false;
    {
      const MutexLock lock(mutex_);
      changed = std::exchange(of.is_stale, false);
      changed |= review_reservations_locked(device, now, &next);
      changed |= review_borrowers_locked(device, now, &next);
      if (changed) apply_locked(device);
      if (of.is_watched) {
        if (review_small_work_locked(device, now)) {
          apply_locked(device);
          changed = true;
        }
        if (of.is_watched) look_at(now + kCrowdLookNs, &next);
      }
    }
    if (changed) make_missing(device);
  }
  return next;
}

}  // namespace openmps::worker
