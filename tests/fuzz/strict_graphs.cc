// SPDX-License-Identifier: Apache-2.0
// The graphs of the driver that checks every call. See strict_driver.h.

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "strict_calls.h"

namespace openmps::worker::strict {
namespace {

// Whether a node's addresses are checked when it is added. A driver checks those of stream memory
// operations when the graph is launched.
bool is_looked_at(const Node& node) { return strcmp(node.kind, "values") != 0; }
CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, size_t count,
                  Node node) {
  must_be_live("graphs", number(graph));
  std::vector<uint64_t>& there = self().graphs[number(graph)];
  for (const CUgraphNode one : std::span(before, count)) {
    if (std::find(there.begin(), there.end(), number(one)) == there.end()) abort();
  }
  if (is_looked_at(node)) self().must_run(node);
  if (const CUresult error = call("node")) return error;
  const uint64_t made = self().fake().make("nodes");
  there.push_back(made);
  self().nodes[made] = std::move(node);
  return *out = handle<CUgraphNode>(made), CUDA_SUCCESS;
}
CUresult set_node(CUgraphExec exec, CUgraphNode node, Node changed) {
  must_be_live("execs", number(exec));
  const auto found = self().executable[number(exec)].find(number(node));
  if (found == self().executable[number(exec)].end()) abort();
  if (strcmp(found->second.kind, changed.kind) != 0) abort();
  if (is_looked_at(changed)) self().must_run(changed);
  if (const CUresult error = call("set")) return error;
  return found->second = std::move(changed), CUDA_SUCCESS;
}
// Changes a node of a graph that is not executable.
CUresult change_node(CUgraphNode node, Node changed) {
  must_be_live("nodes", number(node));
  if (strcmp(self().nodes[number(node)].kind, changed.kind) != 0) abort();
  if (is_looked_at(changed)) self().must_run(changed);
  if (const CUresult error = call("change")) return error;
  return self().nodes[number(node)] = std::move(changed), CUDA_SUCCESS;
}
Node kernel_of(const CUDA_KERNEL_NODE_PARAMS& kernel) {
  touch_extra(kernel.extra);
  return {.kind = "kernel",
          .function = kernel.func != nullptr ? number(kernel.func) : number(kernel.kern)};
}
Node fill_of(const CUDA_MEMSET_NODE_PARAMS& fill) {
  return {.kind = "fill",
          .operands = {{fill.dst,
                        rows_span(fill.pitch, fill.elementSize, fill.width,
                                  std::max<size_t>(fill.height, 1)),
                        true}}};
}
Node event_of(const char* kind, CUevent event) { return {.kind = kind, .event = number(event)}; }
Node values_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS& batch) {
  Node node{.kind = "values"};
  for (const CUstreamBatchMemOpParams& one : std::span(batch.paramArray, batch.count)) {
    if (one.operation == CU_STREAM_MEM_OP_BARRIER) continue;
    const bool writes = one.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                        one.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    const bool wide = one.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ||
                      one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    node.operands.push_back({one.writeValue.address, wide ? 8u : 4u, writes});
  }
  return node;
}
// The nodes of a graph and of its conditional nodes' bodies, one after the other.
std::vector<uint64_t> all_nodes(uint64_t graph) {
  std::vector<uint64_t> all;
  for (const uint64_t node : self().graphs[graph]) {
    all.push_back(node);
    for (const CUgraph body : self().nodes[node].bodies) {
      const std::vector<uint64_t> inside = all_nodes(number(body));
      all.insert(all.end(), inside.begin(), inside.end());
    }
  }
  return all;
}
void drop_graph(uint64_t graph) {
  std::erase_if(self().conditions, [graph](const auto& entry) { return entry.second == graph; });
  for (const uint64_t node : self().graphs[graph]) {
    for (const CUgraph body : self().nodes[node].bodies) drop_graph(number(body));
    self().fake().drop("nodes", node);
    self().nodes.erase(node);
  }
  self().graphs.erase(graph);
  self().roots.erase(graph);
  self().fake().drop("graphs", graph);
}

