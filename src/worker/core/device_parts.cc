// SPDX-License-Identifier: Apache-2.0
// See device_parts.h.
#include "worker/core/device_parts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "worker/device/in_context.h"

namespace openmps::worker {

SmTerms DeviceParts::terms_of(const Key& key) const {
  SmTerms terms = terms_[key.first];
  const uint32_t most = key.second;
  terms.sms = terms.sms == 0 || most == 0 ? std::max(terms.sms, most) : std::min(terms.sms, most);
  return terms;
}

// There are as many keys as a device has steps of SMs.
DeviceParts::Key DeviceParts::key_of(uint32_t device, uint32_t at_most) const {
  const Device& on = devices_.at(device);
  if (at_most == 0) return {device, 0};
  const uint32_t sms = cuda::sms_of_count(on.sm_steps, at_most);
  return {device, sms < on.sms ? sms : 0};
}

// A change that comes while the member joins is applied afterwards.
Status DeviceParts::get(uint32_t device, uint32_t at_most, SmPart* part) {
  *part = nullptr;
  if (partitions_ == nullptr) return Status();
  const Key key = key_of(device, at_most);
  auto found = members_.find(key);
  if (found == members_.end()) {
    // A context's set is a part of the session's.
    const Member* whole = nullptr;
    if (key.second != 0) {
      SmPart of_session;
      OPENMPS_RETURN_IF_ERROR(get(device, 0, &of_session));
      whole = members_.at({device, 0}).get();
    }
    std::unique_ptr<Member> member;
    {
      const MutexLock lock(mutex_);
      member = std::make_unique<Member>(device, terms_of(key), changes_, whole);
    }
    const InContext current(driver_, devices_.at(device).context);
    OPENMPS_RETURN_IF_ERROR(partitions_->join(*member, &gate_client_));
    SmTerms terms;
    {
      const MutexLock lock(mutex_);
      found = members_.emplace(key, std::move(member)).first;
      terms = terms_of(key);
    }
    partitions_->set(*found->second, terms);
  }
  *part = partitions_->part(*found->second, clock_.now_ns());
  return Status();
}

Status DeviceParts::get_limit(uint32_t device, uint32_t at_most, SmPart* part) {
  OPENMPS_RETURN_IF_ERROR(get(device, at_most, part));
  if (partitions_ == nullptr) return Status();
  *part = partitions_->lasting(*members_.at(key_of(device, at_most)), std::move(*part));
  if (*part != nullptr && !(*part)->is_limit) *part = nullptr;
  return Status();
}

Status DeviceParts::get_instead(uint32_t device, const std::optional<SmSet>& of, SmPart* part) {
  OPENMPS_RETURN_IF_ERROR(get_limit(device, 0, part));
  if (*part != nullptr && of.has_value() && (*part)->set.includes(*of)) *part = nullptr;
  return Status();
}

std::shared_ptr<Lease> DeviceParts::lease(uint32_t device, uint32_t at_most) {
  const auto found = members_.find(key_of(device, at_most));
  return found == members_.end() ? nullptr : partitions_->lease(*found->second);
}

void DeviceParts::use(Lease& lease, Rank rank) { partitions_->use(lease, rank, clock_.now_ns()); }

DeviceParts::Member* DeviceParts::member(uint32_t device, uint32_t at_most) const {
  if (!asks(device)) return nullptr;
  const auto found = members_.find(key_of(device, at_most));
  return found == members_.end() ? nullptr : found->second.get();
}

void DeviceParts::note(Member& member, const Demand& demand) {
  partitions_->note(member, demand, clock_.now_ns());
}

// The few SMs of small work are no limit: in the cold lane the session has the whole device.
bool DeviceParts::is_limited(uint32_t device) {
  if (partitions_ != nullptr && partitions_->keeps_some(device)) return true;
  bool is_whole = false;  // in all contexts that get() was called for
  for (const auto& [key, member] : members_) {
    if (key.first != device) continue;
    const SmPart part = partitions_->part(*member, clock_.now_ns());
    if (part != nullptr && part->is_limit) return true;
    if (partitions_->is_lifted(*member)) return true;
    is_whole = true;
  }
  if (is_whole) return false;
  const MutexLock lock(mutex_);
  const auto is_less = [all = devices_.at(device).sms](uint32_t sms) {
    return sms != 0 && sms < all;
  };
  const SmTerms& terms = terms_[device];
  return terms.reservation != 0 || is_less(terms.sms) ||
         (terms.group != nullptr && is_less(terms.group->sms(device)));
}

// Calls SmPartitions without mutex_: the session's thread may hold the gate open while it waits for
// mutex_, and the change may have to wait for the gate.
void DeviceParts::set(uint32_t device, const SmTerms& terms) {
  const MutexLock changing(changing_);
  std::vector<std::pair<Member*, SmTerms>> members;
  {
    const MutexLock lock(mutex_);
    terms_[device] = terms;
    for (const auto& [key, member] : members_) {
      if (key.first == device) members.emplace_back(member.get(), terms_of(key));
    }
  }
  for (const auto& [member, its] : members) partitions_->set(*member, its);
}

void DeviceParts::release_all() {
  const MutexLock changing(changing_);
  const MutexLock lock(mutex_);
  for (const auto& [key, member] : members_) partitions_->leave(*member);
  members_.clear();
}

}  // namespace openmps::worker
