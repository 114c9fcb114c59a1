// SPDX-License-Identifier: Apache-2.0
// User objects: reference-counted data of the program that graphs and executable graphs keep alive.
// The destructor runs in this process, on the thread that drops the last reference. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "client/handle_table.h"
#include "cuda/abi.h"

namespace openmps::client {

struct UserObject : Object {
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  std::atomic<uint64_t> references{0};
};

class UserObjects : public HandleTable<UserObject> {
 public:
  UserObjects() : HandleTable<UserObject>(HandleKind::kUserObject) {}
  // Drops `count` references; with the last one the object dies and its destructor is called.
  void release(UserObject* object, uint64_t count) {
    if (count == 0 || object->references.fetch_sub(count, std::memory_order_acq_rel) != count) {
      return;
    }
    const CUhostFn destroy = object->destroy;
    void* const data = object->data;
    if (retire(object)) recycle(object);
    destroy(data);
  }
};

// References that a graph holds. Copies hold as many of their own.
class UserObjectReference {
 public:
  // Takes over references that have been counted already.
  UserObjectReference(UserObjects& objects, UserObject* object, uint64_t count)
      : objects_(&objects), object_(object), count_(count) {}
  UserObjectReference(const UserObjectReference& other)
      : objects_(other.objects_), object_(other.object_), count_(other.count_) {
    if (object_ != nullptr) object_->references.fetch_add(count_, std::memory_order_relaxed);
  }
  UserObjectReference(UserObjectReference&& other) noexcept
      : objects_(other.objects_),
        object_(std::exchange(other.object_, nullptr)),
        count_(other.count_) {}
  UserObjectReference& operator=(UserObjectReference other) noexcept {
    std::swap(objects_, other.objects_);
    std::swap(object_, other.object_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~UserObjectReference() {
    if (object_ != nullptr) objects_->release(object_, count_);
  }

  [[nodiscard]] const UserObject* object() const { return object_; }
  [[nodiscard]] uint64_t count() const { return count_; }
  // Drop some; at most as many as are held.
  void drop(uint64_t count) {
    count_ -= count;
    objects_->release(object_, count);
  }

 private:
  UserObjects* objects_;
  UserObject* object_;
  uint64_t count_;
};

}  // namespace openmps::client
