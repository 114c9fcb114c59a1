// SPDX-License-Identifier: Apache-2.0
// What travels of an image: all that some device of the program runs, in containers that are as
// right as those it came in, in pieces of any size.
#include "client/sent_image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace openmps::client {
namespace {

using Contents = std::vector<unsigned char>;

constexpr uint16_t kIntermediate = 8;  // LTO's: the driver says what it is good for

struct Entry {
  uint16_t kind;
  uint32_t architecture;
  std::string text;  // tells them apart
};

template <typename T>
void append(Contents& contents, const T& value) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
  contents.insert(contents.end(), bytes, bytes + sizeof(value));
}

Contents container(const std::vector<Entry>& entries, size_t padding = 0) {
  Contents body;
  for (const Entry& entry : entries) {
    cuda::EntryHeader header{};
    header.kind = entry.kind;
    header.header_bytes = sizeof(header);
    header.payload_bytes = entry.text.size();
    header.architecture = entry.architecture;
    append(body, header);
    body.insert(body.end(), entry.text.begin(), entry.text.end());
  }
  body.resize(body.size() + padding);
  Contents whole;
  append(whole, cuda::ContainerHeader{0xba55ed50, 1, sizeof(cuda::ContainerHeader), body.size()});
  whole.insert(whole.end(), body.begin(), body.end());
  return whole;
}

Image image_of(const Contents& contents) { return Image{contents.data(), contents.size()}; }

Contents sent(const SentImage& image, size_t piece = SIZE_MAX) {
  Contents all(image.bytes(), 0xee);
  for (size_t at = 0; at < all.size();) {
    const size_t bytes = std::min(piece, all.size() - at);
    image.copy(at, bytes, all.data() + at);
    at += bytes;
  }
  return all;
}

Contents sent(const Contents& contents, const std::vector<uint32_t>& capabilities) {
  return sent(SentImage(image_of(contents), capabilities));
}

const std::vector<Entry> kLibrary = {
    {cuda::kElfEntry, 75, "code75.."},  {cuda::kElfEntry, 80, "code80.."},
    {cuda::kElfEntry, 86, "code86.."},  {cuda::kElfEntry, 90, "code90.."},
    {cuda::kPtxEntry, 80, "text80.."},  {kIntermediate, 75, "lto75..."},
    {cuda::kElfEntry, 100, "code100."}, {cuda::kPtxEntry, 120, "text120."},
};

std::vector<Entry> only(std::initializer_list<size_t> which) {
  std::vector<Entry> entries;
  for (const size_t i : which) entries.push_back(kLibrary[i]);
  return entries;
}

TEST(SentImage, CodeForOtherDevicesStaysBehind) {
  const Contents library = container(kLibrary);
  EXPECT_EQ(sent(library, {90}), container(only({3, 4, 5})));
  EXPECT_EQ(sent(library, {89}), container(only({1, 2, 4, 5})));
  EXPECT_EQ(sent(library, {75}), container(only({0, 5})));
  EXPECT_EQ(sent(library, {121}), container(only({4, 5, 7})));
  EXPECT_EQ(sent(library, {75, 90}), container(only({0, 3, 4, 5})));
  EXPECT_FALSE(SentImage(image_of(library), std::vector<uint32_t>{90}).is_whole());
}

TEST(SentImage, PaddingBehindTheLastEntryStaysBehindToo) {
  EXPECT_EQ(sent(container(kLibrary, 24), {90}), container(only({3, 4, 5})));
}

// What is wrong with it is the driver's to say.
TEST(SentImage, WhatNoDeviceRunsTravelsWhole) {
  const Contents library = container(only({0, 5, 6}));
  EXPECT_EQ(sent(library, {90}), library);
  const Contents empty = container({});
  EXPECT_EQ(sent(empty, {90}), empty);
}

TEST(SentImage, TravelsWholeUnlessDevicesAreNamed) {
  const Contents library = container(kLibrary);
  EXPECT_EQ(sent(library, {}), library);
  EXPECT_TRUE(SentImage(image_of(library)).is_whole());
}

TEST(SentImage, WhatAllRunsIsNotRewritten) {
  const Contents library = container(only({1, 2, 4, 5}), 8);
  const SentImage image(image_of(library), std::vector<uint32_t>{86});
  EXPECT_TRUE(image.is_whole());
  EXPECT_EQ(sent(image), library);
}

TEST(SentImage, WhatCannotBeReadTravelsWhole) {
  Contents library = container(kLibrary);
  cuda::EntryHeader last{};
  const size_t at = library.size() - kLibrary.back().text.size() - sizeof(last);
  memcpy(&last, library.data() + at, sizeof(last));
  last.payload_bytes += 1;  // beyond the container
  memcpy(library.data() + at, &last, sizeof(last));
  EXPECT_EQ(sent(library, {90}), library);
}

TEST(SentImage, PtxGetsTheNulThatItsFileLacks) {
  const std::string ptx = ".version 8.0";
  const Image image{reinterpret_cast<const unsigned char*>(ptx.data()), ptx.size(), true};
  const std::vector<uint32_t> capabilities = {90};
  const Contents whole = sent(SentImage(image, capabilities), 5);
  EXPECT_EQ(std::string(whole.begin(), whole.end()), ptx + '\0');
}

