// SPDX-License-Identifier: Apache-2.0
// What a stream is given, or a node of a graph does, as one value: checked, its handles looked up,
// in the driver's own terms. WorkMaker makes it of a decoded command, once; then it is submitted to
// a stream (Submitter), becomes a node (GraphBuilder), or is held back (HeldWork). Session's thread
// only.
//
// It refers to what it was made of: to the bytes of the command, which the executor keeps until the
// next, and to the maker's buffer. Only held work has all of it for itself. Memory is not kept
// alive: whatever gives it back comes behind the work that uses it (Retirement).
#pragma once

#include <array>
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

// What a launch of an executable graph does, by wire::UsageCount.
using GraphCounts = std::array<uint64_t, wire::kUsageCounts>;

// What of the session it uses, whatever it does.
struct Uses {
  Lane lane = Lane::kMain;  // whose context it belongs to
  Cost cost;                // of the GPU's time
  // What it is counted as besides, in bytes; kNumber: nothing.
  wire::UsageCount moves = wire::UsageCount::kNumber;
  uint64_t moved_bytes = 0;
  std::array<WorkRange, 2> ranges{};
  // Arrays, events, executable graphs: they live as long as this.
  std::array<std::shared_ptr<const void>, 2> objects;
};

struct KernelWork {
  Function* function = nullptr;
  CUfunction handle = nullptr;  // in that lane
  const wire::Launch* shape = nullptr;
  // As the driver takes them. The last `recorded_behind` name events that a launch in the cold lane
  // can't record: that is done behind it.
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
  size_t waits = 0;                                  // of them

  // The number of operations before a wait that comes behind something else; 0: there is none.
  [[nodiscard]] size_t waits_behind() const;
  // So many of them, and the others.
  [[nodiscard]] ValuesWork first(size_t count) const { return part(0, count); }
  [[nodiscard]] ValuesWork behind(size_t count) const {
    return part(count, operations.size() - count);
  }

 private:
  [[nodiscard]] ValuesWork part(size_t from, size_t count) const;
};
// A function that the client runs.
struct HostCallWork {
  // All of it, or what asks the client to run it and what waits for that, one behind the other.
  enum class Part { kWhole, kAsk, kAwait };
  Part part = Part::kWhole;
  uint32_t slot = 0;          // of the callback slots
  bool answers_soon = false;  // wire::kAnswersSoon
  FenceValue fence;           // behind it, if it has a slot
};
struct FenceWork {
  FenceValue fence;
  bool in_order = false;  // wire::kFenceInOrder
};
struct RecordWork {
  CUevent event = nullptr;
  FenceValue fence;  // behind it, if it has a slot
};
struct WaitWork {
  CUevent event = nullptr;
};
// Wake the client's threads.
struct WakeWork {};
// An executable graph. What the driver has of it may be another one by the time it is launched.
class LaunchableGraph {
 public:
  LaunchableGraph() = default;
  virtual ~LaunchableGraph() = default;
  LaunchableGraph(const LaunchableGraph&) = delete;
  LaunchableGraph& operator=(const LaunchableGraph&) = delete;
  // The driver's, whose kernels run in what the session has of the device now. The stream that it
  // is for has been entered.
  virtual CUgraphExec current() = 0;
  // That one, behind its last launch. What the driver says.
  virtual Status launch(CUstream stream) = 0;
};
struct GraphWork {
  LaunchableGraph* exec = nullptr;
  const GraphCounts* counts = nullptr;       // of a launch; as long as the objects
  bool is_cold = false;                      // with nodes of the cold lane
  bool may_wait = false;                     // for the client, in some node
  bool names_events = false;                 // records events or waits for them
  std::span<const wire::StreamValue> waits;  // the values that nodes wait for
};
// Get an executable graph to the device.
struct UploadWork {
  LaunchableGraph* exec = nullptr;
};

struct Work {
  Uses uses;
  std::variant<std::monostate, KernelWork, CopyWork, BoxWork, FillWork, ValuesWork, HostCallWork,
               FenceWork, RecordWork, WaitWork, WakeWork, GraphWork, UploadWork>
      what;
};

// Calls whichever of several lambdas takes what a Work is.
template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
// As the standard has it by itself; clang has it since 17.
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

// An operation on a value as the driver takes it; `address` as the GPU knows it.
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

 private:
  size_t bytes_;
  void* list_[5];
};

}  // namespace openmps::worker
