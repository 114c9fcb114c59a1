// SPDX-License-Identifier: Apache-2.0
// See sm_partitions.h.
#include "worker/partitions/sm_partitions.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "worker/device/driver_check.h"
#include "worker/device/in_context.h"
#include "worker/device/log.h"
#include "worker/device/resource_descriptors.h"

namespace openmps::worker {
namespace {

// Of a device, kept for who comes next: each holds 5 MiB of an H200's memory, and to make one
// takes a quiet moment of the device.
constexpr size_t kMostUnused = 8;
// Of a device one of so many: 8 of an H200's 132.
constexpr uint32_t kShareForRanks = 16;
// No more than one of so many, 4 of these, are few: whoever comes first and has them and the rest,
// too, is late for those of his blocks that go to the rest (decision 28).
constexpr uint32_t kShareOfFew = 32;
// Who has nothing but the few SMs needs at most such a share of them at a time. So many programs
// find room at once.
constexpr uint32_t kFewShare = 2;
// More do not, so they have the few only while all their work takes no more than such a share of
// these' time, counted as it is alone, which it takes twice there. Eight who send requests are
// answered in 0.34 to 0.9 ms on an H200, where it takes 30 ms beside long kernels; eight who always
// have something keep others out of the few for up to a second (decision 31).
constexpr uint64_t kLightShare = 2;
// Over so long, several of a program's requests.
constexpr uint64_t kWeighNs = 50'000'000;
// Numbers that no caller of reserve() chooses: from here on, one for each device.
constexpr uint32_t kRanksNumber = 0xffff'ff00;

}  // namespace

SmGroups least_used(std::span<const uint32_t> users, size_t count, const SmGroups& allowed,
                    const SmGroups& mine) {
  std::vector<size_t> order;
  for (size_t group = 0; group < users.size(); ++group) {
    if (allowed.test(group)) order.push_back(group);
  }
  std::ranges::stable_sort(
      order, {}, [&](size_t group) { return std::pair(users[group], mine.test(group) ? 0 : 1); });
  SmGroups chosen;
  for (const size_t group : std::span(order).first(std::min(count, order.size()))) {
    chosen.set(group);
  }
  return chosen;
}

SmPartitions::~SmPartitions() {
  for (OfDevice& of : of_) {
    of.prepared.clear();
    for (const std::unique_ptr<Made>& made : of.made) {
      driver_.cuGreenCtxDestroy(made->partition.handle);
    }
  }
}

// ---- Groups -------------------------------------------------------------------------------------

// The groups are of the device's own step: where clusters of blocks need SMs that lie together, as
// on compute capability 9.0, those of a smaller one would launch none.
Status SmPartitions::split_locked(uint32_t device) {
  OfDevice& of = of_[device];
  if (!of.groups.empty()) return Status();
  const Device& on = devices_.at(device);
  if (on.sm_steps.step == 0) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "the driver makes no parts of this device");
  }
  CUdevResource all{};
  OPENMPS_RETURN_IF_ERROR(
      check(driver_.cuDeviceGetDevResource(on.handle, &all, CU_DEV_RESOURCE_TYPE_SM),
            "cuDeviceGetDevResource"));
  std::vector<CUdevResource> groups(on.sm_steps.most / on.sm_steps.step);
  auto count = static_cast<unsigned>(groups.size());
  CUdevResource rest{};
  OPENMPS_RETURN_IF_ERROR(check(
      driver_.cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, on.sm_steps.step),
      "cuDevSmResourceSplitByCount"));
  groups.resize(std::min<size_t>(count, groups.size()));
  if (groups.empty()) return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "no groups of SMs");
  of.has_rest = rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount != 0;
  if (of.has_rest) groups.push_back(rest);
  of.users.assign(groups.size(), 0);
  of.groups = std::move(groups);
  return Status();
}

uint32_t SmPartitions::sms_of(const OfDevice& of, const SmGroups& groups) const {
  uint32_t sms = 0;
  for (size_t i = 0; i < of.groups.size(); ++i) sms += groups.test(i) ? of.groups[i].sm.smCount : 0;
  return sms;
}

SmGroups SmPartitions::all_of(const OfDevice& of) const {
  SmGroups all;
  for (size_t i = 0; i < of.groups.size(); ++i) all.set(i);
  return all;
}

bool SmPartitions::is_reserved_locked(uint32_t device, const Member::Terms& terms) const {
  const auto own = reservations_.find(terms.reservation);
  return own != reservations_.end() && own->second.device == device;
}

