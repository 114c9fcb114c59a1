// SPDX-License-Identifier: Apache-2.0
// Questions about the devices that only the driver can answer: links between devices, widths of
// textures, descriptors of bulk copies. Errors are the driver's; CUDA_ERROR_NOT_SUPPORTED if the
// driver has no such function. Session's thread only.
#pragma once

#include "wire/commands/device.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"

namespace openmps::worker {

class DeviceQueries {
 public:
  explicit DeviceQueries(SessionCore& core) : core_(core) {}

  Status handle(const wire::PersistingCacheReset& command);
  Status handle(const wire::PeerAccessible& command, ReplyTo<wire::PeerAccessible> reply);
  Status handle(const wire::PeerAttribute& command, ReplyTo<wire::PeerAttribute> reply);
  Status handle(const wire::AtomicCapabilities& command, const wire::AtomicCapabilities::Tail& tail,
                ReplyTo<wire::AtomicCapabilities> reply);
  Status handle(const wire::TextureWidth& command, ReplyTo<wire::TextureWidth> reply);
  Status handle(const wire::RemoteWritesFlush& command);
  Status handle(const wire::TensorMapEncode& command, ReplyTo<wire::TensorMapEncode> reply);
  Status handle(const wire::TensorMapReplace& command, ReplyTo<wire::TensorMapReplace> reply);

 private:
  [[nodiscard]] CUdevice handle_of(uint32_t device) const {
    return core_.devices.at(device).handle;
  }

  SessionCore& core_;
};

}  // namespace openmps::worker
