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

// A nap of a wait for the GPU. Where the driver's own wait would spin throughout, a thread is late
// by 1/256 of the wait.
constexpr NapLength kGpuNap{50'000, kNever, 256};
constexpr uint64_t kGpuSpinNs = 2'000'000;
// While host functions are on their way, the callback thread looks at least this often.
constexpr NapLength kWatchNap{50'000, 1'000'000, 256};
// A full ring means that the worker is megabytes behind, and no free reply slot that hundreds of
// threads wait for replies: looking again this often costs nothing.
constexpr NapLength kFullNap{50'000, 50'000};

}  // namespace

Channel::Channel(const wire::ChannelView& view, RememberedFd socket, uint64_t spin_ns,
                 const Clock& clock, std::unique_ptr<wire::Trace> trace, bool spares_cores)
    : view_(view),
      socket_(socket),
      spin_ns_(spin_ns),
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

WaitPlan Channel::plan(uint64_t spin_ns) const {
  WaitPlan plan{.spin_until_ns = spin_ns};
  if (has_one_core_) plan.yield_from_ns = std::min(kYieldFromNs, spin_ns_ / kYieldFromShare);
  return plan;
}

WaitPlan Channel::gpu_plan() const {
  WaitPlan plan = this->plan(spin_ns_);
  plan.spare_spin_until_ns = kGpuSpinNs;
  plan.nap_until_ns = kNever;
  plan.nap = kGpuNap;
  return plan;
}

WaitPlan Channel::watch_plan() const {
  WaitPlan plan = this->plan(spin_ns_);
  plan.nap_until_ns = kNever;
  plan.nap = kWatchNap;
  return plan;
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
