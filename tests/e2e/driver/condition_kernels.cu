// SPDX-License-Identifier: Apache-2.0
// Kernels that set the values of conditional nodes. They have a module of their own, because their
// PTX refers to the device runtime, with which it has to be linked for NVIDIA's driver.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" {

__device__ void cudaGraphSetConditional(u64 handle, u32 value);

__global__ void set_value(u64 handle, u32 value) { cudaGraphSetConditional(handle, value); }

__global__ void set_from(u64 handle, const u32* value) { cudaGraphSetConditional(handle, *value); }

// Continues a loop until it has run `limit` rounds.
__global__ void count_to(u64 handle, u32* counter, u32 limit) {
  *counter = *counter + 1;
  cudaGraphSetConditional(handle, *counter < limit);
}

__global__ void add(u32* word, u32 value) { *word = *word + value; }

}  // extern "C"
