// SPDX-License-Identifier: Apache-2.0
// See thread_state.h. A pthread key deletes the state when the thread ends.
#include "client/context/thread_state.h"

#include <pthread.h>

#include <atomic>

namespace openmps::client {

constinit thread_local ThreadState* t_thread_state = nullptr;

namespace {

pthread_once_t g_once = PTHREAD_ONCE_INIT;
pthread_key_t g_key;
constinit std::atomic<void (*)(const ThreadState&)> g_at_end{nullptr};

void thread_ended(void* state_pointer) {
  ThreadState* state = static_cast<ThreadState*>(state_pointer);
  if (const auto hook = g_at_end.load(std::memory_order_acquire); hook != nullptr) hook(*state);
  t_thread_state = nullptr;
  delete state;
}

}  // namespace

ThreadState& make_thread_state() {
  pthread_once(&g_once, [] { pthread_key_create(&g_key, thread_ended); });
  t_thread_state = new ThreadState;
  pthread_setspecific(g_key, t_thread_state);
  return *t_thread_state;
}

void set_thread_end(void (*hook)(const ThreadState&)) {
  g_at_end.store(hook, std::memory_order_release);
}

}  // namespace openmps::client
