// SPDX-License-Identifier: Apache-2.0
// `openmps ps`: the clients of a daemon and what they use, once or again and again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/status.h"

namespace openmps::cli {

struct PsOptions {
  bool json = false;    // the daemon's answer as it is
  double every_s = 0;   // 0: once
  uint32_t times = 0;   // with every_s: after so many it is enough; 0: never
  bool clears = false;  // the screen, between two
};

// Between two looks: shorter ones say little of work that is learnt in milliseconds; none is longer
// than an hour.
inline constexpr double kShortestWatchS = 0.1;
inline constexpr double kLongestWatchS = 3600;

// What the daemon says of a client.
struct PsRow {
  uint64_t pid = 0;
  uint64_t id = 0;
  uint64_t server = 0;
  std::string device;
  std::string command;
  bool ending = false;
  // Counters since its session began.
  struct Use {
    uint64_t age_ns = 0;
    std::optional<uint64_t> gpu_ns;  // nothing: it is not measured
    uint64_t sm_ns = 0;
    uint64_t launches = 0;  // of kernels, also in graphs
    uint64_t to_device = 0;
    uint64_t from_device = 0;
    // What held its work back, by reason.
    struct Held {
      std::string why;
      uint64_t ns = 0;
      uint64_t standing = 0;
    };
    std::vector<Held> held;
  };
  std::optional<Use> use;  // nothing: it is not known
};

// Of the answer to `ps --json`. CUDA_ERROR_INVALID_VALUE: it is another daemon's, with the reason.
Result<std::vector<PsRow>> read_ps(std::string_view json);
// Lines of text. Shares and rates are since `before`, for clients that are in it, else since each
// session began.
std::string format_ps_table(const std::vector<PsRow>& rows, const std::vector<PsRow>& before);

// Exit status: 0, or 1 if there is no answer, which it has said.
int run_ps(const PsOptions& options);

}  // namespace openmps::cli
