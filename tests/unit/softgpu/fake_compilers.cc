// SPDX-License-Identifier: Apache-2.0
// See fake_compilers.h. NVRTC gives size 0 for machine code that it was not asked for, nvJitLink an
// error, as those of CUDA 13.0 do.
#include "fake_compilers.h"

#include <algorithm>
#include <cstring>

namespace {
constexpr int kInvalidInput = 3;  // in both libraries
FakeCompilers state;

int size_of(const std::string& code, size_t* size) {
  if (size == nullptr || code.empty()) return kInvalidInput;
  *size = code.size() + 1;
  return 0;
}
int copy(const std::string& code, void* to) {
  if (code.empty()) return kInvalidInput;
  std::memcpy(to, code.c_str(), code.size() + 1);
  return 0;
}
}  // namespace

FakeCompilers* fake_compilers() { return &state; }

int nvrtcCompileProgram(void* /*program*/, int count, const char* const* options) {
  state.options.assign(options, options + count);
  return 0;
}
int nvrtcGetCUBINSize(void* /*program*/, size_t* size) {
  if (size == nullptr) return kInvalidInput;
  *size = state.machine_code.empty() ? 0 : state.machine_code.size() + 1;
  return 0;
}
int nvrtcGetCUBIN(void* /*program*/, char* code) { return copy(state.machine_code, code); }
FAKE_COMPILERS int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(state.architectures.size());
  return 0;
}
FAKE_COMPILERS int nvrtcGetSupportedArchs(int* architectures) {
  std::copy(state.architectures.begin(), state.architectures.end(), architectures);
  return 0;
}
FAKE_COMPILERS int nvrtcGetPTXSize(void* /*program*/, size_t* size) {
  return size_of(state.ptx, size);
}
FAKE_COMPILERS int nvrtcGetPTX(void* /*program*/, char* code) { return copy(state.ptx, code); }

int __nvJitLinkCreate_13_0(void** handle, unsigned count, const char** options) {
  state.options.assign(options, options + count);
  *handle = &state;
  return 0;
}
int __nvJitLinkGetLinkedCubinSize_13_0(void* /*handle*/, size_t* size) {
  return size_of(state.machine_code, size);
}
int __nvJitLinkGetLinkedCubin_13_0(void* /*handle*/, void* code) {
  return copy(state.machine_code, code);
}
FAKE_COMPILERS int __nvJitLinkGetLinkedPtxSize_13_0(void* /*handle*/, size_t* size) {
  return size_of(state.ptx, size);
}
FAKE_COMPILERS int __nvJitLinkGetLinkedPtx_13_0(void* /*handle*/, char* code) {
  return copy(state.ptx, code);
}
