// SPDX-License-Identifier: Apache-2.0
// CUDA calls while the process exits: calls that run before the exit handler that cuInit registers
// work, calls after it get CUDA_ERROR_DEINITIALIZED. Run by run_e2e.py. usage: drv_exit_calls
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "driver.h"

namespace {

// The point at which the process of one case makes the calls.
enum class Place { kNone, kBefore, kAfter, kStatic, kDestructor, kFirst, kThread };
Place g_place = Place::kNone;

CUcontext g_context = nullptr;
CUmodule g_module = nullptr;
CUfunction g_empty = nullptr;
CUstream g_stream = nullptr;
CUdeviceptr g_memory = 0;

// Prints the number of the result, since its name would be another call to the driver.
void tell(const char* call, CUresult result) {
  printf("  %s: %d\n", call, static_cast<int>(result));
}

void call_all(const char* where) {
  printf("%s\n", where);
  int number = 0;
  const char* text = nullptr;
  void* entry = nullptr;
  void* pinned = nullptr;
  CUcontext context = nullptr;
  CUdeviceptr more = 0;
  CUdriverProcAddressQueryResult status{};
  tell("cuDriverGetVersion", cuDriverGetVersion(&number));
  tell("cuGetErrorName", cuGetErrorName(CUDA_SUCCESS, &text));
  tell("cuGetProcAddress", cuGetProcAddress_v2("cuInit", &entry, 12000, 0, &status));
  tell("cuInit", cuInit(0));
  tell("cuDeviceGetCount", cuDeviceGetCount(&number));
  tell("cuCtxGetCurrent", cuCtxGetCurrent(&context));
  tell("cuCtxSetCurrent", cuCtxSetCurrent(g_context));
  tell("cuLaunchKernel", e2e::try_launch(g_empty, 1, 1, 0, g_stream));
  tell("cuStreamSynchronize", cuStreamSynchronize(g_stream));
  tell("cuStreamQuery", cuStreamQuery(g_stream));
  tell("cuMemAlloc", cuMemAlloc_v2(&more, 4));
  tell("cuMemFree", cuMemFree_v2(g_memory));
  tell("cuMemAllocHost", cuMemAllocHost_v2(&pinned, 4));
  tell("cuCtxSynchronize", cuCtxSynchronize());
  tell("cuModuleUnload", cuModuleUnload(g_module));
  tell("cuStreamDestroy", cuStreamDestroy_v2(g_stream));
  tell("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2(0));
  fflush(stdout);
}

struct AtExit {
  ~AtExit() {
    if (g_place == Place::kStatic) call_all("static destructor");
  }
} g_at_exit;

__attribute__((destructor)) void last() {
  if (g_place == Place::kDestructor) call_all("destructor of the program");
}

std::atomic<bool> g_calls{false};
std::atomic<int> g_answer{-1};
void* call_on(void*) {
  cuCtxSetCurrent(g_context);
  for (;;) {
    CUdeviceptr memory = 0;
    const CUresult result = cuMemAlloc_v2(&memory, 4);
    if (result == CUDA_SUCCESS) {
      cuMemFree_v2(memory);
      g_calls = true;
      continue;
    }
    g_answer = result;
    return nullptr;
  }
}
// Runs after cuInit's exit handler.
void await_answer() {
  for (int i = 0; g_answer == -1 && i < 1000; i++) usleep(10'000);
  printf("thread that goes on\n  cuMemAlloc: %d\n", g_answer.load());
  fflush(stdout);
}

[[noreturn]] void run(Place place) {
  g_place = place;
  if (place == Place::kFirst) {
    atexit([] {
      printf("first call of all\n");
      tell("cuInit", cuInit(0));
    });
    exit(0);
  }
  if (place == Place::kBefore) atexit([] { call_all("handler from before cuInit"); });
  if (place == Place::kThread) atexit(await_answer);
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&g_context, 0));
  CHECK_CU(cuCtxSetCurrent(g_context));
  CHECK_CU(cuModuleLoadData(&g_module, e2e::kernels_ptx()));
  CHECK_CU(cuModuleGetFunction(&g_empty, g_module, "empty"));
  CHECK_CU(cuStreamCreate(&g_stream, 0));
  CHECK_CU(cuMemAlloc_v2(&g_memory, 4));
  if (place == Place::kAfter) atexit([] { call_all("handler from after cuInit"); });
  if (place == Place::kThread) {
    pthread_t thread;
    pthread_create(&thread, nullptr, call_on, nullptr);
    while (!g_calls) usleep(1000);
  }
  exit(0);
}

}  // namespace

int main() {
  for (const Place place : {Place::kBefore, Place::kAfter, Place::kStatic, Place::kDestructor,
                            Place::kFirst, Place::kThread}) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) run(place);
    int status = -1;
    waitpid(child, &status, 0);
    e2e::expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the process ended by itself");
  }
  return e2e::finish();
}
