// SPDX-License-Identifier: Apache-2.0
// The client's end of a session's channel: commands into the ring, synchronous calls through reply
// slots, and the one waiting primitive that everything which blocks uses. Any thread.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/cores.h"
#include "base/kept_fd.h"
#include "base/thread_end.h"
#include "client/link/nap_plan.h"
#include "cuda/abi.h"
#include "wire/channel_view.h"
#include "wire/codec.h"
#include "wire/ring.h"
#include "wire/trace.h"

namespace openmps::client {

// Sleeping waiters look at the session's socket this often, so a server that died without a word
// is noticed although nobody wakes them.
inline constexpr uint64_t kLivenessNs = 200'000'000;
// A wait that nobody is sure to wake in time (the stream of an event is gone, or has been given
// more) looks by itself this often.
inline constexpr uint64_t kUnwokenNs = 1'000'000;

class Channel {
 public:
  // `socket`: the session's connection, watched for the server's death; not owned. `trace`: null,
  // or what is told of each command. `foresees`: waits are taken to be alike.
  // `gives_core`: who waits sleeps while the worker takes nothing (StalledConsumer).
  Channel(const wire::ChannelView& view, RememberedFd socket, uint64_t spin_ns,
          std::unique_ptr<wire::Trace> trace = nullptr, bool foresees = true,
          bool gives_core = true);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] const wire::ChannelView& view() const { return view_; }

  // CUDA_SUCCESS while the session lives, then for ever the reason of its end.
  [[nodiscard]] CUresult status() const {
    return static_cast<CUresult>(view_.header().status.load(std::memory_order_acquire));
  }
  // End the session from this side (the server is gone). Keeps an earlier reason.
  void fail(CUresult reason);
  // The first error of a command that nobody waited for, or CUDA_SUCCESS; reported once.
  CUresult take_async_error();

  // ---- Commands ----
  // Holds the order of the client's commands. What must be consistent with that order (a stream's
  // fence counter) is changed only under it.
  using Order = std::unique_lock<std::mutex>;
  [[nodiscard]] Order order() { return Order(ring_lock_); }

  // One command and its tail, whose counts are filled in. CUDA_ERROR_INVALID_VALUE: the tail is
  // over its limit. Other errors: the session's end.
  template <wire::Command C>
  [[nodiscard]] CUresult push(const Order& order, C command, const wire::TailOf<C>& tail = {}) {
    return send(order, command, tail, wire::kNoReply);
  }
  template <wire::Command C>
  [[nodiscard]] CUresult push(C command, const wire::TailOf<C>& tail = {}) {
    return push(order(), command, tail);
  }
  // The same with a tail that `write(bytes)` makes in place, as long as the command counts it.
  template <wire::WithTail C, typename Write>
  [[nodiscard]] CUresult push_written(const Order& order, const C& command, Write&& write) {
    return send_written(order, command, write, wire::kNoReply);
  }

  // ---- Synchronous calls ----
  // Sends the command and waits for what it came to: also for one that has no reply.
  template <wire::Command C>
  [[nodiscard]] CUresult call(C command,
                              const wire::TailOf<C>& tail = {}) requires(!wire::WithReply<C>);
  // Also a failed command may have a reply; what did not come is zero.
  template <wire::WithReply C>
  [[nodiscard]] CUresult call(C command, const wire::TailOf<C>& tail, wire::ReplyOf<C>* reply);
  template <wire::WithReply C>
  [[nodiscard]] CUresult call(C command,
                              typename C::Reply* reply) requires(!wire::WithTail<C> &&
                                                                 !wire::WithReplyTail<C>);
  // With a tail made in place; `ordered(order)` comes behind it, with no command between.
  template <wire::WithTail C, typename Write, typename Ordered>
  [[nodiscard]] CUresult call_written(const C& command, Write&& write, Ordered&& ordered);

  // ---- Waiting ----
  // Until done() or the session's end. Spins, then sleeps: the peer wakes by itself, as with
  // replies.
  template <typename Done>
  [[nodiscard]] CUresult wait(Done&& done, uint64_t longest_sleep_ns = kLivenessNs);
  // The same for a fence of `stream` (for the trace; 0: it has gone): spins, then naps or
  // asks to be woken, and sleeps. ask(&asked) has the worker wake this process once the stream's
  // work has ended, if it can.
  template <typename Done, typename Ask>
  [[nodiscard]] CUresult wait_behind(wire::Id stream, Done&& done, Ask&& ask);

