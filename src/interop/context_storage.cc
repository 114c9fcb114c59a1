// SPDX-License-Identifier: Apache-2.0
// Context local storage: see context_storage.h.
#include "interop/context_storage.h"

#include <cstdint>
#include <new>

#include "base/mutex.h"

namespace openmps {
namespace {

// Marks a node without value; NULL is a value like any other.
char g_absent;

}  // namespace

size_t ContextStorage::bucket(CUcontext context, const void* key) {
  // Both are addresses of objects: their low bits carry nothing.
  const auto mixed =
      reinterpret_cast<uintptr_t>(context) / 16 * 31 + reinterpret_cast<uintptr_t>(key) / 8;
  return mixed % kBuckets;
}

ContextStorage::Node* ContextStorage::find(CUcontext context, const void* key) const {
  // Pairs with the release in put(): a node is complete when it can be seen.
  Node* node = buckets_[bucket(context, key)].load(std::memory_order_acquire);
  while (node != nullptr && (node->context != context || node->key != key)) node = node->next;
  return node;
}

CUresult ContextStorage::put(CUcontext context, void* key, void* value, Destructor destructor) {
  const MutexLock lock(mutex_);
  Node* node = find(context, key);
  if (node == nullptr) {
    node = new (std::nothrow) Node;
    if (node == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    node->context = context;
    node->key = key;
    node->destructor = destructor;
    node->value.store(value, std::memory_order_relaxed);
    std::atomic<Node*>& head = buckets_[bucket(context, key)];
    node->next = head.load(std::memory_order_relaxed);
    head.store(node, std::memory_order_release);
    return CUDA_SUCCESS;
  }
  node->destructor = destructor;
  // Pairs with the acquire in get(): what the value points at was written before.
  node->value.store(value, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult ContextStorage::remove(CUcontext context, void* key) {
  const MutexLock lock(mutex_);
  Node* node = find(context, key);
  if (node == nullptr || node->value.load(std::memory_order_relaxed) == &g_absent) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  node->value.store(&g_absent, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult ContextStorage::get(void** value, CUcontext context, void* key) const {
  const Node* node = find(context, key);
  if (node == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  void* found = node->value.load(std::memory_order_acquire);
  if (found == &g_absent) return CUDA_ERROR_INVALID_HANDLE;
  *value = found;
  return CUDA_SUCCESS;
}

void ContextStorage::destroy_context(CUcontext context) {
  for (std::atomic<Node*>& head : buckets_) {
    for (Node* node = head.load(std::memory_order_acquire); node != nullptr; node = node->next) {
      if (node->context != context) continue;
      void* value;
      Destructor destructor;
      {
        const MutexLock lock(mutex_);
        value = node->value.exchange(&g_absent, std::memory_order_acq_rel);
        destructor = node->destructor;
      }
      if (value != &g_absent && destructor != nullptr) destructor(context, node->key, value);
    }
  }
}

}  // namespace openmps
