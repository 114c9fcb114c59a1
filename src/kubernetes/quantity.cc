// SPDX-License-Identifier: Apache-2.0
// See quantity.h.
#include "kubernetes/quantity.h"

#include <cmath>

#include "base/text.h"

namespace openmps::kubernetes {
namespace {

struct Unit {
  std::string_view text;
  long double factor;
};
constexpr Unit kUnits[] = {{"Ki", 0x1p10L}, {"Mi", 0x1p20L}, {"Gi", 0x1p30L}, {"Ti", 0x1p40L},
                           {"Pi", 0x1p50L}, {"Ei", 0x1p60L}, {"m", 1e-3L},    {"k", 1e3L},
                           {"M", 1e6L},     {"G", 1e9L},     {"T", 1e12L},    {"P", 1e15L},
                           {"E", 1e18L},    {"", 1}};
constexpr long double kMost = 0x1p63L;
constexpr uint64_t kMostDigits = 9'999'999'999'999'999'999u;  // 19
constexpr int kMostExponent = 18;

// "12", "12.5", ".5", "12."; nothing: it is none of these.
std::optional<long double> decimal(std::string_view text) {
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view rest = point == std::string_view::npos ? "" : text.substr(point + 1);
  if (whole.empty() && rest.empty()) return std::nullopt;
  const auto front = whole.empty() ? 0 : parse_unsigned(whole, kMostDigits);
  const auto back = rest.empty() ? 0 : parse_unsigned(rest, kMostDigits);
  if (!front || !back) return std::nullopt;
  return static_cast<long double>(*front) +
         static_cast<long double>(*back) / std::pow(10.0L, static_cast<long double>(rest.size()));
}

}  // namespace

std::optional<uint64_t> parse_quantity(std::string_view text) {
  const size_t digits = text.find_first_not_of("0123456789.");
  const auto number = decimal(text.substr(0, digits));
  if (!number) return std::nullopt;
  std::string_view suffix = digits == std::string_view::npos ? "" : text.substr(digits);
  long double value = -1;
  for (const Unit& unit : kUnits) {
    if (suffix == unit.text) value = *number * unit.factor;
  }
  if (value < 0 && (suffix.starts_with('e') || suffix.starts_with('E'))) {
    suffix.remove_prefix(1);
    const bool is_negative = suffix.starts_with('-');
    if (is_negative || suffix.starts_with('+')) suffix.remove_prefix(1);
    const auto exponent = parse_unsigned(suffix, kMostExponent);
    if (!exponent) return std::nullopt;
    value = *number * std::pow(10.0L, static_cast<long double>(*exponent) * (is_negative ? -1 : 1));
  }
  if (value < 0 || value >= kMost) return std::nullopt;
  return static_cast<uint64_t>(std::ceil(value));
}

std::string bytes_quantity(uint64_t bytes) {
  const std::string text = bytes_text(bytes);
  const bool has_unit = !text.empty() && (text.back() < '0' || text.back() > '9');
  return has_unit ? text + "i" : text;
}

}  // namespace openmps::kubernetes
