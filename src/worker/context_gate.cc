// SPDX-License-Identifier: Apache-2.0
// Waiting for a quiet moment, and counting what the gated calls cost. See context_gate.h.
#include "worker/context_gate.h"

#include <time.h>

#include <algorithm>

namespace openmps::worker {
namespace {

// Between two looks: about a small kernel's length. The calls themselves take 100 us and more.
constexpr long kLookNs = 10'000;

void pause(long ns) {
  const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&time, nullptr);
}

bool meets(uint32_t wanted, uint32_t device) {
  return wanted == ContextGate::kAllDevices || wanted == device;
}

}  // namespace

const char* name_of(GatedCall call) {
  switch (call) {
    case GatedCall::kModuleLoad: return "module load";
    case GatedCall::kLibraryLoad: return "library load";
    case GatedCall::kFunctionLoad: return "function load";
    case GatedCall::kModuleUnload: return "module unload";
    case GatedCall::kLibraryUnload: return "library unload";
    case GatedCall::kHostUnregister: return "host unregister";
    case GatedCall::kArrayCreate: return "array creation";
    case GatedCall::kArrayDestroy: return "array destruction";
    case GatedCall::kGreenCreate: return "green context creation";
    case GatedCall::kGreenDestroy: return "green context destruction";
    case GatedCall::kStackLimit: return "stack limit";
    case GatedCall::kCount: break;
  }
  return "";
}

// ---- Who submits, and where ---------------------------------------------------------------------

void ContextGate::add(Feeder& feeder) {
  const std::lock_guard lock(mutex_);
  feeders_.push_back(&feeder);
}

void ContextGate::remove(Feeder& feeder) {
  const std::lock_guard lock(mutex_);
  std::erase(feeders_, &feeder);
}

ContextGate::Stream* ContextGate::add(CUstream handle, uint32_t device) {
  const std::lock_guard lock(mutex_);
  return &streams_.emplace_back(handle, device);
}

void ContextGate::remove(Stream* stream) {
  const std::lock_guard lock(mutex_);
  streams_.remove_if([stream](const Stream& listed) { return &listed == stream; });
}

// The feeder shows itself before it looks whether the gate is closed, and the gate closes before it
// looks for feeders: one of them sees the other.
void ContextGate::enter(Feeder& feeder, uint32_t device) {
  feeder.device_.store(device, std::memory_order_seq_cst);
  if (closed_[device].load(std::memory_order_seq_cst) == 0) return;
  // Never longer than one hold, whatever the call inside does.
  const uint64_t until = now_ns() + limits_.longest_hold_ns;
  while (closed_[device].load(std::memory_order_relaxed) != 0 && now_ns() < until) {
    feeder.device_.store(kNowhere, std::memory_order_release);
    pause(kLookNs);
    feeder.device_.store(device, std::memory_order_seq_cst);
  }
}

// ---- Quiet --------------------------------------------------------------------------------------

void ContextGate::close(uint32_t device) {
  for (uint32_t i = 0; i < closed_.size(); ++i) {
    if (meets(device, i)) closed_[i].fetch_add(1, std::memory_order_seq_cst);
  }
}

void ContextGate::open(uint32_t device) {
  for (uint32_t i = 0; i < closed_.size(); ++i) {
    if (meets(device, i)) closed_[i].fetch_sub(1, std::memory_order_release);
  }
}

bool ContextGate::quiet(uint32_t device) {
  const std::lock_guard lock(mutex_);
  for (const Feeder* feeder : feeders_) {
    const uint32_t where = feeder->device_.load(std::memory_order_seq_cst);
    if (where != kNowhere && meets(device, where)) return false;
  }
  for (Stream& stream : streams_) {
    if (!meets(device, stream.device) || !stream.busy.load(std::memory_order_relaxed)) continue;
    // A lost context has nothing that runs.
    if (driver_.cuStreamQuery(stream.handle) == CUDA_ERROR_NOT_READY) return false;
  }
  return true;
}

bool ContextGate::wait_quiet(uint32_t device, uint64_t until) {
  while (!quiet(device)) {
    if (now_ns() >= until) return false;
    pause(kLookNs);
  }
  return true;
}

bool ContextGate::seek(uint32_t device) {
  const uint64_t end = now_ns() + limits_.total_ns;
  for (uint64_t hold = limits_.first_hold_ns;; hold = std::min(2 * hold, limits_.longest_hold_ns)) {
    close(device);
    if (wait_quiet(device, now_ns() + hold)) return true;
    open(device);
    if (now_ns() >= end || gave_up()) return false;
    // What the queued work waits for may be held back right now: let it through.
    pause(static_cast<long>(hold));
  }
}

CUresult ContextGate::without(GatedCall call) {
  switch (call) {
    case GatedCall::kModuleUnload:
    case GatedCall::kLibraryUnload:
    case GatedCall::kHostUnregister:
    case GatedCall::kArrayDestroy:
    case GatedCall::kGreenDestroy: return CUDA_SUCCESS;
    default: return CUDA_ERROR_MPS_SERVER_NOT_READY;
  }
}

// ---- Cost ---------------------------------------------------------------------------------------

void ContextGate::count(GatedCall call, uint64_t ns) {
  Counter& counter = counters_[static_cast<size_t>(call)];
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.total_ns.fetch_add(ns, std::memory_order_relaxed);
  uint64_t longest = counter.longest_ns.load(std::memory_order_relaxed);
  while (longest < ns &&
         !counter.longest_ns.compare_exchange_weak(longest, ns, std::memory_order_relaxed)) {
  }
}

ContextGate::Cost ContextGate::cost(GatedCall call) const {
  const Counter& counter = counters_[static_cast<size_t>(call)];
  return {counter.calls.load(std::memory_order_relaxed),
          counter.total_ns.load(std::memory_order_relaxed),
          counter.longest_ns.load(std::memory_order_relaxed)};
}

}  // namespace openmps::worker
