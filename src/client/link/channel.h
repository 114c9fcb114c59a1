// SPDX-License-Identifier: Apache-2.0
// The client's end of a session's channel: commands into the ring, synchronous calls through reply
// slots, and the waits of all calls that block. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "base/adaptive_wait.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/kept_fd.h"
#include "base/mutex.h"
#include "base/thread_end.h"
#include "client/link/stalled_consumer.h"
#include "cuda/abi.h"
#include "cupti/activity.h"
#include "wire/channel_view.h"
#include "wire/codec.h"
#include "wire/ring.h"
#include "wire/trace.h"

namespace openmps::client {

// Sleeping threads look at the session's socket this often, so the death of the server is noticed
// although nobody wakes them.
inline constexpr uint64_t kLivenessNs = 200'000'000;
// A waiting thread that may be woken too late (the stream of an event is gone, or has been given
// more work) looks by itself this often.
inline constexpr uint64_t kUnwokenNs = 1'000'000;
// Where cores are plenty (the worker recommends to spin this long or longer), a thread that waits
// for the GPU looks by itself, because a wake by the driver's threads comes late: 0.7 ms after a
// 19 ms copy on an H200.
inline constexpr uint64_t kNapFromSpinNs = 20'000;
// A wait for the GPU asks for a wake when a nap takes longer than a wake is late.
inline constexpr uint64_t kAskFromNs = 200'000'000;

// Told of each command that gives the device work, on the thread that has sent it. It must not send
// any.
class WorkObserver {
 public:
  // In the order in which the commands are sent, which waits meanwhile. `stream`: its id. `end`:
  // where the command ends in the ring.
  virtual void given(cupti::CallKind kind, wire::Id stream, uint64_t end, uint64_t begin_ns) = 0;
  // After one or several given() of this thread, without the order. There may have been none.
  virtual void order_left() = 0;

 protected:
  ~WorkObserver() = default;
};

// The kind of work that a command gives a stream; nothing for other commands.
template <typename C>
constexpr std::optional<cupti::CallKind> call_kind_of() {
  switch (C::kOpcode) {
    case wire::Opcode::kLaunch: return cupti::CallKind::kLaunch;
    case wire::Opcode::kGraphLaunch: return cupti::CallKind::kGraphLaunch;
    case wire::Opcode::kMemcpy:
    case wire::Opcode::kMemcpy3D:
    case wire::Opcode::kArrayCopy: return cupti::CallKind::kCopy;
    case wire::Opcode::kMemset: return cupti::CallKind::kFill;
    default: return std::nullopt;
  }
}

class Channel {
 public:
  // `socket`: the session's connection, watched for the server's death; not owned. `trace`: null,
  // or gets a line for each command. `spares_cores`: threads that spin stop while cores are short
  // or the worker takes no commands.
  Channel(const wire::ChannelView& view, RememberedFd socket, uint64_t spin_ns, const Clock& clock,
          std::unique_ptr<wire::Trace> trace = nullptr, bool spares_cores = true);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] const wire::ChannelView& view() const { return view_; }

  // CUDA_SUCCESS while the session lives, then the reason of its end.
  [[nodiscard]] CUresult status() const {
    return static_cast<CUresult>(view_.header().status.load(std::memory_order_acquire));
  }
  // Ends the session from this side (the server is gone). The first reason counts.
  void fail(CUresult reason);
  // The first error of a command without a reply, or CUDA_SUCCESS; returned once.
  CUresult take_async_error();

  // ---- Commands ----
  // While a thread holds it, no other thread sends commands. What must be consistent with the order
  // of the commands (a stream's fence counter) is changed only under it. Functions that need it
  // take one as proof.
  class Order {
   public:
    // The analysis doesn't follow a lock into a member.
    ~Order() NO_THREAD_SAFETY_ANALYSIS {
      lock_.unlock();
      WorkObserver* const observer = channel_.observer_.load(std::memory_order_acquire);
      if (observer != nullptr) [[unlikely]]
        observer->order_left();
    }
    Order(const Order&) = delete;
    Order& operator=(const Order&) = delete;

   private:
    friend class Channel;
    explicit Order(Channel& channel) NO_THREAD_SAFETY_ANALYSIS : channel_(channel),
                                                                 lock_(channel.ring_lock_) {}
    Channel& channel_;
    MutexLock lock_;
  };
  [[nodiscard]] Order order() { return Order(*this); }

