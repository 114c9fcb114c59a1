// SPDX-License-Identifier: Apache-2.0
// One of many clients: works on memory with a pattern of its own for a number of rounds, and checks
// every word, so that a mix-up between clients is noticed. With 0 rounds it runs until it is
// killed. After its first round it prints "ready", for which a scenario can wait. With `hold` it
// then waits for a line on standard input. Run by run_e2e.py. usage: drv_client_worker SEED [ROUNDS
// [hold]]
#include "driver.h"

int main(int argc, char** argv) {
  const auto seed = static_cast<uint32_t>(e2e::argument(argc, argv, 1, 1));
  const size_t rounds = e2e::argument(argc, argv, 2, 5);
  e2e::Session session;
  const CUfunction mix = session.function("mix"), spin = session.function("spin");
  const uint32_t n = 2000 + seed % 977;
  const unsigned grid = e2e::blocks_for(n, 128);
  std::vector<uint32_t> expected(n);
  e2e::Random random(seed);
  for (uint32_t& word : expected) word = static_cast<uint32_t>(random.next());
  e2e::Buffer<uint32_t> words(expected), busy(1);
  CUstream streams[2];
  for (CUstream& stream : streams) CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  void* pinned = nullptr;
  CHECK_CU(cuMemAllocHost_v2(&pinned, n * 4));
  for (size_t round = 0; rounds == 0 || round < rounds; round++) {
    const CUstream stream = streams[round % 2];
    const auto key = static_cast<uint32_t>(seed * 31 + round);
    e2e::launch(spin, 1, 32, 0, streams[(round + 1) % 2], busy.address, 2000u);
    e2e::launch(mix, grid, 128, 0, stream, words.address, n, key);
    e2e::Buffer<uint32_t> extra(64 + round % 3 * 100000);
    CHECK_CU(cuMemsetD32Async(extra.address, key, extra.count, stream));
    CHECK_CU(cuMemcpyDtoHAsync_v2(pinned, words.address, n * 4, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    e2e::mix_on_host(expected, key);
    if (memcmp(pinned, expected.data(), n * 4) != 0) {
      e2e::expect(false, "round %zu of client %u", round, seed);
      return e2e::finish();
    }
    if (round == 0) {
      printf("ready\n");
      fflush(stdout);
      if (argc > 3 && getchar() == EOF) return 2;
    }
  }
  e2e::expect(words.get() == expected, "client %u, hash %016llx", seed,
              static_cast<unsigned long long>(e2e::hash(expected.data(), n * 4)));
  CHECK_CU(cuMemFreeHost(pinned));
  for (CUstream stream : streams) CHECK_CU(cuStreamDestroy_v2(stream));
  return e2e::finish();
}
