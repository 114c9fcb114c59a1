// SPDX-License-Identifier: Apache-2.0
// Images: containers made here, damaged in every way; PTX that must be refused and how; initial
// values; what a program tells about its kernels.
#include <elf.h>
#include <gtest/gtest.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "engine_fixture.h"
#include "softgpu/fatbin/host_object.h"
#include "softgpu/ptx/opcode_table.h"

namespace openmps::softgpu::test {
namespace {

std::string ptx(const std::string& target,
                const std::string& rest = ".visible .entry k() { ret; }\n") {
  return ".version 8.0\n.target " + target + "\n.address_size 64\n" + rest;
}

enum class Packing { kNone, kLz4, kZstd };

template <class T>
void put(std::string* out, size_t at, T value) {
  std::memcpy(out->data() + at, &value, sizeof value);
}

std::string entry(uint16_t kind, uint32_t sm, std::string text, Packing packing) {
  const size_t plain = text.size();
  uint64_t flags = 0x11;
  if (packing == Packing::kLz4) {
    std::string packed(static_cast<size_t>(LZ4_compressBound(static_cast<int>(plain))), '\0');
    packed.resize(static_cast<size_t>(LZ4_compress_default(
        text.data(), packed.data(), static_cast<int>(plain), static_cast<int>(packed.size()))));
    text = packed;
    flags |= 0x2000;
  } else if (packing == Packing::kZstd) {
    std::string packed(ZSTD_compressBound(plain), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), plain, 1));
    text = packed;
    flags |= 0x8000;
  }
  const size_t packed_bytes = text.size();
  text.resize((text.size() + 7) & ~size_t{7});
  std::string header(64, '\0');
  put<uint16_t>(&header, 0, kind);
  put<uint16_t>(&header, 2, 0x101);
  put<uint32_t>(&header, 4, 64);
  put<uint64_t>(&header, 8, text.size());
  put<uint32_t>(&header, 16, packing == Packing::kNone ? 0 : static_cast<uint32_t>(packed_bytes));
  put<uint32_t>(&header, 28, sm);
  put<uint64_t>(&header, 40, flags);
  put<uint64_t>(&header, 56, packing == Packing::kNone ? 0 : plain);
  return header + text;
}

std::string container(const std::string& entries) {
  std::string header(16, '\0');
  put<uint32_t>(&header, 0, 0xba55ed50);
  put<uint16_t>(&header, 4, 1);
  put<uint16_t>(&header, 6, 16);
  put<uint64_t>(&header, 8, entries.size());
  return header + entries;
}

CUresult code_of(const std::string& image, uint32_t capability = 80,
                 std::string* kernel = nullptr) {
  // A copy of exactly the image's size, so that tools see reads past its end.
  std::vector<char> exact(image.begin(), image.end());
  CompileError error;
  auto program = compile(exact.data(), exact.size(), {capability}, &error);
  if (program && kernel) *kernel = program->kernels()[0].name;
  EXPECT_EQ(program == nullptr, error.code != CUDA_SUCCESS);
  EXPECT_EQ(error.code != CUDA_SUCCESS, !error.log.empty());
  return error.code;
}

std::string named(const std::string& target, const std::string& kernel) {
  return ptx(target, ".visible .entry " + kernel + "() { ret; }\n");
}

TEST(Images, EveryPackingWorks) {
  for (Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    EXPECT_EQ(code_of(container(entry(1, 75, ptx("sm_75"), packing))), CUDA_SUCCESS);
  }
}

TEST(Images, WrapperPointsToTheContainer) {
  const std::string data =
      container(entry(2, 80, "ELF", Packing::kNone) + entry(1, 75, ptx("sm_75"), Packing::kZstd));
  struct {
    uint32_t magic, version;
    const void *data, *extra;
  } wrapper = {0x466243b1, 1, data.data(), nullptr};
  CompileError error;
  EXPECT_NE(compile(&wrapper, SIZE_MAX, {80}, &error), nullptr) << error.log;
  const void* prelinked[] = {data.data(), nullptr};
  wrapper = {0x466243b1, 2, nullptr, prelinked};
  EXPECT_NE(compile(&wrapper, SIZE_MAX, {80}, &error), nullptr) << error.log;
}

