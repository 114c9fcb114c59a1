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

PolicyDecision fair_share_policy(const PolicyInput& mine, std::span<const PolicyInput> others,
                                 uint32_t sms) {
  PolicyDecision decision;
  uint64_t wanted = mine.sms;
  bool comes_behind = false;
  for (const PolicyInput& other : others) {
    wanted += other.sms;
    if (other.rank < mine.rank) decision.budget_ns = kShortBudgetNs;
    const uint64_t most = kLeadTimes * other.used_ns + kLeadNs;
    const bool had_less = other.rank == mine.rank && mine.used_ns > most;
    comes_behind |= other.sms != 0 && (other.rank < mine.rank || had_less);
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
