// SPDX-License-Identifier: Apache-2.0
// From what programs say about nodes to work, and back: every check that the driver makes when a
// node is made or changed. Called by the implementations, on the program's threads, with
// Graphs::lock held where a node is involved.
#pragma once

#include "client/graphs/graph.h"
#include "client/graphs/launch_request.h"
#include "client/session/session.h"
#include "cuda/abi.h"

namespace openmps::client {

// `context`: the calling thread's, which a null context in the parameters means. Errors:
// CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_SUPPORTED.
[[nodiscard]] CUresult read_node(Session& session, Context& context,
                                 const CUDA_KERNEL_NODE_PARAMS* parameters, Work* work);
[[nodiscard]] CUresult read_node(Session& session, Context& context,
                                 const CUDA_MEMCPY3D* parameters, Work* work);
[[nodiscard]] CUresult read_node(Session& session, Context& context,
                                 const CUDA_MEMSET_NODE_PARAMS* parameters, Work* work);
[[nodiscard]] CUresult read_node(Session& session, Context& context,
                                 const CUDA_HOST_NODE_PARAMS* parameters, Work* work);
[[nodiscard]] CUresult read_node(Session& session, Context& context,
                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters, Work* work);
[[nodiscard]] CUresult read_node(Session& session, Context& context,
                                 const CUDA_EVENT_RECORD_NODE_PARAMS* parameters, Work* work);
[[nodiscard]] CUresult read_node(Session& session, Context& context,
                                 const CUDA_EVENT_WAIT_NODE_PARAMS* parameters, Work* work);
[[nodiscard]] CUresult read_node(Session& session, Context& context,
                                 const CUDA_MEM_FREE_NODE_PARAMS* parameters, Work* work);
// Allocates; parameters->dptr is set.
[[nodiscard]] CUresult read_node(Session& session, Context& context,
                                 CUDA_MEM_ALLOC_NODE_PARAMS* parameters, Work* work);
// Of any kind but child graphs and conditional nodes.
[[nodiscard]] CUresult read_node(Session& session, Context& context, CUgraphNodeParams* parameters,
                                 Work* work);
// An attribute that a node is to have. Errors: those of check_launch (launch_check.h).
[[nodiscard]] CUresult check_kernel_attribute(Session& session, const KernelWork& work,
                                              const CUlaunchAttribute& attribute);

// What was checked, as a node has it.
[[nodiscard]] KernelWork kernel_work(const Function& function, const Context& context,
                                     const LaunchConfiguration& config,
                                     const LaunchParameters& parameters);
[[nodiscard]] CopyWork copy_work(const Copy& copy);

// Pointers into the node's own parameters.
void write_kernel(const Session& session, KernelWork& work, CUDA_KERNEL_NODE_PARAMS* parameters);

}  // namespace openmps::client
