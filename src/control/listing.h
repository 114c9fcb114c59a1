// SPDX-License-Identifier: Apache-2.0
// Lists as the commands of MPS's interface v3 print them: aligned columns for people, csv and JSON
// for scripts. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/status.h"

namespace openmps::control {

struct Listing {
  // Like "server-status": a heading is "SERVER STATUS", a key of JSON "server-status".
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows = {};
  size_t plain_columns = 0;  // so many, the first, are in table and csv; 0: all
};

// What stands for a value that is not there.
inline constexpr const char* kNoValue = "-";

// `format`: table, csv or json; table and csv also with ",noheader" behind. No value is cut.
// CUDA_ERROR_INVALID_VALUE: it is none of these.
Result<std::string> format_listing(const Listing& listing, std::string_view format);

// Only the columns that `names` names, with commas between, in that order.
// CUDA_ERROR_INVALID_VALUE: there is no such column.
Result<Listing> with_columns(const Listing& listing, std::string_view names);

// An array of objects; in format_json.cc.
std::string json_of(const Listing& listing);

}  // namespace openmps::control
