// SPDX-License-Identifier: Apache-2.0
// Threads: gettid() and waits by the steady clock (glibc 2.30), which std::condition_variable asks
// for, destructors of thread-local objects (2.18), and the flag that there is one thread only
// (2.32), which std::shared_ptr reads. The waits and destructors are left to glibc where it
// has it. Any thread.
#include "oldlibc/own.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <utility>

namespace openmps::oldlibc {
namespace {

constexpr long kSecondNs = 1'000'000'000;

// An object of a thread that has a destructor.
struct ThreadObject {
  void (*destroy)(void*);
  void* object;
  ThreadObject* earlier;
};

pthread_key_t g_objects_key;  // a thread's last ThreadObject
pthread_once_t g_objects_once = PTHREAD_ONCE_INIT;

void destroy_objects(void* last) {
  for (auto* each = static_cast<ThreadObject*>(last); each != nullptr;) {
    each->destroy(each->object);
    free(std::exchange(each, each->earlier));
  }
}

}  // namespace

int wait_by_distance(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                     const timespec* deadline) {
  for (;;) {
    timespec now{}, until{};
    if (clock_gettime(clock, &now) != 0) return EINVAL;
    if (now.tv_sec > deadline->tv_sec ||
        (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec)) {
      return ETIMEDOUT;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += deadline->tv_sec - now.tv_sec;
    until.tv_nsec += deadline->tv_nsec - now.tv_nsec;
    if (until.tv_nsec < 0) {
      until.tv_nsec += kSecondNs;
      --until.tv_sec;
    } else if (until.tv_nsec >= kSecondNs) {
      until.tv_nsec -= kSecondNs;
      ++until.tv_sec;
    }
    const int result = pthread_cond_timedwait(condition, mutex, &until);
    if (result != ETIMEDOUT) return result;
  }
}

int remember_object(void (*destroy)(void*), void* object, void*) {
  pthread_once(&g_objects_once, [] {
    if (pthread_key_create(&g_objects_key, destroy_objects) != 0) abort();
  });
  auto* made = static_cast<ThreadObject*>(malloc(sizeof(ThreadObject)));
  if (made == nullptr) abort();
  *made = {destroy, object, static_cast<ThreadObject*>(pthread_getspecific(g_objects_key))};
  return pthread_setspecific(g_objects_key, made);
}

}  // namespace openmps::oldlibc

extern "C" {

// There may be more at any time.
extern char __libc_single_threaded;
char __libc_single_threaded = 0;

pid_t gettid() noexcept { return static_cast<pid_t>(syscall(SYS_gettid)); }

// The linker's --wrap: who calls f() comes to __wrap_f(), and __real_f() is glibc's, or null where
// it has none. Not by dlsym(), whose lock a program may hold that waits for the caller.
__attribute__((weak)) int __real_pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*,
                                                        clockid_t, const timespec*);
__attribute__((weak)) int __real___cxa_thread_atexit_impl(void (*)(void*), void*, void*);

int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* deadline) {
  const auto wait = __real_pthread_cond_clockwait != nullptr ? __real_pthread_cond_clockwait
                                                             : openmps::oldlibc::wait_by_distance;
  return wait(condition, mutex, clock, deadline);
}

int __wrap___cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void* library) {
  const auto remember = __real___cxa_thread_atexit_impl != nullptr
                            ? __real___cxa_thread_atexit_impl
                            : openmps::oldlibc::remember_object;
  return remember(destroy, object, library);
}

}  // extern "C"
