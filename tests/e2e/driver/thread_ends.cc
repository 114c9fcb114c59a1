// SPDX-License-Identifier: Apache-2.0
// Threads that end inside of a CUDA call: cancelled by another thread, or by pthread_exit() in a
// function of the program that the driver calls. Other threads can continue. Run by run_e2e.py.
// usage: drv_thread_ends cancelled|pending|exits
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <string_view>

#include "driver.h"

namespace {

using e2e::expect;

constexpr size_t kBytes = 64 << 20;  // pageable, more than is staged at once

// The call that a thread makes when it is cancelled.
struct Call {
  e2e::Session& session;
  CUstream stream = nullptr;
  CUdeviceptr device = 0;
  std::vector<unsigned char> pageable = std::vector<unsigned char>(kBytes);
  std::atomic<bool> opened{false};
  std::atomic<bool> begun{false};
};

// A host function that holds its stream until the main thread releases it.
void hold(void* call) {
  while (!static_cast<Call*>(call)->opened) usleep(1000);
}

bool is_usable(const Call& call) {
  CUstream other = nullptr;
  CUdeviceptr more = 0;
  const e2e::Buffer<uint32_t> words(std::vector<uint32_t>(256, 1));
  const bool works =
      cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
      e2e::try_launch(call.session.function("mix"), 2, 128, 0, other, words.address, 256u, 1u) ==
          CUDA_SUCCESS &&
      cuStreamSynchronize(other) == CUDA_SUCCESS && cuMemAlloc_v2(&more, kBytes) == CUDA_SUCCESS &&
      cuMemFree_v2(more) == CUDA_SUCCESS && cuStreamDestroy_v2(other) == CUDA_SUCCESS;
  return works && cuCtxSynchronize() == CUDA_SUCCESS;
}

// A thread waits for a stream, and is cancelled while it does.
void* synchronize(void* argument) {
  auto* call = static_cast<Call*>(argument);
  cuCtxSetCurrent(call->session.context);
  call->begun = true;
  cuStreamSynchronize(call->stream);
  pthread_testcancel();
  return nullptr;
}
void* synchronize_asynchronously(void* call) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
  return synchronize(call);
}

