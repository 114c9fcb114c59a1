// SPDX-License-Identifier: Apache-2.0
// The metrics of a sample (docs/monitoring.md has their table). Pure, but for what /proc says of
// clients, which is passed in.
#pragma once

#include <prometheus/metric_family.h>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exporter/pods.h"
#include "exporter/sample.h"

namespace openmps::exporter {

struct MetricsOptions {
  // Of each client also what is otherwise there for its group: histograms, copies by direction,
  // reasons for held work. About 100 series for each client.
  bool has_details = false;
  std::function<Place(uint64_t pid)> place_of = place_of_process;
  std::function<std::string(uint64_t pid)> user_of = user_of_process;
};

// Without a daemon openmps_up alone is there.
std::vector<prometheus::MetricFamily> metrics_of(const Sample& sample,
                                                 const MetricsOptions& options);

// In Prometheus's text format 0.0.4.
std::string text_of(const std::vector<prometheus::MetricFamily>& families);

}  // namespace openmps::exporter
