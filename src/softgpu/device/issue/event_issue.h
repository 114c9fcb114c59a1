// SPDX-License-Identifier: Apache-2.0
// Recording events in streams, waiting for them, and the times of two of them. API threads.
#pragma once

#include "cuda/status.h"
#include "softgpu/device/work/event.h"

namespace openmps::softgpu {

struct Stream;

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
// A graph that is launched records the event.
void set_record(Event& event, OperationPtr record);
Status synchronize_event(Event& event);
// In milliseconds. CUDA_ERROR_INVALID_HANDLE: not recorded or made without timing;
// CUDA_ERROR_NOT_READY.
Result<float> elapsed_ms(Event& start, Event& end);

}  // namespace openmps::softgpu
