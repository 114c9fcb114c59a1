// SPDX-License-Identifier: Apache-2.0
// The seam between generated client code and src/client. "Hook" functions are written by hand in
// src/client; "generated" ones come from client_entry.cc. Any thread, unless said otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "api/default_stream.h"
#include "api/driver_table.h"
#include "base/cuda_abi.h"

namespace openmps::client {

// ---- Entry points ------------------------------------------------------------------------------

// Hook. Called by the first call into the library, by every thread that is early enough to see the
// initial entries. Decides once between OpenMPS and the driver below, and before it returns has
// called install_remote_entries() or install_pass_through_entries(). When neither is possible it
// installs the remote entries, and the implementations return their error.
void resolve_mode();

// Generated. All entries lead to openmps::client::impl, whose failures go to call_failed().
void install_remote_entries();

// Hook. A function that the program called is about to return `result`, no success.
void call_failed(DriverSymbol symbol, CUresult result);

// What else calls are to be told to, as bits of Attention; 0 for almost all programs, always.
enum Attention : uint32_t {
  kCallsAreRecorded = 1,  // call_succeeded() wants to hear of them
  kMemoryIsShort = 2,     // an allocation of this library has failed
  kHostFunctionRuns = 4,  // one of the program's functions, on a thread of this library
};
extern constinit std::atomic<uint32_t> g_attention;

// Hooks, only with attention: a function that the program called may begin (or what it returns
// instead), and is about to return CUDA_SUCCESS.
CUresult before_call(DriverSymbol symbol);
void call_succeeded(DriverSymbol symbol);

// Hook. Why the function that this thread is in will fail; a constant text.
void explain_failure(const char* reason);

// Hook. In a handler: the CUresult of a call whose implementation ended by the exception that is
// being handled.
CUresult result_of_exception() noexcept;

// Generated. Entries lead to the driver's own functions; where the driver has none the entry
// returns CUDA_ERROR_NOT_SUPPORTED. `driver` is read during the call only.
void install_pass_through_entries(const DriverTable& driver);

// Generated. What the entry of a symbol (DriverSymbol as number) leads to now: this is what
// cuGetProcAddress hands out, so that a program's calls skip the entry table. Null beyond the
// table.
void* entry_target(uint16_t symbol);

// ---- Generated messages ------------------------------------------------------------------------

// Hook. Sends a request of the current context and waits for the reply. `reply` gets at most
// `reply_capacity` bytes and *reply_bytes the number written. An error means that nothing was
// executed or that the session is lost; the function's own result is inside the reply.
CUresult remote_call(uint16_t opcode, const void* request, size_t request_bytes, void* reply,
                     size_t reply_capacity, size_t* reply_bytes);
// Hook. The same for a function that names its device: it needs no context.
CUresult remote_device_call(uint16_t opcode, const void* request, size_t request_bytes, void* reply,
                            size_t reply_capacity, size_t* reply_bytes);

// Hook. Sends a request without reply; a failure of the function becomes a later call's error.
CUresult remote_post(uint16_t opcode, const void* request, size_t request_bytes);

// Hook. The worker's number of a device of this client; CUDA_ERROR_INVALID_DEVICE if there is none.
CUresult device_to_wire(CUdevice device, uint32_t* id);

// Hooks, one set per handle type that a generated function names. NULL is id 0 and no error: what
// it means is the worker's to say. Other values that are no live handle: the CUDA error for that
// kind (CUDA_ERROR_INVALID_HANDLE, for contexts CUDA_ERROR_INVALID_CONTEXT).
#define OPENMPS_DECLARE_HANDLE(handle, name)                 \
  CUresult handle_to_wire(handle value, uint32_t* id);       \
  /* A fresh handle and its id, before the object exists. */ \
  CUresult mint_handle(handle* value, uint32_t* id);         \
  /* The object is gone, or its creation failed. */          \
  void drop_handle(handle value);
OPENMPS_HANDLE_TYPES(OPENMPS_DECLARE_HANDLE)
#undef OPENMPS_DECLARE_HANDLE

}  // namespace openmps::client
