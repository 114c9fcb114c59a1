// SPDX-License-Identifier: Apache-2.0
// cuMemHostRegister: registered memory remains the program's own memory, for every kind of memory,
// with other threads that write beside it, and whatever the program does with its addresses while
// it is registered and afterwards. Run by run_e2e.py. usage: drv_host_memory GROUP
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "driver.h"

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kWords = 4 * kPage / sizeof(uint32_t);
constexpr int kReadWrite = PROT_READ | PROT_WRITE;

uint32_t initialised[kWords] = {1, 2, 3};
uint32_t zeroed[kWords];

struct Kernels {
  CUfunction mix;
  explicit Kernels(const e2e::Session& session) : mix(session.function("mix")) {}

  // Whether a kernel works on the memory, by the address that cuMemHostGetDevicePointer returns or,
  // if `direct`, by the program's own address, and the program sees the result.
  bool work(uint32_t* words, size_t count, bool direct = false) const {
    std::vector<uint32_t> expected(words, words + count);
    CUdeviceptr device = reinterpret_cast<CUdeviceptr>(words);
    if (!direct) CHECK_CU(cuMemHostGetDevicePointer_v2(&device, words, 0));
    e2e::launch(mix, e2e::blocks_for(count, 128), 128, 0, nullptr, device,
                static_cast<uint32_t>(count), 7u);
    CHECK_CU(cuCtxSynchronize());
    e2e::mix_on_host(expected, 7);
    return std::equal(expected.begin(), expected.end(), words);
  }
};

void* map(size_t bytes, int protection, int flags, int file = -1) {
  void* memory = mmap(nullptr, bytes, protection, flags, file, 0);
  if (memory == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  return memory;
}

void* map_private(size_t bytes) { return map(bytes, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS); }

// The permissions of the mappings in a range, from /proc/self/maps, such as "rw-p" for each.
std::string access_of(const void* memory, size_t bytes) {
  std::string all;
  FILE* maps = fopen("/proc/self/maps", "re");
  char line[512];
  while (fgets(line, sizeof(line), maps) != nullptr) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char access[8] = {};
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, access) != 3) continue;
    const auto first = reinterpret_cast<unsigned long>(memory);
    if (end <= first || begin >= first + bytes) continue;
    all += (all.empty() ? "" : " ") + std::string(access);
  }
  fclose(maps);
  return all;
}

// ---- Kinds of memory that can be registered -----------------------------------------------------

struct File {
  std::string path;
  int file;
  explicit File(const char* name, bool memory = false)
      : path(std::string(memory ? "/dev/shm/" : "/tmp/") + name + std::to_string(getpid())),
        file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    const std::vector<uint32_t> words(kWords, 3);
    if (pwrite(file, words.data(), 4 * kPage, 0) != static_cast<ssize_t>(4 * kPage)) exit(1);
  }
  ~File() {
    close(file);
    unlink(path.c_str());
  }
};

void use(const Kernels& kernels, const char* what, void* memory, size_t count, unsigned flags = 0) {
  auto* words = static_cast<uint32_t*>(memory);
  const CUresult result = cuMemHostRegister_v2(words, count * sizeof(uint32_t), flags);
  if (!e2e::expect(result == CUDA_SUCCESS, "%s is registered", what)) return;
  e2e::expect(kernels.work(words, count), "%s is what a kernel works on", what);
  // Copies in both directions, in stream order.
  std::vector<uint32_t> before(words, words + count);
  e2e::Buffer<uint32_t> device(count);
  CHECK_CU(cuMemcpyHtoDAsync_v2(device.address, words, count * sizeof(uint32_t), nullptr));
  CHECK_CU(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(words), 9, count, nullptr));
  CHECK_CU(cuMemcpyDtoHAsync_v2(words, device.address, sizeof(uint32_t), nullptr));
  CHECK_CU(cuStreamSynchronize(nullptr));
  e2e::expect(device.get() == before && words[0] == before[0] && words[count - 1] == 9,
              "%s is copied and filled", what);
  const uint32_t last = words[count - 1];
  CHECK_CU(cuMemHostUnregister(words));
  words[1] = 77;
  e2e::expect(words[0] == before[0] && words[count - 1] == last, "%s keeps its contents", what);
}

