// SPDX-License-Identifier: Apache-2.0
// A view (rates.h) as lines of text that fit a width: what `openmps top` and `stat` show. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "observe/rates.h"

namespace openmps::cli {

// The width of text that is not for a terminal: all columns fit.
inline constexpr size_t kAnyWidth = 10'000;

// A line for each device: the used part of its SM-time, the time that kernels ran, its memory.
std::vector<std::string> device_lines(const observe::View& view, size_t width);

// The columns that fit a width: the least important ones are dropped first.
class Table {
 public:
  explicit Table(size_t width);
  [[nodiscard]] std::string heading() const;
  [[nodiscard]] std::string row(const observe::Rates& rates) const;

 private:
  std::vector<observe::Column> columns_;
  size_t width_;
};

}  // namespace openmps::cli