// Of a program that nvcc -rdc=true linked: each container begins at a multiple of 8.
Contents in_line(const std::vector<Contents>& containers) {
  Contents line;
  for (const Contents& one : containers) {
    line.insert(line.end(), one.begin(), one.end());
    line.resize((line.size() + 7) / 8 * 8);
  }
  return line;
}

TEST(SentImage, ContainersOfALinkedProgramKeepTheirPlacesInLine) {
  const Contents linked =
      container({{cuda::kElfEntry, 80, "linked"}, {cuda::kElfEntry, 90, "so too"}});
  const Contents first = container({{cuda::kElfEntry, 90, "one"}, {cuda::kElfEntry, 80, "other"}});
  const Contents second = container({{cuda::kPtxEntry, 52, "text of eight"}});
  Image image = image_of(linked);
  image.inputs = {first, second};
  const Contents thin_linked = container({{cuda::kElfEntry, 90, "so too"}});
  const Contents thin_first = container({{cuda::kElfEntry, 90, "one"}});
  for (const size_t piece : {1u, 7u, 30u, 88u, 1000u}) {
    EXPECT_EQ(sent(SentImage(image), piece), in_line({linked, first, second}));
    EXPECT_EQ(sent(SentImage(image, std::vector<uint32_t>{90}), piece),
              in_line({thin_linked, thin_first, second}))
        << "in pieces of " << piece;
  }
}

TEST(SentImage, ALinkedProgramThatTheDriverLinksAnewTravelsWhole) {
  const Contents linked =
      container({{cuda::kElfEntry, 80, "linked"}, {cuda::kElfEntry, 75, "so too"}});
  const Contents input = container(kLibrary);
  Image image = image_of(linked);
  image.inputs = {input};
  for (const std::vector<uint32_t>& capabilities :
       {std::vector<uint32_t>{90}, std::vector<uint32_t>{80, 90}}) {
    EXPECT_EQ(sent(SentImage(image, capabilities)), in_line({linked, input}));
  }
}

// The program's environment, for one test.
class Switch {
 public:
  explicit Switch(const char* name) : name_(name) { setenv(name, "1", 1); }
  ~Switch() { unsetenv(name_); }
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

 private:
  const char* name_;
};

const std::vector<uint32_t> kHopper = {90};

TEST(Switches, WithoutThemAllCodeCounts) {
  const Contents code = container({{cuda::kElfEntry, 90, "code"}});
  EXPECT_EQ(check_code_of(image_of(code), kHopper), CUDA_SUCCESS);
}

TEST(Switches, PtxMayBeForbidden) {
  const Switch disabled("CUDA_DISABLE_PTX_JIT");
  const Contents both = container({{cuda::kElfEntry, 90, "code"}, {cuda::kPtxEntry, 90, "ptx"}});
  const Contents ptx = container({{cuda::kPtxEntry, 80, "ptx"}});
  const Contents elsewhere =
      container({{cuda::kElfEntry, 80, "code"}, {cuda::kPtxEntry, 80, "ptx"}});
  const unsigned char text[] = ".version 8.0";
  EXPECT_EQ(check_code_of(image_of(both), kHopper), CUDA_SUCCESS);
  EXPECT_EQ(check_code_of(image_of(ptx), kHopper), CUDA_ERROR_JIT_COMPILATION_DISABLED);
  EXPECT_EQ(check_code_of(image_of(elsewhere), kHopper), CUDA_ERROR_JIT_COMPILATION_DISABLED);
  EXPECT_EQ(check_code_of(Image{text, sizeof(text)}, kHopper), CUDA_ERROR_JIT_COMPILATION_DISABLED);
}

TEST(Switches, MachineCodeMayBeForbidden) {
  const Switch forced("CUDA_FORCE_PTX_JIT");
  const Contents both = container({{cuda::kElfEntry, 90, "code"}, {cuda::kPtxEntry, 90, "ptx"}});
  const Contents code = container({{cuda::kElfEntry, 90, "code"}});
  EXPECT_EQ(check_code_of(image_of(both), kHopper), CUDA_SUCCESS);
  EXPECT_EQ(check_code_of(image_of(code), kHopper), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(sent(SentImage(image_of(both), kHopper, true)),
            container({{cuda::kPtxEntry, 90, "ptx"}}));
}

TEST(Switches, BothLeaveNothing) {
  const Switch forced("CUDA_FORCE_PTX_JIT");
  const Switch disabled("CUDA_DISABLE_PTX_JIT");
  const Contents both = container({{cuda::kElfEntry, 90, "code"}, {cuda::kPtxEntry, 90, "ptx"}});
  const Contents code = container({{cuda::kElfEntry, 90, "code"}});
  EXPECT_EQ(check_code_of(image_of(both), kHopper), CUDA_ERROR_JIT_COMPILATION_DISABLED);
  EXPECT_EQ(check_code_of(image_of(code), kHopper), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

}  // namespace
}  // namespace openmps::client
