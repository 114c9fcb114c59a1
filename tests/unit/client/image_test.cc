// SPDX-License-Identifier: Apache-2.0
// Image lengths: real layouts give their length, corrupt ones an error, never a read beyond a file.
#include "client/image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace openmps::client {
namespace {

std::vector<std::byte> container_of(uint64_t body, uint16_t version = 1, uint16_t header = 16) {
  std::vector<std::byte> bytes(16 + body, std::byte{0x41});
  const uint32_t magic = 0xba55ed50;
  memcpy(bytes.data(), &magic, 4);
  memcpy(bytes.data() + 4, &version, 2);
  memcpy(bytes.data() + 6, &header, 2);
  memcpy(bytes.data() + 8, &body, 8);
  return bytes;
}

// The program headers come behind the section headers, as nvcc 13.0 writes them.
std::vector<std::byte> cubin(uint16_t machine = 190) {
  std::vector<std::byte> bytes(64 + 3 * 64 + 2 * 56, std::byte{0});
  auto* raw = reinterpret_cast<unsigned char*>(bytes.data());
  memcpy(raw,  // NOLINT(bugprone-not-null-terminated-result): no text
         "\x7f"
         "ELF\x02\x01\x01",
         7);
  const auto put16 = [raw](int offset, uint16_t value) { memcpy(raw + offset, &value, 2); };
  const auto put64 = [raw](int offset, uint64_t value) { memcpy(raw + offset, &value, 8); };
  put16(18, machine);
  put64(32, 64 + 3 * 64);  // program headers
  put64(40, 64);           // section headers
  put16(54, 56);
  put16(56, 2);
  put16(58, 64);
  put16(60, 3);
  return bytes;
}

TEST(Image, ContainerLengthIsHeaderPlusBody) {
  const auto bytes = container_of(1000);
  const Result<Image> image = find_image(static_cast<const void*>(bytes.data()));
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image.value().bytes, 1016u);
}

TEST(Image, WrapperLeadsToItsContainer) {
  const auto bytes = container_of(10);
  struct {
    uint32_t magic = 0x466243b1;
    uint32_t version = 1;
    const void* data;
    const void* extra = nullptr;
  } wrapper{.data = bytes.data()};
  const Result<Image> image = find_image(&wrapper);
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(static_cast<const void*>(image.value().data), bytes.data());
  EXPECT_EQ(image.value().bytes, 26u);
  wrapper.version = 9;
  EXPECT_EQ(find_image(&wrapper).status().code(), CUDA_ERROR_INVALID_IMAGE);
}

// A program of nvcc -rdc=true: the linked code, and a list of what it was linked from.
struct PrelinkedWrapper {
  uint32_t magic = 0x466243b1;
  uint32_t version = 2;
  const void* data = nullptr;
  const void* extra = nullptr;
};

TEST(Image, PrelinkedCodeComesWithAllThatItWasLinkedFrom) {
  const auto linked = container_of(10), first = container_of(3), second = container_of(16);
  const void* list[] = {first.data(), second.data(), nullptr};
  const PrelinkedWrapper wrapper{.data = linked.data(), .extra = list};
  const Result<Image> image = find_image(&wrapper);
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(static_cast<const void*>(image->data), linked.data());
  ASSERT_EQ(image->inputs.size(), 2u);
  EXPECT_EQ(static_cast<const void*>(image->inputs[0].data()), first.data());
  EXPECT_EQ(image->inputs[1].size(), second.size());
}

