// SPDX-License-Identifier: Apache-2.0
// The routes of the exporter's HTTP servers: /metrics, the page and what it asks for.
#pragma once

#include <httplib.h>
#include <atomic>

#include "exporter/access.h"
#include "exporter/live.h"
#include "exporter/metrics.h"
#include "exporter/sample.h"

namespace openmps::exporter {

// Pages that may be open at once. Each has a thread.
inline constexpr int kMostPages = 16;
// Threads for everything else: scrapes take some milliseconds.
inline constexpr int kOtherThreads = 4;
// A request to act is one small JSON object.
inline constexpr size_t kMostRequestBytes = 4096;

struct Site {
  Daemon& daemon;
  Live& live;
  const Access& access;
  MetricsOptions metrics;
  bool has_page = true;
  std::atomic<int> open_pages = 0;
  std::atomic<uint64_t> scrape_errors = 0;
};

// Adds the routes; `site` outlives the server.
void add_routes(httplib::Server& server, Site& site, Way way);

}  // namespace openmps::exporter
