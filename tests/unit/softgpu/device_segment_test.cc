// SPDX-License-Identifier: Apache-2.0
// The shared device segment between processes: accounting, the right to run, sudden death.
#include "softgpu/device/machine/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <new>
#include <string>

#include "base/futex.h"
#include "base/unique_fd.h"

namespace openmps::softgpu {
namespace {

constexpr uint64_t kMemory = 1 << 20;

class SegmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    name_ = "softgpu-segment-test-" + std::to_string(getpid()) + "-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void TearDown() override { EXPECT_FALSE(exists()) << "the last one to leave removes the file"; }

  std::unique_ptr<DeviceSegment> attach() const {
    auto segment = DeviceSegment::attach(name_, kMemory);
    EXPECT_TRUE(segment.ok()) << segment.status().message();
    return segment.ok() ? std::move(*segment) : nullptr;
  }
  [[nodiscard]] bool exists() const {
    struct stat facts {};
    return stat(("/dev/shm/" + name_).c_str(), &facts) == 0;
  }
  static uint64_t free_memory(DeviceSegment& segment) {
    uint64_t free = 0;
    uint64_t total = 0;
    segment.memory_info(&free, &total);
    return free;
  }

  // A child that runs `body`, says so on a pipe, and then waits to be killed.
  pid_t hostage(const std::function<void()>& body) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
      close(ready[0]);
      body();
      EXPECT_EQ(write(ready[1], "r", 1), 1);
      for (;;) pause();
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
  }
  static void kill_and_reap(pid_t child) {
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
  }

  std::string name_;
};

// The owner of the file could change what this process believes about its own memory.
TEST_F(SegmentTest, AnotherUsersFileIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's file";
  const std::string path = "/dev/shm/" + name_;
  { const UniqueFd file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)); }
  EXPECT_EQ(chown(path.c_str(), 54321, 54321), 0);
  EXPECT_FALSE(DeviceSegment::attach(name_, kMemory).ok());
  EXPECT_EQ(DeviceSegment::inspect(name_).status().code(), CUDA_ERROR_NOT_PERMITTED);
  struct stat facts {};
  EXPECT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_size, 0);
  unlink(path.c_str());
}

TEST_F(SegmentTest, AnExclusiveDeviceIsOneProcesss) {
  auto segment = attach();
  pid_t child = hostage([&] {
    auto theirs = attach();
    EXPECT_TRUE(theirs->add_context(7, ContextKind::kCreated, true).ok());
    EXPECT_TRUE(theirs->add_context(8, ContextKind::kCreated, true).ok()) << "a second one";
    (void)theirs.release();
  });
  EXPECT_EQ(segment->add_context(9, ContextKind::kCreated, true).code(),
            CUDA_ERROR_DEVICE_UNAVAILABLE);
  kill_and_reap(child);
  EXPECT_TRUE(segment->add_context(9, ContextKind::kCreated, true).ok()) << "it has died";
  segment->detach();
}

TEST_F(SegmentTest, FaultsOfAllProcessesAreRead) {
  FaultReader early(name_);
  EXPECT_FALSE(early.next()) << "the device is not in use";
  auto segment = attach();
  segment->note_fault(13);
  FaultReader late(name_);
  pid_t child = hostage([&] {
    auto theirs = attach();
    theirs->note_fault(31);
    (void)theirs.release();
  });
  EXPECT_EQ(early.next(), 13u);
  EXPECT_EQ(early.next(), 31u);
  EXPECT_FALSE(early.next());
  EXPECT_EQ(late.next(), 31u) << "what came before the reader is not told";
  EXPECT_FALSE(late.next());
  kill_and_reap(child);
  segment->note_fault(43);
  segment->detach();
  EXPECT_EQ(early.next(), 43u) << "the file has been removed";
  EXPECT_FALSE(early.next());
  segment = attach();
  segment->note_fault(31);
  EXPECT_EQ(early.next(), 31u) << "a new file";
  EXPECT_EQ(late.next(), 43u);
  EXPECT_EQ(late.next(), 31u);
  segment->detach();
}

TEST_F(SegmentTest, AReaderThatIsLateHasTheLastFaults) {
  auto segment = attach();
  FaultReader reader(name_);
  for (uint32_t i = 0; i < 100; ++i) segment->note_fault(i);
  for (uint32_t i = 100 - 64; i < 100; ++i) EXPECT_EQ(reader.next(), i);
  EXPECT_FALSE(reader.next());
  segment->detach();
}

