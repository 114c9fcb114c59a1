// SPDX-License-Identifier: Apache-2.0
// cuCtxSetLimit and cuCtxGetLimit of a session. The limits are those of the shared context, so all
// clients have the same ones: a client may read them and raise those that kernels need (stack,
// malloc heap, printf buffer, pending launches), but not lower them (docs/decisions/0012).
// Session's thread only.
#pragma once

#include <array>
#include <cstdint>

#include "base/mutex.h"
#include "cuda/status.h"
#include "wire/commands/device.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/memory/memory.h"

namespace openmps::worker {

class Limits {
 public:
  // `changing`: held while a limit of a shared context is raised, so that none is lowered.
  Limits(SessionCore& core, SessionMemory& memory, Mutex& changing)
      : core_(core), memory_(memory), changing_(changing) {}

  Status handle(const wire::LimitGet& command, ReplyTo<wire::LimitGet> reply);
  // CUDA_ERROR_INVALID_VALUE: more than the device can have, or a heap that kernels already use.
  // CUDA_ERROR_OUT_OF_MEMORY: more than the client's memory limit leaves. CUDA_ERROR_NOT_PERMITTED:
  // other clients' work does not end, or clients may not change the limit.
  Status handle(const wire::LimitRaise& command);

  void release_all();

 private:
  Status read(uint32_t device, CUlimit limit, uint64_t* value);
  Status raise_stack(uint32_t device, uint64_t value, uint64_t now);
  Status raise_launches(uint32_t device, uint64_t value, uint64_t now);
  // At quiescence of the context. `bytes` are charged to the client until it ends.
  Status raise_at_quiescence(uint32_t device, CUlimit limit, uint64_t value, uint64_t bytes);
  Status raise_memory(uint32_t device, CUlimit limit, uint64_t value, uint64_t now);

  SessionCore& core_;
  SessionMemory& memory_;
  Mutex& changing_;
  std::array<uint64_t, wire::kMaxDevices> charged_{};
};

}  // namespace openmps::worker
