// SPDX-License-Identifier: Apache-2.0
// The green contexts of a session, and the resources of devices that they are made of. Each is a
// green context of the driver on the shared primary context; the client's streams are made in it
// (stream.h). Session's thread only.
//
// A CUdevResource comes back from the client as bytes that the driver would trust. So only values
// that the session was given are accepted, and those of a green context only while it exists.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "wire/codec.h"
#include "wire/commands/green.h"
#include "worker/core/object_table.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/device/resource_descriptors.h"
#include "worker/memory/memory.h"

namespace openmps::worker {

class GreenContexts;

// Destroyed with its last holder: graphs keep the green contexts that their kernels run in.
struct ClientGreen : GreenContext, std::enable_shared_from_this<ClientGreen> {
  explicit ClientGreen(GreenContexts& of) : owner(of) {}
  ~ClientGreen();
  ClientGreen(const ClientGreen&) = delete;
  ClientGreen& operator=(const ClientGreen&) = delete;

  // The driver has made it. Until then its streams run on the session's SMs; DeviceParts::changes()
  // grows when it has been made.
  [[nodiscard]] bool is_there() { return handle != nullptr || arrive(); }

  GreenContexts& owner;
  uint64_t number = 0;  // unique among all green contexts of the session, also past ones
  // The session's SMs when these were split off; nothing: all of the device. While the session has
  // fewer, streams of this green context run elsewhere (DeviceParts::get_instead()).
  std::optional<SmSet> of;
  uint32_t streams = 0;                  // made in it
  std::vector<CUdevResource> resources;  // that it is made of

 private:
  friend class GreenContexts;
  // The driver's green context, which any thread may make.
  struct Made {
    explicit Made(DeviceParts& of_session) : parts(&of_session) {}
    Mutex mutex{LockRank::kGreenContext};
    // Of the session, to be told; null: the green context is not wanted any more.
    DeviceParts* parts GUARDED_BY(mutex);
    CUgreenCtx handle GUARDED_BY(mutex) = nullptr;
    CUcontext context GUARDED_BY(mutex) = nullptr;
    std::shared_ptr<StreamSlots> slots = std::make_shared<StreamSlots>();
  };
  bool arrive();

  std::shared_ptr<Made> later_;  // while it is to be made later; null: it is not
};

class GreenContexts {
  struct Descriptor;

 public:
  GreenContexts(SessionCore& core, SessionMemory& memory, ResourceDescriptors& kept_descriptors)
      : core_(core), memory_(memory), kept_descriptors_(kept_descriptors) {}

  Status handle(const wire::DeviceResource& command, ClientGreen* green,
                ReplyTo<wire::DeviceResource> reply);
  Status handle(const wire::ResourceSplit& command, ReplyTo<wire::ResourceSplit> reply);
  Status handle(const wire::ResourceRead& command, ReplyTo<wire::ResourceRead> reply);
  Status handle(const wire::ResourceDescribe& command, const wire::ResourceDescribe::Tail& tail);
  Status handle(const wire::GreenCreate& command, const Descriptor& descriptor);
  // The client can name neither it nor its resources any more. No work may run in it when the last
  // holder lets go of it.
  std::shared_ptr<ClientGreen> take(wire::Id id);
  [[nodiscard]] const auto& greens() const { return greens_; }
  [[nodiscard]] const auto& descriptors() const { return descriptors_; }
  // The session has been given resources, which other workers do not know.
  [[nodiscard]] bool has_given() const { return !given_.empty(); }
  void release_all();

 private:
  friend struct ClientGreen;
  using Bytes = std::array<unsigned char, sizeof(CUdevResource)>;
  // The owner of a resource.
  struct Origin {
    uint32_t device = 0;
    wire::Id green = 0;            // 0: the device itself
    std::optional<SmSet> of = {};  // as of a green context
  };
  struct Descriptor {
    uint32_t device = 0;
    CUdevResourceDesc handle = nullptr;
    uint32_t sms = 0;
    std::optional<SmSet> of;
    std::vector<CUdevResource> resources;
  };

  // CUDA_ERROR_NOT_SUPPORTED: the driver is older than CUDA 12.5.
  Status check_supported() const;
  Status give(const Origin& origin, const CUdevResource& resource);
  // Finds the origin of a value of the client's. CUDA_ERROR_INVALID_RESOURCE_TYPE or
  // _CONFIGURATION.
  Status known(const CUdevResource& resource, Origin* origin) const;
  void put_off(ClientGreen& green, CUdevResourceDesc descriptor, uint32_t flags);
  void give_back(const GreenContext& green);

  SessionCore& core_;
  SessionMemory& memory_;
  ResourceDescriptors& kept_descriptors_;
  std::map<Bytes, Origin> given_;
  std::vector<CUdevResource> split_;  // results of the last split
  ObjectTable<Descriptor> descriptors_{"resource descriptor"};
  ObjectTable<ClientGreen, std::shared_ptr<ClientGreen>> greens_{"green context"};
  uint32_t green_count_ = 0;
  uint64_t last_number_ = 0;
};

}  // namespace openmps::worker
