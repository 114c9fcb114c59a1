// SPDX-License-Identifier: Apache-2.0
// Physical memory and events that sessions of this worker share with each other, found by random
// keys. A session that has a key from the owner may open the object; an opened object outlives
// the session that made it. One per worker, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "wire/commands/memory.h"
#include "worker/device/driver_event.h"
#include "worker/memory/physical_memory.h"

namespace openmps::worker {

// Keys of one session at a time: bounds what a client can make the worker hold.
inline constexpr uint32_t kMaxOffers = 1u << 16;

class Exchange {
 public:
  // Publish under a fresh key. False: kMaxOffers, or the system gives no random numbers.
  [[nodiscard]] bool publish(uint32_t session, std::shared_ptr<Physical> memory,
                             wire::ShareKey* key) {
    return add({session, std::move(memory), nullptr}, key);
  }
  [[nodiscard]] bool publish(uint32_t session, std::shared_ptr<DriverEvent> event,
                             wire::ShareKey* key) {
    return add({session, nullptr, std::move(event)}, key);
  }
  // Publish under the key that the session's former worker had chosen.
  [[nodiscard]] bool publish_again(uint32_t session, std::shared_ptr<Physical> memory,
                                   const wire::ShareKey& key) {
    return add_under({session, std::move(memory), nullptr}, key);
  }
  // The object that a key names; null: none, or none any more.
  [[nodiscard]] std::shared_ptr<Physical> memory(const wire::ShareKey& key) {
    return find(key).memory;
  }
  [[nodiscard]] std::shared_ptr<DriverEvent> event(const wire::ShareKey& key) {
    return find(key).event;
  }
  // The key names nothing from now on. False: `session` has not published it.
  bool withdraw(uint32_t session, const wire::ShareKey& key);
  // Withdraw all keys of a session, which ends.
  void withdraw_all(uint32_t session);

 private:
  using Key = std::array<unsigned char, sizeof(wire::ShareKey)>;
  struct Offer {
    uint32_t session = 0;
    std::shared_ptr<Physical> memory;
    std::shared_ptr<DriverEvent> event;
  };
  static Key key_of(const wire::ShareKey& key);
  bool add(Offer offer, wire::ShareKey* key);
  bool add_under(Offer offer, const wire::ShareKey& key);
  // An empty one: the key names nothing.
  Offer find(const wire::ShareKey& key);

  Mutex mutex_{LockRank::kExchange};
  std::map<Key, Offer> offers_ GUARDED_BY(mutex_);
  std::map<uint32_t, uint32_t> counts_ GUARDED_BY(mutex_);  // of offers, by session
};

}  // namespace openmps::worker
