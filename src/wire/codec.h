// SPDX-License-Identifier: Apache-2.0
// From a command to the bytes of a record and back: its struct, and the parts of its tail with
// every count checked. Each command describes its parts (wire/commands/*.h); the functions here
// convert all of them. The executor decodes its private copy of a record. Any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "cuda/status.h"
#include "wire/command.h"
#include "wire/ring.h"

namespace openmps::wire {

template <typename C>
concept Command = std::is_same_v<decltype(C::kOpcode), const Opcode>;
template <typename C>
concept WithTail = Command<C> && requires {
  typename C::Tail;
};
template <typename C>
concept WithReply = Command<C> && requires {
  typename C::Reply;
};
template <typename C>
concept WithReplyTail = WithReply<C> && requires {
  typename C::ReplyTail;
};

template <typename C>
concept WithRanges = Command<C> &&
    requires(const C& command, Status (*visit)(uint64_t, uint64_t, bool, const char*)) {
  visit_ranges(command, visit);
};
template <typename C>
concept AnsweredLater = Command<C> && C::kAnsweredLater;

// Bytes whose kind is said elsewhere: the body of a graph's node.
using Variable = std::span<const unsigned char>;

struct NoTail {};
template <typename C>
struct TailType {
  using Type = NoTail;
};
template <WithTail C>
struct TailType<C> {
  using Type = typename C::Tail;
};
template <typename C>
using TailOf = typename TailType<C>::Type;
template <typename C>
struct ReplyTailType {
  using Type = NoTail;
};
template <WithReplyTail C>
struct ReplyTailType<C> {
  using Type = typename C::ReplyTail;
};
template <typename C>
using ReplyTailOf = typename ReplyTailType<C>::Type;

// visit(part, element size) for each part of a tail.
template <typename Tail, typename Visit>
constexpr void for_each_part(Visit&& visit) {
  PartsOf<Tail>::with([&](auto... part) { (visit(part), ...); });
}
template <typename Tail, typename Span>
constexpr size_t element_bytes(Span Tail::*) {
  return sizeof(typename Span::value_type);
}

// How many bytes a tail has by its counts; kTooLong if one is over its limit.
inline constexpr uint64_t kTooLong = ~0ull;
template <typename Tail, typename Counting>
constexpr uint64_t counted_bytes(const Counting& counting) {
  uint64_t bytes = 0;
  bool fits = true;
  for_each_part<Tail>([&](const auto& part) {
    const uint32_t count = counting.*part.count;
    fits &= count <= part.most;
    bytes += uint64_t{count} * element_bytes(part.span);
  });
  return fits ? bytes : kTooLong;
}
template <Command C>
constexpr uint64_t tail_bytes(const C& command) {
  return counted_bytes<TailOf<C>>(command);
}

// The parts at `data`, which has counted_bytes().
template <typename Tail, typename Counting>
Tail view_tail(const Counting& counting, const unsigned char* data) {
  Tail tail;
  for_each_part<Tail>([&](const auto& part) {
    using Span = std::remove_reference_t<decltype(tail.*part.span)>;
    const uint32_t count = counting.*part.count;
    tail.*part.span = Span(reinterpret_cast<typename Span::const_pointer>(data), count);
    data += count * element_bytes(part.span);
  });
  return tail;
}

// The counts of a tail into its command; false if one is over its limit.
template <typename Tail, typename Counting>
[[nodiscard]] bool set_counts(const Tail& tail, Counting* counting) {
  bool fits = true;
  for_each_part<Tail>([&](const auto& part) {
    fits &= (tail.*part.span).size() <= part.most;
    counting->*part.count = static_cast<uint32_t>((tail.*part.span).size());
  });
  return fits;
}
template <typename Tail>
void copy_tail([[maybe_unused]] const Tail& tail, [[maybe_unused]] unsigned char* target) {
  for_each_part<Tail>([&](const auto& part) {
    const size_t bytes = (tail.*part.span).size() * element_bytes(part.span);
    if (bytes != 0) memcpy(target, (tail.*part.span).data(), bytes);
    target += bytes;
  });
}

// Point `body` and `tail` into the record's payload, which must have exactly their size, padded to
// kRecordAlignment. Error: CUDA_ERROR_MPS_RPC_FAILURE, a violation of the protocol.
template <Command C>
Status decode(const Record& record, const C** body, TailOf<C>* tail) {
  static_assert(std::is_trivially_copyable_v<C> && alignof(C) <= alignof(RecordHeader) * 2);
  if (record.payload_bytes < sizeof(C)) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE,
                  "a command of " + std::to_string(record.payload_bytes) + " bytes where " +
                      std::to_string(sizeof(C)) + " are needed");
  }
  *body = reinterpret_cast<const C*>(record.payload);
  const uint64_t more = tail_bytes(**body);
  if (more == kTooLong ||
      record_bytes(sizeof(C) + more) - sizeof(RecordHeader) != record.payload_bytes) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the counts of a command do not fit its " +
                                                  std::to_string(record.payload_bytes) + " bytes");
  }
  *tail = view_tail<TailOf<C>>(**body, record.payload + sizeof(C));
  return Status();
}

// A reply as it came, with what follows it. The peer's counts are believed only where they fit.
template <WithReply C>
class ReplyOf {
 public:
  using Reply = typename C::Reply;
  const Reply* operator->() const { return &reply_; }
  const Reply& operator*() const { return reply_; }
  [[nodiscard]] auto tail() const requires WithReplyTail<C> {
    return view_tail<typename C::ReplyTail>(reply_, payload_ + sizeof(Reply));
  }

  // Take over what a reply slot has, of which `bytes` were written. false: it is no such reply, and
  // this is as if all of it were zero.
  [[nodiscard]] bool read(const unsigned char* payload, uint32_t bytes) {
    reply_ = Reply{};
    if (bytes < sizeof(Reply) || bytes > sizeof(payload_)) return false;
    memcpy(payload_, payload, bytes);
    memcpy(&reply_, payload_, sizeof(Reply));
    if constexpr (WithReplyTail<C>) {
      const uint64_t more = counted_bytes<typename C::ReplyTail>(reply_);
      if (more == kTooLong || more > bytes - sizeof(Reply)) {
        reply_ = Reply{};
        return false;
      }
    }
    return true;
  }

 private:
  Reply reply_{};
  alignas(8) unsigned char payload_[WithReplyTail<C> ? kMaxReplyBytes : sizeof(Reply)];
};

}  // namespace openmps::wire
