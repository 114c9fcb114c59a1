// SPDX-License-Identifier: Apache-2.0
// cuRAND's host API: the device's generators give the numbers of the library's CPU generators if
// both exist, a seed gives always the same sequence, and the moments of the distributions are
// right. Run by tests/gpu/run_gpu.py.
#include <curand.h>

#include "library_test.h"

using namespace library_test;

namespace {

constexpr std::size_t kCount = 100'000;
constexpr unsigned long long kSeed = 1234;

std::vector<unsigned> draw(curandRngType_t kind, unsigned long long offset = 0) {
  curandGenerator_t generator;
  CHECK(curandCreateGenerator(&generator, kind));
  if (kind < CURAND_RNG_QUASI_DEFAULT) CHECK(curandSetPseudoRandomGeneratorSeed(generator, kSeed));
  if (offset != 0) CHECK(curandSetGeneratorOffset(generator, offset));
  DeviceArray<unsigned> numbers(kCount);
  CHECK(curandGenerate(generator, numbers.get(), kCount));
  CHECK(curandDestroyGenerator(generator));
  return numbers.host();
}

// The same generator on the CPU.
std::vector<unsigned> draw_on_host(curandRngType_t kind) {
  curandGenerator_t generator;
  CHECK(curandCreateGeneratorHost(&generator, kind));
  if (kind < CURAND_RNG_QUASI_DEFAULT) CHECK(curandSetPseudoRandomGeneratorSeed(generator, kSeed));
  std::vector<unsigned> numbers(kCount);
  CHECK(curandGenerate(generator, numbers.data(), kCount));
  CHECK(curandDestroyGenerator(generator));
  return numbers;
}

template <curandRngType_t kKind>
void same_as_on_the_host() {
  const auto got = draw(kKind);
  if (got != draw_on_host(kKind)) fail("device and host disagree");
  if (got != draw(kKind)) fail("one seed, two sequences");
  remember(got);
}

void offset() {
  const auto whole = draw(CURAND_RNG_PSEUDO_PHILOX4_32_10);
  const auto later = draw(CURAND_RNG_PSEUDO_PHILOX4_32_10, 4096);
  if (whole == later) fail("the offset changes nothing");
  remember(later);
}

void moments(const std::vector<float>& x, double mean, double deviation) {
  double sum = 0, square = 0;
  for (const float number : x) {
    sum += number;
    square += static_cast<double>(number) * number;
  }
  const double got = sum / static_cast<double>(x.size());
  const double spread = std::sqrt(square / static_cast<double>(x.size()) - got * got);
  close(std::vector<double>{got, spread}, std::vector<double>{mean, deviation}, 0.02, "moments");
}

void distributions() {
  curandGenerator_t generator;
  CHECK(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
  CHECK(curandSetPseudoRandomGeneratorSeed(generator, kSeed));
  DeviceArray<float> numbers(kCount);
  CHECK(curandGenerateUniform(generator, numbers.get(), kCount));
  moments(numbers.host(), 0.5, std::sqrt(1.0 / 12));
  CHECK(curandGenerateNormal(generator, numbers.get(), kCount, 2.0F, 3.0F));
  moments(numbers.host(), 2, 3);
  CHECK(curandGenerateLogNormal(generator, numbers.get(), kCount, 0.0F, 0.25F));
  moments(numbers.host(), std::exp(0.03125), std::exp(0.03125) * std::sqrt(std::exp(0.0625) - 1));
  DeviceArray<unsigned> counts(kCount);
  CHECK(curandGeneratePoisson(generator, counts.get(), kCount, 9.0));
  const auto drawn = counts.host();
  moments({drawn.begin(), drawn.end()}, 9, 3);
  CHECK(curandDestroyGenerator(generator));
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"philox", same_as_on_the_host<CURAND_RNG_PSEUDO_PHILOX4_32_10>},
              {"xorwow", same_as_on_the_host<CURAND_RNG_PSEUDO_XORWOW>},
              {"mrg32k3a", same_as_on_the_host<CURAND_RNG_PSEUDO_MRG32K3A>},
              {"sobol", same_as_on_the_host<CURAND_RNG_QUASI_SOBOL32>},
              {"offset", offset},
              {"distributions", distributions}});
}
