// SPDX-License-Identifier: Apache-2.0
// See plan.h.
#include "worker/partitions/plan.h"

#include <algorithm>
#include <string>
#include <utility>

namespace openmps::worker {

const SmReservation* SmPlan::reservation_of(uint32_t device, const SmTerms& terms) const {
  const auto own = reservations_.find(terms.reservation);
  return own != reservations_.end() && own->second.device == device ? &own->second : nullptr;
}

// The groups from which a session gets SMs: those of its reservation, or those that no reservation
// keeps from it now. None where all are reserved: who has only what is lent could not give it back.
// `with_excluded`: the SMs that are reserved for higher ranks count as its own.
SmGroups SmPlan::pool(uint32_t device, const SmTerms& terms, bool with_excluded) const {
  const auto own = reservations_.find(terms.reservation);
  if (own != reservations_.end()) {
    if (own->second.device == device) return own->second.groups;
    if (own->second.is_static) return {};
  }
  const OfDevice& of = of_[device];
  SmGroups pool = of.layout.all_groups();
  SmGroups free = pool;
  for (const auto& [number, reservation] : reservations_) {
    if (reservation.device != device) continue;
    free &= ~reservation.groups;
    if (!reservation.is_lent) pool &= ~reservation.groups;
  }
  if (free.none()) return {};
  const std::optional<Rank>& from = of.for_ranks.excludes_from;
  if (!with_excluded && from.has_value() && terms.rank >= *from) pool &= ~of.for_ranks.groups;
  return pool;
}

SmAssignment SmPlan::choose_unlimited(const SmWish& wish) const {
  const SmLayout& layout = of_[wish.device].layout;
  SmGroups free = pool(wish.device, wish.terms, wish.needs_whole_device);
  const bool is_excluded = pool(wish.device, wish.terms, true) != free;
  const SmReservation* const own = reservation_of(wish.device, wish.terms);
  if (own != nullptr) free |= own->borrowed;
  if (free != layout.all_groups()) {
    return {.is_whole_device = false,
            .too_few_for = is_excluded ? RecentDemand::kWhole : RecentDemand::kNone,
            .set = layout.set_of(free)};
  }
  if (wish.place == SmSet::Kind::kGroups) return {};
  if (wish.place == SmSet::Kind::kFew) {
    return {.is_whole_device = false, .too_few_for = RecentDemand::kWide, .set = layout.few()};
  }
  return {.is_whole_device = false,
          .too_few_for = RecentDemand::kWhole | RecentDemand::kAllSms,
          .set = layout.remaining()};
}

// Of what the wish is answered with a part; null: of all that its terms leave. A session's own
// reservation goes before its group. The limits of session and group are a context's, too, since it
// has a part of what the session has.
const SmAssignment* SmPlan::whole_of(const SmWish& wish) const {
  if (wish.whole != nullptr) {
    return wish.whole->assignment.has_limit() ? &wish.whole->assignment : nullptr;
  }
  const auto& groups = of_[wish.device].groups;
  const auto group = groups.find(wish.terms.group);
  const bool is_part = group != groups.end() && group->second.assignment.is_limited &&
                       reservation_of(wish.device, wish.terms) == nullptr;
  return is_part ? &group->second.assignment : nullptr;
}

// The partial group counts as one of the groups, but never alone: there is no room in it for
// clusters of many blocks. What it has more than the others is not used.
SmAssignment SmPlan::choose(const SmWish& wish) const {
  const OfDevice& of = of_[wish.device];
  const SmLayout& layout = of.layout;
  const SmAssignment* const whole = whole_of(wish);
  const uint32_t limit = wish.terms.sms;
  const bool is_limited =
      !wish.is_lifted && limit != 0 && limit < (whole != nullptr ? whole->set.sms : layout.sms);
  if (!is_limited && whole == nullptr) return choose_unlimited(wish);
  const SmSet all =
      whole != nullptr ? whole->set : layout.set_of(pool(wish.device, wish.terms, false));
  // The session counts as the user of the SMs of its contexts.
  const bool is_counted =
      is_limited && (wish.whole == nullptr || !wish.whole->assignment.is_limited);
  SmAssignment chosen{.is_whole_device = false, .is_limited = is_counted, .set = all};
  if (!is_limited || limit >= all.sms) return chosen;
  const uint32_t count = std::max(1u, limit / layout.step);
  const bool takes_partial = count > 1 && layout.group_sms.back() >= layout.step;
  SmGroups usual = all.groups;
  if (layout.has_partial_group && !takes_partial) usual &= ~layout.last_group();
  // Who has a limit borrows nothing: its SMs are its reservation's, or such as it need not leave.
  if (const SmReservation* const own = reservation_of(wish.device, wish.terms); own != nullptr) {
    usual &= own->groups;
  } else if (!wish.is_lifted) {
    SmGroups lasting = usual;
    for (const auto& [number, other] : reservations_) {
      if (other.device == wish.device && other.is_static) lasting &= ~other.groups;
    }
    if (lasting.count() >= count) usual = lasting;
  }
  chosen.set.groups = least_used(of.users, count, usual.any() ? usual : all.groups, wish.own);
  chosen.set.sms = std::min(count * layout.step, layout.sms_of(chosen.set.groups));
  return chosen;
}

void SmPlan::count(SmWish& wish, const SmGroups& groups) {
  for (size_t group = 0; group < kMostSmGroups; ++group) {
    of_[wish.device].users[group] += int{groups.test(group)} - int{wish.counted.test(group)};
  }
  wish.counted = groups;
}

// The SMs of a wish that is lifted count as used: it has them again at any moment, and their green
// context is there.
void SmPlan::assign(SmWish& wish) {
  count(wish, {});
  wish.assignment = choose(wish);
  if (wish.assignment.is_limited) wish.own = wish.assignment.set.groups;
  const bool is_counted = wish.assignment.is_limited || wish.is_lifted;
  count(wish, is_counted ? wish.own : SmGroups());
}

bool SmPlan::is_lifted(const SmWish& wish) const {
  const auto& groups = of_[wish.device].groups;
  const auto group = groups.find(wish.terms.group);
  return wish.is_lifted || (group != groups.end() && group->second.is_lifted) || has_borrowed(wish);
}

bool SmPlan::has_borrowed(const SmWish& wish) const {
  const SmReservation* const own = reservation_of(wish.device, wish.terms);
  return own != nullptr && own->borrowed.any() && wish.whole == nullptr &&
         !wish.assignment.is_limited;
}

SmSet SmPlan::own_set(const SmWish& wish) const {
  if (!has_borrowed(wish)) return wish.assignment.set;
  return of_[wish.device].layout.set_of(reservation_of(wish.device, wish.terms)->groups);
}

// The members' own assignments do not count as used meanwhile: they are answered afterwards.
void SmPlan::assign_group(const SessionGroup& group, SmWish& together) {
  together.terms = {.sms = group.sms(together.device), .rank = Rank::kLatency};
  for (SmWish* member : of_[together.device].wishes) {
    if (member->terms.group != &group) continue;
    together.terms.rank = std::max(together.terms.rank, member->terms.rank);
    count(*member, {});
    member->assignment.is_limited = false;
  }
  assign(together);
}

// Of two that borrow each has others' groups where there are enough. The SMs that fill no group are
// no chunk.
void SmPlan::borrow(uint32_t device) {
  const OfDevice& of = of_[device];
  SmGroups chunks = of.layout.all_groups();
  if (of.layout.has_partial_group) chunks &= ~of.layout.last_group();
  SmGroups free = chunks;
  for (const auto& [number, one] : reservations_) {
    if (one.device == device) free &= ~one.groups;
  }
  if (of.for_ranks.excludes_from.has_value()) free &= ~of.for_ranks.groups;
  std::array<uint32_t, kMostSmGroups> users = of.users;
  for (auto& [number, one] : reservations_) {
    if (one.device != device) continue;
    const uint32_t own = of.layout.sms_of(one.groups);
    const SmGroups before = std::exchange(one.borrowed, {});
    if (one.is_lent || one.most_sms <= own) continue;
    SmGroups lent = one.has_free ? free : SmGroups();
    for (const auto& [of_other, other] : reservations_) {
      if (other.device == device && other.is_lent) lent |= other.groups & chunks;
    }
    one.borrowed = least_used(users, (one.most_sms - own) / of.layout.step, lent, before);
    for (size_t group = 0; group < kMostSmGroups; ++group) users[group] += one.borrowed.test(group);
  }
}

void SmPlan::assign_all(uint32_t device) {
  OfDevice& of = of_[device];
  borrow(device);
  for (auto& [group, together] : of.groups) assign_group(*group, together);
  for (SmWish* wish : of.wishes) assign(*wish);
}

void SmPlan::add(SmWish& wish) {
  OfDevice& of = of_[wish.device];
  of.wishes.push_back(&wish);
  if (const SessionGroup* const group = wish.terms.group; group != nullptr) {
    const auto [together, is_new] = of.groups.try_emplace(group, SmWish{.device = wish.device});
    if (is_new) assign_group(*group, together->second);
  }
  assign(wish);
}

void SmPlan::remove(SmWish& wish) {
  OfDevice& of = of_[wish.device];
  if (std::erase(of.wishes, &wish) == 0) return;
  count(wish, {});
  wish.assignment = {};
  const auto group = of.groups.find(wish.terms.group);
  const auto is_member = [&](const SmWish* other) {
    return other->terms.group == wish.terms.group;
  };
  if (group != of.groups.end() && std::ranges::none_of(of.wishes, is_member)) {
    count(group->second, {});
    of.groups.erase(group);
  }
}

// One group at least is left to the others, unless the groups are named, which an operator does who
// divides the whole device.
Result<uint32_t> SmPlan::reserve(uint32_t number, const Reserve& wanted) {
  const auto& [device, sms, lends, named, most_sms] = wanted;
  if (number == 0 || reservations_.contains(number)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "that reservation is there already");
  }
  const OfDevice& of = of_[device];
  const SmLayout& layout = of.layout;
  SmGroups free = layout.all_groups();
  for (const auto& [other, reservation] : reservations_) {
    if (reservation.device == device) free &= ~reservation.groups;
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
  reservations_[number] = {.device = device,
                           .groups = groups,
                           .is_static = named.any(),
                           .lease = lends ? std::make_shared<Lease>() : nullptr,
                           .is_lent = lends,
                           .most_sms = lends ? most_sms : 0};
  return reserved;
}

}  // namespace openmps::worker
