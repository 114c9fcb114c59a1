// SPDX-License-Identifier: Apache-2.0
// The figures of bench/smoke.py that come from inside one program: each subcommand prints one line
// of JSON. An ordinary CUDA program, so the same binary measures the driver, NVIDIA's MPS and
// OpenMPS. usage: gpu_bench start | hold | launch [BURSTS] | copies [MIB]
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "gpu_bench: %s: %s\n", what, cudaGetErrorName(status));
  exit(1);
}

__global__ void store(int* out) { *out = 7; }
__global__ void empty() {}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// From the first CUDA call to the result of the first kernel on the host.
double start_to_first_kernel() {
  const auto begin = Clock::now();
  int *device, value = 0;
  check(cudaMalloc(&device, sizeof value), "cudaMalloc");
  store<<<1, 1>>>(device);
  check(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost), "first kernel");
  if (value != 7) exit(1);
  return microseconds_since(begin) / 1e3;
}

int start() {
  printf("{\"start_ms\": %.3f}\n", start_to_first_kernel());
  return 0;
}

// Keeps a context in which one kernel has run until standard input ends: memory per client.
int hold() {
  start_to_first_kernel();
  printf("ready\n");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}

// Bursts are short, so that no queue between program and GPU fills up; a full queue would make the
// kernel's time the result.
int launch(int bursts) {
  constexpr int kBurst = 200;
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  std::vector<double> issue, round_trip;
  for (int b = -10; b < bursts; b++) {
    const auto begin = Clock::now();
    for (int i = 0; i < kBurst; i++) empty<<<1, 32, 0, stream>>>();
    const double spent = microseconds_since(begin) / kBurst;
    check(cudaStreamSynchronize(stream), "burst");
    if (b >= 0) issue.push_back(spent);
  }
  for (int i = -100; i < bursts * 20; i++) {
    const auto begin = Clock::now();
    empty<<<1, 32, 0, stream>>>();
    check(cudaStreamSynchronize(stream), "launch and synchronise");
    if (i >= 0) round_trip.push_back(microseconds_since(begin));
  }
  printf("{\"issue_us\": %.4f, \"launch_sync_us\": %.4f}\n", median(issue), median(round_trip));
  return 0;
}

double gigabytes_per_second(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  std::vector<double> times;
  for (int i = -1; i < 3; i++) {  // the first copy touches every page
    const auto begin = Clock::now();
    check(cudaMemcpy(to, from, bytes, kind), "copy");
    if (i >= 0) times.push_back(microseconds_since(begin));
  }
  return static_cast<double>(bytes) / median(times) / 1e3;
}

int copies(size_t bytes) {
  void *device, *pinned, *pageable = malloc(bytes);
  check(cudaMalloc(&device, bytes), "cudaMalloc");
  check(cudaMallocHost(&pinned, bytes), "cudaMallocHost");
  memset(pinned, 1, bytes);
  memset(pageable, 2, bytes);
  const double pinned_to = gigabytes_per_second(device, pinned, bytes, cudaMemcpyHostToDevice);
  const double pinned_from = gigabytes_per_second(pinned, device, bytes, cudaMemcpyDeviceToHost);
  const double pageable_to = gigabytes_per_second(device, pageable, bytes, cudaMemcpyHostToDevice);
  const double pageable_from =
      gigabytes_per_second(pageable, device, bytes, cudaMemcpyDeviceToHost);
  if (static_cast<unsigned char*>(pageable)[bytes - 1] != 2) return 1;
  printf(
      "{\"pinned_to\": %.3f, \"pinned_from\": %.3f, \"pageable_to\": %.3f, \"pageable_from\": "
      "%.3f}\n",
      pinned_to, pinned_from, pageable_to, pageable_from);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const size_t number = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;
  if (!strcmp(what, "start")) return start();
  if (!strcmp(what, "hold")) return hold();
  if (!strcmp(what, "launch")) return launch(number ? static_cast<int>(number) : 100);
  if (!strcmp(what, "copies")) return copies((number ? number : 1024) << 20);
  fprintf(stderr, "usage: gpu_bench start | hold | launch [BURSTS] | copies [MIB]\n");
  return 2;
}
