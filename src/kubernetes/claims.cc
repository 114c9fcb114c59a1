// SPDX-License-Identifier: Apache-2.0
// See claims.h.
#include "kubernetes/claims.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "kubernetes/quantity.h"

namespace openmps::kubernetes {
namespace {

using Json = nlohmann::ordered_json;

// Of memory that a claim asks for. The least is what a program needs to begin with.
constexpr uint64_t kClaimMemoryStep = 2ull << 20;
constexpr uint64_t kLeastMemory = 64ull << 20;
// Of the API, for an attribute that is a text.
constexpr size_t kLongestAttribute = 64;
// A UID is a UUID as a rule; the API does not promise it. With what is in front of it, it is the
// name of a namespace, which has 64 characters at most.
constexpr size_t kLongestUid = 57;
// Of names in the daemon (docs/decisions/0048).
constexpr size_t kLongestPartition = 64;
constexpr std::string_view kClaimStart = "claim-";

constexpr const char* kConfigVersion = "openmps.org/v1alpha1";
constexpr const char* kConfigKind = "ShareConfig";

// What a claim may have of a GPU.
struct Capacity {
  uint32_t sms = 0;
  uint32_t sm_step = 1;
  uint64_t memory_bytes = 0;
};

Capacity capacity_of(const observe::Device& device, uint64_t reserved_bytes) {
  Capacity capacity{.sms = device.sms};
  // SMs are given out in steps; those that fill none are had by who has all.
  if (device.sm_step != 0 && device.sm_step <= device.sms) {
    capacity.sm_step = device.sm_step;
    capacity.sms = device.sms / device.sm_step * device.sm_step;
  }
  const uint64_t rest = device.memory_bytes - std::min(device.memory_bytes, reserved_bytes);
  capacity.memory_bytes = std::max(kLeastMemory, rest / kClaimMemoryStep * kClaimMemoryStep);
  return capacity;
}

Json capacity_json(const std::string& value, const std::string& least, const std::string& step) {
  return {{"value", value},
          {"requestPolicy",
           {{"default", value}, {"validRange", {{"min", least}, {"max", value}, {"step", step}}}}}};
}

Json device_json(const observe::Device& device, uint64_t reserved_bytes) {
  const Capacity capacity = capacity_of(device, reserved_bytes);
  const std::string step = std::to_string(capacity.sm_step);
  return {
      {"name", device_name(device)},
      {"allowMultipleAllocations", true},
      {"attributes",
       {{"uuid", {{"string", device.uuid.substr(0, kLongestAttribute)}}},
        {"productName", {{"string", printable(device.name.substr(0, kLongestAttribute))}}},
        {"smStep", {{"int", capacity.sm_step}}}}},
      {"capacity",
       {{"memory", capacity_json(bytes_quantity(capacity.memory_bytes),
                                 bytes_quantity(kLeastMemory), bytes_quantity(kClaimMemoryStep))},
        {"sms", capacity_json(std::to_string(capacity.sms), step, step)}}}};
}

// The text of a field of an object; "": it is not there.
std::string text_at(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const Json& at(const Json& object, const char* name) {
  static const Json kNothing;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() ? *found : kNothing;
}

// As the daemon has them: it becomes a word of a command.
bool names_a_partition(std::string_view text) {
  return text.size() <= kLongestPartition && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '_' || c == '-';
         });
}

// What the driver's own parameters of a class and of a claim say. A claim's count before a class's;
// two of one kind, which are for different requests, have to say the same.
struct Config {
  std::string quality;
  std::string partition;
  bool is_exclusive = false;
  bool borrows = false;
};

Status read_parameters(const Json& parameters, Config* config, std::set<std::string>* said) {
  if (text_at(parameters, "apiVersion") != kConfigVersion ||
      text_at(parameters, "kind") != kConfigKind) {
    return invalid_value(std::string("parameters are not of apiVersion ") + kConfigVersion +
                         " and kind " + kConfigKind);
  }
  const auto put = [said](const std::string& name, auto value, auto* to) {
    if (!said->insert(name).second && *to != value) {
      return invalid_value("two values of " + name + ": a claim has one");
    }
    *to = value;
    return Status();
  };
  for (const auto& [name, value] : parameters.items()) {
    Status status;
    if (name == "apiVersion" || name == "kind") continue;
    if (name == "quality" && value.is_string()) {
      const auto quality = value.get<std::string>();
      if (quality != "latency" && quality != "normal" && quality != "best-effort") {
        return invalid_value("quality: expected latency, normal or best-effort");
      }
      status = put(name, quality, &config->quality);
    } else if (name == "partition" && value.is_string()) {
      status = put(name, value.get<std::string>(), &config->partition);
    } else if (name == "exclusive" && value.is_boolean()) {
      status = put(name, value.get<bool>(), &config->is_exclusive);
    } else if (name == "borrowSMs" && value.is_boolean()) {
      status = put(name, value.get<bool>(), &config->borrows);
    } else {
      return invalid_value("parameters have no '" + printable(name) + "' of that kind");
    }
    OPENMPS_RETURN_IF_ERROR(status);
  }
  return Status();
}

Result<Config> read_config(const Json& list, const std::string& driver) {
  Config config;
  for (const char* const source : {"FromClass", "FromClaim"}) {
    std::set<std::string> said;
    for (const Json& entry : list) {
      const Json& opaque = at(entry, "opaque");
      if (text_at(entry, "source") != source || text_at(opaque, "driver") != driver) continue;
      OPENMPS_RETURN_IF_ERROR(read_parameters(at(opaque, "parameters"), &config, &said));
    }
  }
  if (config.is_exclusive && !config.partition.empty()) {
    return invalid_value("a claim has exclusive SMs or a partition, not both");
  }
  if (!config.partition.empty() && !names_a_partition(config.partition)) {
    return invalid_value("partition: '" + printable(config.partition) + "' is no name");
  }
  return config;
}

// Adds what one result of the allocation is worth.
Status add_part(const Json& result, const observe::Device& device, const Capacity& capacity,
                Grant* grant) {
  const Json& used = at(result, "consumedCapacity");
  // An API server without consumable capacity says nothing: the device is the claim's alone.
  const std::string memory_text =
      used.is_null() ? std::to_string(capacity.memory_bytes) : text_at(used, "memory");
  const std::string sms_text = used.is_null() ? std::to_string(capacity.sms) : text_at(used, "sms");
  const auto memory = parse_quantity(memory_text);
  const auto sms = parse_quantity(sms_text);
  if (!memory || !sms || *memory == 0 || *sms == 0) {
    return invalid_value("consumedCapacity of " + device_name(device) + ": memory '" +
                         printable(memory_text) + "', sms '" + printable(sms_text) + "'");
  }
  if (*memory > capacity.memory_bytes || *sms > capacity.sms) {
    return invalid_value("more than " + device_name(device) + " has: memory " + memory_text +
                         ", sms " + sms_text);
  }
  Part& part = grant->parts[device.uuid];
  part.memory_bytes = std::min(part.memory_bytes + *memory, capacity.memory_bytes);
  part.sms = static_cast<uint32_t>(std::min<uint64_t>(part.sms + *sms, capacity.sms));
  return Status();
}

// What is left to be said when all parts are known.
Status finish_grant(const Config& config, const std::vector<observe::Device>& node, Grant* grant) {
  grant->quality = config.quality;
  grant->borrows = config.borrows;
  grant->is_exclusive = config.is_exclusive;
  for (const observe::Device& device : node) {
    const auto part = grant->parts.find(device.uuid);
    if (part == grant->parts.end()) continue;
    if (config.is_exclusive && device.sm_step == 0) {
      return invalid_value(device_name(device) + " can't give out SMs exclusively");
    }
    if (config.is_exclusive) grant->partitions[device.uuid] = grant->name;
    if (!config.partition.empty()) grant->partitions[device.uuid] = config.partition;
    const bool is_all = part->second.sms + std::max(device.sm_step, 1u) > device.sms;
    if (is_all && !config.is_exclusive) part->second.sms = device.sms;
  }
  return Status();
}

}  // namespace

