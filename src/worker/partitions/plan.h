// SPDX-License-Identifier: Apache-2.0
// Which SMs of the devices each session is to have. Sessions with a limit have some SMs, groups of
// sessions have some together (docs/decisions/0029), reservations keep some for their members
// (0028, 0030), and all other sessions have what is left. A function of what is wished: no driver,
// no locks, no time. partitions/sm_partitions.h puts the plan into force.
#pragma once

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
  bool operator==(const SmTerms&) const = default;
};

// Why a session without a limit has less than the device for now. Work that needs more SMs lifts
// the restriction before it runs.
enum class Restriction : uint8_t {
  kNone,
  kFewSms,        // its work is small and has the few SMs
  kRemainingSms,  // it leaves the few SMs to others' small work
  kExcludedSms,   // it keeps off SMs that are reserved for higher ranks
};

// What the plan gives to a session.
struct SmAssignment {
  bool is_whole_device = true;
  bool is_limited = false;  // to a number of SMs, which count as used
  Restriction restriction = Restriction::kNone;
  SmSet set = {};  // unless it is the whole device

  // The session has SMs of its own choice or an operator's, whatever its work needs.
  [[nodiscard]] bool has_limit() const {
    return !is_whole_device && restriction != Restriction::kFewSms &&
           restriction != Restriction::kRemainingSms;
  }
};

// One session on one device, or one of its contexts that has a limit of its own.
struct SmWish {
  uint32_t device = 0;
  const SmWish* whole = nullptr;  // the session's, of which a context has a part; null: none
  SmTerms terms;
  // What the session's work needs as of now (partitions/demand.h).
  bool needs_whole_device = false;           // also the SMs that are reserved for higher ranks
  SmSet::Kind place = SmSet::Kind::kGroups;  // while small work has SMs to itself
  SmAssignment assignment = {};              // the plan's answer
};

// SMs that are kept for some sessions.
struct SmReservation {
  uint32_t device = 0;
  SmGroups groups;
  bool is_for_ranks = false;  // no session has these SMs alone, but lower ranks keep off them
  bool is_static = false;     // its members have no SMs of other devices
  // Ranks from there on keep off the SMs now; none: no session does.
  std::optional<Rank> excludes_from = Rank::kLatency;
  std::shared_ptr<Lease> lease = nullptr;  // null: the SMs are not lent to others

  [[nodiscard]] bool excludes(Rank rank) const {
    return excludes_from.has_value() && rank >= *excludes_from;
  }
};

class SmPlan {
 public:
  // The numbers of reservations for ranks: from here on, one for each device.
  static constexpr uint32_t kRanksNumber = 0xffff'ff00;

  [[nodiscard]] SmLayout& layout(uint32_t device) { return of_[device].layout; }
  [[nodiscard]] const SmLayout& layout(uint32_t device) const { return of_[device].layout; }
  // The device is divided so from now on: before any wish for less than the device.
  void set_groups(uint32_t device, std::vector<uint32_t> group_sms, bool has_partial_group);

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

  struct Reserve {
    uint32_t device = 0;
    uint32_t sms = 0;      // at least
    bool lends = false;    // the others keep off the SMs only while its members have work
    SmGroups groups = {};  // exactly these whole groups, and nothing of other devices for members
                           // (a static partition); none: those with the fewest users
  };
  // Keep groups for the members of a reservation, whose number is the caller's to choose, above 0
  // and below kRanksNumber. How many SMs these are. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION:
  // there are not so many left that others could do without, or those that are named are another's;
  // CUDA_ERROR_INVALID_VALUE: there is a reservation of that number. assign_all() answers the
  // wishes with it.
  Result<uint32_t> reserve(uint32_t number, const Reserve& wanted);
  // Keep groups for ranks; assign_all() answers the wishes with that.
  const Lease* reserve_for_ranks(uint32_t device, const SmGroups& groups);
  [[nodiscard]] std::map<uint32_t, SmReservation>& reservations() { return reservations_; }
  // The reservation whose member a session with those terms is on the device; null: of none.
  [[nodiscard]] const SmReservation* reservation_of(uint32_t device, const SmTerms& terms) const;

 private:
  // What the sessions of a group have together.
  struct GroupWish {
    uint32_t members = 0;
    SmAssignment assignment;
  };
  struct OfDevice {
    SmLayout layout;
    std::vector<uint32_t> users;  // of each group of SMs: how many are limited to it and others
    std::vector<SmWish*> wishes;
    std::map<const SessionGroup*, GroupWish> groups;
  };

  [[nodiscard]] SmGroups pool(uint32_t device, const SmTerms& terms, bool with_excluded) const;
  [[nodiscard]] SmAssignment choose_unlimited(const SmWish& wish) const;
  [[nodiscard]] SmAssignment choose(const SmWish& wish, const SmAssignment* whole) const;
  [[nodiscard]] const SmAssignment* whole_of(const SmWish& wish) const;
  void count(uint32_t device, const SmAssignment& assignment, bool used);
  void assign(uint32_t device, const SessionGroup& group, GroupWish& wish);

  PerDevice<OfDevice> of_;
  std::map<uint32_t, SmReservation> reservations_;
};

}  // namespace openmps::worker
