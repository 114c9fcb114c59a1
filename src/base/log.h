// SPDX-License-Identifier: Apache-2.0
// The log of the programs: lines as NVIDIA's MPS writes them,
//   [YYYY-MM-DD HH:MM:SS.mmm Component <pid, width 5>] text
// so that what reads its logs reads ours. Owned by main(), used on any thread: one line is one
// write() to a descriptor opened with O_APPEND, so lines of several processes do not mix.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/repeat_filter.h"
#include "base/unique_fd.h"

namespace openmps {

class Log {
 public:
  // `component`: Control, Server or Other. An invalid fd makes a log that says nothing.
  Log(std::string_view component, UniqueFd fd) : component_(component), fd_(std::move(fd)) {}
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Count what is repeated instead of writing it all (repeat_filter.h): for a log that strangers
  // can fill. One thread only from now on.
  void count_repeats() { repeats_ = std::make_unique<RepeatFilter>(); }

  // Write `text`, local time. A text of several lines becomes several entries, and control
  // characters become '?', so no peer can forge an entry. What can't be written, as on a full disk,
  // is lost: the service goes on, and the next line that can be says how many were lost, and why.
  void write(std::string_view text) const;
  // A line whose text a peer may choose: all lines of one `kind` count as one.
  void write(std::string_view kind, std::string_view text) const;

 private:
  void write_text(std::string_view text) const;
  void write_line(std::string_view line) const;
  [[nodiscard]] std::string entry_of(std::string_view line) const;

  std::string component_;
  UniqueFd fd_;
  std::unique_ptr<RepeatFilter> repeats_;
  mutable std::atomic<uint64_t> lost_{0};   // lines since the last that was written
  mutable std::atomic<int> lost_error_{0};  // errno
  mutable std::atomic<bool> torn_{false};   // of the last line the end is lost
};

}  // namespace openmps
