// SPDX-License-Identifier: Apache-2.0
// What the generated implementations (api/client_calls.cc) use: how a call begins, the objects that
// it finds, and what the description asks of them. On the program's threads.
#pragma once

#include "base/program_switches.h"
#include "client/session/context.h"
#include "client/session/enter.h"
#include "client/session/session.h"
#include "cuda/arrays.h"

namespace openmps::client {

// NULL where the stream belongs to no green context.
inline CUgreenCtx green_of(const Stream& stream) {
  const GreenContext* green = stream.context->green;
  return green != nullptr ? green->as<CUgreenCtx>() : nullptr;
}

// What a handle is answered with behind which there is no green context.
inline CUresult missing_green(CUgreenCtx handle) {
  const uint64_t tag = reinterpret_cast<uint64_t>(handle) >> 56;
  return tag == kHandleTag + static_cast<uint64_t>(HandleKind::kGreenContext)
             ? CUDA_ERROR_CONTEXT_IS_DESTROYED
             : CUDA_ERROR_INVALID_CONTEXT;
}

// All work of the context is done; reports errors of earlier calls. Refused while one of its
// streams captures.
[[nodiscard]] CUresult synchronize_context(Session& session, Context& context);

// A variable; `address` and `bytes` may be null.
[[nodiscard]] CUresult global_of(Session& session, Module& module, const char* name,
                                 SymbolKind kind, CUdeviceptr* address, size_t* bytes);
// Functions of a module, or kernels of a library.
[[nodiscard]] CUresult symbol_count(Session& session, Module& module, unsigned int* functions);

// cuGraphDebugDotPrint: a graph as a DOT file, written by this process. `flags`:
// CUgraphDebugDot_flags. Errors: CUDA_ERROR_OPERATING_SYSTEM: the file can't be written.
[[nodiscard]] CUresult write_dot(const Session& session, const Graph& graph, const char* path,
                                 unsigned int flags);

// What functions and kernels are asked and told, of a device by the program's ordinal.
[[nodiscard]] CUresult read_attribute(Session& session, const Function& function,
                                      CUfunction_attribute attribute, uint32_t device, int* value);
[[nodiscard]] CUresult write_attribute(Session& session, Function& function,
                                       CUfunction_attribute attribute, uint32_t device, int value);
[[nodiscard]] CUresult prefer_cache(Session& session, const Function& function, uint32_t device,
                                    CUfunc_cache config);
// `bytes` may be null. Errors: CUDA_ERROR_INVALID_VALUE: there is no such parameter.
[[nodiscard]] CUresult parameter_info(const Function& function, size_t index, size_t* offset,
                                      size_t* bytes);
// The device whose attributes a CUfunction means: that of the current context. Programs also ask
// without one; then it is the first.
[[nodiscard]] uint32_t current_device(Session& session);

}  // namespace openmps::client
