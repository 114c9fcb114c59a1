// SPDX-License-Identifier: Apache-2.0
// The linker of the driver (cuLink*) for a session: inputs come as blobs, the result goes back
// through the staging arena. Session's thread only.
#pragma once

#include <memory>

#include "wire/codec.h"
#include "worker/code/jit_options.h"
#include "worker/code/module.h"
#include "worker/core/object_table.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"

namespace openmps::worker {

// The most links of one session at a time, since each holds its inputs; a program links one at a
// time.
inline constexpr uint32_t kMaxLinks = 64;

class Links {
  struct Link;

 public:
  Links(SessionCore& core, Modules& modules) : core_(core), modules_(modules) {}

  Status handle(const wire::LinkCreate& command, const wire::LinkCreate::Tail& tail);
  // Replies the logs so far, also after an error; so does completing the link.
  Status handle(const wire::LinkAdd& command, Link& link, const wire::LinkAdd::Tail& tail,
                ReplyTo<wire::LinkAdd> reply);
  Status handle(const wire::LinkComplete& command, Link& link, ReplyTo<wire::LinkComplete> reply);
  Status handle(const wire::LinkRead& command, Link& link);
  Status handle(const wire::LinkDestroy& command);
  [[nodiscard]] const auto& links() const { return links_; }
  void release_all();

 private:
  struct Link {
    CUlinkState state = nullptr;
    uint32_t device = 0;
    JitOptions options;  // the driver writes the logs for as long as the link exists
    const unsigned char* result = nullptr;  // the driver's memory
    size_t result_bytes = 0;
    uint64_t input_bytes = 0;  // bytes that the driver holds
  };

  SessionCore& core_;
  Modules& modules_;
  ObjectTable<Link> links_{"link"};
};

}  // namespace openmps::worker
