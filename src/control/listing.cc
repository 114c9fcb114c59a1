// SPDX-License-Identifier: Apache-2.0
// See listing.h.
#include "control/listing.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace openmps::control {
namespace {

constexpr size_t kGap = 2;

std::string heading_of(std::string_view column) {
  std::string text(column);
  for (char& c : text) c = c == '-' ? ' ' : static_cast<char>(toupper(c));
  return text;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// A heading of several words is in quotation marks, so that columns can be told apart.
std::string table_heading(const std::string& column) {
  const std::string heading = heading_of(column);
  return heading.find(' ') == std::string::npos ? heading : "\"" + heading + "\"";
}

std::string csv(const Listing& listing, bool has_header) {
  std::string text;
  const auto add = [&text](const std::vector<std::string>& fields) {
    for (size_t i = 0; i < fields.size(); ++i) text += (i == 0 ? "" : ",") + csv_field(fields[i]);
    text += '\n';
  };
  if (has_header) {
    std::vector<std::string> headings;
    for (const std::string& column : listing.columns) headings.push_back(heading_of(column));
    add(headings);
  }
  for (const auto& row : listing.rows) add(row);
  return text;
}

std::string table(const Listing& listing, bool has_header) {
  std::vector<std::vector<std::string>> lines;
  if (has_header) {
    std::vector<std::string>& headings = lines.emplace_back();
    for (const std::string& column : listing.columns) headings.push_back(table_heading(column));
  }
  lines.insert(lines.end(), listing.rows.begin(), listing.rows.end());
  std::vector<size_t> widths(listing.columns.size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::string made;
    for (size_t i = 0; i < line.size(); ++i) {
      made += line[i];
      if (i + 1 < line.size()) made += std::string(widths[i] + kGap - line[i].size(), ' ');
    }
    text += made + '\n';
  }
  return text;
}

Listing plain_part(Listing listing) {
  if (listing.plain_columns == 0) return listing;
  listing.columns.resize(listing.plain_columns);
  for (auto& row : listing.rows) row.resize(listing.plain_columns);
  return listing;
}

}  // namespace

Result<Listing> with_columns(const Listing& listing, std::string_view names) {
  Listing made;
  std::vector<size_t> places;
  while (!names.empty()) {
    const std::string name(names.substr(0, names.find(',')));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const auto found = std::ranges::find(listing.columns, name);
    if (found == listing.columns.end()) {
      std::string fault = "unknown field '" + printable(name) + "': ";
      for (const std::string& column : listing.columns) {
        fault += (column == listing.columns.front() ? "" : ", ") + column;
      }
      return Status(CUDA_ERROR_INVALID_VALUE, fault);
    }
    made.columns.push_back(name);
    places.push_back(static_cast<size_t>(found - listing.columns.begin()));
  }
  for (const auto& row : listing.rows) {
    std::vector<std::string>& fields = made.rows.emplace_back();
    for (const size_t place : places) fields.push_back(row[place]);
  }
  return made;
}

Result<std::string> format_listing(const Listing& listing, std::string_view format) {
  constexpr std::string_view kNoHeader = ",noheader";
  const bool has_header = !format.ends_with(kNoHeader);
  const std::string_view kind =
      has_header ? format : format.substr(0, format.size() - kNoHeader.size());
  if (kind == "csv") return csv(plain_part(listing), has_header);
  if (kind == "table" || kind.empty()) return table(plain_part(listing), has_header);
  if (kind == "json" && has_header) return json_of(listing);
  return Status(CUDA_ERROR_INVALID_VALUE,
                "unknown format '" + std::string(format) +
                    "': expected table, csv or json, and ,noheader behind the first two");
}

}  // namespace openmps::control
