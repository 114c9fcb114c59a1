// SPDX-License-Identifier: Apache-2.0
// The other file of separate_compilation.
#include "separate_compilation.h"

__device__ int shared_bonus = 100;
__constant__ int weights[4] = {1, 2, 4, 8};

__device__ int scaled(int value) { return 3 * value; }
static __device__ int squared(int value) { return value * value; }
__device__ Operation operations[2] = {scaled, squared};

static __global__ void fill(int* out, int count, int value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = value + shared_bonus;
}

void launch_fill(int* out, int count, int value) {
  fill<<<(count + 127) / 128, 128>>>(out, count, value);
}
