// SPDX-License-Identifier: Apache-2.0
// See table.h.
#include "cli/table.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"
#include "observe/figures.h"

namespace openmps::cli {
namespace {

struct Shape {
  observe::Column column;
  size_t width;
  bool is_number;
  int rank;  // the column with the highest rank is dropped first
};
constexpr std::array<Shape, observe::kColumns> kShapes = {
    {{observe::Column::kPid, 8, true, 0},
     {observe::Column::kPercentage, 5, true, 9},
     {observe::Column::kQuality, 11, false, 10},
     {observe::Column::kGroup, 16, false, 11},
     {observe::Column::kState, 9, false, 5},
     {observe::Column::kSms, 5, true, 1},
     {observe::Column::kKernels, 6, true, 2},
     {observe::Column::kMemory, 9, true, 3},
     {observe::Column::kOnHost, 9, true, 12},
     {observe::Column::kLaunches, 8, true, 4},
     {observe::Column::kToDevice, 8, true, 7},
     {observe::Column::kFromDevice, 8, true, 8},
     {observe::Column::kHeld, 23, false, 6},
     {observe::Column::kCommand, 12, false, 0}}};

const Shape& shape_of(observe::Column column) { return kShapes[static_cast<size_t>(column)]; }

std::string cell(const observe::Rates& rates, observe::Column column) {
  const observe::Client& client = rates.client;
  const bool known = client.use.has_value();
  switch (column) {
    case observe::Column::kPid: return name_of(client);
    case observe::Column::kPercentage:
      return format_text("%.0f%%", client.active_thread_percentage);
    case observe::Column::kQuality: return client.quality;
    case observe::Column::kGroup: return observe::group_text(client.group);
    case observe::Column::kState: return name_of(rates.state);
    case observe::Column::kSms: return rates.timed ? observe::percent(rates.sm_time_share) : "-";
    case observe::Column::kKernels: return rates.timed ? observe::percent(rates.kernel_share) : "-";
    case observe::Column::kMemory: return known ? observe::memory_text(rates.memory_bytes) : "-";
    case observe::Column::kOnHost: return known ? observe::memory_text(rates.host_bytes) : "-";
    case observe::Column::kLaunches: return known ? observe::short_count(rates.launches) : "-";
    case observe::Column::kToDevice:
      return known ? observe::short_count(rates.to_device) + "B" : "-";
    case observe::Column::kFromDevice:
      return known ? observe::short_count(rates.from_device) + "B" : "-";
    case observe::Column::kHeld: return observe::held_text(rates.held);
    case observe::Column::kCommand: return client.command;
  }
  return "";
}

// Without trailing spaces.
std::string closed(std::string line, size_t width) {
  line = observe::fit(line, std::min(width, line.size()));
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::vector<std::string> device_lines(const observe::View& view, size_t width) {
  std::vector<std::string> lines;
  for (const observe::DeviceRates& rates : view.devices) {
    const observe::Device& device = rates.device;
    std::string line = format_text(
        "GPU %u  SM time %4s (%.1f of %u SMs)  kernels %4s  memory %s of %s  %u program%s  %s",
        device.ordinal, observe::percent(rates.sm_time_share).c_str(),
        rates.sm_time_share * device.sms, device.sms, observe::percent(rates.kernel_share).c_str(),
        observe::memory_text(rates.memory_bytes).c_str(),
        observe::memory_text(device.memory_bytes).c_str(), rates.clients,
        rates.clients == 1 ? "" : "s", device.name.c_str());
    lines.push_back(closed(std::move(line), width));
  }
  return lines;
}

Table::Table(size_t width) : width_(width) {
  std::array<Shape, observe::kColumns> left = kShapes;
  size_t count = left.size();
  const auto needed = [&] {
    size_t sum = 0;
    for (size_t i = 0; i < count; ++i) sum += left[i].width + 1;
    return sum - 1;
  };
  while (needed() > width) {
    const auto last =
        std::max_element(left.begin(), left.begin() + count,
                         [](const Shape& a, const Shape& b) { return a.rank < b.rank; });
    if (last->rank == 0) break;
    std::move(last + 1, left.begin() + count, last);
    --count;
  }
  for (size_t i = 0; i < count; ++i) columns_.push_back(left[i].column);
}

std::string Table::heading() const {
  std::string line;
  for (const observe::Column column : columns_) {
    std::string name = observe::heading_of(column);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return toupper(c); });
    line += observe::fit(name, shape_of(column).width, shape_of(column).is_number) + " ";
  }
  return closed(std::move(line), width_);
}

std::string Table::row(const observe::Rates& rates) const {
  std::string line;
  for (const observe::Column column : columns_) {
    const Shape& shape = shape_of(column);
    const std::string text = cell(rates, column);
    line +=
        (column == observe::Column::kCommand ? text
                                             : observe::fit(text, shape.width, shape.is_number)) +
        " ";
  }
  return closed(std::move(line), width_);
}

}  // namespace openmps::cli
