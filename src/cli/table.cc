// SPDX-License-Identifier: Apache-2.0
// See table.h.
#include "cli/table.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"
#include "cli/figures.h"

namespace openmps::cli {
namespace {

struct Shape {
  Column column;
  size_t width;
  bool is_number;
  int rank;  // the column with the highest rank is dropped first
};
constexpr std::array<Shape, kColumns> kShapes = {{{Column::kPid, 8, true, 0},
                                                  {Column::kPercentage, 5, true, 9},
                                                  {Column::kQuality, 11, false, 10},
                                                  {Column::kGroup, 16, false, 11},
                                                  {Column::kState, 9, false, 5},
                                                  {Column::kSms, 5, true, 1},
                                                  {Column::kKernels, 6, true, 2},
                                                  {Column::kMemory, 9, true, 3},
                                                  {Column::kOnHost, 9, true, 12},
                                                  {Column::kLaunches, 8, true, 4},
                                                  {Column::kToDevice, 8, true, 7},
                                                  {Column::kFromDevice, 8, true, 8},
                                                  {Column::kHeld, 23, false, 6},
                                                  {Column::kCommand, 12, false, 0}}};

const Shape& shape_of(Column column) { return kShapes[static_cast<size_t>(column)]; }

std::string cell(const Rates& rates, Column column) {
  const Client& client = rates.client;
  const bool known = client.use.has_value();
  switch (column) {
    case Column::kPid: return name_of(client);
    case Column::kPercentage: return format_text("%.0f%%", client.active_thread_percentage);
    case Column::kQuality: return client.quality;
    case Column::kGroup: return group_text(client.group);
    case Column::kState: return name_of(rates.state);
    case Column::kSms: return rates.timed ? percent(rates.sm_time_share) : "-";
    case Column::kKernels: return rates.timed ? percent(rates.kernel_share) : "-";
    case Column::kMemory: return known ? memory_text(rates.memory_bytes) : "-";
    case Column::kOnHost: return known ? memory_text(rates.host_bytes) : "-";
    case Column::kLaunches: return known ? short_count(rates.launches) : "-";
    case Column::kToDevice: return known ? short_count(rates.to_device) + "B" : "-";
    case Column::kFromDevice: return known ? short_count(rates.from_device) + "B" : "-";
    case Column::kHeld: return held_text(rates.held);
    case Column::kCommand: return client.command;
  }
  return "";
}

// Without trailing spaces.
std::string closed(std::string line, size_t width) {
  line = fit(line, std::min(width, line.size()));
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::vector<std::string> device_lines(const View& view, size_t width) {
  std::vector<std::string> lines;
  for (const DeviceRates& rates : view.devices) {
    const Device& device = rates.device;
    std::string line = format_text(
        "GPU %u  SM time %4s (%.1f of %u SMs)  kernels %4s  memory %s of %s  %u program%s  %s",
        device.ordinal, percent(rates.sm_time_share).c_str(), rates.sm_time_share * device.sms,
        device.sms, percent(rates.kernel_share).c_str(), memory_text(rates.memory_bytes).c_str(),
        memory_text(device.memory_bytes).c_str(), rates.clients, rates.clients == 1 ? "" : "s",
        device.name.c_str());
    lines.push_back(closed(std::move(line), width));
  }
  return lines;
}

Table::Table(size_t width) : width_(width) {
  std::array<Shape, kColumns> left = kShapes;
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
  for (const Column column : columns_) {
    std::string name = heading_of(column);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return toupper(c); });
    line += fit(name, shape_of(column).width, shape_of(column).is_number) + " ";
  }
  return closed(std::move(line), width_);
}

std::string Table::row(const Rates& rates) const {
  std::string line;
  for (const Column column : columns_) {
    const Shape& shape = shape_of(column);
    const std::string text = cell(rates, column);
    line += (column == Column::kCommand ? text : fit(text, shape.width, shape.is_number)) + " ";
  }
  return closed(std::move(line), width_);
}

}  // namespace openmps::cli
