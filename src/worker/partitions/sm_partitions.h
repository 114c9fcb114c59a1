// SPDX-License-Identifier: Apache-2.0
// Who has which SMs of the devices: sets of them, each a green context of the shared context
// (docs/decisions/0026, 0028). Limited sessions have some, groups of sessions have some together
// (0029), reservations keep some for their members, the others have what is left. What somebody is
// to have may change at any time; it is in force once its set is there. Any thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wire/handshake.h"
#include "worker/admission/fair_share.h"
#include "worker/admission/policy.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"
#include "worker/device/placement.h"
#include "worker/partitions/session_group.h"

namespace openmps::worker {

class ResourceDescriptors;

// The driver hands out SMs in groups of equal size; what does not fill one is a group of its own,
// the last.
inline constexpr size_t kMostSmGroups = wire::kMaxSmGroups;
using SmGroups = std::bitset<kMostSmGroups>;

// The `count` groups of `allowed` that fewest have, of as many as there are `users`. Among equals
// those of `mine`, then those of lowest number, so that equal wishes get equal sets where that
// costs nobody anything. Fewer, if there are no more.
[[nodiscard]] SmGroups least_used(std::span<const uint32_t> users, size_t count,
                                  const SmGroups& allowed, const SmGroups& mine = {});

// As room for a launch (SmPartitions::Demand): it has to have the whole device.
inline constexpr uint32_t kWholeDevice = ~0u;

// Which SMs of a device.
struct SmSet {
  enum class Kind : uint8_t {
    kGroups,  // those of the groups
    kMost,    // all but the few that are kept for small work
    kFew,     // those few
  };
  Kind kind = Kind::kGroups;
  SmGroups groups;   // kMost: these are in it, whole; kFew: none
  uint32_t sms = 0;  // how many: kGroups may have more, of which the others go unused
  bool operator==(const SmSet&) const = default;

  // All SMs of `other` are among these.
  [[nodiscard]] bool includes(const SmSet& other) const {
    return kind == Kind::kGroups && other.kind == Kind::kGroups &&
           (other.groups & ~groups).none() && other.sms <= sms;
  }
};

struct SmPartition : GreenContext {
  SmGroups groups;
  SmSet::Kind kind = SmSet::Kind::kGroups;
  [[nodiscard]] SmSet set() const { return {kind, groups, sms}; }
};

class SmPartitions : public std::enable_shared_from_this<SmPartitions> {
 public:
  using Part = std::shared_ptr<const SmPartition>;

  // SMs that others have while nobody of those for whom they are has work.
  class Lease {
   private:
    friend class SmPartitions;
    static constexpr size_t kRanks = 2;  // that have somebody below them
    std::atomic<bool> asked_{false};     // they are used, and tend() looks after them
    // Last, by now_ns(), by rank; 0: not yet.
    std::array<std::atomic<uint64_t>, kRanks> used_ns_{};
    std::array<uint64_t, kRanks> crowded_ns_{};
    bool busy_ = false;                   // guarded by the mutex, as is
    Rank kept_from_ = Rank::kBestEffort;  // who keeps off them while they are busy
  };

  // Why somebody without a limit has less than the device for now; what needs more has all of it.
  enum class Less : uint8_t {
    kNot,
    kFew,      // he finds room in the few SMs
    kRest,     // others do, and he leaves them these
    kKeptOff,  // the same, for a higher rank
  };
  // What somebody is to have of a device.
  struct Choice {
    bool is_all = true;
    bool is_limited = false;  // to a number of SMs
    Less less = Less::kNot;
    SmSet set = {};  // if not all
  };

  // What a piece of work needs.
  struct Demand {
    uint32_t room = 0;      // SMs that have room for all its blocks at once
    bool loses = false;     // it takes much longer without the few SMs, or may not end
    uint64_t ns = 0;        // each of its kernels takes so long with the device to itself,
    bool is_guess = false;  // or less: it has been seen beside others only
    uint64_t sm_ns = 0;  // all of them, those times, times the SMs: no more than if they are short
  };

  // One session on one device. Its part is asked for when `changes` has changed.
  class Member {
   public:
    // What a member may have.
    struct Terms {
      uint32_t sms = 0;          // at most; 0: any number
      uint32_t reservation = 0;  // whose SMs it has; 0: of none
      Rank rank = Rank::kNormal;
      const SessionGroup* group =
          nullptr;  // with which it has a set, from its start on; null: none
      bool operator==(const Terms&) const = default;
    };
    // `whole`: of whose set it has a part, a context of a session; null: of none. That one joins
    // before it and outlives it.
    Member(uint32_t device, const Terms& terms, std::atomic<uint64_t>& changes,
           const Member* whole = nullptr)
        : device(device), changes_(changes), whole_(whole), terms_(terms) {}
    const uint32_t device;