// Of a reservation its groups; else those that no other one keeps now.
SmGroups SmPartitions::pool_locked(uint32_t device, const Member::Terms& terms,
                                   bool needs_all) const {
  const auto own = reservations_.find(terms.reservation);
  if (own != reservations_.end()) {
    if (own->second.device == device) return own->second.groups;
    if (own->second.is_static) return {};
  }
  SmGroups pool = all_of(of_[device]);
  for (const auto& [number, reservation] : reservations_) {
    if (needs_all && reservation.is_for_ranks) continue;
    if (reservation.device == device && reservation.keeps_off(terms.rank)) {
      pool &= ~reservation.groups;
    }
  }
  return pool;
}

const SmPartitions::Reservation* SmPartitions::few_locked(uint32_t device) const {
  if (!of_[device].ranks_have_few) return nullptr;
  const auto kept = reservations_.find(kRanksNumber + device);
  return kept != reservations_.end() && kept->second.lease->busy_ ? &kept->second : nullptr;
}

// The few are taken to be in the last group.
SmSet SmPartitions::set_of(uint32_t device, SmSet::Kind kind) const {
  const OfDevice& of = of_[device];
  if (kind == SmSet::Kind::kFew) return {kind, {}, of.few.sm.smCount};
  SmGroups others = all_of(of);
  others.reset(of.groups.size() - 1);
  return {kind, others, of.most.sm.smCount};
}

// Who has no limit.
SmPartitions::Choice SmPartitions::choose_most_locked(uint32_t device, const Member::Terms& terms,
                                                      const Member::Habits& habits) const {
  using Kind = SmSet::Kind;
  if (reservations_.empty() && habits.place == Kind::kGroups) return {};
  const OfDevice& of = of_[device];
  const SmGroups pool = pool_locked(device, terms, habits.needs_all);
  const bool is_all = pool == all_of(of);
  const auto some = [this, device](Less less, Kind kind) {
    return Choice{.is_all = false, .less = less, .set = set_of(device, kind)};
  };
  if (const Reservation* kept = few_locked(device); kept != nullptr) {
    if (!kept->keeps_off(terms.rank)) {
      if (is_all && of.few_do && habits.is_narrow) return some(Less::kFew, Kind::kFew);
    } else if (!is_all && (pool | kept->groups) == all_of(of)) {
      return some(Less::kKeptOff, Kind::kMost);
    }
  } else if (is_all && habits.place != Kind::kGroups) {
    return some(habits.place == Kind::kFew ? Less::kFew : Less::kRest, habits.place);
  }
  if (is_all) return {};
  const bool is_kept_off = pool_locked(device, terms, true) != pool;
  return {.is_all = false,
          .less = is_kept_off ? Less::kKeptOff : Less::kNot,
          .set = {Kind::kGroups, pool, sms_of(of, pool)}};
}

// What is left of the device counts as one of the groups, but never alone: there is no room in it
// for clusters of many blocks. What it has more than they goes unused.
SmPartitions::Choice SmPartitions::choose_locked(uint32_t device, const Member::Terms& terms,
                                                 const Choice* whole, const SmGroups& mine,
                                                 const Member::Habits& habits) const {
  const OfDevice& of = of_[device];
  const bool is_limited =
      terms.sms != 0 && terms.sms < (whole != nullptr ? whole->set.sms : devices_.at(device).sms);
  if (!is_limited && whole == nullptr) return choose_most_locked(device, terms, habits);
  Choice choice{.is_all = false, .is_limited = is_limited};
  const SmGroups pool = whole != nullptr ? whole->set.groups : pool_locked(device, terms);
  const uint32_t most = whole != nullptr ? whole->set.sms : sms_of(of, pool);
  if (!is_limited || terms.sms >= most) {
    choice.set = whole != nullptr ? whole->set : SmSet{SmSet::Kind::kGroups, pool, most};
    return choice;
  }
  const uint32_t step = devices_.at(device).sm_steps.step;
  const uint32_t count = std::max(1u, terms.sms / step);
  SmGroups usual = pool;
  const bool rest_does = of.has_rest && count > 1 && of.groups.back().sm.smCount >= step;
  if (of.has_rest && !rest_does) usual.reset(of.groups.size() - 1);
  choice.set.groups = least_used(of.users, count, usual.any() ? usual : pool, mine);
  choice.set.sms = std::min(count * step, sms_of(of, choice.set.groups));
  return choice;
}

void SmPartitions::count_locked(OfDevice& of, const Choice& choice, bool used) {
  if (choice.is_all || !choice.is_limited) return;
  for (size_t i = 0; i < of.users.size(); ++i) {
    if (choice.set.groups.test(i)) of.users[i] += used ? 1 : -1;
  }
}

// Of what it has a part; null: of all that its terms leave. A client's own reservation goes before
// its group.
const SmPartitions::Choice* SmPartitions::whole_locked(const Member& member) const {
  if (member.whole_ != nullptr) {
    const Choice& of_session = member.whole_->choice_;
    const bool finds_room = of_session.less == Less::kFew || of_session.less == Less::kRest;
    if (!of_session.is_all && !finds_room) return &of_session;
  }
  const OfDevice& of = of_[member.device];
  const auto group = of.together.find(member.terms_.group);
  const bool is_part = group != of.together.end() && group->second.choice.is_limited &&
                       !is_reserved_locked(member.device, member.terms_);
  return is_part ? &group->second.choice : nullptr;
}

