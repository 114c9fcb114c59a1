// SPDX-License-Identifier: Apache-2.0
// A program that fills its memory in a SIGSEGV handler on the first access (as garbage collectors,
// checkpoints, and null checks of Java and .NET do), during copies of every kind, and in its own
// functions that run on threads of the driver. Run by run_e2e.py. usage: drv_faults
#include <sys/mman.h>
#include <unistd.h>
#include <csignal>

#include <atomic>

#include "driver.h"

namespace {

constexpr size_t kBytes = 32 << 20;  // copied by several threads if there are enough cores
constexpr size_t kPage = 4096;
constexpr unsigned char kFilled = 7;

unsigned char* g_area = nullptr;
std::atomic<size_t> g_faults{0};

void fill(int, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr) / kPage * kPage;
  auto* page = reinterpret_cast<unsigned char*>(at);
  if (page < g_area || page >= g_area + kBytes) {
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  mprotect(page, kPage, PROT_READ | PROT_WRITE);
  memset(page, kFilled, kPage);
  g_faults++;
}

void fresh_area() {
  if (g_area != nullptr) munmap(g_area, kBytes);
  void* area = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) exit(1);
  g_area = static_cast<unsigned char*>(area);
  g_faults = 0;
}

void tell(const char* what, bool right) {
  e2e::expect(right && g_faults == kBytes / kPage, "%s, %zu faults", what, g_faults.load());
}

void touch_all(void* sum) {
  for (size_t at = 0; at < kBytes; at += kPage) *static_cast<size_t*>(sum) += g_area[at];
}
void touch_all_of(CUstream, CUresult, void* sum) { touch_all(sum); }

constexpr int kOtherFaults[] = {SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
std::atomic<size_t> g_seen{0};
void note(int) { g_seen++; }

// Each of these signals is delivered to the thread that caused it.
void fault_otherwise(void*) {
  for (const int number : kOtherFaults) raise(number);
}

}  // namespace

int main() {
  e2e::Session session;
  struct sigaction action {};
  action.sa_sigaction = fill;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  const e2e::Buffer<unsigned char> device(kBytes);
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

  fresh_area();
  CHECK_CU(cuMemcpyHtoD_v2(device.address, g_area, kBytes));
  tell("copied from", device.get() == std::vector<unsigned char>(kBytes, kFilled));
  fresh_area();
  CHECK_CU(cuMemsetD8_v2(device.address, 5, kBytes));
  CHECK_CU(cuMemcpyDtoH_v2(g_area, device.address, kBytes));
  tell("copied to", std::vector<unsigned char>(g_area, g_area + kBytes) ==
                        std::vector<unsigned char>(kBytes, 5));
  fresh_area();
  CHECK_CU(cuMemcpyHtoDAsync_v2(device.address, g_area, kBytes, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  tell("copied from, through a stream",
       device.get() == std::vector<unsigned char>(kBytes, kFilled));
  fresh_area();
  size_t sum = 0;
  CHECK_CU(cuLaunchHostFunc(stream, touch_all, &sum));
  CHECK_CU(cuStreamSynchronize(stream));
  tell("touched by a host function", sum == kFilled * kBytes / kPage);
  fresh_area();
  sum = 0;
  CHECK_CU(cuStreamAddCallback(stream, touch_all_of, &sum, 0));
  CHECK_CU(cuStreamSynchronize(stream));
  tell("touched by a callback", sum == kFilled * kBytes / kPage);

  for (const int number : kOtherFaults) signal(number, note);
  CHECK_CU(cuLaunchHostFunc(stream, fault_otherwise, nullptr));
  CHECK_CU(cuStreamSynchronize(stream));
  e2e::expect(g_seen == std::size(kOtherFaults), "signals of other faults reach their handlers");
  CHECK_CU(cuStreamDestroy_v2(stream));
  return e2e::finish();
}
