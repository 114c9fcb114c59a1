// SPDX-License-Identifier: Apache-2.0
// The seam between generated client code and src/client. "Hook" functions are written by hand in
// src/client; "generated" ones come from client_entry.cc. Any thread, unless said otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "api/default_stream.h"
#include "api/driver_table.h"
#include "cuda/abi.h"

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
  kHostFunctions = 4,     // a program's function runs on a thread of this library, or has
  kExiting = 8,           // the process exits, and has come past cuInit's exit handler
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

}  // namespace openmps::client