void SmPartitions::choose_again_locked(Member& member) {
  OfDevice& of = of_[member.device];
  const Choice* const whole = whole_locked(member);
  count_locked(of, member.choice_, false);
  member.choice_ =
      choose_locked(member.device, member.terms_, whole, member.choice_.set.groups, member.habits_);
  member.less_.store(member.choice_.less, std::memory_order_relaxed);
  // With its session's.
  const bool is_counted = member.whole_ != nullptr && member.whole_->choice_.is_limited;
  if (is_counted) member.choice_.is_limited = false;
  count_locked(of, member.choice_, true);
}

// Where its own members are does not keep it away from there: they choose again, too.
void SmPartitions::choose_again_locked(uint32_t device, const SessionGroup& group,
                                       Together& together) {
  OfDevice& of = of_[device];
  Member::Terms terms{.sms = group.sms(device), .rank = Rank::kLatency};
  for (Member* member : of.members) {
    if (member->terms_.group != &group) continue;
    terms.rank = std::max(terms.rank, member->terms_.rank);
    count_locked(of, member->choice_, false);
    member->choice_.is_limited = false;
  }
  count_locked(of, together.choice, false);
  together.choice =
      choose_locked(device, terms, nullptr, together.choice.set.groups, {.is_narrow = false});
  count_locked(of, together.choice, true);
}

// ---- Sets that are there ------------------------------------------------------------------------

Status SmPartitions::create_green(const SmPartition& partition,
                                  std::span<const CUdevResource> resources, CUgreenCtx* made) {
  Result<CUdevResourceDesc> descriptor = descriptors_.get(driver_, resources);
  if (!descriptor.ok()) return descriptor.status();
  return check(driver_.cuGreenCtxCreate(made, *descriptor, devices_.at(partition.device).handle,
                                        CU_GREEN_CTX_DEFAULT_STREAM),
               "cuGreenCtxCreate");
}

// The driver splits what a device or a green context has, but not what is left of a split
// (measured: 915). What has been split off stays when the green context goes.
Status SmPartitions::trim(const SmPartition& partition, std::vector<CUdevResource>* resources) {
  CUgreenCtx whole = nullptr;
  OPENMPS_RETURN_IF_ERROR(create_green(partition, *resources, &whole));
  CUdevResource all{};
  CUdevResource part{};
  CUdevResource left{};
  unsigned count = 1;
  CUresult result = driver_.cuGreenCtxGetDevResource(whole, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuDevSmResourceSplitByCount(&part, &count, &all, &left, 0, partition.sms);
  }
  driver_.cuGreenCtxDestroy(whole);
  *resources = {part};
  return check(result, "cuDevSmResourceSplitByCount");
}

Status SmPartitions::create(Made* made) {
  SmPartition& partition = made->partition;
  std::vector<CUdevResource> resources;
  bool has_more = false;
  {
    const std::lock_guard lock(mutex_);
    const OfDevice& of = of_[partition.device];
    switch (partition.kind) {
      case SmSet::Kind::kMost: resources = {of.most}; break;
      case SmSet::Kind::kFew: resources = {of.few}; break;
      case SmSet::Kind::kGroups:
        for (size_t i = 0; i < of.groups.size(); ++i) {
          if (partition.groups.test(i)) resources.push_back(of.groups[i]);
        }
        has_more = sms_of(of, partition.groups) > partition.sms;
    }
  }
  const InContext current(driver_, devices_.at(partition.device).context);
  if (has_more) OPENMPS_RETURN_IF_ERROR(trim(partition, &resources));
  OPENMPS_RETURN_IF_ERROR(create_green(partition, resources, &partition.handle));
  Status status =
      check(driver_.cuCtxFromGreenCtx(&partition.context, partition.handle), "cuCtxFromGreenCtx");
  if (status.ok()) {
    // Without, streams are made as the driver does it.
    static_cast<void>(partition.slots->grow(driver_, partition.context, StreamSlots::kFirstOfPart));
  }
  if (!status.ok()) driver_.cuGreenCtxDestroy(partition.handle);
  return status;
}

// Somebody else may have made the same meanwhile.
SmPartitions::Part SmPartitions::keep_locked(uint32_t device, std::unique_ptr<Made> made) {
  if (Part there = find_locked(device, made->partition.set()); there != nullptr) {
    driver_.cuGreenCtxDestroy(made->partition.handle);
    return there;
  }
  return hold_locked(*of_[device].made.emplace_back(std::move(made)));
}