   private:
    friend class SmPartitions;
    // Of work.
    enum Kind : size_t {
      kAny,
      kWide,   // needs more than a share of the few SMs
      kSlow,   // is not over in no time there
      kLong,   // is worth to be kept off some SMs
      kLoses,  // takes much longer without them
      kWhole,  // has to have the whole device
      kKinds,
    };
    // What follows from these, as of the last look.
    struct Habits {
      bool is_narrow = true;   // none of it was wide of late
      bool needs_all = false;  // some had to have the whole device
      // Where it goes while nobody of a rank is served: kGroups is anywhere.
      SmSet::Kind place = SmSet::Kind::kGroups;
      bool operator==(const Habits&) const = default;
    };
    std::atomic<uint64_t>& changes_;
    const Member* const whole_;
    // Guarded by the mutex.
    Terms terms_;
    Choice choice_;
    Part part_;  // that it has; null: all
    Habits habits_;
    // As in choice_: whose work has to be looked at before it goes.
    std::atomic<Less> less_{Less::kNot};
    // When it last had work of these kinds, by now_ns(); 0: never.
    std::array<std::atomic<uint64_t>, kKinds> had_ns_{};
    std::atomic<uint64_t> sm_ns_{0};  // of what the few SMs may do, since they were weighed
  };

  // All outlive the gate, which outlives it.
  SmPartitions(const DriverTable& driver, const Devices& devices, ContextGate& gate,
               ResourceDescriptors& descriptors)
      : driver_(driver), devices_(devices), gate_(gate), descriptors_(descriptors) {}
  ~SmPartitions();
  SmPartitions(const SmPartitions&) = delete;
  SmPartitions& operator=(const SmPartitions&) = delete;

  // The member has its part when this returns; a new green context is made in a quiet moment: not
  // between the gate's enter() and leave(). Beside what may never end (run_unless_stuck()) it has
  // the whole device until there is one, which is logged. The device's context is current. Errors:
  // those of cuDevSmResourceSplitByCount, cuDevResourceGenerateDesc and cuGreenCtxCreate;
  // CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: all SMs of that device are others' alone.
  Status join(Member& member, const GateClient* client);
  void leave(Member& member);
  // What it has now, for as long as somebody holds it; null: the whole device. That is enough for
  // all work that it has been noted to have of late.
  [[nodiscard]] Part part(Member& member, uint64_t now);
  // Of SMs that are kept for it, or for its rank, if others have them while it has no work; null:
  // there are none.
  [[nodiscard]] std::shared_ptr<Lease> lease(const Member& member);

  // From now on. In force when `changes` says so.
  void set(Member& member, const Member::Terms& terms);
  // The SMs that a group may have are others now.
  void change(const SessionGroup& group);

  struct Wish {
    uint32_t device = 0;
    uint32_t sms = 0;      // at least
    bool lends = false;    // the others keep off them only while it is busy
    SmGroups groups = {};  // exactly these whole groups, and nothing of other devices for who
                           // has them (a static partition); none: those that fewest have
  };
  // Keep groups for the members of a reservation, whose number is the caller's to choose, above 0.
  // How many SMs these are. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: there are not so many left
  // that others could do without, or those that are named are another's;
  // CUDA_ERROR_INVALID_VALUE: that number is taken.
  Result<uint32_t> reserve(uint32_t number, const Wish& wish);
  void release(uint32_t number);
  // There is a reservation of that number.
  [[nodiscard]] bool keeps(uint32_t number);
  // An operator's, on that device: who has no part in it has less than the device.
  [[nodiscard]] bool keeps_some(uint32_t device);
  // Of the device so many SMs are for ranks, at least (0: a sixteenth, in whole groups), once
  // keep_for_ranks() says so. The sets that this takes are made now: when they are needed a quiet
  // moment would be a kernel's length away. Before there are sessions; at most once for a device.
  void prepare_for_ranks(uint32_t device, uint32_t sms = 0);
  // From now on those of lower rank keep off these SMs while others have work and they fill the
  // device with long kernels (decision 28). Those who come first find room there, and have the
  // other SMs, too; if the SMs are few, who finds room there has only them.
  void keep_for_ranks(uint32_t device);
  // Small work has a few SMs to itself, a thirty-second of the device at most, while others fill it
  // with long kernels (docs/decisions/0031). Before there are sessions, behind prepare_for_ranks().
  void prepare_few(uint32_t device);
  // How many SMs these are, or those that are kept for ranks, if they are few; else 0.
  [[nodiscard]] uint32_t few(uint32_t device) const { return of_[device].few.sm.smCount; }
  // note() wants to know what work needs.
  [[nodiscard]] bool asks(uint32_t device) const {
    return few(device) != 0 || of_[device].for_ranks.any();
  }
  // And is to be told of all work, not just of what takes kLongNs or more.
  [[nodiscard]] bool looks(uint32_t device) const {
    const OfDevice& of = of_[device];
    const Lease* const of_ranks = of.lease_of_ranks.load(std::memory_order_acquire);
    return of.watched.load(std::memory_order_relaxed) ||
           (of_ranks != nullptr && of_ranks->asked_.load(std::memory_order_relaxed));
  }
  // The member is about to have such work. Who has less than the device for now, and needs more,
  // has all of it when part() is asked next. The thread that asks.
  void note(Member& member, const Demand& demand, uint64_t now);
  static constexpr uint64_t kLongNs = FairShares::kLongNs;
  // Who has the few SMs without a rank has work that takes no longer than this. Even if it takes
  // some times as long there as on all SMs, that is less than to wait for others' blocks.
  static constexpr uint64_t kShortNs = kLongNs / 4;
  // Of which a kernel whose time is a guess is taken to take so much: as many small ones do.
  static constexpr uint64_t kGuessNs = 10'000;
  // Sessions of that rank or below fill the device with long kernels.
  using Crowded = std::function<bool(uint32_t device, Rank from)>;

