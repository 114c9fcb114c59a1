// SPDX-License-Identifier: Apache-2.0
// Counting the calls that synchronise the shared context. See context_gate.h.
#include "worker/context_gate.h"

namespace openmps::worker {

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
    case GatedCall::kCount: break;
  }
  return "";
}

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
