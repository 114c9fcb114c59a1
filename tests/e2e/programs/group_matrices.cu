// SPDX-License-Identifier: Apache-2.0
// wgmma as kernels use it: tiles of 64 rows in shared memory with and without a swizzle, walked
// along k by descriptors, and factors from registers; two groups of four warps; products of small
// integers against the host's. Needs sm_90a. Run by run_e2e.py.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <vector>

#include "e2e.h"

namespace {

constexpr int kRows = 64, kColumns = 32, kDepth = 64, kThreads = 128;
// Swizzle modes of a matrix descriptor.
constexpr unsigned kSwizzle128 = 1, kSwizzle64 = 2, kSwizzle32 = 3;

__device__ uint64_t descriptor(const void* tile, unsigned leading, unsigned stride,
                               unsigned swizzle) {
  const auto start = static_cast<unsigned>(__cvta_generic_to_shared(tile));
  return (start & 0x3ffff) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | static_cast<uint64_t>(swizzle) << 62;
}
__device__ void begin() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ void finish() {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#define D_LIST "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
// d += a * b, or d = a * b; both factors in shared memory.
#define MULTIPLY(name, type, letter, text, flags)                                              \
  __device__ void name(type(&d)[16], uint64_t a, uint64_t b, int add) {                        \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0;\n wgmma.mma_async.sync.aligned." text \
                 " " D_LIST ", %16, %17, p" flags "; }"                                        \
                 : letter(d[0]), letter(d[1]), letter(d[2]), letter(d[3]), letter(d[4]),       \
                   letter(d[5]), letter(d[6]), letter(d[7]), letter(d[8]), letter(d[9]),       \
                   letter(d[10]), letter(d[11]), letter(d[12]), letter(d[13]), letter(d[14]),  \
                   letter(d[15])                                                               \
                 : "l"(a), "l"(b), "r"(add));                                                  \
  }
MULTIPLY(multiply_f16, float, "+f", "m64n32k16.f32.f16.f16", ", 1, 1, 0, 0")
MULTIPLY(subtract_f16, float, "+f", "m64n32k16.f32.f16.f16", ", -1, 1, 0, 0")
MULTIPLY(multiply_bf16_by_rows, float, "+f", "m64n32k16.f32.bf16.bf16", ", 1, 1, 0, 1")
MULTIPLY(multiply_tf32, float, "+f", "m64n32k8.f32.tf32.tf32", ", 1, 1")
MULTIPLY(multiply_s8, int, "+r", "m64n32k32.s32.s8.u8", "")
MULTIPLY(multiply_e4m3, float, "+f", "m64n32k32.f32.e4m3.e4m3", ", 1, 1")

__device__ void multiply_registers(float (&d)[16], const unsigned (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %21, 0;\n "
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " D_LIST
      ", {%16, %17, %18, %19}, %20, p, 1, 1, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__host__ __device__ int value_a(int row, int k) { return (row * 5 + k * 3 + row * k) % 7 - 3; }
__host__ __device__ int value_b(int k, int column) {
  return (k * 2 + column * 3 + k * column) % 5 - 2;
}

// Stores value(row, k) in rows of kDepth elements. The chunks of 16 bytes are permuted by the
// number of the 128 bytes in which they are (the swizzle).
template <class T, class F>
__device__ void fill(unsigned char* tile, int rows, int depth, unsigned chunks, F value) {
  const unsigned row_bytes = chunks * 16, per_row = row_bytes / sizeof(T);
  for (int i = threadIdx.x % kThreads; i < rows * depth; i += kThreads) {
    const unsigned row = i / depth, k = i % depth;
    // Rows that are longer than the pattern continue in the next tile.
    unsigned byte = k / per_row * rows * row_bytes + row * row_bytes + k % per_row * sizeof(T);
    if (chunks > 1) byte ^= byte / 128 % chunks * 16;
    const T element = T(value(row, k));
    memcpy(tile + byte, &element, sizeof element);
  }
}

template <class T>
__device__ void store(T* out, const T (&d)[16]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kThreads / 32;
  for (int i = 0; i < 16; ++i) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    out[row * kColumns + column] = d[i];
  }
}

struct Fp8 {  // e4m3 of -3 to 3
  __device__ explicit Fp8(int value) {
    const int size = value < 0 ? -value : value;
    const unsigned char codes[] = {0, 0x38, 0x40, 0x44};
    bits = codes[size] | (value < 0 ? 0x80 : 0);
  }
  unsigned char bits;
};

extern __shared__ __align__(1024) unsigned char shared[];

// k is 64, in steps of one instruction. Rows have 128 bytes, so each step begins 32 bytes further.
__global__ void swizzled_f16(float* out) {
  unsigned char *a = shared, *b = shared + 16384;
  fill<__half>(a, kRows, kDepth, 8, [](int row, int k) { return value_a(row, k); });
  fill<__half>(b, kColumns, kDepth, 8, [](int column, int k) { return value_b(k, column); });
  float d[16];
  begin();
  for (int step = 0; step < 4; ++step) {
    multiply_f16(d, descriptor(a + 32 * step, 16, 1024, kSwizzle128),
                 descriptor(b + 32 * step, 16, 1024, kSwizzle128), step != 0);
  }
  finish();
  store(out, d);
}
// Twice the product minus the product, with the narrower patterns: rows of 32 or 64 bytes.
__global__ void narrow_f16(float* out) {
  unsigned char *a = shared, *b = shared + 16384;
  fill<__half>(a, kRows, kDepth, 2, [](int row, int k) { return value_a(row, k); });
  fill<__half>(b, kColumns, kDepth, 4, [](int column, int k) { return value_b(k, column); });
  float d[16] = {};
  for (int pass = 0; pass < 3; ++pass) {
    begin();
    for (int step = 0; step < 4; ++step) {
      const uint64_t da = descriptor(a + step * kRows * 32, 16, 256, kSwizzle32);
      const uint64_t db =
          descriptor(b + step / 2 * kColumns * 64 + step % 2 * 32, 16, 512, kSwizzle64);
      if (pass < 2) {
        multiply_f16(d, da, db, 1);
      } else {
        subtract_f16(d, da, db, 1);
      }
    }
    finish();
  }
  store(out, d);
}
// Without a swizzle: eight rows of 16 bytes are contiguous.
__global__ void plain_tf32(float* out) {
  unsigned char *a = shared, *b = shared + 32768;
  fill<float>(a, kRows, kDepth, 1, [](int row, int k) { return value_a(row, k); });
  fill<float>(b, kColumns, kDepth, 1, [](int column, int k) { return value_b(k, column); });
  float d[16];
  begin();
  for (int step = 0; step < 8; ++step) {
    multiply_tf32(d, descriptor(a + step * 2 * kRows * 16, kRows * 16, 128, 0),
                  descriptor(b + step * 2 * kColumns * 16, kColumns * 16, 128, 0), step != 0);
  }
  finish();
  store(out, d);
}
// B is stored by rows: 32 columns of one k are 64 bytes.
__global__ void bf16_by_rows(float* out) {
  unsigned char *a = shared, *b = shared + 16384;
  fill<__nv_bfloat16>(a, kRows, kDepth, 8, [](int row, int k) { return value_a(row, k); });
  fill<__nv_bfloat16>(b, kDepth, kColumns, 4, [](int k, int column) { return value_b(k, column); });
  float d[16];
  begin();
  for (int step = 0; step < 4; ++step) {
    multiply_bf16_by_rows(d, descriptor(a + 32 * step, 16, 1024, kSwizzle128),
                          descriptor(b + step * 16 * 64, 4096, 512, kSwizzle64), step != 0);
  }
  finish();
  store(out, d);
}
__global__ void integers(int* out) {
  unsigned char *a = shared, *b = shared + 16384;
  fill<signed char>(a, kRows, kDepth, 4, [](int row, int k) { return value_a(row, k); });
  fill<unsigned char>(b, kColumns, kDepth, 4,
                      [](int column, int k) { return value_b(k, column) + 2; });
  int d[16];
  begin();
  for (int step = 0; step < 2; ++step) {
    multiply_s8(d, descriptor(a + 32 * step, 16, 512, kSwizzle64),
                descriptor(b + 32 * step, 16, 512, kSwizzle64), step != 0);
  }
  finish();
  store(out, d);
}
__global__ void bytes(float* out) {
  unsigned char *a = shared, *b = shared + 16384;
  fill<Fp8>(a, kRows, kDepth, 4, [](int row, int k) { return value_a(row, k); });
  fill<Fp8>(b, kColumns, kDepth, 4, [](int column, int k) { return value_b(k, column); });
  float d[16];
  begin();
  for (int step = 0; step < 2; ++step) {
    multiply_e4m3(d, descriptor(a + 32 * step, 16, 512, kSwizzle64),
                  descriptor(b + 32 * step, 16, 512, kSwizzle64), step != 0);
  }
  finish();
  store(out, d);
}
// Two warpgroups with A in registers. The second computes the products of the rows in reverse
// order.
__global__ void from_registers(float* out) {
  unsigned char* b = shared + threadIdx.x / kThreads * 16384;
  fill<__half>(b, kColumns, kDepth, 8, [](int column, int k) { return value_b(k, column); });
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kThreads / 32;
  const bool reverse = threadIdx.x >= kThreads;
  float d[16];
  begin();
  for (int step = 0; step < 4; ++step) {
    unsigned a[4];
    for (int i = 0; i < 4; ++i) {
      int row = warp * 16 + lane / 4 + i % 2 * 8;
      if (reverse) row = kRows - 1 - row;
      const int k = step * 16 + i / 2 * 8 + lane % 4 * 2;
      const __half2 pair = __halves2half2(__half(value_a(row, k)), __half(value_a(row, k + 1)));
      memcpy(&a[i], &pair, sizeof pair);
    }
    multiply_registers(d, a, descriptor(b + 32 * step, 16, 1024, kSwizzle128), step != 0);
    finish();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  }
  store(out + (reverse ? kRows * kColumns : 0), d);
}

template <class T>
void check(const char* what, void (*kernel)(T*), int groups = 1, int b_more = 0) {
  constexpr int kShared = 65536;
  T* device = nullptr;
  std::vector<T> out(static_cast<size_t>(groups) * kRows * kColumns);
  CHECK_CUDA(cudaMalloc(&device, out.size() * sizeof(T)));
  CHECK_CUDA(cudaMemset(device, 0xff, out.size() * sizeof(T)));
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  kernel<<<1, groups * kThreads, kShared>>>(device);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaMemcpy(out.data(), device, out.size() * sizeof(T), cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaFree(device));
  int wrong = 0;
  for (int i = 0; i < groups * kRows * kColumns; ++i) {
    int row = i / kColumns % kRows, column = i % kColumns, sum = 0;
    if (i >= kRows * kColumns) row = kRows - 1 - row;
    for (int k = 0; k < kDepth; ++k) sum += value_a(row, k) * (value_b(k, column) + b_more);
    if (out[i] != static_cast<T>(sum)) wrong++;
  }
  e2e::expect(wrong == 0, "%s", what);
}

}  // namespace

int main() {
  check("f16, rows of 128 bytes", swizzled_f16);
  check("f16, rows of 32 and 64 bytes, and a difference", narrow_f16);
  check("tf32 without a swizzle", plain_tf32);
  check("bf16, one factor by rows", bf16_by_rows);
  check("signed and unsigned bytes", integers, 1, 2);
  check("e4m3", bytes);
  check("f16 from registers, two groups", from_registers, 2);
  return e2e::finish();
}
