// SPDX-License-Identifier: Apache-2.0
// Speed of softgpu's interpreter alone, on one thread: nanoseconds per warp instruction. Usage:
// softgpu_interp_bench --ptx=FILE [Google Benchmark's options]; FILE is kernels.cu of the engine's
// tests as PTX, the build's own by default.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "../tests/unit/softgpu/engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

std::string ptx_file = OPENMPS_BENCH_PTX;

// Run `kernel` once per iteration and count its warp instructions.
void measure(benchmark::State& state, Device& device, const char* kernel, Dim grid, Dim block,
             const Parameters& parameters, uint32_t shared) {
  uint64_t instructions = 0;
  const Launch launch = device.make_launch(kernel, grid, block, parameters, shared);
  for (auto _ : state)  // NOLINT(clang-analyzer-deadcode.DeadStores): how the library counts
    for (uint32_t i = 0; i < grid.x * grid.y; ++i) {
      const uint32_t index[3] = {i % grid.x, i / grid.x, 0};
      auto run = start_block(launch, index, 0);
      if (run->run(UINT64_MAX, nullptr, 0) != BlockState::kFinished) {
        state.SkipWithError(run->fault().text.c_str());
        return;
      }
      instructions += run->warp_instructions();
    }
  // The inverse of a rate is seconds per instruction: printed as such, in nanoseconds.
  state.counters["s/warp_instruction"] = benchmark::Counter(
      static_cast<double>(instructions), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["warp_instructions"] =
      benchmark::Counter(static_cast<double>(instructions), benchmark::Counter::kAvgIterations);
}

bool load(benchmark::State& state, Device* device) {
  std::ifstream file(ptx_file);
  std::stringstream text;
  text << file.rdbuf();
  if (device->load(text.str())) return true;
  state.SkipWithError(("can't load " + ptx_file + ": " + device->error.log).c_str());
  return false;
}

void nbody(benchmark::State& state) {
  Device device;
  if (!load(state, &device)) return;
  const int n = static_cast<int>(state.range(0));
  std::vector<float> p(4 * static_cast<size_t>(n)), v(p.size());
  for (size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(i * 7919 % 1000) / 1000;
  measure(state, device, "nbody", {static_cast<uint32_t>(n) / 256}, {256},
          Parameters().add(device.buffer(p)).add(device.buffer(v)).add(n).add(1e-3f), 4096);
  state.counters["interactions/s"] =
      benchmark::Counter(static_cast<double>(n) * n * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}
BENCHMARK(nbody)->Arg(2048)->Unit(benchmark::kMillisecond);

void matmul(benchmark::State& state) {
  Device device;
  if (!load(state, &device)) return;
  const int n = static_cast<int>(state.range(0));
  std::vector<float> a(static_cast<size_t>(n) * n, 0.5f), b(a), c(a);
  const auto tiles = static_cast<uint32_t>(n) / 16;
  measure(state, device, "matmul", {tiles, tiles}, {16, 16},
          Parameters().add(device.buffer(a)).add(device.buffer(b)).add(device.buffer(c)).add(n), 0);
}
BENCHMARK(matmul)->Arg(128)->Unit(benchmark::kMillisecond);

void reduction(benchmark::State& state) {
  Device device;
  if (!load(state, &device)) return;
  const int n = static_cast<int>(state.range(0));
  std::vector<float> in(static_cast<size_t>(n), 1.f), out(1);
  measure(state, device, "reduce", {32}, {256},
          Parameters().add(device.buffer(in)).add(device.buffer(out)).add(n), 0);
}
BENCHMARK(reduction)->Arg(1 << 20)->Unit(benchmark::kMillisecond);

// What an empty block costs: launching is the other half of small kernels.
void small_blocks(benchmark::State& state) {
  Device device;
  if (!load(state, &device)) return;
  std::vector<float> a(32), b(32), c(32);
  measure(state, device, "vector_add", {1000}, {32},
          Parameters().add(device.buffer(a)).add(device.buffer(b)).add(device.buffer(c)).add(32),
          0);
}
BENCHMARK(small_blocks)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace openmps::softgpu::test

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--ptx=", 6) == 0) {
      openmps::softgpu::test::ptx_file = argv[i] + 6;
      std::rotate(argv + i, argv + i + 1, argv + argc);
      --argc;
      --i;
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
