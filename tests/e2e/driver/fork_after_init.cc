// SPDX-License-Identifier: Apache-2.0
// A child made by fork after cuInit can't use CUDA and can't hurt its parent. Run by run_e2e.py.
// usage: drv_fork_after_init
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

int main() {
  e2e::Session session;
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(256, 1));
  const CUfunction mix = session.function("mix");
  std::vector<uint32_t> expected(256, 1);
  e2e::launch(mix, 2, 128, 0, nullptr, words.address, 256u, 1u);
  e2e::mix_on_host(expected, 1);
  fflush(stdout);

  const pid_t child = fork();
  if (child == 0) {
    // Each bit of the exit status: a call that did not fail as documented.
    int wrong = 0;
    CUdeviceptr address = 0;
    int count = 0;
    wrong |= cuMemAlloc_v2(&address, 64) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
    wrong |= cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 2;
    wrong |= cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 4;
    wrong |= e2e::try_launch(mix, 2, 128, 0, nullptr, words.address, 256u, 99u) ==
                     CUDA_ERROR_NOT_INITIALIZED
                 ? 0
                 : 8;
    wrong |= cuMemFree_v2(words.address) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 16;
    exit(wrong);  // runs the exit handlers, too, which must not touch the parent's session
  }
  int status = -1;
  waitpid(child, &status, 0);
  e2e::expect(WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "the child gets CUDA_ERROR_NOT_INITIALIZED (%d)",
              WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  for (uint32_t key = 2; key < 6; key++) {
    e2e::launch(mix, 2, 128, 0, nullptr, words.address, 256u, key);
    e2e::mix_on_host(expected, key);
  }
  e2e::expect(words.get() == expected, "the parent goes on unharmed");

  // The child may start a program that uses CUDA afresh.
  const pid_t fresh = fork();
  if (fresh == 0) {
    const char* self = "/proc/self/exe";
    if (getenv("E2E_FRESH_CHILD") != nullptr) _exit(0);
    setenv("E2E_FRESH_CHILD", "1", 1);
    const int null = dup2(fileno(stderr), fileno(stdout));
    (void)null;
    execl(self, self, static_cast<char*>(nullptr));
    _exit(127);
  }
  waitpid(fresh, &status, 0);
  e2e::expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a program started by a child works");
  return e2e::finish();
}