SmPartitions::Part SmPartitions::find_locked(uint32_t device, const SmSet& set) {
  for (const std::unique_ptr<Made>& made : of_[device].made) {
    if (made->partition.set() == set) return hold_locked(*made);
  }
  return nullptr;
}

std::unique_ptr<SmPartitions::Made> SmPartitions::to_make(uint32_t device, const SmSet& set) {
  auto made = std::make_unique<Made>();
  made->partition.device = device;
  made->partition.kind = set.kind;
  made->partition.is_limit = set.kind == SmSet::Kind::kGroups;
  made->partition.groups = set.groups;
  made->partition.sms = set.sms;
  return made;
}

SmPartitions::Part SmPartitions::hold_locked(Made& made) {
  struct Use {
    Use(SmPartitions& of, Made& used) : partitions(of), made(used) {}
    ~Use() { partitions.give_back(made); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    SmPartitions& partitions;
    Made& made;
  };
  auto use = std::make_shared<Use>(*this, made);
  ++made.users;
  return {std::move(use), &made.partition};
}

// Of the last holder, wherever that is.
void SmPartitions::give_back(Made& made) {
  const std::lock_guard lock(mutex_);
  OfDevice& of = of_[made.partition.device];
  if (--made.users != 0) return;
  const auto is_unused = [](const std::unique_ptr<Made>& one) { return one->users == 0; };
  if (static_cast<size_t>(std::ranges::count_if(of.made, is_unused)) <= kMostUnused) return;
  const auto oldest = std::ranges::find_if(of.made, is_unused);
  driver_.cuGreenCtxDestroy((*oldest)->partition.handle);
  of.made.erase(oldest);
}

// ---- Members ------------------------------------------------------------------------------------

// The groups count as used from the choice on, so that who comes while a set is made gets others.
Status SmPartitions::join(Member& member, const GateClient* client) {
  const uint32_t device = member.device;
  std::unique_ptr<Made> made;
  {
    const std::lock_guard lock(mutex_);
    const Member::Terms& terms = member.terms_;
    const bool is_part = terms.group != nullptr && terms.group->sms(device) != 0;
    if (terms.sms != 0 || is_part || !reservations_.empty()) {
      OPENMPS_RETURN_IF_ERROR(split_locked(device));
    }
    join_locked(member);
    if (terms.group != nullptr) {
      Together& together = of_[device].together[terms.group];
      if (together.members++ == 0) choose_again_locked(device, *terms.group, together);
    }
    choose_again_locked(member);
    if (member.choice_.is_all) return Status();
    if (member.choice_.set.sms == 0) {
      leave_locked(member);
      return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                    "all SMs of device " + std::to_string(device) + " are others' alone");
    }
    member.part_ = find_locked(device, member.choice_.set);
    if (member.part_ != nullptr) return Status();
    made = to_make(device, member.choice_.set);
  }
  Status status;
  CUresult result = CUDA_SUCCESS;
  const auto make = [&] {
    status = create(made.get());
    return status.code();
  };
  if (!gate_.run_unless_stuck(GatedCall::kGreenCreate, device, client, &result, make)) {
    put_off(member, client);
    return Status();
  }
  if (status.ok()) status = check(result, "cuGreenCtxCreate");
  if (!status.ok()) {
    leave(member);
    return status;
  }
  // Meanwhile it may have been given another, or all.
  Part there;
  const std::lock_guard lock(mutex_);
  there = keep_locked(device, std::move(made));
  if (member.part_ == nullptr && !member.choice_.is_all) member.part_ = std::move(there);
  return Status();
}

// The driver would wait for a program, which may wait for this one.
void SmPartitions::put_off(Member& member, const GateClient* client) {
  log("Session " + std::to_string(client == nullptr ? 0 : client->session) +
      " runs on all SMs at first, not on those that it is to have: to make the set of them waits " +
      "for work that may not end");
  After after;
  {
    const std::lock_guard lock(mutex_);
    if (wants(member, member.choice_.set)) {
      after.wanted.push_back({member.device, member.choice_.set});
    }
  }
  finish(std::move(after));
}

void SmPartitions::leave(Member& member) {
  Part dropped;
  const std::lock_guard lock(mutex_);
  dropped = leave_locked(member);
}

SmPartitions::Part SmPartitions::leave_locked(Member& member) {
  OfDevice& of = of_[member.device];
  if (std::erase(of.members, &member) == 0) return nullptr;
  of.is_shared = of.members.size() > 1;
  count_locked(of, member.choice_, false);
  member.choice_ = {};
  const auto group = of.together.find(member.terms_.group);
  if (group != of.together.end() && --group->second.members == 0) {
    count_locked(of, group->second.choice, false);
    of.together.erase(group);
  }
  return std::exchange(member.part_, nullptr);
}

