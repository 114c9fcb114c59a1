// SPDX-License-Identifier: Apache-2.0
// What many functions are variants of, as their descriptions call it (`returns` in api/*.toml). The
// client has functions of its own with these names (client/entry/families.h). Any thread.
#pragma once

#include <type_traits>

#include "cuda/copies.h"
#include "cuda/devices.h"
#include "cuda/stream_values.h"
#include "softgpu/front/graph_front.h"

namespace openmps::softgpu {

// Runs a call on a function, which loads it: body(Caller&, Function&) -> Status.
template <typename Body>
CUresult with_function(CUfunction handle, Body&& body) {
  return with_context([&](Caller& caller) -> Status {
    Result<std::shared_ptr<Function>> function = resolve_function(caller.context, handle);
    if (!function.ok()) return function.status();
    return body(caller, **function);
  });
}

// Copies and fills, in stream order or, without a stream, done when they return: then the stream is
// the default one of the entry point's variant. Of a box, `copy` may be NULL, which is
// CUDA_ERROR_INVALID_VALUE.
CUresult copy_linear(const cuda::LinearSide& to, const cuda::LinearSide& from, size_t bytes);
CUresult copy_linear(const cuda::LinearSide& to, const cuda::LinearSide& from, size_t bytes,
                     CUstream stream);
CUresult copy_row(const cuda::CopySide& to, const cuda::CopySide& from, size_t bytes);
CUresult copy_row(const cuda::CopySide& to, const cuda::CopySide& from, size_t bytes,
                  CUstream stream);
CUresult copy_box(const CUDA_MEMCPY2D* copy);
CUresult copy_box(const CUDA_MEMCPY2D* copy, CUstream stream);
CUresult copy_box(const CUDA_MEMCPY3D* copy);
CUresult copy_box(const CUDA_MEMCPY3D* copy, CUstream stream);
CUresult copy_box(const CUDA_MEMCPY3D_PEER* copy);
CUresult copy_box(const CUDA_MEMCPY3D_PEER* copy, CUstream stream);
CUresult fill(const CUDA_MEMSET_NODE_PARAMS& what);
CUresult fill(const CUDA_MEMSET_NODE_PARAMS& what, CUstream stream);

// Managed memory, with a device or CU_DEVICE_CPU for a place.
CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device);

// A value that a stream writes or waits for.
CUresult stream_value(CUstream stream, const cuda::StreamValue& value);

// ---- Nodes of graphs: their parameters are those that CUDA has for the kind. ----

template <typename Parameters>
CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                  Parameters* parameters) {
  return add_work(out, graph, dependencies, count, prepare(parameters),
                  [&](GraphNode& node) { remember(node, *parameters); });
}
template <typename Parameters>
CUresult set_node(CUgraphNode node, Parameters* parameters) {
  return set_work(node, prepare(parameters),
                  [&](GraphNode& changed) { remember(changed, *parameters); });
}
template <typename Parameters>
CUresult set_exec_node(CUgraphExec exec, CUgraphNode node, Parameters* parameters) {
  return set_exec_work(exec, node, prepare(parameters));
}

// Parameters that the description makes itself.
template <typename Parameters>
requires std::is_class_v<Parameters> CUresult add_node(CUgraphNode* out, CUgraph graph,
                                                       const CUgraphNode* dependencies,
                                                       size_t count, const Parameters& parameters) {
  return add_node(out, graph, dependencies, count, &parameters);
}
template <typename Parameters>
requires std::is_class_v<Parameters> CUresult set_node(CUgraphNode node,
                                                       const Parameters& parameters) {
  return set_node(node, &parameters);
}
template <typename Parameters>
requires std::is_class_v<Parameters> CUresult set_exec_node(CUgraphExec exec, CUgraphNode node,
                                                            const Parameters& parameters) {
  return set_exec_node(exec, node, &parameters);
}

}  // namespace openmps::softgpu
