// SPDX-License-Identifier: Apache-2.0
// Tables of the objects behind CUDA handles, one per type. A handle is a tagged integer, never an
// address: a wrong, stale or foreign one is recognised and answered with CUDA_ERROR_INVALID_HANDLE.
// find() is lock-free on any thread; creation and destruction take the table's lock.
//
//   63      56 55            32 31             4 3  0
//   | 0x40+type | generation   | index = wire id | 0 |     (never a canonical address: using it
//   faults)
//
// Positive as a signed number: cuda.bindings converts handles through one. Aligned, as addresses of
// objects are: PyTorch tells streams of others from its own by the lowest bit.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "base/mutex.h"
#include "cuda/abi.h"
#include "wire/limits.h"
#include "wire/record.h"

namespace openmps::client {

enum class HandleKind : uint8_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kLibrary,
  kFunction,
  kGraph,
  kGraphExec,
  kMemoryPool,
  kGraphNode,
  kArray,
  kMipmappedArray,
  kUserObject,
  kImage,
  kPhysicalMemory,
  kLink,
  kGreenContext,
  kResourceDescriptor,
};

constexpr uint64_t kHandleTag = 0x40;
constexpr uint64_t kGenerationMask = 0xff'ffff;
constexpr uint32_t kIndexShift = 4;
static_assert(wire::kMaxObjects < 1u << (32 - kIndexShift));

constexpr uint64_t make_handle(HandleKind type, uint32_t generation, uint32_t index) {
  return (kHandleTag + static_cast<uint64_t>(type)) << 56 | (generation & kGenerationMask) << 32 |
         index << kIndexShift;
}

// Base of everything in a table.
struct Object {
  wire::Id id = 0;      // its index here and its name on the wire
  uint64_t handle = 0;  // what the program holds

  template <typename Handle>
  [[nodiscard]] Handle as() const {
    return reinterpret_cast<Handle>(handle);
  }
};

template <typename T>
class HandleTable {
 public:
  // At most `most` objects live at once: what the worker holds for a client.
  explicit HandleTable(HandleKind type, uint32_t most = wire::kMaxObjects)
      : type_(type), most_(most) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // An object that find() sees once fill(object) has succeeded; *made is the object or, of that
  // type, its handle. Errors: CUDA_ERROR_OUT_OF_MEMORY: the limit of live objects is reached; those
  // of fill().
  template <typename Made, typename Fill>
  [[nodiscard]] CUresult make(Made* made, Fill&& fill);

  // The same in steps. A fresh object with its id and handle, not yet visible to find(). nullptr:
  // the limit of live objects is reached.
  T* allocate();
  // Make a filled-in object visible.
  void publish(T* object);
  // Make the handle invalid. False if another thread was faster: then leave the object alone.
  [[nodiscard]] bool retire(T* object);
  // Give the index back, once the destroy command is in the ring.
  void recycle(T* object);

  // The live object behind a handle, or nullptr. Objects are never freed, only reused: a program
  // that destroys an object while another thread uses it gets wrong results, not a crash of ours.
  [[nodiscard]] T* find(uint64_t handle) const;
  template <typename Handle>
  [[nodiscard]] T* find(Handle* handle) const {
    return find(reinterpret_cast<uint64_t>(handle));
  }

  // The object of an id that a call which is under way uses.
  [[nodiscard]] const T& of_id(wire::Id id) const { return slot_at(id)->object; }

  // Calls visit(T&) for every live object; creations meanwhile may be missed.
  template <typename Visit>
  void for_each(Visit&& visit) const;

 private:
  static constexpr uint32_t kChunkObjects = 256;
  static constexpr uint32_t kChunks = wire::kMaxObjects / kChunkObjects;

  struct Slot {
    std::atomic<uint32_t> generation{0};  // odd: live
    T object;
  };
  struct Chunk {
    Slot slots[kChunkObjects];
  };
  struct Directory {
    std::atomic<Chunk*> chunks[kChunks] = {};
    ~Directory() {
      for (std::atomic<Chunk*>& chunk : chunks) delete chunk.load(std::memory_order_relaxed);
    }
  };

  [[nodiscard]] Slot* slot_at(uint32_t index) const;
  Slot* grow_locked() REQUIRES(lock_);

