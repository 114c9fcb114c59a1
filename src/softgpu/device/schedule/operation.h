// SPDX-License-Identifier: Apache-2.0
// The unit of work: everything a stream or a graph asks of the device is an Operation in one
// directed acyclic graph. Stream order, event waits, the legacy stream's barriers and graph edges
// are all edges from an operation to one that must wait for it. Made by API
// threads, carried out by workers, copy engines and the host-function thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "cuda/abi.h"
#include "softgpu/device/graph_mutex.h"
#include "softgpu/device/machine/sm.h"
#include "softgpu/device/schedule/copy.h"
#include "softgpu/device/schedule/recorder.h"
#include "softgpu/device/schedule/scheduler_mutex.h"
#include "softgpu/engine.h"

namespace openmps::softgpu {

class ExecutionContext;
class Submission;

enum class OperationKind : uint8_t {
  kMarker,  // nothing to do: event records, waits, joins
  kKernel,
  kCopy,  // copies and fills
  kHostFunction,
  kMemoryWords,  // cuStreamWriteValue, cuStreamWaitValue, cuStreamBatchMemOp
  kConditional,  // a node of a graph that runs others
};

// Of a stream.
struct StreamItems {
  uint32_t outstanding GUARDED_BY(scheduler_mutex) = 0;  // operations that are not done
  uint32_t unstarted GUARDED_BY(scheduler_mutex) = 0;    // of those, in a connection
  uint32_t connection GUARDED_BY(scheduler_mutex) = 0;   // which (connections.h)
};

struct Operation {
  Operation(OperationKind what, std::shared_ptr<ExecutionContext> where)
      : kind(what), context(std::move(where)) {}
  virtual ~Operation() = default;

  const OperationKind kind;
  const std::shared_ptr<ExecutionContext> context;
  uint64_t stream_id = 0;  // for the trace

  // Set before submission.
  bool inline_execution = false;  // the submitting thread carries it out once it is ready
  bool unconnected = false;       // enters no connection: nodes of a graph, the end of the graph's
                                  // launch, and an event without timing
  std::unique_ptr<WorkRecord> record;  // null: it is not recorded

  // Edges from unfinished operations, plus one until it is submitted.
  uint32_t unsatisfied GUARDED_BY(scheduler_mutex) = 1;
  uint32_t waiters GUARDED_BY(scheduler_mutex) = 0;  // API threads that wait for it
  bool ready GUARDED_BY(scheduler_mutex) = false;
  bool done GUARDED_BY(scheduler_mutex) = false;
  uint64_t finished_ns GUARDED_BY(scheduler_mutex) = 0;
  // What it waited for is done, but other operations are ahead in its connection.
  bool stalled GUARDED_BY(scheduler_mutex) = false;
  int32_t connection GUARDED_BY(scheduler_mutex) = -1;  // -1: none, or it has started
  // Of its stream; null: the operation is in no stream.
  std::shared_ptr<StreamItems> items GUARDED_BY(scheduler_mutex);
  std::vector<std::shared_ptr<Operation>> successors GUARDED_BY(scheduler_mutex);
};
using OperationPtr = std::shared_ptr<Operation>;

class DeviceNode;

// Work that an operation has started and that ends before the operation counts as done.
class Offspring {
 public:
  virtual ~Offspring() = default;
  // Called by the scheduler when the operation `self` has ended by itself, and again when what the
  // last call submitted has ended. True: nothing is left.
  [[nodiscard]] virtual bool finish(Submission& submission, const OperationPtr& self)
      REQUIRES(scheduler_mutex) = 0;
};

struct KernelOperation final : Operation {
  explicit KernelOperation(std::shared_ptr<ExecutionContext> where)
      : Operation(OperationKind::kKernel, std::move(where)) {}

  Launch launch;
  SmDemand demand;
  SmSet sms;           // where its blocks may run
  uint32_t level = 0;  // priority level, 0 is the highest
  uint32_t queue = 0;  // hardware queue
  bool cooperative = false;
  uint64_t seed = 0;                 // of the schedule, 0: round robin
  uint64_t id = 0;                   // of the launch, for the trace
  CUresult injected = CUDA_SUCCESS;  // the error of the fault that it is to have
  std::string name;
  std::vector<uint64_t> workspace;       // grid barrier of a cooperative launch
  std::shared_ptr<Offspring> nested;     // Launch::nested; null: the kernel launches none
  std::shared_ptr<Offspring> graph_run;  // Launch::graph; null: nor any graphs

