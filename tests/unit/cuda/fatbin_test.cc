// SPDX-License-Identifier: Apache-2.0
// Fatbin containers, their entries and ELF files: valid ones are read, and one whose lengths or
// offsets lead beyond its bytes is an error with a reason. The buffers have the exact size, so that
// sanitizers notice a read beyond the end.
#include "cuda/fatbin.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda/elf.h"
#include "cuda/unpack.h"

namespace openmps::cuda {
namespace {

using Image = std::vector<unsigned char>;

template <typename T>
void append(Image* image, const T& value) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
  image->insert(image->end(), bytes, bytes + sizeof(value));
}

Image entry(uint16_t kind, uint32_t architecture, const std::string& payload, uint64_t flags = 0,
            uint64_t unpacked = 0) {
  EntryHeader header{};
  header.kind = kind;
  header.header_bytes = sizeof(header);
  header.payload_bytes = payload.size();
  header.packed_bytes = static_cast<uint32_t>(payload.size());
  header.architecture = architecture;
  header.flags = flags;
  header.unpacked_bytes = unpacked;
  Image image;
  append(&image, header);
  image.insert(image.end(), payload.begin(), payload.end());
  return image;
}

Image container(const std::vector<Image>& entries, uint16_t version = 1) {
  Image body;
  for (const Image& one : entries) body.insert(body.end(), one.begin(), one.end());
  Image image;
  append(&image, uint32_t{0xba55ed50});
  append(&image, version);
  append(&image, uint16_t{16});
  append(&image, uint64_t{body.size()});
  image.insert(image.end(), body.begin(), body.end());
  return image;
}

// "kind architecture payload," of each entry, or the reason for the end.
std::string walk(const Image& image) {
  const Result<Bytes> front = front_container(image);
  if (!front.ok()) return front.status().message();
  std::string seen;
  const Status end = for_each_entry(*front, [&seen](const FatbinEntry& one) {
    seen += std::to_string(one.header.kind) + " " + std::to_string(one.header.architecture) + " " +
            std::string(one.payload.begin(), one.payload.end()) + ",";
    return Status();
  });
  return seen + end.message();
}

TEST(Fatbin, KindsAreRecognisedByTheirFirstBytes) {
  const Image whole = container({});
  EXPECT_EQ(kind_of(whole.data(), whole.size()), ImageKind::kContainer);
  EXPECT_EQ(kind_of(whole.data(), 3), ImageKind::kOther) << "three bytes are too few";
  EXPECT_EQ(kind_of("\x7f"
                    "ELF"),
            ImageKind::kElf);
  EXPECT_EQ(kind_of(""), ImageKind::kOther);
  EXPECT_EQ(kind_of(nullptr, 0), ImageKind::kOther);
  const FatbinWrapper wrapper{kWrapperMagic, 1, whole.data(), nullptr};
  EXPECT_EQ(kind_of(&wrapper), ImageKind::kWrapper);
  EXPECT_EQ(container_at(read_wrapper(&wrapper).data)->size(), whole.size());
}

TEST(Fatbin, EntriesComeInOrder) {
  EXPECT_EQ(walk(container({})), "");
  EXPECT_EQ(walk(container({entry(kPtxEntry, 75, "old"), entry(kElfEntry, 90, "code")})),
            "1 75 old,2 90 code,");
  EXPECT_EQ(walk(container({entry(kPtxEntry, 75, "x"), Image(40), Image(100)})), "1 75 x,")
      << "zeros behind the last entry are padding";
}

TEST(Fatbin, LengthsBeyondTheContainerAreRefused) {
  const Image whole = container({entry(kPtxEntry, 75, "text")});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const Image cut(whole.begin(), whole.begin() + static_cast<long>(bytes));
    EXPECT_FALSE(front_container(cut).ok()) << bytes;
  }
  EXPECT_NE(walk(container({}, 2)).find("version 2"), std::string::npos);
  Image longer = entry(kPtxEntry, 75, "text");
  longer[8] += 1;  // the payload's length
  EXPECT_NE(walk(container({longer})).find("entry of 5 bytes"), std::string::npos);
  Image shorter = entry(kPtxEntry, 75, "text");
  shorter[4] = 63;  // the header's length
  EXPECT_NE(walk(container({shorter})).find("entry of 4 bytes"), std::string::npos);
  EXPECT_NE(walk(container({Image(8, 'x')})).find("inside an entry's header"), std::string::npos);
}

