// SPDX-License-Identifier: Apache-2.0
// What the page shows, as JSON: rates of devices and clients between two samples, the shares of the
// last minutes, groups, events. The sampler's thread adds samples; threads that serve a page wait
// for the next text.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/mutex.h"
#include "exporter/sample.h"

namespace openmps::exporter {

// Samples of the last minutes that a page gets when it is opened.
inline constexpr size_t kKeptMoments = 300;
// Clients of a moment whose shares are kept apart; the others are added up.
inline constexpr size_t kMostShares = 24;

// What is to be seen of one sample, without history. `before` null: rates are over the clients'
// whole lives. Shares are parts of a device's SM time, in the order of "devices".
nlohmann::json page_of(const Sample* before, const Sample& now, double at_s);

// Its shares alone: {"at": seconds since 1970, "devices": [{"ordinal", "shares": [[client, part],
// ...], "rest": part}]}, where a client is "SERVER/ID".
nlohmann::json moment_of(const nlohmann::json& page);

class Live {
 public:
  // The next sample. From one thread; everything else from any.
  void add(std::shared_ptr<const Sample> sample);
  // No more texts come: wait() returns at once.
  void stop();

  // What a page gets first: {"history": [moments], "now": the last text}. wait() goes on behind it.
  [[nodiscard]] std::string first(uint64_t* last);
  // Waits for a text behind number `*last`, and sets that; at most `limit_ms`. "": there was none.
  // A text is page_of() with its moment_of() as "moment".
  [[nodiscard]] std::string wait(uint64_t* last, uint64_t limit_ms);
  [[nodiscard]] bool has_stopped();

 private:
  std::shared_ptr<const Sample> before_;  // of add()'s thread
  Mutex mutex_{LockRank::kExporterLive};
  CondVar changed_;
  std::deque<nlohmann::json> history_ GUARDED_BY(mutex_);
  nlohmann::json page_ GUARDED_BY(mutex_);
  std::shared_ptr<const std::string> text_ GUARDED_BY(mutex_);
  uint64_t number_ GUARDED_BY(mutex_) = 0;
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace openmps::exporter
