// SPDX-License-Identifier: Apache-2.0
// Launches that go to the driver as one graph. See chain.h.
#include "worker/work/chain.h"

#include <algorithm>

#include "worker/device/in_context.h"

namespace openmps::worker {
namespace {

// f(const CUDA_KERNEL_NODE_PARAMS*) of a launch.
template <typename F>
CUresult with_node(const ChainedLaunch& launch, F&& f) {
  PackedParameters parameters(launch.parameters());
  const wire::Launch& s = launch.shape;
  const CUDA_KERNEL_NODE_PARAMS node{
      launch.function, s.grid[0],      s.grid[1], s.grid[2],          s.block[0], s.block[1],
      s.block[2],      s.shared_bytes, nullptr,   parameters.extra(), nullptr,    nullptr};
  return f(&node);
}

}  // namespace

bool ChainedLaunch::same_as(const ChainedLaunch& other) const {
  const wire::Launch& one = shape;
  const wire::Launch& two = other.shape;
  return function == other.function && std::ranges::equal(one.grid, two.grid) &&
         std::ranges::equal(one.block, two.block) && one.shared_bytes == two.shared_bytes &&
         std::ranges::equal(parameters(), other.parameters());
}

Chain::~Chain() {
  if (exec_ != nullptr) core_.release_graph(device_, exec_, nodes_.size(), kept_, slots_);
  if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
}

CUresult Chain::make(std::span<const ChainedLaunch> launches) {
  const InContext current(driver_, part_);
  nodes_.resize(launches.size());
  set_.assign(launches.begin(), launches.end());
  CUresult result = driver_.cuGraphCreate(&graph_, 0);
  for (size_t i = 0; i < launches.size() && result == CUDA_SUCCESS; ++i) {
    const CUgraphNode* before = i == 0 ? nullptr : &nodes_[i - 1];
    result = with_node(launches[i], [&](const CUDA_KERNEL_NODE_PARAMS* node) {
      return driver_.cuGraphAddKernelNode_v2(&nodes_[i], graph_, before, i == 0 ? 0 : 1, node);
    });
    if (result == CUDA_SUCCESS && priority_ != 0) {
      CUlaunchAttributeValue value{};
      value.priority = priority_;
      result =
          driver_.cuGraphKernelNodeSetAttribute(nodes_[i], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
    }
  }
  return result != CUDA_SUCCESS ? result : driver_.cuGraphInstantiateWithFlags(&exec_, graph_, 0);
}

CUresult Chain::set(std::span<const ChainedLaunch> launches) {
  const InContext current(driver_, part_);
  for (size_t i = 0; i < launches.size(); ++i) {
    if (set_[i].same_as(launches[i])) continue;
    const CUresult result = with_node(launches[i], [&](const CUDA_KERNEL_NODE_PARAMS* node) {
      return driver_.cuGraphExecKernelNodeSetParams_v2(exec_, nodes_[i], node);
    });
    if (result != CUDA_SUCCESS) return result;
    set_[i] = launches[i];
  }
  return CUDA_SUCCESS;
}

size_t Chains::launch(std::span<const ChainedLaunch> launches, CUstream stream, CUresult* result) {
  for (size_t i = 0; i < kLengths.size(); ++i) {
    const size_t length = kLengths[i];
    if (launches.size() < length) continue;
    std::unique_ptr<Chain>& chain = pairs_[i].chains[pairs_[i].next];
    pairs_[i].next ^= 1;
    const std::span first = launches.first(length);
    CUresult ready = CUDA_SUCCESS;
    if (chain == nullptr) {
      StreamSlot slots;
      if (!core_.take_free_slots(place_, 1, SessionCore::Leaves::kQuarter, &slots)) return 0;
      chain = std::make_unique<Chain>(core_, place_, priority_, kept_, std::move(slots));
      ready = chain->make(first);
    } else {
      ready = chain->set(first);
    }
    if (ready != CUDA_SUCCESS) {
      chain.reset();
      return 0;
    }
    *result = chain->launch(stream);
    return length;
  }
  return 0;
}

}  // namespace openmps::worker
