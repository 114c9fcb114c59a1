// SPDX-License-Identifier: Apache-2.0
// A program of the CUDA runtime that loads the libcudart of its argument: does what nvcc's host
// code does (register an image, launch by the address of a host function) and makes the calls that
// most programs make. CUDA 12's runtime uses other versions of the driver's functions than CUDA
// 13's. Run by run_e2e.py. usage: drv_any_cudart LIBCUDART
#include <dlfcn.h>

#include "driver.h"

namespace {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
using Stream = void*;
using Event = void*;

enum CopyKind { kHostToDevice = 1, kDeviceToHost = 2 };
constexpr int kMultiProcessorCount = 16;  // cudaDevAttrMultiProcessorCount

void* g_runtime = nullptr;

template <typename Function>
Function* runtime(const char* name) {
  void* found = dlsym(g_runtime, name);
  if (found == nullptr) {
    printf("%s is missing\n", name);
    exit(1);
  }
  return reinterpret_cast<Function*>(found);
}

// Calls a function of the runtime by its name. The result is an error code.
template <typename... Arguments>
int call(const char* name, Arguments... arguments) {
  return runtime<int(Arguments...)>(name)(arguments...);
}

void check(const char* what, int result) { e2e::expect(result == 0, "%s: %d", what, result); }
#define CHECK_RT(name, ...) check(name, call(name, __VA_ARGS__))

// The image as nvcc embeds it: a container with one entry of PTX, which must be padded to 8 bytes.
std::vector<unsigned char> container(const char* ptx) {
  constexpr size_t kHeader = 16, kEntry = 80;
  const size_t bytes = strlen(ptx) + 1, padded = (bytes + 7) / 8 * 8;
  std::vector<unsigned char> image(kHeader + kEntry + padded, 0);
  const auto put = [&image](size_t at, auto value) { memcpy(&image[at], &value, sizeof value); };
  put(0, uint32_t{0xba55ed50});
  put(4, uint16_t{1});
  put(6, static_cast<uint16_t>(kHeader));
  put(8, static_cast<uint64_t>(kEntry + padded));
  put(kHeader + 0, uint16_t{1});  // PTX
  put(kHeader + 2, uint16_t{0x101});
  put(kHeader + 4, static_cast<uint32_t>(kEntry));
  put(kHeader + 8, static_cast<uint64_t>(padded));
  put(kHeader + 24, uint16_t{0});  // minor version of PTX 7.0
  put(kHeader + 26, uint16_t{7});
  put(kHeader + 28, uint32_t{70});    // sm_70
  put(kHeader + 40, uint64_t{0x11});  // 64-bit, Linux
  // The offset of the compiler's options in the entry. They are empty.
  put(kHeader + 20, uint32_t{64});
  put(kHeader + 64, uint64_t{72});
  memcpy(&image[kHeader + kEntry], ptx, bytes);
  return image;
}

// Stubs: the runtime identifies kernels and variables by such addresses in the host's code.
void mix_stub() {}
void globals_stub() {}
char counter_stub[4];

struct Wrapper {
  uint32_t magic = 0x466243b1;
  uint32_t version = 1;
  const void* data = nullptr;
  const void* filename = nullptr;
};

void** register_image(Wrapper* wrapper) {
  void** handle = runtime<void**(void*)>("__cudaRegisterFatBinary")(wrapper);
  const auto function =
      runtime<void(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*)>(
          "__cudaRegisterFunction");
  const auto add = [&](void (*stub)(), const char* name) {
    function(handle, reinterpret_cast<const char*>(stub), const_cast<char*>(name), name, -1,
             nullptr, nullptr, nullptr, nullptr, nullptr);
  };
  add(mix_stub, "mix");
  add(globals_stub, "use_globals");
  runtime<void(void**, char*, char*, const char*, int, size_t, int, int)>("__cudaRegisterVar")(
      handle, counter_stub, const_cast<char*>("counter"), "counter", 0, sizeof(int), 0, 0);
  runtime<void(void**)>("__cudaRegisterFatBinaryEnd")(handle);
  return handle;
}

int launch(void (*stub)(), unsigned blocks, unsigned threads, void** arguments, Stream stream) {
  return call<const void*, Dim3, Dim3, void**, size_t, Stream>(
      "cudaLaunchKernel", reinterpret_cast<const void*>(stub), Dim3{blocks}, Dim3{threads},
      arguments, 0, stream);
}

void memory_and_kernels() {
  constexpr uint32_t kWords = 5000;
  uint32_t n = kWords, key = 7;
  void* words = nullptr;
  std::vector<uint32_t> host(kWords, 3), got(kWords);
  CHECK_RT("cudaMalloc", &words, size_t{kWords * 4});
  CHECK_RT("cudaMemcpy", words, static_cast<const void*>(host.data()), size_t{kWords * 4},
           int{kHostToDevice});
  void* arguments[] = {&words, &n, &key};
  check("launch", launch(mix_stub, e2e::blocks_for(n, 128), 128, arguments, nullptr));
  CHECK_RT("cudaMemcpy", static_cast<void*>(got.data()), static_cast<const void*>(words),
           size_t{kWords * 4}, int{kDeviceToHost});
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < n; i++) wrong += got[i] != 15 + i + key;
  e2e::expect(wrong == 0, "kernel: %u wrong", wrong);

