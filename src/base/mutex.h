// SPDX-License-Identifier: Apache-2.0
// Mutexes that clang's thread-safety analysis understands (-Wthread-safety, run by ./dev lint) and
// that have a place in the order of locks (base/lock_order.h). In a release build each is the
// standard type that it wraps, inlined.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

#include "base/clock.h"
#include "base/lock_order.h"

#if defined(__clang__)
#define OPENMPS_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define OPENMPS_THREAD_SAFETY(attribute)
#endif

// On a member: it is read and written with the mutex held; what the pointer points to is.
#define GUARDED_BY(mutex) OPENMPS_THREAD_SAFETY(guarded_by(mutex))
#define PT_GUARDED_BY(mutex) OPENMPS_THREAD_SAFETY(pt_guarded_by(mutex))
// On a function: the caller holds the mutexes; holds them at least for reading; holds none of them.
#define REQUIRES(...) OPENMPS_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) OPENMPS_THREAD_SAFETY(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) OPENMPS_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
// On a function: it takes the mutexes, gives them back, or returns the mutex that is named.
#define ACQUIRE(...) OPENMPS_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) OPENMPS_THREAD_SAFETY(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) OPENMPS_THREAD_SAFETY(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) OPENMPS_THREAD_SAFETY(release_shared_capability(__VA_ARGS__))
#define RELEASE_GENERIC(...) OPENMPS_THREAD_SAFETY(release_generic_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) OPENMPS_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))
#define RETURN_CAPABILITY(mutex) OPENMPS_THREAD_SAFETY(lock_returned(mutex))
// On a function: the analysis takes it that the mutex is held after a call of this function.
#define ASSERT_CAPABILITY(mutex) OPENMPS_THREAD_SAFETY(assert_capability(mutex))
// On a function: it does what the analysis can't follow. A comment says why it is right.
#define NO_THREAD_SAFETY_ANALYSIS OPENMPS_THREAD_SAFETY(no_thread_safety_analysis)
// On a class: a mutex, or an object that holds one as long as it exists.
#define CAPABILITY(kind) OPENMPS_THREAD_SAFETY(capability(kind))
#define SCOPED_CAPABILITY OPENMPS_THREAD_SAFETY(scoped_lockable)

namespace openmps {

// A mutex's place in the order of locks.
class RankedLock {
 protected:
#ifdef OPENMPS_CHECK_LOCK_ORDER
  explicit constexpr RankedLock(LockRank rank) noexcept : rank_(rank) {}
  void note_lock() const { openmps::note_lock(rank_); }
  void note_unlock() const { openmps::note_unlock(rank_); }
  void check_held() const { openmps::check_held(rank_); }

 private:
  LockRank rank_;
#else
  explicit constexpr RankedLock(LockRank) noexcept {}
  void note_lock() const {}
  void note_unlock() const {}
  void check_held() const {}
#endif
};

class CAPABILITY("mutex") Mutex : RankedLock {
 public:
  explicit constexpr Mutex(LockRank rank) noexcept : RankedLock(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ACQUIRE() {
    note_lock();
    mutex_.lock();
  }
  bool try_lock() TRY_ACQUIRE(true) {
    note_lock();
    if (mutex_.try_lock()) return true;
    note_unlock();
    return false;
  }
  void unlock() RELEASE() {
    note_unlock();
    mutex_.unlock();
  }
  // For code that the analysis can't follow, such as a lambda: the thread holds the mutex. A build
  // that checks the order of locks checks that it holds one of this rank.
  void assert_held() const ASSERT_CAPABILITY(this) { check_held(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Held by one writer or by any number of readers.
class CAPABILITY("mutex") SharedMutex : RankedLock {
 public:
  explicit SharedMutex(LockRank rank) noexcept : RankedLock(rank) {}
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() ACQUIRE() {
    note_lock();
    mutex_.lock();
  }
  void unlock() RELEASE() {
    note_unlock();
    mutex_.unlock();
  }
  void lock_shared() ACQUIRE_SHARED() {
    note_lock();
    mutex_.lock_shared();
  }
  void unlock_shared() RELEASE_SHARED() {
    note_unlock();
    mutex_.unlock_shared();
  }

 private:
  std::shared_mutex mutex_;
};

// Holds a Mutex or, for writing, a SharedMutex while it exists, except between unlock() and lock().
template <typename Lockable>
class SCOPED_CAPABILITY BasicLock {
 public:
  explicit BasicLock(Lockable& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  // The caller has taken the mutex.
  BasicLock(Lockable& mutex, std::adopt_lock_t) REQUIRES(mutex) : mutex_(mutex) {}
  ~BasicLock() RELEASE() {
    if (held_) mutex_.unlock();
  }
  BasicLock(const BasicLock&) = delete;
  BasicLock& operator=(const BasicLock&) = delete;

  void unlock() RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void lock() ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  Lockable& mutex_;
  bool held_ = true;
};
using MutexLock = BasicLock<Mutex>;
using WriterLock = BasicLock<SharedMutex>;

// Gives back a Mutex that the caller holds, and takes it again when it goes out of scope.
class SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// Holds a SharedMutex for reading while it exists.
class SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~ReaderLock() RELEASE_GENERIC() { mutex_.unlock_shared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// A wait gives the mutex back and holds it again when it returns. It can return for no reason, so
// the caller tests in a loop what it waits for (the analysis can't see into a predicate):
//   while (!ready_) changed_.wait(mutex_);
class CondVar {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Up to a time of the monotonic clock (base/clock.h). False once it has come.
  bool wait_until(Mutex& mutex, uint64_t deadline_ns) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
    const bool in_time = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  // For at most so long. False: all of that time is over.
  bool wait_for(Mutex& mutex, uint64_t ns) REQUIRES(mutex) {
    return wait_until(mutex, now_ns() + ns);
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace openmps
