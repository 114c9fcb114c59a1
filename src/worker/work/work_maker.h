// SPDX-License-Identifier: Apache-2.0
// From commands to work: every number, id and handle of a piece of stream work is checked and
// looked up here, for streams and for nodes of graphs. The caller checks memory that is named by
// address (work_range.h). Session's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "worker/code/module.h"
#include "worker/core/session_core.h"
#include "worker/memory/memory.h"
#include "worker/streams/array.h"
#include "worker/streams/event.h"
#include "worker/work/work.h"

namespace openmps::worker {

class WorkMaker {
 public:
  WorkMaker(SessionCore& core, SessionMemory& memory, Modules& modules, Events& events,
            Arrays& arrays)
      : core_(core), memory_(memory), modules_(modules), events_(events), arrays_(arrays) {}

  // Grid, block and shared memory are checked by the driver. The session is not between the gate's
  // enter() and leave().
  Status make(const wire::Launch& command, const wire::Launch::Tail& tail, Function& function,
              const Placement& place, Modules::Reach reach, Uses* uses, KernelWork* kernel);
  Status make(const wire::Memcpy& command, Uses* uses, CopyWork* copy);
  Status make(const wire::Memcpy3D& command, Uses* uses, BoxWork* copy);
  // The driver checks whether a box fits its array.
  Status make(const wire::ArrayCopy& command, Uses* uses, BoxWork* copy);
  Status make(const wire::Memset& command, Uses* uses, FillWork* fill);
  // At most wire::kMaxBatch of them.
  Status make(std::span<const wire::ValueOperation> operations, Uses* uses, ValuesWork* values);
  Status make(const wire::HostFunction& command, Uses* uses, HostCallWork* call);
  Status make(const wire::Fence& command, Uses* uses, FenceWork* fence);
  Status make(Event& event, const FenceValue& fence, Uses* uses, RecordWork* record);
  Status make(Event& event, Uses* uses, WaitWork* wait);

 private:
  // Bytes that are copied or written, over the host's bus or not.
  static Cost cost_of(uint64_t bytes, bool over_bus);
  // Uses of a copy between these addresses. 0: an array.
  void set_copy(uint64_t from, uint64_t to, uint64_t bytes, Uses* uses) const;
  // The SMs that a launch keeps busy and needs.
  void set_sms(const wire::Launch& shape, Function& function, const Located& located, Cost* cost);
  // Every launch of the function is one of clusters.
  bool has_clusters(Function& function, const Located& located);
  // Blocks that fit on an SM at once; 0: the driver does not say.
  int occupancy_of(const Located& located, int threads, uint32_t shared_bytes);
  Status translate(CUlaunchAttribute* attribute, uint32_t device, Uses* uses);
  // The driver's event, which the work keeps.
  Status use(Event& event, Uses* uses, CUevent* handle);
  Status add_attributes(const wire::Launch& command, const wire::Launch::Tail& tail,
                        uint32_t device, Uses* uses, KernelWork* kernel);

  SessionCore& core_;
  SessionMemory& memory_;
  Modules& modules_;
  Events& events_;
  Arrays& arrays_;
  // The work that was made last refers to these.
  std::array<CUlaunchAttribute, wire::kMaxLaunchAttributes + 1> attributes_;
  std::array<CUstreamBatchMemOpParams, wire::kMaxBatch> batch_;
};

}  // namespace openmps::worker
