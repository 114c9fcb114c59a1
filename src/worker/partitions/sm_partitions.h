// SPDX-License-Identifier: Apache-2.0
// Who has which SMs of the devices (docs/decisions/0026, 0028): collects what sessions and
// operators wish (plan.h) and what work needs (demand.h), and puts the plan into force as green
// contexts of the shared context (sm_contexts.h). What a session is to have may change at any time;
// the change is in force once the green context is there. Everything is told the time, by now_ns().
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"
#include "worker/partitions/demand.h"
#include "worker/partitions/plan.h"
#include "worker/partitions/sm_contexts.h"

namespace openmps::worker {

class SmPartitions : public std::enable_shared_from_this<SmPartitions> {
 public:
  // One session on one device, or one of its contexts that has a limit of its own.
  class Member {
   public:
    // `changes` grows when part() may have changed. `whole`: the session, of whose set a context
    // has a part; null: of none. The session joins before its context and outlives it.
    Member(uint32_t device, const SmTerms& terms, std::atomic<uint64_t>& changes,
           const Member* whole = nullptr)
        : changes_(changes),
          wish_{.device = device,
                .whole = whole != nullptr ? &whole->wish_ : nullptr,
                .terms = terms} {}

   private:
    friend class SmPartitions;
    // By which FairShares knows the work of its group, or of its session.
    [[nodiscard]] const void* owner() const {
      return wish_.terms.group != nullptr ? static_cast<const void*>(wish_.terms.group) : &changes_;
    }
    [[nodiscard]] const void* session() const { return &changes_; }
    // It has had work of late for which what it is to have for now is not enough.
    [[nodiscard]] bool needs_more(uint64_t now) const {
      return demand_.had(too_few_for_.load(std::memory_order_relaxed), now);
    }

    std::atomic<uint64_t>& changes_;
    RecentDemand demand_;
    // As in the wish's assignment.
    std::atomic<RecentDemand::Kinds> too_few_for_{RecentDemand::kNone};
    // Guarded by SmPartitions' mutex.
    SmWish wish_;
    SmPart part_;  // that it has; null: the whole device
    SmPart own_;   // that it has again when it has others' SMs no longer: kept, to be there at once
  };

  // All outlive the gate, which outlives it.
  SmPartitions(const DriverTable& driver, const Devices& devices, ContextGate& gate,
               ResourceDescriptors& descriptors);
  SmPartitions(const SmPartitions&) = delete;
  SmPartitions& operator=(const SmPartitions&) = delete;

  // The member has its part when this returns; a new green context is made while nothing runs, so
  // not between the gate's enter() and leave(). Beside work that may never end
  // (Patience::kUnlessStuck) it has the whole device until there is one, which is logged. The
  // device's context is current. Errors: those of SmContexts;
  // CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: all SMs of that device are others' alone.
  Status join(Member& member, const GateClient* client);
  void leave(Member& member);
  // The member's set now, which exists as long as it is held; null: the whole device. It is enough
  // for all recent work of the member that note() was told of.
  [[nodiscard]] SmPart part(Member& member, uint64_t now);
  // The lease of SMs that are kept for the member, or for its rank, and that others have while it
  // has no work; null: there are none.
  [[nodiscard]] std::shared_ptr<Lease> lease(const Member& member);
  // The member, or its group, has others' SMs beside its own for now: it is limited all the same.
  [[nodiscard]] bool is_lifted(const Member& member) {
    const MutexLock lock(mutex_);
    return plan_.is_lifted(member.wish_);
  }
  // What of the member's set `part` it has whatever others do: without what its partition borrows.
  [[nodiscard]] SmPart lasting(const Member& member, SmPart part);
  // What the member may have from now on; in force when `changes` grows.
  void set(Member& member, const SmTerms& terms);
  // The number of SMs that the group may have has changed.
  void change(const SessionGroup& group);

  // As SmPlan::reserve().
  Result<uint32_t> reserve(uint32_t number, const SmPlan::Reserve& wanted);
  void release(uint32_t number);
  // There is a reservation of that number.
  [[nodiscard]] bool keeps(uint32_t number);
  // An operator has reserved SMs of the device, so sessions that are not members have less than
  // all.
  [[nodiscard]] bool keeps_some(uint32_t device);

