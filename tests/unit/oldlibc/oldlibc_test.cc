// SPDX-License-Identifier: Apache-2.0
// What src/oldlibc has in place of a newer glibc's functions: this program is linked with it, so
// these are called.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "oldlibc/own.h"

extern "C" {
long __isoc23_strtol(const char* text, char** end, int base);
__attribute__((weak)) int __real_pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*,
                                                        clockid_t, const timespec*);
__attribute__((weak)) int __real___cxa_thread_atexit_impl(void (*)(void*), void*, void*);
int __isoc23_sscanf(const char* text, const char* format, ...);
}

namespace openmps {
namespace {

timespec steady_after(long ns) {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_sec += (at.tv_nsec + ns) / 1'000'000'000;
  at.tv_nsec = (at.tv_nsec + ns) % 1'000'000'000;
  return at;
}
bool has_come(const timespec& deadline) {
  const timespec now = steady_after(0);
  return now.tv_sec > deadline.tv_sec ||
         (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

class WaitTest : public ::testing::Test {
 protected:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

TEST_F(WaitTest, EndsNotBeforeItsDeadline) {
  pthread_mutex_lock(&mutex_);
  for (const long ns : {0L, 1L, 999'999'999L}) {
    const timespec deadline = steady_after(ns);
    EXPECT_EQ(oldlibc::wait_by_distance(&condition_, &mutex_, CLOCK_MONOTONIC, &deadline),
              ETIMEDOUT);
    EXPECT_TRUE(has_come(deadline)) << ns;
  }
  pthread_mutex_unlock(&mutex_);
}

TEST_F(WaitTest, EndsWhenItIsTold) {
  bool told = false;
  pthread_mutex_lock(&mutex_);
  std::thread other([&] {
    pthread_mutex_lock(&mutex_);
    told = true;
    pthread_cond_signal(&condition_);
    pthread_mutex_unlock(&mutex_);
  });
  const timespec deadline = steady_after(900'000'000'000);
  while (!told) {
    ASSERT_EQ(oldlibc::wait_by_distance(&condition_, &mutex_, CLOCK_MONOTONIC, &deadline), 0);
  }
  pthread_mutex_unlock(&mutex_);
  other.join();
}

TEST_F(WaitTest, RefusesAClockThatIsNone) {
  const timespec deadline{};
  EXPECT_EQ(oldlibc::wait_by_distance(&condition_, &mutex_, 12345, &deadline), EINVAL);
}

// The linker's names for glibc's own, which src/oldlibc/threads.cc prefers.
TEST(ChoiceTest, GlibcsOwnAreFoundWhereItHasThem) {
  EXPECT_EQ(reinterpret_cast<void*>(__real_pthread_cond_clockwait),
            dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  EXPECT_EQ(reinterpret_cast<void*>(__real___cxa_thread_atexit_impl),
            dlsym(RTLD_DEFAULT, "__cxa_thread_atexit_impl"));
}

TEST(ConditionVariableTest, EndsNotBeforeItsDeadline) {
  std::condition_variable condition;
  std::mutex mutex;
  std::unique_lock lock(mutex);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_FALSE(condition.wait_until(lock, deadline, [] { return false; }));
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

TEST(ThreadObjectTest, TheLastIsDestroyedFirstWhenTheThreadEnds) {
  static std::vector<int> destroyed;
  static int numbers[] = {0, 1, 2};
  std::thread([] {
    for (int& number : numbers) {
      oldlibc::remember_object([](void* at) { destroyed.push_back(*static_cast<int*>(at)); },
                               &number, nullptr);
    }
    EXPECT_TRUE(destroyed.empty());
  }).join();
  EXPECT_EQ(destroyed, std::vector<int>({2, 1, 0}));
}

TEST(ThreadObjectTest, OneOfTheLanguageIsDestroyed) {
  static bool destroyed = false;
  struct End {
    int use = 0;
    ~End() { destroyed = true; }
  };
  std::thread([] {
    static thread_local End end;
    end.use = 1;
  }).join();
  EXPECT_TRUE(destroyed);
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE
// Ours by its name, glibc's by asking for it.
TEST(UnwindTest, TheTablesAreThoseThatGlibcFinds) {
  const auto theirs =
      reinterpret_cast<int (*)(void*, dl_find_object*)>(dlsym(RTLD_DEFAULT, "_dl_find_object"));
  if (theirs == nullptr) GTEST_SKIP() << "this glibc has none";
  for (void* code : {reinterpret_cast<void*>(&steady_after), reinterpret_cast<void*>(&dlsym)}) {
    dl_find_object ours{}, wanted{};
    ASSERT_EQ(_dl_find_object(code, &ours), 0);
    ASSERT_EQ(theirs(code, &wanted), 0);
    EXPECT_EQ(ours.dlfo_eh_frame, wanted.dlfo_eh_frame);
    EXPECT_LE(ours.dlfo_map_start, code);
    EXPECT_GT(ours.dlfo_map_end, code);
  }
  dl_find_object found{};
  EXPECT_EQ(_dl_find_object(nullptr, &found), -1);
  int on_the_stack = 0;
  EXPECT_EQ(_dl_find_object(&on_the_stack, &found), -1);
}
#endif

TEST(UnwindTest, AnExceptionFindsItsHandler) {
  try {
    throw std::runtime_error("thrown");
  } catch (const std::exception& caught) {
    EXPECT_STREQ(caught.what(), "thrown");
  }
}

TEST(FilesTest, ByPathAndByDescriptor) {
  const int file = memfd_create("oldlibc", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 4321), 0);
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  struct stat found {};
  ASSERT_EQ(fstat(file, &found), 0);
  EXPECT_EQ(found.st_size, 4321);
  found = {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_size, 4321);
  ASSERT_EQ(lstat(path.c_str(), &found), 0);
  EXPECT_TRUE(S_ISLNK(found.st_mode));
  ASSERT_EQ(fstatat(AT_FDCWD, path.c_str(), &found, 0), 0);
  EXPECT_EQ(found.st_size, 4321);
  EXPECT_EQ(stat("/nonexistent", &found), -1);
  EXPECT_EQ(errno, ENOENT);
  close(file);
}

TEST(IntegersTest, AreRead) {
  char* end = nullptr;
  EXPECT_EQ(__isoc23_strtol("-0x1fz", &end, 0), -31);
  EXPECT_STREQ(end, "z");
  int a = 0, b = 0;
  EXPECT_EQ(__isoc23_sscanf("7 of 9", "%d of %d", &a, &b), 2);
  EXPECT_EQ(a * 10 + b, 79);
}

}  // namespace
}  // namespace openmps
