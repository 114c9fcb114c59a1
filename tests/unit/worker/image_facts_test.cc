// SPDX-License-Identifier: Apache-2.0
// What an image says of itself: textures and surfaces, variables and constants.
#include "worker/images/image_facts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "test_cubin.h"

namespace openmps::worker {
namespace {

using std::string_literals::operator""s;

constexpr uint32_t kCapability = 90;

ImageFacts facts_of_ptx(std::string_view instruction) {
  const std::string ptx =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f()\n{\n" +
      std::string(instruction) + "\nret;\n}\n";
  return read_image_facts({reinterpret_cast<const unsigned char*>(ptx.data()), ptx.size()},
                          kCapability);
}

TEST(ImageFactsTest, TexturesAndSurfacesAreSeenInPtx) {
  for (const char* instruction :
       {"tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}];",
        "tld4.r.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}];", "txq.width.b32 %r1, [%rd1];",
        "suld.b.1d.b32.trap {%r1}, [%rd1, {%r2}];", "sust.b.1d.b32.trap [%rd1, {%r2}], {%r1};",
        "sured.b.add.1d.u32.trap [%rd1, {%r2}], %r1;", "suq.width.b32 %r1, [%rd1];"}) {
    EXPECT_TRUE(facts_of_ptx(instruction).uses_images) << instruction;
  }
}

ImageFacts facts_of_image(const std::string& image) {
  return read_image_facts({reinterpret_cast<const unsigned char*>(image.data()), image.size()},
                          kCapability);
}

TEST(ImageFactsTest, DeclarationsOfPtxBindIt) {
  for (const char* declaration :
       {".global .u32 x;", ".visible .global .align 4 .b8 x[4];", ";.global.u32 x;",
        ".global .align 1 .b8 $str[4];", ".extern .global .u32 _ZN4cudaE;"}) {
    EXPECT_TRUE(facts_of_ptx(declaration).has_variables) << declaration;
  }
  EXPECT_TRUE(facts_of_ptx(".const .align 4 .f32 c;").has_constants);
  EXPECT_FALSE(facts_of_ptx(".const .align 4 .f32 c;").has_variables);
  EXPECT_TRUE(facts_of_ptx(".const .b8 _ZZ1fvE1z[4];.const .f32 c;").has_constants);
  EXPECT_TRUE(facts_of_ptx(".texref t;").has_references);
  EXPECT_EQ(facts_of_ptx(".global .align 4 .b8 x[64];").variable_bytes, 64u);
}

// Modifiers of instructions, and what the compiler adds.
TEST(ImageFactsTest, OtherWordsOfPtxDoNot) {
  for (const char* text :
       {"ld.global.u32 %r1, [%rd1];", "cp.async.ca.shared.global [%r1], [%rd2], 4, %r3;",
        "ld.volatile.global .u32 %r1, [%rd1];", ".globally x;",
        ".global .align 1 .b8 $str$1[6] = {65, 0};",
        ".global .align 1 .b8 __unnamed_1[2] = {65, 0};",
        ".global .align 1 .b8 _ZN4cuda3std3__45__cpo5beginE[1];",
        ".const .align 4 .b8 _ZZ1fvE1z[16] = {5, 0, 0, 0};", "ld.const.u32 %r1, [%rd1];"}) {
    EXPECT_FALSE(facts_of_ptx(text).binds()) << text;
  }
  EXPECT_TRUE(facts_of_ptx(".const .b8 _ZZ1fvE1z[4];").has_nobodys);
}

TEST(ImageFactsTest, SymbolsOfCubinsDo) {
  EXPECT_FALSE(facts_of_image(TestCubin().image() + '\0').compiles);
  TestCubin cubin;
  cubin.add("$str", TestCubin::kInitialised);
  cubin.add("_ZN4cuda3std3__45__cpo5beginE", TestCubin::kGlobal);
  cubin.add("kern", TestCubin::kCode, 0, STT_FUNC);
  EXPECT_FALSE(facts_of_image(cubin.image()).binds());
  EXPECT_EQ(facts_of_image(cubin.image()).variable_bytes, 96u);
  EXPECT_TRUE(facts_of_image(TestCubin(cubin).with_constants().image()).has_constants);
  cubin.add("_ZZ1fvE1z", TestCubin::kConstants);
  EXPECT_FALSE(facts_of_image(TestCubin(cubin).with_constants().image()).has_constants);
  EXPECT_TRUE(facts_of_image(TestCubin(cubin).with_constants().image()).has_nobodys);
  TestCubin another(cubin);
  another.add("factors", TestCubin::kConstants);
  EXPECT_TRUE(facts_of_image(another.with_constants().image()).has_constants);
  cubin.add("x", TestCubin::kGlobal);
  EXPECT_TRUE(facts_of_image(cubin.image()).has_variables);
  EXPECT_FALSE(facts_of_image(cubin.image()).has_constants);
}

// As the driver finds them; the same words elsewhere in a cubin are none.
TEST(ImageFactsTest, FunctionsOfTheDriverAreSymbols) {
  TestCubin cubin;
  cubin.add("mallocator", TestCubin::kCode, 0, STT_FUNC);
  const std::string words = std::string("vprintf __assertfail .nv.texref") + "\0malloc\0"s;
  const ImageFacts none = facts_of_image(cubin.image() + words);
  EXPECT_FALSE(none.prints || none.asserts || none.allocates || none.has_references);
  for (const auto& [name, fact] :
       {std::pair("vprintf", &ImageFacts::prints), std::pair("__assertfail", &ImageFacts::asserts),
        std::pair("malloc", &ImageFacts::allocates)}) {
    TestCubin calls(cubin);
    calls.add(name, TestCubin::kNone, 0, STT_FUNC);
    EXPECT_TRUE(facts_of_image(calls.image()).*fact) << name;
  }
  std::string stripped = cubin.image() + words;
  Elf64_Shdr header;
  char* at = stripped.data() + sizeof(Elf64_Ehdr) + TestCubin::kSymbols * sizeof(header);
  memcpy(&header, at, sizeof(header));
  header.sh_type = SHT_PROGBITS;
  memcpy(at, &header, sizeof(header));
  const ImageFacts all = facts_of_image(stripped);
  EXPECT_TRUE(all.prints && all.asserts && all.allocates && all.has_references)
      << "without symbols nobody knows";
}

TEST(ImageFactsTest, OtherCodeUsesNone) {
  EXPECT_FALSE(facts_of_ptx("ld.global.u32 %r1, [%rd1];").uses_images);
  EXPECT_FALSE(facts_of_ptx("add.s32 %r1, %r2, %r3;").uses_images);
}

}  // namespace
}  // namespace openmps::worker