// What tend() has given since the last note() it may have chosen before that.
SmPartitions::Part SmPartitions::part(Member& member, uint64_t now) {
  After after;
  const std::lock_guard lock(mutex_);
  if (needs_more(member, now)) give_all_locked(member, &after);
  return member.part_;
}

// ---- Changes ------------------------------------------------------------------------------------

void SmPartitions::give_locked(Member& member, Part part, After* after) {
  if (part == member.part_) return;
  after->dropped.push_back(std::exchange(member.part_, std::move(part)));
  member.changes_.fetch_add(1, std::memory_order_release);
}

void SmPartitions::rearrange_locked(uint32_t device, After* after) {
  OfDevice& of = of_[device];
  for (auto& [group, together] : of.together) choose_again_locked(device, *group, together);
  for (Member* member : of.members) choose_again_locked(*member);
  for (Member* member : of.members) {
    const Choice& choice = member->choice_;
    if (choice.is_all) {
      give_locked(*member, nullptr, after);
    } else if (wants(*member, choice.set)) {
      Part there = find_locked(device, choice.set);
      if (there != nullptr) {
        give_locked(*member, std::move(there), after);
      } else {
        after->wanted.push_back({device, choice.set});
      }
    }
  }
}

// It is to have that, and has something else.
bool SmPartitions::wants(const Member& member, const SmSet& set) {
  if (member.choice_.is_all || member.choice_.set != set) return false;
  if (set.sms == 0) return false;  // nothing is left for it: it keeps what it has
  return member.part_ == nullptr || member.part_->set() != set;
}

// Sets that are not there are made in a quiet moment, by whoever finds it.
void SmPartitions::finish(After after) {
  after.dropped.clear();
  const auto first = after.wanted.begin();
  for (auto wanted = first; wanted != after.wanted.end(); ++wanted) {
    if (std::find(first, wanted, *wanted) != wanted) continue;
    gate_.run_later(
        GatedCall::kGreenCreate, wanted->device,
        [weak = weak_from_this(), one = *wanted] {
          if (const auto self = weak.lock(); self != nullptr) self->make_wanted(one);
          return CUDA_SUCCESS;
        },
        ContextGate::Haste::kSoon);
  }
}

// Unless nobody is to have it any more. Who can't have it keeps what he has.
void SmPartitions::make_wanted(const After::Wanted& wanted) {
  OfDevice& of = of_[wanted.device];
  const auto is_wanted = [&wanted](const Member* member) { return wants(*member, wanted.set); };
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::none_of(of.members, is_wanted)) return;
  }
  auto made = to_make(wanted.device, wanted.set);
  if (const Status status = create(made.get()); !status.ok()) {
    log("A set of SMs can't be made, and those who should have it keep what they have: " +
        status.message());
    return;
  }
  After after;
  const std::lock_guard lock(mutex_);
  after.dropped.push_back(keep_locked(wanted.device, std::move(made)));
  for (Member* member : of.members) {
    if (is_wanted(member)) give_locked(*member, after.dropped.front(), &after);
  }
}

void SmPartitions::set(Member& member, const Member::Terms& terms) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    if (member.terms_ == terms || !split_locked(member.device).ok()) return;
    const bool same_lease =
        member.terms_.reservation == terms.reservation && member.terms_.rank == terms.rank;
    if (!same_lease) member.changes_.fetch_add(1, std::memory_order_release);
    member.terms_ = terms;
    rearrange_locked(member.device, &after);
  }
  finish(std::move(after));
}

void SmPartitions::change(const SessionGroup& group) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    for (uint32_t device = 0; device < devices_.count(); ++device) {
      const bool is_here = of_[device].together.contains(&group);
      if (is_here && split_locked(device).ok()) rearrange_locked(device, &after);
    }
  }
  finish(std::move(after));
}

// One group at least is left to the others, unless the groups are named: who does that knows that
// there are no others.
Result<uint32_t> SmPartitions::reserve(uint32_t number, const Wish& wish) {
  const auto& [device, sms, lends, named] = wish;
  After after;
  uint32_t reserved = 0;
  {
    const std::lock_guard lock(mutex_);
    if (number == 0 || reservations_.contains(number)) {
      return Status(CUDA_ERROR_INVALID_VALUE, "that reservation is there already");
    }
    OPENMPS_RETURN_IF_ERROR(split_locked(device));
    const OfDevice& of = of_[device];
    SmGroups free = all_of(of);
    for (const auto& [other, reservation] : reservations_) {
      if (reservation.device == device && !reservation.is_for_ranks) free &= ~reservation.groups;
    }
    SmGroups rest;
    if (of.has_rest) rest.set(of.groups.size() - 1);
    const SmGroups whole = free & ~rest;
    const uint32_t step = devices_.at(device).sm_steps.step;
    const SmGroups groups =
        named.any() ? named & whole : least_used(of.users, (sms + step - 1) / step, whole);
    const bool others_can = named.any() ? groups == named : (whole & ~groups).any();
    if (sms == 0 || sms_of(of, groups) < sms || !others_can) {
      return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                    "there are no " + std::to_string(sms) + " SMs that others could do without");
    }
    reservations_[number] = {.device = device,
                             .groups = groups,
                             .lease = lends ? std::make_shared<Lease>() : nullptr,
                             .is_static = named.any()};
    reserved = sms_of(of, groups);
    rearrange_locked(device, &after);
  }
  finish(std::move(after));
  return reserved;
}