// What the device linker leaves of several objects: its machine code, and a list of theirs with the
// PTX beside it.
TEST(Images, ObjectsOfOneProgramAreLinked) {
  const std::string linked = container(entry(2, 80, "ELF", Packing::kNone));
  const std::string user = container(
      entry(1, 80,
            ptx("sm_80",
                ".extern .func twice(.param .b32 x);\n.extern .global .u32 count;\n"
                ".visible .entry first() { .reg .b32 %r; .param .b32 p;\n"
                "ld.global.u32 %r, [count]; st.param.b32 [p], %r;\n"
                "call twice, (p); ret; }\n"
                ".extern .entry second();\n"
                ".visible .entry launches() { .reg .b64 %rd; mov.u64 %rd, second; ret; }\n"),
            Packing::kZstd));
  const std::string provider = container(entry(1, 80,
                                               ptx("sm_80",
                                                   ".visible .global .u32 count = 3;\n"
                                                   ".visible .func twice(.param .b32 x) { ret; }\n"
                                                   ".visible .entry second() { ret; }\n"),
                                               Packing::kZstd));
  const void* prelinked[] = {user.data(), provider.data(), nullptr};
  struct {
    uint32_t magic, version;
    const void *data, *extra;
  } wrapper = {0x466243b1, 2, linked.data(), prelinked};
  CompileError error;
  const auto program = compile(&wrapper, SIZE_MAX, {80}, &error);
  ASSERT_NE(program, nullptr) << error.log;
  ASSERT_EQ(program->kernels().size(), 3u);
  EXPECT_EQ(unsupported_in(*program), "");
  // Two objects that define the same kernel: the message names it.
  const void* both[] = {user.data(), user.data(), nullptr};
  wrapper.extra = both;
  EXPECT_EQ(compile(&wrapper, SIZE_MAX, {80}, &error), nullptr);
  EXPECT_NE(error.log.find("first"), std::string::npos) << error.log;
}

// The device runtime comes as machine code for every architecture and PTX for one that is newer
// than all that the program is for. Nothing of it is needed.
TEST(Images, TheDeviceRuntimeIsLeftOut) {
  const std::string linked = container(entry(2, 80, "ELF", Packing::kNone));
  const std::string user = container(
      entry(1, 80,
            ptx("sm_80",
                ".extern .func (.param .b32 result) __cudaCDP2GetLastError();\n"
                ".extern .func (.param .b32 result) cudaPeekAtLastError();\n"
                ".visible .entry asks() { .param .b32 p; call (p), __cudaCDP2GetLastError;\n"
                "  call (p), cudaPeekAtLastError; ret; }\n"),
            Packing::kZstd));
  const std::string runtime = container(
      entry(2, 80, "ELF", Packing::kNone) +
      entry(1, 121, ptx("sm_121", ".visible .global .u32 __CNPRT_VERSION_NUMBER__ = 6000;\n"),
            Packing::kZstd));
  const std::string foreign =
      container(entry(1, 121, ptx("sm_121", ".visible .global .u32 other = 1;\n"), Packing::kZstd));
  const void* prelinked[] = {user.data(), runtime.data(), nullptr};
  struct {
    uint32_t magic, version;
    const void *data, *extra;
  } wrapper = {0x466243b1, 2, linked.data(), prelinked};
  CompileError error;
  const auto program = compile(&wrapper, SIZE_MAX, {80}, &error);
  ASSERT_NE(program, nullptr) << error.log;
  ASSERT_EQ(program->kernels().size(), 1u);
  EXPECT_EQ(unsupported_in(*program), "");
  EXPECT_TRUE(program->kernels()[0].launches_kernels);
  // Anything else that is for newer devices only is missing.
  prelinked[1] = foreign.data();
  EXPECT_EQ(compile(&wrapper, SIZE_MAX, {80}, &error), nullptr);
  EXPECT_EQ(error.code, CUDA_ERROR_NO_BINARY_FOR_GPU);
}

