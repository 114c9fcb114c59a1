// SPDX-License-Identifier: Apache-2.0
// See keeper.h.
#include "worker/core/keeper.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "wire/message.h"

namespace openmps::worker {

KeptMemory::~KeptMemory() {
  if (keeper_ != nullptr) keeper_->forget(memory_);
}

Keeper::~Keeper() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    exported_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

KeptMemory Keeper::keep(uint32_t session, uint64_t number, uint64_t bytes, uint32_t device,
                        Export exported) {
  if (count_.fetch_add(1) >= most_) {
    count_.fetch_sub(1);
    return KeptMemory();
  }
  const Memory memory{session, device, number, bytes};
  const MutexLock lock(mutex_);
  wait_for_export_locked(memory, std::move(exported));
  return KeptMemory(*this, memory);
}

void Keeper::wait_for_export_locked(const Memory& memory, Export exported) {
  const Key key{memory.session, memory.number};
  waiting_[key] = {memory, std::move(exported)};
  due_.push_back({now_ns() + after_ns_, key});
  if (due_.size() == 1) exported_.notify_all();
  // Without a thread memory is exported when its session is handed over.
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
  }
}

KeptMemory Keeper::keep_now(uint32_t session, uint64_t number, uint64_t bytes, uint32_t device,
                            int file) {
  const Memory memory{session, device, number, bytes};
  if (count_.fetch_add(1) >= most_ || !send_keep(memory, file)) {
    count_.fetch_sub(1);
    return KeptMemory();
  }
  return KeptMemory(*this, memory);
}

bool Keeper::send_keep(const Memory& memory, int file) {
  const wire::Keep message{.session = memory.session,
                           .number = memory.number,
                           .bytes = memory.bytes,
                           .device = memory.device};
  return send_(wire::message_bytes(message), {&file, 1});
}

void Keeper::run() {
  pthread_setname_np(pthread_self(), "keeper");
  const MutexLock lock(mutex_);
  while (!stop_) {
    if (due_.empty()) {
      exported_.wait(mutex_);
    } else if (const auto [due_ns, key] = due_.front(); now_ns() < due_ns) {
      exported_.wait_until(mutex_, due_ns);
    } else {
      due_.pop_front();
      const auto found = waiting_.find(key);
      if (found != waiting_.end() && !found->second.is_in_hand) export_locked(key);
    }
  }
}

void Keeper::export_locked(const Key& key) {
  Waiting& waiting = waiting_.at(key);
  waiting.is_in_hand = true;
  const Export exported = std::move(waiting.exported);
  UniqueFd file;  // closed without the mutex, if nobody wants it any more
  {
    const MutexUnlock unlocked(mutex_);
    file = exported();
  }
  // What can't be exported or sent the next worker does not find.
  if (!waiting.is_released && file.valid()) {
    static_cast<void>(send_keep(waiting.memory, file.get()));
  }
  const bool is_released = waiting.is_released;
  const Memory memory = waiting.memory;
  if (!is_released) {
    waiting_.erase(key);
    exported_.notify_all();
  }
  {
    const MutexUnlock unlocked(mutex_);
    file.reset();
  }
  if (is_released) {
    waiting_.erase(key);
    on_way_[memory.device].fetch_sub(memory.bytes, std::memory_order_relaxed);
    --released_in_hand_;
    exported_.notify_all();
    forgotten_.notify_all();
  }
}

void Keeper::leave(uint32_t session) {
  const MutexLock lock(mutex_);
  left_.insert(session);
}

void Keeper::begin(uint32_t session) {
  const MutexLock lock(mutex_);
  left_.erase(session);
}

bool Keeper::has_waiting(uint32_t session) {
  const MutexLock lock(mutex_);
  return waiting_.lower_bound({session, 0}) != waiting_.upper_bound({session, ~0ull});
}

void Keeper::keep_all_now(uint32_t session) {
  const MutexLock lock(mutex_);
  for (;;) {
    const auto first = waiting_.lower_bound({session, 0});
    const auto last = waiting_.upper_bound({session, ~0ull});
    if (first == last) return;
    const auto next =
        std::find_if(first, last, [](const auto& entry) { return !entry.second.is_in_hand; });
    if (next == last) {
      exported_.wait(mutex_);
    } else {
      export_locked(Key(next->first));
    }
  }
}

void Keeper::set_contents(KeptMemory& kept, int file, uint64_t offset) {
  if (kept.number() == 0) return;
  Memory& memory = kept.memory_;
  const Key key{memory.session, memory.number};
  const MutexLock lock(mutex_);
  auto found = waiting_.find(key);
  while (found != waiting_.end() && found->second.is_in_hand) {
    exported_.wait(mutex_);
    found = waiting_.find(key);
  }
  wire::Keep message{.session = memory.session,
                     .what = wire::Kept::kContents,
                     .number = memory.number,
                     .bytes = memory.bytes,
                     .device = memory.device,
                     .offset = offset};
  if (found != waiting_.end()) {
    waiting_.erase(found);
  } else {
    on_way_[memory.device].fetch_add(memory.bytes, std::memory_order_relaxed);
    leaving_.push_back({asked_ + 1, memory.device, memory.bytes});
    message.ticket = asked_ == answered_ ? ++asked_ : 0;
  }
  static_cast<void>(send_(wire::message_bytes(message), {&file, 1}));
  memory.bytes = 0;  // of a device, for forget()
}

void Keeper::set_memory(KeptMemory& kept, uint64_t bytes, Export exported) {
  if (kept.number() == 0) return;
  Memory& memory = kept.memory_;
  memory.bytes = bytes;
  const MutexLock lock(mutex_);
  send_forget_locked({.session = memory.session, .number = memory.number});
  wait_for_export_locked(memory, std::move(exported));
}