std::string device_name(const observe::Device& device) {
  std::string name = device.uuid;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::string slice_name(const DriverName& name) { return name.node + "-" + name.driver; }

std::string slice_spec(const DriverName& name, const std::vector<observe::Device>& node,
                       uint64_t reserved_bytes, uint64_t generation) {
  Json devices = Json::array();
  for (const observe::Device& device : node) devices.push_back(device_json(device, reserved_bytes));
  const Json spec = {
      {"driver", name.driver},
      {"nodeName", name.node},
      {"pool", {{"name", name.node}, {"generation", generation}, {"resourceSliceCount", 1}}},
      {"devices", devices}};
  return spec.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::string> namespace_of_claim(const std::string& uid) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
  };
  if (uid.empty() || uid.size() > kLongestUid || !std::ranges::all_of(uid, is_plain)) {
    return invalid_value("'" + printable(uid.substr(0, kLongestUid)) + "' is no UID of a claim");
  }
  return std::string(kClaimStart) + uid;
}

std::string claim_of_namespace(std::string_view name) {
  if (!name.starts_with(kClaimStart)) return "";
  return std::string(name.substr(kClaimStart.size()));
}

Result<Claim> read_claim(std::string_view json, const std::string& uid, const DriverName& name,
                         const std::vector<observe::Device>& node, uint64_t reserved_bytes) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object()) return invalid_value("the API server's answer is no claim");
  if (text_at(at(object, "metadata"), "uid") != uid) {
    return invalid_value("the claim of that name has another UID");
  }
  const Json& devices = at(at(at(object, "status"), "allocation"), "devices");
  const Result<Config> config = read_config(at(devices, "config"), name.driver);
  if (!config.ok()) return config.status();
  Claim claim;
  const Result<std::string> own_name = namespace_of_claim(uid);
  if (!own_name.ok()) return own_name.status();
  claim.grant.name = *own_name;
  for (const Json& result : at(devices, "results")) {
    if (text_at(result, "driver") != name.driver) continue;
    const ClaimDevice found{text_at(result, "request"), text_at(result, "pool"),
                            text_at(result, "device"), text_at(result, "shareID")};
    const auto device = std::ranges::find(node, found.device, device_name);
    if (found.pool != name.node || device == node.end()) {
      return invalid_value("this node has no device " + printable(found.pool + "/" + found.device));
    }
    OPENMPS_RETURN_IF_ERROR(
        add_part(result, *device, capacity_of(*device, reserved_bytes), &claim.grant));
    claim.devices.push_back(found);
  }
  if (claim.devices.empty()) return invalid_value("the claim has no device of " + name.driver);
  OPENMPS_RETURN_IF_ERROR(finish_grant(*config, node, &claim.grant));
  return claim;
}