  // Sends a command and its tail, whose counts are filled in. CUDA_ERROR_INVALID_VALUE: the tail is
  // over its limit. Other errors: the session's end.
  template <wire::Command C>
  [[nodiscard]] CUresult push(const Order& order, C command, const wire::TailOf<C>& tail = {}) {
    return send(order, command, tail, wire::kNoReply);
  }
  template <wire::Command C>
  [[nodiscard]] CUresult push(C command, const wire::TailOf<C>& tail = {}) {
    return push(order(), command, tail);
  }
  // As push(), with a tail that write(bytes) makes in place, as long as the command's counts say.
  template <wire::WithTail C, typename Write>
  [[nodiscard]] CUresult push_written(const Order& order, const C& command, Write&& write) {
    return send_written(order, command, write, wire::kNoReply);
  }

  // From now on, until the next call; null: nobody. Its object must outlive all calls that are
  // under way.
  void observe_work(WorkObserver* observer) {
    observer_.store(observer, std::memory_order_release);
  }

  // ---- Synchronous calls ----
  // Sends a command that has no reply and waits for its result.
  template <wire::Command C>
  [[nodiscard]] CUresult call(C command,
                              const wire::TailOf<C>& tail = {}) requires(!wire::WithReply<C>);
  // A failed command may have a reply as well; without one *reply is zero.
  template <wire::WithReply C>
  [[nodiscard]] CUresult call(C command, const wire::TailOf<C>& tail, wire::ReplyOf<C>* reply);
  template <wire::WithReply C>
  [[nodiscard]] CUresult call(C command,
                              typename C::Reply* reply) requires(!wire::WithTail<C> &&
                                                                 !wire::WithReplyTail<C>);
  // With a tail made in place. ordered(order) is called before another thread can send a command.
  template <wire::WithTail C, typename Write, typename Ordered>
  [[nodiscard]] CUresult call_written(const C& command, Write&& write, Ordered&& ordered);

  // ---- Waiting ----
  // All wait until done() returns true or the session ends.

  // For what the worker announces, as it does replies: spins, then sleeps until it is woken.
  template <typename Done>
  [[nodiscard]] CUresult wait(Done&& done, uint64_t longest_sleep_ns = kLivenessNs);
  // For a fence of `stream` (for the trace; 0: it has gone): spins, then naps or asks for a wake
  // and sleeps. ask(&is_announced) has the worker wake this process once the stream's work has
  // ended, if it can.
  template <typename Done, typename Ask>
  [[nodiscard]] CUresult wait_behind(wire::Id stream, Done&& done, Ask&& ask);
  // For what nobody announces, on a thread that may be late by a millisecond: spins, then naps.
  // Whoever makes done() true in this process and sees *napping calls wake_all().
  template <typename Done>
  [[nodiscard]] CUresult watch(Done&& done, std::atomic<bool>* napping);
  [[nodiscard]] bool is_traced() const { return trace_ != nullptr; }
  // For how long it pays to spin on this machine; 0: not at all.
  [[nodiscard]] uint64_t spin_ns() const { return spin_ns_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }

  // Wakes all waiting threads of this process: a condition has changed on this side.
  void wake_all();
  // A word that the worker may wait for has changed. Without the order.
  void nudge_worker() { ring_.nudge(); }

