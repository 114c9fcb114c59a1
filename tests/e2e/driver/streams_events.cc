// SPDX-License-Identifier: Apache-2.0
// Streams and events: order within and across streams, queries, times, priorities, host functions,
// stream memory operations. Run by run_e2e.py. usage: drv_streams_events
#include <atomic>

#include "driver.h"

namespace {

constexpr uint32_t kWords = 5000;
std::atomic<int> host_calls{0};

void host_function(void* order) { *static_cast<int*>(order) = ++host_calls; }

}  // namespace

int main() {
  e2e::Session session;
  const CUfunction mix = session.function("mix"), spin = session.function("spin");
  const unsigned grid = e2e::blocks_for(kWords, 128);
  CUstream first, second;
  CHECK_CU(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  int least = 0, greatest = 0, priority = 99;
  CHECK_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  CHECK_CU(cuStreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, greatest));
  CHECK_CU(cuStreamGetPriority(second, &priority));
  e2e::expect(priority == greatest, "priority is kept");
  unsigned flags = 0;
  CHECK_CU(cuStreamGetFlags(second, &flags));
  e2e::expect(flags == CU_STREAM_NON_BLOCKING, "flags are kept");

  CUevent begin, middle, end;
  CHECK_CU(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK_CU(cuEventCreate(&middle, CU_EVENT_DISABLE_TIMING));
  CHECK_CU(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
  e2e::expect_result("query of an event never recorded", cuEventQuery(begin), CUDA_SUCCESS);

  // The streams take turns: each kernel waits for the last one in the other stream.
  std::vector<uint32_t> expected(kWords, 1);
  e2e::Buffer<uint32_t> words(expected);
  e2e::Buffer<uint32_t> busy(1);
  CHECK_CU(cuEventRecord(begin, first));
  for (uint32_t round = 0; round < 10; round++) {
    const CUstream from = round % 2 ? second : first, to = round % 2 ? first : second;
    e2e::launch(spin, 1, 32, 0, from, busy.address, 3000u);
    e2e::launch(mix, grid, 128, 0, from, words.address, kWords, round);
    CHECK_CU(cuEventRecord(middle, from));
    CHECK_CU(cuStreamWaitEvent(to, middle, 0));
    e2e::mix_on_host(expected, round);
  }
  int order[2] = {0, 0};
  CHECK_CU(cuLaunchHostFunc(first, host_function, &order[0]));
  CHECK_CU(cuLaunchHostFunc(first, host_function, &order[1]));
  CHECK_CU(cuEventRecord(end, first));
  CHECK_CU(cuEventSynchronize(end));
  e2e::expect(words.get() == expected, "ten kernels over two streams in order");
  e2e::expect(order[0] == 1 && order[1] == 2, "host functions in order");
  e2e::expect_result("query after synchronisation", cuEventQuery(end), CUDA_SUCCESS);
  e2e::expect_result("drained stream", cuStreamQuery(first), CUDA_SUCCESS);
  float milliseconds = -1;
  CHECK_CU(cuEventElapsedTime(&milliseconds, begin, end));
  e2e::expect(milliseconds > 0 && milliseconds < 60e3, "elapsed time is plausible");
  e2e::expect_result("elapsed time without timing",
                     cuEventElapsedTime(&milliseconds, begin, middle), CUDA_ERROR_INVALID_HANDLE);

  // CUDA_ERROR_NOT_READY is a state, not an error. The stream waits for a word until the queries
  // are made, since even a long kernel could end before this thread runs again.
  e2e::Buffer<uint32_t> flag(std::vector<uint32_t>{0});
  CHECK_CU(cuStreamWaitValue32_v2(second, flag.address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  e2e::launch(spin, 1, 32, 0, second, busy.address, 3000u);
  CHECK_CU(cuEventRecord(end, second));
  e2e::expect_result("query of a busy stream", cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  e2e::expect_result("query of a pending event", cuEventQuery(end), CUDA_ERROR_NOT_READY);
  CHECK_CU(cuStreamWriteValue32_v2(first, flag.address, 1, 0));
  CHECK_CU(cuStreamSynchronize(second));
  CHECK_CU(cuEventQuery(end));

  // One stream waits for a word that another writes.
  words.put(std::vector<uint32_t>(kWords, 0));
  CHECK_CU(cuStreamWaitValue32_v2(first, flag.address, 7, CU_STREAM_WAIT_VALUE_GEQ));
  e2e::launch(mix, grid, 128, 0, first, words.address, kWords, 3u);
  e2e::expect_result("a stream waits for a word", cuStreamQuery(first), CUDA_ERROR_NOT_READY);
  CHECK_CU(cuStreamWriteValue32_v2(second, flag.address, 8, 0));
  CHECK_CU(cuStreamSynchronize(first));
  expected.assign(kWords, 0);
  e2e::mix_on_host(expected, 3);
  e2e::expect(words.get() == expected, "the word lets it go on");

  // A stream that is destroyed finishes its queued work.
  e2e::launch(mix, grid, 128, 0, second, words.address, kWords, 4u);
  CHECK_CU(cuStreamDestroy_v2(second));
  CHECK_CU(cuCtxSynchronize());
  e2e::mix_on_host(expected, 4);
  e2e::expect(words.get() == expected, "destroying a stream finishes its work");
  CHECK_CU(cuStreamDestroy_v2(first));
  for (CUevent event : {begin, middle, end}) CHECK_CU(cuEventDestroy_v2(event));
  return e2e::finish();
}
