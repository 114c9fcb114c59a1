// SPDX-License-Identifier: Apache-2.0
// See llvm_api.h.
#include "softgpu/tier/llvm_api.h"

#include <dlfcn.h>

#include <string>

namespace openmps::softgpu::tier {
namespace {

// Newest first. Those of Debian and Ubuntu, and the name that LLVM gives itself since 18.
constexpr const char* kLibraries[] = {"libLLVM.so.20.1", "libLLVM.so.19.1", "libLLVM-19.so.1",
                                      "libLLVM.so.18.1", "libLLVM-18.so.1", "libLLVM-17.so.1",
                                      "libLLVM-16.so.1", "libLLVM-15.so.1", "libLLVM-14.so.1"};

// LLVM may be in the process already, the program's own: the symbols of this copy stay its own
// (RTLD_LOCAL), and each is asked of this copy.
bool find_all(void* library, Llvm* llvm) {
  bool found = true;
  const auto find = [&](auto* function, const char* name) {
    *reinterpret_cast<void**>(function) = dlsym(library, (std::string("LLVM") + name).c_str());
    found &= *function != nullptr;
  };
#define NAME(result, name, parameters) find(&llvm->name, #name);
  LLVM_FUNCTIONS(NAME)
#undef NAME
  return found;
}

const Llvm* load() {
  for (const char* name : kLibraries) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) continue;
    auto* llvm = new Llvm;  // immortal, as the library is
    if (!find_all(library, llvm)) {
      delete llvm;
      continue;
    }
    llvm->InitializeX86TargetInfo();
    llvm->InitializeX86Target();
    llvm->InitializeX86TargetMC();
    llvm->InitializeX86AsmPrinter();
    return llvm;
  }
  return nullptr;
}

}  // namespace

const Llvm* load_llvm() {
#if defined(__x86_64__)
  static const Llvm* const llvm = load();
  return llvm;
#else
  return nullptr;
#endif
}

}  // namespace openmps::softgpu::tier
