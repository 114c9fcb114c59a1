// SPDX-License-Identifier: Apache-2.0
// See page_exchange.h. What the helper runs uses system calls and memory of its own only: no errno,
// no allocation, no lock, for a thread that stands still may hold it.
#include "client/memory/page_exchange.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/ptrace.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <ctime>

#include <algorithm>
#include <cerrno>

#include "base/mutex.h"
#include "base/shared_memory.h"
#include "base/unique_fd.h"

#ifndef PR_SET_PTRACER_ANY
#define PR_SET_PTRACER_ANY (-1ul)
#endif

namespace openmps::client {
namespace {

constexpr uint32_t kMaxThreads = 1u << 15;  // of a process: the kernel's usual limit of PIDs
constexpr uint64_t kStackBytes = 256 * 1024;
constexpr uint64_t kTextBytes = 64 * 1024;
// A thread that sleeps uninterruptibly (a server's file system, vfork) can't be stopped before it
// wakes up: after so long nothing is exchanged.
constexpr uint64_t kPatienceNs = 1'000'000'000;
constexpr uint64_t kNapNs = 20'000;
// Looks at the list of threads until it has no new ones: those that still run may make more.
constexpr int kLooks = 1000;

// One more than this makes no copy faster, on an H200's host.
constexpr uint32_t kMostCopiers = 4;
constexpr uint64_t kLeastShareBytes = 2 * 1024 * 1024;  // some 200 us, a process takes 50
constexpr uint64_t kCopierStackBytes = 16 * 1024;
constexpr uint64_t kPageBytes = 4096;

struct Thread {
  int id;
  bool stopped;
  int signal;  // that it was about to get
};

struct Share {
  uint64_t from;
  uint64_t to;
  uint64_t bytes;
};

// What caller and helper share; outside of all memory that a program registers.
struct Job {
  MappedRange range;
  uint64_t fresh = 0;
  int self = 0;    // the caller's thread, which sleeps
  int tasks = -1;  // /proc/self/task
  int maps = -1;   // /proc/self/maps
  ExchangeResult result;
  uint32_t copiers = 1;
  Share shares[kMostCopiers];
  uint32_t count = 0;
  Thread threads[kMaxThreads];
  alignas(8) char text[kTextBytes];  // dirent64's alignment
  alignas(64) char stack[kStackBytes];
  alignas(64) char copier_stacks[kMostCopiers][kCopierStackBytes];
};

// The kernel's answer: -errno if it failed.
long kernel(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  long result = 0;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}
template <typename T>
long word(T* pointer) {
  return reinterpret_cast<long>(pointer);
}

uint64_t clock_ns() {
  timespec now{};
  kernel(SYS_clock_gettime, CLOCK_MONOTONIC, word(&now));
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void nap() {
  timespec time{0, static_cast<long>(kNapNs)};
  kernel(SYS_nanosleep, word(&time));
}

bool fail(Job& job, Exchanged outcome, const char* why) {
  job.result.outcome = outcome;
  job.result.why = why;
  return false;
}

// ---- Threads ------------------------------------------------------------------------------------

// A thread that has ended and is still listed, as a process's first thread is.
bool has_ended(const Job& job, int id) {
  char path[32];
  char digits[16];
  int count = 0;
  for (int rest = id; rest != 0; rest /= 10) digits[count++] = static_cast<char>('0' + rest % 10);
  int at = 0;
  while (count > 0) path[at++] = digits[--count];
  for (const char c : {'/', 's', 't', 'a', 't', '\0'}) path[at++] = c;
  const long file = kernel(SYS_openat, job.tasks, word(path), O_RDONLY | O_CLOEXEC);
  if (file < 0) return file == -ENOENT || file == -ESRCH;
  char text[128];
  const long got = kernel(SYS_read, file, word(text), sizeof(text));
  kernel(SYS_close, file);
  // "id (name) state": the name may hold anything, a bracket too.
  for (long i = got - 3; i >= 0; --i) {
    if (text[i] == ')') return text[i + 2] == 'Z' || text[i + 2] == 'X';
  }
  return got == -ESRCH;
}

bool is_known(const Job& job, int id) {
  for (uint32_t i = 0; i < job.count; ++i) {
    if (job.threads[i].id == id) return true;
  }
  return false;
}

bool begin_stop(Job& job, int id) {
  if (job.count == kMaxThreads) {
    return fail(job, Exchanged::kNotAllowed, "the process has too many threads to stop them");
  }
  const long seized = kernel(SYS_ptrace, PTRACE_SEIZE, id);
  if (seized == -ESRCH || (seized < 0 && has_ended(job, id))) return true;
  if (seized < 0) {
    return fail(job, Exchanged::kNotAllowed,
                "the process's other threads can't be stopped: a debugger has them, or ptrace is "
                "not allowed");
  }
  kernel(SYS_ptrace, PTRACE_INTERRUPT, id);
  job.threads[job.count++] = {id, false, 0};
  return true;
}

bool await_stop(Job& job, Thread& thread, uint64_t deadline) {
  while (!thread.stopped) {
    int status = 0;
    const long got = kernel(SYS_wait4, thread.id, word(&status), __WALL | WNOHANG);
    if (got == thread.id) {
      thread.stopped = true;  // or has ended
      const bool of_signal = WIFSTOPPED(status) && (status >> 16) == 0;
      thread.signal = of_signal ? WSTOPSIG(status) : 0;
    } else if (got < 0) {
      thread.stopped = true;
    } else if (clock_ns() > deadline) {
      return fail(job, Exchanged::kNotAllowed,
                  "one of the process's threads can't be stopped: it sleeps in the kernel");
    } else {
      nap();
    }
  }
  return true;
}

// One look at the list. `news`: it had others than those that are known.
bool look_for_threads(Job& job, bool* news) {
  bool self = false;
  *news = false;
  kernel(SYS_lseek, job.tasks, 0, SEEK_SET);
  for (;;) {
    const long got = kernel(SYS_getdents64, job.tasks, word(job.text), kTextBytes);
    if (got <= 0) break;
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const dirent64*>(job.text + at);
      at += entry->d_reclen;
      int id = 0;
      for (const char* c = entry->d_name; *c >= '0' && *c <= '9'; ++c) id = id * 10 + (*c - '0');
      self = self || id == job.self;
      if (id == 0 || id == job.self || is_known(job, id)) continue;
      const uint32_t before = job.count;
      if (!begin_stop(job, id)) return false;
      *news = *news || job.count != before;
    }
  }
  // Another namespace's numbers would name others.
  return self || fail(job, Exchanged::kNotAllowed, "/proc does not show this process's threads");
}

bool stop_others(Job& job) {
  const uint64_t deadline = clock_ns() + kPatienceNs;
  job.count = 0;
  for (int looks = 0; looks < kLooks; ++looks) {
    bool news = false;
    if (!look_for_threads(job, &news)) return false;
    if (!news) return true;
    for (uint32_t i = 0; i < job.count; ++i) {
      if (!await_stop(job, job.threads[i], deadline)) return false;
    }
  }
  return fail(job, Exchanged::kNotAllowed, "the process makes threads without end");
}

// Those that have not stopped yet go with the helper, at its end.
void resume_others(Job& job) {
  for (uint32_t i = 0; i < job.count; ++i) {
    if (job.threads[i].stopped) {
      kernel(SYS_ptrace, PTRACE_DETACH, job.threads[i].id, 0, job.threads[i].signal);
    }
  }
  job.count = 0;
}

// ---- Pages --------------------------------------------------------------------------------------

// What has to lie at [begin, end) of the range does. `covered` moves on with each mapping.
bool accepts(const MappedRange& range, const MappedRegion& region, uint64_t covered) {
  if (region.begin > covered || !(region.kind == range.kind)) return false;
  return region.kind.inode == 0 ||
         region.offset + (covered - region.begin) == range.offset + (covered - range.begin);
}

bool is_as_expected(Job& job, uint64_t begin, uint64_t end) {
  uint64_t covered = begin;
  uint64_t held = 0;
  kernel(SYS_lseek, job.maps, 0, SEEK_SET);
  while (covered < end) {
    const long got =
        kernel(SYS_read, job.maps, word(job.text + held), static_cast<long>(kTextBytes - held));
    if (got <= 0) return false;
    held += static_cast<uint64_t>(got);
    uint64_t line = 0;
    for (uint64_t at = 0; at < held; ++at) {
      if (job.text[at] != '\n') continue;
      MappedRegion region;
      const bool parsed = parse_maps_line(job.text + line, at - line, &region);
      line = at + 1;
      if (!parsed || region.end <= covered) continue;
      if (!accepts(job.range, region, covered)) return false;
      covered = region.end;
      if (covered >= end) return true;
    }
    if (line == 0) return false;
    for (uint64_t at = line; at < held; ++at) job.text[at - line] = job.text[at];
    held -= line;
  }
  return true;
}

void copy(const Share& share) {
  uint64_t to = share.to;
  uint64_t from = share.from;
  uint64_t bytes = share.bytes;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

int copy_share(void* argument) {
  copy(*static_cast<const Share*>(argument));
  return 0;
}

// Several processes, all of which share this memory, copy a part of it each.
void copy_pages(Job& job, uint64_t from, uint64_t to, uint64_t bytes) {
  const uint64_t each = (bytes / job.copiers + kPageBytes - 1) / kPageBytes * kPageBytes;
  const uint32_t copiers = each < kLeastShareBytes ? 1 : job.copiers;
  long ids[kMostCopiers] = {};
  for (uint32_t i = 0; i < copiers; ++i) {
    const uint64_t begin = i * each;
    const uint64_t end = i + 1 == copiers ? bytes : begin + each;
    job.shares[i] = {from + begin, to + begin, end - begin};
    // The last piece is the helper's own, and so is a piece for which no thread can be started.
    if (i + 1 < copiers) {
      ids[i] = clone(copy_share, job.copier_stacks[i] + kCopierStackBytes,
                     CLONE_VM | CLONE_FILES | CLONE_FS, &job.shares[i]);
    }
    if (ids[i] <= 0) copy(job.shares[i]);
  }
  for (const long id : ids) {
    while (id > 0 && kernel(SYS_wait4, id, 0, __WALL) == -EINTR) {
    }
  }
}

bool exchange_piece(Job& job, uint64_t begin, uint64_t bytes) {
  const uint64_t fresh = job.fresh + (begin - job.range.begin);
  const int protection = job.range.kind.protection;
  const auto address = static_cast<long>(begin);
  const auto length = static_cast<long>(bytes);
  if (!is_as_expected(job, begin, begin + bytes)) {
    return fail(job, Exchanged::kChanged, "something else lies there by now");
  }
  if ((protection & PROT_READ) == 0) kernel(SYS_mprotect, address, length, PROT_READ);
  copy_pages(job, begin, fresh, bytes);
  if (protection != (PROT_READ | PROT_WRITE)) {
    kernel(SYS_mprotect, static_cast<long>(fresh), length, protection);
  }
  if (kernel(SYS_mremap, static_cast<long>(fresh), length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
             address) != address) {
    kernel(SYS_mprotect, address, length, protection);
    return fail(job, Exchanged::kOutOfMemory, "the process has too many mappings");
  }
  job.result.bytes += bytes;
  return true;
}

// The helper, on its own stack.
int exchange_all(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  const uint64_t end = job.range.end;
  uint64_t at = job.range.begin;
  bool good = true;
  do {
    const uint64_t next =
        std::min(end, at / kExchangePieceBytes * kExchangePieceBytes + kExchangePieceBytes);
    good = stop_others(job) && (at == end || exchange_piece(job, at, next - at));
    resume_others(job);
    at = next;
  } while (good && at < end);
  return 0;
}

// ---- The caller ---------------------------------------------------------------------------------

ExchangeResult run_helper(const MappedRange& range, uint64_t fresh) {
  constexpr const char* kNoHelper = "no helper can be started";
  const UniqueFd tasks(open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd maps(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!tasks.valid() || !maps.valid()) return {Exchanged::kNotAllowed, 0, "/proc can't be read"};
  void* memory = mmap(nullptr, sizeof(Job), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return {Exchanged::kOutOfMemory, 0, kNoHelper};
  const Mapping owner(memory, sizeof(Job));
  auto& job = *static_cast<Job*>(memory);  // zeros are what it begins with
  job.range = range;
  job.fresh = fresh;
  job.result = {};
  job.self = static_cast<int>(syscall(SYS_gettid));
  job.tasks = tasks.get();
  job.maps = maps.get();
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof(processors), &processors) == 0) {
    job.copiers = std::clamp<uint32_t>(CPU_COUNT(&processors), 1, kMostCopiers);
  }
  // A signal to the process group is the program's, not the helper's.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int helper = clone(exchange_all, job.stack + kStackBytes,
                           CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_VFORK, memory);
  int status = -1;
  if (helper > 0) {
    while (waitpid(helper, &status, __WALL) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (helper < 0) return {Exchanged::kNotAllowed, 0, kNoHelper};
  if (status != 0) return {Exchanged::kNotAllowed, job.result.bytes, "the helper was killed"};
  return job.result;
}

}  // namespace

ExchangeResult exchange_pages(const MappedRange& range, uint64_t fresh) {
  // Two helpers would wait for each other's callers.
  static Mutex one{LockRank::kClientPageExchange};
  const MutexLock guard(one);
  ExchangeResult result = run_helper(range, fresh);
  // Yama's usual setting lets a process be traced by its ancestors only, unless it says otherwise.
  if (result.outcome == Exchanged::kNotAllowed && result.bytes == 0 &&
      prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) == 0) {
    result = run_helper(range, fresh);
    prctl(PR_SET_PTRACER, 0, 0, 0, 0);
  }
  return result;
}

ExchangeResult try_exchange() { return exchange_pages({}, 0); }

}  // namespace openmps::client
