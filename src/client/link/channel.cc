// SPDX-License-Identifier: Apache-2.0
// Ring, reply slots and sleeping. See channel.h; the orders of the atomics are in wire/layout.h.
#include "client/link/channel.h"

#include <poll.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <utility>

#include "base/futex.h"
#include "base/thread_end.h"
#include "client/debug.h"
#include "wire/command_info.h"

namespace openmps::client {
namespace {

// While a thread waits for the GPU it spins on as long as cores are not short, as the driver's own
// wait does by default, up to where a nap and the timer's slack (50 us each) are about 5 % of the
// wait: a pinned copy of 64 MiB took 1.32 ms with naps, 1.22 natively. Then a thread is late by
// 1/256 of the wait.
constexpr uint64_t kGpuSpinNs = 2'000'000;
constexpr NapLength kGpuNap{50'000, kNever, 256};
// While host functions are pending, the callback thread looks at least this often.
constexpr NapLength kWatchNap{50'000, 1'000'000, 256};
// A program on one core gives up the core while it spins: it may wait for a thread of its own. Not
// at once: with a system call between two looks a reply took twice as long, and a synchronisation 2
// to 3 % longer.
constexpr uint64_t kYieldFromNs = 10'000;
constexpr uint64_t kYieldFromShare = 4;  // of the spin
// A full ring means that the worker is megabytes behind, and no free reply slot that hundreds of
// threads wait for replies: looking again this often costs nothing.
constexpr NapLength kFullNap{50'000, 50'000};

WaitPlan spin_plan(uint64_t spin_ns) {
  WaitPlan plan{.spin_until_ns = spin_ns};
  if (usable_cores() == 1) plan.yield_from_ns = std::min(kYieldFromNs, spin_ns / kYieldFromShare);
  return plan;
}

WaitPlan nap_plan(WaitPlan plan, uint64_t spare_spin_until_ns, const NapLength& nap) {
  plan.spare_spin_until_ns = spare_spin_until_ns;
  plan.nap_until_ns = kNever;
  plan.nap = nap;
  return plan;
}

}  // namespace

Channel::Channel(const wire::ChannelView& view, RememberedFd socket, uint64_t spin_ns,
                 const Clock& clock, std::unique_ptr<wire::Trace> trace, bool spares_cores)
    : view_(view),
      socket_(socket),
      spin_ns_(spin_ns),
      reply_plan_(spin_plan(spin_ns)),
      gpu_plan_(spin_ns < kNapFromSpinNs ? reply_plan_
                                         : nap_plan(reply_plan_, kGpuSpinNs, kGpuNap)),
      watch_plan_(nap_plan(reply_plan_, 0, kWatchNap)),
      spares_cores_(spares_cores),
      clock_(clock),
      shortage_(spares_cores),
      trace_(std::move(trace)),
      ring_(view) {
  for (auto& word : free_reply_slots_) word.store(~0ull, std::memory_order_relaxed);
}

void Channel::fail(CUresult reason) {
  uint32_t none = CUDA_SUCCESS;
  if (view_.header().status.compare_exchange_strong(none, reason, std::memory_order_acq_rel)) {
    debug_line("the session has ended: error %d", static_cast<int>(reason));
  }
  wake_all();
}

void Channel::wake_all() {
  view_.header().wake_epoch.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&view_.header().wake_epoch, INT_MAX);
}

CUresult Channel::take_async_error() {
  std::atomic<uint32_t>& error = view_.header().async_error;
  if (error.load(std::memory_order_acquire) == CUDA_SUCCESS) return CUDA_SUCCESS;
  const uint32_t opcode = view_.header().async_error_opcode.load(std::memory_order_relaxed);
  const uint32_t code = error.exchange(CUDA_SUCCESS, std::memory_order_acq_rel);
  if (code != CUDA_SUCCESS) {
    debug_line("%s failed: error %u", wire::name_of(static_cast<wire::Opcode>(opcode)), code);
  }
  return static_cast<CUresult>(code);
}

unsigned char* Channel::reserve(const Order&, wire::Opcode opcode, uint32_t payload_bytes,
                                uint16_t reply_slot) {
  if (status() != CUDA_SUCCESS) return nullptr;
  unsigned char* payload = ring_.reserve(opcode, payload_bytes, reply_slot);
  if (payload != nullptr) [[likely]] {
    return payload;
  }
  const CancellationHeld held;
  ring_.hurry();
  const AdaptiveWait wait(clock_,
                          {.spin_until_ns = spin_ns_, .nap_until_ns = kNever, .nap = kFullNap});
  while (payload == nullptr && status() == CUDA_SUCCESS) {
    wait.pause();
    if (!wait.spins()) check_server();
    payload = ring_.reserve(opcode, payload_bytes, reply_slot);
  }
  return payload;
}

void Channel::check_server() {
  if (socket_.valid() && socket_.get() < 0) {
    debug_line("the program has closed the descriptor of its session");
    return fail(CUDA_ERROR_MPS_RPC_FAILURE);
  }
  pollfd watched{socket_.get(), 0, 0};  // POLLHUP and POLLERR are always reported
  if (poll(&watched, 1, 0) == 1 && (watched.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
    fail(CUDA_ERROR_MPS_RPC_FAILURE);
  }
}

void Channel::sleep(uint32_t epoch, uint64_t longest_ns) {
  futex_wait(&view_.header().wake_epoch, epoch, longest_ns);
  const uint64_t now = clock_.now_ns();
  uint64_t last = last_check_ns_.load(std::memory_order_relaxed);
  if (now - last < kLivenessNs) return;
  if (last_check_ns_.compare_exchange_strong(last, now, std::memory_order_relaxed)) check_server();
}

uint16_t Channel::acquire_reply_slot() {
  for (;;) {
    for (size_t word = 0; word < std::size(free_reply_slots_); ++word) {
      uint64_t free = free_reply_slots_[word].load(std::memory_order_relaxed);
      while (free != 0) {
        const int bit = std::countr_zero(free);
        if (free_reply_slots_[word].compare_exchange_weak(free, free & ~(1ull << bit),
                                                          std::memory_order_acquire)) {
          return static_cast<uint16_t>(word * 64 + static_cast<size_t>(bit));
        }
      }
    }
    const CancellationHeld held;
    clock_.sleep(kFullNap.shortest_ns);
  }
}

void Channel::release_reply_slot(uint16_t slot) {
  // Once the session has ended, a late reply could land in a slot that another call uses. No call
  // succeeds after that end, so no call reads the reply.
  free_reply_slots_[slot / 64].fetch_or(1ull << (slot % 64), std::memory_order_release);
}

CUresult Channel::await_reply(uint16_t slot) {
  wire::ReplySlot& answer = view_.reply(slot);
  return wait([&answer] {
    // Pairs with the worker's release store, behind the stores of result and payload.
    return answer.state.load(std::memory_order_acquire) == wire::ReplySlot::kDone;
  });
}

}  // namespace openmps::client
