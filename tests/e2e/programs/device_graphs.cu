// SPDX-License-Identifier: Apache-2.0
// Graphs that kernels launch: fire-and-forget, tail and sibling launches; graphs that launch
// themselves; errors. Run by run_e2e.py. usage: device_graphs
#include <vector>

#include "e2e.h"

namespace {

constexpr int kGraphs = 3;
constexpr int kErrors = 4;

// The memory on which the kernels work.
struct Board {
  int number;
  int errors[kErrors];
  int rounds;
  volatile int gate;
  int passed;
  cudaGraphExec_t graphs[kGraphs];  // the graphs that the kernels launch
  cudaGraphExec_t self;
};

}  // namespace

__global__ void append(Board* board, int digit) { board->number = board->number * 10 + digit; }

__global__ void inside(Board* board) {
  board->errors[0] = cudaGraphLaunch(board->graphs[0], cudaStreamGraphFireAndForget);
}

// graphs[0], the tail, runs last, whatever the order of the calls.
__global__ void inside_and_behind(Board* board) {
  board->errors[0] = cudaGraphLaunch(board->graphs[0], cudaStreamGraphTailLaunch);
  board->errors[1] = cudaGraphLaunch(board->graphs[1], cudaStreamGraphFireAndForget);
}

__global__ void two_behind(Board* board) {
  board->errors[0] = cudaGraphLaunch(board->graphs[0], cudaStreamGraphTailLaunch);
  board->errors[1] = cudaGraphLaunch(board->graphs[1], cudaStreamGraphTailLaunch);
}

__global__ void one_behind(Board* board) {
  board->errors[2] = cudaGraphLaunch(board->graphs[2], cudaStreamGraphTailLaunch);
}

// The sibling graph waits for the tail graph, so the tail must not wait for the sibling.
__global__ void beside_and_behind(Board* board) {
  board->errors[0] = cudaGraphLaunch(board->graphs[0], cudaStreamGraphFireAndForgetAsSibling);
  board->errors[1] = cudaGraphLaunch(board->graphs[1], cudaStreamGraphTailLaunch);
}
__global__ void wait_for_gate(Board* board) {
  while (board->gate == 0) {
  }
  board->passed = 1;
}
__global__ void open_gate(Board* board) { board->gate = 1; }

__global__ void again(Board* board) {
  board->self = cudaGetCurrentGraphExec();
  if (++board->rounds < 1000) {
    board->errors[0] = cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
  }
}

// The launch of a graph that was not instantiated for device launch is not tested, since an H200
// reads invalid memory then.
__global__ void refused(Board* board) {
  board->errors[1] = cudaGraphLaunch(board->graphs[0], cudaStreamGraphTailLaunch);
  board->errors[2] = cudaGraphLaunch(board->graphs[0], cudaStreamGraphTailLaunch);
  board->errors[3] = cudaGraphLaunch(board->graphs[0], (cudaStream_t)0);
}

__global__ void who(Board* board) { board->self = cudaGetCurrentGraphExec(); }

namespace {

Board* board = nullptr;
cudaStream_t stream = nullptr;
std::vector<cudaGraphExec_t> made;

template <typename Work>
cudaGraphExec_t graph_of(unsigned long long flags, Work&& work) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  work();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, flags));
  CHECK_CUDA(cudaGraphDestroy(graph));
  made.push_back(exec);
  return exec;
}

template <typename Work>
cudaGraphExec_t for_device(Work&& work) {
  const cudaGraphExec_t exec = graph_of(cudaGraphInstantiateFlagDeviceLaunch, work);
  CHECK_CUDA(cudaGraphUpload(exec, stream));
  return exec;
}

cudaGraphExec_t appends(int digit) {
  return for_device([digit] { append<<<1, 1, 0, stream>>>(board, digit); });
}

