// SPDX-License-Identifier: Apache-2.0
// User objects: reference-counted data of the program that graphs keep alive. API threads; the
// destructor runs on the one that drops the last reference.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "cuda/abi.h"
#include "softgpu/device/handles.h"

namespace openmps::softgpu {

struct UserObject;
using UserObjectTable = HandleTable<CUuserObject, UserObject, HandleKind::kUserObject>;

struct UserObject {
  UserObjectTable* table = nullptr;  // where its handle is
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  CUuserObject handle = nullptr;
  std::atomic<uint64_t> references{0};
};

// Drops references; the last one destroys.
void release_user_object(UserObject& object, uint64_t count);

// References that graphs hold; its copies share them.
struct UserObjectHold {
  std::shared_ptr<UserObject> object;
  uint64_t count = 0;

  UserObjectHold(std::shared_ptr<UserObject> held, uint64_t references)
      : object(std::move(held)), count(references) {}
  ~UserObjectHold() {
    if (count != 0) release_user_object(*object, count);
  }
  UserObjectHold(const UserObjectHold&) = delete;
  UserObjectHold& operator=(const UserObjectHold&) = delete;
};

}  // namespace openmps::softgpu
