// SPDX-License-Identifier: Apache-2.0
#include "cupti/driver.h"

#include <dlfcn.h>

#include <atomic>

namespace openmps::cupti {
namespace {

// Never closed: the program has it for good, too. Looked for anew as long as there is none.
void* driver_library() {
  static std::atomic<void*> found{nullptr};
  void* library = found.load();
  if (library != nullptr) return library;
  library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library != nullptr) found = library;
  return library;
}

}  // namespace

void* driver_symbol(const char* name) {
  void* const library = driver_library();
  return library == nullptr ? nullptr : dlsym(library, name);
}

const ActivityTable* activity_table() {
  auto* const get_table =
      driver_function<CUresult(const void**, const CUuuid*)>("cuGetExportTable");
  const void* found = nullptr;
  if (get_table == nullptr || get_table(&found, &kActivityTableId) != CUDA_SUCCESS) return nullptr;
  const auto* const table = static_cast<const ActivityTable*>(found);
  return table != nullptr && table->bytes >= sizeof *table ? table : nullptr;
}

}  // namespace openmps::cupti
