// SPDX-License-Identifier: Apache-2.0
// Pages take the place of others under threads that write them all the time.
#include "client/memory/page_exchange.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "client/memory/private_pages.h"

namespace openmps::client {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t address_of(const volatile void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

Region region_at(uint64_t address) {
  const std::vector<Region> found = regions_of(address, address + 1);
  EXPECT_EQ(found.size(), 1u);
  return found.at(0);
}

// Private pages that become a file's, and private again.
class Pages {
 public:
  explicit Pages(uint64_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin_ = address_of(memory);
    EXPECT_EQ(make_shared_pages(begin_ % kHugePageBytes, bytes, &file_, &why_), CUDA_SUCCESS);
  }
  ~Pages() { munmap(reinterpret_cast<void*>(begin_), bytes_); }

  [[nodiscard]] uint64_t begin() const { return begin_; }
  [[nodiscard]] uint64_t end() const { return begin_ + bytes_; }
  [[nodiscard]] volatile uint64_t* word(uint64_t byte) const {
    return reinterpret_cast<volatile uint64_t*>(begin_ + byte);
  }
  ExchangeResult share() {
    return put_shared_pages({begin_, end(), region_at(begin_).kind}, file_.get(),
                            begin_ % kHugePageBytes);
  }
  bool make_private() {
    return put_private_pages({begin_, end(), region_at(begin_).kind, begin_ % kHugePageBytes},
                             &why_);
  }
  [[nodiscard]] int file() const { return file_.get(); }

 private:
  const uint64_t bytes_;
  uint64_t begin_ = 0;
  UniqueFd file_;
  const char* why_ = "";
};

TEST(PageExchangeTest, NoWriteIsLost) {
  Pages pages(16 * kPage);
  std::atomic<bool> stop{false};
  std::vector<uint64_t> wanted(3);
  std::vector<std::thread> writers;
  for (size_t i = 0; i < wanted.size(); ++i) {
    writers.emplace_back([&, i] {
      volatile uint64_t* word = pages.word(i * 2 * kPage);
      while (!stop) {
        ++wanted[i];
        *word = *word + 1;
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(pages.share().outcome, Exchanged::kAll);
    EXPECT_TRUE(region_at(pages.begin()).kind.shared);
    ASSERT_TRUE(pages.make_private());
    EXPECT_FALSE(region_at(pages.begin()).kind.shared);
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(*pages.word(i * 2 * kPage), wanted[i]);
}

TEST(PageExchangeTest, ManyPiecesAreOneMapping) {
  constexpr uint64_t kBytes = 2 * kExchangePieceBytes + 5 * kPage;
  Pages pages(kBytes);
  for (uint64_t at = 0; at < kBytes; at += kPage) *pages.word(at) = at;
  ASSERT_EQ(pages.share().outcome, Exchanged::kAll);
  EXPECT_EQ(regions_of(pages.begin(), pages.end()).size(), 1u);
  uint64_t in_file = 0;
  const uint64_t offset = pages.begin() % kHugePageBytes + kExchangePieceBytes;
  EXPECT_EQ(pread(pages.file(), &in_file, 8, static_cast<off_t>(offset)), 8);
  EXPECT_EQ(in_file, kExchangePieceBytes);
  ASSERT_TRUE(pages.make_private());
  EXPECT_EQ(regions_of(pages.begin(), pages.end()).size(), 1u);
  bool same = true;
  for (uint64_t at = 0; at < kBytes; at += kPage) same = same && *pages.word(at) == at;
  EXPECT_TRUE(same);
}

TEST(PageExchangeTest, SomethingElseIsLeftAlone) {
  Pages pages(4 * kPage);
  const MappedRange before{pages.begin(), pages.end(), region_at(pages.begin()).kind};
  *pages.word(0) = 5;
  mprotect(reinterpret_cast<void*>(pages.begin() + kPage), kPage, PROT_READ);
  EXPECT_EQ(put_shared_pages(before, pages.file(), 0).outcome, Exchanged::kChanged);
  munmap(reinterpret_cast<void*>(pages.begin() + kPage), kPage);
  EXPECT_EQ(put_shared_pages(before, pages.file(), 0).outcome, Exchanged::kChanged);
  EXPECT_FALSE(region_at(pages.begin()).kind.shared);
  EXPECT_EQ(*pages.word(0), 5u);
}

TEST(PageExchangeTest, ReadOnlyPagesStaySo) {
  Pages pages(4 * kPage);
  *pages.word(kPage) = 7;
  for (const int protection : {PROT_READ, PROT_NONE}) {
    ASSERT_EQ(pages.share().outcome, Exchanged::kAll);
    mprotect(reinterpret_cast<void*>(pages.begin()), 4 * kPage, protection);
    ASSERT_TRUE(pages.make_private());
    EXPECT_EQ(region_at(pages.begin()).kind.protection, protection);
    EXPECT_FALSE(region_at(pages.begin()).kind.shared);
    mprotect(reinterpret_cast<void*>(pages.begin()), 4 * kPage, PROT_READ | PROT_WRITE);
    EXPECT_EQ(*pages.word(kPage), 7u);
  }
}

// A thread that waits in the kernel, and one that is about to get a signal, go on as if nothing had
// been.
TEST(PageExchangeTest, OthersGoOn) {
  static std::atomic<int> signals;
  signals = 0;
  struct sigaction count {};
  count.sa_handler = [](int) { ++signals; };
  sigaction(SIGUSR1, &count, nullptr);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::atomic<ssize_t> got{-2};
  char byte = 0;
  std::thread reader([&] { got = read(ends[0], &byte, 1); });
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
    }
  });
  const pthread_t target = busy.native_handle();
  std::thread sender([&] {
    for (int i = 0; i < 100; ++i) {
      const int before = signals;
      pthread_kill(target, SIGUSR1);
      while (signals == before) sched_yield();
    }
  });
  Pages pages(kPage);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(pages.share().outcome, Exchanged::kAll);
    ASSERT_TRUE(pages.make_private());
  }
  EXPECT_EQ(got, -2) << "it still waits";
  ASSERT_EQ(write(ends[1], "a", 1), 1);
  sender.join();
  stop = true;
  busy.join();
  reader.join();
  EXPECT_EQ(got, 1);
  EXPECT_EQ(signals, 100) << "none was lost, none came twice";
  int status = 0;
  EXPECT_EQ(waitpid(-1, &status, WNOHANG), -1) << "no child is left";
  close(ends[0]);
  close(ends[1]);
}

// A process that is traced cannot be traced by a second one.
TEST(PageExchangeTest, NotUnderADebugger) {
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<bool> ready{false};
    std::thread traced([&] {
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      ready = true;
      for (;;) pause();
    });
    while (!ready) sched_yield();
    Pages pages(kPage);
    *pages.word(0) = 3;
    const bool refused = pages.share().outcome == Exchanged::kNotAllowed;
    _exit(refused && *pages.word(0) == 3 && !region_at(pages.begin()).kind.shared ? 0 : 1);
  }
  // The traced thread comes first: it is this process's, too.
  int status = -1;
  while (waitpid(-1, &status, __WALL) != child) {
  }
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace openmps::client
