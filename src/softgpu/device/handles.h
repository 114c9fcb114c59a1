// SPDX-License-Identifier: Apache-2.0
// Handle tables: what a program holds is a number that is looked up, never an address that is
// followed, so any bit pattern it passes is either a live object of the right kind or an error.
// Thread-safe; a found object stays alive as long as the caller holds it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace openmps::softgpu {

// One value per kind of object, below 32: eight times the value is the low byte of
// the handles, which makes them aligned like addresses and larger than the special stream handles 1
// and 2.
enum class HandleKind : uint8_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kGraph,
  kGraphNode,
  kGraphExec,
  kMemoryPool,
  kGreenContext,
  kResourceDescriptor,
  kPhysicalMemory,
  kUserObject,
  kArray,
  kMipmappedArray,
  kTextureObject,
  kSurfaceObject,
  kLink,
  kCondition,
  kDeviceNode,
};

// Handle: a pointer type or an integer of 64 bits. Layout: generation << 32 | index << 8 | kind
// << 3. A generation is never used twice for an index, so a stale handle does not find a new
// object.
template <typename Handle, typename T, HandleKind kKind>
class HandleTable {
 public:
  // Null when the table is full (2^24 live objects).
  Handle add(std::shared_ptr<T> object) {
    const WriterLock lock(mutex_);
    uint32_t index = 0;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      if (slots_.size() >= kMaxIndex) return Handle{};
      index = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
    }
    slots_[index].object = std::move(object);
    return encode(index, slots_[index].generation);
  }

  std::shared_ptr<T> find(Handle handle) const {
    const ReaderLock lock(mutex_);
    const Slot* slot = slot_of(handle);
    return slot == nullptr ? nullptr : slot->object;
  }

  // The object; its handle is no longer valid. Null: the handle was not valid.
  std::shared_ptr<T> remove(Handle handle) {
    const WriterLock lock(mutex_);
    Slot* slot = const_cast<Slot*>(slot_of(handle));
    if (slot == nullptr) return nullptr;
    return retire_locked(slot);
  }

  // Every object for which `predicate(object)` holds; their handles are no longer valid.
  template <typename Predicate>
  std::vector<std::shared_ptr<T>> remove_if(Predicate&& predicate) {
    std::vector<std::shared_ptr<T>> removed;
    const WriterLock lock(mutex_);
    for (Slot& slot : slots_) {
      if (slot.object != nullptr && predicate(*slot.object)) {
        removed.push_back(retire_locked(&slot));
      }
    }
    return removed;
  }

  template <typename Predicate>
  std::vector<std::shared_ptr<T>> find_if(Predicate&& predicate) const {
    std::vector<std::shared_ptr<T>> found;
    const ReaderLock lock(mutex_);
    for (const Slot& slot : slots_) {
      if (slot.object != nullptr && predicate(*slot.object)) found.push_back(slot.object);
    }
    return found;
  }

 private:
  static constexpr uint32_t kMaxIndex = 1u << 24;
  static constexpr uint64_t kLowByte = static_cast<uint64_t>(kKind) << 3;
  static_assert(kLowByte <= 0xff);

  struct Slot {
    std::shared_ptr<T> object;
    uint32_t generation = 1;
  };

  static Handle encode(uint32_t index, uint32_t generation) {
    uint64_t value =
        static_cast<uint64_t>(generation) << 32 | static_cast<uint64_t>(index) << 8 | kLowByte;
    return (Handle)value;  // NOLINT: an integer or an opaque pointer
  }

  const Slot* slot_of(Handle handle) const REQUIRES_SHARED(mutex_) {
    uint64_t value = (uint64_t)handle;  // NOLINT: an integer or an opaque pointer
    if ((value & 0xff) != kLowByte) return nullptr;
    uint32_t index = static_cast<uint32_t>(value & 0xffffffffu) >> 8;
    if (index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[index];
    if (slot.object == nullptr || slot.generation != value >> 32) return nullptr;
    return &slot;
  }

  std::shared_ptr<T> retire_locked(Slot* slot) REQUIRES(mutex_) {
    std::shared_ptr<T> object = std::move(slot->object);
    slot->object = nullptr;
    if (++slot->generation != 0) free_.push_back(static_cast<uint32_t>(slot - slots_.data()));
    return object;
  }

  mutable SharedMutex mutex_{LockRank::kSoftHandles};
  std::vector<Slot> slots_ GUARDED_BY(mutex_);
  std::vector<uint32_t> free_ GUARDED_BY(mutex_);
};

}  // namespace openmps::softgpu
