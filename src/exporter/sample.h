// SPDX-License-Identifier: Apache-2.0
// All that the daemon answers at one moment, for metrics and for the page. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "cuda/status.h"
#include "observe/snapshot.h"
#include "wire/control_call.h"

namespace openmps::exporter {

// A sample that is not older serves another request, too: several scrapers cost as much as one.
inline constexpr uint64_t kFreshMs = 200;

struct Sample {
  std::string why_not;  // no daemon answers; "": it does, and has said:
  uint64_t at_ns = 0;   // by now_ns()
  observe::Snapshot snapshot;
  // As the commands of these names print them.
  nlohmann::json clients = nlohmann::json::array();  // ps --json
  nlohmann::json devices = nlohmann::json::array();  // device_query --json
  nlohmann::json groups = nlohmann::json::array();   // get_group_list --json
  nlohmann::json totals = nlohmann::json::array();   // totals --json
  nlohmann::json events = nlohmann::json::object();  // events --json
  nlohmann::json servers = nlohmann::json::array();  // get_server_list --json
  // namespace list --format=json, of all servers that this program's user may see.
  nlohmann::json namespaces = nlohmann::json::array();
  nlohmann::json partitions = nlohmann::json::array();  // lspart --json; empty without -S

  // By the PID that clients and groups have; the PID itself if there is no such server any more.
  [[nodiscard]] std::string server_name(uint64_t pid) const;
};

class Daemon {
 public:
  // Asks the daemon, or returns a sample that is not older than kFreshMs.
  std::shared_ptr<const Sample> sample();
  // What the daemon says to a command line. Errors: there is no daemon, or it goes away.
  Result<wire::ControlReply> command(std::string_view line);

 private:
  // Errors as those of observe::DaemonLink.
  Result<std::string> ask(std::string_view line) REQUIRES(mutex_);
  Result<nlohmann::json> ask_json(std::string_view line) REQUIRES(mutex_);
  Status ask_into(std::string_view line, nlohmann::json* to) REQUIRES(mutex_);
  Status read(Sample* sample) REQUIRES(mutex_);

  Mutex mutex_{LockRank::kExporterDaemon};
  std::optional<observe::DaemonLink> link_ GUARDED_BY(mutex_);
  std::shared_ptr<const Sample> last_ GUARDED_BY(mutex_);
  nlohmann::json devices_ GUARDED_BY(mutex_);  // do not change while the daemon runs
};

}  // namespace openmps::exporter
