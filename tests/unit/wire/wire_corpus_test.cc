// SPDX-License-Identifier: Apache-2.0
// Runs the decoder's fuzz target on its corpus and on mutated inputs of the corpus, as a unit test.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

std::vector<Input> read_corpus() {
  std::vector<Input> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(OPENMPS_WIRE_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

TEST(WireCorpusTest, EveryInputIsSurvived) {
  const std::vector<Input> corpus = read_corpus();
  ASSERT_FALSE(corpus.empty());
  for (const Input& input : corpus) {
    EXPECT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }
}

// The seed is fixed, so every run has the same inputs.
TEST(WireCorpusTest, MutatedInputsAreSurvived) {
  std::vector<Input> corpus = read_corpus();
  std::mt19937 random(20'261'121);
  for (int round = 0; round < 20'000; ++round) {
    Input input = corpus[random() % corpus.size()];
    for (uint32_t changes = random() % 8; changes > 0 && !input.empty(); --changes) {
      input[random() % input.size()] = static_cast<uint8_t>(random());
    }
    input.resize(random() % 4 == 0 ? random() % (input.size() + 64) : input.size());
    EXPECT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }
}

}  // namespace
