// SPDX-License-Identifier: Apache-2.0
// The payload of one reply, gathered in private memory and copied into the client's slot when the
// command is done. Handlers append; the executor sends. Session's thread only.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "wire/layout.h"

namespace openmps::worker {

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

 private:
  unsigned char bytes_[wire::kMaxReplyBytes];
  size_t size_ = 0;
};

}  // namespace openmps::worker
