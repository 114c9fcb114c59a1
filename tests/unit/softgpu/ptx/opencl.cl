// SPDX-License-Identifier: Apache-2.0
// PTX from clang alone, without a CUDA toolkit: OpenCL C for the nvptx64 target.
__attribute__((noinline)) int squares(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) sum += i * i;
  return sum;
}

__kernel void mixed(__global float* a, __global int* b, int n) {
  __local float tile[128];
  int t = __nvvm_read_ptx_sreg_tid_x();
  int own[8];
  for (int i = 0; i < 8; i++) own[i] = t * i;
  tile[t] = a[t];
  __syncthreads();
  a[t] = tile[127 - t] * 2.0f + 1.5f;
  if (t < n) b[t] = squares(t % 7) + own[t & 7];
  else b[t] = (int)(a[t] * 3);
}