void cancel_in_a_wait(const char* what, e2e::Session& session, void* (*body)(void*)) {
  Call call{session};
  CHECK_CU(cuStreamCreate(&call.stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuLaunchHostFunc(call.stream, hold, &call));
  pthread_t thread;
  pthread_create(&thread, nullptr, body, &call);
  while (!call.begun) usleep(1000);
  usleep(50'000);  // the thread probably waits by then; the test is right also if it does not
  pthread_cancel(thread);
  usleep(50'000);
  call.opened = true;
  void* result = nullptr;
  pthread_join(thread, &result);
  expect(result == PTHREAD_CANCELED, "%s: the thread is cancelled", what);
  CHECK_CU(cuStreamSynchronize(call.stream));
  expect(is_usable(call), "%s: the others go on", what);
  CHECK_CU(cuStreamDestroy_v2(call.stream));
}

// Calls of a thread that has been cancelled already: each call may end the thread or return.
template <typename Body>
void cancel_before(const char* what, Call& call, Body body) {
  struct Start {
    Call& call;
    Body& body;
  } start{call, body};
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void* argument) -> void* {
        auto* given = static_cast<Start*>(argument);
        cuCtxSetCurrent(given->call.session.context);
        pthread_cancel(pthread_self());
        given->body();
        pthread_testcancel();
        return nullptr;
      },
      &start);
  void* result = nullptr;
  pthread_join(thread, &result);
  expect(result == PTHREAD_CANCELED && is_usable(call), "%s: cancelled, the others go on", what);
}

void pending(e2e::Session& session) {
  Call call{session};
  CHECK_CU(cuStreamCreate(&call.stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuMemAlloc_v2(&call.device, kBytes));
  const CUfunction empty = session.function("empty");
  cancel_before("launch", call, [&] { (void)e2e::try_launch(empty, 1, 1, 0, call.stream); });
  cancel_before("synchronize", call, [&] { cuStreamSynchronize(call.stream); });
  cancel_before("allocate", call, [&] {
    CUdeviceptr address = 0;
    if (cuMemAlloc_v2(&address, kBytes) == CUDA_SUCCESS) cuMemFree_v2(address);
  });
  cancel_before("copy", call,
                [&] { cuMemcpyHtoD_v2(call.device, call.pageable.data(), call.pageable.size()); });
  cancel_before("copy back", call,
                [&] { cuMemcpyDtoH_v2(call.pageable.data(), call.device, call.pageable.size()); });
  cancel_before("pinned memory", call, [&] {
    void* address = nullptr;
    if (cuMemAllocHost_v2(&address, kBytes) == CUDA_SUCCESS) cuMemFreeHost(address);
  });
  cancel_before("host function", call, [&] {
    cuLaunchHostFunc(
        call.stream, [](void*) {}, nullptr);
  });
  CHECK_CU(cuMemFree_v2(call.device));
  CHECK_CU(cuStreamDestroy_v2(call.stream));
}

std::atomic<bool> g_ran{false};

void exit_thread(void*) {
  g_ran = true;
  pthread_exit(nullptr);
}
void exit_thread_of(CUstream, CUresult, void*) { exit_thread(nullptr); }
void cancel_thread(void*) {
  g_ran = true;
  pthread_cancel(pthread_self());
  pthread_testcancel();
}
size_t exit_in_a_question(int) { pthread_exit(nullptr); }

// Runs in a process of its own, because natively the stream of such a function remains blocked.
template <typename Body>
void end_in_a_function(const char* what, Body give_it) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    e2e::Session session;
    const CUfunction empty = session.function("empty");
    CUstream stream = nullptr;
    CUstream other = nullptr;
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    give_it(session, stream);
    while (!g_ran) usleep(1000);
    const bool works = e2e::try_launch(empty, 1, 1, 0, other) == CUDA_SUCCESS &&
                       cuStreamSynchronize(other) == CUDA_SUCCESS;
    fflush(stdout);
    quick_exit(works ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: the others go on", what);
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string_view group = argc > 1 ? argv[1] : "";
  if (group == "cancelled") {
    e2e::Session session;
    cancel_in_a_wait("deferred", session, synchronize);
    cancel_in_a_wait("asynchronous", session, synchronize_asynchronously);
  } else if (group == "pending") {
    e2e::Session session;
    pending(session);
  } else if (group == "exits") {
    end_in_a_function("pthread_exit in a host function", [](e2e::Session&, CUstream stream) {
      CHECK_CU(cuLaunchHostFunc(stream, exit_thread, nullptr));
    });
    end_in_a_function("pthread_exit in a callback", [](e2e::Session&, CUstream stream) {
      CHECK_CU(cuStreamAddCallback(stream, exit_thread_of, nullptr, 0));
    });
    end_in_a_function("pthread_cancel of itself", [](e2e::Session&, CUstream stream) {
      CHECK_CU(cuLaunchHostFunc(stream, cancel_thread, nullptr));
    });
    end_in_a_function("pthread_exit in a question", [](e2e::Session& session, CUstream) {
      pthread_t thread;
      pthread_create(
          &thread, nullptr,
          [](void* argument) -> void* {
            auto* of = static_cast<e2e::Session*>(argument);
            cuCtxSetCurrent(of->context);
            int blocks = 0;
            int threads = 0;
            cuOccupancyMaxPotentialBlockSize(&blocks, &threads, of->function("empty"),
                                             exit_in_a_question, 0, 0);
            return nullptr;
          },
          &session);
      pthread_join(thread, nullptr);
      g_ran = true;
    });
  } else {
    return 2;
  }
  return e2e::finish();
}