void use_read_only(const char* what, void* memory) {
  auto* words = static_cast<uint32_t*>(memory);
  e2e::expect_result("without saying so", cuMemHostRegister_v2(words, 4 * kPage, 0),
                     CUDA_ERROR_INVALID_VALUE);
  const CUresult result = cuMemHostRegister_v2(words, 4 * kPage, CU_MEMHOSTREGISTER_READ_ONLY);
  if (!e2e::expect(result == CUDA_SUCCESS, "%s is registered", what)) return;
  e2e::Buffer<uint32_t> device(kWords);
  CHECK_CU(cuMemcpyHtoDAsync_v2(device.address, words, 4 * kPage, nullptr));
  CHECK_CU(cuStreamSynchronize(nullptr));
  e2e::expect(device.get() == std::vector<uint32_t>(words, words + kWords), "%s is copied", what);
  CHECK_CU(cuMemHostUnregister(words));
}

int kinds(const e2e::Session& session) {
  const Kernels kernels(session);
  const std::vector<char> space(64 << 10);
  use(kernels, "malloc's memory", const_cast<char*>(space.data()) + 20, 1 << 12);
  use(kernels, "static data", initialised, kWords);
  use(kernels, "static data without contents", zeroed, kWords);
  File memory("openmps-memory", true);
  use(kernels, "a file in /dev/shm", map(4 * kPage, kReadWrite, MAP_SHARED, memory.file), kWords);
  const auto in_file = [&](size_t word) {
    uint32_t value = 0;
    return pread(memory.file, &value, 4, static_cast<off_t>(4 * word)) == 4 ? value : 0;
  };
  e2e::expect(in_file(1) == 77 && in_file(kWords - 1) == 9, "the file has what was written to it");
  const int anonymous = memfd_create("openmps-test", MFD_CLOEXEC);
  if (ftruncate(anonymous, 4 * kPage) != 0) exit(1);
  auto* first = static_cast<char*>(map_private(8 * kPage));
  mmap(first, 4 * kPage, kReadWrite, MAP_SHARED | MAP_FIXED, anonymous, 0);
  use(kernels, "a memfd", first, kWords);
  mmap(first + 2 * kPage, 2 * kPage, kReadWrite, MAP_SHARED | MAP_FIXED, memory.file, 0);
  use(kernels, "two files and private memory in a row", first, 2 * kWords);
  File disk("openmps-disk");
  use(kernels, "a private mapping of a file", map(4 * kPage, kReadWrite, MAP_PRIVATE, disk.file),
      kWords);
  use_read_only("a private mapping for reading", map(4 * kPage, PROT_READ, MAP_PRIVATE, disk.file));
  use_read_only("a shared mapping for reading", map(4 * kPage, PROT_READ, MAP_SHARED, disk.file));
  use_read_only("memory for reading", map(4 * kPage, PROT_READ, MAP_SHARED, memory.file));
  return e2e::finish();
}

