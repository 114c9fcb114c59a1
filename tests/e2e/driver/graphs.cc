// SPDX-License-Identifier: Apache-2.0
// Graphs by stream capture: copies, memory sets and kernels over two streams, launched many times;
// the calls that capture forbids. Run by run_e2e.py. usage: drv_graphs
#include "driver.h"

int main() {
  e2e::Session session;
  constexpr uint32_t kWords = 3000;
  const CUfunction mix = session.function("mix");
  const unsigned grid = e2e::blocks_for(kWords, 128);
  std::vector<uint32_t> expected(kWords, 0);
  e2e::Buffer<uint32_t> left(expected), right(expected);
  CUstream stream, side;
  CUevent fork, join;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CHECK_CU(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));

  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CHECK_CU(cuStreamIsCapturing(stream, &status));
  e2e::expect(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the stream is capturing");
  CHECK_CU(cuEventRecord(fork, stream));
  CHECK_CU(cuStreamWaitEvent(side, fork, 0));
  e2e::launch(mix, grid, 128, 0, stream, left.address, kWords, 1u);
  e2e::launch(mix, grid, 128, 0, stream, left.address, kWords, 2u);
  CHECK_CU(cuMemsetD32Async(right.address, 9, kWords, side));
  e2e::launch(mix, grid, 128, 0, side, right.address, kWords, 3u);
  CHECK_CU(cuEventRecord(join, side));
  CHECK_CU(cuStreamWaitEvent(stream, join, 0));
  CHECK_CU(cuMemcpyDtoDAsync_v2(right.address, left.address, kWords / 2 * 4, stream));
  CUgraph graph = nullptr;
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  e2e::expect(left.get() == expected, "nothing ran during capture");
  size_t nodes = 0;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  e2e::expect(nodes == 5, "%zu nodes", nodes);

  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CU(cuGraphDestroy(graph));
  for (int i = 0; i < 20; i++) {
    CHECK_CU(cuGraphLaunch(exec, stream));
    e2e::mix_on_host(expected, 1);
    e2e::mix_on_host(expected, 2);
  }
  CHECK_CU(cuStreamSynchronize(stream));
  e2e::expect(left.get() == expected, "twenty launches of the graph");
  std::vector<uint32_t> other(kWords, 9);
  e2e::mix_on_host(other, 3);
  for (uint32_t i = 0; i < kWords / 2; i++) other[i] = expected[i];
  e2e::expect(right.get() == other, "the side stream's branch");
  CHECK_CU(cuGraphExecDestroy(exec));

  // Capture forbids synchronising its stream; the capture is then invalid and ends with an error.
  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  e2e::launch(mix, grid, 128, 0, stream, left.address, kWords, 1u);
  e2e::expect_result("synchronising a capturing stream", cuStreamSynchronize(stream),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  e2e::expect_result("end of an invalid capture", cuStreamEndCapture(stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  e2e::expect_result("end without begin", cuStreamEndCapture(stream, &graph),
                     CUDA_ERROR_ILLEGAL_STATE);
  e2e::launch(mix, grid, 128, 0, stream, left.address, kWords, 5u);
  CHECK_CU(cuStreamSynchronize(stream));
  e2e::mix_on_host(expected, 5);
  e2e::expect(left.get() == expected, "the stream works after a failed capture");
  CHECK_CU(cuStreamDestroy_v2(stream));
  CHECK_CU(cuStreamDestroy_v2(side));
  CHECK_CU(cuEventDestroy_v2(fork));
  CHECK_CU(cuEventDestroy_v2(join));
  return e2e::finish();
}
