// SPDX-License-Identifier: Apache-2.0
// Converts the parameters of nodes to Work and back, with every check that the driver makes when a
// node is made or changed. Called by the implementations of CUDA calls, on the program's threads,
// with Graphs::lock held where a node is involved.
#pragma once

#include "client/graphs/graph.h"
#include "client/graphs/launch_request.h"
#include "client/session/session.h"
#include "cuda/abi.h"

namespace openmps::client {

// `context`: the calling thread's current one, which a null context in the parameters means.
// Errors: CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_SUPPORTED.
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
// Nodes of all kinds but child graphs and conditional nodes.
[[nodiscard]] CUresult read_node(Session& session, Context& context, CUgraphNodeParams* parameters,
                                 Work* work);
// Checks an attribute that is to be set on a node. Errors: those of check_launch()
// (launch_check.h).
[[nodiscard]] CUresult check_kernel_attribute(Session& session, const KernelWork& work,
                                              const CUlaunchAttribute& attribute);

// The work of a launch or copy that was checked.
[[nodiscard]] KernelWork kernel_work(const Function& function, const Context& context,
                                     const LaunchConfiguration& config,
                                     const LaunchParameters& parameters);
[[nodiscard]] CopyWork copy_work(const Copy& copy);

// Writes pointers into the node's own parameters.
void write_kernel(const Session& session, KernelWork& work, CUDA_KERNEL_NODE_PARAMS* parameters);

}  // namespace openmps::client