  const HandleKind type_;
  const uint32_t most_;
  Mutex lock_{LockRank::kClientHandles};
  std::vector<uint32_t> free_ GUARDED_BY(lock_);  // last in, first out: warm cache lines
  std::atomic<uint32_t> used_{0};                 // indices 1..used_ have existed
  std::unique_ptr<Directory> directory_ = std::make_unique<Directory>();
};

template <typename T>
typename HandleTable<T>::Slot* HandleTable<T>::slot_at(uint32_t index) const {
  const uint32_t place = index - 1;
  if (place >= wire::kMaxObjects) return nullptr;
  // Pairs with the release store in grow_locked().
  Chunk* chunk = directory_->chunks[place / kChunkObjects].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &chunk->slots[place % kChunkObjects];
}

template <typename T>
typename HandleTable<T>::Slot* HandleTable<T>::grow_locked() {
  const uint32_t index = used_.load(std::memory_order_relaxed) + 1;
  if (index > most_) return nullptr;
  std::atomic<Chunk*>& chunk = directory_->chunks[(index - 1) / kChunkObjects];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    // recycle() needs no memory: an object can always go.
    free_.reserve(index - 1 + kChunkObjects);
    chunk.store(new Chunk, std::memory_order_release);
  }
  Slot* slot = slot_at(index);
  slot->object.id = index;
  used_.store(index, std::memory_order_release);
  return slot;
}

template <typename T>
T* HandleTable<T>::allocate() {
  const MutexLock guard(lock_);
  Slot* slot = nullptr;
  if (!free_.empty()) {
    slot = slot_at(free_.back());
    free_.pop_back();
    const uint32_t index = slot->object.id;
    slot->object.~T();
    new (&slot->object) T;
    slot->object.id = index;
  } else {
    slot = grow_locked();
  }
  if (slot == nullptr) return nullptr;
  const uint32_t generation = slot->generation.load(std::memory_order_relaxed) + 1;
  slot->object.handle = make_handle(type_, generation, slot->object.id);
  return &slot->object;
}

template <typename T>
template <typename Made, typename Fill>
CUresult HandleTable<T>::make(Made* made, Fill&& fill) {
  T* object = allocate();
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult result = fill(*object); result != CUDA_SUCCESS) {
    recycle(object);
    return result;
  }
  publish(object);
  if constexpr (std::is_same_v<Made, T*>) {
    *made = object;
  } else {
    *made = object->template as<Made>();
  }
  return CUDA_SUCCESS;
}

template <typename T>
void HandleTable<T>::publish(T* object) {
  // Pairs with the acquire loads in find() and for_each(): the fields come first.
  slot_at(object->id)->generation.fetch_add(1, std::memory_order_release);
}

template <typename T>
bool HandleTable<T>::retire(T* object) {
  std::atomic<uint32_t>& generation = slot_at(object->id)->generation;
  uint32_t current = generation.load(std::memory_order_relaxed);
  return (current & 1) != 0 &&
         generation.compare_exchange_strong(current, current + 1, std::memory_order_acq_rel);
}

template <typename T>
void HandleTable<T>::recycle(T* object) {
  assert((slot_at(object->id)->generation.load(std::memory_order_relaxed) & 1) == 0 &&
         "retire() comes before recycle()");
  const MutexLock guard(lock_);
  free_.push_back(object->id);
}

template <typename T>
T* HandleTable<T>::find(uint64_t handle) const {
  if (handle >> 56 != kHandleTag + static_cast<uint64_t>(type_)) return nullptr;
  const auto low = static_cast<uint32_t>(handle);
  if (low % (1u << kIndexShift) != 0) return nullptr;
  Slot* slot = slot_at(low >> kIndexShift);
  if (slot == nullptr) return nullptr;
  const uint32_t generation = slot->generation.load(std::memory_order_acquire);
  const bool same = ((handle >> 32) & kGenerationMask) == (generation & kGenerationMask);
  return same && (generation & 1) != 0 ? &slot->object : nullptr;
}

template <typename T>
template <typename Visit>
void HandleTable<T>::for_each(Visit&& visit) const {
  const uint32_t used = used_.load(std::memory_order_acquire);
  for (uint32_t index = 1; index <= used; ++index) {
    Slot* slot = slot_at(index);
    if ((slot->generation.load(std::memory_order_acquire) & 1) != 0) visit(slot->object);
  }
}

}  // namespace openmps::client