bool Keeper::keep_image(uint64_t hash, uint64_t bytes, int file) {
  wire::Keep message{.what = wire::Kept::kImage, .number = hash, .bytes = bytes};
  if (count_.fetch_add(1) < most_ && send_(wire::message_bytes(message), {&file, 1})) return true;
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
  if (left_.contains(memory.session)) return;
  const auto found = waiting_.find({memory.session, memory.number});
  if (found != waiting_.end() && !found->second.is_in_hand) {
    waiting_.erase(found);
    return;
  }
  on_way_[memory.device].fetch_add(memory.bytes, std::memory_order_relaxed);
  if (found != waiting_.end()) {
    found->second.is_released = true;
    ++released_in_hand_;
    return;
  }
  leaving_.push_back({asked_ + 1, memory.device, memory.bytes});
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
  if (leaving_.empty() && released_in_hand_ == 0) return false;
  if (!leaving_.empty() && leaving_.back().ticket > asked_) ask_locked();
  const uint64_t ticket = leaving_.empty() ? 0 : leaving_.back().ticket;
  for (bool in_time = true; in_time; in_time = forgotten_.wait_until(mutex_, limit_ns)) {
    if (answered_ >= ticket && released_in_hand_ == 0) return true;
  }
  return false;
}

void Keeper::on_give(const wire::Give& message, UniqueFd memory) {
  if (message.device >= wire::kMaxDevices) return;
  Found given{.memory = std::move(memory),
              .bytes = message.bytes,
              .device = message.device,
              .is_shared = message.is_shared != 0,
              .is_contents = message.what == wire::Kept::kContents,
              .offset = message.offset};
  const MutexLock lock(mutex_);
  if (message.what == wire::Kept::kShared) {
    const auto asked = answers_.find(message.number);
    if (asked == answers_.end()) return;  // it took too long
    asked->second = std::move(given);
    answer_came_.notify_all();
  } else if (given.memory.valid()) {
    given_[{message.session, message.number}] = std::move(given);
  }
}

Keeper::Taken Keeper::take(uint32_t session, uint64_t number) {
  Found given;
  {
    const MutexLock lock(mutex_);
    const auto found = given_.find({session, number});
    if (found == given_.end()) return {};
    given = std::move(found->second);
    given_.erase(found);
  }
  count_.fetch_add(1);
  const Memory memory{session, given.device, number, given.bytes};
  return {.memory = std::move(given.memory),
          .bytes = given.bytes,
          .device = given.device,
          .is_shared = given.is_shared,
          .is_contents = given.is_contents,
          .offset = given.offset,
          .kept = KeptMemory(*this, memory)};
}

void Keeper::drop_given(uint32_t session) {
  std::vector<Found> closed;
  const MutexLock lock(mutex_);
  const auto first = given_.lower_bound({session, 0});
  const auto last = given_.upper_bound({session, ~0ull});
  for (auto it = first; it != last; ++it) {
    send_forget_locked({.session = session, .number = it->first.second});
    closed.push_back(std::move(it->second));
  }
  given_.erase(first, last);
}

// ---- Memory that sessions of other workers may have ---------------------------------------------

void Keeper::share(const KeptMemory& memory, ShareKey key) {
  if (memory.number() == 0) return;
  const Key waits{memory.memory_.session, memory.number()};
  const MutexLock lock(mutex_);
  export_now_locked(waits);
  static_cast<void>(ask_for_locked(
      [&](uint64_t ticket) { return send_share(waits.first, waits.second, ticket, key); }));
}

void Keeper::export_now_locked(const Key& key) {
  for (auto found = waiting_.find(key); found != waiting_.end(); found = waiting_.find(key)) {
    if (found->second.is_in_hand) {
      exported_.wait(mutex_);
    } else {
      export_locked(key);
    }
  }
}

void Keeper::note_exported(const KeptMemory& memory) {
  if (memory.number() == 0) return;
  const MutexLock lock(mutex_);
  export_now_locked({memory.memory_.session, memory.number()});
  const wire::ShareMemory message{
      .session = memory.memory_.session, .has_no_key = 1, .number = memory.number()};
  static_cast<void>(send_(wire::message_bytes(message), {}));
}

void Keeper::withdraw(uint32_t session, ShareKey key) {
  const MutexLock lock(mutex_);
  if (!left_.contains(session)) send_share(session, 0, 0, key);
}

bool Keeper::send_share(uint32_t session, uint64_t number, uint64_t ticket, ShareKey key) {
  wire::ShareMemory message{.session = session, .number = number, .ticket = ticket};
  std::ranges::copy(key, message.key);
  return send_(wire::message_bytes(message), {});
}

Keeper::Found Keeper::find(ShareKey key) {
  const MutexLock lock(mutex_);
  return ask_for_locked([&](uint64_t ticket) {
    wire::FindMemory message{.ticket = ticket};
    std::ranges::copy(key, message.key);
    return send_(wire::message_bytes(message), {});
  });
}

template <typename F>
Keeper::Found Keeper::ask_for_locked(F&& send) {
  const uint64_t limit_ns = now_ns() + kAnswerMs * kNsPerMs;
  const uint64_t ticket = ++last_question_;
  std::optional<Found>& answer = answers_[ticket];
  bool in_time = send(ticket);
  while (in_time && !answer.has_value()) in_time = answer_came_.wait_until(mutex_, limit_ns);
  Found found;
  if (answer.has_value()) found = std::move(*answer);
  answers_.erase(ticket);
  return found;
}

}  // namespace openmps::worker
