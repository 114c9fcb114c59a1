// SPDX-License-Identifier: Apache-2.0
// See keeper.h.
#include "worker/core/keeper.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "wire/message.h"

namespace openmps::worker {

KeptMemory::~KeptMemory() {
  if (keeper_ != nullptr) keeper_->forget(memory_);
}

KeptMemory Keeper::keep(uint32_t session, uint64_t number, uint64_t bytes, uint32_t device,
                        int memory) {
  wire::Keep message{.session = session, .number = number, .bytes = bytes, .device = device};
  if (count_.fetch_add(1) >= most_ || !send_(wire::message_bytes(message), {&memory, 1})) {
    count_.fetch_sub(1);
    return KeptMemory();
  }
  return KeptMemory(*this, {session, device, number, bytes});
}

bool Keeper::keep_image(uint64_t hash, uint64_t bytes, int file) {
  wire::Keep message{.what = wire::Kept::kImage, .number = hash, .bytes = bytes};
  const std::span<const int> fds(&file, file < 0 ? 0 : 1);
  if (count_.fetch_add(1) < most_ && send_(wire::message_bytes(message), fds)) return true;
  count_.fetch_sub(1);
  return false;
}

void Keeper::forget_image(uint64_t hash) {
  count_.fetch_sub(1);
  const MutexLock lock(mutex_);
  send_forget_locked({.what = wire::Kept::kImage, .number = hash});
}

void Keeper::send_forget_locked(const wire::Forget& message) {
  static_cast<void>(send_(wire::message_bytes(message), {}));
}

// One answer at a time is outstanding, however much is freed: it brings the question for the rest.
void Keeper::forget(const Memory& memory) {
  count_.fetch_sub(1);
  const MutexLock lock(mutex_);
  leaving_.push_back({asked_ + 1, memory.device, memory.bytes});
  on_way_[memory.device].fetch_add(memory.bytes, std::memory_order_relaxed);
  const uint64_t ticket = asked_ == answered_ ? ++asked_ : 0;
  send_forget_locked({.session = memory.session, .number = memory.number, .ticket = ticket});
}

void Keeper::ask_locked() { send_forget_locked({.ticket = ++asked_}); }

void Keeper::on_forgotten(const wire::Forgotten& message) {
  const MutexLock lock(mutex_);
  answered_ = std::clamp(message.ticket, answered_, asked_);
  while (!leaving_.empty() && leaving_.front().ticket <= answered_) {
    const Leaving& free = leaving_.front();
    on_way_[free.device].fetch_sub(free.bytes, std::memory_order_relaxed);
    leaving_.pop_front();
  }
  if (!leaving_.empty() && asked_ == answered_) ask_locked();
  forgotten_.notify_all();
}

bool Keeper::wait_forgotten(uint64_t limit_ms) {
  const uint64_t limit_ns = now_ns() + limit_ms * kNsPerMs;
  const MutexLock lock(mutex_);
  if (leaving_.empty()) return false;
  if (leaving_.back().ticket > asked_) ask_locked();
  const uint64_t ticket = leaving_.back().ticket;
  for (bool in_time = true; in_time; in_time = forgotten_.wait_until(mutex_, limit_ns)) {
    if (answered_ >= ticket) return true;
  }
  return false;
}

void Keeper::on_give(const wire::Give& message, UniqueFd memory) {
  if (message.device >= wire::kMaxDevices) return;
  const MutexLock lock(mutex_);
  given_[{message.session, message.number}] = {std::move(memory), message.bytes, message.device};
}

Keeper::Taken Keeper::take(uint32_t session, uint64_t number) {
  Given given;
  {
    const MutexLock lock(mutex_);
    const auto found = given_.find({session, number});
    if (found == given_.end()) return {};
    given = std::move(found->second);
    given_.erase(found);
  }
  count_.fetch_add(1);
  const Memory memory{session, given.device, number, given.bytes};
  return {std::move(given.memory), given.bytes, given.device, KeptMemory(*this, memory)};
}

void Keeper::drop_given(uint32_t session) {
  std::vector<Given> closed;
  const MutexLock lock(mutex_);
  const auto first = given_.lower_bound({session, 0});
  const auto last = given_.upper_bound({session, ~0ull});
  for (auto it = first; it != last; ++it) {
    send_forget_locked({.session = session, .number = it->first.second});
    closed.push_back(std::move(it->second));
  }
  given_.erase(first, last);
}

}  // namespace openmps::worker
