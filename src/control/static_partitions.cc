// SPDX-License-Identifier: Apache-2.0
// See static_partitions.h.
#include "control/static_partitions.h"

#include <algorithm>
#include <bitset>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "control/groups.h"

namespace openmps::control {
namespace {

using Groups = std::bitset<wire::kMaxSmGroups>;
constexpr uint32_t kBits = 64;  // in a word of wire::StaticPartition::groups

Groups groups_of(const wire::StaticPartition& place) {
  Groups groups;
  for (uint32_t i = 0; i < groups.size(); ++i) {
    groups[i] = (place.groups[i / kBits] >> i % kBits & 1) != 0;
  }
  return groups;
}

Status no_such(const std::string& reason) {
  return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, reason);
}

}  // namespace

std::string fault_of_most_chunks(const PartitionRule& rule) {
  if (rule.most_chunks == 0 || rule.most_chunks == rule.chunks) return "";
  if (rule.most_chunks < rule.chunks) {
    return format_text("max_chunks %u is less than the %u chunks of the partition",
                       rule.most_chunks, rule.chunks);
  }
  return rule.is_shareable ? "" : "max_chunks is for a shareable partition only";
}

std::optional<uint32_t> find_by_uuid(std::string_view beginning,
                                     const std::vector<Device>& devices) {
  std::optional<uint32_t> found;
  for (size_t i = 0; i < devices.size() && i < wire::kMaxDevices && !beginning.empty(); ++i) {
    if (!devices[i].uuid.starts_with(beginning)) continue;
    if (found) return std::nullopt;
    found = static_cast<uint32_t>(i);
  }
  return found;
}

Result<const StaticPartitions::Partition*> StaticPartitions::add(uint32_t ordinal,
                                                                 const Device& device,
                                                                 const PartitionRule& rule) {
  Groups used;
  for (const Partition& one : all_) {
    if (one.uuid != device.uuid) continue;
    if (!rule.name.empty() && one.id == rule.id()) {
      return Status(CUDA_ERROR_ALREADY_ACQUIRED, "partition " + one.name() + " is there already");
    }
    used |= groups_of(one.place);
  }
  if (const std::string fault = fault_of_most_chunks(rule); !fault.empty()) return no_such(fault);
  if (rule.most_chunks > device.chunks) {
    return no_such(format_text("max_chunks %u is more than the %u chunks of the device",
                               rule.most_chunks, device.chunks));
  }
  Partition made;
  made.uuid = device.uuid;
  made.server = rule.server;
  made.place.device = ordinal;
  made.place.sms = rule.chunks * device.chunk_sms;
  const auto take = [&made](uint32_t group) {
    made.place.groups[group / kBits] |= uint64_t{1} << group % kBits;
  };
  for (uint32_t i = 0; i < std::min(device.chunks, wire::kMaxSmGroups); ++i) {
    if (made.chunks == rule.chunks) break;
    if (used[i]) continue;
    take(i);
    ++made.chunks;
  }
  if (rule.chunks == 0 || made.chunks != rule.chunks) {
    return no_such(format_text("there are no %u chunks free", rule.chunks));
  }
  // The SMs that fill no chunk are the group behind those that do.
  const uint32_t remainder = device.sms - device.chunks * device.chunk_sms;
  if (rule.includes_remainder && remainder != 0 && device.chunks < wire::kMaxSmGroups) {
    if (used[device.chunks]) return no_such("another partition has the remaining SMs");
    take(device.chunks);
    made.place.sms += remainder;
    made.has_remainder = true;
  }
  made.most_chunks = std::max(rule.chunks, rule.most_chunks);
  made.place.lends = rule.is_shareable ? 1 : 0;
  if (made.most_chunks > made.chunks) {
    made.place.most_sms = made.place.sms + (made.most_chunks - made.chunks) * device.chunk_sms;
  }
  made.id = rule.name.empty() ? std::to_string(++last_) : rule.id();
  return &all_.emplace_back(std::move(made));
}

std::vector<std::string> StaticPartitions::describe(const std::vector<PartitionRule>& rules) {
  std::vector<std::string> lines;
  described_.clear();
  for (const PartitionRule& rule : rules) {
    const auto is_of_rule = [&rule](const Partition& one) {
      return one.id == rule.id() &&
             (!rule.device.starts_with("GPU-") || one.uuid.starts_with(rule.device));
    };
    const auto there = std::ranges::find_if(all_, is_of_rule);
    if (there == all_.end()) {
      described_.push_back(rule);
      lines.push_back(format_text("partition %s: %u chunks of device %s", rule.id().c_str(),
                                  rule.chunks, rule.device.c_str()));
    } else if (there->chunks != rule.chunks) {
      lines.push_back(format_text("partition %s keeps its %u chunks until it is removed",
                                  there->name().c_str(), there->chunks));
    } else if ((there->place.lends != 0) != rule.is_shareable ||
               there->most_chunks != std::max(rule.chunks, rule.most_chunks)) {
      lines.push_back("partition " + there->name() +
                      " keeps its shareable and max_chunks until it is removed");
    }
  }
  for (const Partition& one : all_) {
    const auto is_it = [&one](const PartitionRule& rule) { return rule.id() == one.id; };
    if (!names_a_group(one.id) || std::ranges::any_of(rules, is_it)) continue;
    lines.push_back("partition " + one.name() + " is there until it is removed");
  }
  return lines;
}

