// SPDX-License-Identifier: Apache-2.0
// See exchange.h.
#include "worker/ipc/exchange.h"

#include <sys/random.h>

#include <cstring>
#include <utility>

namespace openmps::worker {

Exchange::Key Exchange::key_of(const wire::ShareKey& key) {
  Key bytes;
  memcpy(bytes.data(), key.bytes, bytes.size());
  return bytes;
}

bool Exchange::add(Offer offer, wire::ShareKey* key) {
  if (getrandom(key->bytes, sizeof(key->bytes), 0) != sizeof(key->bytes)) return false;
  return add_under(std::move(offer), *key);
}

bool Exchange::add_under(Offer offer, const wire::ShareKey& key) {
  const MutexLock lock(mutex_);
  uint32_t& count = counts_[offer.session];
  if (count >= kMaxOffers) return false;
  ++count;
  offers_[key_of(key)] = std::move(offer);
  return true;
}

Exchange::Offer Exchange::find(const wire::ShareKey& key) {
  const MutexLock lock(mutex_);
  const auto found = offers_.find(key_of(key));
  return found == offers_.end() ? Offer() : found->second;
}

// `last` is destroyed after the lock: the driver's calls of a last holder are made without it.
bool Exchange::withdraw(uint32_t session, const wire::ShareKey& key) {
  Offer last;
  const MutexLock lock(mutex_);
  const auto found = offers_.find(key_of(key));
  if (found == offers_.end() || found->second.session != session) return false;
  --counts_[session];
  last = std::move(found->second);
  offers_.erase(found);
  return true;
}

void Exchange::withdraw_all(uint32_t session) {
  decltype(offers_) last;
  const MutexLock lock(mutex_);
  for (auto it = offers_.begin(); it != offers_.end();) {
    const auto offer = it++;
    if (offer->second.session == session) last.insert(offers_.extract(offer));  // no memory needed
  }
  counts_.erase(session);
}

}  // namespace openmps::worker