TEST(Fatbin, AnErrorOfTheVisitorEndsTheWalk) {
  const Image image = container({entry(kPtxEntry, 75, "a"), entry(kPtxEntry, 75, "b")});
  int visits = 0;
  const Status end = for_each_entry(image, [&visits](const FatbinEntry&) {
    ++visits;
    return Status(CUDA_ERROR_NOT_FOUND, "enough");
  });
  EXPECT_EQ(end.code(), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(visits, 1);
}

TEST(Fatbin, InputsOfAPrelinkedProgram) {
  const Image one = container({}), two = container({entry(kPtxEntry, 75, "b")});
  const void* list[] = {one.data(), two.data(), nullptr};
  FatbinWrapper wrapper{kWrapperMagic, kPrelinked, one.data(), list};
  const Result<std::vector<Bytes>> inputs = inputs_of(wrapper);
  ASSERT_TRUE(inputs.ok());
  ASSERT_EQ(inputs->size(), 2u);
  EXPECT_EQ((*inputs)[1].data(), two.data());
  EXPECT_EQ((*inputs)[1].size(), two.size());
  list[1] = "// PTX";
  EXPECT_EQ(inputs_of(wrapper).status().code(), CUDA_ERROR_INVALID_IMAGE);
  wrapper.extra = nullptr;
  EXPECT_EQ(inputs_of(wrapper).status().code(), CUDA_ERROR_INVALID_IMAGE);
  std::vector<const void*> many(kMostContainers + 1, one.data());
  many.push_back(nullptr);
  wrapper.extra = many.data();
  EXPECT_EQ(inputs_of(wrapper).status().code(), CUDA_ERROR_INVALID_IMAGE);
}

// The packed texts are one LZ4 sequence of literals alone, and a zstd frame of one raw block.
TEST(Fatbin, EntriesAreUnpacked) {
  const auto text_of = [](const Image& image) {
    std::string text;
    const Status status = for_each_entry(image, [&text](const FatbinEntry& one) {
      std::vector<unsigned char> buffer;
      const Result<Bytes> code = unpack(one, &buffer);
      if (!code.ok()) return code.status();
      text.assign(code->begin(), code->end());
      return Status();
    });
    return status.ok() ? text : status.message();
  };
  EXPECT_EQ(text_of(container({entry(kPtxEntry, 75, "plain")})), "plain");
  const std::string lz4 = "\x50hello";
  EXPECT_EQ(text_of(container({entry(kPtxEntry, 75, lz4, kPackedByLz4, 5)})), "hello");
  const std::string zstd("\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello", 14);
  EXPECT_EQ(text_of(container({entry(kPtxEntry, 75, zstd, kPackedByZstd, 5)})), "hello");
  for (const uint64_t unpacked : {uint64_t{0}, uint64_t{4}, kMostUnpackedBytes + 1, ~uint64_t{0}}) {
    for (const auto& [packed, flag] :
         {std::pair(lz4, kPackedByLz4), std::pair(zstd, kPackedByZstd)}) {
      const Image image = container({entry(kPtxEntry, 75, packed, flag, unpacked)});
      EXPECT_NE(text_of(image).find("a fatbin entry"), std::string::npos) << unpacked;
    }
  }
}

// ---- ELF ----------------------------------------------------------------------------------------

constexpr uint16_t kCudaMachine = 190;

// A section of `type` at `offset`, of `bytes`; the program header comes last, as nvcc 13.0 writes
// it.
Image cubin(uint32_t type, uint64_t offset, uint64_t bytes) {
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = kCudaMachine;
  header.e_shoff = sizeof(header);
  header.e_shnum = 1;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_phoff = sizeof(header) + sizeof(Elf64_Shdr);
  header.e_phnum = 1;
  header.e_phentsize = sizeof(Elf64_Phdr);
  Elf64_Shdr section{};
  section.sh_type = type;
  section.sh_offset = offset;
  section.sh_size = bytes;
  Image image;
  append(&image, header);
  append(&image, section);
  append(&image, Elf64_Phdr{});
  return image;
}

TEST(Elf, ACubinEndsWhereItsLastTableEnds) {
  const Image image = cubin(SHT_NULL, 0, 0);
  Elf64_Ehdr header = *read_elf_header(image);
  EXPECT_EQ(*cubin_bytes(header), image.size());
  header.e_machine = EM_X86_64;
  EXPECT_FALSE(cubin_bytes(header).ok());
  header.e_machine = kCudaMachine;
  header.e_shoff = ~uint64_t{0};
  EXPECT_FALSE(cubin_bytes(header).ok());
  header.e_shnum = 0;
  EXPECT_FALSE(cubin_bytes(header).ok());
}

TEST(Elf, TablesAndSectionsBeyondTheFileAreRefused) {
  EXPECT_TRUE(check_elf(cubin(SHT_PROGBITS, 0, 184)).ok());
  EXPECT_FALSE(check_elf(cubin(SHT_PROGBITS, 1, 184)).ok());
  EXPECT_FALSE(check_elf(cubin(SHT_PROGBITS, ~uint64_t{0}, 2)).ok());
  EXPECT_TRUE(check_elf(cubin(SHT_NOBITS, 1, 1 << 20)).ok()) << "it has no bytes in the file";
  EXPECT_TRUE(check_elf(cubin(0x7000'0007, 1, 1 << 20)).ok())
      << "nvcc -rdc=true makes this type, which has no bytes in the file either";
  const Image whole = cubin(SHT_NULL, 0, 0);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const Image cut(whole.begin(), whole.begin() + static_cast<long>(bytes));
    EXPECT_FALSE(check_elf(cut).ok()) << bytes;
  }
}

TEST(Elf, SectionsHaveNamesAndContents) {
  Elf64_Ehdr header{};
  header.e_shoff = sizeof(header);
  header.e_shnum = 4;
  header.e_shentsize = sizeof(Elf64_Shdr);
  Elf64_Shdr sections[4]{};
  const uint64_t names = sizeof(header) + sizeof(sections);
  const auto set = [](Elf64_Shdr* section, uint32_t name, uint32_t type, uint64_t at,
                      uint64_t size) {
    section->sh_name = name;
    section->sh_type = type;
    section->sh_offset = at;
    section->sh_size = size;
  };
  set(&sections[0], 0, SHT_STRTAB, names, 11);
  set(&sections[1], 1, SHT_PROGBITS, names + 6, 3);
  set(&sections[2], 6, SHT_NOBITS, names, 1 << 20);
  set(&sections[3], 99, SHT_PROGBITS, names, 12);
  const auto image_of = [&] {
    Image image;
    append(&image, header);
    append(&image, sections);
    const std::string text("\0code\0zeros", 11);  // no NUL ends the last name
    image.insert(image.end(), text.begin(), text.end());
    return image;
  };
  const Image image = image_of();
  const auto read = read_named_sections(image);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ((*read)[0].contents.size(), 11u);
  EXPECT_EQ((*read)[1].name, "code");
  EXPECT_EQ(std::string((*read)[1].contents.begin(), (*read)[1].contents.end()), "zer");
  EXPECT_EQ((*read)[2].name, "zeros");
  EXPECT_EQ((*read)[2].header.sh_size, uint64_t{1} << 20);
  EXPECT_TRUE((*read)[2].contents.empty()) << "it has no bytes in the file";
  EXPECT_EQ((*read)[3].name, "") << "the offset of its name is outside of the section of names";
  EXPECT_TRUE((*read)[3].contents.empty()) << "its contents end a byte beyond the file";
  header.e_shstrndx = 4;
  EXPECT_FALSE(read_named_sections(image_of()).ok()) << "there is no section of names";
}

}  // namespace
}  // namespace openmps::cuda