StaticPartitions::Partition* StaticPartitions::find(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == 0) return nullptr;
  const std::string_view uuid = slash == std::string_view::npos ? "" : text.substr(0, slash);
  const std::string_view id = slash == std::string_view::npos ? text : text.substr(slash + 1);
  const auto found = std::ranges::find_if(all_, [uuid, id](const Partition& one) {
    return one.id == id && one.uuid.starts_with(uuid);
  });
  return found == all_.end() ? nullptr : &*found;
}

const StaticPartitions::Partition* StaticPartitions::find(std::string_view uuid,
                                                          wire::StaticPartition place) const {
  if (place.sms == 0) return nullptr;
  const auto found = std::ranges::find_if(all_, [&](const Partition& one) {
    place.device = one.place.device;
    return one.uuid == uuid && one.place == place;
  });
  return found == all_.end() ? nullptr : &*found;
}

void StaticPartitions::remove(const Partition* partition) {
  all_.remove_if([partition](const Partition& one) { return &one == partition; });
}

StaticPartitions::Partition* StaticPartitions::find(std::string_view server, std::string_view uuid,
                                                    std::string_view short_name) {
  const auto found = std::ranges::find_if(all_, [&](const Partition& one) {
    return one.server == server && one.uuid == uuid && one.short_name() == short_name;
  });
  return found == all_.end() ? nullptr : &*found;
}

void StaticPartitions::remove_of(std::string_view server) {
  all_.remove_if([server](const Partition& one) { return one.server == server; });
  std::erase_if(described_, [server](const PartitionRule& rule) { return rule.server == server; });
}

Result<wire::StaticPartition> StaticPartitions::named(std::string_view text,
                                                      std::string_view server) {
  if (text.empty()) {
    return no_such("CUDA_MPS_SM_PARTITION is not set, and this daemon has static partitions (-S)");
  }
  const std::string name = printable(text);
  const bool is_whole = text.find('/') != std::string_view::npos;
  const std::string own = std::string(server) + "." + name;  // a name within the client's server
  const Partition* partition = is_whole || names_a_group(text) ? find(text) : nullptr;
  if (partition == nullptr && !is_whole && !server.empty()) partition = find(own);
  const std::string_view id = text.substr(is_whole ? text.find('/') + 1 : 0);
  const auto will_be = [&](const PartitionRule& rule) {
    return rule.id() == id || rule.id() == own;
  };
  if (partition == nullptr && std::ranges::any_of(described_, will_be)) {
    wire::StaticPartition nowhere;
    nowhere.device = wire::kMaxDevices;
    return nowhere;
  }
  if (partition == nullptr) {
    return no_such("CUDA_MPS_SM_PARTITION says " + name + ", and there is no such partition");
  }
  if (!partition->server.empty() && partition->server != server) {
    return no_such("partition " + name + " is for clients of server " + partition->server);
  }
  if (partition->is_leaving) return no_such("partition " + name + " is being removed");
  return partition->place;
}

std::string StaticPartitions::text() const {
  std::ostringstream text;
  text << last_ << '\n';
  for (const Partition& one : all_) {
    text << one.uuid << ' ' << one.id << ' ' << (one.server.empty() ? "-" : one.server) << ' '
         << one.chunks << ' ' << one.has_remainder << ' ' << one.place.sms;
    for (const uint64_t word : one.place.groups) text << ' ' << word;
    text << ' ' << one.place.lends << ' ' << one.most_chunks << ' ' << one.place.most_sms << '\n';
  }
  return text.str();
}

void StaticPartitions::restore(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::istringstream(line) >> last_;
  while (std::getline(lines, line)) {
    Partition one;
    std::istringstream fields(line);
    fields >> one.uuid >> one.id >> one.server >> one.chunks >> one.has_remainder >> one.place.sms;
    for (uint64_t& word : one.place.groups) fields >> word;
    if (!fields) continue;
    // A daemon before this one did not know what is lent.
    fields >> one.place.lends >> one.most_chunks >> one.place.most_sms;
    if (!fields || one.place.lends > 1) one.place.lends = one.place.most_sms = 0;
    if (one.most_chunks < one.chunks || one.place.most_sms == 0) one.most_chunks = one.chunks;
    if (one.server == "-") one.server.clear();
    one.place.device = wire::kMaxDevices;
    const size_t groups = one.chunks + (one.has_remainder ? 1 : 0);
    if (groups_of(one.place).count() == groups) all_.push_back(one);
  }
}

std::vector<std::string> StaticPartitions::place(const std::vector<Device>& devices) {
  for (Partition& one : all_) {
    if (one.place.device != wire::kMaxDevices) continue;
    one.place.device = find_by_uuid(one.uuid, devices).value_or(wire::kMaxDevices);
  }
  std::vector<std::string> lines;
  for (const PartitionRule& rule : std::exchange(described_, {})) {
    auto device = find_by_uuid(rule.device, devices);
    if (const auto number = parse_unsigned(rule.device, wire::kMaxDevices - 1)) device = *number;
    if (!device || *device >= devices.size()) {
      lines.push_back("partition " + rule.id() + ": there is no device " + rule.device);
      continue;
    }
    const auto made = add(*device, devices[*device], rule);
    lines.push_back(made.ok() ? "partition " + (*made)->name() + " created"
                              : "partition " + rule.id() + ": " + made.status().message());
  }
  return lines;
}

}  // namespace openmps::control
