// SPDX-License-Identifier: Apache-2.0
// Fuzz target of what openmps-kubernetes reads: a claim of the API server, a file of a claim, IDs
// of shares by the kubelet. Whatever they say, the command that the daemon is given has the words
// that it should have, and no part is larger than its GPU. The first byte says which it is. Linked
// with libFuzzer if clang is available; the corpus in corpus/claim runs as a unit test.
#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "base/text.h"
#include "kubernetes/claims.h"
#include "kubernetes/quantity.h"
#include "kubernetes/shares.h"

namespace {

using namespace openmps;
using namespace openmps::kubernetes;

constexpr uint64_t kReserved = 1ull << 30;

std::vector<observe::Device> make_node() {
  std::vector<observe::Device> node(2);
  node[0].uuid = "GPU-a";
  node[1].uuid = "GPU-b";
  for (observe::Device& device : node) {
    device.sms = 132;
    device.sm_step = 8;
    device.memory_bytes = 8ull << 30;
  }
  return node;
}

void check(const Grant& grant, const std::vector<observe::Device>& node) {
  for (const observe::Device& device : node) {
    const auto part = grant.parts.find(device.uuid);
    if (part == grant.parts.end()) continue;
    if (part->second.sms > device.sms || part->second.memory_bytes > device.memory_bytes) abort();
  }
  // Four options, and a fifth where there are partitions.
  const std::string line = options_of(grant, node) + first_options_of(grant);
  const size_t words = grant.partitions.empty() ? 4 : 5;
  if (split_words(line).size() != words || line != printable(line)) abort();
  const Result<Grant> again = read_grant(grant_text(grant));
  if (!again.ok() || grant_text(*again) != grant_text(grant)) abort();
}

void check_shares(std::string_view text, const std::vector<observe::Device>& node) {
  std::vector<std::string> ids;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ids.emplace_back(line);
  }
  const Result<ShareSet> shares = read_share_ids(ids);
  const auto half = static_cast<int64_t>(ids.size() / 2);
  if (const Result<ShareSet> some = prefer_shares(ids, {}, half); some.ok()) {
    if (static_cast<int64_t>(some->size()) != half) abort();
  }
  if (!shares.ok()) return;
  if (shares->size() != ids.size() || !names_shares(namespace_of(*shares))) abort();
  if (const Result<Grant> grant = grant_of(*shares, node, {}); grant.ok()) check(*grant, node);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  if (size == 0) return 0;
  static const std::vector<observe::Device> kNode = make_node();
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'c': {
      const Result<Claim> claim = read_claim(text, "uid", {.node = "n"}, kNode, kReserved);
      if (claim.ok()) check(claim->grant, kNode);
      if (!claim.ok() && claim.status().message() != printable(claim.status().message())) abort();
      break;
    }
    case 'g': (void)read_grant(text); break;
    case 's': check_shares(text, kNode); break;
    default: (void)parse_quantity(text);
  }
  return 0;
}
