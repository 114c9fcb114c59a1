// SPDX-License-Identifier: Apache-2.0
// The command ring. See ring.h for the roles and layout.h for the counters' ordering.
#include "wire/ring.h"

#include <cassert>
#include <cstring>
#include <string>

#include "base/futex.h"

namespace openmps::wire {
namespace {

constexpr uint64_t kMask = kRingBytes - 1;
constexpr uint64_t kPartBytes = kRingBytes / kRingParts;
constexpr uint64_t kMostAhead = kRingBytes - kRingHistoryBytes;
static_assert((kRingBytes & kMask) == 0, "offsets are taken by mask");
static_assert(kRingBytes % kRecordAlignment == 0, "padding always has room for a header");
static_assert(2 * kMaxRecordBytes <= kMostAhead, "a record and its padding must fit");
static_assert(kMaxRecordBytes <= kPartBytes, "a record begins in each part");

constexpr uint32_t word(ConsumerRest rest) { return static_cast<uint32_t>(rest); }

void wake_consumer(RingControl& control) {
  control.consumer_sleeping.store(word(ConsumerRest::kAwake), std::memory_order_relaxed);
  futex_wake(&control.consumer_sleeping, 1);
}

}  // namespace

RingProducer::RingProducer(const ChannelView& view)
    : control_(&view.ring_control()), data_(view.ring_data()) {}

// Bytes that a record of `bytes` takes at `tail`, with the padding before it.
uint64_t RingProducer::needed(uint64_t tail, uint32_t bytes) const {
  const uint64_t to_end = kRingBytes - (tail & kMask);
  return bytes <= to_end ? bytes : to_end + bytes;
}

bool RingProducer::has_space(uint32_t payload_bytes) const {
  const uint64_t bytes = needed(tail_, record_bytes(payload_bytes));
  if (tail_ + bytes - head_ <= kMostAhead) return true;
  // Pairs with the consumer's release store: what lies before head is not read any more.
  head_ = control_->head.load(std::memory_order_acquire);
  return tail_ + bytes - head_ <= kMostAhead;
}

unsigned char* RingProducer::reserve(Opcode opcode, uint32_t payload_bytes, uint16_t reply_slot) {
  const uint32_t bytes = record_bytes(payload_bytes);
  assert(bytes <= kMaxRecordBytes && "callers bound the variable part");
  if (!has_space(payload_bytes)) return nullptr;
  const uint64_t to_end = kRingBytes - (tail_ & kMask);
  if (bytes > to_end) {
    const RecordHeader padding{static_cast<uint32_t>(to_end),
                               static_cast<uint16_t>(Opcode::kPadding), kNoReply};
    memcpy(data_ + (tail_ & kMask), &padding, sizeof(padding));
    tail_ += to_end;
  }
  const RecordHeader header{bytes, static_cast<uint16_t>(opcode), reply_slot};
  unsigned char* start = data_ + (tail_ & kMask);
  memcpy(start, &header, sizeof(header));
  reserved_end_ = tail_ + bytes;
  return start + sizeof(header);
}

void RingProducer::publish() {
  tail_ = reserved_end_;
  // Pairs with the consumer's acquire load of tail: the record's bytes come first.
  control_->tail.store(tail_, std::memory_order_release);
  // Pairs with the fence in rest(): either we see that it rests, or the consumer sees the new tail.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (control_->consumer_sleeping.load(std::memory_order_relaxed) == word(ConsumerRest::kAsleep)) {
    wake_consumer(*control_);
  }
}

void RingProducer::hurry() {
  // A nap that this read misses began after publish()'s fence: its consumer has seen the record.
  if (control_->consumer_sleeping.load(std::memory_order_relaxed) == word(ConsumerRest::kNaps) &&
      !drained()) {
    wake_consumer(*control_);
  }
}