  // The same for what nobody announces, on a thread that may come late: spins, then naps. What
  // makes done() true and sees *napping calls wake_all().
  template <typename Done>
  [[nodiscard]] CUresult watch(Done&& done, uint64_t longest_nap_ns, std::atomic<bool>* napping);
  [[nodiscard]] bool is_traced() const { return trace_ != nullptr; }
  // How long it pays to spin on this machine; 0: not at all.
  [[nodiscard]] uint64_t spin_ns() const { return spin_ns_; }

  // Wake every waiter of this process: a condition changed on this side.
  void wake_all();
  // A word that the worker may wait for has changed. Any thread, without the lock.
  void nudge_worker() { ring_.nudge(); }

 private:
  static constexpr int kSpinsPerClockRead = 64;
  // After so long, or that part of the longest spin. What takes no longer (a reply, a launch, a
  // small copy) is seen at once: with a system call between two looks a synchronisation took 2 to
  // 3 % longer, and a reply twice as long. A host function took 242 us without (softgpu).
  static constexpr uint64_t kGiveWayNs = 10'000;
  static constexpr uint64_t kGiveWayShare = 4;

  // Sleep and look again. tend(waited_ns, &nap_ns) is what else is to be done before each sleep,
  // and for how long it may be; 0: not at all.
  template <typename Done, typename Tend>
  CUresult sleep_until(uint64_t begin, Done& done, Tend&& tend);
  // Look until done(), the session's end (true: *result says which) or the time is over, from now
  // on; the wait began before. On the only core of a program its own threads come first after a
  // while: it may wait for one of them.
  template <typename Done>
  bool spin(Done& done, uint64_t begin_ns, uint64_t now, uint64_t end_ns, CUresult* result);
  // The same, as long as there are cores for that and the worker takes what it was sent.
  template <typename Done>
  bool spin_if_spare(Done& done, uint64_t begin_ns, uint64_t end_ns, CUresult* result);
  void sleep(uint32_t epoch, uint64_t longest_ns);
  void check_server();
  // Room for a record's payload, waiting while the ring is full; nullptr: the session has ended.
  unsigned char* reserve(const Order&, wire::Opcode opcode, uint32_t payload_bytes,
                         uint16_t reply_slot);
  template <wire::Command C>
  CUresult send(const Order& order, C& command, const wire::TailOf<C>& tail, uint16_t reply_slot);
  template <wire::Command C, typename Write>
  CUresult send_written(const Order& order, const C& command, Write&& write, uint16_t reply_slot);
  // `send(slot)` with a reply slot, then `read(payload, bytes)` of what came, also with an error.
  template <wire::Command C, typename Send, typename Read>
  CUresult call_in_slot(const C& command, Send&& send, Read&& read);
  [[nodiscard]] uint16_t acquire_reply_slot();
  void release_reply_slot(uint16_t slot);
  [[nodiscard]] CUresult await_reply(uint16_t slot);
  // When something begins, if that is traced, and what it has come to.
  [[nodiscard]] uint64_t trace_begin() const { return trace_ == nullptr ? 0 : now_ns(); }
  template <wire::Command C>
  void trace_end(const C& command, CUresult result, uint64_t begin_ns,
                 std::span<const unsigned char> reply = {}) const {
    if (trace_ == nullptr) [[likely]] {
      return;
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(&command);
    trace_->command(wire::Trace::this_thread(), C::kOpcode, {bytes, sizeof(C)}, result, reply,
                    begin_ns);
  }

  const wire::ChannelView view_;
  const RememberedFd socket_;
  const uint64_t spin_ns_;
  const uint64_t give_way_ns_ =
      usable_cores() == 1 ? std::min(kGiveWayNs, spin_ns_ / kGiveWayShare) : ~0ull;
  CoreShortage shortage_;
  const std::unique_ptr<wire::Trace> trace_;  // null: nobody asks
  const bool foresees_;
  const bool gives_core_;
  // How long the thread's last wait behind a stream was that looks alone did not see the end of.
  static constinit thread_local uint64_t t_last_wait_ns;
  std::atomic<uint64_t> last_look_ns_{0};  // at the session's socket
  std::mutex ring_lock_;
  wire::RingProducer ring_;
  std::atomic<uint64_t> free_reply_slots_[wire::kReplySlots / 64];
};

template <wire::Command C>
CUresult Channel::send(const Order& order, C& command, const wire::TailOf<C>& tail,
                       uint16_t reply_slot) {
  if (!wire::set_counts(tail, &command)) return CUDA_ERROR_INVALID_VALUE;
  return send_written(
      order, command, [&tail](unsigned char* target) { wire::copy_tail(tail, target); },
      reply_slot);
}

template <wire::Command C, typename Write>
CUresult Channel::send_written(const Order& order, const C& command, Write&& write,
                               uint16_t reply_slot) {
  const uint64_t more = wire::tail_bytes(command);
  if (more == wire::kTooLong) return CUDA_ERROR_INVALID_VALUE;
  const auto bytes = static_cast<uint32_t>(sizeof(C) + more);
  const uint64_t begin_ns = trace_begin();
  unsigned char* payload = reserve(order, C::kOpcode, bytes, reply_slot);
  if (payload == nullptr) return status();
  memcpy(payload, &command, sizeof(C));
  write(payload + sizeof(C));
  ring_.publish();
  if (reply_slot == wire::kNoReply) trace_end(command, CUDA_SUCCESS, begin_ns);
  return CUDA_SUCCESS;
}

template <wire::Command C, typename Send, typename Read>
CUresult Channel::call_in_slot(const C& command, Send&& send, Read&& read) {
  const uint64_t begin_ns = trace_begin();
  const uint16_t slot = acquire_reply_slot();
  wire::ReplySlot& answer = view_.reply(slot);
  answer.state.store(wire::ReplySlot::kPending, std::memory_order_relaxed);
  CUresult result = send(slot);
  if (result == CUDA_SUCCESS) result = await_reply(slot);
  std::span<const unsigned char> reply;
  if (result == CUDA_SUCCESS) {
    reply = {answer.payload, std::min<uint64_t>(answer.bytes, wire::kMaxReplyBytes)};
    result = static_cast<CUresult>(answer.result);
    const bool good = read(answer.payload, answer.bytes);
    if (!good && result == CUDA_SUCCESS) result = CUDA_ERROR_MPS_RPC_FAILURE;
  }
  trace_end(command, result, begin_ns, reply);  // the reply is in the slot
  release_reply_slot(slot);
  return result;
}

template <wire::Command C>
CUresult Channel::call(C command, const wire::TailOf<C>& tail) requires(!wire::WithReply<C>) {
  return call_in_slot(
      command, [&](uint16_t slot) { return send(order(), command, tail, slot); },
      [](const unsigned char*, uint32_t) { return true; });
}

template <wire::WithReply C>
CUresult Channel::call(C command, const wire::TailOf<C>& tail, wire::ReplyOf<C>* reply) {
  return call_in_slot(
      command, [&](uint16_t slot) { return send(order(), command, tail, slot); },
      [reply](const unsigned char* payload, uint32_t bytes) {
        return reply->read(payload, bytes);
      });
}

template <wire::WithReply C>
CUresult Channel::call(C command, typename C::Reply* reply) requires(!wire::WithTail<C> &&
                                                                     !wire::WithReplyTail<C>) {
  return call_in_slot(
      command, [&](uint16_t slot) { return send(order(), command, {}, slot); },
      [reply](const unsigned char* payload, uint32_t bytes) {
        wire::ReplyOf<C> answer;
        const bool good = answer.read(payload, bytes);
        *reply = *answer;
        return good;
      });
}

template <wire::WithTail C, typename Write, typename Ordered>
CUresult Channel::call_written(const C& command, Write&& write, Ordered&& ordered) {
  return call_in_slot(
      command,
      [&](uint16_t slot) {
        const Order held = order();
        const CUresult sent = send_written(held, command, write, slot);
        if (sent == CUDA_SUCCESS) ordered(held);
        return sent;
      },
      [](const unsigned char*, uint32_t) { return true; });
}

template <typename Done>
bool Channel::spin(Done& done, uint64_t begin_ns, uint64_t now, uint64_t end_ns, CUresult* result) {
  do {
    const bool gives_way = now - begin_ns >= give_way_ns_;
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (done()) {
        *result = CUDA_SUCCESS;
        return true;
      }
      if (gives_way) {
        sched_yield();
      } else {
        cpu_relax();
      }
    }
    *result = status();
    if (*result != CUDA_SUCCESS) return true;
    now = now_ns();
  } while (now < end_ns);
  return false;
}