TEST(Image, PrelinkedCodeMayBeEmptyButItsPartsAreContainers) {
  const auto empty = container_of(0), input = container_of(8), broken = container_of(8, 2);
  const void* list[] = {input.data(), nullptr};
  PrelinkedWrapper wrapper{.data = empty.data(), .extra = list};
  ASSERT_TRUE(find_image(&wrapper).ok()) << "PTX alone is not linked ahead";
  EXPECT_EQ(find_image(&wrapper)->bytes, 16u);
  const auto code = [&wrapper] { return find_image(&wrapper).status().code(); };
  list[0] = broken.data();
  EXPECT_EQ(code(), CUDA_ERROR_INVALID_IMAGE) << "an input of another version";
  list[0] = ".version 8.0";
  EXPECT_EQ(code(), CUDA_ERROR_INVALID_IMAGE) << "an input that is no container";
  list[0] = input.data();
  wrapper.data = nullptr;
  EXPECT_EQ(code(), CUDA_ERROR_INVALID_IMAGE) << "of nothing";
  wrapper = {.data = empty.data()};
  EXPECT_EQ(code(), CUDA_ERROR_INVALID_IMAGE) << "without a list";
  std::vector<const void*> many(wire::kMaxContainers, input.data());
  many.back() = nullptr;
  wrapper.extra = many.data();
  EXPECT_EQ(code(), CUDA_SUCCESS);
  many.back() = input.data();
  many.push_back(nullptr);
  wrapper.extra = many.data();
  EXPECT_EQ(code(), CUDA_ERROR_INVALID_IMAGE) << "more than can travel";
}

TEST(Image, CubinEndsWhereItsLastTableEnds) {
  const auto bytes = cubin();
  const Result<Image> image = find_image(static_cast<const void*>(bytes.data()));
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image.value().bytes, bytes.size());
}

TEST(Image, AnElfOfTheHostIsRefused) {
  const auto bytes = cubin(62);  // x86-64
  EXPECT_EQ(find_image(static_cast<const void*>(bytes.data())).status().code(),
            CUDA_ERROR_INVALID_IMAGE);
}

TEST(Image, PtxIncludesItsNul) {
  const Result<Image> image = find_image(static_cast<const void*>(".version 7.0\n"));
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image.value().bytes, 14u);
  EXPECT_FALSE(image.value().add_nul);
  const std::string text = ".version 7.0\n";
  const Result<Image> file = find_image(std::as_bytes(std::span(text.data(), text.size())));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value().bytes, 13u);
  EXPECT_TRUE(file.value().add_nul);
}

TEST(Image, NonsenseIsRefused) {
  EXPECT_EQ(find_image(nullptr).status().code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(find_image(static_cast<const void*>("")).status().code(), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(find_image(static_cast<const void*>("\x01\x02\x03")).status().code(),
            CUDA_ERROR_INVALID_IMAGE);
  auto huge = container_of(16);
  const uint64_t body = ~0ull - 8;
  memcpy(huge.data() + 8, &body, 8);
  EXPECT_EQ(find_image(static_cast<const void*>(huge.data())).status().code(),
            CUDA_ERROR_INVALID_IMAGE);
}

TEST(Image, EveryTruncationOfAFileIsRefused) {
  for (const auto& whole : {container_of(100), cubin()}) {
    ASSERT_TRUE(find_image(std::span<const std::byte>(whole)).ok());
    // From two bytes on: the first byte of a container alone is a letter, so text.
    for (size_t bytes = 2; bytes < whole.size(); ++bytes) {
      // A copy of exactly that size: reading beyond it is a finding of the sanitizers.
      const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<long>(bytes));
      EXPECT_FALSE(find_image(std::span<const std::byte>(cut)).ok()) << bytes;
    }
  }
}

TEST(Image, RandomHeadersNeverClaimMoreThanTheFile) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    auto bytes = i % 2 == 0 ? container_of(64) : cubin();
    for (int flips = 0; flips < 4; ++flips) {
      bytes[4 + random() % 60] = static_cast<std::byte>(random());
    }
    const Result<Image> image = find_image(std::span<const std::byte>(bytes));
    if (!image.ok()) continue;
    EXPECT_LE(image.value().bytes, bytes.size());
  }
}

}  // namespace
}  // namespace openmps::client
