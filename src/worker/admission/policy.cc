// SPDX-License-Identifier: Apache-2.0
// See policy.h.
#include "worker/admission/policy.h"

#include "worker/admission/verdict.h"

namespace openmps::worker {
namespace {

template <typename T>
std::unique_ptr<Policy> make() {
  return std::make_unique<T>();
}

struct NamedPolicy {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};
constexpr NamedPolicy kPolicies[] = {{"fair", make<FairSharePolicy>},
                                     {"strict", make<StrictPriorityPolicy>}};

}  // namespace

Grant FairSharePolicy::decide(const Claim& mine, std::span<const Claim> others,
                              uint32_t sms) const {
  Grant grant;
  uint64_t wanted = mine.sms;
  bool comes_behind = false;
  for (const Claim& other : others) {
    wanted += other.sms;
    if (other.rank < mine.rank) grant.window_ns = kShortWindowNs;
    const uint64_t most = kLeadTimes * other.used_ns + kLeadNs;
    const bool had_less = other.rank == mine.rank && mine.used_ns > most;
    comes_behind |= other.sms != 0 && (other.rank < mine.rank || had_less);
  }
  grant.waits = comes_behind && wanted > sms;
  return grant;
}

Grant StrictPriorityPolicy::decide(const Claim& mine, std::span<const Claim> others,
                                   uint32_t) const {
  Grant grant;
  grant.longest_wait_ns = kNever;
  for (const Claim& other : others) grant.waits |= other.sms != 0 && other.rank < mine.rank;
  return grant;
}

std::unique_ptr<Policy> make_policy(std::string_view name) {
  for (const NamedPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.make();
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
