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

struct Session;

struct UserObject : Object {
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  std::atomic<uint64_t> references{0};
};

// Drops `count` references; with the last one the object dies and its destructor is called.
void release_user_object(Session& session, UserObject* object, uint64_t count);

// References that a graph holds. Copies hold as many of their own.
class UserObjectReference {
 public:
  // Takes over references that have been counted already.
  UserObjectReference(Session& session, UserObject* object, uint64_t count)
      : session_(&session), object_(object), count_(count) {}
  UserObjectReference(const UserObjectReference& other)
      : session_(other.session_), object_(other.object_), count_(other.count_) {
    if (object_ != nullptr) object_->references.fetch_add(count_, std::memory_order_relaxed);
  }
  UserObjectReference(UserObjectReference&& other) noexcept
      : session_(other.session_),
        object_(std::exchange(other.object_, nullptr)),
        count_(other.count_) {}
  UserObjectReference& operator=(UserObjectReference other) noexcept {
    std::swap(session_, other.session_);
    std::swap(object_, other.object_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~UserObjectReference() {
    if (object_ != nullptr) release_user_object(*session_, object_, count_);
  }

  [[nodiscard]] const UserObject* object() const { return object_; }
  [[nodiscard]] uint64_t count() const { return count_; }
  // Drop some; at most as many as are held.
  void drop(uint64_t count) {
    count_ -= count;
    release_user_object(*session_, object_, count);
  }

 private:
  Session* session_;
  UserObject* object_;
  uint64_t count_;
};

}  // namespace openmps::client
