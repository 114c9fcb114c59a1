// SPDX-License-Identifier: Apache-2.0
// cuModule* and cuLibrary*: implementations behind the generated entry points, on the program's
// threads.
#include <string>
#include <utility>

#include "api/client_handlers.h"
#include "client/context/module.h"
#include "client/debug.h"
#include "client/session/context.h"
#include "client/session/enter.h"

namespace openmps::client {
namespace {

// `what`: for the line that says why it was refused.
CUresult take_image(Result<Image> found, const char* what, Image* image) {
  if (!found.ok()) {
    debug_line("%s was refused: %s", what, found.status().message().c_str());
    return found.status().code();
  }
  *image = std::move(*found);
  return CUDA_SUCCESS;
}

CUresult image_of(const void* data, Image* image) {
  return take_image(find_image(data), "an image", image);
}

CUresult image_of_file(const char* name, std::vector<std::byte>* contents, Image* image) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(read_image_file(name, contents));
  return take_image(find_image(std::span<const std::byte>(*contents)), name, image);
}

CUresult load(Session& session, Context& context, const Image& image, const JitOptions& options,
              CUmodule* handle) {
  Module* module = nullptr;
  OPENMPS_CUDA_CHECK(
      session.modules.load(&context, wire::ModuleKind::kModule, image, options, &module));
  *handle = module->as<CUmodule>();
  return CUDA_SUCCESS;
}

// The first `count` functions of a module or kernels of a library, in the driver's order.
template <typename Handle>
CUresult enumerate(Session& session, Module& module, Handle* handles, unsigned int count) {
  if (handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::string> names;
  OPENMPS_CUDA_CHECK(session.modules.function_names(module, &names));
  for (size_t i = 0; i < names.size() && i < count; ++i) {
    Function* function = nullptr;
    OPENMPS_CUDA_CHECK(session.modules.get_function(module, names[i].c_str(), &function));
    handles[i] = function->as<Handle>();
  }
  return CUDA_SUCCESS;
}

bool preserved(unsigned int count, const CUlibraryOption* options, void* const* values) {
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) {
      return values == nullptr || values[i] != nullptr;
    }
  }
  return false;
}

}  // namespace

CUresult global_of(Session& session, Module& module, const char* name, SymbolKind kind,
                   CUdeviceptr* address, size_t* bytes) {
  if (kind == SymbolKind::kGlobal && address == nullptr && bytes == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context = nullptr;
  wire::GetGlobal::Reply global{};
  // A managed variable is one for all devices, and needs no context.
  if (kind == SymbolKind::kManaged) {
    context = session.contexts.primary[0];
  } else {
    OPENMPS_CUDA_CHECK(session.contexts.current(&context));
  }
  OPENMPS_CUDA_CHECK(session.modules.get_global(module, context, name, kind, &global));
  if (address != nullptr) *address = global.address;
  if (bytes != nullptr) *bytes = global.bytes;
  return CUDA_SUCCESS;
}

CUresult symbol_count(Session& session, Module& module, unsigned int* functions) {
  OPENMPS_CUDA_CHECK(session.modules.ensure_loaded(module));
  wire::ModuleSymbols::Reply reply{};
  OPENMPS_CUDA_CHECK(session.channel.call(wire::ModuleSymbols{module.id}, &reply));
  *functions = reply.functions;
  return CUDA_SUCCESS;
}

namespace impl {

CUresult cuModuleLoadDataEx(Session& session, Context& context, CUmodule* module, const void* image,
                            unsigned int numOptions, CUjit_option* options, void** optionValues) {
  JitOptions jit;
  OPENMPS_CUDA_CHECK(parse_jit_options(numOptions, options, optionValues, &jit));
  Image found;
  OPENMPS_CUDA_CHECK(image_of(image, &found));
  return load(session, context, found, jit, module);
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (module == nullptr || fname == nullptr || *fname == '\0') return CUDA_ERROR_INVALID_VALUE;
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  std::vector<std::byte> contents;
  Image image;
  OPENMPS_CUDA_CHECK(image_of_file(fname, &contents, &image));
  return load(*session, *context, image, JitOptions{}, module);
}

CUresult cuModuleUnload(Session& session, Module& module) {
  if (module.kind == wire::ModuleKind::kLibrary) return CUDA_ERROR_NOT_PERMITTED;
  OPENMPS_CUDA_CHECK(check_unsafe(session));
  return session.output.show(session.modules.unload(&module));
}

CUresult cuModuleGetFunction(Session& session, CUfunction* hfunc, Module& module,
                             const char* name) {
  if (name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(session.modules.get_function(module, name, &function));
  *hfunc = function->as<CUfunction>();
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(Session& session, CUfunction* functions,
                                    unsigned int numFunctions, Module& module) {
  return enumerate(session, module, functions, numFunctions);
}

CUresult cuLibraryLoadData(Session& session, CUlibrary* library, const void* code,
                           CUjit_option* jitOptions, void** jitOptionsValues,
                           unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                           void** libraryOptionValues, unsigned int numLibraryOptions) {
  if (numLibraryOptions != 0 && libraryOptions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < numLibraryOptions; ++i) {
    if (libraryOptions[i] < 0 || libraryOptions[i] >= CU_LIBRARY_NUM_OPTIONS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  JitOptions jit;
  OPENMPS_CUDA_CHECK(parse_jit_options(numJitOptions, jitOptions, jitOptionsValues, &jit));
  Image image;
  OPENMPS_CUDA_CHECK(image_of(code, &image));
  Module* module = nullptr;
  if (numJitOptions == 0 && preserved(numLibraryOptions, libraryOptions, libraryOptionValues)) {
    OPENMPS_CUDA_CHECK(session.modules.defer_library(std::move(image), &module));
  } else {
    OPENMPS_CUDA_CHECK(
        session.modules.load(nullptr, wire::ModuleKind::kLibrary, image, jit, &module));
  }
  *library = library_handle(*module);
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(Session& session, CUlibrary* library, const char* fileName,
                               CUjit_option* jitOptions, void** jitOptionsValues,
                               unsigned int numJitOptions, CUlibraryOption*, void**, unsigned int) {
  JitOptions jit;
  OPENMPS_CUDA_CHECK(parse_jit_options(numJitOptions, jitOptions, jitOptionsValues, &jit));
  std::vector<std::byte> contents;
  Image image;
  OPENMPS_CUDA_CHECK(image_of_file(fileName, &contents, &image));
  Module* module = nullptr;
  OPENMPS_CUDA_CHECK(
      session.modules.load(nullptr, wire::ModuleKind::kLibrary, image, jit, &module));
  *library = library_handle(*module);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(Session& session, CUkernel* pKernel, Module& module, const char* name) {
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(session.modules.get_function(module, name, &function));
  *pKernel = function->as<CUkernel>();
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(Session& session, Context&, CUmodule* pMod, Module& module) {
  OPENMPS_CUDA_CHECK(session.modules.ensure_loaded(module));
  *pMod = module.as<CUmodule>();
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(Session& session, CUkernel* kernels, unsigned int numKernels,
                                   Module& module) {
  return enumerate(session, module, kernels, numKernels);
}

}  // namespace impl
}  // namespace openmps::client
