// SPDX-License-Identifier: Apache-2.0
// From the arguments of a launch call to work: every check that the driver makes, with its codes.
// Pure apart from reading the caller's parameter buffers. API threads.
#pragma once

#include <memory>

#include "cuda/launch_attributes.h"
#include "cuda/status.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

struct Config;

struct LaunchShape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t dynamic_shared_bytes;
  cuda::Dimensions cluster{};            // zeros: not given
  cuda::Dimensions preferred_cluster{};  // zeros: not given; the kernel runs in `cluster`s
};

// `parameters`: one pointer per parameter; `extra`: CU_LAUNCH_PARAM_* pairs; one of them, or none
// if the kernel has no parameters. Errors: CUDA_ERROR_INVALID_VALUE (shape, shared memory,
// parameters), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (registers), CUDA_ERROR_INVALID_CLUSTER_SIZE,
// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_NOT_SUPPORTED (the engine can't run the
// kernel; the message says why).
Result<LaunchWork> make_launch(const Config& config, std::shared_ptr<Function> function,
                               const LaunchShape& shape, bool cooperative, const Placement& place,
                               void** parameters, void** extra);

// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: a cooperative launch whose blocks its multiprocessors
// can't hold at once. An H200 takes such nodes of graphs in green contexts, which never end.
Status check_cooperative(const Config& config, const LaunchWork& work);
// check_cooperative() for a node of a graph, which must have its parameters one by one
// (CUDA_ERROR_INVALID_VALUE, as on an H100).
Status check_cooperative_node(const Config& config, const LaunchWork& work);

// An H200's.
inline constexpr int kMaxAccessPolicyWindowBytes = 128 << 20;
// As the device's attributes have them (front/device_facts.cc).
inline constexpr cuda::LaunchAttributeLimits kAttributeLimits{kMaxAccessPolicyWindowBytes, 1};

// The most blocks of a cluster: by CUDA's documentation, and those that an H200 runs if the
// function allows more.
inline constexpr uint32_t kPortableClusterBlocks = 8;
inline constexpr uint32_t kMaxClusterBlocks = 16;

// Blocks in the function's largest cluster, whether or not the multiprocessors can hold it.
uint32_t max_cluster_blocks(const Config& config, const Function& function);

struct ClusterShape {  // zeros: not given
  cuda::Dimensions grid{};
  cuda::Dimensions asked{};
  cuda::Dimensions preferred{};
};
// The blocks of a cluster, 1 without; the multiprocessors may be too small for it. Errors:
// CUDA_ERROR_INVALID_CLUSTER_SIZE; CUDA_ERROR_NOT_SUPPORTED before compute capability 9.0.
Status cluster_size(const Config& config, const Function& function, const ClusterShape& shape,
                    uint32_t* size);

// Gives `work` the clusters that it is to run in. Zeros: not given. Errors: those of
// cluster_size(); CUDA_ERROR_INVALID_CLUSTER_SIZE for a cluster that its multiprocessors can never
// hold.
Status set_clusters(const Config& config, LaunchWork& work, const cuda::Dimensions& asked,
                    const cuda::Dimensions& preferred);

// Copies from `before` what a node's new parameters don't say: cooperative, priority, the
// clusters that an attribute gave it, and that kernels change it. Errors: those of
// check_cooperative_node() and set_clusters().
Status keep_settings(const Config& config, const LaunchWork& before, LaunchWork& after);

}  // namespace openmps::softgpu
