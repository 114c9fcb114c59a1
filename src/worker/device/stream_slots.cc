// SPDX-License-Identifier: Apache-2.0
// Making stream slots by a graph. See stream_slots.h.
#include "worker/device/stream_slots.h"

#include "worker/device/in_context.h"

namespace openmps::worker {
namespace {

// Make an executable graph of so many parallel nodes and destroy it: the driver keeps the slots of
// its branches. Of the nodes that need no code, fills take the least memory.
CUresult make_and_drop(const DriverTable& driver, CUcontext context, uint32_t branches) {
  if (driver.cuGraphAddMemsetNode == nullptr || driver.cuMemAlloc_v2 == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUdeviceptr word = 0;
  CUresult result = driver.cuMemAlloc_v2(&word, sizeof(uint32_t));
  if (result != CUDA_SUCCESS) return result;
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = word;
  fill.elementSize = sizeof(uint32_t);
  fill.width = fill.height = 1;
  CUgraph graph = nullptr;
  CUgraphExec made = nullptr;
  result = driver.cuGraphCreate(&graph, 0);
  for (uint32_t i = 0; i < branches && result == CUDA_SUCCESS; ++i) {
    CUgraphNode node = nullptr;
    result = driver.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context);
  }
  if (result == CUDA_SUCCESS) result = driver.cuGraphInstantiateWithFlags(&made, graph, 0);
  if (made != nullptr) driver.cuGraphExecDestroy(made);
  if (graph != nullptr) driver.cuGraphDestroy(graph);
  driver.cuMemFree_v2(word);
  return result;
}

}  // namespace

// The slots are counted as taken already. If there is no memory, the constructor of shared_ptr
// calls the deleter, which gives them back.
StreamSlot StreamSlots::note_taken(uint32_t count) {
  return {this, [kept = shared_from_this(), count](const void*) {
            kept->taken_.fetch_sub(count, std::memory_order_relaxed);
          }};
}

StreamSlot StreamSlots::take(uint32_t count, uint32_t reserve) {
  uint32_t taken = taken_.load(std::memory_order_relaxed);
  do {
    if (taken + count + reserve > there_.load(std::memory_order_relaxed)) return nullptr;
  } while (!taken_.compare_exchange_weak(taken, taken + count, std::memory_order_relaxed));
  return note_taken(count);
}

StreamSlot StreamSlots::take_anyhow(uint32_t count) {
  taken_.fetch_add(count, std::memory_order_relaxed);
  return note_taken(count);
}

// The graph has as many branches more as the driver has free slots: for those it would make none.
CUresult StreamSlots::grow(const DriverTable& driver, CUcontext context, uint32_t more) {
  const InContext current(driver, context);
  const uint32_t there = there_.load(std::memory_order_relaxed);
  const uint32_t taken = taken_.load(std::memory_order_relaxed);
  const uint32_t free = taken < there ? there - taken : 0;
  const CUresult result = make_and_drop(driver, context, free + more);
  if (result == CUDA_SUCCESS) there_.fetch_add(more, std::memory_order_relaxed);
  return result;
}

}  // namespace openmps::worker
