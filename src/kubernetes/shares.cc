// SPDX-License-Identifier: Apache-2.0
// See shares.h.
#include "kubernetes/shares.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace openmps::kubernetes {
namespace {

constexpr std::string_view kBetween = "::";
constexpr std::string_view kUuidStart = "GPU-";
// Of the device plugin API.
constexpr size_t kLongestId = 63;
// Names of namespaces: this, and 16 digits of a hash.
constexpr std::string_view kShareStart = "kube-";
constexpr size_t kHashDigits = 16;
// Memory of a share is whole MiB.
constexpr uint64_t kShareMemoryStep = 1ull << 20;

bool is_of_uuid(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
}

Status no_share(const std::string& text) {
  return invalid_value("'" + printable(text.substr(0, kLongestId)) + "' is no share of a GPU");
}

// 64-bit FNV-1a. It need not withstand anybody: the texts are the kubelet's and the GPUs'.
uint64_t hash_of(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}
constexpr uint64_t kHashStart = 0xcbf29ce484222325;

// Moves shares of the best GPU, `wanted` at most, from `free` to `taken`.
void take_best(std::map<std::string, std::set<uint32_t>>* free, size_t wanted, ShareSet* taken) {
  const auto is_better = [wanted](const auto& a, const auto& b) {
    const bool a_fits = a.second.size() >= wanted;
    const bool b_fits = b.second.size() >= wanted;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.second.size() < b.second.size() : a.second.size() > b.second.size();
  };
  const auto best = std::ranges::min_element(*free, is_better);
  for (const uint32_t index : best->second) {
    if (wanted == 0) break;
    taken->insert({best->first, index});
    --wanted;
  }
  free->erase(best);
}

}  // namespace

std::string text_of(const ShareId& id) {
  return id.gpu + std::string(kBetween) + std::to_string(id.index);
}

std::optional<ShareId> parse_share_id(std::string_view text) {
  const size_t between = text.find(kBetween);
  if (between == std::string_view::npos || text.size() > kLongestId) return std::nullopt;
  const std::string_view gpu = text.substr(0, between);
  const auto index = parse_unsigned(text.substr(between + kBetween.size()), kMostSharesOfAGpu - 1);
  if (!gpu.starts_with(kUuidStart) || gpu.size() == kUuidStart.size() || !index) {
    return std::nullopt;
  }
  if (!std::ranges::all_of(gpu, is_of_uuid)) return std::nullopt;
  ShareId id{std::string(gpu), static_cast<uint32_t>(*index)};
  // One share has one name: "::3", not "::03".
  return text_of(id) == text ? std::optional(std::move(id)) : std::nullopt;
}

Result<ShareSet> read_share_ids(const std::vector<std::string>& ids) {
  ShareSet shares;
  for (const std::string& text : ids) {
    const std::optional<ShareId> id = parse_share_id(text);
    if (!id) return no_share(text);
    if (!shares.insert(*id).second) return invalid_value("share " + text + " is there twice");
  }
  if (shares.empty()) return invalid_value("there are no shares in the request");
  return shares;
}

std::vector<ShareId> all_shares(const std::vector<observe::Device>& node, const ShareSize& size) {
  std::vector<ShareId> shares;
  for (const observe::Device& device : node) {
    for (uint32_t i = 0; i < size.per_gpu; ++i) shares.push_back({device.uuid, i});
  }
  return shares;
}

Result<ShareSet> prefer_shares(const std::vector<std::string>& available,
                               const std::vector<std::string>& must_have, int64_t count) {
  ShareSet taken;
  if (!must_have.empty()) {
    const Result<ShareSet> must = read_share_ids(must_have);
    if (!must.ok()) return must.status();
    taken = *must;
  }
  std::map<std::string, std::set<uint32_t>> free;
  size_t room = 0;
  for (const std::string& text : available) {
    const std::optional<ShareId> id = parse_share_id(text);
    if (!id) return no_share(text);
    if (!taken.contains(*id) && free[id->gpu].insert(id->index).second) ++room;
  }
  if (count < static_cast<int64_t>(taken.size()) ||
      count > static_cast<int64_t>(taken.size() + room)) {
    return invalid_value(format_text("%lld shares are wanted of %zu, with %zu among them",
                                     static_cast<long long>(count), taken.size() + room,
                                     taken.size()));
  }
  const auto wanted = static_cast<size_t>(count);
  // Where the container is anyway.
  for (const ShareId& id : ShareSet(taken)) {
    const auto beside = free.find(id.gpu);
    if (beside == free.end()) continue;
    for (const uint32_t index : beside->second) {
      if (taken.size() < wanted) taken.insert({id.gpu, index});
    }
    free.erase(beside);
  }
  while (taken.size() < wanted) take_best(&free, wanted - taken.size(), &taken);
  return taken;
}

std::string namespace_of(const ShareSet& shares) {
  uint64_t hash = kHashStart;
  for (const ShareId& id : shares) hash = hash_of(text_of(id) + "\n", hash);
  return format_text("%s%0*llx", std::string(kShareStart).c_str(), static_cast<int>(kHashDigits),
                     static_cast<unsigned long long>(hash));
}

bool names_shares(std::string_view name) {
  if (!name.starts_with(kShareStart)) return false;
  name.remove_prefix(kShareStart.size());
  return name.size() == kHashDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<Grant> grant_of(const ShareSet& shares, const std::vector<observe::Device>& node,
                       const ShareSize& size) {
  Grant grant{.name = namespace_of(shares), .parts = {}};
  std::map<std::string, uint64_t> counts;
  for (const ShareId& id : shares) {
    const auto gpu = std::ranges::find(node, id.gpu, &observe::Device::uuid);
    if (gpu == node.end() || id.index >= size.per_gpu) {
      return invalid_value("this node has no share " + text_of(id));
    }
    ++counts[id.gpu];
  }
  for (const observe::Device& device : node) {
    const auto found = counts.find(device.uuid);
    if (found == counts.end()) continue;
    const uint64_t to_share =
        device.memory_bytes - std::min(device.memory_bytes, size.reserved_bytes);
    const uint64_t of_one = to_share / size.per_gpu / kShareMemoryStep * kShareMemoryStep;
    grant.parts[device.uuid] = {static_cast<uint32_t>(device.sms * found->second / size.per_gpu),
                                of_one * found->second};
  }
  return grant;
}

}  // namespace openmps::kubernetes
