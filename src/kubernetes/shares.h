// SPDX-License-Identifier: Apache-2.0
// Shares of GPUs as devices of the kubelet, called "GPU-73677075-...::3": which there are, which of
// them go well together, and what some of them are worth together. Pure functions, any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/status.h"
#include "kubernetes/grant.h"
#include "observe/snapshot.h"

namespace openmps::kubernetes {

// A share is at least a percent, and a GPU of at least 100 SMs at least one SM each.
inline constexpr uint32_t kMostSharesOfAGpu = 100;

struct ShareId {
  std::string gpu;  // its UUID
  uint32_t index = 0;
  auto operator<=>(const ShareId&) const = default;
};

std::string text_of(const ShareId& id);
// Nothing: it is none of ours.
std::optional<ShareId> parse_share_id(std::string_view text);

using ShareSet = std::set<ShareId>;
// CUDA_ERROR_INVALID_VALUE: there is none, one is twice there, or what is no share's ID.
Result<ShareSet> read_share_ids(const std::vector<std::string>& ids);

// How a GPU is shared out.
struct ShareSize {
  uint32_t per_gpu = 8;
  // Of each GPU, for what is not a program's: CUDA's context and the worker's own memory.
  uint64_t reserved_bytes = 1ull << 30;
};

std::vector<ShareId> all_shares(const std::vector<observe::Device>& node, const ShareSize& size);

// So many of `available`, with all of `must_have`: on as few GPUs as possible; of those that have
// room, on the one with the least, so that larger wishes find room elsewhere. Errors:
// CUDA_ERROR_INVALID_VALUE.
Result<ShareSet> prefer_shares(const std::vector<std::string>& available,
                               const std::vector<std::string>& must_have, int64_t count);

// The namespace of a container that has these shares: the same for the same shares, so that it is
// found again, and another for others. The kubelet gives a share to one pod at a time.
std::string namespace_of(const ShareSet& shares);
// Whether it is the name of such a namespace.
bool names_shares(std::string_view name);

// What the shares are worth together. Errors: CUDA_ERROR_INVALID_VALUE: a share that the node does
// not have.
Result<Grant> grant_of(const ShareSet& shares, const std::vector<observe::Device>& node,
                       const ShareSize& size);

}  // namespace openmps::kubernetes
