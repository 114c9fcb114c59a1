// SPDX-License-Identifier: Apache-2.0
// A program that closes all descriptors but the first three, as daemons do, and opens files of its
// own under their numbers. Calls may fail with one error; the files must not be changed or closed.
// Run by run_e2e.py. usage: drv_closed_descriptors
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

namespace {

constexpr int kMost = 1024;  // the program's descriptors are below this number
constexpr int kFirst = 3;
constexpr size_t kBytes = 4 << 20;
constexpr char kContents[] = "the program's own";

void close_all() {
  for (int fd = kFirst; fd < kMost; fd++) close(fd);
}

// Opens one of the program's files, or a socket that is not read, under every number.
void take_all(bool sockets) {
  int ends[2];
  if (sockets) {
    while (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 && ends[1] < kMost / 4) continue;
    return;
  }
  for (int fd = kFirst; fd < kMost / 4; fd++) {
    const int made = memfd_create("own", 0);
    if (made < 0 || write(made, kContents, sizeof(kContents)) != sizeof(kContents)) exit(3);
  }
}

bool are_untouched(bool sockets) {
  for (int fd = kFirst; fd < kMost / 4; fd++) {
    char text[sizeof(kContents)] = {};
    struct stat info {};
    if (fstat(fd, &info) != 0) return false;  // the library has closed it
    if (sockets) {
      if (recv(fd, text, sizeof(text), MSG_DONTWAIT | MSG_PEEK) >= 0) return false;
      continue;
    }
    if (info.st_size != sizeof(kContents) || info.st_blocks * 512 > 4096) return false;
    if (pread(fd, text, sizeof(text), 0) != sizeof(text)) return false;
    if (memcmp(text, kContents, sizeof(text)) != 0) return false;
  }
  return true;
}

// Makes calls of all parts of the library that hold a descriptor. True if all succeed, or if all
// calls from some call on fail with the same error.
bool fails_in_one_way(CUfunction empty, CUstream stream, CUdeviceptr memory) {
  CUresult first = CUDA_SUCCESS;
  bool right = true;
  const auto note = [&](CUresult result) {
    if (first == CUDA_SUCCESS) first = result;
    right = right && (result == first || result == CUDA_SUCCESS);
  };
  static std::vector<unsigned char> pageable(kBytes);
  static unsigned char registered[3 * 4096];
  void* pinned = nullptr;
  CUdeviceptr more = 0;
  CUmodule module = nullptr;
  note(e2e::try_launch(empty, 1, 1, 0, stream));
  note(cuStreamSynchronize(stream));
  note(cuMemAlloc_v2(&more, kBytes));
  note(cuMemcpyHtoD_v2(memory, pageable.data(), kBytes));
  note(cuMemcpyDtoH_v2(pageable.data(), memory, kBytes));
  note(cuMemAllocHost_v2(&pinned, 8 * kBytes));
  note(cuMemHostRegister_v2(registered, sizeof(registered), 0));
  note(cuModuleLoadData(&module, e2e::kernels_ptx()));
  note(cuLaunchHostFunc(
      stream, [](void*) {}, nullptr));
  note(cuStreamSynchronize(stream));
  note(cuCtxSynchronize());
  return right;
}

// 0 on success, else a bit for each fault.
int run(bool replaced, bool sockets) {
  alarm(60);
  e2e::Session session;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  void* pinned = nullptr;
  CHECK_CU(cuStreamCreate(&stream, 0));
  CHECK_CU(cuMemAlloc_v2(&memory, kBytes));
  CHECK_CU(cuMemAllocHost_v2(&pinned, 4096));
  CHECK_CU(cuCtxSynchronize());
  const CUfunction empty = session.function("empty");
  close_all();
  if (replaced) take_all(sockets);
  const bool one_way = fails_in_one_way(empty, stream, memory);
  const pid_t child = fork();
  if (child == 0) _exit(!replaced || are_untouched(sockets) ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  const bool child_is_right = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const bool untouched = !replaced || are_untouched(sockets);
  quick_exit((one_way ? 0 : 1) | (untouched ? 0 : 2) | (child_is_right ? 0 : 4));
}

void tell(const char* what, bool replaced, bool sockets) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) run(replaced, sockets);
  int status = -1;
  waitpid(child, &status, 0);
  const bool ended = WIFEXITED(status) && WEXITSTATUS(status) < 8;
  const int wrong = ended ? WEXITSTATUS(status) : 7;
  e2e::expect(ended, "%s: the program goes on", what);
  e2e::expect((wrong & 1) == 0, "%s: one error at most", what);
  e2e::expect((wrong & 2) == 0, "%s: its files are as they were", what);
  e2e::expect((wrong & 4) == 0, "%s: those of a child, too", what);
}

}  // namespace

int main() {
  tell("closed", false, false);
  tell("replaced by files", true, false);
  tell("replaced by sockets", true, true);
  return e2e::finish();
}
