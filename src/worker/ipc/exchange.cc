// SPDX-License-Identifier: Apache-2.0
// See exchange.h.
#include "worker/ipc/exchange.h"

#include <sys/random.h>

#include <cstring>
#include <utility>

#include "base/mutex.h"

namespace openmps::worker {
namespace {

template <typename Key>
Key key_of(const wire::ShareKey& key) {
  Key bytes;
  memcpy(bytes.data(), key.bytes, bytes.size());
  return bytes;
}

}  // namespace

bool Exchange::add(Offer offer, wire::ShareKey* key) {
  if (getrandom(key->bytes, sizeof(key->bytes), 0) != sizeof(key->bytes)) return false;
  const MutexLock lock(mutex_);
  uint32_t& count = counts_[offer.session];
  if (count >= kMaxOffers) return false;
  ++count;
  offers_[key_of<Key>(*key)] = std::move(offer);
  return true;
}

bool Exchange::publish(uint32_t session, std::shared_ptr<Physical> memory, wire::ShareKey* key) {
  return add({session, std::move(memory), nullptr}, key);
}

bool Exchange::publish(uint32_t session, std::shared_ptr<DriverEvent> event, wire::ShareKey* key) {
  return add({session, nullptr, std::move(event)}, key);
}

std::shared_ptr<Physical> Exchange::memory(const wire::ShareKey& key) {
  const MutexLock lock(mutex_);
  const auto found = offers_.find(key_of<Key>(key));
  return found == offers_.end() ? nullptr : found->second.memory;
}

std::shared_ptr<DriverEvent> Exchange::event(const wire::ShareKey& key) {
  const MutexLock lock(mutex_);
  const auto found = offers_.find(key_of<Key>(key));
  return found == offers_.end() ? nullptr : found->second.event;
}

// `last` is destroyed after the lock: the driver's calls of a last holder are made without it.
bool Exchange::withdraw(uint32_t session, const wire::ShareKey& key) {
  Offer last;
  const MutexLock lock(mutex_);
  const auto found = offers_.find(key_of<Key>(key));
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
