// SPDX-License-Identifier: Apache-2.0
// Launches that go to the driver together. See batch.h.
#include "worker/work/batch.h"

#include <algorithm>

#include "worker/code/module.h"
#include "worker/device/in_context.h"

namespace openmps::worker {

bool BatchedLaunch::same_as(const BatchedLaunch& other) const {
  const wire::Launch& one = shape;
  const wire::Launch& two = other.shape;
  return function == other.function && std::ranges::equal(one.grid, two.grid) &&
         std::ranges::equal(one.block, two.block) && one.shared_bytes == two.shared_bytes &&
         std::ranges::equal(parameters(), other.parameters());
}

Chains::Chain::~Chain() {
  SessionCore& core = of_.core_;
  if (exec_ != nullptr) {
    core.release_graph(of_.place_.device, exec_, nodes_.size(), of_.kept_, slots_);
  }
  if (graph_ != nullptr) core.driver.cuGraphDestroy(graph_);
}

CUresult Chains::Chain::make(std::span<const BatchedLaunch> launches) {
  const DriverTable& driver = of_.core_.driver;
  const InContext current(driver, of_.context());
  nodes_.resize(launches.size());
  set_.assign(launches.begin(), launches.end());
  CUresult result = driver.cuGraphCreate(&graph_, 0);
  for (size_t i = 0; i < launches.size() && result == CUDA_SUCCESS; ++i) {
    PackedParameters parameters(launches[i].parameters());
    const CUDA_KERNEL_NODE_PARAMS node = parameters.node(launches[i].function, launches[i].shape);
    const CUgraphNode* before = i == 0 ? nullptr : &nodes_[i - 1];
    result = driver.cuGraphAddKernelNode_v2(&nodes_[i], graph_, before, i == 0 ? 0 : 1, &node);
    if (result == CUDA_SUCCESS && of_.priority_ != 0) {
      CUlaunchAttributeValue value{};
      value.priority = of_.priority_;
      result =
          driver.cuGraphKernelNodeSetAttribute(nodes_[i], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
    }
  }
  return result != CUDA_SUCCESS ? result : driver.cuGraphInstantiateWithFlags(&exec_, graph_, 0);
}

CUresult Chains::Chain::set(std::span<const BatchedLaunch> launches) {
  const DriverTable& driver = of_.core_.driver;
  const InContext current(driver, of_.context());
  for (size_t i = 0; i < launches.size(); ++i) {
    if (set_[i].same_as(launches[i])) continue;
    PackedParameters parameters(launches[i].parameters());
    const CUDA_KERNEL_NODE_PARAMS node = parameters.node(launches[i].function, launches[i].shape);
    const CUresult result = driver.cuGraphExecKernelNodeSetParams_v2(exec_, nodes_[i], &node);
    if (result != CUDA_SUCCESS) return result;
    set_[i] = launches[i];
  }
  return CUDA_SUCCESS;
}

size_t Chains::launch(std::span<const BatchedLaunch> launches, CUstream stream, CUresult* result) {
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
      chain = std::make_unique<Chain>(*this, std::move(slots));
      ready = chain->make(first);
    } else {
      ready = chain->set(first);
    }
    if (ready != CUDA_SUCCESS) {
      chain.reset();
      return 0;
    }
    *result = core_.driver.cuGraphLaunch(chain->exec(), stream);
    return length;
  }
  return 0;
}

// A chain belongs to the green context that it is made in, and the client may destroy that.
bool Batch::takes(const Uses& uses, const KernelWork& kernel, const Stream& stream,
                  const Durations& durations) const {
  return batches_ && uses.lane == Lane::kMain && kernel.attributes.empty() &&
         kernel.parameters.size() <= kMostChainedBytes && stream.green == nullptr &&
         !kernel.function->prints && !kernel.function->asserts && durations.is_known(uses.cost) &&
         durations.of(uses.cost) <= kLongestNs;
}

void Batch::add(const Uses& uses, const KernelWork& kernel, Stream& stream, uint64_t expected_ns) {
  launches_.reserve(kMost);
  BatchedLaunch& launch = launches_.emplace_back();
  launch.function = kernel.handle;
  launch.of = kernel.function;
  launch.shape = *kernel.shape;
  launch.shape.parameter_bytes = static_cast<uint32_t>(kernel.parameters.size());
  std::ranges::copy(kernel.parameters, launch.bytes.begin());
  launch.code = kernel.function->on(stream.place.device).library;
  launch.cost = uses.cost;
  stream_ = &stream;
  expected_ns_ += expected_ns;
}

void Batch::clear() {
  launches_.clear();
  stream_ = nullptr;
  expected_ns_ = 0;
}

}  // namespace openmps::worker
