// SPDX-License-Identifier: Apache-2.0
// What single calls of the runtime cost the program, in one process alone. Prints one JSON object:
// the name of each call, and the median of its repetitions in microseconds. Used by bench/calls.py
// on every side. usage: call_costs [SHARE]: repetitions, as a share of the usual (default 1)
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t kKiB = 1 << 10;
constexpr size_t kMiB = 1 << 20;
constexpr size_t kBuffer = 64 * kMiB;

double share = 1;
bool first_line = true;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "call_costs: %s: %s\n", what, cudaGetErrorName(status));
  exit(1);
}
#define CHECK(call) check(call, #call)

template <typename Call>
void cost(const char* name, int repetitions, Call call) {
  const int counted = std::max(5, static_cast<int>(repetitions * share));
  std::vector<double> times;
  for (int i = -(counted / 10 + 1); i < counted; i++) {  // the first ones warm up
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    if (i >= 0) times.push_back(spent.count());
  }
  std::nth_element(times.begin(), times.begin() + counted / 2, times.end());
  printf("%s\"%s\": %.3f", first_line ? "{" : ", ", name, times[counted / 2]);
  first_line = false;
}

__global__ void empty(float*) {}

void memory(cudaStream_t stream) {
  void* block = nullptr;
  for (const size_t mib : {1, 64, 256}) {
    char name[64];
    snprintf(name, sizeof(name), "allocate and free %zu MiB", mib);
    cost(name, 200, [&] {
      CHECK(cudaMalloc(&block, mib * kMiB));
      CHECK(cudaFree(block));
    });
  }
  cost("allocate and free 1 MiB in a stream", 1000, [&] {
    CHECK(cudaMallocAsync(&block, kMiB, stream));
    CHECK(cudaFreeAsync(block, stream));
  });
  CHECK(cudaStreamSynchronize(stream));
  cost("allocate and free 1 MiB of pinned memory", 50, [&] {
    CHECK(cudaMallocHost(&block, kMiB));
    CHECK(cudaFreeHost(block));
  });
}

void copies(cudaStream_t stream, void* device) {
  void *pinned = nullptr, *pageable = malloc(kBuffer);
  CHECK(cudaMallocHost(&pinned, kBuffer));
  std::fill_n(static_cast<char*>(pinned), kBuffer, 1);
  std::fill_n(static_cast<char*>(pageable), kBuffer, 2);
  const auto both_ways = [&](const char* size, size_t bytes, int repetitions) {
    char name[64];
    snprintf(name, sizeof(name), "pageable %s to the device", size);
    cost(name, repetitions,
         [&] { CHECK(cudaMemcpy(device, pageable, bytes, cudaMemcpyHostToDevice)); });
    snprintf(name, sizeof(name), "pageable %s from the device", size);
    cost(name, repetitions,
         [&] { CHECK(cudaMemcpy(pageable, device, bytes, cudaMemcpyDeviceToHost)); });
    snprintf(name, sizeof(name), "pinned %s to the device, synchronise", size);
    cost(name, repetitions, [&] {
      CHECK(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream));
      CHECK(cudaStreamSynchronize(stream));
    });
    snprintf(name, sizeof(name), "pinned %s from the device, synchronise", size);
    cost(name, repetitions, [&] {
      CHECK(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
    });
  };
  both_ways("4 B", 4, 1000);
  both_ways("64 KiB", 64 * kKiB, 500);
  both_ways("64 MiB", kBuffer, 30);
  cost("fill 1 MiB, synchronise", 1000, [&] {
    CHECK(cudaMemsetAsync(device, 0, kMiB, stream));
    CHECK(cudaStreamSynchronize(stream));
  });
  CHECK(cudaFreeHost(pinned));
  free(pageable);
}

void launches(cudaStream_t stream, float* device) {
  cost("launch", 5000, [&] { empty<<<1, 32, 0, stream>>>(device); });
  CHECK(cudaStreamSynchronize(stream));
  cost("launch, synchronise", 3000, [&] {
    empty<<<1, 32, 0, stream>>>(device);
    CHECK(cudaStreamSynchronize(stream));
  });
  cost("20 launches, synchronise", 500, [&] {
    for (int i = 0; i < 20; i++) empty<<<1, 32, 0, stream>>>(device);
    CHECK(cudaStreamSynchronize(stream));
  });
  const auto nothing = [](void*) {};
  cost("host function, synchronise", 500, [&] {
    CHECK(cudaLaunchHostFunc(stream, nothing, nullptr));
    CHECK(cudaStreamSynchronize(stream));
  });
  cost("launch, host function, launch, synchronise", 500, [&] {
    empty<<<1, 32, 0, stream>>>(device);
    CHECK(cudaLaunchHostFunc(stream, nothing, nullptr));
    empty<<<1, 32, 0, stream>>>(device);
    CHECK(cudaStreamSynchronize(stream));
  });
  // Longer than the host functions for which OpenMPS lets the GPU wait.
  const auto works = [](void*) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(300);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  cost("the same, a host function of 300 us", 200, [&] {
    empty<<<1, 32, 0, stream>>>(device);
    CHECK(cudaLaunchHostFunc(stream, works, nullptr));
    empty<<<1, 32, 0, stream>>>(device);
    CHECK(cudaStreamSynchronize(stream));
  });
}

void objects(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreate(&event));
  cost("record an event, synchronise with it", 2000, [&] {
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event));
  });
  cost("create and destroy an event", 2000, [&] {
    cudaEvent_t other = nullptr;
    CHECK(cudaEventCreate(&other));
    CHECK(cudaEventDestroy(other));
  });
  cost("create and destroy a stream", 200, [&] {
    cudaStream_t other = nullptr;
    CHECK(cudaStreamCreate(&other));
    CHECK(cudaStreamDestroy(other));
  });
  CHECK(cudaEventDestroy(event));
}

void graphs(cudaStream_t stream, float* device) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 20; i++) empty<<<1, 32, 0, stream>>>(device);
  CHECK(cudaStreamEndCapture(stream, &graph));
  cost("instantiate and destroy a graph of 20 kernels", 100, [&] {
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphExecDestroy(executable));
  });
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  cost("launch a graph of 20 kernels, synchronise", 1000, [&] {
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
  });
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) share = atof(argv[1]);
  if (share <= 0 || share > 1) {
    fprintf(stderr, "usage: call_costs [SHARE]: of the usual repetitions, above 0, at most 1\n");
    return 2;
  }
  float* device = nullptr;
  cudaStream_t stream = nullptr;
  CHECK(cudaMalloc(&device, kBuffer));
  CHECK(cudaStreamCreate(&stream));
  empty<<<1, 32, 0, stream>>>(device);
  CHECK(cudaDeviceSynchronize());
  memory(stream);
  copies(stream, device);
  launches(stream, device);
  objects(stream);
  graphs(stream, device);
  CHECK(cudaDeviceSynchronize());
  printf("}\n");
  return 0;
}