void SmPartitions::release(uint32_t number) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    const auto found = reservations_.find(number);
    if (found == reservations_.end()) return;
    const uint32_t device = found->second.device;
    reservations_.erase(found);
    rearrange_locked(device, &after);
  }
  finish(std::move(after));
}

bool SmPartitions::keeps(uint32_t number) {
  const std::lock_guard lock(mutex_);
  return reservations_.contains(number);
}

// ---- SMs that are lent --------------------------------------------------------------------------

bool SmPartitions::keeps_some(uint32_t device) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(reservations_, [device](const auto& entry) {
    return entry.first < kRanksNumber && entry.second.device == device;
  });
}

// The driver splits off whole steps from the device: what is left of that may be less than what
// fills no group.
bool SmPartitions::split_few_locked(uint32_t device, uint32_t most) {
  OfDevice& of = of_[device];
  const Device& on = devices_.at(device);
  const uint32_t others = most / on.sm_steps.step * on.sm_steps.step;
  if (others == 0 || others >= on.sms || (on.sms - others) * kShareOfFew > on.sms) return false;
  CUdevResource all{};
  CUdevResource part{};
  CUdevResource left{};
  unsigned count = 1;
  CUresult result = driver_.cuDeviceGetDevResource(on.handle, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuDevSmResourceSplitByCount(&part, &count, &all, &left, 0, others);
  }
  const bool is_split = result == CUDA_SUCCESS && count == 1 && part.sm.smCount == others &&
                        left.type == CU_DEV_RESOURCE_TYPE_SM && left.sm.smCount == on.sms - others;
  if (!is_split) return false;
  of.most = part;
  of.few = left;
  return true;
}

// What fills no group is the best of all: nobody else misses it much.
void SmPartitions::prepare_for_ranks(uint32_t device, uint32_t sms) {
  OfDevice& of = of_[device];
  std::vector<SmSet> sets;
  {
    const std::lock_guard lock(mutex_);
    const uint32_t total = devices_.at(device).sms;
    const uint32_t wanted = std::min(sms != 0 ? sms : total / kShareForRanks, total);
    if (!split_locked(device).ok()) return;
    for (size_t i = of.groups.size(); i-- > 1 && sms_of(of, of.for_ranks) < wanted;) {
      of.for_ranks.set(i);
    }
    if (of.for_ranks.none()) return;
    of.ranks_have_few = sms != 0 && split_few_locked(device, total - wanted);
    if (of.ranks_have_few) {
      of.for_ranks.reset();
      of.for_ranks.set(of.groups.size() - 1);
      sets = {set_of(device, SmSet::Kind::kMost), set_of(device, SmSet::Kind::kFew)};
    } else {
      const SmGroups others = all_of(of) & ~of.for_ranks;
      sets = {{SmSet::Kind::kGroups, others, sms_of(of, others)}};
    }
  }
  prepare(device, sets);
}

// As many as may be.
void SmPartitions::prepare_few(uint32_t device) {
  OfDevice& of = of_[device];
  {
    const std::lock_guard lock(mutex_);
    if (!split_locked(device).ok()) return;
    const uint32_t all = devices_.at(device).sms;
    const uint32_t step = devices_.at(device).sm_steps.step;
    const uint32_t most = (all - all / kShareOfFew + step - 1) / step * step;
    of.small_has_few = of.ranks_have_few;
    if (of.ranks_have_few || !split_few_locked(device, most)) return;
  }
  const SmSet sets[] = {set_of(device, SmSet::Kind::kMost), set_of(device, SmSet::Kind::kFew)};
  of.small_has_few = prepare(device, sets);
}

bool SmPartitions::prepare(uint32_t device, std::span<const SmSet> sets) {
  for (const SmSet& set : sets) {
    auto made = to_make(device, set);
    if (const Status status = create(made.get()); !status.ok()) {
      log("SMs for those who want short answers: a set can't be made: " + status.message());
      return false;
    }
    const std::lock_guard lock(mutex_);
    of_[device].prepared.push_back(keep_locked(device, std::move(made)));
  }
  return true;
}

