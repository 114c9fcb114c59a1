// SPDX-License-Identifier: Apache-2.0
// What threads.cc does where glibc has nothing of its own, by names that tests can call on any
// machine. Any thread.
#pragma once

#include <pthread.h>

#include <ctime>

namespace openmps::oldlibc {

// pthread_cond_clockwait() by pthread_cond_timedwait(): as long by the clock that can be set. Who
// turns that one back meanwhile makes one wait longer. `condition` is one without attributes.
int wait_by_distance(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                     const timespec* deadline);

// __cxa_thread_atexit_impl(): destroy(object) when the calling thread ends, what came last first;
// not of the thread that ends the process. The code's library is not kept loaded.
int remember_object(void (*destroy)(void*), void* object, void* library);

}  // namespace openmps::oldlibc
