// SPDX-License-Identifier: Apache-2.0
// Launches that go to the driver as one graph. See chain.h.
#include "worker/streams/chain.h"

#include <cstring>

namespace openmps::worker {
namespace {

// A node's parameters as the driver takes them, for as long as this and the launch live.
class NodeParameters {
 public:
  explicit NodeParameters(const ChainedLaunch& launch)
      : bytes_(launch.parameter_bytes),
        list_{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<unsigned char*>(launch.parameters.data()),
              CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes_, CU_LAUNCH_PARAM_END} {
    node_.func = launch.function;
    node_.gridDimX = launch.grid[0];
    node_.gridDimY = launch.grid[1];
    node_.gridDimZ = launch.grid[2];
    node_.blockDimX = launch.block[0];
    node_.blockDimY = launch.block[1];
    node_.blockDimZ = launch.block[2];
    node_.sharedMemBytes = launch.shared_bytes;
    node_.extra = bytes_ == 0 ? nullptr : list_;
  }
  NodeParameters(const NodeParameters&) = delete;
  NodeParameters& operator=(const NodeParameters&) = delete;

  [[nodiscard]] const CUDA_KERNEL_NODE_PARAMS* get() const { return &node_; }

 private:
  size_t bytes_;
  void* list_[5];
  CUDA_KERNEL_NODE_PARAMS node_{};
};

}  // namespace

bool ChainedLaunch::same_as(const ChainedLaunch& other) const {
  return function == other.function && grid == other.grid && block == other.block &&
         shared_bytes == other.shared_bytes && parameter_bytes == other.parameter_bytes &&
         memcmp(parameters.data(), other.parameters.data(), parameter_bytes) == 0;
}

Chain::~Chain() {
  if (exec_ != nullptr) driver_.cuGraphExecDestroy(exec_);
  if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
}

CUresult Chain::make(std::span<const ChainedLaunch> launches) {
  nodes_.resize(launches.size());
  set_.assign(launches.begin(), launches.end());
  CUresult result = driver_.cuGraphCreate(&graph_, 0);
  for (size_t i = 0; i < launches.size() && result == CUDA_SUCCESS; ++i) {
    const NodeParameters parameters(launches[i]);
    const CUgraphNode* before = i == 0 ? nullptr : &nodes_[i - 1];
    result = driver_.cuGraphAddKernelNode_v2(&nodes_[i], graph_, before, i == 0 ? 0 : 1,
                                             parameters.get());
  }
  return result != CUDA_SUCCESS ? result : driver_.cuGraphInstantiateWithFlags(&exec_, graph_, 0);
}

CUresult Chain::set(std::span<const ChainedLaunch> launches) {
  for (size_t i = 0; i < launches.size(); ++i) {
    if (set_[i].same_as(launches[i])) continue;
    const NodeParameters parameters(launches[i]);
    const CUresult result =
        driver_.cuGraphExecKernelNodeSetParams_v2(exec_, nodes_[i], parameters.get());
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
      chain = std::make_unique<Chain>(driver_);
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
