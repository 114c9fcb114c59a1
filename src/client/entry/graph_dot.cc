// SPDX-License-Identifier: Apache-2.0
// Graphs as DOT; child graphs become clusters. Called with Graphs::lock held.
#include <cinttypes>
#include <cstdio>
#include <string>

#include "base/thread_end.h"
#include "client/entry/entry.h"

namespace openmps::client {
namespace {

const char* type_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY: return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET: return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST: return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH: return "CHILD_GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY: return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return "CONDITIONAL";
    default: return "OTHER";
  }
}

template <typename... Values>
std::string text(const char* format, Values... values) {
  char line[256];
  snprintf(line, sizeof(line), format, values...);
  return line;
}

class DotWriter {
 public:
  DotWriter(const Session& session, FILE* file, unsigned int flags)
      : session_(session), file_(file), flags_(flags) {}

  void graph(const Graph& graph, const std::string& prefix) {
    size_t number = 0;
    for (const GraphNode* node : graph.nodes) this->node(*node, prefix, number++);
    for (const GraphNode* node : graph.nodes) {
      for (const GraphEdge& edge : node->dependencies) {
        fprintf(file_, "\"%s\" -> \"%s\"%s;\n", name(*edge.node).c_str(), name(*node).c_str(),
                edge.data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ? " [style=dashed]" : "");
      }
    }
  }

 private:
  [[nodiscard]] bool wants(unsigned int flag) const {
    return (flags_ & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0;
  }
  static std::string name(const GraphNode& node) { return text("node_%u", node.id); }

  std::string label(const GraphNode& node, size_t number) const {
    std::string label = text("%zu\\n%s", number, type_name(node.type));
    if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) label += text("\\n0x%" PRIx64, node.handle);
    if (const auto* kernel = std::get_if<KernelWork>(&node.work)) {
      const Function* function = session_.modules.functions.find(kernel->function);
      if (function != nullptr) label += "\\n" + function->name;
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) {
        const LaunchShape& shape = kernel->shape;
        label +=
            text("\\n\\<\\<\\<(%u,%u,%u),(%u,%u,%u),%u\\>\\>\\>", shape.grid[0], shape.grid[1],
                 shape.grid[2], shape.block[0], shape.block[1], shape.block[2], shape.shared_bytes);
      }
    } else if (const auto* copy = std::get_if<CopyWork>(&node.work)) {
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)) {
        label += text("\\n0x%" PRIx64 " to 0x%" PRIx64 "\\n%" PRIu64 " x %" PRIu64 " x %" PRIu64,
                      copy->source.address, copy->destination.address, copy->box.width,
                      copy->box.height, copy->box.depth);
      }
    } else if (const auto* conditional = std::get_if<ConditionalWork>(&node.work)) {
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS)) {
        label += text("\\nhandle 0x%" PRIx64 "\\ntype %u, %zu bodies", conditional->handle,
                      static_cast<unsigned int>(conditional->type), conditional->bodies.size());
      }
    } else if (const auto* fill = std::get_if<FillWork>(&node.work)) {
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)) {
        label +=
            text("\\n0x%llx\\n%u of %u bytes, %zu x %zu",
                 static_cast<unsigned long long>(fill->parameters.dst), fill->parameters.value,
                 fill->parameters.elementSize, fill->parameters.width, fill->parameters.height);
      }
    }
    return label;
  }

  void node(const GraphNode& node, const std::string& prefix, size_t number) {
    const std::string place = prefix + text("_%zu", number);
    const auto* child = std::get_if<ChildWork>(&node.work);
    const auto* conditional = std::get_if<ConditionalWork>(&node.work);
    fprintf(file_, "\"%s\" [shape=%s, label=\"%s\"];\n", name(node).c_str(),
            child == nullptr && conditional == nullptr ? "box" : "folder",
            label(node, number).c_str());
    if (child != nullptr) inside(*child->graph, place, text("child of %zu", number));
    if (conditional == nullptr) return;
    for (size_t i = 0; i < conditional->bodies.size(); ++i) {
      inside(*conditional->bodies[i], place + text("_%zu", i), text("body %zu of %zu", i, number));
    }
  }

  void inside(const Graph& inner, const std::string& place, const std::string& label) {
    fprintf(file_, "subgraph cluster%s {\nlabel=\"%s\";\n", place.c_str(), label.c_str());
    graph(inner, place);
    fprintf(file_, "}\n");
  }

  const Session& session_;
  FILE* file_;
  const unsigned int flags_;
};

}  // namespace

CUresult write_dot(const Session& session, const Graph& graph, const char* path,
                   unsigned int flags) {
  const CancellationHeld held;
  FILE* file = fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  fprintf(file, "digraph dot {\n");
  DotWriter(session, file, flags).graph(graph, "");
  fprintf(file, "}\n");
  const bool written = ferror(file) == 0;
  return fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace openmps::client