// Begins with a new board, and destroys the graphs of the last one.
void start() {
  for (cudaGraphExec_t exec : made) CHECK_CUDA(cudaGraphExecDestroy(exec));
  made.clear();
  CHECK_CUDA(cudaMemsetAsync(board, 0, sizeof(Board), stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

void set_graphs(std::vector<cudaGraphExec_t> graphs) {
  graphs.resize(kGraphs);
  CHECK_CUDA(cudaMemcpyAsync(board->graphs, graphs.data(), kGraphs * sizeof(graphs[0]),
                             cudaMemcpyHostToDevice, stream));
}

// The board after `launches` launches of the graph and everything that they launch.
Board result_of(cudaGraphExec_t exec, int launches = 1) {
  for (int i = 0; i < launches; i++) CHECK_CUDA(cudaGraphLaunch(exec, stream));
  append<<<1, 1, 0, stream>>>(board, 9);
  Board seen;
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaMemcpyAsync(&seen, board, sizeof seen, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  return seen;
}

bool no_errors(const Board& seen) {
  for (int error : seen.errors) {
    if (error != cudaSuccess) return false;
  }
  return true;
}

void order() {
  start();
  set_graphs({appends(2)});
  Board seen = result_of(graph_of(0, [] { inside<<<1, 1, 0, stream>>>(board); }), 3);
  e2e::expect(no_errors(seen) && seen.number == 2229,
              "the stream waits for what a kernel launched");

  start();
  set_graphs({appends(3), appends(2)});
  seen = result_of(graph_of(0, [] {
    inside_and_behind<<<1, 1, 0, stream>>>(board);
    append<<<1, 1, 0, stream>>>(board, 0);
  }));
  e2e::expect(no_errors(seen) && seen.number % 100 == 39, "the tail is last");

  // A tail launch by a tail graph comes before the next tail.
  start();
  const cudaGraphExec_t first = for_device([] {
    append<<<1, 1, 0, stream>>>(board, 1);
    one_behind<<<1, 1, 0, stream>>>(board);
  });
  set_graphs({first, appends(3), appends(2)});
  seen = result_of(graph_of(0, [] { two_behind<<<1, 1, 0, stream>>>(board); }), 2);
  e2e::expect(no_errors(seen) && seen.number == 1231239, "tails of tails");

  start();
  set_graphs({for_device([] { wait_for_gate<<<1, 1, 0, stream>>>(board); }),
              for_device([] { open_gate<<<1, 1, 0, stream>>>(board); })});
  seen = result_of(graph_of(0, [] { beside_and_behind<<<1, 1, 0, stream>>>(board); }));
  e2e::expect(no_errors(seen) && seen.passed == 1, "the tail does not wait for a sibling");
}

void loops() {
  start();
  cudaGraphExec_t loop = for_device([] {
    append<<<1, 1, 0, stream>>>(board, 0);
    again<<<1, 1, 0, stream>>>(board);
  });
  Board seen = result_of(loop);
  e2e::expect(no_errors(seen) && seen.rounds == 1000, "a graph that launches itself");
  e2e::expect(seen.self == loop, "it knows itself");

  start();
  seen = result_of(graph_of(0, [] { who<<<1, 1, 0, stream>>>(board); }));
  e2e::expect(seen.self == nullptr, "a graph of the host has no handle here");
}

void copies() {
  start();
  int* words = nullptr;
  CHECK_CUDA(cudaMalloc(&words, 4096 * sizeof(int)));
  set_graphs({for_device([=] {
    CHECK_CUDA(cudaMemsetAsync(words, 0x11, 2048 * sizeof(int), stream));
    CHECK_CUDA(
        cudaMemcpyAsync(words + 2048, words, 2048 * sizeof(int), cudaMemcpyDeviceToDevice, stream));
  })});
  const Board seen = result_of(graph_of(0, [] { inside<<<1, 1, 0, stream>>>(board); }));
  std::vector<int> got(4096);
  CHECK_CUDA(cudaMemcpy(got.data(), words, got.size() * sizeof(int), cudaMemcpyDeviceToHost));
  e2e::expect(no_errors(seen) && got == std::vector<int>(4096, 0x11111111), "a fill and a copy");
  CHECK_CUDA(cudaFree(words));
}

void nothing(void*) {}

void refusals() {
  start();
  set_graphs({appends(2)});
  Board seen = result_of(graph_of(0, [] { refused<<<1, 1, 0, stream>>>(board); }));
  e2e::expect(seen.errors[1] == cudaSuccess && seen.errors[2] != cudaSuccess && seen.number == 29,
              "refused: a tail that waits already");
  e2e::expect(seen.errors[3] != cudaSuccess, "refused: a stream that is none");

  start();
  set_graphs({graph_of(cudaGraphInstantiateFlagDeviceLaunch,
                       [] { append<<<1, 1, 0, stream>>>(board, 1); })});
  seen = result_of(graph_of(0, [] { inside<<<1, 1, 0, stream>>>(board); }));
  e2e::expect(seen.errors[0] != cudaSuccess && seen.number == 9,
              "refused: a graph that was not uploaded");

  start();
  set_graphs({appends(2)});
  inside<<<1, 1, 0, stream>>>(board);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaMemcpy(&seen, board, sizeof seen, cudaMemcpyDeviceToHost));
  e2e::expect(seen.errors[0] != cudaSuccess && seen.number == 0,
              "refused: a kernel that is of no graph");

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  append<<<1, 1, 0, stream>>>(board, 1);
  CHECK_CUDA(cudaLaunchHostFunc(stream, nothing, nullptr));
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  e2e::expect(
      cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagDeviceLaunch) != cudaSuccess,
      "refused: a host function");
  cudaGetLastError();
  e2e::expect_error("flags that exclude each other",
                    cudaGraphInstantiate(&exec, graph,
                                         cudaGraphInstantiateFlagDeviceLaunch |
                                             cudaGraphInstantiateFlagAutoFreeOnLaunch),
                    cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK_CUDA(cudaGraphDestroy(graph));
}

}  // namespace

int main() {
  CHECK_CUDA(cudaMalloc(&board, sizeof(Board)));
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  order();
  loops();
  copies();
  refusals();
  start();
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(board));
  return e2e::finish();
}