void SmPartitions::keep_for_ranks(uint32_t device) {
  After after;
  {
    const std::lock_guard lock(mutex_);
    OfDevice& of = of_[device];
    const uint32_t number = kRanksNumber + device;
    if (reservations_.contains(number) || of.for_ranks.none()) return;
    reservations_[number] = {.device = device,
                             .groups = of.for_ranks,
                             .lease = std::make_shared<Lease>(),
                             .is_for_ranks = true};
    of.lease_of_ranks = reservations_[number].lease.get();
    for (Member* member : of.members) member->changes_.fetch_add(1, std::memory_order_release);
    rearrange_locked(device, &after);
  }
  finish(std::move(after));
}

// What has to be chosen for others, or made, is tend()'s: the caller may be between the gate's
// enter() and leave().
void SmPartitions::note(Member& member, const Demand& demand, uint64_t now) {
  OfDevice& of = of_[member.device];
  const bool fits = uint64_t{demand.room} * kFewShare <= few(member.device);
  const bool is_whole = demand.room == kWholeDevice;
  const auto have = [&](Member::Kind kind, bool has) {
    if (has) member.had_ns_[kind].store(now, std::memory_order_relaxed);
  };
  have(Member::kAny, true);
  have(Member::kWide, !fits);
  have(Member::kSlow, !demand.is_guess && demand.ns > kShortNs);
  // Small work that has waited for others seems to take long.
  have(Member::kLong, demand.ns >= kLongNs && !(demand.is_guess && fits));
  have(Member::kLoses, demand.loses);
  have(Member::kWhole, is_whole);
  if (fits) member.sm_ns_.fetch_add(demand.sm_ns, std::memory_order_relaxed);
  if (demand.ns >= kLongNs && of.is_shared.load(std::memory_order_relaxed)) watch(of);
  if (!needs_more(member, now)) [[likely]]
    return;
  After after;
  {
    const std::lock_guard lock(mutex_);
    give_all_locked(member, &after);
  }
  wake_();
}

// Whether another has long kernels by now: its next may be far away.
void SmPartitions::join_locked(Member& member) {
  OfDevice& of = of_[member.device];
  of.members.push_back(&member);
  of.is_shared = of.members.size() > 1;
  if (of.is_shared) watch(of);
}

void SmPartitions::watch(OfDevice& of) {
  if (!of.small_has_few || of.watched.load(std::memory_order_relaxed)) return;
  if (!of.watched.exchange(true)) wake_();
}

bool SmPartitions::needs_more(const Member& member, uint64_t now) {
  const auto have = [&](Member::Kind kind) { return had(member, kind, now); };
  switch (member.less_.load(std::memory_order_relaxed)) {
    case Less::kNot: return false;
    case Less::kFew: return have(Member::kWide);
    case Less::kRest: return have(Member::kWhole) || have(Member::kLoses);
    case Less::kKeptOff: return have(Member::kWhole);
  }
  return false;
}

void SmPartitions::give_all_locked(Member& member, After* after) {
  member.habits_ = {.is_narrow = false, .needs_all = true};
  choose_again_locked(member);
  if (member.choice_.is_all) give_locked(member, nullptr, after);
  of_[member.device].is_stale |= !member.choice_.is_all;
}

// Who has other SMs, by a limit of his own, is not one of those whom they have to do for.
bool SmPartitions::look_at_ranks_locked(const Reservation& kept, uint64_t now) {
  OfDevice& of = of_[kept.device];
  std::vector<Member*> users;
  bool changed = false;
  for (Member* member : of.members) {
    const Member::Habits habits = {.is_narrow = !had(*member, Member::kWide, now),
                                   .needs_all = had(*member, Member::kWhole, now)};
    changed |= std::exchange(member->habits_, habits) != habits;
    const bool may_have_them = has_no_limit(*member) && !kept.keeps_off(member->terms_.rank);
    if (may_have_them && habits.is_narrow && had(*member, Member::kAny, now)) {
      users.push_back(member);
    }
  }
  const bool few_do = few_do_locked(kept.device, users, now);
  return (std::exchange(of.few_do, few_do) != few_do) || changed;
}

bool SmPartitions::few_do_locked(uint32_t device, std::span<Member* const> users, uint64_t now) {
  OfDevice& of = of_[device];
  const uint64_t elapsed = now - of.weighed_ns;
  if (elapsed >= kWeighNs) {
    uint64_t sm_ns = 0;
    for (const Member* user : users) sm_ns += user->sm_ns_.load(std::memory_order_relaxed);
    for (Member* member : of.members) member->sm_ns_.store(0, std::memory_order_relaxed);
    if (sm_ns > elapsed / kLightShare * few(device)) of.heavy_ns = now;
    of.weighed_ns = now;
  }
  return users.size() <= kFewShare || !is_of_late(of.heavy_ns, now);
}

