// SPDX-License-Identifier: Apache-2.0
// The payload of one reply, gathered in private memory and copied into the client's slot when the
// command is done. Handlers append; the executor sends. Session's thread only.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "wire/layout.h"

namespace openmps::worker {

class ReplyWriter;

// The rest of a command that goes on in the background: its answer comes later, and commands behind
// it are executed meanwhile. Session's thread.
class Pending {
 public:
  Pending() = default;
  virtual ~Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  // The session's bell rings when this becomes true.
  [[nodiscard]] virtual bool ready() const = 0;
  // Once it is ready: like a command's handler.
  virtual Status finish(ReplyWriter& reply) = 0;
};

class ReplyWriter {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof(value));
  }
  // What does not fit any more is cut; handlers keep to room() where that matters.
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

  // The command is not done: `pending` answers it.
  void answer_later(std::unique_ptr<Pending> pending) { pending_ = std::move(pending); }
  [[nodiscard]] std::unique_ptr<Pending> take_pending() { return std::move(pending_); }

 private:
  unsigned char bytes_[wire::kMaxReplyBytes];
  size_t size_ = 0;
  std::unique_ptr<Pending> pending_;
};

}  // namespace openmps::worker
