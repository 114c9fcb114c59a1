// SPDX-License-Identifier: Apache-2.0
// The JIT options of one load or link as the driver wants them: the scalars that the program chose,
// and log buffers of the worker, whose text is sent with the reply. Session's thread only.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "wire/codec.h"
#include "wire/commands/code.h"
#include "worker/core/reply_writer.h"

namespace openmps::worker {

class JitOptions {
 public:
  // Options that name memory of the program are a violation: the client translates or refuses them.
  // `log_bytes`: the size wanted of each log, at most what a reply holds; 0: no log.
  Status set(uint32_t log_bytes, std::span<const wire::JitOption> options);

  [[nodiscard]] unsigned count() const { return static_cast<unsigned>(names_.size()); }
  [[nodiscard]] CUjit_option* names() { return names_.data(); }
  [[nodiscard]] void** values() { return values_.data(); }
  // The text of both logs as the tail of a reply, cut to what that holds.
  template <typename Tail>
  [[nodiscard]] Tail logs() const {
    // Errors matter more than information, so they are cut last.
    const std::string_view error = text_of(error_).substr(0, kMaxLogBytes);
    return {text_of(info_).substr(0, kMaxLogBytes - error.size()), error};
  }

 private:
  // The most that both logs take in a reply.
  static constexpr uint32_t kMaxLogBytes = ReplyTo<wire::LinkComplete>::room();

  void add(CUjit_option name, void* value);
  [[nodiscard]] static std::string_view text_of(const std::vector<char>& log);

  std::vector<CUjit_option> names_;
  std::vector<void*> values_;
  std::vector<char> info_;
  std::vector<char> error_;
};

}  // namespace openmps::worker