template <typename Done>
bool Channel::spin_if_spare(Done& done, uint64_t begin_ns, uint64_t end_ns, CUresult* result) {
  uint64_t now = now_ns();
  StalledConsumer consumer(now);
  while (now < end_ns && !shortage_.lasts(now)) {
    if (spin(done, begin_ns, now, now, result)) return true;
    const uint64_t before = std::exchange(now, now_ns());
    shortage_.note_look(before, now);
    if (gives_core_ && consumer.note(ring_.taken(), ring_.drained(), now)) break;
  }
  return false;
}

template <typename Done>
CUresult Channel::wait(Done&& done, uint64_t longest_sleep_ns) {
  if (done()) return CUDA_SUCCESS;
  const CancellationHeld held;
  ring_.hurry();
  const uint64_t begin = now_ns();
  CUresult result = CUDA_SUCCESS;
  if (spin(done, begin, begin, begin + spin_ns_, &result)) return result;
  return sleep_until(begin, done, [longest_sleep_ns](uint64_t, uint64_t* nap_ns) {
    *nap_ns = longest_sleep_ns;
    return CUDA_SUCCESS;
  });
}

template <typename Done, typename Ask>
CUresult Channel::wait_behind(wire::Id stream, Done&& done, Ask&& ask) {
  if (done()) return CUDA_SUCCESS;
  const CancellationHeld held;
  ring_.hurry();
  const uint64_t begin = now_ns();
  const bool naps = spin_ns_ >= kNapFromSpinNs;
  CUresult result = CUDA_SUCCESS;
  const bool over = spin(done, begin, begin, begin + spin_ns_, &result) ||
                    (naps && spin_if_spare(done, begin, begin + kLookUntilNs, &result));
  if (!over) {
    bool told = false;
    bool asked = false;
    const NapPlan plan(foresees_ ? t_last_wait_ns : 0);
    result = sleep_until(begin, done, [&](uint64_t waited_ns, uint64_t* nap_ns) {
      const bool due = !told && (!naps || waited_ns >= kAskFromNs);
      const CUresult sent = due ? ask(&asked) : CUDA_SUCCESS;
      told |= due;
      *nap_ns = !told || asked ? kLivenessNs : kUnwokenNs;
      if (!naps || sent != CUDA_SUCCESS) return sent;
      *nap_ns = std::min(*nap_ns, plan.nap_ns(waited_ns));
      CUresult seen = CUDA_SUCCESS;
      if (plan.is_about_to_end(waited_ns) &&
          spin_if_spare(done, begin, begin + plan.looks_until_ns(), &seen)) {
        *nap_ns = 0;
      }
      return seen;
    });
    t_last_wait_ns = now_ns() - begin;
  }
  if (trace_ != nullptr) trace_->wait(wire::Trace::this_thread(), stream, result, begin);
  return result;
}

