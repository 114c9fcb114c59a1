// SPDX-License-Identifier: Apache-2.0
// The one way work gets onto the device: issue(). A stream that is being captured turns the same
// work into graph nodes instead. API threads.
#pragma once

#include <span>

#include "cuda/status.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

// Queue work on a stream, or add it to the graph that the stream is captured into. `after`:
// operations that it must wait for besides the stream's order. `issued`: the operation, null when
// captured. Errors: capture errors.
Status issue(Stream& stream, const Work& work, OperationPtr* issued = nullptr,
             std::span<const OperationPtr> after = {});

// Of what the call that this thread is in gives to the stream, if it is recorded.
WorkOrigin give_work(const Stream& stream);

// What the device does by itself was given to the stream: with CUDA_LAUNCH_BLOCKING the call waits
// for the context's work. Its sticky error.
Status launched(Stream& stream);

// cuStreamSynchronize: wait for everything in it. The sticky error of the context, if it failed.
Status synchronize_stream(Stream& stream);
Status query_stream(Stream& stream);  // CUDA_ERROR_NOT_READY

// Work in it goes on. CUDA_ERROR_INVALID_HANDLE for default streams and unknown handles.
Status destroy_stream(Driver& driver, CUstream handle);

}  // namespace openmps::softgpu
