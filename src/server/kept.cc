// SPDX-License-Identifier: Apache-2.0
// See kept.h.
#include "server/kept.h"

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
  if (!kept.file.valid()) ++count_;
  kept = {std::move(memory), message.bytes, message.device};
}

void Kept::forget_memory(uint32_t session, uint64_t number) {
  const auto of = memory_.find(session);
  if (of != memory_.end()) count_ -= of->second.erase(number);
}

void Kept::give_memory(uint32_t session, const Send& send) const {
  const auto of = memory_.find(session);
  if (of == memory_.end()) return;
  for (const auto& [number, memory] : of->second) {
    const int file = memory.file.get();
    send(wire::message_bytes(wire::Give{
             .session = session, .number = number, .bytes = memory.bytes, .device = memory.device}),
         {&file, 1});
  }
}

void Kept::erase(uint32_t session) {
  lacking_.erase(session);
  const auto of = memory_.find(session);
  if (of == memory_.end()) return;
  const bool closes = !closing_.empty();
  count_ -= of->second.size();
  for (auto& [number, memory] : of->second) closing_.push_back(std::move(memory.file));
  memory_.erase(of);
  if (!closes) close_some();
}

void Kept::close_some() {
  for (size_t i = 0; i < kClosedAtOnce && !closing_.empty(); ++i) closing_.pop_back();
  if (!closing_.empty()) loop_.call_after(0, [this] { close_some(); });
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

bool Kept::forget_image(const Worker& worker, uint64_t hash) {
  const auto found = images_.find(hash);
  if (found == images_.end()) return false;
  auto& had = found->second.had;
  const auto by = had.find(&worker);
  if (by == had.end()) return false;
  if (--by->second == 0) had.erase(by);
  if (!had.empty()) return false;
  images_.erase(found);
  --count_;
  return true;
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
