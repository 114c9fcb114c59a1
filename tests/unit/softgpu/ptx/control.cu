// SPDX-License-Identifier: Apache-2.0
// Control-flow torture: every kernel writes one int per thread (or per block), which the test
// computes again on the host by `reference` functions of the same text.
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void divergent_loop(int* out, int n) {
  int i = THREAD, sum = 0;
  for (int k = 0; k < (i * 7) % 33; ++k) {
    if ((k ^ i) & 1) {
      sum += k * 3;
    } else {
      sum -= k;
    }
    if (sum > 500 + i) break;
    if ((k & 3) == 2) continue;
    sum ^= n;
  }
  out[i] = sum;
}

extern "C" __global__ void loop_with_return(int* out, int n) {
  int i = THREAD, sum = i;
  for (int k = 0; k < n; ++k) {
    sum = sum * 5 + k;
    if (sum % 11 == 3) {
      out[i] = sum;
      return;
    }
    for (int j = 0; j < (i & 3); ++j) {
      sum += j;
      if (sum % 17 == 5) {
        out[i] = -sum;
        return;
      }
    }
  }
  out[i] = sum;
}

extern "C" __global__ void barrier_in_loop(int* out, int rounds) {
  __shared__ int data[256];
  int t = threadIdx.x;
  data[t] = t;
  __syncthreads();
  for (int r = 0; r < rounds; ++r) {
    int next = data[(t + 1) % blockDim.x] + r;
    __syncthreads();
    data[t] = next;
    if (t % 5 == r % 5) data[t] += 1;
    __syncthreads();
  }
  out[THREAD] = data[t];
}

extern "C" __global__ void early_exit_barrier(int* out, int limit) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  if ((int)threadIdx.x >= limit) return;  // threads that left count as arrived
  atomicAdd(&sum, (int)threadIdx.x);
  __syncthreads();
  out[THREAD] = sum;
}

extern "C" __global__ void nested_shuffle(int* out, int n) {
  int i = threadIdx.x, v = i * i + n;
  if (i & 1) {
    v += __shfl_xor_sync(0xaaaaaaaau, v, 2);
    if ((i & 3) == 3) v += __shfl_sync(0x88888888u, v, (i & 4) | 3) & 0xff;
    v -= __popc(__ballot_sync(0xaaaaaaaau, v & 1));
  } else {
    for (int k = 0; k < (i >> 2); ++k) v += k;
    __syncwarp(0x55555555u);
    v += __shfl_up_sync(0x55555555u, v, 2);
  }
  __syncwarp();
  v += __shfl_down_sync(0xffffffffu, v, 1);
  out[THREAD] = v;
}

// A lock that lanes of one warp fight for: needs independent thread scheduling.
extern "C" __global__ void spin_lock(int* out, int* lock, int* counter) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *(volatile int*)counter = *(volatile int*)counter + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
  out[THREAD] = 1;
}

// The plain form, in which the winner leaves the loop before it releases the lock.
extern "C" __global__ void spin_lock_outside(int* out, int* lock, int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *(volatile int*)counter = *(volatile int*)counter + 1;
  __threadfence();
  atomicExch(lock, 0);
  out[THREAD] = 1;
}

// One warp waits for a flag that another sets.
extern "C" __global__ void warp_flag(int* out, int) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    while (flag == 0) {
    }
    out[THREAD] = flag + threadIdx.x;
  } else {
    if (threadIdx.x == 63) flag = 42;
    out[THREAD] = 7;
  }
}

// Blocks wait for the one before them.
extern "C" __global__ void block_chain(int* out, int* ticket) {
  if (threadIdx.x == 0) {
    while (atomicAdd(ticket, 0) != (int)blockIdx.x) __nanosleep(20);
    out[blockIdx.x] = blockIdx.x ? out[blockIdx.x - 1] + (int)blockIdx.x : 100;
    __threadfence();
    atomicAdd(ticket, 1);
  }
}

extern "C" __global__ void big_switch(int* out, int n) {
  int i = THREAD, v = i;
  for (int k = 0; k < 4; ++k) switch ((i + k * n) % 9) {
      case 0: v += 1; break;
      case 1: v *= 3; break;
      case 2: v ^= 0x55; break;
      case 3: v -= i;  // fall through
      case 4: v += 1000; break;
      case 5: v = -v; break;
      case 6: v <<= 2; break;
      case 7: v /= 3; break;
      default: v = ~v;
    }
  out[i] = v;
}

__device__ __noinline__ int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}
extern "C" __global__ void recursion(int* out, int) {
  int i = THREAD;
  out[i] = ackermann(i % 3, i % 5);
}

__device__ __noinline__ int sum_across(int v, int rounds) {
  for (int k = 0; k < rounds; ++k) {
    __syncthreads();
    v += __syncthreads_count(v & 1);
  }
  return v;
}
extern "C" __global__ void barrier_in_call(int* out, int rounds) {
  out[THREAD] = sum_across(threadIdx.x, rounds);
}

extern "C" __global__ void goto_loops(int* out, int n) {
  int i = THREAD, a = i, b = 0;
again:
  if (a > 40) goto out_of_it;
  b += a;
inner:
  a += (b & 3) + 1;
  if (a % 6 == 1) goto inner;
  if (b < n * i) goto again;
out_of_it:
  out[i] = a * 1000 + b;
}

extern "C" __global__ void named_barriers(int* out, int) {
  __shared__ int stage[64];
  int t = threadIdx.x;
  if (t < 32) {
    stage[t] = t * 2;
    asm volatile("bar.arrive 1, 64;" ::: "memory");
    asm volatile("bar.sync 2, 64;" ::: "memory");
    out[THREAD] = stage[t + 32];
  } else {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    stage[t] = stage[t - 32] + 1;
    asm volatile("bar.arrive 2, 64;" ::: "memory");
    out[THREAD] = stage[t];
  }
}
