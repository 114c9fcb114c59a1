// SPDX-License-Identifier: Apache-2.0
// Stands for libnvrtc and libnvJitLink behind libsoftgpu-ptx.so: what they are asked, and what they
// give. One thread.
#pragma once

#include <string>
#include <vector>

#define FAKE_COMPILERS extern "C" __attribute__((visibility("default")))

struct FakeCompilers {
  std::vector<std::string> options;  // of the last nvrtcCompileProgram or nvJitLinkCreate
  std::vector<int> architectures = {75, 90, 121};  // that NVRTC knows
  std::string machine_code;                        // "": none was made
  std::string ptx;                                 // "": none was made, asking for it is an error
};
FAKE_COMPILERS FakeCompilers* fake_compilers();

// The calls under test, as the headers of CUDA 13.0 name them.
FAKE_COMPILERS int nvrtcCompileProgram(void* program, int count, const char* const* options);
FAKE_COMPILERS int nvrtcGetCUBINSize(void* program, size_t* size);
FAKE_COMPILERS int nvrtcGetCUBIN(void* program, char* code);
FAKE_COMPILERS int __nvJitLinkCreate_13_0(void** handle, unsigned count, const char** options);
FAKE_COMPILERS int __nvJitLinkGetLinkedCubinSize_13_0(void* handle, size_t* size);
FAKE_COMPILERS int __nvJitLinkGetLinkedCubin_13_0(void* handle, void* code);
// Of a version whose library is not there.
FAKE_COMPILERS int __nvJitLinkCreate_12_4(void** handle, unsigned count, const char** options);