  // Somebody of that rank has work: the others leave the SMs soon, or have left them.
  void use(Lease& lease, Rank rank, uint64_t now) {
    const auto row = std::min(static_cast<size_t>(rank), Lease::kRanks - 1);
    lease.used_ns_[row].store(now, std::memory_order_relaxed);
    if (!lease.asked_.load(std::memory_order_relaxed) && !lease.asked_.exchange(true)) wake_();
  }
  // What is used is taken back, what has not been used for kLendNs is lent. When to look again, by
  // now_ns(); 0: when woken. Main thread.
  uint64_t tend(uint64_t now);
  // Before there are sessions. `wake`: tend() has something to do; called by any thread.
  void connect(std::function<void()> wake, Crowded crowded) {
    wake_ = std::move(wake);
    crowded_ = std::move(crowded);
  }
  // As long as this do the others wait for SMs that are lent, at most: to give them costs them the
  // moving of their streams, and who comes back at once has to wait for their kernels.
  static constexpr uint64_t kLendNs = 1'000'000'000;
  // While somebody of a higher rank has work: whether the others fill the device by now.
  static constexpr uint64_t kCrowdLookNs = 10'000'000;

 private:
  // A set that is there, as long as it has users or is kept.
  struct Made {
    SmPartition partition;
    uint32_t users = 0;
  };
  struct Reservation {
    uint32_t device = 0;
    SmGroups groups;
    std::shared_ptr<Lease> lease;  // null: it does not lend
    bool is_for_ranks = false;     // no member has them alone, but lower ranks keep off them
    bool is_static = false;        // its members have nothing else

    [[nodiscard]] bool keeps_off(Rank rank) const {
      if (lease == nullptr) return true;
      return lease->busy_ && (!is_for_ranks || rank >= lease->kept_from_);
    }
  };
  // What the members of a group have together.
  struct Together {
    uint32_t members = 0;
    Choice choice;
  };
  struct OfDevice {
    std::vector<CUdevResource> groups;  // from one split, as the driver wants them
    bool has_rest = false;              // the last of them is what is left
    SmGroups for_ranks;                 // are kept for them, or if `few` has SMs those, which are
    CUdevResource most{}, few{};        // taken to be in these; from a split of their own
    bool ranks_have_few = false;        // `few` is what ranks have,
    bool few_do = false;                // and who comes first and is narrow has nothing else
    bool small_has_few = false;         // `few` is what small work has,
    uint64_t crowded_ns = 0;            // when there are long kernels: the last time, by now_ns()
    uint64_t weighed_ns = 0;            // when the work for the few was: likewise,
    uint64_t heavy_ns = 0;              // and found to be too much for more than kFewShare
    std::atomic<bool> watched{false};   // tend() looks for that
    std::atomic<const Lease*> lease_of_ranks{nullptr};  // from keep_for_ranks() on
    bool is_stale = false;                              // somebody has chosen, and has not got it
    std::vector<uint32_t> users;                        // of each: who is limited to some
    std::vector<Member*> members;
    std::atomic<bool> is_shared{false};  // there are several
    std::map<const SessionGroup*, Together> together;
    std::vector<std::unique_ptr<Made>> made;
    std::vector<Part> prepared;  // held for who will need them
  };

  // What a change leaves to be done when the lock is free again.
  struct After {
    struct Wanted {
      uint32_t device = 0;
      SmSet set;
      bool operator==(const Wanted&) const = default;
    };
    std::vector<Part> dropped;
    std::vector<Wanted> wanted;
  };

