// SPDX-License-Identifier: Apache-2.0
// See named_servers.h.
#include "control/named_servers.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace openmps::control {
namespace {

constexpr std::string_view kUsersServer = "uid_";
// Where the system's cgroups are mounted; below it, in version 1, each hierarchy has a directory.
constexpr std::string_view kCgroupRoot = "/sys/fs/cgroup";

// How many directories `path` is below `above`, one of its parents or itself.
uint32_t levels_below(std::string_view above, std::string_view path) {
  std::string_view rest = path.substr(above.size());
  if (above == "/" && path != "/") return 1 + static_cast<uint32_t>(std::ranges::count(rest, '/'));
  return static_cast<uint32_t>(std::ranges::count(rest, '/'));
}

// The cgroup, one of these paths or above one, that the namespace takes; "": none.
std::string_view cgroup_that_fits(const GroupRule& rule, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const bool is_below = path == rule.cgroup || rule.cgroup == "/" ||
                          std::string_view(path).starts_with(rule.cgroup + "/");
    if (!is_below) continue;
    if (rule.cgroup_depth && levels_below(rule.cgroup, path) > *rule.cgroup_depth) continue;
    return rule.cgroup;
  }
  return "";
}

}  // namespace

std::string name_of_users_server(uid_t uid) {
  return std::string(kUsersServer) + std::to_string(uid);
}

std::optional<uid_t> user_of_server_name(std::string_view name) {
  if (!name.starts_with(kUsersServer)) return std::nullopt;
  const auto uid = parse_unsigned(name.substr(kUsersServer.size()), UINT32_MAX - 1);
  return uid ? std::optional(static_cast<uid_t>(*uid)) : std::nullopt;
}

bool names_a_share(std::string_view text) {
  constexpr std::string_view kAll =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";
  return !text.empty() && text.size() < wire::kServerNameBytes && text.front() != '-' &&
         text.find_first_not_of(kAll) == std::string_view::npos;
}

std::string fault_of_name(std::string_view what, std::string_view name) {
  if (names_a_share(name)) return "";
  return format_text("\"%s\" is no name of a %s: letters, digits, _ and -, at most %u",
                     printable(name).c_str(), std::string(what).c_str(),
                     wire::kServerNameBytes - 1);
}

namespace {

constexpr std::pair<wire::Quality, std::string_view> kQualityNames[] = {
    {wire::Quality::kLatency, "latency"},
    {wire::Quality::kNormal, "normal"},
    {wire::Quality::kBestEffort, "best-effort"}};

}  // namespace

std::optional<wire::Quality> quality_of_text(std::string_view text) {
  for (const auto& [quality, name] : kQualityNames) {
    if (name == text) return quality;
  }
  return std::nullopt;
}

std::string_view text_of_quality(wire::Quality quality) {
  for (const auto& [one, name] : kQualityNames) {
    if (one == quality) return name;
  }
  return "";
}

std::optional<std::string> cgroup_of_directory(std::string_view directory) {
  while (directory.size() > 1 && directory.ends_with('/')) directory.remove_suffix(1);
  if (directory == kCgroupRoot) return "/";
  if (!directory.starts_with(kCgroupRoot) || directory[kCgroupRoot.size()] != '/') {
    return std::nullopt;
  }
  return std::string(directory.substr(kCgroupRoot.size()));
}

NamedServer* NamedServers::find(std::string_view server) {
  const auto found = all_.find(std::string(server));
  return found == all_.end() ? nullptr : &found->second;
}

const NamedServer* NamedServers::find(std::string_view server) const {
  const auto found = all_.find(std::string(server));
  return found == all_.end() ? nullptr : &found->second;
}

GroupRule* NamedServers::find(std::string_view server, std::string_view name) {
  NamedServer* there = find(server);
  if (there == nullptr) return nullptr;
  const auto found = there->namespaces.find(std::string(name));
  return found == there->namespaces.end() ? nullptr : &found->second;
}

const GroupRule* NamedServers::find(std::string_view server, std::string_view name) const {
  return const_cast<NamedServers*>(this)->find(server, name);
}

size_t NamedServers::count() const {
  size_t count = 0;
  for (const auto& [name, server] : all_) count += server.namespaces.size();
  return count;
}

