// SPDX-License-Identifier: Apache-2.0
// See advise.h.
#include "cli/advise.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "observe/advise.h"
#include "observe/figures.h"
#include "observe/snapshot.h"

namespace openmps::cli {
namespace {

int failure(const std::string& what) {
  fprintf(stderr, "openmps: %s\n", what.c_str());
  return 1;
}

const observe::Client* find_name(const observe::Snapshot& snapshot, const std::string& name) {
  const auto found = std::ranges::find_if(
      snapshot.clients, [&name](const observe::Client& client) { return name_of(client) == name; });
  return found == snapshot.clients.end() ? nullptr : &*found;
}

}  // namespace

int run_advise(const AdviseOptions& options) {
  Result<observe::DaemonLink> daemon = observe::DaemonLink::connect();
  if (!daemon.ok()) {
    observe::report_no_daemon(daemon.status());
    return 1;
  }
  const std::string nobody = "no program with PID " + printable(options.name) +
                             " uses OpenMPS (openmps ps shows who does)";
  observe::Snapshot before;
  if (options.for_s != 0) {
    Result<observe::Snapshot> first = daemon->look();
    if (!first.ok()) return failure(first.status().message());
    if (find_name(*first, options.name) == nullptr) return failure(nobody);
    before = std::move(first).value();
    observe::pause_for(options.for_s);
  }
  Result<observe::Snapshot> now = daemon->look();
  if (!now.ok()) return failure(now.status().message());
  const observe::Client* client = find_name(*now, options.name);
  if (client == nullptr) return failure(nobody);
  observe::Figures figures =
      observe::figures_of(find_again(before.clients, *client), *client, now->devices);
  // Over the whole life of the program the counters of others are of other times.
  observe::add_others(options.for_s != 0 ? before : *now, *now, &figures);
  const observe::Advice advice = observe::advise(figures);
  const std::string text = options.json ? observe::format_advice_json(figures, advice)
                                        : observe::format_advice(figures, advice);
  fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace openmps::cli
