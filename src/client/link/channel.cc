// SPDX-License-Identifier: Apache-2.0
// Ring, reply slots and sleeping. See channel.h; the orders of the atomics are in wire/layout.h.
#include "client/link/channel.h"

#include <poll.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <ctime>
#include <utility>

#include "base/futex.h"
#include "base/thread_end.h"
#include "client/debug.h"
#include "wire/command_info.h"

namespace openmps::client {
namespace {

// A full ring means that the worker is megabytes behind: looking again this often costs nothing.
constexpr timespec kFullRingPause{0, 50'000};
constexpr int kFullRingSpins = 2000;

}  // namespace

constinit thread_local uint64_t Channel::t_last_wait_ns = 0;

Channel::Channel(const wire::ChannelView& view, RememberedFd socket, uint64_t spin_ns,
                 std::unique_ptr<wire::Trace> trace, bool foresees, bool gives_core)
    : view_(view),
      socket_(socket),
      spin_ns_(spin_ns),
      trace_(std::move(trace)),
      foresees_(foresees),
      gives_core_(gives_core),
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
  for (int tries = 0;; ++tries) {
    if (status() != CUDA_SUCCESS) return nullptr;
    unsigned char* payload = ring_.reserve(opcode, payload_bytes, reply_slot);
    if (payload != nullptr) [[likely]] {
      return payload;
    }
    if (tries == 0) ring_.hurry();
    if (tries < kFullRingSpins) {
      cpu_relax();
    } else {
      const CancellationHeld held;
      nanosleep(&kFullRingPause, nullptr);
      check_server();
    }
  }
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
  const uint64_t now = now_ns();
  uint64_t last = last_look_ns_.load(std::memory_order_relaxed);
  if (now - last < kLivenessNs) return;
  if (last_look_ns_.compare_exchange_strong(last, now, std::memory_order_relaxed)) check_server();
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
    // More threads in synchronous calls than slots: one of them will be done soon.
    const CancellationHeld held;
    nanosleep(&kFullRingPause, nullptr);
  }
}

void Channel::release_reply_slot(uint16_t slot) {
  // Once the session has ended a late reply could land in a slot that somebody else uses: no call
  // succeeds any more then, so nobody looks.
  free_reply_slots_[slot / 64].fetch_or(1ull << (slot % 64), std::memory_order_release);
}

CUresult Channel::await_reply(uint16_t slot) {
  wire::ReplySlot& answer = view_.reply(slot);
  return wait([&answer] {
    // Pairs with the worker's release store: result and payload come first.
    return answer.state.load(std::memory_order_acquire) == wire::ReplySlot::kDone;
  });
}

}  // namespace openmps::client
