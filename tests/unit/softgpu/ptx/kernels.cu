// SPDX-License-Identifier: Apache-2.0
// Typical kernels and the instructions behind CUDA's intrinsics; checked against the host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  int i = THREAD;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float as[16][16], bs[16][16];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float sum = 0;
  for (int t = 0; t < n; t += 16) {
    as[y][x] = a[row * n + t + x];
    bs[y][x] = b[(t + y) * n + col];
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += as[y][k] * bs[k][x];
    __syncthreads();
  }
  c[row * n + col] = sum;
}

extern "C" __global__ void reduce(const float* in, float* out, int n) {
  __shared__ float warps[32];
  float sum = 0;
  for (int i = THREAD; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}

// 6 to 16 channels by 5x5, 14x14 to 10x10; a thread an output.
extern "C" __global__ void convolution(const float* x, const float* w, const float* bias, float* y,
                                       int total) {
  int i = THREAD;
  if (i >= total) return;
  int q = i % 10, p = i / 10 % 10, k = i / 100 % 16, b = i / 1600;
  float s = bias[k];
  for (int c = 0; c < 6; ++c) {
    for (int r = 0; r < 5; ++r) {
#pragma unroll
      for (int t = 0; t < 5; ++t) {
        s += x[((b * 6 + c) * 14 + p + r) * 14 + q + t] * w[((k * 6 + c) * 5 + r) * 5 + t];
      }
    }
  }
  y[i] = s > 0 ? s : 0;
}

extern "C" __global__ void collatz(const unsigned* x, unsigned* y, int n) {
  int i = THREAD;
  unsigned v = x[i], c = 0;
  while (v != 1) {
    if (v & 1) {
      v = 3 * v + 1;
    } else {
      v >>= 1;
    }
    ++c;
  }
  y[i] = c;
}

extern "C" __global__ void histogram(const unsigned char* in, unsigned* out, int n) {
  __shared__ unsigned bins[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (int i = THREAD; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&out[i], bins[i]);
}

extern "C" __global__ void scan(const int* in, int* out) {  // inclusive, one block
  __shared__ int data[1024];
  int t = threadIdx.x;
  data[t] = in[t];
  __syncthreads();
  for (int d = 1; d < blockDim.x; d *= 2) {
    int v = t >= d ? data[t - d] : 0;
    __syncthreads();
    data[t] += v;
    __syncthreads();
  }
  out[t] = data[t];
}

// One row of results per thread: 32 floats.
extern "C" __global__ void float_math(const float* in, float* out, int n) {
  int i = THREAD;
  if (i >= n) return;
  float x = in[i], *o = out + i * 32;
  o[0] = sinf(x);
  o[1] = cosf(x);
  o[2] = expf(x);
  o[3] = logf(fabsf(x));
  o[4] = sqrtf(fabsf(x));
  o[5] = tanhf(x);
  o[6] = powf(fabsf(x), 1.7f);
  o[7] = erff(x);
  o[8] = atan2f(x, 2.f);
  o[9] = fmodf(x, 3.f);
  o[10] = rintf(x);
  o[11] = floorf(x);
  o[12] = ceilf(x);
  o[13] = truncf(x);
  o[14] = cbrtf(x);
  o[15] = x / 3.7f;
  o[16] = 1.f / x;
  o[17] = rsqrtf(fabsf(x));
  o[18] = __sinf(x);
  o[19] = __cosf(x);
  o[20] = exp2f(x);
  o[21] = log2f(fabsf(x));
  o[22] = __expf(x);
  o[23] = fminf(x, 1.f);
  o[24] = fmaxf(x, -1.f);
  o[25] = copysignf(2.f, x);
  o[26] = lgammaf(fabsf(x) + 1);
  o[27] = __saturatef(x);
  o[28] = asinf(x / 100.f);
  o[29] = fmaf(x, x, x);
  o[30] = hypotf(x, 1.f);
  o[31] = expm1f(x);
}

extern "C" __global__ void double_math(const double* in, double* out, int n) {
  int i = THREAD;
  if (i >= n) return;
  double x = in[i], *o = out + i * 16;
  o[0] = sin(x);
  o[1] = cos(x);
  o[2] = exp(x);
  o[3] = log(fabs(x));
  o[4] = sqrt(fabs(x));
  o[5] = tanh(x);
  o[6] = pow(fabs(x), 1.7);
  o[7] = erf(x);
  o[8] = x / 3.7;
  o[9] = 1 / x;
  o[10] = rint(x);
  o[11] = floor(x);
  o[12] = fmod(x, 3.0);
  o[13] = cbrt(x);
  o[14] = rsqrt(fabs(x));
  o[15] = fma(x, x, x);
}

// 32 unsigned per thread.
extern "C" __global__ void integer_intrinsics(const unsigned* in, unsigned* out, int n) {
  int i = THREAD;
  if (i >= n) return;
  unsigned a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *o = out + i * 32;
  unsigned long long w = ((unsigned long long)a << 32) | b;
  o[0] = __popc(a);
  o[1] = __clz(a);
  o[2] = __ffs(a);
  o[3] = __brev(a);
  o[4] = __byte_perm(a, b, c);
  o[5] = __umulhi(a, b);
  o[6] = __mulhi((int)a, (int)b);
  o[7] = __funnelshift_l(a, b, c);
  o[8] = __funnelshift_rc(a, b, c);
  o[9] = __dp4a(a, b, c);
  o[10] = __usad(a, b, c);
  o[11] = __mul24((int)a, (int)b);
  o[12] = a / (b | 1);
  o[13] = a % (b | 1);
  o[14] = (int)a / (int)(b | 1);
  o[15] = (int)a % (int)(b | 1);
  o[16] = (unsigned)(w / (c | 1));
  o[17] = (unsigned)(w % (c | 1));
  o[18] = __popcll(w);
  o[19] = __clzll(w);
  o[20] = (unsigned)__umul64hi(w, w ^ c);
  o[21] = __vabsdiffu4(a, b);
  o[22] = __vadd2(a, b);
  o[23] = __vmaxs2(a, b);
  o[24] = (unsigned)(w >> (c & 63));
  o[25] = (unsigned)((long long)w >> (c & 63));
  o[26] = a << (c & 31);
  o[27] = min((int)a, (int)b);
  o[28] = max(a, b);
  o[29] = __uhadd(a, b);
  o[30] = (unsigned)__float2int_rz(a * 0.001f);
  o[31] = __float_as_uint(__uint2float_ru(a));
}

extern "C" __global__ void half_math(const float* in, float* out, int n) {
  int i = THREAD;
  if (i >= n) return;
  __half a = __float2half(in[2 * i]), b = __float2half(in[2 * i + 1]);
  __half2 p = __halves2half2(a, b), q = __halves2half2(b, a);
  __nv_bfloat16 c = __float2bfloat16(in[2 * i]), d = __float2bfloat16(in[2 * i + 1]);
  float* o = out + i * 16;
  o[0] = __half2float(a);
  o[1] = __half2float(__hadd(a, b));
  o[2] = __half2float(__hmul(a, b));
  o[3] = __half2float(__hfma(a, b, a));
  o[4] = __low2float(__hadd2(p, q));
  o[5] = __high2float(__hmul2(p, q));
  o[6] = __high2float(__hfma2(p, q, p));
  o[7] = __hlt(a, b);
  o[8] = __half2float(__hmax(a, b));
  o[9] = __bfloat162float(c);
  o[10] = __bfloat162float(__hadd(c, d));
  o[11] = __bfloat162float(__hmul(c, d));
  o[12] = __half2float(__hneg(a));
  o[13] = __half2float(__hsub(a, b));
  o[14] = __low2float(__heq2(p, q));
  o[15] = __half2float(hsqrt(__habs(a)));
}

extern "C" __global__ void atomics(unsigned* u, int* s, unsigned long long* w, float* f,
                                   double* d) {
  unsigned i = THREAD;
  atomicAdd(u + 0, i);
  atomicSub(u + 1, i);
  atomicAnd(u + 2, ~(1u << (i & 31)));
  atomicOr(u + 3, 1u << (i & 31));
  atomicXor(u + 4, i);
  atomicInc(u + 5, 10);
  atomicDec(u + 6, 10);
  atomicMin(u + 7, i + 5);
  atomicMax(u + 8, i);
  atomicExch(u + 9, 77);
  atomicCAS(u + 10, 0, 5);
  atomicMin(s + 0, (int)i - 100);
  atomicMax(s + 1, (int)i - 100);
  atomicAdd(w + 0, (unsigned long long)i << 32);
  atomicMax(w + 1, (unsigned long long)i << 33);
  atomicCAS(w + 2, 0ull, 9ull);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
}

extern "C" __global__ void warp_collectives(unsigned* out) {
  unsigned i = threadIdx.x, v = (i * 2654435761u) >> 7, *o = out + THREAD * 16;
  o[0] = __ballot_sync(~0u, v & 1);
  o[1] = __all_sync(~0u, i < 32);
  o[2] = __any_sync(~0u, i == 5);
  o[3] = __shfl_sync(~0u, v, i + 3, 8);
  o[4] = __shfl_up_sync(~0u, v, 3, 16);
  o[5] = __shfl_down_sync(~0u, v, 5, 8);
  o[6] = __shfl_xor_sync(~0u, v, 9);
  o[7] = __match_any_sync(~0u, i / 5);
  int same;
  o[8] = __match_all_sync(~0u, i / 64, &same);
  o[9] = same;
  o[10] = __activemask();
#if __CUDA_ARCH__ >= 800
  o[11] = __reduce_add_sync(~0u, i);
  o[12] = __reduce_max_sync(~0u, v);
  o[13] = __reduce_xor_sync(~0u, v);
  o[14] = __reduce_min_sync(~0u, (int)(v - 4000));
#endif
  o[15] = __syncthreads_or(i == 3) + 2 * __syncthreads_and(i < 99) + 4 * __syncthreads_count(i & 1);
}

struct Shape {
  __device__ virtual int area(int k) const = 0;
};
struct Square : Shape {
  int side;
  __device__ Square(int s) : side(s) {}
  __device__ int area(int k) const override { return side * side + k; }
};
struct Strip : Shape {
  int w;
  __device__ Strip(int s) : w(s) {}
  __device__ int area(int k) const override {
    int sum = 0;
    for (int i = 0; i < w; ++i) sum += i ^ k;
    return sum;
  }
};
__device__ int twice(int x) { return 2 * x; }
__device__ int minus_one(int x) { return x - 1; }
__device__ int (*table[2])(int) = {twice, minus_one};
__constant__ int weights[4] = {3, 1, 4, 1};
__device__ int numbers[4] = {10, 20, 30, 40};
__device__ int* third = &numbers[2];
extern "C" __global__ void calls(int* out, int n) {
  int i = THREAD;
  Square square(i);
  Strip strip(i % 7);
  const Shape* shape = i % 3 ? (const Shape*)&square : (const Shape*)&strip;
  int r = shape->area(n) + table[i & 1](i) + weights[i & 3] + *third;
  int* heap = (int*)malloc(8);
  heap[0] = r;
  if (i < 2) printf("thread %d: %5.2f %s %x\n", i, i * 1.5, "text", r);
  out[i] = heap[0];
  free(heap);
}

struct Big {
  int values[12];
};
__device__ __noinline__ Big shift(Big b, int by) {
  Big r;
  for (int i = 0; i < 12; ++i) r.values[i] = b.values[(i + by) % 12];
  return r;
}
extern "C" __global__ void aggregates(int* out, Big big) {
  int i = THREAD;
  Big moved = shift(big, i % 12);
  int local[16];
  for (int k = 0; k < 16; ++k) local[(k * 5 + i) % 16] = k;
  out[i] = moved.values[3] * 100 + local[i % 16] + big.values[i % 12];
}

// All pairs, tiled: the yardstick of bench/softgpu_interp_bench.cc.
extern "C" __global__ void nbody(const float4* p, float4* v, int n, float dt) {
  extern __shared__ float4 tile[];
  int i = THREAD;
  float4 me = i < n ? p[i] : make_float4(0, 0, 0, 0);
  float ax = 0, ay = 0, az = 0;
  for (int t = 0; t < n; t += blockDim.x) {
    tile[threadIdx.x] = t + threadIdx.x < n ? p[t + threadIdx.x] : make_float4(0, 0, 0, 0);
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < blockDim.x; ++j) {
      float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
      float r2 = dx * dx + dy * dy + dz * dz + 1e-3f;
      float inverse = rsqrtf(r2), s = tile[j].w * inverse * inverse * inverse;
      ax += dx * s, ay += dy * s, az += dz * s;
    }
    __syncthreads();
  }
  if (i < n) v[i] = make_float4(v[i].x + ax * dt, v[i].y + ay * dt, v[i].z + az * dt, 0);
}
