// SPDX-License-Identifier: Apache-2.0
// Text that a client's kernels print, on the way from the worker to the client: a ring of pieces in
// the channel (layout.h). One producer (the worker, under its own lock), one consumer (the client,
// under its own). Each side checks what it reads of the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wire/channel_view.h"

namespace openmps::wire {

// Where a piece belongs: the descriptor numbers of standard output and error.
enum class OutputKind : uint32_t { kOutput = 1, kError = 2 };

class OutputProducer {
 public:
  OutputProducer() = default;
  explicit OutputProducer(const ChannelView& view);
  // Append a piece. What does not fit is dropped, as a full printf FIFO of a GPU drops text.
  void put(OutputKind kind, std::string_view text);

 private:
  OutputControl* control_ = nullptr;
  unsigned char* text_ = nullptr;
  uint64_t tail_ = 0;  // our copy: only we move it
};

class OutputConsumer {
 public:
  explicit OutputConsumer(const ChannelView& view);
  [[nodiscard]] bool empty() const;
  // The next piece; false: there is none, or the ring holds nonsense, which is thrown away.
  [[nodiscard]] bool take(OutputKind* kind, std::string* text);

 private:
  OutputControl* control_;
  const unsigned char* text_;
};

}  // namespace openmps::wire
