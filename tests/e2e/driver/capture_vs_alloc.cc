// SPDX-License-Identifier: Apache-2.0
// One of two processes captures a graph in global mode while the other allocates, frees, loads
// modules and synchronises. A capture forbids such calls in its own process only: there, another
// thread's allocation invalidates the capture, and the other process is not affected. The two
// processes take turns by a pipe, so the order does not depend on time. Run by run_e2e.py. usage:
// drv_capture_vs_alloc
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "driver.h"

namespace {

// Each side sends a byte after its step. The side that reads waits for the other's step.
struct Turns {
  int read_end, write_end;
  void give() const {
    if (write(write_end, "x", 1) != 1) _exit(3);
  }
  void take() const {
    char byte;
    if (read(read_end, &byte, 1) != 1) _exit(3);
  }
};

int allocate_beside(const Turns& turns) {
  turns.take();  // the neighbour is capturing now
  e2e::Session session;
  bool good = true;
  for (int i = 0; i < 20; i++) {
    CUdeviceptr address = 0;
    CUmodule module = nullptr;
    good = good && cuMemAlloc_v2(&address, 1 << 20) == CUDA_SUCCESS;
    good = good && cuModuleLoadData(&module, e2e::kernels_ptx()) == CUDA_SUCCESS;
    std::vector<uint32_t> words(64, 5);
    good = good && cuMemcpyHtoD_v2(address, words.data(), 256) == CUDA_SUCCESS;
    good = good && e2e::try_launch(session.function("mix"), 1, 64, 0, nullptr, address, 64u, 1u) ==
                       CUDA_SUCCESS;
    good = good && cuCtxSynchronize() == CUDA_SUCCESS;
    e2e::mix_on_host(words, 1);
    std::vector<uint32_t> got(64);
    good = good && cuMemcpyDtoH_v2(got.data(), address, 256) == CUDA_SUCCESS && got == words;
    good = good && cuModuleUnload(module) == CUDA_SUCCESS && cuMemFree_v2(address) == CUDA_SUCCESS;
  }
  turns.give();
  turns.take();  // the neighbour has ended its capture
  return good ? 0 : 1;
}

}  // namespace

int main() {
  int to_child[2], to_parent[2];
  if (pipe(to_child) != 0 || pipe(to_parent) != 0) return 2;
  const pid_t child = fork();  // before cuInit: both sides are ordinary programs
  if (child == 0) {
    const int status = allocate_beside({to_child[0], to_parent[1]});
    fflush(stdout);
    _exit(status);
  }
  const Turns turns{to_parent[0], to_child[1]};
  {
    e2e::Session session;
    e2e::Buffer<uint32_t> words(std::vector<uint32_t>(64, 2));
    const CUfunction mix = session.function("mix");
    CUstream stream;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    e2e::launch(mix, 1, 64, 0, stream, words.address, 64u, 7u);
    turns.give();
    turns.take();  // the neighbour allocated, loaded, ran and freed in the meantime
    e2e::launch(mix, 1, 64, 0, stream, words.address, 64u, 8u);
    e2e::expect_result("the neighbour did not spoil the capture",
                       cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    std::vector<uint32_t> expected(64, 2);
    e2e::mix_on_host(expected, 7);
    e2e::mix_on_host(expected, 8);
    e2e::expect(words.get() == expected, "the captured graph runs");
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphDestroy(graph));

    // Within the process, global mode means that another thread's allocation is refused.
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult in_thread = CUDA_SUCCESS;
    std::thread([&] {
      CUdeviceptr address = 0;
      CHECK_CU(cuCtxSetCurrent(session.context));
      in_thread = cuMemAlloc_v2(&address, 4096);
    }).join();
    e2e::expect_result("allocation by another thread during a global capture", in_thread,
                       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    e2e::expect_result("which spoils the capture", cuStreamEndCapture(stream, &graph),
                       CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_CU(cuStreamDestroy_v2(stream));
  }
  turns.give();
  int status = -1;
  waitpid(child, &status, 0);
  e2e::expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the neighbour noticed nothing");
  return e2e::finish();
}
