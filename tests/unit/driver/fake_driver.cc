// SPDX-License-Identifier: Apache-2.0
// A library with a few entry points of a driver; what it claims to be is set by the build.
#include "cuda/abi.h"

#ifndef FAKE_DEVICES
#define FAKE_DEVICES 0
#endif
#ifndef FAKE_INIT_RESULT
#define FAKE_INIT_RESULT 0
#endif
#define EXPORT __attribute__((visibility("default")))

extern "C" {

#ifdef FAKE_KIND
EXPORT extern const char openmps_library_kind[] = FAKE_KIND;
#endif

#ifdef FAKE_NO_ENTRY_POINTS
EXPORT int unrelated() { return 0; }
#else
EXPORT CUresult cuInit(unsigned int) { return static_cast<CUresult>(FAKE_INIT_RESULT); }
EXPORT CUresult cuDeviceGetCount(int* count) {
  *count = FAKE_DEVICES;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
#endif

}  // extern "C"
