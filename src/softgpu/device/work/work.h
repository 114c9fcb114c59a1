// SPDX-License-Identifier: Apache-2.0
// Work: what one API call or one graph node asks of the device, as a value. A stream turns it into
// an operation at once, a capture into a node that becomes an operation at every launch of the
// graph.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "cuda/status.h"
#include "cupti/activity.h"
#include "softgpu/device/contexts/green_context.h"
#include "softgpu/device/memory/graph_memory.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/schedule/recorder.h"

namespace openmps::softgpu {

class ExecutionContext;
struct StreamQueue;
struct Event;
class DeviceNode;
struct Function;
struct GraphStep;

// An empty node, a join, an event. `is_free`: it holds no connection (connections.h).
struct MarkerWork {
  bool is_free = false;
};

struct LaunchWork {
  std::shared_ptr<Function> function;
  Placement place;  // whatever stream it is launched in
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  std::array<uint32_t, 3> cluster{1, 1, 1};  // blocks
  bool explicit_cluster = false;             // see Launch
  uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  // exactly parameter_bytes of the kernel
  bool packed = false;                // it was given them all at once
  bool cooperative = false;
  bool has_priority = false;  // else the stream's
  int priority = 0;
  // A node that kernels change; null: they don't.
  std::shared_ptr<DeviceNode> device_node;
  CUgraphDeviceNode device_handle = nullptr;
};

// Where one side of a copy or fill lies, for recordings.
struct MemoryPlace {
  cupti::MemoryKind kind = cupti::MemoryKind::kUnknown;
  int device = 0;
};

struct CopyWork {
  CopyShape shape;
  bool check_source = false;
  bool check_destination = false;
  bool from_device = false;  // whose memory it is, not the host's
  bool to_device = false;
  MemoryPlace source;
  MemoryPlace destination;
  uint32_t engine = 0;
  std::vector<std::byte> staged;  // see CopyOperation
  bool inline_execution = false;  // by the calling thread, see Operation
};

struct FillWork {
  FillShape shape;
  cupti::MemoryKind destination = cupti::MemoryKind::kDevice;  // for recordings; what most are
  bool inline_execution = false;
};

struct HostWork {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;
  CUstream stream = nullptr;
  void* user_data = nullptr;
};

struct WordsWork {
  std::vector<WordAction> actions;
  std::shared_ptr<const void> kept;  // see MemoryWordsOperation
};

// The words are mapped for the device; those that are written can be (where natively a write to
// read-only memory faults when it runs, it is refused here). CUDA_ERROR_INVALID_VALUE.
Status check_words(const AddressSpace& memory, const WordsWork& work);

struct FreeWork {  // cuMemFreeAsync
  uint64_t address = 0;
};

struct AllocationWork {  // a node that allocates
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  GraphBlockPtr block;
};

struct GraphFreeWork {  // a node that frees what a graph has allocated
  uint64_t address = 0;
};

struct RecordWork {  // an event record in a graph
  std::shared_ptr<Event> event;
};

struct WaitWork {  // a wait for what was last recorded when the graph is launched
  std::shared_ptr<Event> event;
};

// A conditional node of an executable graph.
struct ConditionalWork {
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  std::shared_ptr<Condition> condition;
  std::vector<std::shared_ptr<const std::vector<GraphStep>>> bodies;  // see GraphExec
};

using Work = std::variant<MarkerWork, LaunchWork, CopyWork, FillWork, HostWork, WordsWork, FreeWork,
                          AllocationWork, GraphFreeWork, RecordWork, WaitWork, ConditionalWork>;

// Of the node that it is in a graph.
CUgraphNodeType node_type(const Work& work);

// make_operation(), for what makes operations that make others.
using MakeOperation = OperationPtr (*)(const Work& work,
                                       const std::shared_ptr<ExecutionContext>& execution,
                                       const StreamQueue& stream, const WorkOrigin& origin);

}  // namespace openmps::softgpu