bool SmPartitions::has_no_limit(const Member& member) {
  const Choice& choice = member.choice_;
  return choice.is_all || choice.less == Less::kFew || choice.less == Less::kRest;
}

// Others keep SMs to themselves, or there are no long kernels (any more).
bool SmPartitions::may_part_locked(uint32_t device, uint64_t now) {
  OfDevice& of = of_[device];
  for (const auto& [number, reservation] : reservations_) {
    if (reservation.device == device && (!reservation.is_for_ranks || reservation.lease->busy_)) {
      return false;
    }
  }
  if (crowded_(device, Rank::kLatency)) of.crowded_ns = now;
  return is_of_late(of.crowded_ns, now);
}

// Long kernels that can't be kept off the few SMs would make it worse.
bool SmPartitions::look_at_small_locked(uint32_t device, uint64_t now) {
  using Kind = SmSet::Kind;
  OfDevice& of = of_[device];
  std::vector<Member*> small;
  size_t has_long = 0;
  bool parts = may_part_locked(device, now);
  std::vector<Kind> places;
  for (Member* member : of.members) {
    const auto have = [&](Member::Kind kind) { return had(*member, kind, now); };
    Kind& place = places.emplace_back(Kind::kGroups);
    if (have(Member::kLong)) {
      place = Kind::kMost;
      ++has_long;
      parts = parts && has_no_limit(*member) && !have(Member::kLoses) && !have(Member::kWhole);
    } else if (have(Member::kAny) && !have(Member::kWide) && !have(Member::kSlow) &&
               has_no_limit(*member)) {
      place = Kind::kFew;
      small.push_back(member);
    }
  }
  if (has_long == 0) of.watched = false;
  parts = few_do_locked(device, small, now) && parts && has_long != 0 && !small.empty();
  bool changed = false;
  for (size_t i = 0; i < of.members.size(); ++i) {
    const Kind place = parts ? places[i] : Kind::kGroups;
    changed |= std::exchange(of.members[i]->habits_.place, place) != place;
  }
  return changed;
}

std::shared_ptr<SmPartitions::Lease> SmPartitions::lease(const Member& member) {
  const std::lock_guard lock(mutex_);
  const auto own = reservations_.find(member.terms_.reservation);
  if (own != reservations_.end() && own->second.device == member.device) return own->second.lease;
  const auto ranks = reservations_.find(kRanksNumber + member.device);
  const bool has_lower = member.terms_.rank < Rank::kBestEffort;
  return ranks != reservations_.end() && has_lower ? ranks->second.lease : nullptr;
}

bool SmPartitions::look_at_locked(const Reservation& reservation, uint64_t now, uint64_t* next) {
  Lease& lease = *reservation.lease;
  *next = 0;
  if (!lease.asked_.load()) return false;
  bool busy = false;
  for (size_t row = 0; row < Lease::kRanks && !busy; ++row) {
    const uint64_t end = lease.used_ns_[row] + kLendNs;
    if (lease.used_ns_[row] == 0 || end <= now) continue;
    if (!reservation.is_for_ranks) {
      *next = end;
      return true;
    }
    *next = now + kCrowdLookNs;
    const Rank below{static_cast<uint32_t>(row) + 1};
    if (crowded_(reservation.device, below)) lease.crowded_ns_[row] = now;
    busy = lease.crowded_ns_[row] != 0 && lease.crowded_ns_[row] + kLendNs > now;
    if (busy) lease.kept_from_ = below;
  }
  if (*next == 0) lease.asked_ = false;
  return busy;
}

uint64_t SmPartitions::tend(uint64_t now) {
  After after;
  uint64_t next = 0;
  const auto look_at = [&next](uint64_t ns) {
    if (ns != 0 && (next == 0 || ns < next)) next = ns;
  };
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, reservation] : reservations_) {
      if (reservation.lease == nullptr) continue;
      Lease& lease = *reservation.lease;
      const Rank kept_from = lease.kept_from_;
      uint64_t look = 0;
      const bool busy = look_at_locked(reservation, now, &look);
      look_at(look);
      bool changed = std::exchange(lease.busy_, busy) != busy;
      changed |= busy && lease.kept_from_ != kept_from;
      changed |= busy && reservation.is_for_ranks && look_at_ranks_locked(reservation, now);
      changed |= std::exchange(of_[reservation.device].is_stale, false);
      if (changed) rearrange_locked(reservation.device, &after);
    }
    for (uint32_t device = 0; device < devices_.count(); ++device) {
      if (!of_[device].watched) continue;
      bool changed = look_at_small_locked(device, now);
      changed |= std::exchange(of_[device].is_stale, false);
      if (changed) rearrange_locked(device, &after);
      if (of_[device].watched) look_at(now + kCrowdLookNs);
    }
  }
  finish(std::move(after));
  return next;
}

}  // namespace openmps::worker
