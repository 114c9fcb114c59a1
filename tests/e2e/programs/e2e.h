// SPDX-License-Identifier: Apache-2.0
// Shared by the end-to-end CUDA programs: error checks, a deterministic number generator, a hash
// and the report. Included by the .cu programs only. Everything runs on the program's main thread
// unless a function says otherwise.
//
// Rules of the output, which run_e2e.py compares between drivers: every line of stdout must be
// equal on all devices, except for lines that start with "# " (times, names), which are not
// compared. The exit code is 0 only if all checks against the CPU reference have held.
#pragma once

#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace e2e {

inline int& failures() {
  static int count = 0;
  return count;
}

#define CHECK_CUDA(call)                                                      \
  do {                                                                        \
    cudaError_t check_status = (call);                                        \
    if (check_status != cudaSuccess) {                                        \
      printf("%s:%d: %s: %s (%d)\n", __FILE_NAME__, __LINE__, #call,          \
             cudaGetErrorName(check_status), static_cast<int>(check_status)); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

// Reports the result of one check. Prints a line in any case, so that a check that did not run is
// noticed as a difference in the output.
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

// Reports that a call returned exactly `wanted`.
inline bool expect_error(const char* what, cudaError_t got, cudaError_t wanted) {
  if (got == wanted) {
    printf("ok: %s: %s\n", what, cudaGetErrorName(got));
    return true;
  }
  printf("FAILED: %s: got %s, expected %s\n", what, cudaGetErrorName(got),
         cudaGetErrorName(wanted));
  failures()++;
  return false;
}

// The last line of every program.
inline int finish() {
  printf("%s\n", failures() == 0 ? "PASSED" : "FAILED");
  return failures() == 0 ? 0 : 1;
}

// FNV-1a over bytes: equal results have equal hashes on every machine.
inline uint64_t hash(const void* data, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t h = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3ull;
  return h;
}

// splitmix64: the same sequence everywhere, unlike rand().
struct Random {
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

// The argument at `index`, or `fallback` if it is missing. 0 and text that is no number are
// refused.
inline size_t argument(int argc, char** argv, int index, size_t fallback) {
  if (index >= argc) return fallback;
  const size_t value = strtoull(argv[index], nullptr, 10);
  if (value == 0) {
    fprintf(stderr, "%s: not a positive number: %s\n", argv[0], argv[index]);
    exit(2);
  }
  return value;
}

inline unsigned blocks_for(size_t items, unsigned block) {
  return static_cast<unsigned>((items + block - 1) / block);
}

}  // namespace e2e