void fill_graph_nodes(DriverTable& t) {
  t.cuGraphAddEmptyNode = [](CUgraphNode* node, CUgraph g, const CUgraphNode* from, size_t n) {
    return add_node(node, g, from, n, {.kind = "empty"});
  };
  t.cuGraphAddKernelNode_v2 = [](CUgraphNode* node, CUgraph g, const CUgraphNode* from, size_t n,
                                 const CUDA_KERNEL_NODE_PARAMS* kernel) {
    return add_node(node, g, from, n, kernel_of(*kernel));
  };
  t.cuGraphAddMemcpyNode = [](CUgraphNode* node, CUgraph g, const CUgraphNode* from, size_t n,
                              const CUDA_MEMCPY3D* box,
                              CUcontext) { return add_node(node, g, from, n, copy_of(*box)); };
  t.cuGraphAddMemsetNode = [](CUgraphNode* node, CUgraph g, const CUgraphNode* from, size_t n,
                              const CUDA_MEMSET_NODE_PARAMS* fill,
                              CUcontext) { return add_node(node, g, from, n, fill_of(*fill)); };
  t.cuGraphAddHostNode = [](CUgraphNode* node, CUgraph g, const CUgraphNode* from, size_t n,
                            const CUDA_HOST_NODE_PARAMS* host) {
    touch(host->userData, 1);
    return add_node(node, g, from, n, {.kind = "host"});
  };
  t.cuGraphAddEventRecordNode = [](CUgraphNode* node, CUgraph g, const CUgraphNode* from, size_t n,
                                   CUevent event) {
    return add_node(node, g, from, n, event_of("record", event));
  };
  t.cuGraphAddEventWaitNode = [](CUgraphNode* node, CUgraph g, const CUgraphNode* from, size_t n,
                                 CUevent event) {
    return add_node(node, g, from, n, event_of("wait", event));
  };
  t.cuGraphAddBatchMemOpNode = [](CUgraphNode* node, CUgraph g, const CUgraphNode* from, size_t n,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* batch) {
    return add_node(node, g, from, n, values_of(*batch));
  };
  t.cuGraphAddDependencies_v2 = [](CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) {
    must_be_live("graphs", number(graph));
    touch(data, count * sizeof(*data));
    for (size_t i = 0; i < count; ++i) {
      must_be_live("nodes", number(from[i]));
      must_be_live("nodes", number(to[i]));
    }
    return call("edge");
  };
  t.cuGraphKernelNodeSetAttribute = [](CUgraphNode node, CUkernelNodeAttrID,
                                       const CUkernelNodeAttrValue* value) {
    must_be_live("nodes", number(node));
    touch(value, sizeof(*value));
    return call("attribute");
  };
  t.cuGraphExecKernelNodeSetParams_v2 = [](CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* kernel) {
    return set_node(exec, node, kernel_of(*kernel));
  };
  t.cuGraphExecMemcpyNodeSetParams = [](CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* box,
                                        CUcontext) { return set_node(exec, node, copy_of(*box)); };
  t.cuGraphExecMemsetNodeSetParams = [](CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* fill,
                                        CUcontext) { return set_node(exec, node, fill_of(*fill)); };
  t.cuGraphExecEventRecordNodeSetEvent = [](CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set_node(exec, node, event_of("record", event));
  };
  t.cuGraphExecEventWaitNodeSetEvent = [](CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set_node(exec, node, event_of("wait", event));
  };
  t.cuGraphExecBatchMemOpNodeSetParams = [](CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* batch) {
    return set_node(exec, node, values_of(*batch));
  };
}

void fill_node_changes(DriverTable& t) {
  t.cuGraphKernelNodeSetParams_v2 = [](CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* kernel) {
    return change_node(node, kernel_of(*kernel));
  };
  t.cuGraphMemcpyNodeSetParams = [](CUgraphNode node, const CUDA_MEMCPY3D* box) {
    return change_node(node, copy_of(*box));
  };
  t.cuGraphMemsetNodeSetParams = [](CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* fill) {
    return change_node(node, fill_of(*fill));
  };
  t.cuGraphHostNodeSetParams = [](CUgraphNode node, const CUDA_HOST_NODE_PARAMS* host) {
    touch(host->userData, 1);
    return change_node(node, {.kind = "host"});
  };
  t.cuGraphEventRecordNodeSetEvent = [](CUgraphNode node, CUevent event) {
    return change_node(node, event_of("record", event));
  };
  t.cuGraphEventWaitNodeSetEvent = [](CUgraphNode node, CUevent event) {
    return change_node(node, event_of("wait", event));
  };
  t.cuGraphBatchMemOpNodeSetParams = [](CUgraphNode node,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* batch) {
    return change_node(node, values_of(*batch));
  };
}

