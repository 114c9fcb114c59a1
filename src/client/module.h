// SPDX-License-Identifier: Apache-2.0
// Modules and libraries: their images travel to the worker as blobs, their functions and globals
// are asked for once and remembered with everything that attributes and launches need. Any thread.
#pragma once

#include <string>
#include <vector>

#include "client/image.h"
#include "client/jit_options.h"
#include "client/session.h"
#include "cuda/abi.h"

namespace openmps::client {

// Send an image ahead of the command that uses it; *blob is its name on the wire.
[[nodiscard]] CUresult send_image(Session& session, const Image& image, wire::Id* blob);
// The contents of an image file. Errors: CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_IMAGE (too
// large).
[[nodiscard]] CUresult read_image_file(const char* name, std::vector<std::byte>* contents);

// Send an image and load it. On failure nothing exists.
[[nodiscard]] CUresult load_module(Session& session, Context* context, wire::ModuleKind kind,
                                   const Image& image, const JitOptions& options, Module** module);
// A library whose image the program keeps readable: sent when something of it is first needed.
[[nodiscard]] CUresult defer_library(Session& session, Image image, Module** module);
[[nodiscard]] CUresult ensure_loaded(Session& session, Module& module);

// By name, cached. Errors: CUDA_ERROR_NOT_FOUND and what loading gives.
[[nodiscard]] CUresult get_function(Session& session, Module& module, const char* name,
                                    Function** function);
enum class SymbolKind { kGlobal, kManaged };
// `current`: the context whose device's copy of a library's variable is meant. A managed variable
// has its memory in this process when this returns.
[[nodiscard]] CUresult get_global(Session& session, Module& module, Context* current,
                                  const char* name, SymbolKind kind,
                                  wire::GetGlobal::Reply* global);

// The names of all functions, in the driver's order.
[[nodiscard]] CUresult function_names(Session& session, Module& module,
                                      std::vector<std::string>* names);

// Libraries are handed out with a tag of their own; the object is shared with their CUmodule.
[[nodiscard]] CUlibrary library_handle(const Module& module);
[[nodiscard]] Module* find_library(Session& session, CUlibrary handle);

}  // namespace openmps::client
