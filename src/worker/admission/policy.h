// SPDX-License-Identifier: Apache-2.0
// Whether a session's kernels are held in favour of other sessions that want the same device: a
// replaceable function of the SMs that each keeps busy and of its recent use (decision 25). A
// policy has no state; each FairShare (fair_share.h) has one session's figures and calls it. Any
// thread.
//
// Kernels stand for all work that keeps SMs busy (Cost::sms), graphs with kernels among it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace openmps::worker {

// The time of a stream budget: until all work that the driver has of the stream is expected to have
// ended, the running item included. It is short, since the context cannot be quiescent sooner, and
// long enough for a thread to wake (0.1 ms late as a rule) and submit more. An item that takes
// longer by itself is submitted once at most half of this time is left before it.
inline constexpr uint64_t kBudgetNs = 2'000'000;

// A session's rank. The highest rank has the smallest value, and its work goes first.
enum class Rank : uint32_t {
  kLatency = 0,     // OPENMPS_QOS=latency
  kNormal = 1,      // MPS's priority 0
  kBestEffort = 2,  // MPS's priority 1, "below normal"
};

// What a policy knows of a session on a device.
struct PolicyInput {
  Rank rank = Rank::kNormal;
  uint32_t sms = 0;      // SMs that its kernels keep busy on average; 0: it has had none yet
  uint64_t used_ns = 0;  // of its account (share_account.h)
  // The account's weight; 0: none is stated, which counts as 1.
  float weight = 0;
  // What counts where there are weights: use over a longer time, and what has been submitted.
  uint64_t weighed_ns = 0;
  // Sessions of one group with a weight have one account: they do not wait for each other.
  const void* account = nullptr;
};

// What a policy decides of a session, in force until the next decision.
struct PolicyDecision {
  uint64_t budget_ns = kBudgetNs;  // the time of its streams' budgets
  bool holds_kernels = false;      // the session's kernels are held: others come first
  // A session that has waited for longer submits some work nevertheless: other sessions' work may
  // depend on it.
  uint64_t longest_wait_ns = 50'000'000;
};

// `others`: the other sessions with unfinished kernels on the device. `sms`: SMs of the device.
using Policy = PolicyDecision (*)(const PolicyInput& mine, std::span<const PolicyInput> others,
                                  uint32_t sms);

// The default. Of the sessions of one rank none can use more than about three times as much as a
// competitor; where one of the two has a weight, they use time on SMs in proportion to their
// weights. Those of a higher rank go first. No kernels are held while the device has enough SMs for
// all.
PolicyDecision fair_share_policy(const PolicyInput& mine, std::span<const PolicyInput> others,
                                 uint32_t sms);
// A session waits for another if its use is more than kLeadTimes times the other's plus kLeadNs.
// The lead is large because use is an estimate: with 1.25 and 1.5 times, equal programs were held
// in turn, and some of eight took up to 18 % longer (decision 25).
inline constexpr uint64_t kLeadNs = 10'000'000;
inline constexpr uint64_t kLeadTimes = 3;
// With weights: that much in the place of kLeadNs, in time by weight: a few decisions' worth, and
// less than one part in a thousand of what a session that fills the device has used.
inline constexpr uint64_t kWeightedLeadNs = 250'000;
// And a session may wait for as long as eight kernels of 50 ms take, whose session has eight times
// its weight.
inline constexpr uint64_t kWeightedWaitNs = 400'000'000;
// The time of a stream budget while a higher rank has work, which has to wait for all that lower
// ranks have submitted before.
inline constexpr uint64_t kShortBudgetNs = 500'000;

// Kernels of a session are held while any session of a higher rank has some, for however long.
// Sessions of one rank do not wait for each other.
PolicyDecision strict_policy(const PolicyInput& mine, std::span<const PolicyInput> others,
                             uint32_t sms);

inline constexpr char kDefaultPolicy[] = "fair";
// The policy that OPENMPS_POLICY calls `name`; null: there is none of that name.
[[nodiscard]] Policy policy_of(std::string_view name);
// All names, as a list for people.
[[nodiscard]] std::string policy_names();

// The driver's priority of a stream for which the program has asked for priority `asked`, in a
// session of that rank. The device has priorities from `least` to `greatest`, which is the lower
// number. Latency sessions get the greatest, best-effort ones the least, others what they ask for.
[[nodiscard]] int32_t driver_priority(Rank rank, int32_t asked, int32_t least, int32_t greatest);

}  // namespace openmps::worker
