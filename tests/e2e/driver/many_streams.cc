// SPDX-License-Identifier: Apache-2.0
// A client with many streams at once, or with many executable graphs (`graphs`), each with a kernel
// on words of its own, which are checked. Prints "ready" before it creates them. Run by run_e2e.py.
// usage: drv_many_streams COUNT [graphs]
#include "driver.h"

int main(int argc, char** argv) {
  const size_t count = e2e::argument(argc, argv, 1, 100);
  constexpr uint32_t kEach = 64;
  const e2e::Session session;
  const CUfunction mix = session.function("mix");
  std::vector<uint32_t> expected(count * kEach);
  e2e::Random random(count);
  for (uint32_t& word : expected) word = static_cast<uint32_t>(random.next());
  const e2e::Buffer<uint32_t> words(expected);
  std::vector<CUstream> streams(argc > 2 ? 1 : count);
  for (CUstream& stream : streams) CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<CUgraphExec> graphs;
  printf("ready\n");
  fflush(stdout);
  for (size_t i = 0; i < count; i++) {
    CUdeviceptr own = words.address + static_cast<CUdeviceptr>(i * kEach) * 4;
    uint32_t each = kEach, key = 9;
    if (argc == 2) {
      e2e::launch(mix, 1, kEach, 0, streams[i], own, each, key);
      continue;
    }
    void* parameters[] = {&own, &each, &key};
    const CUDA_KERNEL_NODE_PARAMS launch{mix, 1, 1, 1, kEach, 1, 1, 0, parameters, nullptr, {}, {}};
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &launch));
    CHECK_CU(cuGraphInstantiateWithFlags(&graphs.emplace_back(), graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuGraphLaunch(graphs.back(), streams[0]));
  }
  for (CUstream stream : streams) CHECK_CU(cuStreamSynchronize(stream));
  for (size_t i = 0; i < count; i++) {
    std::vector<uint32_t> own(expected.begin() + static_cast<ptrdiff_t>(i * kEach),
                              expected.begin() + static_cast<ptrdiff_t>((i + 1) * kEach));
    e2e::mix_on_host(own, 9);
    std::copy(own.begin(), own.end(), expected.begin() + static_cast<ptrdiff_t>(i * kEach));
  }
  e2e::expect(words.get() == expected, "%zu of them, hash %016llx", count,
              static_cast<unsigned long long>(e2e::hash(expected.data(), expected.size() * 4)));
  for (CUgraphExec graph : graphs) CHECK_CU(cuGraphExecDestroy(graph));
  for (CUstream stream : streams) CHECK_CU(cuStreamDestroy_v2(stream));
  return e2e::finish();
}
