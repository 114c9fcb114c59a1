// SPDX-License-Identifier: Apache-2.0
// `openmps cdi generate`: which shares, and what is said when it does not work.
#include "cli/cdi.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "cli/installation.h"
#include "observe/snapshot.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"

namespace openmps::cli {
namespace {

Status invalid(const std::string& why) { return Status(CUDA_ERROR_INVALID_VALUE, why); }

std::string full_name(const observe::Share& share) { return share.server + "/" + share.name; }

Result<std::vector<observe::Share>> ask_for_shares(int daemon) {
  Result<wire::ControlReply> reply = wire::call_control(daemon, observe::kListSharesCommand);
  if (!reply.ok()) return reply.status();
  if (reply->exit_status != 0) {
    return invalid("the daemon does not list its namespaces: " +
                   printable(reply->text.substr(0, reply->text.find('\n'))));
  }
  return observe::read_shares(reply->text);
}

Result<std::string> text_by_daemon(CdiOptions options) {
  if (options.library.empty()) {
    Result<Installation> installation = find_installation();
    if (!installation.ok()) return installation.status();
    options.library = installation->client_library;
  }
  const auto [directory, daemon] = wire::find_daemon();
  if (!daemon.ok()) return daemon.status();
  Result<std::vector<observe::Share>> shares = ask_for_shares(daemon->get());
  if (!shares.ok()) return shares.status();
  shares = choose_shares(*shares, options.shares);
  if (!shares.ok()) return shares.status();
  std::error_code error;
  const std::string own = std::filesystem::canonical(directory, error).string();
  if (error) return invalid(directory + ": " + error.message());
  Result<std::vector<observe::CdiDevice>> devices = devices_of(*shares, options, own);
  if (!devices.ok()) return devices.status();
  return observe::cdi_text({.vendor = options.vendor,
                            .device_class = options.device_class,
                            .libraries = observe::libraries_at(options.library),
                            .devices = std::move(devices).value()});
}

}  // namespace

Result<std::vector<observe::Share>> choose_shares(const std::vector<observe::Share>& shares,
                                                  const std::vector<std::string>& names) {
  if (names.empty()) return shares;
  std::vector<observe::Share> chosen;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(shares, name, full_name);
    if (found == shares.end()) {
      std::string known;
      for (const observe::Share& share : shares) {
        known += (known.empty() ? "" : ", ") + full_name(share);
      }
      return Status(CUDA_ERROR_NOT_FOUND,
                    "there is no namespace " + printable(name) +
                        (known.empty() ? ", nor any other" : "; there are: " + known));
    }
    if (std::ranges::find(chosen, name, full_name) == chosen.end()) chosen.push_back(*found);
  }
  return chosen;
}

Result<std::vector<observe::CdiDevice>> devices_of(const std::vector<observe::Share>& shares,
                                                   const CdiOptions& options,
                                                   const std::string& own_directory) {
  std::vector<observe::CdiDevice> devices;
  for (const observe::Share& share : shares) {
    devices.push_back({share.server + ":" + share.name, share.directory});
  }
  if (options.all) devices.push_back({"all", own_directory});
  if (!devices.empty()) return devices;
  return invalid(
      "the daemon has no namespace: make one with `openmps-control namespace create`, or give "
      "--all");
}

int generate_cdi(const CdiOptions& options) {
  const Result<std::string> text = text_by_daemon(options);
  if (!text.ok()) {
    if (text.status().code() == CUDA_ERROR_MPS_CONNECTION_FAILED) {
      observe::report_no_daemon(text.status());
    } else {
      fprintf(stderr, "openmps: %s\n", text.status().message().c_str());
    }
    return 1;
  }
  if (options.output == "-") {
    fputs(text->c_str(), stdout);
    return fflush(stdout) == 0 ? 0 : 1;
  }
  if (const Status written = observe::replace_file(options.output, *text); !written.ok()) {
    fprintf(stderr, "openmps: %s\n", written.message().c_str());
    return 1;
  }
  return 0;
}

}  // namespace openmps::cli
