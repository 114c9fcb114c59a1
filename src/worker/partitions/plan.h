// SPDX-License-Identifier: Apache-2.0
// Which SMs of the devices each session is to have. Sessions with a limit have some SMs, groups of
// sessions have some together (docs/decisions/0029), reservations keep some for their members
// (0028, 0030), and all other sessions have what is left. A function of what is wished: no driver,
// no locks, no time. partitions/sm_partitions.h puts the plan into force.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/status.h"
#include "worker/admission/policy.h"
#include "worker/device/devices.h"
#include "worker/partitions/demand.h"
#include "worker/partitions/session_group.h"
#include "worker/partitions/sm_set.h"

namespace openmps::worker {

// What a session may have of a device.
struct SmTerms {
  uint32_t sms = 0;          // at most; 0: any number
  uint32_t reservation = 0;  // whose SMs it has; 0: of none
  Rank rank = Rank::kNormal;
  const SessionGroup* group = nullptr;  // with which it has a set of SMs; null: none
  bool borrows = false;                 // has more SMs while others have no work
  bool operator==(const SmTerms&) const = default;
};

// What the plan gives to a session.
struct SmAssignment {
  bool is_whole_device = true;
  bool is_limited = false;  // to a number of SMs, which count as used
  // Work of these kinds needs more SMs, and gets them before it runs: a session without a limit has
  // less than the device for now. Its small work has the few SMs; it leaves the few SMs to others'
  // small work; or it keeps off SMs that are reserved for higher ranks.
  RecentDemand::Kinds too_few_for = 0;
  SmSet set = {};  // unless it is the whole device

  // The session has SMs of its own choice or an operator's, whatever its work needs.
  [[nodiscard]] bool has_limit() const {
    return !is_whole_device && set.kind == SmSet::Kind::kGroups;
  }
};

// One session on one device, or one of its contexts that has a limit of its own.
struct SmWish {
  uint32_t device = 0;
  const SmWish* whole = nullptr;  // the session's, of which a context has a part; null: none
  SmTerms terms = {};
  // What the session's work needs as of now (partitions/demand.h).
  bool needs_whole_device = false;           // also the SMs that are reserved for higher ranks
  SmSet::Kind place = SmSet::Kind::kGroups;  // while small work has SMs to itself
  bool is_lifted = false;                    // it has others' SMs now: `sms` is no limit
  SmAssignment assignment = {};              // the plan's answer
  SmGroups own = {};      // that it had last as a limit, and has again when it is lifted no longer
  SmGroups counted = {};  // as whose user it counts
};

// SMs that are kept for some sessions.
struct SmReservation {
  uint32_t device = 0;
  SmGroups groups;
  bool is_static = false;                  // its members have no SMs of other devices
  std::shared_ptr<Lease> lease = nullptr;  // null: the SMs are not lent to others
  bool is_lent = false;                    // the others have the SMs now
  uint32_t most_sms = 0;                   // with `borrowed`; 0: it borrows none
  bool has_free = false;                   // it may borrow what nobody has reserved, too
  SmGroups borrowed = {};                  // the plan's answer: what its members have beside theirs
};

// SMs of a device that no session has alone, but lower ranks keep off them.
struct SmsForRanks {
  SmGroups groups;
  std::optional<Rank> excludes_from;  // ranks from there on keep off now; none: no session does
};

class SmPlan {
 public:
  // A device is divided before there is a wish for less than the device.
  [[nodiscard]] SmLayout& layout(uint32_t device) { return of_[device].layout; }
  [[nodiscard]] const SmLayout& layout(uint32_t device) const { return of_[device].layout; }
  // assign_all() answers the wishes with a change of that.
  [[nodiscard]] SmsForRanks& for_ranks(uint32_t device) { return of_[device].for_ranks; }
  [[nodiscard]] const SmsForRanks& for_ranks(uint32_t device) const {
    return of_[device].for_ranks;
  }

  // Add a wish, which outlives the plan or is removed, and answer it. Its SMs count as used from
  // then on, so the next wish gets others. `wish.whole` has been added before.
  void add(SmWish& wish);
  void remove(SmWish& wish);
  // Answer that wish again.
  void assign(SmWish& wish);
  // Answer all wishes for the device again: those of groups first, then those of sessions in the
  // order in which they were added. Each keeps its SMs as far as no group gets busier by
  // that.
  void assign_all(uint32_t device);
  [[nodiscard]] bool has_group(uint32_t device, const SessionGroup& group) const {
    return of_[device].groups.contains(&group);
  }
  // What the sessions of each group have together. Only is_lifted may be changed, before
  // assign_all().
  [[nodiscard]] std::map<const SessionGroup*, SmWish>& groups(uint32_t device) {
    return of_[device].groups;
  }
  // The wish, or that of its group, is lifted, or it has what its reservation borrows.
  [[nodiscard]] bool is_lifted(const SmWish& wish) const;
  // It has what its reservation borrows.
  [[nodiscard]] bool has_borrowed(const SmWish& wish) const;
  // What it has without that.
  [[nodiscard]] SmSet own_set(const SmWish& wish) const;

  struct Reserve {
    uint32_t device = 0;
    uint32_t sms = 0;       // at least
    bool lends = false;     // the others keep off the SMs only while its members have work
    SmGroups groups = {};   // exactly these whole groups, and nothing of other devices for members
                            // (a static partition); none: those with the fewest users
    uint32_t most_sms = 0;  // if it lends: what its members have with what others lend; 0: no more
  };
  // Keep groups for the members of a reservation, whose number is the caller's to choose, above 0.
  // How many SMs these are. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: there are not so many left
  // that others could do without, or those that are named are another's; CUDA_ERROR_INVALID_VALUE:
  // there is a reservation of that number. assign_all() answers the wishes with it.
  Result<uint32_t> reserve(uint32_t number, const Reserve& wanted);
  [[nodiscard]] std::map<uint32_t, SmReservation>& reservations() { return reservations_; }
  // The reservation whose member a session with those terms is on the device; null: of none.
  [[nodiscard]] const SmReservation* reservation_of(uint32_t device, const SmTerms& terms) const;

 private:
  struct OfDevice {
    SmLayout layout;
    SmsForRanks for_ranks;
    // Of each group of SMs: how many are limited to it and others.
    std::array<uint32_t, kMostSmGroups> users{};
    std::vector<SmWish*> wishes;
    std::map<const SessionGroup*, SmWish> groups;  // what the sessions of a group have together
  };

  [[nodiscard]] SmGroups pool(uint32_t device, const SmTerms& terms, bool with_excluded) const;
  [[nodiscard]] SmAssignment choose_unlimited(const SmWish& wish) const;
  [[nodiscard]] SmAssignment choose(const SmWish& wish) const;
  [[nodiscard]] const SmAssignment* whole_of(const SmWish& wish) const;
  // The wish counts as the user of these groups, and of no others.
  void count(SmWish& wish, const SmGroups& groups);
  void assign_group(const SessionGroup& group, SmWish& together);
  // What reservations whose members have work borrow of each other and of what nobody has.
  void borrow(uint32_t device);

  PerDevice<OfDevice> of_;
  std::map<uint32_t, SmReservation> reservations_;
};

}  // namespace openmps::worker
