// SPDX-License-Identifier: Apache-2.0
// See policy.h.
#include "worker/admission/policy.h"

#include "worker/admission/verdict.h"

namespace openmps::worker {
namespace {

struct NamedPolicy {
  std::string_view name;
  Policy policy;
};
constexpr NamedPolicy kPolicies[] = {{"fair", fair_share_policy}, {"strict", strict_policy}};

}  // namespace

namespace {

double weight_of(const PolicyInput& input) { return input.weight > 0 ? input.weight : 1; }

// Whether the session has had more than its part, compared with that other one.
bool had_more(const PolicyInput& mine, const PolicyInput& other) {
  if (mine.account != nullptr && mine.account == other.account) return false;
  if (mine.weight == 0 && other.weight == 0) {
    return mine.used_ns > kLeadTimes * other.used_ns + kLeadNs;
  }
  return static_cast<double>(mine.weighed_ns) / weight_of(mine) >
         static_cast<double>(other.weighed_ns) / weight_of(other) + kWeightedLeadNs;
}

}  // namespace

PolicyDecision fair_share_policy(const PolicyInput& mine, std::span<const PolicyInput> others,
                                 uint32_t sms) {
  PolicyDecision decision;
  if (mine.weight != 0) decision.longest_wait_ns = kWeightedWaitNs;
  uint64_t wanted = mine.sms;
  bool comes_behind = false;
  for (const PolicyInput& other : others) {
    wanted += other.sms;
    if (other.rank < mine.rank) decision.budget_ns = kShortBudgetNs;
    const bool had_less = other.rank == mine.rank && had_more(mine, other);
    comes_behind |= other.sms != 0 && (other.rank < mine.rank || had_less);
    if (other.weight != 0) decision.longest_wait_ns = kWeightedWaitNs;
  }
  decision.holds_kernels = comes_behind && wanted > sms;
  return decision;
}

PolicyDecision strict_policy(const PolicyInput& mine, std::span<const PolicyInput> others,
                             uint32_t) {
  PolicyDecision decision;
  decision.longest_wait_ns = kNever;
  for (const PolicyInput& other : others) {
    decision.holds_kernels |= other.sms != 0 && other.rank < mine.rank;
  }
  return decision;
}

Policy policy_of(std::string_view name) {
  for (const NamedPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.policy;
  }
  return nullptr;
}

std::string policy_names() {
  std::string names;
  for (const NamedPolicy& policy : kPolicies) {
    names += (names.empty() ? "" : ", ") + std::string(policy.name);
  }
  return names;
}

int32_t driver_priority(Rank rank, int32_t asked, int32_t least, int32_t greatest) {
  switch (rank) {
    case Rank::kLatency: return greatest;
    case Rank::kBestEffort: return least;
    case Rank::kNormal: break;
  }
  return asked;
}

}  // namespace openmps::worker