std::string grant_text(const Grant& grant) {
  Json parts = Json::object();
  for (const auto& [uuid, part] : grant.parts) {
    parts[uuid] = {{"sms", part.sms}, {"memory_bytes", part.memory_bytes}};
  }
  const Json file = {{"name", grant.name},
                     {"parts", parts},
                     {"quality", grant.quality},
                     {"borrows", grant.borrows},
                     {"exclusive", grant.is_exclusive},
                     {"partitions", grant.partitions}};
  return file.dump(1) + "\n";
}

Result<Grant> read_grant(std::string_view text) {
  Grant grant;
  try {
    const Json file = Json::parse(text);
    file.at("name").get_to(grant.name);
    for (const auto& [uuid, part] : file.at("parts").items()) {
      const Json& sms = part.at("sms");
      const Json& memory = part.at("memory_bytes");
      if (!sms.is_number_unsigned() || !memory.is_number_unsigned() || sms > UINT32_MAX) {
        return invalid_value("a part of a GPU has whole numbers");
      }
      grant.parts[uuid] = {sms.get<uint32_t>(), memory.get<uint64_t>()};
    }
    file.at("quality").get_to(grant.quality);
    file.at("borrows").get_to(grant.borrows);
    file.at("exclusive").get_to(grant.is_exclusive);
    for (const auto& [uuid, name] : file.at("partitions").items()) {
      grant.partitions[uuid] = name.get<std::string>();
    }
  } catch (const Json::exception& error) {
    return invalid_value(error.what());
  }
  return grant;
}

}  // namespace openmps::kubernetes