// An ELF object for this machine, with one section of that name.
std::string object(const std::string& section, const std::string& contents) {
  const std::string names = std::string(1, '\0') + ".shstrtab" + '\0' + section + '\0';
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = EM_X86_64;
  header.e_shoff = sizeof header + names.size() + contents.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shstrndx = 1;
  Elf64_Shdr sections[3]{};
  sections[1].sh_name = 1;
  sections[1].sh_type = SHT_STRTAB;
  sections[1].sh_offset = sizeof header;
  sections[1].sh_size = names.size();
  sections[2].sh_name = 11;
  sections[2].sh_type = SHT_PROGBITS;
  sections[2].sh_offset = sizeof header + names.size();
  sections[2].sh_size = contents.size();
  std::string made(reinterpret_cast<const char*>(&header), sizeof header);
  made += names + contents;
  return made.append(reinterpret_cast<const char*>(sections), sizeof sections);
}

std::string archive(const std::string& name, const std::string& member) {
  char header[64];
  std::snprintf(header, sizeof header, "%-16s%-12d%-6d%-6d%-8d%-10zu`\n", (name + "/").c_str(), 0,
                0, 0, 644, member.size());
  return "!<arch>\n" + std::string(header) + member + (member.size() % 2 == 0 ? "" : "\n");
}

Result<std::vector<fatbin::ObjectText>> objects_in(const std::string& input) {
  // A copy of exactly the input's size, so that tools see reads past its end.
  const std::vector<char> exact(input.begin(), input.end());
  return fatbin::extract_objects("input", exact.data(), exact.size(), 80);
}

TEST(Images, ObjectsAndArchivesOfTheHost) {
  const std::string one = container(entry(1, 80, named("sm_80", "one"), Packing::kZstd));
  const std::string two = container(entry(1, 75, named("sm_75", "two"), Packing::kNone));
  const std::string both = object("__nv_relfatbin", one + two);
  const auto alone = objects_in(both);
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  ASSERT_EQ(alone->size(), 2u);
  EXPECT_EQ((*alone)[1].name, "input");
  EXPECT_EQ((*alone)[1].text, named("sm_75", "two"));
  const auto member = objects_in(archive("part.o", both));
  ASSERT_TRUE(member.ok()) << member.status().message();
  ASSERT_EQ(member->size(), 2u);
  EXPECT_EQ((*member)[0].name, "input:part.o");
  // Without device code there is nothing to say.
  const auto plain = objects_in(archive("part.o", object(".text", "machine code")));
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(plain->empty());
  for (size_t length = 0; length < both.size(); ++length) {
    EXPECT_EQ(objects_in(both.substr(0, length)).status().code(), CUDA_ERROR_INVALID_IMAGE);
  }
}

