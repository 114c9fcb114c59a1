// SPDX-License-Identifier: Apache-2.0
// What the generated dispatcher needs of a session in the worker, and what it reports back. The
// worker's session implements HandleResolver; everything runs on that session's executor thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api/driver_table.h"
#include "base/cuda_abi.h"

namespace openmps {

// The objects of one session. Ids come from an untrusted client: an id that the session does not
// own, or that names another kind of object, is an error, never a crash.
class HandleResolver {
 public:
  virtual ~HandleResolver() = default;

  // The driver's handle for a client's id. Id 0 is the client's NULL: the resolver decides what it
  // means (the session's default stream, the current context, or the null handle).
  [[nodiscard]] virtual CUresult resolve(HandleType type, uint32_t id, void** handle) = 0;

  // The driver has just created the object that the client named `id`. An error (the id is taken)
  // becomes the call's result, and the dispatcher leaves the object to the resolver, who must
  // destroy it.
  [[nodiscard]] virtual CUresult bind(HandleType type, uint32_t id, void* handle) = 0;

  // The driver has just destroyed the object.
  virtual void release(HandleType type, uint32_t id) = 0;

  [[nodiscard]] virtual CUresult resolve_device(uint32_t id, CUdevice* device) = 0;
};

struct DispatchOutcome {
  // Null: the message was well formed and `result` is the driver's (or the resolver's) answer,
  // which is in the reply, too, if the function has one. Otherwise the client broke the protocol
  // and this says how: its session ends.
  const char* violation = nullptr;
  CUresult result = CUDA_SUCCESS;
  size_t reply_bytes = 0;
};

}  // namespace openmps
