// SPDX-License-Identifier: Apache-2.0
// The payload of one reply, gathered in private memory and copied into the client's slot when the
// command is done. Handlers append; the executor sends. Session's thread only.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "cuda/status.h"
#include "wire/codec.h"

namespace openmps::worker {

class ReplyWriter;

// A command whose answer comes later, from the background; commands behind it are executed
// meanwhile. Session's thread.
struct Pending {
  // The answer can be given. The session's bell rings when this becomes true.
  std::function<bool()> ready;
  // Answer as a command's handler does. Once ready() is true.
  std::function<Status(ReplyWriter& reply)> finish;
};

class ReplyWriter {
 public:
  // Bytes beyond room() are cut off; a handler for which that matters asks room() first.
  void append(const void* data, size_t bytes) {
    const size_t fits = bytes < room() ? bytes : room();
    if (fits == 0) return;  // memcpy takes no null pointer, not even for nothing
    memcpy(bytes_ + size_, data, fits);
    size_ += fits;
  }
  [[nodiscard]] size_t room() const { return sizeof(bytes_) - size_; }
  [[nodiscard]] const unsigned char* data() const { return bytes_; }
  [[nodiscard]] size_t size() const { return size_; }
  void clear() { size_ = 0; }

  // `pending` answers the command once it is ready.
  void answer_later(std::unique_ptr<Pending> pending) { pending_ = std::move(pending); }
  [[nodiscard]] bool is_pending() const { return pending_ != nullptr; }
  [[nodiscard]] std::unique_ptr<Pending> take_pending() { return std::move(pending_); }

 private:
  unsigned char bytes_[wire::kMaxReplyBytes];
  size_t size_ = 0;
  std::unique_ptr<Pending> pending_;
};

// The reply to one kind of command, put once: a handler can give no other.
template <wire::WithReply C>
class ReplyTo {
 public:
  explicit ReplyTo(ReplyWriter& writer) : writer_(&writer) {}

  void put(const typename C::Reply& reply) const requires(!wire::WithReplyTail<C>) {
    writer_->append(&reply, sizeof(reply));
  }
  // With a tail that fits room(); its counts are written into the reply.
  void put(typename C::Reply reply,
           const wire::ReplyTailOf<C>& tail) const requires wire::WithReplyTail<C> {
    static_cast<void>(wire::set_counts(tail, &reply));
    writer_->append(&reply, sizeof(reply));
    wire::for_each_part<wire::ReplyTailOf<C>>([&](const auto& part) {
      const auto& span = tail.*part.span;
      writer_->append(span.data(), span.size() * wire::element_bytes(part.span));
    });
  }
  // Bytes left for a tail.
  static constexpr size_t room() { return wire::kMaxReplyBytes - sizeof(typename C::Reply); }
  void answer_later(std::unique_ptr<Pending> pending) const requires wire::AnsweredLater<C> {
    writer_->answer_later(std::move(pending));
  }

 private:
  ReplyWriter* writer_;
};

}  // namespace openmps::worker
