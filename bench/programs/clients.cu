// SPDX-License-Identifier: Apache-2.0
// The clients of bench/engine.py, bench/limits.py and bench/experiments.py, each subcommand another
// kind of program.
// Ordinary CUDA programs, so one binary measures the driver, NVIDIA's MPS and OpenMPS. Programs
// that are measured print one line of JSON; programs that run beside them print "ready" when they
// have reached their state, and end when standard input ends, with an error if a call of theirs
// failed. Main thread only, except `chains`.
// usage: clients latency SECONDS FMAS | throughput SECONDS START |
//        busy BLOCKS FMAS SECONDS START | sweep MIB SECONDS START | nbody BODIES AHEAD EVERY |
//        waiting | long MILLISECONDS | pending | endless | chains STREAMS THREADS KERNELS US
#include <cuda.h>
#include <cuda_runtime.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "nbody_step.h"

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "clients: %s: %s\n", what, cudaGetErrorName(status));
  exit(1);
}
#define CHECK(call) check(call, #call)

void say_ready() {
  printf("ready\n");
  fflush(stdout);
}

enum class Input { kNothing, kLine, kEnd };

// The next event of standard input: nothing within `wait_ms` (-1: waits for ever), a line, or the
// end.
Input look_at_input(int wait_ms) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, wait_ms) == 0) return Input::kNothing;
  char line[64];
  return read(STDIN_FILENO, line, sizeof line) > 0 ? Input::kLine : Input::kEnd;
}

void await_end_of_input() {
  while (look_at_input(-1) != Input::kEnd) {
  }
}

cudaStream_t new_stream() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

cudaEvent_t new_event() {
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
  return event;
}

// --- latency: small requests, one after the other, with a pause between them
// -----------------------

