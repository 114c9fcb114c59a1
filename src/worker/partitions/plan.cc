// SPDX-License-Identifier: Apache-2.0
// See plan.h.
#include "worker/partitions/plan.h"

#include <algorithm>
#include <string>
#include <utility>

namespace openmps::worker {

void SmPlan::set_groups(uint32_t device, std::vector<uint32_t> group_sms, bool has_partial_group) {
  OfDevice& of = of_[device];
  of.users.assign(group_sms.size(), 0);
  of.layout.group_sms = std::move(group_sms);
  of.layout.has_partial_group = has_partial_group;
}

const SmReservation* SmPlan::reservation_of(uint32_t device, const SmTerms& terms) const {
  const auto own = reservations_.find(terms.reservation);
  return own != reservations_.end() && own->second.device == device ? &own->second : nullptr;
}

// The groups from which a session gets SMs: those of its reservation, or those that no reservation
// keeps from it now. `with_excluded`: the SMs that are reserved for higher ranks count as its own.
SmGroups SmPlan::pool(uint32_t device, const SmTerms& terms, bool with_excluded) const {
  const auto own = reservations_.find(terms.reservation);
  if (own != reservations_.end()) {
    if (own->second.device == device) return own->second.groups;
    if (own->second.is_static) return {};
  }
  SmGroups pool = of_[device].layout.all_groups();
  for (const auto& [number, reservation] : reservations_) {
    if (with_excluded && reservation.is_for_ranks) continue;
    if (reservation.device == device && reservation.excludes(terms.rank)) {
      pool &= ~reservation.groups;
    }
  }
  return pool;
}

SmAssignment SmPlan::choose_unlimited(const SmWish& wish) const {
  if (reservations_.empty() && wish.place == SmSet::Kind::kGroups) return {};
  const SmLayout& layout = of_[wish.device].layout;
  const SmGroups free = pool(wish.device, wish.terms, wish.needs_whole_device);
  if (free != layout.all_groups()) {
    const bool is_excluded = pool(wish.device, wish.terms, true) != free;
    return {.is_whole_device = false,
            .restriction = is_excluded ? Restriction::kExcludedSms : Restriction::kNone,
            .set = layout.set_of(free)};
  }
  switch (wish.place) {
    case SmSet::Kind::kGroups: break;
    case SmSet::Kind::kFew:
      return {.is_whole_device = false, .restriction = Restriction::kFewSms, .set = layout.few()};
    case SmSet::Kind::kRemaining:
      return {.is_whole_device = false,
              .restriction = Restriction::kRemainingSms,
              .set = layout.remaining()};
  }
  return {};
}

// The partial group counts as one of the groups, but never alone: there is no room in it for
// clusters of many blocks. What it has more than the others is not used.
SmAssignment SmPlan::choose(const SmWish& wish, const SmAssignment* whole) const {
  const OfDevice& of = of_[wish.device];
  const SmLayout& layout = of.layout;
  const uint32_t limit = wish.terms.sms;
  const bool is_limited = limit != 0 && limit < (whole != nullptr ? whole->set.sms : layout.sms);
  if (!is_limited && whole == nullptr) return choose_unlimited(wish);
  const SmSet all =
      whole != nullptr ? whole->set : layout.set_of(pool(wish.device, wish.terms, false));
  SmAssignment chosen{.is_whole_device = false, .is_limited = is_limited, .set = all};
  if (!is_limited || limit >= all.sms) return chosen;
  const uint32_t count = std::max(1u, limit / layout.step);
  const bool takes_partial = count > 1 && layout.group_sms.back() >= layout.step;
  SmGroups usual = all.groups;
  if (layout.has_partial_group && !takes_partial) usual &= ~layout.last_group();
  chosen.set.groups =
      least_used(of.users, count, usual.any() ? usual : all.groups, wish.assignment.set.groups);
  chosen.set.sms = std::min(count * layout.step, layout.sms_of(chosen.set.groups));
  return chosen;
}

void SmPlan::count(uint32_t device, const SmAssignment& assignment, bool used) {
  if (assignment.is_whole_device || !assignment.is_limited) return;
  std::vector<uint32_t>& users = of_[device].users;
  for (size_t group = 0; group < users.size(); ++group) {
    if (assignment.set.groups.test(group)) users[group] += used ? 1 : -1;
  }
}

// Of what the wish is answered with a part; null: of all that its terms leave. A session's own
// reservation goes before its group.
const SmAssignment* SmPlan::whole_of(const SmWish& wish) const {
  if (wish.whole != nullptr) {
    const SmAssignment& of_session = wish.whole->assignment;
    const bool is_placed = of_session.restriction == Restriction::kFewSms ||
                           of_session.restriction == Restriction::kRemainingSms;
    if (!of_session.is_whole_device && !is_placed) return &of_session;
  }
  const auto& groups = of_[wish.device].groups;
  const auto group = groups.find(wish.terms.group);
  const bool is_part = group != groups.end() && group->second.assignment.is_limited &&
                       reservation_of(wish.device, wish.terms) == nullptr;
  return is_part ? &group->second.assignment : nullptr;
}

void SmPlan::assign(SmWish& wish) {
  const SmAssignment* const whole = whole_of(wish);
  count(wish.device, wish.assignment, false);
  wish.assignment = choose(wish, whole);
  // The session counts as the user of the SMs of its contexts.
  if (wish.whole != nullptr && wish.whole->assignment.is_limited) {
    wish.assignment.is_limited = false;
  }
  count(wish.device, wish.assignment, true);
}

// The members' own assignments do not count as used meanwhile: they are answered afterwards.
void SmPlan::assign(uint32_t device, const SessionGroup& group, GroupWish& together) {
  SmWish wish{.device = device,
              .terms = {.sms = group.sms(device), .rank = Rank::kLatency},
              .assignment = together.assignment};
  for (SmWish* member : of_[device].wishes) {
    if (member->terms.group != &group) continue;
    wish.terms.rank = std::max(wish.terms.rank, member->terms.rank);
    count(device, member->assignment, false);
    member->assignment.is_limited = false;
  }
  count(device, together.assignment, false);
  together.assignment = choose(wish, nullptr);
  count(device, together.assignment, true);
}

void SmPlan::assign_all(uint32_t device) {
  OfDevice& of = of_[device];
  for (auto& [group, together] : of.groups) assign(device, *group, together);
  for (SmWish* wish : of.wishes) assign(*wish);
}

void SmPlan::add(SmWish& wish) {
  OfDevice& of = of_[wish.device];
  of.wishes.push_back(&wish);
  if (const SessionGroup* const group = wish.terms.group; group != nullptr) {
    GroupWish& together = of.groups[group];
    if (together.members++ == 0) assign(wish.device, *group, together);
  }
  assign(wish);
}

void SmPlan::remove(SmWish& wish) {
  OfDevice& of = of_[wish.device];
  if (std::erase(of.wishes, &wish) == 0) return;
  count(wish.device, wish.assignment, false);
  wish.assignment = {};
  const auto group = of.groups.find(wish.terms.group);
  if (group != of.groups.end() && --group->second.members == 0) {
    count(wish.device, group->second.assignment, false);
    of.groups.erase(group);
  }
}

// One group at least is left to the others, unless the groups are named, which an operator does who
// divides the whole device.
Result<uint32_t> SmPlan::reserve(uint32_t number, const Reserve& wanted) {
  const auto& [device, sms, lends, named] = wanted;
  if (number == 0 || number >= kRanksNumber || reservations_.contains(number)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "that reservation is there already");
  }
  const OfDevice& of = of_[device];
  const SmLayout& layout = of.layout;
  SmGroups free = layout.all_groups();
  for (const auto& [other, reservation] : reservations_) {
    if (reservation.device == device && !reservation.is_for_ranks) free &= ~reservation.groups;
  }
  if (layout.has_partial_group) free &= ~layout.last_group();
  const SmGroups groups = named.any()
                              ? named & free
                              : least_used(of.users, (sms + layout.step - 1) / layout.step, free);
  const bool others_can = named.any() ? groups == named : (free & ~groups).any();
  const uint32_t reserved = layout.sms_of(groups);
  if (sms == 0 || reserved < sms || !others_can) {
    return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                  "there are no " + std::to_string(sms) + " SMs that others could do without");
  }
  SmReservation& made = reservations_[number];
  made = {.device = device, .groups = groups, .is_static = named.any()};
  if (lends) {
    made.excludes_from = std::nullopt;
    made.lease = std::make_shared<Lease>();
  }
  return reserved;
}

const Lease* SmPlan::reserve_for_ranks(uint32_t device, const SmGroups& groups) {
  SmReservation& made = reservations_[kRanksNumber + device];
  made = {.device = device,
          .groups = groups,
          .is_for_ranks = true,
          .excludes_from = std::nullopt,
          .lease = std::make_shared<Lease>()};
  return made.lease.get();
}

}  // namespace openmps::worker
