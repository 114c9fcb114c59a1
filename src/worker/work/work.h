// SPDX-License-Identifier: Apache-2.0
// A piece of work for a stream, or for a node of a graph, as a value: checked, its handles looked
// up, in the driver's terms. WorkMaker makes it of a decoded command, once. Then it is submitted to
// a stream (Submitter), becomes a node (GraphBuilder), or is held (HeldWork). Session's thread
// only.
//
// A value refers to the bytes of its command, which the executor keeps until the next command, and
// to the maker's buffers. HeldWork copies these. Device memory is not kept: it is given back behind
// the work that uses it (DeferredReleases).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>

#include "api/driver_table.h"
#include "wire/commands/stream.h"
#include "wire/usage.h"
#include "worker/admission/durations.h"
#include "worker/device/placement.h"
#include "worker/memory/work_range.h"
#include "worker/streams/fence.h"

namespace openmps::worker {

struct Function;

// The work in a launch of an executable graph, by wire::UsageCount.
using GraphCounts = std::array<uint64_t, wire::kUsageCounts>;

// What a piece of work of any kind uses of the session.
struct Uses {
  Lane lane = Lane::kMain;  // the context that runs it
  Cost cost;                // the GPU time that it takes
  // The counter of moved_bytes; kNumber: none.
  wire::UsageCount moves = wire::UsageCount::kNumber;
  uint64_t moved_bytes = 0;
  std::array<WorkRange, 2> ranges{};
  uint64_t command_end = 0;  // SessionCore::command_end of held work
  // Arrays, events, executable graphs: kept as long as the work.
  std::array<std::shared_ptr<const void>, 2> objects;
};

struct KernelWork {
  Function* function = nullptr;
  CUfunction handle = nullptr;  // in that lane
  const wire::Launch* shape = nullptr;
  // As the driver takes them. The last `recorded_behind` name events that a launch in the cold
  // context can't record: these are recorded behind it.
  std::span<const CUlaunchAttribute> attributes;
  size_t recorded_behind = 0;
  std::span<const unsigned char> parameters;
};
struct CopyWork {
  CUdeviceptr destination = 0;
  CUdeviceptr source = 0;
  uint64_t bytes = 0;
  bool orders_all = false;  // wire::kOrderAllStreams
};
struct BoxWork {
  CUDA_MEMCPY3D box{};  // linear memory is of type UNIFIED
  bool orders_all = false;
};
struct FillWork {
  CUDA_MEMSET_NODE_PARAMS fill{};
};
struct ValuesWork {
  std::span<const wire::ValueOperation> operations;  // as the client names them
  std::span<const CUstreamBatchMemOpParams> batch;   // as the GPU does
  size_t waits = 0;                                  // operations that wait

  // The number of operations before the first wait that comes behind a write; 0: there is none.
  [[nodiscard]] size_t waits_behind() const;
  // So many operations from there on.
  [[nodiscard]] ValuesWork part(size_t from, size_t count) const;
};
// A function that the client runs.
struct HostCallWork {
  bool asks = true;           // asks the client to run the function,
  bool awaits = true;         // and makes the stream wait for that: the whole call, or a part of it
  uint32_t slot = 0;          // of the callback slots
  bool answers_soon = false;  // wire::kAnswersSoon
  FenceValue fence;           // written behind it, if there is a slot
};
struct FenceWork {
  FenceValue fence;
  bool in_order = false;  // wire::kFenceInOrder
};
struct RecordWork {
  CUevent event = nullptr;
  FenceValue fence;  // written behind it, if there is a slot
};
struct WaitWork {
  CUevent event = nullptr;
};
// Wake the client's threads.
struct WakeWork {};
// An executable graph. The driver's graph of it may be replaced before it is launched.
class LaunchableGraph {
 public:
  LaunchableGraph() = default;
  virtual ~LaunchableGraph() = default;
  LaunchableGraph(const LaunchableGraph&) = delete;
  LaunchableGraph& operator=(const LaunchableGraph&) = delete;
  // The driver's graph, whose kernels run on the session's current SMs. The stream that it is for
  // has been entered.
  virtual CUgraphExec current() = 0;
  // Launch current() behind its last launch. Returns the driver's result.
  virtual Status launch(CUstream stream) = 0;
};
struct GraphWork {
  LaunchableGraph* exec = nullptr;
  const GraphCounts* counts = nullptr;       // of a launch; valid as long as Uses::objects
  bool is_cold = false;                      // some nodes run in the cold context
  bool may_wait = false;                     // some node waits for the client
  bool names_events = false;                 // records events or waits for them
  bool names_constants = false;              // copies or fills constants (constants.h)
  std::span<const wire::StreamValue> waits;  // the values that nodes wait for
};
// Upload an executable graph to the device.
struct UploadWork {
  LaunchableGraph* exec = nullptr;
};

struct Work {
  Uses uses;
  std::variant<std::monostate, KernelWork, CopyWork, BoxWork, FillWork, ValuesWork, HostCallWork,
               FenceWork, RecordWork, WaitWork, WakeWork, GraphWork, UploadWork>
      what;
};

// The command that a failure of the work is reported as.
[[nodiscard]] wire::Opcode opcode_of(const Work& work);

// An operation on a value as the driver takes it. `address` is the GPU's.
[[nodiscard]] CUstreamBatchMemOpParams operation_of(wire::ValueKind kind,
                                                    const wire::StreamValue& value,
                                                    CUdeviceptr address);

// A kernel's parameters as the driver takes them.
class PackedParameters {
 public:
  explicit PackedParameters(std::span<const unsigned char> parameters)
      : bytes_(parameters.size()),
        list_{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<unsigned char*>(parameters.data()),
              CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes_, CU_LAUNCH_PARAM_END} {}
  PackedParameters(const PackedParameters&) = delete;
  PackedParameters& operator=(const PackedParameters&) = delete;

  [[nodiscard]] void** extra() { return bytes_ == 0 ? nullptr : list_; }
  // A launch with these parameters as a node of a graph; valid as long as this object.
  [[nodiscard]] CUDA_KERNEL_NODE_PARAMS node(CUfunction function, const wire::Launch& shape);

 private:
  size_t bytes_;
  void* list_[5];
};

// A piece of held work: a copy of all that it points to, and shares of the code and the objects
// that it uses.
class HeldWork {
 public:
  // `work` is as WorkMaker has made it. Throws std::bad_alloc.
  explicit HeldWork(const Work& work);
  HeldWork(const HeldWork&) = delete;
  HeldWork& operator=(const HeldWork&) = delete;

  [[nodiscard]] const Work& work() const { return work_; }
  // Bytes allocated outside of this object.
  [[nodiscard]] size_t bytes() const { return outside_bytes_; }

 private:
  // More than the parameters of most kernels.
  static constexpr size_t kBytesInside = 512;

  template <typename... T>
  void own(std::span<const T>&... parts);

  Work work_;
  std::shared_ptr<const Function> function_;
  alignas(std::max_align_t) std::array<unsigned char, kBytesInside> inside_;
  std::unique_ptr<unsigned char[]> outside_;  // for more than that
  size_t outside_bytes_ = 0;
};

}  // namespace openmps::worker
