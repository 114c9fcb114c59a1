// SPDX-License-Identifier: Apache-2.0
// One step of all-pairs n-body with tiles in shared memory, for kernels of blocks of kBlock
// threads, one thread for each body. Included by the end-to-end program and by the bench's
// neighbour.
#pragma once

namespace nbody {

constexpr int kBlock = 256;
constexpr float kSoftening = 1e-3f;

__device__ inline void step(const float4* position, float4* velocity, float4* moved, int n,
                            float dt) {
  __shared__ float4 tile[kBlock];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 me = i < n ? position[i] : make_float4(0, 0, 0, 0);
  float ax = 0, ay = 0, az = 0;
  for (int start = 0; start < n; start += kBlock) {
    const int j = start + threadIdx.x;
    tile[threadIdx.x] = j < n ? position[j] : make_float4(0, 0, 0, 0);
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kBlock; k++) {
      const float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
      const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + kSoftening);
      const float pull = tile[k].w * inverse * inverse * inverse;
      ax += dx * pull;
      ay += dy * pull;
      az += dz * pull;
    }
    __syncthreads();
  }
  if (i >= n) return;
  float4 v = velocity[i];
  v.x += ax * dt;
  v.y += ay * dt;
  v.z += az * dt;
  velocity[i] = v;
  moved[i] = make_float4(me.x + v.x * dt, me.y + v.y * dt, me.z + v.z * dt, me.w);
}

}  // namespace nbody
