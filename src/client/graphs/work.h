// SPDX-License-Identifier: Apache-2.0
// A piece of work as a value: what a node of a graph does, and what a captured call becomes. It
// names objects by handle, for they may be destroyed before it is used. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <variant>
#include <vector>

#include "client/graphs/launch_request.h"
#include "client/memory/copy.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Graph;
struct GraphBlock;

struct KernelWork {
  CUfunction function = nullptr;
  CUcontext context = nullptr;
  LaunchShape shape;
  std::vector<std::byte> parameters;  // as the kernel's layout has them
  std::vector<CUlaunchAttribute> attributes;
  std::vector<void*> pointers;  // into `parameters`, for cuGraphKernelNodeGetParams
  // It was captured, and may begin when the kernels that it depends on allow it: in a graph that is
  // a kind of edge.
  bool programmatic = false;
};
struct CopyWork : Copy {
  CUDA_MEMCPY3D parameters{};
};
struct FillWork {
  CUDA_MEMSET_NODE_PARAMS parameters{};
};
struct HostWork {
  CUDA_HOST_NODE_PARAMS parameters{};
};
struct ChildWork {
  Graph* graph = nullptr;  // owned by the node
  bool moved = false;      // the program's own graph, no clone of one
};
struct RecordWork {
  CUevent event = nullptr;
};
struct WaitWork {
  CUevent event = nullptr;
};
// cuStreamWriteValue and cuStreamWaitValue.
struct WordsWork {
  CUcontext context = nullptr;
  std::vector<CUstreamBatchMemOpParams> operations;
  unsigned int flags = 0;
};
struct AllocationWork {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  std::shared_ptr<GraphBlock> block;
};
struct FreeWork {
  CUdeviceptr address = 0;
};
struct ConditionalWork {
  CUgraphConditionalHandle handle = 0;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  std::vector<Graph*> bodies;    // owned by the node
  std::vector<CUgraph> handles;  // of the bodies, as the program was given them
};
using Work =
    std::variant<std::monostate, KernelWork, CopyWork, FillWork, HostWork, ChildWork, RecordWork,
                 WaitWork, WordsWork, AllocationWork, FreeWork, ConditionalWork>;

[[nodiscard]] inline CUgraphNodeType type_of(const Work& work) {
  constexpr CUgraphNodeType kTypes[] = {
      CU_GRAPH_NODE_TYPE_EMPTY,        CU_GRAPH_NODE_TYPE_KERNEL,
      CU_GRAPH_NODE_TYPE_MEMCPY,       CU_GRAPH_NODE_TYPE_MEMSET,
      CU_GRAPH_NODE_TYPE_HOST,         CU_GRAPH_NODE_TYPE_GRAPH,
      CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
      CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
      CU_GRAPH_NODE_TYPE_MEM_FREE,     CU_GRAPH_NODE_TYPE_CONDITIONAL};
  static_assert(std::size(kTypes) == std::variant_size_v<Work>);
  return kTypes[work.index()];
}

}  // namespace openmps::client
