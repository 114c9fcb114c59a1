// SPDX-License-Identifier: Apache-2.0
// Keeps a flood of lines of one kind out of a log: some are written, the rest are counted, and the
// count is written in their place. Used by the daemon's log, on its thread; time comes as a
// parameter.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace openmps {

// Lines of one kind that are written in a row before the counting begins: a shell's session or the
// start of a job with dozens of processes is written whole.
inline constexpr uint32_t kRepeatBurst = 64;
// After that one line a second. A flood of ten kinds then writes 80 MB a day, into files that
// rotate (control/log_files.h).
inline constexpr uint64_t kRepeatIntervalNs = 1'000'000'000;
// Kinds that are told apart; more replace the one that was silent longest.
inline constexpr size_t kRepeatKinds = 64;

class RepeatFilter {
 public:
  using Out = std::function<void(const std::string&)>;

  // Write `text` to `out`, or count it. Counts of other kinds that are due are written first, as
  // the last line of the kind and "... N times".
  void pass(std::string_view kind, std::string_view text, uint64_t now_ns, const Out& out);
  // Write what has been counted; nothing comes after it.
  void finish(const Out& out);

 private:
  struct Kind {
    uint32_t allowance = kRepeatBurst;
    uint64_t counted_ns = 0;  // up to when the allowance has grown
    uint64_t last_ns = 0;
    uint64_t left_out = 0;
    std::string last_text;
  };
  static void grow(Kind& kind, uint64_t now_ns);
  static void write_count(Kind& kind, const Out& out);
  void forget_oldest(const Out& out);

  std::map<std::string, Kind, std::less<>> kinds_;
};

// The kind of a line that names none: its text, with every number as '#'.
std::string kind_of_line(std::string_view text);

}  // namespace openmps
