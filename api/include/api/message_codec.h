// SPDX-License-Identifier: Apache-2.0
// The engine under the generated messages: a fixed structure, then arrays and strings, each
// starting on 8 bytes. Writers live on the caller's stack and use the heap only for long messages;
// readers check every length against what arrived. Used by client_remote.cc in the client and by
// worker_dispatch.cc in the worker, on any thread; a writer or reader belongs to one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "base/cuda_abi.h"

namespace openmps {

// Longest generated request or reply. Generous: the longest real one is an array of graph nodes
// (4 bytes each) or a tensor map (under 1 KiB). Anything longer is refused, not truncated.
inline constexpr size_t kMaxMessageBytes = 64 * 1024;

// Messages up to this size need no allocation.
inline constexpr size_t kInlineMessageBytes = 1024;

inline constexpr size_t kMessageAlignment = 8;

inline constexpr size_t align_message(size_t bytes) {
  return (bytes + kMessageAlignment - 1) & ~(kMessageAlignment - 1);
}

// Size of a message of these parts. Each is bounded by message_length and its element's size, so
// that the sum can't wrap; MessageBuffer refuses what is too long.
inline size_t message_bytes(std::initializer_list<size_t> parts) {
  size_t bytes = 0;
  for (size_t part : parts) bytes += align_message(part);
  return bytes;
}

// Elements of an array whose length is value * multiplier - subtrahend. False if that is negative
// or can't fit a message.
inline bool message_length(int64_t value, int64_t multiplier, int64_t subtrahend, size_t* count) {
  if (value < 0 || value > static_cast<int64_t>(kMaxMessageBytes)) return false;
  const int64_t length = value * multiplier - subtrahend;
  if (length < 0 || length > static_cast<int64_t>(kMaxMessageBytes)) return false;
  *count = static_cast<size_t>(length);
  return true;
}

// A zeroed buffer of a known size, at most kMaxMessageBytes.
class MessageBuffer {
 public:
  explicit MessageBuffer(size_t bytes) : size_(bytes) {
    if (bytes <= sizeof(inline_)) {
      data_ = inline_;
      memset(inline_, 0, bytes);
    } else if (bytes <= kMaxMessageBytes) {
      data_ = static_cast<unsigned char*>(calloc(1, bytes));
    }
  }
  ~MessageBuffer() {
    if (data_ != inline_) free(data_);
  }
  MessageBuffer(const MessageBuffer&) = delete;
  MessageBuffer& operator=(const MessageBuffer&) = delete;

  // CUDA_ERROR_INVALID_VALUE for a message that is too long, CUDA_ERROR_OUT_OF_MEMORY otherwise.
  [[nodiscard]] CUresult status() const {
    if (data_ != nullptr) return CUDA_SUCCESS;
    return size_ > kMaxMessageBytes ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  unsigned char* data() { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  alignas(kMessageAlignment) unsigned char inline_[kInlineMessageBytes];
  unsigned char* data_ = nullptr;
  size_t size_;
};

// Fills a MessageBuffer whose size was computed from the same parts.
class MessageWriter {
 public:
  explicit MessageWriter(unsigned char* data) : data_(data) {}

  void append(const void* source, size_t bytes) {
    if (bytes != 0) memcpy(data_ + used_, source, bytes);
    used_ += align_message(bytes);
  }

 private:
  unsigned char* data_;
  size_t used_ = 0;
};

// Walks a message that a peer wrote. After a failed read every later one fails too.
class MessageReader {
 public:
  MessageReader(const void* data, size_t bytes)
      : data_(static_cast<const unsigned char*>(data)),
        left_(reinterpret_cast<uintptr_t>(data) % kMessageAlignment == 0 ? bytes : 0) {}

  template <typename Fixed>
  [[nodiscard]] bool read_fixed(Fixed* fixed) {
    const void* source = take(sizeof(Fixed));
    if (source == nullptr) return false;
    memcpy(fixed, source, sizeof(Fixed));
    return true;
  }

  // Points into the message; count 0 gives a pointer that must not be read.
  template <typename Element>
  [[nodiscard]] bool read_array(size_t count, const Element** elements) {
    static_assert(alignof(Element) <= kMessageAlignment);
    if (count > left_ / sizeof(Element)) return false;
    *elements = static_cast<const Element*>(take(count * sizeof(Element)));
    return *elements != nullptr;
  }

  // `bytes` counts the terminating zero; text with another zero inside is accepted as a C string.
  [[nodiscard]] bool read_string(size_t bytes, const char** text) {
    return bytes != 0 && read_array(bytes, text) && (*text)[bytes - 1] == '\0';
  }

  // A message must end where its parts end.
  [[nodiscard]] bool at_end() const { return left_ == 0; }

 private:
  const void* take(size_t bytes) {
    const size_t padded = align_message(bytes);
    if (padded > left_) {
      left_ = 0;
      return nullptr;
    }
    const void* start = data_;
    data_ += padded;
    left_ -= padded;
    return start;
  }

  const unsigned char* data_;
  size_t left_;
};

}  // namespace openmps