  Status split_locked(uint32_t device);
  [[nodiscard]] uint32_t sms_of(const OfDevice& of, const SmGroups& groups) const;
  [[nodiscard]] SmGroups all_of(const OfDevice& of) const;
  // Its SMs are reserved ones.
  [[nodiscard]] bool is_reserved_locked(uint32_t device, const Member::Terms& terms) const;
  // `needs_all`: it does not keep off what others have for their rank.
  [[nodiscard]] SmGroups pool_locked(uint32_t device, const Member::Terms& terms,
                                     bool needs_all = false) const;
  [[nodiscard]] SmSet set_of(uint32_t device, SmSet::Kind kind) const;
  // Of `whole`, if that is not null, else of all that those terms leave; of equals `mine`.
  [[nodiscard]] Choice choose_most_locked(uint32_t device, const Member::Terms& terms,
                                          const Member::Habits& habits) const;
  [[nodiscard]] Choice choose_locked(uint32_t device, const Member::Terms& terms,
                                     const Choice* whole, const SmGroups& mine,
                                     const Member::Habits& habits) const;
  // The few SMs of that device are kept, for the ranks above `kept_from_` of its lease; null: not
  // now.
  [[nodiscard]] const Reservation* few_locked(uint32_t device) const;
  static bool is_of_late(uint64_t ns, uint64_t now) { return ns != 0 && ns + kLendNs > now; }
  static bool had(const Member& member, Member::Kind kind, uint64_t now) {
    return is_of_late(member.had_ns_[kind].load(std::memory_order_relaxed), now);
  }
  // The habits of all, and whether the few do for those who come first, as of now, while SMs are
  // kept for ranks. Whether any of it has changed.
  bool look_at_ranks_locked(const Reservation& kept, uint64_t now);
  // Who has small work beside long kernels, and who these are. Whether that has changed.
  bool look_at_small_locked(uint32_t device, uint64_t now);
  [[nodiscard]] bool may_part_locked(uint32_t device, uint64_t now);
  // Whether the few SMs do for all of these.
  [[nodiscard]] bool few_do_locked(uint32_t device, std::span<Member* const> users, uint64_t now);
  static bool has_no_limit(const Member& member);
  // Of late it had work for which what it is to have for now does not do.
  static bool needs_more(const Member& member, uint64_t now);
  void give_all_locked(Member& member, After* after);
  [[nodiscard]] const Choice* whole_locked(const Member& member) const;
  static void count_locked(OfDevice& of, const Choice& choice, bool used);
  void choose_again_locked(Member& member);
  void choose_again_locked(uint32_t device, const SessionGroup& group, Together& together);
  Part leave_locked(Member& member);
  // What each is to have, and has if it is there.
  void rearrange_locked(uint32_t device, After* after);
  static bool wants(const Member& member, const SmSet& set);
  static void give_locked(Member& member, Part part, After* after);
  void finish(After after);
  void put_off(Member& member, const GateClient* client);
  // Whether it is used now, and by whom; in how long to look again, 0: when woken.
  [[nodiscard]] bool look_at_locked(const Reservation& reservation, uint64_t now, uint64_t* next);
  void make_wanted(const After::Wanted& wanted);
  // Some of the resources of a set, whose last is what is left of the device.
  Status trim(const SmPartition& partition, std::vector<CUdevResource>* resources);
  Status create_green(const SmPartition& partition, std::span<const CUdevResource> resources,
                      CUgreenCtx* made);
  // In a quiet moment.
  Status create(Made* made);
  Part keep_locked(uint32_t device, std::unique_ptr<Made> made);
  Part find_locked(uint32_t device, const SmSet& set);
  [[nodiscard]] static std::unique_ptr<Made> to_make(uint32_t device, const SmSet& set);
  // Splits into so many SMs, or the next whole steps below, and what these leave. Nothing happens,
  // and it is false, if that would be many.
  bool split_few_locked(uint32_t device, uint32_t most);
  // Those sets are there from now on. False: one can't be made.
  bool prepare(uint32_t device, std::span<const SmSet> sets);
  void join_locked(Member& member);
  void watch(OfDevice& of);
  Part hold_locked(Made& made);
  void give_back(Made& made);

  const DriverTable& driver_;
  const Devices& devices_;
  ContextGate& gate_;
  ResourceDescriptors& descriptors_;
  std::mutex mutex_;
  std::array<OfDevice, wire::kMaxDevices> of_;
  std::map<uint32_t, Reservation> reservations_;
  std::function<void()> wake_ = [] {};
  Crowded crowded_ = [](uint32_t, Rank) { return false; };
};

}  // namespace openmps::worker
