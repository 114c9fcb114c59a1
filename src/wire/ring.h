// SPDX-License-Identifier: Apache-2.0
// The command ring: one producer (the client, under its own lock), one consumer (the executor of
// the session). Records are contiguous; one that would not fit before the end of the ring is
// preceded by a padding record. The consumer trusts nothing that it reads from shared memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda/status.h"
#include "wire/channel_view.h"
#include "wire/command.h"

namespace openmps::wire {

constexpr uint32_t record_bytes(uint64_t payload_bytes) {
  return static_cast<uint32_t>((sizeof(RecordHeader) + payload_bytes + kRecordAlignment - 1) &
                               ~static_cast<uint64_t>(kRecordAlignment - 1));
}

// Not thread-safe: the caller's lock orders the client's threads.
class RingProducer {
 public:
  RingProducer() = default;
  explicit RingProducer(const ChannelView& view);

  // Room for a record with `payload_bytes` after the header (at most kMaxRecordBytes in all): the
  // address of the payload, or nullptr while the ring is full (see has_space).
  unsigned char* reserve(Opcode opcode, uint32_t payload_bytes, uint16_t reply_slot);
  // Make the reserved record visible and wake the consumer if it sleeps, but not if it naps.
  void publish();
  // Where the record that was published last ends: the consumer's Record::end.
  [[nodiscard]] uint64_t published_end() const { return tail_; }
  // Wake the consumer if it naps while there are records: the caller waits for their results. Any
  // thread, without the lock, after the publish() of what it waits for.
  void hurry();
  // Wake the consumer if it sleeps or naps, for what else it is to look at; if it is about to, it
  // does not. Any thread, without the lock, after the store of what that is.
  void nudge();
  // How far the consumer is: grows with each record that it takes. Any thread, without the lock.
  [[nodiscard]] uint64_t taken() const { return control_->taken.load(std::memory_order_relaxed); }
  // Nothing is left for the consumer to take. Any thread, without the lock.
  [[nodiscard]] bool drained() const {
    return taken() == control_->tail.load(std::memory_order_relaxed);
  }
  // True once `payload_bytes` would fit; for the wait loop of a full ring.
  [[nodiscard]] bool has_space(uint32_t payload_bytes) const;

 private:
  [[nodiscard]] uint64_t needed(uint64_t tail, uint32_t bytes) const;

  RingControl* control_ = nullptr;
  unsigned char* data_ = nullptr;
  uint64_t tail_ = 0;          // our copy: only we move it
  mutable uint64_t head_ = 0;  // last seen
  uint64_t reserved_end_ = 0;
};

// A record that the consumer has copied out of the ring.
struct Record {
  Opcode opcode = Opcode::kPadding;
  uint16_t reply_slot = kNoReply;
  const unsigned char* payload = nullptr;  // private copy, good until the next take()
  uint32_t payload_bytes = 0;              // includes the padding to kRecordAlignment
  uint64_t end = 0;  // where the next one begins, counted like RingControl's; 0: not in the ring
};

// What has been done of a ring whose consumer has ended, from the oldest record on that is intact.
class RingHistory {
 public:
  explicit RingHistory(const ChannelView& view);

  // Where it begins, counted like RingControl's; 0: with the first record ever.
  [[nodiscard]] uint64_t begin() const { return begin_; }
  // The next record, as RingConsumer::take() returns it; false: there is no other. An error: the
  // peer has corrupted its ring, and what follows is not known.
  Result<bool> next(Record* record);

 private:
  const unsigned char* data_;
  uint64_t begin_ = 0;
  uint64_t position_ = 0;
  uint64_t end_ = 0;
  std::unique_ptr<unsigned char[]> copy_;
};

class RingConsumer {
 public:
  explicit RingConsumer(const ChannelView& view);

  // The next record, copied. false: the ring is empty. An error means that the peer has
  // corrupted its ring (CUDA_ERROR_MPS_RPC_FAILURE): end the session.
  Result<bool> take(Record* record);
  // What has been taken is done: the producer gets its room, and a later consumer begins behind it.
  void conclude();
  [[nodiscard]] bool empty() const { return ahead(1) == 0; }
  // Bytes that the producer has published beyond what has been taken, as the peer says. There may
  // be more if it is `enough`.
  [[nodiscard]] uint64_t ahead(uint64_t enough) const;
  // Sleep until the producer publishes or nudges, or until `stop` (or `bell`) is set and wake()
  // called; at most timeout_ns (0: no limit). Not at all if there was a nudge since the last sleep.
  // The word slept on can be written by the peer, so a consumer that must see `stop` whatever the
  // peer does gives a limit.
  void sleep(uint64_t timeout_ns, const std::atomic<bool>& stop,
             const std::atomic<bool>* bell = nullptr);
  // Sleep like that, but the producer wakes the consumer only by hurry().
  void nap(uint64_t timeout_ns, const std::atomic<bool>& stop,
           const std::atomic<bool>* bell = nullptr);
  // Wake a sleeping consumer from any thread. Set `stop` first: then the wake can't be lost.
  void wake();

 private:
  void rest(ConsumerRest how, uint64_t timeout_ns, const std::atomic<bool>& stop,
            const std::atomic<bool>* bell);

  RingControl* control_;
  const unsigned char* data_;
  uint64_t head_ = 0;    // our copy: the shared one is only for the producer
  uint32_t nudges_ = 0;  // what they told has been looked at since
  // The last value read. Each read of the shared one costs the producer, which owns the cache line,
  // some hundred cycles.
  mutable uint64_t tail_ = 0;
  std::unique_ptr<unsigned char[]> copy_;  // pages of it that no record needs are never touched
};

}  // namespace openmps::wire
