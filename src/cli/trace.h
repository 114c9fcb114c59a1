// SPDX-License-Identifier: Apache-2.0
// `openmps trace`: when the work of programs runs on the GPUs, as a file for Perfetto.
#pragma once

#include <cstdint>
#include <string>

namespace openmps::cli {

inline constexpr double kLongestTraceS = 3600;

struct TraceOptions {
  std::string client;  // its PID or id:ID, as ps shows it; "": all
  double seconds = 5;
  std::string output = "trace.json";  // "-": standard output
};

// Until the time is over, a signal comes, or the client has ended. Exit status: 0, or 1 with a
// message.
int run_trace(const TraceOptions& options);

}  // namespace openmps::cli