  std::shared_ptr<const DeviceNode> device_node;  // says what it runs when its turn has come

  uint32_t cluster_blocks = 1;
  uint64_t cluster_count = 0;  // without clusters: blocks

  // Clusters whose blocks were given to SMs, and those among them that have not finished.
  uint64_t placed GUARDED_BY(scheduler_mutex) = 0;
  uint64_t resident GUARDED_BY(scheduler_mutex) = 0;
  uint64_t started_ns GUARDED_BY(scheduler_mutex) = 0;
};

struct CopyOperation final : Operation {
  explicit CopyOperation(std::shared_ptr<ExecutionContext> where)
      : Operation(OperationKind::kCopy, std::move(where)) {}

  std::variant<CopyShape, FillShape> work;
  std::vector<std::byte> staged;  // source of a small pageable copy, taken at the call
  // Which sides lie in the address space and must still do so when the copy runs.
  bool check_source = false;
  bool check_destination = false;
  uint32_t engine = 0;
};

struct HostOperation final : Operation {
  explicit HostOperation(std::shared_ptr<ExecutionContext> where)
      : Operation(OperationKind::kHostFunction, std::move(where)) {}

  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;  // cuStreamAddCallback: also called after an error
  CUstream stream = nullptr;
  void* user_data = nullptr;
};

struct WordAction {
  // kRaise: a write, unless what is there is greater.
  enum class Kind : uint8_t { kWrite, kRaise, kWait, kBarrier };
  Kind kind = Kind::kBarrier;
  uint32_t bytes = 4;  // 4 or 8
  uint64_t address = 0;
  uint64_t value = 0;
  unsigned condition = 0;  // CUstreamWaitValue_flags without FLUSH
};

struct MemoryWordsOperation final : Operation {
  explicit MemoryWordsOperation(std::shared_ptr<ExecutionContext> where)
      : Operation(OperationKind::kMemoryWords, std::move(where)) {}

  std::vector<WordAction> actions;
  std::shared_ptr<const void> kept;             // where the words are, if nothing else keeps them
  size_t next GUARDED_BY(scheduler_mutex) = 0;  // the first action that is not carried out
};

// What cuGraphConditionalHandleCreate makes: a number that kernels set and conditional nodes read.
struct Condition {
  std::shared_ptr<ExecutionContext> execution;  // whose kernels may set it
  CUcontext view = nullptr;                     // of the green context of its bodies; null: none
  std::atomic<uint32_t> value{0};
  uint32_t initial = 0;
  bool assigns = false;                       // `initial` at each launch of the graph
  bool used GUARDED_BY(graph_mutex) = false;  // by a node
};

// A node that decides, when its turn has come and again after each body, what is to run.
struct ConditionalOperation : Operation {
  explicit ConditionalOperation(std::shared_ptr<ExecutionContext> where)
      : Operation(OperationKind::kConditional, std::move(where)) {}
  // Submit the body that the condition names; false: nothing is to run any more. `self` is this.
  virtual bool submit_body(Submission& submission,
                           const std::shared_ptr<ConditionalOperation>& self)
      REQUIRES(scheduler_mutex) = 0;
};

// What happens at a point of a stream without a thread's help: event records, frees.
struct MarkerOperation final : Operation {
  explicit MarkerOperation(std::shared_ptr<ExecutionContext> where)
      : Operation(OperationKind::kMarker, std::move(where)) {}

  uint64_t freed_address = 0;        // cuMemFreeAsync: the allocation that ends here
  std::shared_ptr<const void> kept;  // destroyed by the program, alive until here
  std::vector<std::shared_ptr<Condition>> assigned;  // a graph begins: these get their defaults
  OperationPtr again;                                // becomes ready once more
  std::shared_ptr<Offspring> graph_run;              // ends here
  std::shared_ptr<KernelOperation> grid;             // what it has launched has ended
};

}  // namespace openmps::softgpu
