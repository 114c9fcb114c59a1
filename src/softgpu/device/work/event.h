// SPDX-License-Identifier: Apache-2.0
// Events: what each was last recorded into. event_issue.h records them and waits for them. API
// threads.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "cuda/status.h"
#include "softgpu/device/schedule/execution_context.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

class Context;
class Driver;
struct Capture;
struct SharedEvent;
struct GraphNode;

struct Event {
  CUevent handle = nullptr;
  std::shared_ptr<Context> context;
  std::shared_ptr<ExecutionContext> execution;
  unsigned flags = 0;

  Mutex mutex{LockRank::kSoftEvent};
  OperationPtr record GUARDED_BY(mutex);  // null: never recorded
  std::shared_ptr<SharedEvent> shared;    // of CU_EVENT_INTERPROCESS: its counters
  // Recorded in a captured stream: what a wait on it depends on. Guarded by the mutex of Captures.
  std::shared_ptr<Capture> capture;
  std::vector<std::shared_ptr<GraphNode>> capture_nodes;
};

Result<std::shared_ptr<Event>> create_event(const std::shared_ptr<Context>& context,
                                            unsigned flags);
// An event of another process.
Result<std::shared_ptr<Event>> adopt_event(const std::shared_ptr<Context>& context,
                                           std::shared_ptr<SharedEvent> shared);
// The work of a record and of a wait. A wait has an edge to the record besides. Interprocess events
// are counted in memory that the processes share.
Work record_work(const Event& event);
Work wait_work(const Event& event);
// What the event was last recorded into, null: never.
OperationPtr last_record(Event& event);

}  // namespace openmps::softgpu