int refused(const e2e::Session&) {
  auto* memory = static_cast<char*>(map_private(8 * kPage));
  const auto result = [](void* start, size_t bytes, unsigned flags = 0) {
    return cuMemHostRegister_v2(start, bytes, flags);
  };
  e2e::expect_result("nothing there", result(reinterpret_cast<void*>(0x123456789000), kPage),
                     CUDA_ERROR_INVALID_VALUE);
  munmap(memory + 6 * kPage, kPage);
  e2e::expect_result("a hole", result(memory + 5 * kPage, 3 * kPage), CUDA_ERROR_INVALID_VALUE);
  mprotect(memory + 4 * kPage, kPage, PROT_NONE);
  e2e::expect_result("no access", result(memory + 3 * kPage, 2 * kPage), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(result(memory + 100, 2 * kPage));
  e2e::expect_result("all of it again", result(memory + 100, 2 * kPage),
                     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  e2e::expect_result("a part of it", result(memory + kPage, 10),
                     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  e2e::expect_result("an end of it", result(memory, 101),
                     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  unsigned flags = 0;
  CHECK_CU(cuMemHostGetFlags(&flags, memory + 200));
  e2e::expect(flags == CU_MEMHOSTREGISTER_DEVICEMAP, "it is mapped for the device: %u", flags);
  CUmemorytype type{};
  CHECK_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 reinterpret_cast<CUdeviceptr>(memory + 200)));
  e2e::expect(type == CU_MEMORYTYPE_HOST, "it is host memory");
  unsigned long long id = 0;
  CHECK_CU(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 reinterpret_cast<CUdeviceptr>(memory + 200)));
  e2e::expect(id != 0, "it has a number");
  CHECK_CU(cuMemHostUnregister(memory + 100));
  e2e::expect_result("unregister again", cuMemHostUnregister(memory + 100),
                     CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  return e2e::finish();
}

// ---- Writes beside registered memory ------------------------------------------------------------

// A thread that counts in a word, beside which another thread registers memory meanwhile.
struct Counter {
  volatile uint64_t* word;
  std::atomic<bool>& stop;
  uint64_t wanted = 0;
  void run() {
    while (!stop) {
      ++wanted;
      *word = *word + 1;
    }
  }
};

// A thread that reads a pipe into memory, so that the system's kernel writes there.
struct Reader {
  uint64_t* word;
  std::atomic<bool>& stop;
  uint64_t lost = 0;
  void run() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) exit(1);
    for (uint64_t i = 1; !stop; ++i) {
      if (write(ends[1], &i, 8) != 8 || read(ends[0], word, 8) != 8) exit(1);
      lost += *const_cast<volatile uint64_t*>(word) != i ? 1 : 0;
    }
    close(ends[0]);
    close(ends[1]);
  }
};

struct HeapUser {
  std::atomic<bool>& stop;
  uint64_t damaged = 0;
  void run() {
    e2e::Random random(1);
    while (!stop) {
      std::vector<std::string> blocks;
      for (char i = 1; i < 64; ++i) blocks.emplace_back(16 + random.below(400), i);
      for (char i = 1; i < 64; ++i) {
        const std::string& block = blocks[static_cast<size_t>(i - 1)];
        damaged += block.find_first_not_of(i) != std::string::npos ? 1 : 0;
      }
    }
  }
};

