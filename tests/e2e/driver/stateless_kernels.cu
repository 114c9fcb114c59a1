// SPDX-License-Identifier: Apache-2.0
// Kernels of a module without variables, whose code may move between contexts
// (docs/decisions/0016). For programs whose SMs change while they run. kernels.cu includes this
// file.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ static inline u32 thread() { return __nvvm_read_ptx_sreg_tid_x(); }
__device__ static inline u32 block_size() { return __nvvm_read_ptx_sreg_ntid_x(); }
__device__ static inline u32 index() {
  return __nvvm_read_ptx_sreg_ctaid_x() * block_size() + thread();
}

extern "C" {

// word = word * 5 + i + key: n words, used wherever a check must notice a lost or doubled launch.
__global__ void mix(u32* words, u32 n, u32 key) {
  const u32 i = index();
  if (i < n) words[i] = words[i] * 5 + i + key;
}

// Stores the SM of each block. Blocks run long enough for a launch to use all SMs that it may use.
__global__ void where(u32* sm, u32 rounds) {
  u32 x = thread();
  for (u32 i = 0; i < rounds; i++) x = x * 1664525u + (x >> 13) + 1013904223u;
  // The loop must have an effect, or the compiler removes it.
  if (thread() == 0) {
    sm[__nvvm_read_ptx_sreg_ctaid_x()] = x == 1 ? ~0u : __nvvm_read_ptx_sreg_smid();
  }
}

}  // extern "C"