  // So many SMs of the device are for ranks, at least (0: a sixteenth), in whole groups, once
  // keep_for_ranks() says so. The green context that this takes is made now: when it is needed
  // nothing has to run for it, which would be a kernel's length away. Before there are sessions; at
  // most once for a device.
  void prepare_for_ranks(uint32_t device, uint32_t sms = 0);
  // From now on sessions of lower rank keep off these SMs while others have work and the lower ones
  // fill the device with long kernels (decision 28). Those of higher rank have all SMs.
  void keep_for_ranks(uint32_t device);
  // Small work has a few SMs to itself, a thirty-second of the device at most, while others fill it
  // with long kernels (docs/decisions/0031). Before there are sessions.
  void prepare_few(uint32_t device);
  // How many SMs these are. No lock: the number is final before there are sessions.
  [[nodiscard]] uint32_t few(uint32_t device) const NO_THREAD_SAFETY_ANALYSIS {
    return plan_.layout(device).few_sms;
  }
  // note() is to be told what work needs. No lock, as few().
  [[nodiscard]] bool asks(uint32_t device) const NO_THREAD_SAFETY_ANALYSIS {
    return few(device) != 0 || plan_.for_ranks(device).groups.any();
  }
  // And of all work, not only of kernels of Demand::kLongNs or more.
  [[nodiscard]] bool looks(uint32_t device) const {
    const OfDevice& of = of_[device];
    return of.is_watched.load(std::memory_order_relaxed) || of.lease_of_ranks->is_in_use();
  }
  // The member is about to submit such work. If it has less than the device for now, and the work
  // needs more, the next part() returns the whole device. The thread that calls part().
  void note(Member& member, const Demand& demand, uint64_t now);
  // A session of that rank, for which SMs are kept, has work.
  void use(Lease& lease, Rank rank, uint64_t now) {
    if (lease.use(rank, now)) wake_();
  }

  // Look at what is used, and at what work needs: SMs that are used are taken back, those that have
  // not been used for kRecentNs are lent. When to look again, by now_ns(); 0: when woken. Main
  // thread.
  uint64_t service(uint64_t now);
  // Before there are sessions. `wake`: service() has something to do; called by any thread, with
  // locks held. `shares`: of all devices, which know who has work; null: nobody borrows.
  void connect(std::function<void()> wake, Crowded crowded,
               PerDevice<FairShares>* shares = nullptr);

 private:
  struct OfDevice {
    const std::shared_ptr<Lease> lease_of_ranks = std::make_shared<Lease>();
    bool has_borrowers = false;  // FairShares knows of some
    bool keeps_for_ranks = false;
    SmallWorkReview small_work;
    std::atomic<bool> is_watched{false};  // service() looks whether small work needs SMs to itself
    bool is_stale = false;                // the plan has changed for a member, and not for others
    std::vector<Member*> members;
    std::atomic<bool> is_shared{false};  // there are several
    std::vector<SmPart> prepared;        // held for those who will need them
  };

  Status divide_locked(uint32_t device) REQUIRES(mutex_);
  void watch(uint32_t device);
  void lift_restriction_locked(Member& member) REQUIRES(mutex_);
  static bool lacks_set(const Member& member);
  void give_locked(Member& member, SmPart part) REQUIRES(mutex_);
  // All members get what the plan says by now, as far as the green contexts are there.
  // make_missing() sees to the others, when the lock is free again.
  void apply_locked(uint32_t device) REQUIRES(mutex_);
  void make_missing(uint32_t device);
  void make(uint32_t device, const SmSet& set);
  bool prepare(uint32_t device, const SmSet& set);
  bool review_reservations_locked(uint32_t device, uint64_t now, uint64_t* next) REQUIRES(mutex_);
  // The sessions whose work on the device goes to SMs that are reserved for them.
  FairShares::Owners sessions_inside_locked(uint32_t device) REQUIRES(mutex_);
  bool review_borrowers_locked(uint32_t device, uint64_t now, uint64_t* next) REQUIRES(mutex_);
  bool review_small_work_locked(uint32_t device, uint64_t now) REQUIRES(mutex_);
  [[nodiscard]] bool keeps_some_locked(uint32_t device) REQUIRES(mutex_);

  const Devices& devices_;
  ContextGate& gate_;
  SmContexts contexts_;
  Mutex mutex_{LockRank::kSmPartitions};
  SmPlan plan_ GUARDED_BY(mutex_);
  PerDevice<OfDevice> of_;
  std::function<void()> wake_ = [] {};
  Crowded crowded_ = [](uint32_t, Rank) { return false; };
  PerDevice<FairShares>* shares_ = nullptr;
};

}  // namespace openmps::worker
