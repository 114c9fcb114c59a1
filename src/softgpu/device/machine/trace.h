// SPDX-License-Identifier: Apache-2.0
// SOFTGPU_TRACE: what the device did, as Chrome-trace JSON (one event per line; the array is left
// open, which readers of the format accept). Written with the scheduler's mutex held, so the order
// of lines is the order of what happened; several processes may append to one file.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace openmps::softgpu {

class Trace {
 public:
  // An empty path: tracing is off and costs one branch.
  void open(const std::string& path);
  [[nodiscard]] bool enabled() const { return file_.valid(); }

  // `phase`: 'i' an instant, 'X' an interval from start_ns to end_ns. `lane` becomes the thread of
  // the viewer (an SM, an engine). `arguments`: the inside of a JSON object, without braces.
  void event(char phase, const char* category, const std::string& name, const std::string& lane,
             uint64_t start_ns, uint64_t end_ns, const std::string& arguments);

 private:
  UniqueFd file_;
  uint64_t sequence_ = 0;
};

}  // namespace openmps::softgpu