 private:
  // The one loop of all waits. prepare(wait, &pause_ns) does what else is to be done before each
  // sleep and says how long that may be. *resting, if there is one, is true while the thread may
  // sleep.
  template <typename Done, typename Prepare>
  CUresult wait_by(const WaitPlan& plan, Done& done, Prepare&& prepare,
                   std::atomic<bool>* resting = nullptr);
  void sleep(uint32_t epoch, uint64_t longest_ns);
  void check_server();
  // Where to write a record's payload, after a wait while the ring is full; nullptr: the session
  // has ended.
  unsigned char* reserve(const Order&, wire::Opcode opcode, uint32_t payload_bytes,
                         uint16_t reply_slot);
  template <wire::Command C>
  CUresult send(const Order& order, C& command, const wire::TailOf<C>& tail, uint16_t reply_slot);
  template <wire::Command C, typename Write>
  CUresult send_written(const Order& order, const C& command, Write&& write, uint16_t reply_slot);
  // Calls send(slot) with a reply slot, then read(payload, bytes) with the reply, of a failed
  // command as well.
  template <wire::Command C, typename Send, typename Read>
  CUresult call_in_slot(const C& command, Send&& send, Read&& read);
  [[nodiscard]] uint16_t acquire_reply_slot();
  void release_reply_slot(uint16_t slot);
  [[nodiscard]] CUresult await_reply(uint16_t slot);
  // The time at which a traced call begins, and the trace of its result.
  [[nodiscard]] uint64_t trace_begin() const {
    return trace_ == nullptr && observer_.load(std::memory_order_relaxed) == nullptr ? 0 : now_ns();
  }
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
  const WaitPlan reply_plan_;
  const WaitPlan gpu_plan_;
  const WaitPlan watch_plan_;
  const bool spares_cores_;
  const Clock& clock_;
  CoreShortage shortage_;
  const std::unique_ptr<wire::Trace> trace_;      // null: no trace
  std::atomic<WorkObserver*> observer_{nullptr};  // null: nobody
  std::atomic<uint64_t> last_check_ns_{0};        // of the session's socket
  Mutex ring_lock_{LockRank::kClientRing};
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
  if constexpr (constexpr auto kKind = call_kind_of<C>(); kKind) {
    WorkObserver* const observer = observer_.load(std::memory_order_acquire);
    if (observer != nullptr) [[unlikely]] {
      observer->given(*kKind, command.stream, ring_.published_end(), begin_ns);
    }
  }
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
CUresult Channel::wait(Done&& done, uint64_t longest_sleep_ns) {
  if (done()) return CUDA_SUCCESS;
  const CancellationHeld held;
  ring_.hurry();
  return wait_by(reply_plan_, done, [longest_sleep_ns](const AdaptiveWait&, uint64_t* pause_ns) {
    *pause_ns = longest_sleep_ns;
    return CUDA_SUCCESS;
  });
}

template <typename Done, typename Ask>
CUresult Channel::wait_behind(wire::Id stream, Done&& done, Ask&& ask) {
  if (done()) return CUDA_SUCCESS;
  const CancellationHeld held;
  ring_.hurry();
  const uint64_t begin_ns = trace_begin();
  const bool naps = gpu_plan_.nap_until_ns != 0;
  bool has_asked = false;
  bool is_announced = false;
  const std::atomic<uint32_t>& generation = view_.header().generation;
  uint32_t asked_in = generation.load(std::memory_order_acquire);
  const auto prepare = [&](const AdaptiveWait& wait, uint64_t* pause_ns) {
    // What another worker has been asked for does not come.
    if (const uint32_t now = generation.load(std::memory_order_acquire); now != asked_in) {
      asked_in = now;
      has_asked = is_announced = false;
    }
    const bool is_due = !has_asked && (!naps || wait.waited_ns() >= kAskFromNs);
    has_asked |= is_due;
    const CUresult sent = is_due ? ask(&is_announced) : CUDA_SUCCESS;
    *pause_ns = std::min(wait.next().pause_ns, is_announced ? kLivenessNs : kUnwokenNs);
    return sent;
  };
  const CUresult result = wait_by(gpu_plan_, done, prepare);
  if (trace_ != nullptr) trace_->wait(wire::Trace::this_thread(), stream, result, begin_ns);
  return result;
}

template <typename Done>
CUresult Channel::watch(Done&& done, std::atomic<bool>* napping) {
  if (done()) return CUDA_SUCCESS;
  const auto prepare = [](const AdaptiveWait& wait, uint64_t* pause_ns) {
    *pause_ns = wait.next().pause_ns;
    return CUDA_SUCCESS;
  };
  return wait_by(watch_plan_, done, prepare, napping);
}

template <typename Done, typename Prepare>
CUresult Channel::wait_by(const WaitPlan& plan, Done& done, Prepare&& prepare,
                          std::atomic<bool>* resting) {
  AdaptiveWait wait(clock_, plan, &shortage_);
  StalledConsumer consumer(wait.begin_ns());
  while (wait.spins()) {
    if (wait.look(done)) return CUDA_SUCCESS;
    if (const CUresult ended = status(); ended != CUDA_SUCCESS) return ended;
    const uint64_t now = clock_.now_ns();
    const bool may_stall = spares_cores_ && now - wait.begin_ns() >= spin_ns_;
    if (may_stall && consumer.note(ring_.taken(), ring_.drained(), now)) break;
  }
  wait.stop_spinning();
  CUresult result = CUDA_SUCCESS;
  wire::ChannelHeader& header = view_.header();
  // Whoever ends the wait first makes done() true, then reads `waiters` and *resting. This thread
  // sets both first, then looks whether done() is true. One of the two threads sees the other.
  header.waiters.fetch_add(1, std::memory_order_seq_cst);
  if (resting != nullptr) resting->store(true, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t epoch = header.wake_epoch.load(std::memory_order_seq_cst);
    if (done()) break;
    result = status();
    uint64_t pause_ns = 0;
    if (result == CUDA_SUCCESS) result = prepare(wait, &pause_ns);
    if (result != CUDA_SUCCESS) break;
    sleep(epoch, pause_ns);
  }
  if (resting != nullptr) resting->store(false, std::memory_order_relaxed);
  header.waiters.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

}  // namespace openmps::client