// A conditional handle is for one node, in the graph that it was made for or in a body of that.
CUresult add_conditional(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, size_t count,
                         CUgraphNodeParams* parameters) {
  if (parameters->type != CU_GRAPH_NODE_TYPE_CONDITIONAL) abort();
  uint64_t root = number(graph);
  while (self().roots.contains(root)) root = self().roots[root];
  auto& conditional = parameters->conditional;
  const auto condition = self().conditions.find(conditional.handle);
  if (condition == self().conditions.end() || condition->second != root) abort();
  if (conditional.size == 0) abort();
  if (const CUresult error = add_node(out, graph, before, count, {.kind = "conditional"})) {
    return error;
  }
  self().conditions.erase(condition);
  std::vector<CUgraph>& bodies = self().nodes[number(*out)].bodies;
  for (unsigned i = 0; i < conditional.size; ++i) {
    bodies.push_back(handle<CUgraph>(self().fake().make("graphs")));
    self().roots[number(bodies.back())] = root;
  }
  return conditional.phGraph_out = bodies.data(), CUDA_SUCCESS;
}

// Pairs the nodes of both graphs in order, as a driver does; paired nodes must be of the same kind.
CUresult update(uint64_t exec, uint64_t graph, CUgraphExecUpdateResultInfo* info) {
  const std::vector<uint64_t> from = all_nodes(graph);
  const std::vector<uint64_t>& to = self().order[exec];
  *info = {};
  for (size_t i = 0; i < std::max(from.size(), to.size()); ++i) {
    const bool paired =
        i < from.size() && i < to.size() &&
        strcmp(self().nodes[from[i]].kind, self().executable[exec][to[i]].kind) == 0;
    if (paired) continue;
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (i < from.size()) info->errorNode = handle<CUgraphNode>(from[i]);
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (size_t i = 0; i < from.size(); ++i) {
    self().executable[exec][to[i]] = self().nodes[from[i]];
  }
  return CUDA_SUCCESS;
}

void fill_whole_graphs(DriverTable& t) {
  t.cuGraphConditionalHandleCreate = [](CUgraphConditionalHandle* made, CUgraph graph, CUcontext,
                                        unsigned, unsigned) {
    must_be_live("graphs", number(graph));
    if (const CUresult error = call("handle")) return error;
    self().conditions[*made = ++self().last_condition] = number(graph);
    return CUDA_SUCCESS;
  };
  t.cuGraphAddNode_v2 = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from,
                           const CUgraphEdgeData*, size_t count, CUgraphNodeParams* parameters) {
    return add_conditional(node, graph, from, count, parameters);
  };
  t.cuGraphDestroy = [](CUgraph graph) { return drop_graph(number(graph)), CUDA_SUCCESS; };
  t.cuGraphInstantiateWithFlags = [](CUgraphExec* out, CUgraph graph, unsigned long long) {
    must_be_live("graphs", number(graph));
    if (const CUresult error = call("instantiate")) return error;
    const uint64_t exec = self().fake().make("execs");
    self().order[exec] = all_nodes(number(graph));
    for (const uint64_t node : self().order[exec]) {
      self().executable[exec][node] = self().nodes[node];
    }
    return *out = handle<CUgraphExec>(exec), CUDA_SUCCESS;
  };
  t.cuGraphExecUpdate_v2 = [](CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
    must_be_live("execs", number(exec));
    must_be_live("graphs", number(graph));
    if (const CUresult error = call("update")) return error;
    return update(number(exec), number(graph), info);
  };
  t.cuGraphExecDestroy = [](CUgraphExec exec) {
    self().executable.erase(number(exec));
    self().order.erase(number(exec));
    self().fake().drop("execs", number(exec));
    return CUDA_SUCCESS;
  };
  t.cuGraphNodeSetEnabled = [](CUgraphExec exec, CUgraphNode node, unsigned) {
    must_be_live("execs", number(exec));
    if (!self().executable[number(exec)].contains(number(node))) abort();
    return call("enable");
  };
  t.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
    must_be_live("execs", number(exec));
    must_be_live("streams", number(stream));
    for (const auto& [number, node] : self().executable[number(exec)]) self().must_run(node);
    return call("launch");
  };
  t.cuGraphUpload = [](CUgraphExec exec, CUstream stream) {
    must_be_live("execs", number(exec));
    must_be_live("streams", number(stream));
    return call("upload");
  };
}

}  // namespace

void fill_graphs(DriverTable& t) {
  fill_graph_nodes(t);
  fill_node_changes(t);
  fill_whole_graphs(t);
}

}  // namespace openmps::worker::strict