TEST(Images, MachineCodeInAnObjectIsNamed) {
  const std::string code = object(".nv_fatbin", container(entry(2, 80, "ELF", Packing::kNone)));
  const auto found = objects_in(archive("part.o", code));
  EXPECT_EQ(found.status().code(), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_NE(found.status().message().find("input:part.o"), std::string::npos)
      << found.status().message();
}

TEST(Images, TheNewestThatFitsIsTaken) {
  const std::string image = container(entry(1, 75, named("sm_75", "old"), Packing::kNone) +
                                      entry(1, 86, named("sm_86", "middle"), Packing::kNone) +
                                      entry(1, 90, named("sm_90a", "special"), Packing::kZstd));
  std::string kernel;
  EXPECT_EQ(code_of(image, 80, &kernel), CUDA_SUCCESS);
  EXPECT_EQ(kernel, "old");
  EXPECT_EQ(code_of(image, 89, &kernel), CUDA_SUCCESS);
  EXPECT_EQ(kernel, "middle");
  EXPECT_EQ(code_of(image, 90, &kernel), CUDA_SUCCESS);
  EXPECT_EQ(kernel, "special");
  EXPECT_EQ(code_of(image, 100, &kernel), CUDA_SUCCESS);
  EXPECT_EQ(kernel, "middle");
  EXPECT_EQ(code_of(image, 70), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST(Images, MachineCodeIsRefused) {
  EXPECT_EQ(code_of(container(entry(2, 80,
                                    "\x7f"
                                    "ELF....",
                                    Packing::kNone))),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(code_of(std::string("\x7f"
                                "ELF") +
                    std::string(100, '\0')),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST(Images, CutAndDamagedContainers) {
  const std::string good = container(entry(1, 75, ptx("sm_75"), Packing::kZstd));
  for (size_t n = 1; n < good.size(); ++n) {
    EXPECT_EQ(code_of(good.substr(0, n)), CUDA_ERROR_INVALID_IMAGE) << n;
  }
  EXPECT_EQ(code_of("hello"), CUDA_ERROR_INVALID_IMAGE);
  CompileError error;
  EXPECT_EQ(compile(nullptr, 10, {80}, &error), nullptr);
  EXPECT_EQ(error.code, CUDA_ERROR_INVALID_IMAGE);
  // One byte wrong anywhere: some error or a working program, never a crash or an endless read.
  for (size_t i = 0; i < good.size(); ++i) {
    for (unsigned char bits : {0x01, 0x80, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ bits);
      std::vector<char> exact(bad.begin(), bad.end());
      if (i < 4) continue;  // other magics name other kinds of image
      auto program = compile(exact.data(), exact.size(), {80}, &error);
      EXPECT_EQ(program == nullptr, error.code != CUDA_SUCCESS);
    }
  }
  std::string bomb = good;
  put<uint64_t>(&bomb, 16 + 56, uint64_t{1} << 40);
  EXPECT_EQ(code_of(bomb), CUDA_ERROR_INVALID_IMAGE);
}

struct BadText {
  const char* text;
  const char* expected;  // part of the log
};

TEST(Text, SyntaxErrorsNameTheirLine) {
  const BadText all[] = {
      {".visible .entry k( { ret; }", "line 4; error   : Parsing error near '{'"},
      {".visible .entry k()\n{\n.reg .b32 %r;\nadd.s32 %r %r, 1;\n}", "line 7; error"},
      {".visible .entry k()\n{\nadd.s32 %r, %r, 1;\n}", "line 6; error   : Unknown symbol '%r'"},
      {".visible .entry k()\n{\n.reg .b32 %r;\nadd.s32 %r, %r;\n}",
       "line 7; error   : Arguments mismatch for instruction 'add.s32'"},
      {".visible .entry k()\n{\n.reg .pred %p;\nadd.s32 %p, %p, %p;\n}", "Arguments mismatch"},
      {".visible .entry k()\n{\nbra NOWHERE;\n}", "Unknown symbol 'NOWHERE'"},
      {".visible .entry k()\n{\nA:\nA:\nret;\n}", "Duplicate definition of label 'A'"},
      {".visible .entry k() { ret; }\n.visible .entry k() { ret; }",
       "Duplicate definition of function 'k'"},
      {".global .b32 x;\n.global .b32 x;", "Duplicate definition of variable 'x'"},
      {".global .b32 x = y;", "Unknown symbol 'y'"},
      {".global .b8 x[2] = {1, 2, 3};", "Too many initial values"},
      {".global .b64 x[1125899906842624][1024];", "too large"},
      {".global .align 3 .b32 x;", "Parsing error"},
      {".visible .entry k() { ret;", "Parsing error near '<EOF>'"},
      {".visible .entry k() { /* no end", "Parsing error near '<EOF>'"},
      {"\"open", "Parsing error"},
      {".global .b32 x = 1 / 0;", "Illegal constant expression"},
      {".global .b32 x = 0f12;", "Parsing error"},
      {".visible .entry k() { .reg .b32 %r; @%r ret; }", "is not a predicate"},
      {"rubbish", "Parsing error near 'rubbish'"},
      {".visible .entry k() {\nA: .branchtargets B;\nB: bra A; }",
       "Label 'A' names a list of targets"},
  };
  for (const BadText& bad : all) {
    SCOPED_TRACE(bad.text);
    const std::string text = ptx("sm_80", bad.text);
    CompileError error;
    EXPECT_EQ(compile(text.data(), text.size(), {80}, &error), nullptr);
    EXPECT_EQ(error.code, CUDA_ERROR_INVALID_PTX);
    EXPECT_NE(error.log.find(bad.expected), std::string::npos) << error.log;
    EXPECT_EQ(error.log.find("ptxas "), 0u) << error.log;
  }
}

TEST(Text, DeepNestingIsRefusedNotFollowed) {
  for (const std::string& text : {".global .b32 x = " + std::string(100000, '(') + ";",
                                  ".global .b32 x = " + std::string(100000, '-') + "1;",
                                  ".global .b8 x[4] = " + std::string(100000, '{') + ";",
                                  ".visible .entry k() " + std::string(100000, '{')}) {
    EXPECT_EQ(code_of(ptx("sm_80", text)), CUDA_ERROR_INVALID_PTX);
  }
}

TEST(Text, VersionsAndTargets) {
  // A newer version of the same CUDA is taken if it can be read.
  const std::string newer = ".version 9.9\n.target sm_80\n.address_size 64\n";
  EXPECT_EQ(code_of(newer + ".visible .entry k() { ret; }\n"), CUDA_SUCCESS);
  EXPECT_EQ(code_of(newer + ".tomorrow k;\n"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(code_of(".version 99.9\n.target sm_80\n.address_size 64\n"),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(code_of(ptx("sm_90")), CUDA_ERROR_INVALID_PTX);  // newer than the device
  EXPECT_EQ(code_of(ptx("sm_90a"), 100), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(code_of(ptx("sm_90a"), 90), CUDA_SUCCESS);
  EXPECT_EQ(code_of(ptx("sm_52")), CUDA_SUCCESS);
  EXPECT_EQ(code_of(ptx("compute_x")), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(code_of(".version 7.0\n.target sm_80\n.address_size 32\n"), CUDA_ERROR_INVALID_PTX);
}

TEST(Text, LengthFromTheNul) {
  const std::string text = ptx("sm_80");
  CompileError error;
  EXPECT_NE(compile(text.c_str(), SIZE_MAX, {80}, &error), nullptr) << error.log;
}

TEST(Text, InitialValues) {
  const std::string text =
      ptx("sm_80",
          ".global .align 4 .b8 bytes[8] = {1, 2, 255};\n.global .u32 words[] = {1, -1, 0x10, 1 << "
          "4, (3 + 4) * 2};\n"
          ".global .f32 floats[3] = {1.5, 0f40000000, 3};\n.global .f64 doubles[2] = "
          "{0d3FF0000000000000, 2.5};\n"
          ".global .u64 pointer = generic(words)+8;\n.global .u64 pointers[2] = {bytes, words+4};\n"
          ".const .u16 shorts[2][2] = {{1, 2}, {3, 4}};\n.global .u8 low = 0xff(bytes);\n.extern "
          ".global .u32 elsewhere;\n"
          ".visible .entry k() { ret; }\n");
  Device device;
  ASSERT_TRUE(device.load(text, 80)) << device.error.log;
  std::map<std::string, const std::byte*> at;
  for (size_t i = 0; i < device.program->globals().size(); ++i) {
    const GlobalInfo& global = device.program->globals()[i];
    const auto raw = reinterpret_cast<uint64_t>(device.globals[i].get());
    at[global.name] = reinterpret_cast<const std::byte*>((raw + global.alignment - 1) &
                                                         ~uint64_t{global.alignment - 1});
    EXPECT_EQ(global.is_constant, global.name == "shorts");
    EXPECT_EQ(global.is_extern, global.name == "elsewhere");
  }
  auto value = [&]<class T>(const char* name, size_t i, T) {
    T v;
    std::memcpy(&v, at[name] + i * sizeof v, sizeof v);
    return v;
  };
  EXPECT_EQ(value("bytes", 2, uint8_t{}), 255);
  EXPECT_EQ(value("bytes", 3, uint8_t{}), 0);
  EXPECT_EQ(value("words", 1, uint32_t{}), ~0u);
  EXPECT_EQ(value("words", 3, uint32_t{}), 16u);
  EXPECT_EQ(value("words", 4, uint32_t{}), 14u);
  EXPECT_EQ(value("floats", 0, float{}), 1.5f);
  EXPECT_EQ(value("floats", 1, float{}), 2.f);
  EXPECT_EQ(value("floats", 2, float{}), 3.f);
  EXPECT_EQ(value("doubles", 0, double{}), 1.0);
  EXPECT_EQ(value("doubles", 1, double{}), 2.5);
  EXPECT_EQ(value("pointer", 0, uint64_t{}), reinterpret_cast<uint64_t>(at["words"]) + 8);
  EXPECT_EQ(value("pointers", 1, uint64_t{}), reinterpret_cast<uint64_t>(at["words"]) + 4);
  EXPECT_EQ(value("shorts", 3, uint16_t{}), 4);
  EXPECT_EQ(value("low", 0, uint8_t{}), reinterpret_cast<uint64_t>(at["bytes"]) & 0xff);
}

TEST(Text, KernelsDescribeThemselves) {
  const std::string text =
      ptx("sm_80",
          ".shared .align 8 .b8 a[24];\n.extern .shared .align 16 .b8 dynamic[];\n"
          ".visible .entry k(.param .u32 x, .param .align 8 .b8 s[24], .param .u8 c, .param .u64 "
          ".ptr .global .align 4 p)\n"
          ".maxntid 128, 2, 1\n.minnctapersm 2\n{ .reg .b32 %r; .local .align 8 .b8 l[40]; .shared "
          ".b32 own; mov.u32 %r, a; mov.u32 %r, own; ret; }\n"
          ".visible .entry other() .reqntid 64 { ret; }\n");
  Device device;
  ASSERT_TRUE(device.load(text, 80)) << device.error.log;
  const KernelInfo& k = device.program->kernels()[0];
  ASSERT_EQ(k.parameters.size(), 4u);
  const uint32_t offsets[] = {0, 8, 32, 40}, sizes[] = {4, 24, 1, 8};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(k.parameters[i].offset, offsets[i]);
    EXPECT_EQ(k.parameters[i].size, sizes[i]);
  }
  EXPECT_EQ(k.parameter_bytes, 48u);
  EXPECT_EQ(k.static_shared_bytes, 28u);
  EXPECT_EQ(k.local_bytes, 48u);
  EXPECT_EQ(k.max_threads, 256u);
  EXPECT_FALSE(k.uses_cooperative_groups);
  const KernelInfo& other = device.program->kernels()[1];
  EXPECT_EQ(other.required_block[0], 64u);
  EXPECT_EQ(other.max_threads, 1024u);  // what it requires is no bound of this kind
  EXPECT_EQ(other.static_shared_bytes, 0u);
}

std::map<std::string, uint32_t> shared_bytes_of(const std::string& text) {
  Device device;
  EXPECT_TRUE(device.load(ptx("sm_80", text), 80)) << device.error.log;
  std::map<std::string, uint32_t> bytes;
  for (const KernelInfo& kernel : device.program->kernels()) {
    EXPECT_EQ(kernel.unusable, "");
    bytes[kernel.name] = kernel.static_shared_bytes;
  }
  return bytes;
}

// A kernel that names each of these variables.
std::string naming(const std::string& name, const std::vector<std::string>& variables,
                   const std::string& more = "") {
  std::string text = ".visible .entry " + name + "() { .reg .b32 %r; .reg .b64 %d;\n";
  for (const std::string& variable : variables) text += "mov.u32 %r, " + variable + ";\n";
  return text + more + "ret; }\n";
}

// No kernel is charged for what only others use, be it that several use the same variables.
TEST(Text, SharedVariablesOfAModule) {
  const std::string variables =
      ".shared .align 4 .b8 a[40000];\n.shared .align 4 .b8 b[30000];\n"
      ".shared .align 16 .b8 c[8];\n.extern .shared .align 16 .b8 dynamic[];\n";
  auto bytes = shared_bytes_of(variables + naming("ka", {"a"}) + naming("kb", {"b"}) +
                               naming("kac", {"a", "c", "dynamic"}) + naming("kbc", {"b", "c"}) +
                               naming("again", {"a"}) + naming("none", {"dynamic"}));
  EXPECT_EQ(bytes["ka"], 40000u);
  EXPECT_EQ(bytes["again"], 40000u);
  EXPECT_EQ(bytes["kb"], 30000u);
  EXPECT_EQ(bytes["kac"], 40008u);
  EXPECT_EQ(bytes["kbc"], 30008u);
  EXPECT_EQ(bytes["none"], 0u);
  // Functions need what they name, and what those that they call name.
  const std::string functions =
      ".func inner() { .reg .b32 %r; mov.u32 %r, c; ret; }\n"
      ".func outer() { .reg .b32 %r; mov.u32 %r, b; call inner; ret; }\n"
      ".func unused() { .reg .b32 %r; mov.u32 %r, a; ret; }\n.visible .func other();\n"
      ".alias other, inner;\n";
  const std::string calling = variables + functions + naming("k", {}, "call outer;\n");
  bytes = shared_bytes_of(calling + naming("renamed", {}, "call other;\n") + naming("none", {}) +
                          naming("own", {"a"}));
  EXPECT_EQ(bytes["k"], 30008u);
  EXPECT_EQ(bytes["renamed"], 30008u) << "c has one place in all of them";
  EXPECT_EQ(bytes["own"], 40000u);
  EXPECT_EQ(bytes["none"], 0u);
  // A place that suits one kernel may leave a gap in another.
  bytes = shared_bytes_of(calling + naming("beside", {"a"}, "call inner;\n"));
  EXPECT_EQ(bytes["beside"], 40008u);
  EXPECT_EQ(bytes["k"], 40008u);
  // An indirect call may come to any of them.
  bytes = shared_bytes_of(".shared .b32 a;\n.shared .b32 b;\n.shared .b32 c;\n" + functions +
                          naming("k", {}, "p: .callprototype _ ();\ncall %d, (), p;\n"));
  EXPECT_EQ(bytes["k"], 12u);
}

TEST(Text, AKernelBeyondItsLimitsIsAlone) {
  const std::string text =
      ptx("sm_80", ".shared .b8 large[166913];\n.shared .b8 most[166912];\n" +
                       naming("large_one", {"large"}) + naming("most_one", {"most"}) +
                       ".visible .entry many(.param .b8 p[32765]) { ret; }\n"
                       ".visible .entry wide(.param .b8 p[32764]) { ret; }\n");
  Device device;
  CompileOptions options;
  options.max_shared_bytes = 163 << 10;
  device.program = compile(text.data(), text.size(), options, &device.error);
  ASSERT_NE(device.program, nullptr) << device.error.log;
  device.linked = link(device.program, {});
  const auto why = [&device](const char* name) {
    return device.program->kernels()[device.kernel(name)].unusable;
  };
  EXPECT_NE(why("large_one").find("uses too much shared data (0x28c01 bytes, 0x28c00 max)"),
            std::string::npos)
      << why("large_one");
  EXPECT_NE(why("many").find("uses too much parameter space (0x7ffd bytes, 0x7ffc max)"),
            std::string::npos);
  EXPECT_EQ(why("most_one"), "");
  EXPECT_EQ(why("wide"), "");
  EXPECT_EQ(device.run("most_one", {1}, {32}, Parameters()).state, BlockState::kFinished);
}

std::string text_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The opcode of each statement in the recording's cases: behind a digest come the name of the
// result and instructions, or what kind of numbers a matrix has and its instruction.
std::vector<std::string> compared_opcodes() {
  constexpr size_t kDigest = 64;
  std::vector<std::string> opcodes;
  std::istringstream lines(text_of(OPENMPS_CONFORMANCE_RECORDING));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    line.erase(0, line.find(' ', kDigest + 1));
    std::istringstream statements(line);
    for (std::string statement; std::getline(statements, statement, ';');) {
      std::istringstream words(statement);
      for (std::string word; words >> word;) {
        // Guards, labels and braces.
        if (word[0] == '@' || word.back() == ':' || word == "{" || word == "}") continue;
        if (word[0] != '.') opcodes.push_back(word);  // no directives
        break;
      }
    }
  }
  return opcodes;
}

// The index of the form by which the parser takes it; -1: none.
ptrdiff_t form_of(const std::string& opcode) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= opcode.size();) {
    const size_t end = std::min(opcode.find('.', begin), opcode.size());
    parts.push_back(std::string_view(opcode).substr(begin, end - begin));
    begin = end + 1;
  }
  const ptx::RuleRange forms = ptx::rules_of(parts.front());
  parts.erase(parts.begin());
  ptx::Instruction made;
  for (const ptx::Rule* rule = forms.begin; rule != forms.end; ++rule) {
    if (match(*rule, parts, false, &made)) return rule - ptx::all_rules().begin;
  }
  return -1;
}

// The table of the engine with one more column: how many kernels of the recording have the form.
std::string coverage_page() {
  const ptx::RuleRange all = ptx::all_rules();
  std::vector<size_t> kernels(static_cast<size_t>(all.end - all.begin), 0);
  for (const std::string& opcode : compared_opcodes()) {
    if (const ptrdiff_t form = form_of(opcode); form >= 0) ++kernels[static_cast<size_t>(form)];
  }
  const auto compared =
      std::count_if(kernels.begin(), kernels.end(), [](size_t n) { return n > 0; });
  const std::string plain = coverage_markdown();
  const size_t table = plain.find("| Mnemonic |");
  std::string page =
      plain.substr(0, table) +
      "Conformance: how many kernels with the form are run and compared, bit by bit, "
      "with what an H200\ncomputed (`tests/softgpu/conformance`). " +
      std::to_string(compared) +
      " forms have some; for the\nothers the unit tests say what is right. "
      "Nothing can be compared of `shfl` and `vote` without `.sync`\n"
      "and `membar.proxy.async`, which ptxas refuses for an H200, "
      "and of `createpolicy.cvt`, whose source is\nopaque. "
      "Of what approximates the special values are compared, "
      "and whether the rest is near enough.\n\n";
  std::istringstream lines(plain.substr(table));
  std::string line;
  std::getline(lines, line);
  page += line + " Conformance |\n";
  std::getline(lines, line);
  page += line + "---|\n";
  for (size_t form = 0; std::getline(lines, line); ++form) {
    page += line + " " + (kernels.at(form) == 0 ? "" : std::to_string(kernels[form]) + " ") + "|\n";
  }
  return page;
}

TEST(Coverage, ThePageIsPrintedFromTheTable) {
  const std::string page = coverage_page();
  EXPECT_NE(page.find("| `shfl` |"), std::string::npos);
  EXPECT_EQ(page, text_of(OPENMPS_COVERAGE_PAGE))
      << "docs/ptx-coverage.md is stale: run engine_image_test with OPENMPS_PRINT_COVERAGE=1";
}

TEST(Coverage, TheRecordingsInstructionsAreInTheTable) {
  const std::vector<std::string> opcodes = compared_opcodes();
  EXPECT_GT(opcodes.size(), 1000u);
  for (const std::string& opcode : opcodes) EXPECT_GE(form_of(opcode), 0) << opcode;
}

}  // namespace
}  // namespace openmps::softgpu::test

int main(int argc, char** argv) {
  if (std::getenv("OPENMPS_PRINT_COVERAGE")) {
    std::fputs(openmps::softgpu::test::coverage_page().c_str(), stdout);
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
