// SPDX-License-Identifier: Apache-2.0
// Sum by shuffles, shared memory and atomics for several block sizes. Run by run_e2e.py.
// usage: drv_reduction [ELEMENTS]
#include "driver.h"

int main(int argc, char** argv) {
  const auto n = static_cast<uint32_t>(e2e::argument(argc, argv, 1, 200003));
  e2e::Session session;
  std::vector<uint32_t> words(n);
  uint32_t expected = 0;
  e2e::Random random(9);
  for (uint32_t& word : words) expected += word = static_cast<uint32_t>(random.next());
  e2e::Buffer<uint32_t> data(words), total(1);
  const CUfunction kernel = session.function("reduce");
  for (unsigned block : {32u, 96u, 256u, 1024u}) {
    CHECK_CU(cuMemsetD32_v2(total.address, 0, 1));
    e2e::launch(kernel, 10, block, 0, nullptr, data.address, n, total.address);
    const uint32_t got = total.get()[0];
    e2e::expect(got == expected, "blocks of %u: sum %08x", block, got);
  }
  return e2e::finish();
}
