// SPDX-License-Identifier: Apache-2.0
// See kept.h.
#include "server/kept.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <system_error>
#include <utility>

#include "base/clock.h"
#include "wire/message.h"

namespace openmps::server {

// ---- Memory -------------------------------------------------------------------------------------

void Kept::keep_memory(const wire::Keep& message, UniqueFd memory) {
  if (!memory.valid() || count_ >= most_) {
    lacking_.insert(message.session);
    return;
  }
  Memory& kept = memory_[message.session][message.number];
  if (kept.file.valid()) {
    close({std::move(kept.file)});
  } else {
    ++count_;
  }
  const bool is_contents = message.what == wire::Kept::kContents;
  kept = {.file = std::move(memory),
          .bytes = message.bytes,
          .device = message.device,
          .is_shared = kept.is_shared,
          .is_contents = is_contents,
          .offset = message.offset};
}

void Kept::forget_memory(uint32_t session, uint64_t number) {
  const auto of = memory_.find(session);
  if (of == memory_.end()) return;
  const auto memory = of->second.find(number);
  if (memory == of->second.end()) return;
  close({std::move(memory->second.file)});
  of->second.erase(memory);
  --count_;
}

void Kept::answer_when_closed(const Worker& worker, uint64_t ticket) {
  asking_.insert(&worker);
  close({UniqueFd(), &worker, ticket});
}

void Kept::give_memory(uint32_t session, const Send& send) const {
  const auto of = memory_.find(session);
  if (of == memory_.end()) return;
  for (const auto& [number, memory] : of->second) {
    const int file = memory.file.get();
    const wire::Give give{.session = session,
                          .what = memory.is_contents ? wire::Kept::kContents : wire::Kept::kMemory,
                          .number = number,
                          .bytes = memory.bytes,
                          .device = memory.device,
                          .is_shared = memory.is_shared ? 1u : 0u,
                          .offset = memory.offset};
    send(wire::message_bytes(give), {&file, 1});
  }
}

void Kept::share_memory(const wire::ShareMemory& message) {
  const ShareKey key = std::to_array(message.key);
  if (message.number != 0) {
    if (const auto of = memory_.find(message.session); of != memory_.end()) {
      const auto memory = of->second.find(message.number);
      if (memory != of->second.end()) memory->second.is_shared = true;
    }
    if (message.has_no_key != 0) return;
    shared_[key] = {message.session, message.number};
  } else if (const auto found = shared_.find(key);
             found != shared_.end() && found->second.first == message.session) {
    shared_.erase(found);
  }
}

void Kept::give_found(const wire::FindMemory& message, const Send& send) const {
  wire::Give give{.what = wire::Kept::kShared, .number = message.ticket};
  const auto names = shared_.find(std::to_array(message.key));
  if (names != shared_.end()) {
    const auto& [session, number] = names->second;
    const auto of = memory_.find(session);
    if (of != memory_.end()) {
      if (const auto found = of->second.find(number); found != of->second.end()) {
        give.bytes = found->second.bytes;
        give.device = found->second.device;
        const int file = found->second.file.get();
        return send(wire::message_bytes(give), {&file, 1});
      }
    }
  }
  send(wire::message_bytes(give), {});
}

void Kept::erase(uint32_t session) {
  lacking_.erase(session);
  std::erase_if(shared_, [session](const auto& entry) { return entry.second.first == session; });
  const auto of = memory_.find(session);
  if (of == memory_.end()) return;
  count_ -= of->second.size();
  for (auto& [number, memory] : of->second) close({std::move(memory.file)});
  memory_.erase(of);
}

// ---- Closing ------------------------------------------------------------------------------------

Kept::~Kept() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (closer_.joinable()) closer_.join();
  if (closed_event_.valid()) loop_.forget(closed_event_.get());
}

void Kept::close(Closing closing) {
  if (!closer_.joinable()) {
    try {
      closed_event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      const Status watched =
          loop_.watch(closed_event_.get(), EPOLLIN, [this](uint32_t) { on_closed(); });
      if (watched.ok()) closer_ = std::thread([this] { run_closer(); });
    } catch (const std::system_error&) {
      loop_.forget(closed_event_.get());
    }
  }
  if (!closer_.joinable()) {  // then it is closed here
    if (closing.worker != nullptr) answer_(*closing.worker, closing.ticket);
    return;
  }
  const MutexLock lock(mutex_);
  closing_.push_back(std::move(closing));
  changed_.notify_all();
}

void Kept::run_closer() {
  const MutexLock lock(mutex_);
  while (!stop_) {
    if (closing_.empty()) {
      changed_.wait(mutex_);
      continue;
    }
    Closing next = std::move(closing_.front());
    closing_.pop_front();
    if (next.worker != nullptr) {
      closed_.push_back(std::move(next));
      eventfd_write(closed_event_.get(), 1);
      continue;
    }
    const MutexUnlock unlocked(mutex_);
    next.file.reset();
  }
}

void Kept::on_closed() {
  eventfd_t count = 0;
  eventfd_read(closed_event_.get(), &count);
  std::vector<Closing> closed;
  {
    const MutexLock lock(mutex_);
    closed.swap(closed_);
  }
  for (const Closing& one : closed) {
    if (asking_.contains(one.worker)) answer_(*one.worker, one.ticket);
  }
}

// ---- Images -------------------------------------------------------------------------------------

bool Kept::keep_image(const Worker& worker, const wire::Keep& message, UniqueFd file) {
  auto found = images_.find(message.number);
  const bool is_new = found == images_.end() && file.valid() && count_ < most_;
  if (is_new) {
    found = images_.emplace(message.number, Image{std::move(file), message.bytes, {}, 0}).first;
    ++count_;
  }
  if (found != images_.end()) ++found->second.had[&worker];
  return is_new;
}

Kept::Forgotten Kept::forget_image(const Worker& worker, uint64_t hash, bool is_awaited) {
  const auto found = images_.find(hash);
  if (found == images_.end()) return Forgotten::kNo;
  auto& had = found->second.had;
  const auto by = had.find(&worker);
  if (by == had.end() || --by->second != 0) return Forgotten::kNo;
  had.erase(by);
  if (!had.empty()) return Forgotten::kLeft;
  if (is_awaited) {
    found->second.unused_ns = now_ns();
    return Forgotten::kLeft;
  }
  images_.erase(found);
  --count_;
  return Forgotten::kClosed;
}

void Kept::give_image(uint64_t hash, const Send& send) const {
  const Image& image = images_.at(hash);
  const int file = image.file.get();
  send(wire::message_bytes(
           wire::Give{.what = wire::Kept::kImage, .number = hash, .bytes = image.bytes}),
       {&file, 1});
}

void Kept::give_images(const Send& send) const {
  for (const auto& [hash, image] : images_) give_image(hash, send);
}

void Kept::on_worker_gone(const Worker& worker) {
  asking_.erase(&worker);
  for (auto& [hash, image] : images_) {
    if (image.had.erase(&worker) != 0 && image.had.empty()) image.unused_ns = now_ns();
  }
}

std::vector<uint64_t> Kept::close_old_images(uint64_t now_ns) {
  std::vector<uint64_t> closed;
  for (auto it = images_.begin(); it != images_.end();) {
    const Image& image = it->second;
    if (!image.had.empty() || now_ns - image.unused_ns < kKeptImageMs * kNsPerMs) {
      ++it;
      continue;
    }
    closed.push_back(it->first);
    it = images_.erase(it);
    --count_;
  }
  return closed;
}

}  // namespace openmps::server