  Stream stream = nullptr;
  Event begin = nullptr, end = nullptr;
  void* pinned = nullptr;
  float ms = -1;
  CHECK_RT("cudaStreamCreate", &stream);
  CHECK_RT("cudaEventCreate", &begin);
  CHECK_RT("cudaEventCreate", &end);
  CHECK_RT("cudaHostAlloc", &pinned, size_t{kWords * 4}, 0u);
  CHECK_RT("cudaEventRecord", begin, stream);
  check("launch", launch(mix_stub, e2e::blocks_for(n, 128), 128, arguments, stream));
  CHECK_RT("cudaMemcpyAsync", pinned, static_cast<const void*>(words), size_t{kWords * 4},
           int{kDeviceToHost}, stream);
  CHECK_RT("cudaEventRecord", end, stream);
  CHECK_RT("cudaStreamSynchronize", stream);
  CHECK_RT("cudaEventElapsedTime", &ms, begin, end);
  const auto* words_now = static_cast<const uint32_t*>(pinned);
  wrong = 0;
  for (uint32_t i = 0; i < n; i++) wrong += words_now[i] != got[i] * 5 + i + key;
  e2e::expect(wrong == 0 && ms >= 0, "stream: %u wrong", wrong);

  Stream capture = nullptr;
  void *graph = nullptr, *exec = nullptr;
  CHECK_RT("cudaStreamCreateWithFlags", &capture, 1u);
  CHECK_RT("cudaStreamBeginCapture", capture, 0);
  check("launch", launch(mix_stub, e2e::blocks_for(n, 128), 128, arguments, capture));
  CHECK_RT("cudaStreamEndCapture", capture, &graph);
  CHECK_RT("cudaGraphInstantiateWithFlags", &exec, graph, 0ull);
  CHECK_RT("cudaGraphLaunch", exec, capture);
  CHECK_RT("cudaStreamSynchronize", capture);
  CHECK_RT("cudaGraphExecDestroy", exec);
  CHECK_RT("cudaGraphDestroy", graph);
  CHECK_RT("cudaStreamDestroy", capture);

  CHECK_RT("cudaFreeHost", pinned);
  CHECK_RT("cudaEventDestroy", begin);
  CHECK_RT("cudaEventDestroy", end);
  CHECK_RT("cudaStreamDestroy", stream);
  CHECK_RT("cudaFree", words);
}

void the_rest() {
  int value = 5;
  CHECK_RT("cudaMemcpyToSymbol", static_cast<const void*>(counter_stub),
           static_cast<const void*>(&value), sizeof value, size_t{0}, int{kHostToDevice});
  value = 0;
  CHECK_RT("cudaMemcpyFromSymbol", static_cast<void*>(&value),
           static_cast<const void*>(counter_stub), sizeof value, size_t{0}, int{kDeviceToHost});
  e2e::expect(value == 5, "variable: %d", value);
  int blocks = 0, processors = 0;
  CHECK_RT("cudaOccupancyMaxActiveBlocksPerMultiprocessor", &blocks,
           reinterpret_cast<const void*>(mix_stub), 128, size_t{0});
  CHECK_RT("cudaDeviceGetAttribute", &processors, int{kMultiProcessorCount}, 0);
  e2e::expect(blocks > 0 && processors > 0, "occupancy");
  void* pooled = nullptr;
  CHECK_RT("cudaMallocAsync", &pooled, size_t{1 << 20}, Stream{nullptr});
  CHECK_RT("cudaMemsetAsync", pooled, 0, size_t{1 << 20}, Stream{nullptr});
  CHECK_RT("cudaFreeAsync", pooled, Stream{nullptr});
  check("cudaDeviceSynchronize", call("cudaDeviceSynchronize"));
  uint32_t n = 0, key = 0;
  void* nothing = nullptr;
  void* arguments[] = {&nothing, &n, &key};
  // CUDA 12's runtime returns cudaErrorInvalidConfiguration, CUDA 13's cudaErrorInvalidValue.
  const int refused = launch(mix_stub, 1, 4096, arguments, nullptr);
  e2e::expect(refused != 0, "too many threads");
  e2e::expect(call("cudaGetLastError") == refused, "the last error");
  check("cudaGetLastError", call("cudaGetLastError"));
  check("cudaDeviceReset", call("cudaDeviceReset"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  g_runtime = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (g_runtime == nullptr) {
    printf("%s\n", dlerror());
    return 1;
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);
  int version = 0;
  CHECK_RT("cudaRuntimeGetVersion", &version);
  printf("# runtime %d\n", version);
  const std::vector<unsigned char> image = container(e2e::kernels_ptx());
  Wrapper wrapper;
  wrapper.data = image.data();
  void** handle = register_image(&wrapper);
  memory_and_kernels();
  the_rest();
  runtime<void(void**)>("__cudaUnregisterFatBinary")(handle);
  return e2e::finish();
}
