// SPDX-License-Identifier: Apache-2.0
// Values that NVIDIA's libraries attach to contexts: the "context local storage" export table. A
// get is on the path of every call of the CUDA runtime, so reads take no lock; puts are rare (once
// per context and library). Any thread.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/mutex.h"
#include "cuda/abi.h"

namespace openmps {

class ContextStorage {
 public:
  using Destructor = void (*)(CUcontext context, void* key, void* value);

  // Constant-initialised and without destructor, so that one can be a global of a library that
  // runs no code at load. Nodes live as long as the process.
  constexpr ContextStorage() = default;
  ContextStorage(const ContextStorage&) = delete;
  ContextStorage& operator=(const ContextStorage&) = delete;

  // Replaces an earlier value of the same key without destroying it. CUDA_ERROR_OUT_OF_MEMORY.
  CUresult put(CUcontext context, void* key, void* value, Destructor destructor);

  // Forgets the value without calling its destructor. CUDA_ERROR_INVALID_HANDLE if there is none.
  CUresult remove(CUcontext context, void* key);

  // CUDA_ERROR_INVALID_HANDLE, *value untouched, if there is none.
  CUresult get(void** value, CUcontext context, void* key) const;

  // The context is being destroyed or reset: calls the destructor of each of its values, without a
  // lock held, so that a destructor may call back.
  void destroy_context(CUcontext context);

 private:
  // A pair of context and key once seen keeps its node for ever: readers may hold a pointer to it.
  // That is bounded by the handles that contexts ever had, and handles are reused.
  struct Node {
    Node* next = nullptr;
    CUcontext context = nullptr;
    void* key = nullptr;
    Destructor destructor = nullptr;  // guarded by mutex_
    std::atomic<void*> value{nullptr};
  };

  // A prime well above the dozens of pairs that a process has.
  static constexpr size_t kBuckets = 251;

  static size_t bucket(CUcontext context, const void* key);
  Node* find(CUcontext context, const void* key) const;

  Mutex mutex_{LockRank::kContextStorage};  // writers
  std::atomic<Node*> buckets_[kBuckets] = {};
};

}  // namespace openmps