void RingProducer::nudge() {
  // Pairs with the fence in rest(): we see that it rests, or the consumer sees the nudge.
  control_->nudges.fetch_add(1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (control_->consumer_sleeping.load(std::memory_order_relaxed) != word(ConsumerRest::kAwake)) {
    wake_consumer(*control_);
  }
}

RingConsumer::RingConsumer(const ChannelView& view)
    : control_(&view.ring_control()),
      data_(view.ring_data()),
      copy_(std::make_unique_for_overwrite<unsigned char[]>(kMaxRecordBytes)) {
  head_ = tail_ = control_->head.load(std::memory_order_relaxed);
  control_->taken.store(head_, std::memory_order_relaxed);
}

uint64_t RingConsumer::ahead(uint64_t enough) const {
  // Pairs with the producer's release store of tail: the records' bytes come first.
  if (tail_ - head_ < enough) tail_ = control_->tail.load(std::memory_order_acquire);
  return tail_ - head_;
}

namespace {

// The record at `position` of `available` published bytes, copied; kPadding: only `end` is set.
Status read_record(const unsigned char* data, uint64_t position, uint64_t available,
                   unsigned char* copy, Record* record) {
  RecordHeader header;
  memcpy(&header, data + (position & kMask), sizeof(header));
  const uint64_t to_end = kRingBytes - (position & kMask);
  const bool padding = header.opcode == static_cast<uint16_t>(Opcode::kPadding);
  const uint64_t most = padding ? to_end : kMaxRecordBytes;
  if (available > kRingBytes || header.bytes < kRecordAlignment ||
      header.bytes % kRecordAlignment != 0 || header.bytes > available || header.bytes > to_end ||
      header.bytes > most) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE,
                  "the ring holds a record of " + std::to_string(header.bytes) +
                      " bytes with opcode " + std::to_string(header.opcode) + " where " +
                      std::to_string(available) + " are available");
  }
  record->opcode = static_cast<Opcode>(header.opcode);
  record->end = position + header.bytes;
  if (padding) return Status();
  record->reply_slot = header.reply_slot;
  record->payload = copy;
  record->payload_bytes = header.bytes - static_cast<uint32_t>(sizeof(header));
  memcpy(copy, data + (position & kMask) + sizeof(header), record->payload_bytes);
  return Status();
}

}  // namespace

Result<bool> RingConsumer::take(Record* record) {
  for (;;) {
    const uint64_t available = ahead(1);
    if (available == 0) return false;
    OPENMPS_RETURN_IF_ERROR(read_record(data_, head_, available, copy_.get(), record));
    if (((head_ ^ record->end) & ~(kPartBytes - 1)) != 0) [[unlikely]] {
      control_->begins[record->end / kPartBytes % kRingParts].store(record->end,
                                                                    std::memory_order_relaxed);
    }
    head_ = record->end;
    control_->taken.store(head_, std::memory_order_relaxed);
    if (record->opcode != Opcode::kPadding) return true;
  }
}

void RingConsumer::conclude() { control_->head.store(head_, std::memory_order_release); }

RingHistory::RingHistory(const ChannelView& view)
    : data_(view.ring_data()),
      end_(view.ring_control().head.load(std::memory_order_acquire)),
      copy_(std::make_unique_for_overwrite<unsigned char[]>(kMaxRecordBytes)) {
  // The producer may have written over all before this.
  const uint64_t intact = end_ < kRingHistoryBytes ? 0 : end_ - kRingHistoryBytes;
  begin_ = end_;
  if (intact == 0) begin_ = 0;
  for (const std::atomic<uint64_t>& begin : view.ring_control().begins) {
    const uint64_t position = begin.load(std::memory_order_relaxed);
    if (position >= intact && position < begin_) begin_ = position;
  }
  position_ = begin_;
}

Result<bool> RingHistory::next(Record* record) {
  while (position_ < end_) {
    OPENMPS_RETURN_IF_ERROR(read_record(data_, position_, end_ - position_, copy_.get(), record));
    position_ = record->end;
    if (record->opcode != Opcode::kPadding) return true;
  }
  return false;
}

void RingConsumer::sleep(uint64_t timeout_ns, const std::atomic<bool>& stop,
                         const std::atomic<bool>* bell) {
  rest(ConsumerRest::kAsleep, timeout_ns, stop, bell);
}

void RingConsumer::nap(uint64_t timeout_ns, const std::atomic<bool>& stop,
                       const std::atomic<bool>* bell) {
  rest(ConsumerRest::kNaps, timeout_ns, stop, bell);
}

void RingConsumer::rest(ConsumerRest how, uint64_t timeout_ns, const std::atomic<bool>& stop,
                        const std::atomic<bool>* bell) {
  control_->consumer_sleeping.store(word(how), std::memory_order_relaxed);
  // Pairs with the fences in publish(), nudge() and wake(): what they stored before is seen below,
  // or they see (and clear) the word stored above.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (empty() && control_->nudges.load(std::memory_order_relaxed) == nudges_ &&
      !stop.load(std::memory_order_relaxed) &&
      (bell == nullptr || !bell->load(std::memory_order_relaxed))) {
    futex_wait(&control_->consumer_sleeping, word(how), timeout_ns);
  }
  control_->consumer_sleeping.store(word(ConsumerRest::kAwake), std::memory_order_relaxed);
  nudges_ = control_->nudges.load(std::memory_order_acquire);
}

void RingConsumer::wake() {
  // Pairs with the fence in rest(): the caller's `stop` comes before the word.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  wake_consumer(*control_);
}

}  // namespace openmps::wire
