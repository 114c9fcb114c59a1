// SPDX-License-Identifier: Apache-2.0
// The commands of graphs. A client keeps its graphs, however they were made, and describes one to
// the worker when it instantiates it or updates an executable graph from it: GraphBegin, a
// GraphNode for every node, then GraphInstantiate or GraphUpdate, which answers for all of them.
// The worker knows executable graphs only. Normative together with commands.h
// (docs/wire-format.md).
#pragma once

#include <cstdint>
#include <type_traits>

#include "wire/array_commands.h"
#include "wire/commands.h"

namespace openmps::wire {

// What may wait for how many others: a client puts empty nodes in between where a node has more.
inline constexpr uint32_t kMaxGraphEdges = 2048;
// Nodes of all executable graphs of a session, and of the description under way: bounds what a
// client can make a worker hold. The largest captured graphs known have some 10^5.
inline constexpr uint32_t kMaxGraphNodes = 1u << 20;
// Conditional handles of all graphs of a session, and how deep conditional nodes may be nested and
// how many bodies one may have; CUDA names no limits, programs use a handful of each.
inline constexpr uint32_t kMaxConditions = 1u << 16;
inline constexpr uint32_t kMaxConditionalDepth = 32;
inline constexpr uint32_t kMaxConditionalBodies = 4096;

// Starts the description of `exec`; one that was under way for it is dropped.
struct GraphBegin {
  Id exec;
  uint32_t device;
  Id graph = 0;  // the client's graph, if it has conditional handles
  uint32_t reserved = 0;
};

// A handle for a conditional node of `graph`. It is the driver's own number, since kernels are
// given it, so from its first handle on the worker keeps a driver graph for that graph of the
// client. What the client describes for it must keep its nodes and edges from the first time on;
// their parameters may change. kGraphForget ends it, executable graphs go on.
struct ConditionCreate {
  Id graph;
  uint32_t device;
  uint32_t initial;
  uint32_t flags;  // CU_GRAPH_COND_*
};
struct ConditionReply {
  uint64_t handle;
};

enum class GraphNodeKind : uint32_t {
  kEmpty = 0,        // no body
  kKernel = 1,       // Launch + CUlaunchAttribute[] + parameter bytes
  kCopy = 2,         // Memcpy3D
  kFill = 3,         // Memset
  kHostCall = 4,     // HostFunction
  kEventRecord = 5,  // ObjectOnly
  kEventWait = 6,    // ObjectOnly
  kValues = 7,       // ValueOperation[]
  kConditional = 8,  // GraphConditional; its bodies get the next numbers
  kArrayCopy = 9,    // ArrayCopy
};

// Nodes are numbered from 0 in the order in which they come. Followed by GraphEdge[edge_count] and
// the body of the kind, whose stream is 0. Errors of a node are those of the whole description.
struct GraphNode {
  Id exec;
  uint32_t kind;  // GraphNodeKind
  uint32_t edge_count;
  uint32_t body_bytes;
  uint32_t parent =
      0;  // 0: the graph; n: the n-th body of its conditional nodes. Edges stay inside
  uint32_t reserved = 0;
};
// The node runs behind an earlier one.
struct GraphEdge {
  uint32_t node;
  uint8_t from_port;  // as in CUgraphEdgeData
  uint8_t to_port;
  uint8_t type;
  uint8_t reserved;
};

struct GraphConditional {
  uint64_t handle;  // of ConditionReply, for one node
  uint32_t type;    // CUgraphConditionalNodeType
  uint32_t bodies;
};

struct GraphInstantiate {
  Id exec;
  uint32_t reserved;
  uint64_t flags;  // CUgraphInstantiate_flags
};
struct GraphInstantiateReply {
  uint32_t failed_node;  // kNoNode: none in particular
  uint32_t reserved;
};
inline constexpr uint32_t kNoNode = 0xffff'ffffu;

// `exec` exists and takes over the parameters of the description.
struct GraphUpdate {
  Id exec;
  uint32_t reserved;
};
struct GraphUpdateReply {
  uint32_t result;       // CUgraphExecUpdateResult
  uint32_t failed_node;  // of the description
};

// A node of `exec`, which keeps its kind, gets another body (which follows).
struct GraphSetNode {
  Id exec;
  uint32_t node;
  uint32_t kind;
  uint32_t body_bytes;
};
struct GraphEnableNode {
  Id exec;
  uint32_t node;
  uint32_t enabled;
  uint32_t reserved;
};

struct GraphLaunch {
  Id exec;
  Id stream;
};

static_assert(sizeof(GraphBegin) == 16 && sizeof(GraphConditional) == 16);
static_assert(sizeof(GraphNode) == 24 && sizeof(GraphEdge) == 8 && sizeof(ValueOperation) == 40);
static_assert(sizeof(GraphNode) + kMaxGraphEdges * sizeof(GraphEdge) + kMaxKernelParameterBytes +
                  sizeof(Launch) + kMaxLaunchAttributes * sizeof(CUlaunchAttribute) <
              kMaxRecordBytes);

}  // namespace openmps::wire