TEST_F(SegmentTest, AppearsAndVanishes) {
  EXPECT_FALSE(exists());
  auto segment = attach();
  EXPECT_TRUE(exists());
  segment->detach();
  EXPECT_FALSE(exists());
}

TEST_F(SegmentTest, ProcessesShareTheMemory) {
  auto segment = attach();
  pid_t child = hostage([&] {
    auto theirs = attach();
    EXPECT_TRUE(theirs->reserve_memory(kMemory / 2).ok());
    EXPECT_TRUE(theirs->add_context(7, ContextKind::kCreated).ok());
    (void)theirs.release();
  });
  EXPECT_EQ(free_memory(*segment), kMemory / 2);
  EXPECT_EQ(segment->reserve_memory(kMemory / 2 + 1).code(), CUDA_ERROR_OUT_OF_MEMORY);
  auto report = DeviceSegment::inspect(name_);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->memory_used, kMemory / 2);
  ASSERT_EQ(report->contexts.size(), 1u);
  EXPECT_EQ(report->contexts[0].pid, child);
  EXPECT_EQ(report->processes.size(), 2u);
  // Its death gives back what it had, even before it is reaped.
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(segment->reserve_memory(kMemory).ok());
  segment->return_memory(kMemory);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  report = DeviceSegment::inspect(name_);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->contexts.empty());
}

TEST_F(SegmentTest, OnlyOneProcessMayRun) {
  auto segment = attach();
  ASSERT_TRUE(segment->try_acquire());
  EXPECT_TRUE(segment->try_acquire());
  EXPECT_FALSE(segment->contended());
  pid_t child = hostage([&] {
    auto theirs = attach();
    EXPECT_FALSE(theirs->try_acquire());
    (void)theirs.release();
  });
  EXPECT_TRUE(segment->contended());
  segment->release();
  auto report = DeviceSegment::inspect(name_);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->running_pid, child);
  EXPECT_FALSE(segment->try_acquire());  // in line behind the child
  // The child dies with the device: it is passed on.
  kill_and_reap(child);
  uint32_t seen = segment->doorbell()->load();
  segment->reclaim_dead();
  EXPECT_NE(segment->doorbell()->load(), seen);
  EXPECT_TRUE(segment->try_acquire());
}

TEST_F(SegmentTest, AFileThatOnlyTheDeadUsedStartsAfresh) {
  pid_t child = hostage([&] {
    auto theirs = attach();
    EXPECT_TRUE(theirs->reserve_memory(kMemory).ok());
    EXPECT_TRUE(theirs->try_acquire());
    (void)theirs.release();
  });
  kill_and_reap(child);
  EXPECT_TRUE(exists());
  auto segment = attach();
  EXPECT_EQ(free_memory(*segment), kMemory);
  EXPECT_TRUE(segment->try_acquire());
}

TEST_F(SegmentTest, SurvivesKillsAtRandomMoments) {
  auto segment = attach();
  // How often the child has been through its loop, in memory that both processes map.
  void* const page =
      mmap(nullptr, getpagesize(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto& loops = *new (page) std::atomic<uint32_t>(0);
  for (uint32_t round = 0; round < 30; ++round) {
    loops = 0;
    pid_t child = fork();
    if (child == 0) {
      auto theirs = attach();
      for (;;) {
        (void)theirs->reserve_memory(1000).ok();
        (void)theirs->try_acquire();
        theirs->release();
        theirs->return_memory(1000);
        ++loops;
      }
    }
    while (loops < 100 * (round + 1)) sched_yield();
    kill_and_reap(child);
    EXPECT_EQ(free_memory(*segment), kMemory);
    EXPECT_TRUE(segment->try_acquire());
    segment->release();
  }
  munmap(page, getpagesize());
}

TEST_F(SegmentTest, AnUnusedDeviceIsNotFound) {
  EXPECT_EQ(DeviceSegment::inspect(name_).status().code(), CUDA_ERROR_NOT_FOUND);
}

// Which ends in an error, not in a signal when the memory is touched.
TEST_F(SegmentTest, SharedMemoryThatIsTooSmall) {
  const pid_t child = fork();
  if (child == 0) {
    constexpr int kSkipped = 2;
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k") != 0) {
      _exit(kSkipped);
    }
    const auto segment = DeviceSegment::attach(name_, kMemory);
    const bool says_why = !segment.ok() && segment.status().code() == CUDA_ERROR_OPERATING_SYSTEM &&
                          segment.status().message().find("No space left") != std::string::npos;
    _exit(says_why && !exists() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "a mount namespace needs root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace openmps::softgpu
