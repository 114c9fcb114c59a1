// SPDX-License-Identifier: Apache-2.0
// The kernels of the driver-API programs, in the part of CUDA that clang compiles to PTX without
// any NVIDIA header or library. Compiled once; embedded into every program by kernels.cc.
#include "stateless_kernels.cu"

struct __attribute__((aligned(16))) Float4 {
  float x, y, z, w;
};

extern "C" {

__global__ void vector_add(const float* a, const float* b, float* sum, u32 n) {
  const u32 i = index();
  if (i < n) sum[i] = a[i] + b[i];
}

// As `mix`, with words read from `from`, which may be the same memory as `words`.
__global__ void blend(u32* words, const u32* from, u32 n, u32 key) {
  const u32 i = index();
  if (i < n) words[i] = words[i] * 5 + from[i] + key;
}

__global__ void empty() {}

// Keeps one thread busy for `rounds` dependent steps.
__global__ void spin(u32* result, u32 rounds) {
  u32 x = thread() + 1;
  for (u32 i = 0; i < rounds; i++) x = x * 1664525u + (x >> 13) + 1013904223u;
  if (thread() == 0) *result = x;
}

__global__ void nbody_step(const Float4* position, Float4* velocity, Float4* moved, u32 n,
                           float dt) {
  extern __shared__ Float4 tile[];
  const u32 i = index();
  Float4 me = {0, 0, 0, 0};
  if (i < n) me = position[i];
  float ax = 0, ay = 0, az = 0;
  for (u32 start = 0; start < n; start += block_size()) {
    const Float4 none = {0, 0, 0, 0};
    tile[thread()] = start + thread() < n ? position[start + thread()] : none;
    __syncthreads();
    for (u32 k = 0; k < block_size(); k++) {
      const float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
      const float inverse = __nvvm_rsqrt_approx_f(dx * dx + dy * dy + dz * dz + 1e-3f);
      const float pull = tile[k].w * inverse * inverse * inverse;
      ax += dx * pull;
      ay += dy * pull;
      az += dz * pull;
    }
    __syncthreads();
  }
  if (i >= n) return;
  Float4 v = velocity[i];
  v.x += ax * dt;
  v.y += ay * dt;
  v.z += az * dt;
  velocity[i] = v;
  const Float4 to = {me.x + v.x * dt, me.y + v.y * dt, me.z + v.z * dt, me.w};
  moved[i] = to;
}

// Sum of n words into *total: shuffles in a warp, shared memory in a block, atomics between blocks.
__global__ void reduce(const u32* words, u32 n, u32* total) {
  static __shared__ u32 partial[32];
  u32 sum = 0;
  for (u32 i = index(); i < n; i += block_size() * __nvvm_read_ptx_sreg_nctaid_x()) sum += words[i];
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += (u32)__nvvm_shfl_sync_down_i32(0xffffffffu, (int)sum, offset, 31);
  }
  if (thread() % 32 == 0) partial[thread() / 32] = sum;
  __syncthreads();
  if (thread() == 0) {
    u32 all = 0;
    for (u32 w = 0; w < block_size() / 32; w++) all += partial[w];
    __nvvm_atom_add_gen_i((int*)total, (int)all);
  }
}

__device__ int counter = 40;
__device__ u32 words_global[16] = {1, 2, 3, 5, 8, 13, 21, 34};
__constant__ float factors[4] = {0.5f, 1.5f, 2.5f, 3.5f};

__global__ void use_globals(float* out) {
  const u32 i = thread();
  if (i < 16) words_global[i] += 100;
  if (i < 4) out[i] = factors[i] * (float)counter;
  __syncthreads();
  if (i == 0) counter += 2;
}

// Runs until the host stores something at `flag`.
__global__ void hold(const volatile u32* flag) {
  while (*flag == 0) {
  }
}

__global__ void store_at(u32* address, u32 value) { *address = value; }

}  // extern "C"
