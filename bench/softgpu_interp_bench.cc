// SPDX-License-Identifier: Apache-2.0
// Speed of softgpu's interpreter alone, on one thread, and of its compiled tier beside it, where
// there is LLVM: nanoseconds per warp instruction. Usage: softgpu_interp_bench --ptx=FILE [Google
// Benchmark's options]; FILE is kernels.cu of the engine's tests as PTX, the build's own by
// default.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "../tests/unit/softgpu/engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

std::string ptx_file = OPENMPS_BENCH_PTX;

template <int size>
void both_tiers(benchmark::internal::Benchmark* one) {
  one->ArgNames({"size", "compiled"})->Args({size, 0})->Args({size, 1});
}

// Run `kernel` once before, and once per iteration and count its warp instructions.
void measure(benchmark::State& state, Device& device, const char* kernel, Dim grid, Dim block,
             const Parameters& parameters, uint32_t shared) {
  uint64_t instructions = 0;
  const Launch launch = device.make_launch(kernel, grid, block, parameters, shared);
  const auto run_once = [&] {
    for (uint32_t i = 0; i < grid.x * grid.y; ++i) {
      const uint32_t index[3] = {i % grid.x, i / grid.x, 0};
      auto run = start_block(launch, index, 0);
      if (run->run(UINT64_MAX, nullptr, 0) != BlockState::kFinished) {
        state.SkipWithError(run->fault().text.c_str());
        return false;
      }
      instructions += run->warp_instructions();
    }
    return true;
  };
  if (!run_once()) return;
  instructions = 0;
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): how the library counts
    if (!run_once()) return;
  }
  // The inverse of a rate is seconds per instruction: printed as such, in nanoseconds.
  state.counters["s/warp_instruction"] = benchmark::Counter(
      static_cast<double>(instructions), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["warp_instructions"] =
      benchmark::Counter(static_cast<double>(instructions), benchmark::Counter::kAvgIterations);
}

// The argument says which tier: 0 the interpreter, 1 every kernel compiled before it runs.
bool load(benchmark::State& state, Device* device) {
  setenv("SOFTGPU_PERF", state.range(1) != 0 ? "compile_all" : "no_compiler", 1);
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
BENCHMARK(nbody)->Apply(both_tiers<2048>)->Unit(benchmark::kMillisecond);

void matmul(benchmark::State& state) {
  Device device;
  if (!load(state, &device)) return;
  const int n = static_cast<int>(state.range(0));
  std::vector<float> a(static_cast<size_t>(n) * n, 0.5f), b(a), c(a);
  const auto tiles = static_cast<uint32_t>(n) / 16;
  measure(state, device, "matmul", {tiles, tiles}, {16, 16},
          Parameters().add(device.buffer(a)).add(device.buffer(b)).add(device.buffer(c)).add(n), 0);
}
BENCHMARK(matmul)->Apply(both_tiers<128>)->Unit(benchmark::kMillisecond);

void reduction(benchmark::State& state) {
  Device device;
  if (!load(state, &device)) return;
  const int n = static_cast<int>(state.range(0));
  std::vector<float> in(static_cast<size_t>(n), 1.f), out(1);
  measure(state, device, "reduce", {32}, {256},
          Parameters().add(device.buffer(in)).add(device.buffer(out)).add(n), 0);
}
BENCHMARK(reduction)->Apply(both_tiers<1 << 20>)->Unit(benchmark::kMillisecond);

// LeNet's second layer: 6 to 16 channels, 5x5, a thread an output.
void convolution(benchmark::State& state) {
  Device device;
  if (!load(state, &device)) return;
  const int total = static_cast<int>(state.range(0)) * 1600;
  std::vector<float> x(static_cast<size_t>(state.range(0)) * 6 * 196), w(2400), bias(16),
      y(static_cast<size_t>(total));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 11) / 8;
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 13) / 8;
  measure(state, device, "convolution", {static_cast<uint32_t>(total) / 256}, {256},
          Parameters()
              .add(device.buffer(x))
              .add(device.buffer(w))
              .add(device.buffer(bias))
              .add(device.buffer(y))
              .add(total),
          0);
}
BENCHMARK(convolution)->Apply(both_tiers<16>)->Unit(benchmark::kMillisecond);

// Lanes part in every round of the loop.
void collatz(benchmark::State& state) {
  Device device;
  if (!load(state, &device)) return;
  const int n = static_cast<int>(state.range(0));
  std::vector<uint32_t> x(static_cast<size_t>(n)), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint32_t>(i) + 1;
  measure(state, device, "collatz", {static_cast<uint32_t>(n) / 256}, {256},
          Parameters().add(device.buffer(x)).add(device.buffer(y)).add(n), 0);
}
BENCHMARK(collatz)->Apply(both_tiers<1 << 15>)->Unit(benchmark::kMillisecond);

// What an empty block costs: launching is the other half of small kernels.
void small_blocks(benchmark::State& state) {
  Device device;
  if (!load(state, &device)) return;
  std::vector<float> a(32), b(32), c(32);
  measure(state, device, "vector_add", {static_cast<uint32_t>(state.range(0))}, {32},
          Parameters().add(device.buffer(a)).add(device.buffer(b)).add(device.buffer(c)).add(32),
          0);
}
BENCHMARK(small_blocks)->Apply(both_tiers<1000>)->Unit(benchmark::kMicrosecond);

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
