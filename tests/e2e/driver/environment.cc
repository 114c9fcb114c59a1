// SPDX-License-Identifier: Apache-2.0
// CUDA's environment variables about the loading and compilation of code: those of the program
// apply, also if another process executes its work. Run by run_e2e.py. usage: drv_environment
#include <string>
#include <string_view>

#include "driver.h"
#include "in_child.h"

namespace {

CUresult link_ptx(const char* ptx) {
  CUlinkState link = nullptr;
  CHECK_CU(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  std::string_view text = ptx;
  const CUresult added = cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>(ptx),
                                          text.size() + 1, "kernels", 0, nullptr, nullptr);
  CHECK_CU(cuLinkDestroy(link));
  return added;
}

void tell(const char* setting) {
  CUcontext context = nullptr;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(cuCtxSetCurrent(context));
  CUmoduleLoadingMode mode{};
  CHECK_CU(cuModuleGetLoadingMode(&mode));
  CUmodule module = nullptr;
  const CUresult loaded = cuModuleLoadData(&module, e2e::kernels_ptx());
  const CUresult linked = link_ptx(e2e::kernels_ptx());
  printf("%s: %s, loading PTX: %s, linking it: %s\n", setting,
         mode == CU_MODULE_EAGER_LOADING ? "eager" : "lazy", e2e::name(loaded), e2e::name(linked));
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(0));
}

// `settings`: NAME=VALUE for each variable, separated by spaces.
void with_settings(const char* settings) {
  e2e::in_child([settings] {
    std::string rest = settings;
    for (char* one = strtok(rest.data(), " "); one != nullptr; one = strtok(nullptr, " ")) {
      char* value = strchr(one, '=');
      *value = '\0';
      setenv(one, value + 1, 1);
    }
    tell(settings);
  });
}

}  // namespace

int main() {
  for (const char* settings :
       {"", "CUDA_MODULE_LOADING=EAGER", "CUDA_MODULE_LOADING=eager", "CUDA_MODULE_LOADING=LAZY",
        "CUDA_MODULE_LOADING=DEFAULT", "CUDA_MODULE_LOADING=other", "CUDA_DISABLE_PTX_JIT=1",
        "CUDA_DISABLE_JIT=1", "CUDA_DISABLE_PTX_JIT=0", "CUDA_DISABLE_PTX_JIT=2",
        "CUDA_DISABLE_PTX_JIT=yes", "CUDA_DISABLE_PTX_JIT=0 CUDA_DISABLE_JIT=1",
        "CUDA_FORCE_PTX_JIT=1", "CUDA_FORCE_JIT=1", "CUDA_FORCE_PTX_JIT=1 CUDA_DISABLE_PTX_JIT=1",
        "CUDA_CACHE_DISABLE=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}) {
    with_settings(settings);
  }
  return e2e::finish();
}
