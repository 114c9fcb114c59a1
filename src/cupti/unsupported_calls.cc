// SPDX-License-Identifier: Apache-2.0
// NVIDIA's other functions. A program that is linked with NVIDIA's library may need every name of
// it to be loaded at all, whatever it calls.
#include "cupti/abi.h"

#pragma GCC visibility push(default)
extern "C" {

#define UNSUPPORTED(name) \
  CUptiResult name() { return CUPTI_ERROR_NOT_SUPPORTED; }
#include "cupti/unsupported.def"
#undef UNSUPPORTED

// By which NVTX's calls are handed to a tool. 0: nobody wants them.
int InitializeInjectionNvtx() { return 0; }
int InitializeInjectionNvtx2() { return 0; }
int InitializeInjectionNvtxExtension() { return 0; }

}  // extern "C"
#pragma GCC visibility pop
