// SPDX-License-Identifier: Apache-2.0
// Two versions of one memory, compared page by page: what has changed, and how the other side's
// changes come in. For managed variables (managed_variables.h). Pure functions; any thread.
#pragma once

#include <cstddef>
#include <vector>

namespace openmps::client {

// Bytes [first, end).
struct ChangedRun {
  size_t first;
  size_t end;
};

// Where `now` differs from `known`, in order, by words of 4 bytes: a program that writes single
// bytes writes neighbours, too. A page with many runs counts as one from the first to the last, for
// each run is a copy of its own.
std::vector<ChangedRun> changed_runs(const std::byte* now, const std::byte* known, size_t bytes);

// `fresh` becomes what is known, and what is there now: except for bytes that differ from what was
// known, which keep their value.
void take_over(std::byte* now, std::byte* known, const std::byte* fresh, size_t bytes);

}  // namespace openmps::client
