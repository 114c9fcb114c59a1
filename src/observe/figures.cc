// SPDX-License-Identifier: Apache-2.0
// See figures.h.
#include "observe/figures.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/text.h"

namespace openmps::observe {

std::string short_count(double n) {
  static constexpr std::pair<double, const char*> kUnits[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, letter] : kUnits) {
    if (n >= unit) return format_text("%.1f%s", n / unit, letter);
  }
  return format_text("%.0f", n);
}

std::string memory_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto n = static_cast<double>(bytes);
  size_t unit = 0;
  for (; n >= 1024 && unit + 1 < std::size(kUnits); ++unit) n /= 1024;
  return format_text(unit == 0 ? "%.0f%s" : "%.1f%s", n, kUnits[unit]);
}

std::string time_text(uint64_t ns) {
  const auto n = static_cast<double>(ns);
  if (n < 1e3) return format_text("%.0f ns", n);
  if (n < 1e6) return format_text("%.1f us", n / 1e3);
  if (n < 1e9) return format_text("%.1f ms", n / 1e6);
  return n < 3600e9 ? format_text("%.2f s", n / 1e9) : format_text("%.2f h", n / 3600e9);
}

std::string percent(double part) { return format_text("%.0f%%", 100 * part); }

std::string fit(std::string_view text, size_t width, bool right_aligned) {
  // Continuation bytes of UTF-8 begin with the bits 10.
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  const auto characters = static_cast<size_t>(std::ranges::count_if(text, begins));
  if (characters < width) {
    const std::string spaces(width - characters, ' ');
    return right_aligned ? spaces + std::string(text) : std::string(text) + spaces;
  }
  size_t bytes = 0;
  for (size_t seen = 0; bytes < text.size(); ++bytes) {
    if (begins(text[bytes]) && seen++ == width) break;
  }
  return std::string(text.substr(0, bytes));
}

std::string group_text(std::string_view group) {
  if (group.empty()) return "-";
  const size_t colon = group.find(':');
  if (colon == std::string_view::npos) return std::string(group);
  return std::string(group.substr(0, colon + 1)) + std::string(group.substr(group.rfind('/') + 1));
}

std::string program_of(std::string_view command) {
  return std::string(command.substr(0, command.find(' ')));
}

uint64_t since(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

void pause_for(double seconds) {
  timespec pause{};
  pause.tv_sec = static_cast<time_t>(seconds);
  pause.tv_nsec = static_cast<long>((seconds - static_cast<double>(pause.tv_sec)) * 1e9);
  nanosleep(&pause, nullptr);
}

}  // namespace openmps::observe
