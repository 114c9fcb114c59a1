// SPDX-License-Identifier: Apache-2.0
// Small text helpers of the programs off the data path.
#include "base/text.h"

#include <cstdarg>
#include <cstdio>

namespace openmps {

std::string format_text(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  const int length = vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  // The terminating zero lands on the string's own.
  if (length > 0) vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

std::string printable(std::string_view text) {
  std::string safe(text);
  for (char& c : safe) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return safe;
}

std::optional<uint64_t> parse_unsigned(std::string_view text, uint64_t max) {
  if (text.empty()) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<uint64_t>(c - '0');
    if (digit > max || value > (max - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMG";
  const size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  const int shift = unit == std::string_view::npos ? 0 : 10 * (static_cast<int>(unit) + 1);
  if (shift != 0) text.remove_suffix(1);
  const std::optional<uint64_t> count = parse_unsigned(text, UINT64_MAX >> shift);
  if (!count) return std::nullopt;
  return *count << shift;
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::string_view kUnits = "KMG";
  size_t unit = 0;
  while (unit < kUnits.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + (unit == 0 ? "" : std::string(1, kUnits[unit - 1]));
}

std::vector<std::string> split_words(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  std::vector<std::string> words;
  size_t at = line.find_first_not_of(kBlank);
  while (at != std::string_view::npos) {
    const size_t end = line.find_first_of(kBlank, at);
    words.emplace_back(line.substr(at, end == std::string_view::npos ? end : end - at));
    at = end == std::string_view::npos ? end : line.find_first_not_of(kBlank, end);
  }
  return words;
}

std::string_view program_name(std::string_view command) {
  const std::string_view first = command.substr(0, command.find(' '));
  return first.substr(first.rfind('/') + 1);
}

}  // namespace openmps
