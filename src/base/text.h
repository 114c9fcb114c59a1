// SPDX-License-Identifier: Apache-2.0
// Small text helpers of the programs off the data path: formatting, numbers, and making a peer's
// text safe to print. Called by daemon, server and shell on their only thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace openmps {

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format_text(const char* format, ...);

// `text` with every byte below space, DEL included, replaced by '?': a peer's words go into logs
// and on terminals only like this, so that they can neither forge log lines nor steer a terminal.
std::string printable(std::string_view text);

// The text in a fixed field of a message, which a peer need not have terminated.
template <size_t N>
std::string_view field_text(const char (&field)[N]) {
  const std::string_view all(field, N);
  return all.substr(0, all.find('\0'));
}

// Copy into a fixed field: cut to fit, always terminated.
template <size_t N>
void fill_field(char (&field)[N], std::string_view text) {
  const size_t bytes = text.size() < N ? text.size() : N - 1;
  text.copy(field, bytes);
  field[bytes] = '\0';
}

// All of `text` as a decimal number of digits only, at most `max`; otherwise nothing.
std::optional<uint64_t> parse_unsigned(std::string_view text, uint64_t max);

// All of `text` as a number of bytes, with K, M or G behind it for the binary units; otherwise
// nothing.
std::optional<uint64_t> parse_bytes(std::string_view text);

// A number of bytes in the largest binary unit that states it exactly: "4G", "512M", "1000".
std::string bytes_text(uint64_t bytes);

// Words separated by spaces and tabs.
std::vector<std::string> split_words(std::string_view line);

// The first word of a command line, without the folders.
std::string_view program_name(std::string_view command);

}  // namespace openmps
