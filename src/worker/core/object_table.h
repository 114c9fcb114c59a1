// SPDX-License-Identifier: Apache-2.0
// The live objects of one type of a session, by the id that the client chose. Session's thread
// only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/status.h"
#include "wire/limits.h"
#include "wire/record.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {

// `Pointer`: std::shared_ptr<T> for objects that work may keep after the client has ended them.
template <typename T, typename Pointer = std::unique_ptr<T>>
class ObjectTable {
 public:
  // `type` names the objects in reasons: "stream". Ids go up to `most`.
  explicit ObjectTable(const char* type, uint32_t most = wire::kMaxObjects)
      : type_(type), most_(most) {}

  // The object of that id; nullptr: there is none.
  [[nodiscard]] T* find(wire::Id id) const {
    return id - 1 < objects_.size() ? objects_[id - 1].get() : nullptr;
  }
  // Find the object that a command names. A violation: there is none.
  Status get(wire::Id id, T** object) const {
    *object = find(id);
    return check(id);
  }
  [[nodiscard]] Status check(wire::Id id) const {
    if (find(id) != nullptr) return Status();
    return violation(std::string("there is no ") + type_ + " " + std::to_string(id));
  }
  // Violations: the id is 0, too large or in use.
  Status insert(wire::Id id, Pointer object) {
    OPENMPS_RETURN_IF_ERROR(check_free(id));
    if (id > objects_.size()) objects_.resize(id);
    objects_[id - 1] = std::move(object);
    ++live_;
    return Status();
  }
  [[nodiscard]] Status check_free(wire::Id id) const {
    if (id != 0 && id <= most_ && find(id) == nullptr) return Status();
    return violation(std::string("the id ") + std::to_string(id) + " can't name a new " + type_);
  }
  // Give the object to the caller; nullptr: there is none.
  Pointer take(wire::Id id) {
    if (find(id) == nullptr) return nullptr;
    --live_;
    return std::move(objects_[id - 1]);
  }
  // Destroy the object. A violation: there is none.
  Status end(wire::Id id) {
    T* object = nullptr;
    OPENMPS_RETURN_IF_ERROR(get(id, &object));
    take(id).reset();
    return Status();
  }
  // Give any object to the caller; nullptr: none is left. Needs no memory.
  Pointer take_any() {
    Pointer last;
    while (last == nullptr && !objects_.empty()) {
      last = std::move(objects_.back());
      objects_.pop_back();
    }
    if (last != nullptr) --live_;
    return last;
  }
  // Call f(T&) for each object.
  template <typename F>
  void for_each(F&& f) const {
    for (const auto& object : objects_) {
      if (object != nullptr) f(*object);
    }
  }
  // Call f(id, T&) for each object.
  template <typename F>
  void for_each_id(F&& f) const {
    for (size_t i = 0; i < objects_.size(); ++i) {
      if (objects_[i] != nullptr) f(static_cast<wire::Id>(i + 1), *objects_[i]);
    }
  }
  void clear() {
    objects_.clear();
    live_ = 0;
  }
  [[nodiscard]] size_t live() const { return live_; }

 private:
  const char* type_;
  const uint32_t most_;
  std::vector<Pointer> objects_;
  size_t live_ = 0;
};

}  // namespace openmps::worker
