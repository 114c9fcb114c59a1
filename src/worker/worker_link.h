// SPDX-License-Identifier: Apache-2.0
// The linker of the driver (cuLink*) for a session: inputs come as blobs, the result goes back
// through the staging arena. Session's thread only.
#pragma once

#include <memory>

#include "wire/decode.h"
#include "worker/jit_options.h"
#include "worker/object_table.h"
#include "worker/reply_writer.h"
#include "worker/session_core.h"
#include "worker/worker_module.h"

namespace openmps::worker {

// Of one session at once: a program links one after the other, and each holds its inputs.
inline constexpr uint32_t kMaxLinks = 64;

class Links {
 public:
  Links(SessionCore& core, Modules& modules) : core_(core), modules_(modules) {}

  Status create(const wire::LinkCreate& command, wire::Variable options);
  // Replies ModuleLoadReply and the logs so far, also when it fails; so does complete().
  Status add(const wire::LinkAdd& command, wire::Variable variable, ReplyWriter& reply);
  Status complete(wire::Id id, ReplyWriter& reply);
  Status read(const wire::LinkRead& command);
  Status destroy(wire::Id id);
  void release_all();

 private:
  struct Link {
    CUlinkState state = nullptr;
    uint32_t device = 0;
    JitOptions options;  // the driver writes its logs for as long as the link lives
    const unsigned char* result = nullptr;  // the driver's
    size_t result_bytes = 0;
    uint64_t input_bytes = 0;  // that the driver holds
  };
  Status use(wire::Id id, Link** link);

  SessionCore& core_;
  Modules& modules_;
  ObjectTable<Link> links_{"link"};
  uint32_t count_ = 0;
};

}  // namespace openmps::worker