Status NamedServers::add(NamedServer server) {
  if (const std::string fault = fault_of_name("server", server.name); !fault.empty()) {
    return Status(CUDA_ERROR_INVALID_VALUE, fault);
  }
  const auto of_user = user_of_server_name(server.name);
  if (of_user && *of_user != server.user.uid) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  format_text("server '%s' can be user %u's only", server.name.c_str(), *of_user));
  }
  if (find(server.name) != nullptr) {
    return Status(CUDA_ERROR_ALREADY_ACQUIRED, "server '" + server.name + "' already exists");
  }
  const auto of_same_user = std::ranges::count_if(
      all_, [&server](const auto& entry) { return entry.second.user.uid == server.user.uid; });
  if (static_cast<size_t>(of_same_user) >= kMaxServersOfUser) {
    return Status(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                  format_text("user %u has %zu servers already, the maximum", server.user.uid,
                              kMaxServersOfUser));
  }
  if (count() + server.namespaces.size() >= kMaxNamespaces) {
    return Status(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                  format_text("there are %zu namespaces already, the maximum", count()));
  }
  server.namespaces.try_emplace(kDefaultNamespace, GroupRule{.name = kDefaultNamespace});
  const std::string name = server.name;
  all_.emplace(name, std::move(server));
  return Status();
}

Status NamedServers::add(std::string_view server, GroupRule rule) {
  if (const std::string fault = fault_of_name("namespace", rule.name); !fault.empty()) {
    return Status(CUDA_ERROR_INVALID_VALUE, fault);
  }
  NamedServer* there = find(server);
  if (there == nullptr) {
    return Status(CUDA_ERROR_INVALID_VALUE, "server '" + printable(server) + "' does not exist");
  }
  if (there->namespaces.contains(rule.name)) {
    return Status(CUDA_ERROR_ALREADY_ACQUIRED,
                  "namespace '" + rule.name + "' already exists on server '" + there->name + "'");
  }
  if (count() >= kMaxNamespaces) {
    return Status(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                  format_text("there are %zu namespaces already, the maximum", count()));
  }
  const std::string name = rule.name;
  there->namespaces.emplace(name, std::move(rule));
  return Status();
}

void NamedServers::remove(std::string_view server) { all_.erase(std::string(server)); }

void NamedServers::remove(std::string_view server, std::string_view name) {
  NamedServer* there = find(server);
  if (there != nullptr) there->namespaces.erase(std::string(name));
}

Access NamedServers::access(const NamedServer& server, const GroupRule& rule) const {
  if (rule.user) return {*rule.user, false};
  return {server.user.uid, multiuser_ && server.user.uid == 0};
}

bool NamedServers::may_come(std::string_view server, std::string_view name, uid_t user) const {
  const NamedServer* there = find(server);
  const GroupRule* rule = find(server, name);
  return rule != nullptr && !rule->is_leaving && access(*there, *rule).admits(user);
}

bool NamedServers::asks_for_cgroups() const {
  return std::ranges::any_of(all_, [](const auto& server) {
    return std::ranges::any_of(server.second.namespaces,
                               [](const auto& entry) { return !entry.second.cgroup.empty(); });
  });
}

// Of several cgroups that fit the deepest counts.
Place NamedServers::route(const std::vector<GroupRule>& rules, const Applicant& applicant,
                          const std::optional<std::vector<std::string>>& cgroups) const {
  Place place;
  size_t deepest = 0;
  for (const auto& [server_name, server] : all_) {
    for (const auto& [name, rule] : server.namespaces) {
      if (rule.cgroup.empty() || rule.is_leaving || !cgroups) continue;
      const std::string_view cgroup = cgroup_that_fits(rule, *cgroups);
      if (cgroup.size() <= deepest) continue;
      const uid_t owner = server.user.uid;
      const bool is_trusted = owner == applicant.user || owner == 0 || owner == daemon_;
      if (!is_trusted || !access(server, rule).admits(applicant.user)) {
        place.note = "its cgroup is namespace " + name + "'s of server " + server_name +
                     ", where its user's programs do not belong";
        continue;
      }
      deepest = cgroup.size();
      place.server = server_name;
      place.group = name;
    }
  }
  if (deepest != 0) return place;
  place.server = name_of_users_server(applicant.user);
  Membership membership = membership_of(rules, applicant, cgroups);
  if (!membership.note.empty()) place.note = std::move(membership.note);
  place.group = std::move(membership.group);
  const NamedServer* const server = find(place.server);
  if (server == nullptr) return place;
  // A program's own word leads into a namespace that it could come to by its socket.
  const GroupRule* const rule = find(place.server, place.group);
  if (rule != nullptr && !access(*server, *rule).admits(applicant.user)) {
    place.note = "OPENMPS_GROUP names a namespace where its user may not be: ignored";
    place.group.clear();
  }
  if (place.group.empty()) place.group = kDefaultNamespace;
  return place;
}

}  // namespace openmps::control
