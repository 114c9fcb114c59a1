// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them, in a few characters. For the subcommands of `openmps`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace openmps::observe {

// "812", "1.5k", "20.0M": at most seven characters.
std::string short_count(double n);
// "512B", "1.5KiB", "20.0GiB".
std::string memory_text(uint64_t bytes);
// "350 ns", "1.5 us", "350.0 ms", "1.50 s", "3.20 h".
std::string time_text(uint64_t ns);
// A part of 1 as "7%".
std::string percent(double part);

// Cut, or filled with spaces, to so many characters of UTF-8.
std::string fit(std::string_view text, size_t width, bool right_aligned = false);
// How much a counter has grown; 0 if it has fallen, because it belongs to another client now.
uint64_t since(uint64_t now, uint64_t before);
double seconds(uint64_t ns);

// The program without its arguments.
std::string program_of(std::string_view command);
// The name of a group; for a group made from a cgroup only the last part of the path. "-": none.
std::string group_text(std::string_view group);

// The pause between two snapshots: in shorter ones the counters, which follow work by milliseconds,
// say little.
inline constexpr double kShortestPauseS = 0.1;
inline constexpr double kLongestPauseS = 3600;
inline constexpr double kUsualPauseS = 1;
void pause_for(double seconds);

}  // namespace openmps::observe
