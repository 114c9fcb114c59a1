// SPDX-License-Identifier: Apache-2.0
// The JIT options of one load or link as the driver wants them: the scalars that the program chose,
// and log buffers of ours, whose text goes back with the reply. Session's thread only.
#pragma once

#include <string_view>
#include <vector>

#include "wire/decode.h"
#include "worker/reply_writer.h"

namespace openmps::worker {

class JitOptions {
 public:
  // Options that name memory of the program are a violation: the client translates or refuses them.
  // `log_bytes`: wanted of each log, cut to what a reply holds; 0: none.
  Status set(uint32_t log_bytes, uint32_t option_count, wire::Variable options);

  [[nodiscard]] unsigned count() const { return static_cast<unsigned>(names_.size()); }
  [[nodiscard]] CUjit_option* names() { return names_.data(); }
  [[nodiscard]] void** values() { return values_.data(); }
  // ModuleLoadReply and the text of both logs, cut to what a reply holds.
  void put_logs(ReplyWriter& reply) const;

 private:
  void add(CUjit_option name, void* value);
  [[nodiscard]] static std::string_view text_of(const std::vector<char>& log);

  std::vector<CUjit_option> names_;
  std::vector<void*> values_;
  std::vector<char> info_;
  std::vector<char> error_;
};

}  // namespace openmps::worker
