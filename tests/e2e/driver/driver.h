// SPDX-License-Identifier: Apache-2.0
// Shared by the driver-API programs: checks, a session with the embedded kernels, buffers,
// launches. The programs link against -lcuda and run on the libcuda.so.1 that they find. Their
// output follows the rules of ../programs/e2e.h: lines starting with "# " are not compared, and
// exit code 0 means that all checks held.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "api/prototypes.h"
#include "cuda/abi.h"

namespace e2e {

const char* kernels_ptx();            // the PTX text of kernels.cu
const char* condition_kernels_ptx();  // the PTX text of condition_kernels.cu
const char* stateless_kernels_ptx();  // the PTX text of stateless_kernels.cu

inline int& failures() {
  static int count = 0;
  return count;
}

inline const char* name(CUresult result) {
  const char* text = nullptr;
  return cuGetErrorName(result, &text) == CUDA_SUCCESS && text ? text : "(no name)";
}

#define CHECK_CU(call)                                                                        \
  do {                                                                                        \
    const CUresult check_result = (call);                                                     \
    if (check_result != CUDA_SUCCESS) {                                                       \
      printf("%s:%d: %s: %s (%d)\n", __FILE_NAME__, __LINE__, #call, e2e::name(check_result), \
             static_cast<int>(check_result));                                                 \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

__attribute__((format(printf, 2, 3))) inline bool expect(bool holds, const char* format, ...) {
  va_list args;
  va_start(args, format);
  printf("%s: ", holds ? "ok" : "FAILED");
  vprintf(format, args);
  printf("\n");
  va_end(args);
  if (!holds) failures()++;
  return holds;
}

// Reports whether `got` is one of `wanted`. If it is, prints the first of `wanted`, so that the
// line is the same on drivers that choose differently among the codes that CUDA documents for the
// case.
inline bool expect_result(const char* what, CUresult got, std::initializer_list<CUresult> wanted) {
  for (CUresult one : wanted) {
    if (got == one) {
      printf("ok: %s: %s\n", what, name(*wanted.begin()));
      return true;
    }
  }
  printf("FAILED: %s: got %s (%d), expected %s\n", what, name(got), static_cast<int>(got),
         name(*wanted.begin()));
  failures()++;
  return false;
}
inline bool expect_result(const char* what, CUresult got, CUresult wanted) {
  return expect_result(what, got, {wanted});
}

inline int finish() {
  printf("%s\n", failures() == 0 ? "PASSED" : "FAILED");
  return failures() == 0 ? 0 : 1;
}

inline uint64_t hash(const void* data, size_t bytes) {  // FNV-1a
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t h = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3ull;
  return h;
}

struct Random {  // splitmix64
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>((next() >> 32) % limit); }
  float unit() { return static_cast<float>(next() >> 40) / 16777216.0f; }
};

inline size_t argument(int argc, char** argv, int index, size_t fallback) {
  return index < argc ? strtoull(argv[index], nullptr, 10) : fallback;
}

inline unsigned blocks_for(size_t items, unsigned block) {
  return static_cast<unsigned>((items + block - 1) / block);
}

// cuInit, the primary context of device 0 made current, and the kernels loaded. The primary context
// is released at the end of the program's scope.
struct Session {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  explicit Session(const char* ptx = kernels_ptx()) {
    setvbuf(stdout, nullptr, _IOLBF, 0);  // so that no output is lost in a crash
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuModuleLoadData(&module, ptx));
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    CHECK_CU(cuModuleUnload(module));
    CHECK_CU(cuDevicePrimaryCtxRelease_v2(device));
  }
  CUfunction function(const char* kernel) const {
    CUfunction found = nullptr;
    CHECK_CU(cuModuleGetFunction(&found, module, kernel));
    return found;
  }
};

// Device memory that is freed at the end of its scope.
template <typename T>
struct Buffer {
  CUdeviceptr address = 0;
  size_t count;
  explicit Buffer(size_t count_in) : count(count_in) { CHECK_CU(cuMemAlloc_v2(&address, bytes())); }
  explicit Buffer(const std::vector<T>& data) : Buffer(data.size()) { put(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { CHECK_CU(cuMemFree_v2(address)); }
  size_t bytes() const { return count * sizeof(T); }
  // Synchronises, because the driver may return before the last bytes are in device memory, and
  // streams that don't wait for the legacy stream could read too early.
  void put(const std::vector<T>& data) {
    CHECK_CU(cuMemcpyHtoD_v2(address, data.data(), bytes()));
    CHECK_CU(cuStreamSynchronize(nullptr));
  }
  std::vector<T> get() const {
    std::vector<T> data(count);
    CHECK_CU(cuMemcpyDtoH_v2(data.data(), address, bytes()));
    return data;
  }
};

// Launches with one-dimensional grid and block; the arguments are passed as the kernel declares
// them.
template <typename... Args>
CUresult try_launch(CUfunction kernel, unsigned grid, unsigned block, unsigned shared,
                    CUstream stream, Args... args) {
  void* parameters[] = {static_cast<void*>(&args)..., nullptr};
  return cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, shared, stream, parameters, nullptr);
}
template <typename... Args>
void launch(CUfunction kernel, unsigned grid, unsigned block, unsigned shared, CUstream stream,
            Args... args) {
  CHECK_CU(try_launch(kernel, grid, block, shared, stream, args...));
}

// Computes the effect of one launch of the kernel `mix` on the host.
inline void mix_on_host(std::vector<uint32_t>& words, uint32_t key) {
  for (size_t i = 0; i < words.size(); i++) {
    words[i] = words[i] * 5 + static_cast<uint32_t>(i) + key;
  }
}

}  // namespace e2e
