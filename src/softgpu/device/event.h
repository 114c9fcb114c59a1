// SPDX-License-Identifier: Apache-2.0
// Events: the last operation recorded into each, and the times of two of them. API threads.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cuda/status.h"
#include "softgpu/device/execution_context.h"
#include "softgpu/device/work.h"

namespace openmps::softgpu {

class Context;
class Driver;
struct Capture;
struct SharedEvent;
struct GraphNode;
struct Stream;

struct Event {
  CUevent handle = nullptr;
  std::shared_ptr<Context> context;
  std::shared_ptr<ExecutionContext> execution;
  unsigned flags = 0;

  std::mutex mutex;
  OperationPtr record;                  // null: never recorded
  std::shared_ptr<SharedEvent> shared;  // of CU_EVENT_INTERPROCESS: what all processes see of it
  // Recorded in a captured stream: what a wait on it depends on. Guarded by the capture mutex.
  std::shared_ptr<Capture> capture;
  std::vector<std::shared_ptr<GraphNode>> capture_nodes;
};

Result<std::shared_ptr<Event>> create_event(const std::shared_ptr<Context>& context,
                                            unsigned flags);
// Another process's.
Result<std::shared_ptr<Event>> adopt_event(const std::shared_ptr<Context>& context,
                                           std::shared_ptr<SharedEvent> shared);
// What a record or a wait is; a wait has its edge to the record besides. Events that processes
// share are counted in memory.
Work record_work(const Event& event);
Work wait_work(const Event& event);
Status record_event(Event& event, Stream& stream);
// The event is reached when everything issued so far to the context is done; of a primary context,
// to its green contexts, too. CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
Status record_context_event(Driver& driver, const Context& context, Event& event);
// What is issued later to the context's streams waits for the event. (Not in streams made later.)
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
Status wait_context_event(Driver& driver, const Context& context, Event& event);
Status wait_event(Stream& stream, Event& event);
// CUDA_SUCCESS also for an event that was never recorded; CUDA_ERROR_NOT_READY.
Status query_event(Event& event);
// What the event was last recorded into, null: never; and a record by a graph that is launched.
OperationPtr last_record(Event& event);
void set_record(Event& event, OperationPtr record);
Status synchronize_event(Event& event);
// In milliseconds. CUDA_ERROR_INVALID_HANDLE: not recorded or made without timing;
// CUDA_ERROR_NOT_READY.
Result<float> elapsed_ms(Event& start, Event& end);

}  // namespace openmps::softgpu