int writers(const e2e::Session& session) {
  const Kernels kernels(session);
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  std::atomic<bool> stop{false};
  auto* memory = static_cast<char*>(map_private(64 * kPage));
  memset(memory, 0, 64 * kPage);
  Counter left{reinterpret_cast<volatile uint64_t*>(memory), stop};
  Counter right{reinterpret_cast<volatile uint64_t*>(memory + 63 * kPage + 2048), stop};
  Reader reader{reinterpret_cast<uint64_t*>(memory + 63 * kPage + 3000), stop};
  HeapUser heap{stop};
  std::thread threads[] = {std::thread([&] { left.run(); }), std::thread([&] { right.run(); }),
                           std::thread([&] { reader.run(); }), std::thread([&] { heap.run(); })};
  bool good = true;
  for (int i = 0; i < 40; ++i) {
    auto* words = reinterpret_cast<uint32_t*>(memory + 1024);
    CHECK_CU(cuMemHostRegister_v2(words, 63 * kPage, 0));
    good = kernels.work(words, kWords) && good;
    CHECK_CU(cuMemHostUnregister(words));
    auto* block = static_cast<uint32_t*>(malloc(20'000));
    memset(block, i, 20'000);
    CHECK_CU(cuMemHostRegister_v2(block, 20'000, 0));
    good = kernels.work(block, 5'000) && good;
    CHECK_CU(cuMemHostUnregister(block));
    free(block);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  e2e::expect(good, "a kernel worked on it 80 times");
  e2e::expect(*left.word == left.wanted, "before it in its first page nothing was lost");
  e2e::expect(*right.word == right.wanted, "behind it in its last page nothing was lost");
  e2e::expect(reader.lost == 0, "of what system calls wrote nothing was lost");
  e2e::expect(heap.damaged == 0, "no block of the heap was damaged");
  return e2e::finish();
}

// Registers memory on the stack, in a page with the frames of the call.
bool on_stack(const Kernels& kernels) {
  bool good = true;
  for (size_t pad = 0; pad < 2 * kPage; pad += 512) {
    volatile char* room = static_cast<volatile char*>(alloca(pad + 1));
    room[0] = 1;
    uint32_t here[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    CHECK_CU(cuMemHostRegister_v2(here, sizeof(here), 0));
    good = kernels.work(here, 8) && good;
    CHECK_CU(cuMemHostUnregister(here));
  }
  return good;
}

[[gnu::noinline]] int deep(int depth) {
  volatile char room[4096];
  room[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : deep(depth - 1) + room[0] * 0 + 1;
}

int stack(const e2e::Session& session) {
  const Kernels kernels(session);
  e2e::expect(on_stack(kernels), "variables on the stack");
  bool good = false;
  std::thread([&] {
    CHECK_CU(cuCtxSetCurrent(session.context));
    good = on_stack(kernels);
  }).join();
  e2e::expect(good, "variables on another thread's stack");
  uint32_t low = 5;
  CHECK_CU(cuMemHostRegister_v2(&low, sizeof(low), 0));
  kernels.work(&low, 1);
  e2e::expect(deep(500) == 500, "the stack grows below them");
  CHECK_CU(cuMemHostUnregister(&low));
  return e2e::finish();
}

// ---- Changes of the mappings by the program -----------------------------------------------------

uint32_t* used_memory(const Kernels& kernels, size_t bytes) {
  auto* words = static_cast<uint32_t*>(map_private(bytes));
  memset(words, 1, bytes);
  CHECK_CU(cuMemHostRegister_v2(words, bytes, 0));
  e2e::expect(kernels.work(words, kWords), "a kernel works on it");
  return words;
}

int changes(const e2e::Session& session) {
  const Kernels kernels(session);
  constexpr size_t kBytes = 32 << 20;
  auto* words = static_cast<uint32_t*>(map_private(kBytes));
  memset(words, 1, kBytes);
  CHECK_CU(cuMemHostRegister_v2(words, kBytes, 0));
  madvise(words, kBytes, MADV_DONTNEED);
  e2e::expect(words[0] == 0 && words[kWords] == 0, "what was discarded is zero");
  CHECK_CU(cuMemHostUnregister(words));
  munmap(words, kBytes);

  words = used_memory(kernels, kBytes);
  const uint32_t value = words[5];
  CHECK_CU(cuMemHostUnregister(words));
  e2e::expect(words[5] == value, "unregistered, it keeps its contents");
  e2e::expect(access_of(words, kBytes) == "rw-p", "it is one private mapping: %s",
              access_of(words, kBytes).c_str());
  madvise(words, kBytes, MADV_DONTNEED);
  e2e::expect(words[5] == 0, "what is discarded then is zero");
  munmap(words, kBytes);

  words = used_memory(kernels, kBytes);
  mprotect(words, kBytes, PROT_READ);
  CHECK_CU(cuMemHostUnregister(words));
  e2e::expect(access_of(words, kBytes) == "r--p", "made read-only, it stays so: %s",
              access_of(words, kBytes).c_str());
  munmap(words, kBytes);

  words = used_memory(kernels, kBytes);
  mprotect(words, kPage, PROT_NONE);
  munmap(words + kWords, 4 * kPage);
  CHECK_CU(cuMemHostUnregister(words));
  e2e::expect(access_of(words, kBytes) == "---p rw-p rw-p", "with a guard and a hole: %s",
              access_of(words, kBytes).c_str());
  munmap(words, kBytes);

  words = used_memory(kernels, kBytes);
  munmap(words, kBytes);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  waitpid(child, &status, 0);
  e2e::expect(status == 0, "a child that is forked when it has gone");
  File file("openmps-again");
  auto* others = static_cast<uint32_t*>(
      mmap(words, 4 * kPage, kReadWrite, MAP_SHARED | MAP_FIXED, file.file, 0));
  others[0] = 5;
  CHECK_CU(cuMemHostUnregister(words));
  others[1] = 6;
  uint32_t in_file[2] = {};
  if (pread(file.file, in_file, 8, 0) != 8) exit(1);
  e2e::expect(in_file[0] == 5 && in_file[1] == 6, "a file that lies there by now is left alone");
  return e2e::finish();
}

int neighbours(const e2e::Session& session) {
  const Kernels kernels(session);
  auto* memory = static_cast<char*>(map_private(8 * kPage));
  auto* one = reinterpret_cast<uint32_t*>(memory);
  constexpr size_t kCount = 600;  // two pieces of so many words are within three pages
  uint32_t* two = one + kCount;
  uint32_t* three = two + kCount;
  for (uint32_t* words : {one, two, three}) {
    CHECK_CU(cuMemHostRegister_v2(words, kCount * sizeof(uint32_t), 0));
    e2e::expect(kernels.work(words, kCount), "one that shares a page with another");
  }
  CHECK_CU(cuMemHostUnregister(one));
  e2e::expect(kernels.work(two, kCount) && kernels.work(three, kCount), "when that has gone");
  CHECK_CU(cuMemHostRegister_v2(one, kCount * sizeof(uint32_t), 0));
  CHECK_CU(cuMemHostUnregister(two));
  e2e::expect(kernels.work(one, kCount) && kernels.work(three, kCount), "when it is there again");
  CHECK_CU(cuMemHostUnregister(three));
  e2e::expect(kernels.work(one, kCount), "when the others have gone");
  CHECK_CU(cuMemHostUnregister(one));
  const std::string access = access_of(memory, 8 * kPage);
  e2e::expect(access.find('s') == std::string::npos, "in the end all is private");

  // Many adjacent pieces, of a file and of private memory.
  std::vector<uint32_t> all(64 * 1000, 1);
  for (size_t i = 0; i < 64; ++i) CHECK_CU(cuMemHostRegister_v2(&all[i * 1000], 4000, 0));
  bool good = true;
  for (size_t i = 0; i < 64; ++i) good = kernels.work(&all[i * 1000], 1000) && good;
  e2e::expect(good, "64 in a row");
  for (size_t i = 0; i < 64; i += 2) CHECK_CU(cuMemHostUnregister(&all[i * 1000]));
  for (size_t i = 1; i < 64; i += 2) good = kernels.work(&all[i * 1000], 1000) && good;
  e2e::expect(good, "every other of them");
  for (size_t i = 1; i < 64; i += 2) CHECK_CU(cuMemHostUnregister(&all[i * 1000]));
  return e2e::finish();
}

int direct(const e2e::Session& session) {
  const Kernels kernels(session);
  auto* words = static_cast<uint32_t*>(map_private(16 * kPage));
  CHECK_CU(cuMemHostRegister_v2(words, 16 * kPage, 0));
  e2e::expect(kernels.work(words, kWords, true), "a kernel that is given the program's address");
  CHECK_CU(cuMemHostUnregister(words));
  for (int i = 0; i < 3; ++i) {
    CHECK_CU(cuMemHostRegister_v2(words, 16 * kPage, 0));
    e2e::expect(kernels.work(words, kWords, true), "registered again");
    CHECK_CU(cuMemHostUnregister(words));
  }
  // In a graph that is launched after the memory has been registered.
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  e2e::launch(kernels.mix, 8, 128, 0, stream, reinterpret_cast<CUdeviceptr>(words), 1024u, 3u);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  std::vector<uint32_t> expected(words, words + 1024);
  CHECK_CU(cuMemHostRegister_v2(words, 16 * kPage, 0));
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  e2e::mix_on_host(expected, 3);
  e2e::expect(std::equal(expected.begin(), expected.end(), words), "a graph's kernel");
  CHECK_CU(cuMemHostUnregister(words));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuStreamDestroy_v2(stream));
  return e2e::finish();
}

int forks(const e2e::Session& session) {
  const Kernels kernels(session);
  constexpr size_t kBytes = 8 << 20;
  uint32_t* used = used_memory(kernels, kBytes);
  auto* waiting = static_cast<uint32_t*>(map_private(kBytes));
  CHECK_CU(cuMemHostRegister_v2(waiting, kBytes, 0));
  void* block = nullptr;
  CHECK_CU(cuMemHostAlloc(&block, kBytes, 0));
  auto* pinned = static_cast<uint32_t*>(block);
  void* little = nullptr;
  CHECK_CU(cuMemHostAlloc(&little, 64, 0));
  auto* words = static_cast<uint32_t*>(little);
  used[1] = 11;
  waiting[1] = 12;
  pinned[1] = 13;
  words[1] = 14;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const bool same = used[1] == 11 && waiting[1] == 12 && pinned[1] == 13 && words[1] == 14;
    used[1] = waiting[1] = pinned[1] = words[1] = 99;
    const bool own = used[1] == 99 && waiting[1] == 99 && pinned[1] == 99 && words[1] == 99;
    _exit((same ? 0 : 1) + (own ? 0 : 2));
  }
  int status = -1;
  waitpid(child, &status, 0);
  e2e::expect(status == 0, "the child has registered and pinned memory (%d)", status);
  // Natively a block of cuMemHostAlloc is shared with the child.
  e2e::expect(used[1] == 11 && waiting[1] == 12, "what it writes is its own");
  e2e::expect(kernels.work(used, kWords) && kernels.work(waiting, kWords), "the parent goes on");
  CHECK_CU(cuMemHostUnregister(used));
  CHECK_CU(cuMemHostUnregister(waiting));
  CHECK_CU(cuMemFreeHost(block));
  CHECK_CU(cuMemFreeHost(little));
  return e2e::finish();
}

// Holds memory of each kind until standard input has a line, so that a scenario can check which
// cgroup it is charged to.
int held(const e2e::Session& session) {
  const Kernels kernels(session);
  constexpr size_t kBytes = 64 << 20;
  void* pinned = nullptr;
  CUdeviceptr managed = 0;
  CHECK_CU(cuMemHostAlloc(&pinned, kBytes, 0));
  CHECK_CU(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  void* shared = map(kBytes, kReadWrite, MAP_SHARED, [] {
    const int file = memfd_create("openmps-held", MFD_CLOEXEC);
    return ftruncate(file, kBytes) == 0 ? file : -1;
  }());
  CHECK_CU(cuMemHostRegister_v2(shared, kBytes, 0));
  used_memory(kernels, kBytes);
  printf("ready\n");
  fflush(stdout);
  return getchar() == EOF ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  const e2e::Session session;
  if (group == "kinds") return kinds(session);
  if (group == "refused") return refused(session);
  if (group == "writers") return writers(session);
  if (group == "stack") return stack(session);
  if (group == "changes") return changes(session);
  if (group == "neighbours") return neighbours(session);
  if (group == "direct") return direct(session);
  if (group == "forks") return forks(session);
  if (group == "held") return held(session);
  printf(
      "usage: drv_host_memory kinds|refused|writers|stack|changes|neighbours|direct|forks|held\n");
  return 2;
}