template <typename Done, typename Tend>
CUresult Channel::sleep_until(uint64_t begin, Done& done, Tend&& tend) {
  CUresult result = CUDA_SUCCESS;
  wire::ChannelHeader& header = view_.header();
  // Whoever ends the wait first makes it true, then looks at `waiters`; we count ourselves first,
  // then look whether it is true. One of the two sees the other.
  header.waiters.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t epoch = header.wake_epoch.load(std::memory_order_seq_cst);
    if (done()) break;
    result = status();
    if (result != CUDA_SUCCESS) break;
    uint64_t nap_ns = 0;
    result = tend(now_ns() - begin, &nap_ns);
    if (result != CUDA_SUCCESS) break;
    if (nap_ns != 0) sleep(epoch, nap_ns);
  }
  header.waiters.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

template <typename Done>
CUresult Channel::watch(Done&& done, uint64_t longest_nap_ns, std::atomic<bool>* napping) {
  if (done()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  const uint64_t begin = now_ns();
  if (spin(done, begin, begin, begin + spin_ns_, &result)) return result;
  wire::ChannelHeader& header = view_.header();
  header.waiters.fetch_add(1, std::memory_order_seq_cst);
  napping->store(true, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t epoch = header.wake_epoch.load(std::memory_order_seq_cst);
    if (done()) break;
    result = status();
    if (result != CUDA_SUCCESS) break;
    sleep(epoch, std::min(nap_after(now_ns() - begin), longest_nap_ns));
  }
  napping->store(false, std::memory_order_relaxed);
  header.waiters.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

}  // namespace openmps::client
