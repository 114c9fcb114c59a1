// SPDX-License-Identifier: Apache-2.0
// Launching executable graphs in streams. API threads.
#pragma once

#include "cuda/status.h"

namespace openmps::softgpu {

struct GraphExec;
struct Stream;

// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED in a stream that is being captured; the errors of
// GraphMemory::open().
Status launch_graph(GraphExec& exec, Stream& stream);

}  // namespace openmps::softgpu