__global__ void request(float* out, int fmas) {
  float value = threadIdx.x;
  for (int i = 0; i < fmas; i++) value = fmaf(value, 1.0001f, 0.5f);
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

int latency(double seconds, int fmas) {
  constexpr int kKernels = 20, kBlocks = 16, kThreads = 256, kPauseUs = 3000, kWarmUp = 3;
  float* out;
  CHECK(cudaMalloc(&out, kBlocks * kThreads * sizeof(float)));
  const cudaStream_t stream = new_stream();
  std::vector<double> times;
  const auto begin = Clock::now();
  for (int i = -kWarmUp; times.empty() || milliseconds_since(begin) < seconds * 1e3; i++) {
    const auto start = Clock::now();
    for (int k = 0; k < kKernels; k++) request<<<kBlocks, kThreads, 0, stream>>>(out, fmas);
    CHECK(cudaStreamSynchronize(stream));
    if (i >= 0) times.push_back(milliseconds_since(start));
    usleep(kPauseUs);
  }
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  printf("{\"n\": %zu, \"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f, \"max\": %.4f}\n", n,
         times[n / 2], times[n * 9 / 10], times[n * 99 / 100], times[n - 1]);
  return 0;
}

// --- throughput: as many small kernels as go, from a moment that all clients have in common
// --------

__global__ void one(float* out, int n) {
  if (n < 0) *out = 1;
}
__global__ void two(float* out, float value, int n, long at) {
  if (n < 0) out[at] = value;
}
__global__ void three(float* out, const float* in, float factor, int n, int to, int from) {
  if (n < 0) out[to] = in[from] * factor;
}

// `start`: in seconds of the system's clock.
int throughput(double seconds, double start) {
  constexpr int kTurns = 300, kPerTurn = 3, kPerWait = 9000;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  float* memory;
  CHECK(cudaMalloc(&memory, 1 << 20));
  const cudaStream_t stream = new_stream();
  const auto turns = [&](int count) {
    for (int i = 0; i < count; i++) {
      one<<<1, 32, 0, stream>>>(memory, i);
      two<<<2, 64, 0, stream>>>(memory, static_cast<float>(i), i, i);
      three<<<1, 32, 0, stream>>>(memory, memory, static_cast<float>(i), i, i, i);
    }
  };
  turns(1);
  CHECK(cudaStreamSynchronize(stream));
  if (now() > start) {
    fprintf(stderr, "clients: not ready at the common start\n");
    return 1;
  }
  while (now() < start) usleep(100);
  const double begin = now();
  long launches = 0;
  while (now() - begin < seconds) {
    turns(kTurns);
    launches += kTurns * kPerTurn;
    if (launches % kPerWait == 0) CHECK(cudaStreamSynchronize(stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  printf("{\"thousand_per_s\": %.2f}\n", static_cast<double>(launches) / (now() - begin) / 1e3);
  return 0;
}

// --- busy and sweep: kernels of one size, some of which are always queued
// -------------------------------------

int multiprocessors() {
  int count = 0;
  CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

// Kernels a second that end within `seconds` from `start` on, in seconds of the system's clock.
template <typename Launch>
double ended_per_second(cudaStream_t stream, double seconds, double start, const Launch& launch) {
  constexpr int kPerTurn = 8, kTurns = 4;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  cudaEvent_t events[kTurns];
  for (cudaEvent_t& event : events) event = new_event();
  launch();
  CHECK(cudaStreamSynchronize(stream));
  if (now() > start) {
    fprintf(stderr, "clients: not ready at the common start\n");
    exit(1);
  }
  while (now() < start) usleep(100);
  long ended = 0;
  for (int turn = 0; now() - start < seconds; turn++) {
    const cudaEvent_t event = events[turn % kTurns];
    if (turn >= kTurns) {
      CHECK(cudaEventSynchronize(event));
      ended += kPerTurn;
    }
    for (int i = 0; i < kPerTurn; i++) launch();
    CHECK(cudaEventRecord(event, stream));
  }
  const double spent = now() - start;
  CHECK(cudaStreamSynchronize(stream));
  return static_cast<double>(ended) / spent;
}

int busy(int blocks, int fmas, double seconds, double start) {
  constexpr int kThreads = 256;
  float* out;
  CHECK(cudaMalloc(&out, sizeof(float) * blocks * kThreads));
  const cudaStream_t stream = new_stream();
  const double per_s = ended_per_second(
      stream, seconds, start, [&] { request<<<blocks, kThreads, 0, stream>>>(out, fmas); });
  printf("{\"per_s\": %.2f, \"sms\": %d}\n", per_s, multiprocessors());
  return 0;
}

__global__ void read_and_write(float4* data, size_t count) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += step) {
    float4 value = data[i];
    value.x += 1;
    data[i] = value;
  }
}

// Memory that is read and written repeatedly. Its size decides how much of it is in the cache.
int sweep(size_t mib, double seconds, double start) {
  constexpr int kThreads = 256, kBlocksPerSm = 8;
  const size_t count = (mib << 20) / sizeof(float4);
  float4* data;
  CHECK(cudaMalloc(&data, count * sizeof(float4)));
  const cudaStream_t stream = new_stream();
  const int sms = multiprocessors();
  CHECK(cudaMemsetAsync(data, 0, count * sizeof(float4), stream));
  const double per_s = ended_per_second(stream, seconds, start, [&] {
    read_and_write<<<sms * kBlocksPerSm, kThreads, 0, stream>>>(data, count);
  });
  const double bytes = 2.0 * static_cast<double>(count * sizeof(float4));
  printf("{\"per_s\": %.2f, \"gb_per_s\": %.2f, \"sms\": %d}\n", per_s, per_s * bytes / 1e9, sms);
  return 0;
}

// --- nbody: a neighbour that always has `ahead` steps queued
// ----------------------------------------

// Steps that are queued when the program ends do nothing: they could take half a minute.
__global__ void step_unless_stopped(const float4* position, float4* velocity, float4* moved, int n,
                                    float dt, const int* stopped) {
  if (*stopped == 0) nbody::step(position, velocity, moved, n, dt);
}

// A line on standard input is answered with the number of steps that have ended and the time at
// which the last of them ended. The speed between two answers is exact, since unfinished steps do
// not count. The program reads its input after each `every` steps.
int neighbour(int bodies, int ahead, int every) {
  std::vector<float4> start(bodies);
  srand(1);
  const auto unit = [] { return static_cast<float>(rand()) / static_cast<float>(RAND_MAX); };
  for (float4& body : start) {
    body = {unit(), unit(), unit(), 1.0f / static_cast<float>(bodies)};
  }
  const size_t bytes = bodies * sizeof(float4);
  float4 *position, *velocity, *moved;
  int* stopped;
  CHECK(cudaMalloc(&position, bytes));
  CHECK(cudaMalloc(&velocity, bytes));
  CHECK(cudaMalloc(&moved, bytes));
  CHECK(cudaMalloc(&stopped, sizeof *stopped));
  CHECK(cudaMemset(velocity, 0, bytes));
  CHECK(cudaMemset(stopped, 0, sizeof *stopped));
  CHECK(cudaMemcpy(position, start.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaDeviceSynchronize());
  const cudaStream_t stream = new_stream(), other = new_stream();
  std::vector<cudaEvent_t> events(ahead / every);
  for (cudaEvent_t& event : events) event = new_event();
  const unsigned grid = (bodies + nbody::kBlock - 1) / nbody::kBlock;

  // Turns, each of `every` steps. The driver queues hundreds of steps or as many as fit, so an
  // answer may have to wait for the first turn to end.
  size_t queued = 0, ended = 0;
  double last_end = 0;
  for (;;) {
    while (ended < queued) {
      const cudaEvent_t event = events[ended % events.size()];
      if (queued - ended == events.size()) {
        CHECK(cudaEventSynchronize(event));
      } else if (const cudaError_t state = cudaEventQuery(event); state == cudaErrorNotReady) {
        break;
      } else {
        CHECK(state);
      }
      ended++;
      last_end = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
      if (ended == 1) say_ready();
    }
    const Input input = look_at_input(0);
    if (input == Input::kEnd) break;
    if (input == Input::kLine) {
      printf("{\"steps\": %zu, \"at\": %.6f}\n", ended * every, last_end);
      fflush(stdout);
    }
    for (int i = 0; i < every; i++) {
      step_unless_stopped<<<grid, nbody::kBlock, 0, stream>>>(position, velocity, moved, bodies,
                                                              1e-3f, stopped);
      std::swap(position, moved);
    }
    CHECK(cudaEventRecord(events[queued++ % events.size()], stream));
  }
  CHECK(cudaMemsetAsync(stopped, 1, sizeof *stopped, other));
  CHECK(cudaDeviceSynchronize());
  return 0;
}

// --- clients that wait, run long kernels, or are stopped
// ----------------------------------------------------

__global__ void count(int* counter) { ++*counter; }

// A counter. `count` is loaded here: loading is lazy, and it would wait for a stream that waits.
int* new_counter() {
  int* counter;
  CHECK(cudaMalloc(&counter, sizeof *counter));
  count<<<1, 1>>>(counter);
  CHECK(cudaMemset(counter, 0, sizeof *counter));
  CHECK(cudaDeviceSynchronize());
  return counter;
}

void expect_count(const int* counter, int wanted) {
  int found = 0;
  CHECK(cudaMemcpy(&found, counter, sizeof found, cudaMemcpyDeviceToHost));
  if (found == wanted) return;
  fprintf(stderr, "clients: %d kernels ran, not %d\n", found, wanted);
  exit(1);
}

// A word of pinned memory, for which streams can wait.
volatile uint32_t* new_word() {
  void* word;
  CHECK(cudaMallocHost(&word, sizeof(uint32_t)));
  memset(word, 0, sizeof(uint32_t));
  return static_cast<volatile uint32_t*>(word);
}

// The stream waits until the word isn't 0. The runtime has no such call: it is the driver's.
void wait_in_stream(cudaStream_t stream, volatile uint32_t* word) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault,
                                         &found));
  const auto wait = reinterpret_cast<decltype(&cuStreamWaitValue32_v2)>(entry);
  const auto address = reinterpret_cast<CUdeviceptr>(const_cast<uint32_t*>(word));
  if (wait && wait(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS) return;
  fprintf(stderr, "clients: cuStreamWaitValue32 failed\n");
  exit(1);
}

// A stream that waits for a value, with ten kernels behind it; the value comes when input ends.
int waiting() {
  constexpr int kKernels = 10;
  int* counter = new_counter();
  const cudaStream_t stream = new_stream();
  volatile uint32_t* word = new_word();
  wait_in_stream(stream, word);
  for (int i = 0; i < kKernels; i++) count<<<1, 1, 0, stream>>>(counter);
  say_ready();
  await_end_of_input();
  const auto begin = Clock::now();
  *word = 1;
  CHECK(cudaStreamSynchronize(stream));
  const double spent = milliseconds_since(begin);
  expect_count(counter, kKernels);
  printf("{\"after_ms\": %.3f}\n", spent);
  return 0;
}

__device__ uint64_t device_nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void spin(uint64_t nanoseconds) {
  const uint64_t begin = device_nanoseconds();
  while (device_nanoseconds() - begin < nanoseconds) {
  }
}

// Long kernels of one block, three of them queued in one stream at any time.
int long_kernels(int milliseconds) {
  constexpr int kQueued = 3;
  const cudaStream_t stream = new_stream();
  cudaEvent_t events[kQueued];
  for (cudaEvent_t& event : events) event = new_event();
  for (long turn = 0;; turn++) {
    const cudaEvent_t event = events[turn % kQueued];
    if (turn == kQueued) say_ready();
    if (turn >= kQueued) CHECK(cudaEventSynchronize(event));
    if (look_at_input(0) == Input::kEnd) break;
    spin<<<1, 32, 0, stream>>>(milliseconds * 1'000'000ull);
    CHECK(cudaEventRecord(event, stream));
  }
  CHECK(cudaDeviceSynchronize());
  return 0;
}

// Work that waits for all that only this process can bring: a host function, a value, an event
// behind the host function. The process is then stopped by a signal.
int pending() {
  constexpr int kKernels = 50;
  static std::atomic<bool> released{false};
  const cudaStream_t host = new_stream(), value = new_stream(), behind = new_stream();
  int* counters[3] = {new_counter(), new_counter(), new_counter()};
  int* copy;
  CHECK(cudaMallocHost(&copy, sizeof *copy));
  volatile uint32_t* word = new_word();
  const cudaEvent_t event = new_event();
  const auto launch = [&](cudaStream_t stream, int* counter) {
    for (int i = 0; i < kKernels; i++) count<<<1, 1, 0, stream>>>(counter);
  };
  const auto await_release = [](void*) {
    while (!released.load()) usleep(1000);
  };
  CHECK(cudaLaunchHostFunc(host, await_release, nullptr));
  launch(host, counters[0]);
  CHECK(cudaMemcpyAsync(copy, counters[0], sizeof *copy, cudaMemcpyDeviceToHost, host));
  CHECK(cudaEventRecord(event, host));
  CHECK(cudaStreamWaitEvent(behind, event, 0));
  launch(behind, counters[1]);
  wait_in_stream(value, word);
  launch(value, counters[2]);
  say_ready();
  await_end_of_input();
  released.store(true);
  *word = 1;
  CHECK(cudaDeviceSynchronize());
  for (const int* counter : counters) expect_count(counter, kKernels);
  return *copy == kKernels ? 0 : 1;
}

// --- endless and chains: what counts as busy, and what runs at once
// ----------------------------------------------------

// One thread. words[0] says that it runs, words[1] that it shall end.
__global__ void until_told(volatile uint32_t* words) {
  words[0] = 1;
  while (words[1] == 0) {
  }
}

// A kernel of one thread that ends when input ends.
int endless() {
  volatile uint32_t* words;
  CHECK(cudaMallocHost(const_cast<uint32_t**>(&words), 2 * sizeof(uint32_t)));
  words[0] = words[1] = 0;
  const cudaStream_t stream = new_stream();
  until_told<<<1, 1, 0, stream>>>(words);
  CHECK(cudaGetLastError());
  while (words[0] == 0) {
    if (cudaStreamQuery(stream) != cudaErrorNotReady) break;
    usleep(1000);
  }
  if (words[0] == 0) {
    CHECK(cudaStreamSynchronize(stream));
    return 1;
  }
  say_ready();
  await_end_of_input();
  words[1] = 1;
  CHECK(cudaStreamSynchronize(stream));
  return 0;
}

// Streams that belong to threads in equal parts. Each stream has a chain of kernels of one block,
// which take so many microseconds each; a thread launches one chain after the other. It prints when
// they began and ended, in seconds of the system's clock.
int chains(int streams, int threads, int kernels, int microseconds) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  std::vector<cudaStream_t> all(streams);
  for (cudaStream_t& stream : all) {
    stream = new_stream();
    spin<<<1, 32, 0, stream>>>(0);
  }
  CHECK(cudaDeviceSynchronize());
  const auto work = [&](int thread) {
    for (int i = thread; i < streams; i += threads) {
      for (int k = 0; k < kernels; k++) spin<<<1, 32, 0, all[i]>>>(microseconds * 1'000ull);
    }
    for (int i = thread; i < streams; i += threads) CHECK(cudaStreamSynchronize(all[i]));
  };
  std::promise<void> go;
  const std::shared_future<void> released = go.get_future().share();
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; thread++) {
    others.emplace_back([&work, thread, released] {
      released.wait();
      work(thread);
    });
  }
  say_ready();
  await_end_of_input();
  const double begin = now();
  go.set_value();
  work(0);
  for (std::thread& other : others) other.join();
  printf("{\"begin\": %.6f, \"end\": %.6f}\n", begin, now());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const auto number = [&](int at) { return argc > at ? atof(argv[at]) : 0.0; };
  const auto integer = [&](int at) { return static_cast<int>(number(at)); };
  if (!strcmp(what, "latency") && argc == 4) return latency(number(2), integer(3));
  if (!strcmp(what, "throughput") && argc == 4) return throughput(number(2), number(3));
  if (!strcmp(what, "busy") && argc == 6) {
    return busy(integer(2), integer(3), number(4), number(5));
  }
  if (!strcmp(what, "sweep") && argc == 5) return sweep(integer(2), number(3), number(4));
  if (!strcmp(what, "nbody") && argc == 5) return neighbour(integer(2), integer(3), integer(4));
  if (!strcmp(what, "waiting")) return waiting();
  if (!strcmp(what, "long") && argc == 3) return long_kernels(integer(2));
  if (!strcmp(what, "pending")) return pending();
  if (!strcmp(what, "endless")) return endless();
  if (!strcmp(what, "chains") && argc == 6) {
    return chains(integer(2), std::max(1, integer(3)), integer(4), integer(5));
  }
  fprintf(stderr,
          "usage: clients latency SECONDS FMAS | throughput SECONDS START |\n"
          "       busy BLOCKS FMAS SECONDS START | sweep MIB SECONDS START |\n"
          "       nbody BODIES AHEAD EVERY | waiting | long MILLISECONDS | pending |\n"
          "       endless | chains STREAMS THREADS KERNELS US\n");
  return 2;
}
