// SPDX-License-Identifier: Apache-2.0
// Which variables are a program's own, and code that uses those of another load of it.
#include "worker/images/image_variables.h"

#include <gtest/gtest.h>

#include <map>

#include "test_cubin.h"

namespace openmps::worker {
namespace {

constexpr uint32_t kSmVersion = 90;
constexpr uint64_t kMost = 1 << 20;
// Types of relocations (image_variables.cc).
constexpr uint32_t kAbsolute64 = 2;
constexpr uint32_t kLow32 = 0x38;
constexpr uint32_t kHigh32 = 0x39;
constexpr uint32_t kCall = 0x4b;

cuda::Bytes view_of(const std::string& image) {
  return {reinterpret_cast<const unsigned char*>(image.data()), image.size()};
}

Result<CUdeviceptr> nobody_knows(const std::string& name) {
  return Status(CUDA_ERROR_NOT_FOUND, name);
}

template <typename T>
T read(const ImageBytes& image, uint64_t at) {
  T value;
  memcpy(&value, image.data() + at, sizeof(value));
  return value;
}

TEST(Nobodys, IsToldByItsName) {
  for (const char* name : {"$str", "$str$12", "__unnamed_3", "__cudart_i2opi_f",
                           "precalc_xorwow_offset_matrix", "mrg32k3aM2SubSeq"}) {
    EXPECT_TRUE(is_nobodys(name, true)) << name;
    EXPECT_FALSE(is_nobodys(name, false)) << name << " that begins as zero is written";
  }
  for (const char* name :
       {"_ZN32_INTERNAL_d6b1abfc_4_a_cu_unused4cuda3std3__45__cpo5beginE",
        "_ZN4cuda3std3__417integral_constantIbLb1EE5valueE",
        "_ZN29_INTERNAL_9a57a158_6_var_cu_x6thrust23THRUST_300102_SM_900_NS3seqE",
        "_ZN4cuda3__419is_floating_point_vIfEE",
        "_ZN42_INTERNAL_69476fed_11_cupy_cub_cu_465221304cuda9execution3__418__get_requirementsE",
        "_ZN42_INTERNAL_69476fed_11_cupy_cub_cu_465221304cuda2mr3__421__get_memory_resourceE",
        "_ZN32_INTERNAL_d6b1abfc_4_a_cu_unused4cuda3ptx3__411sem_acq_relE",
        "_ZN3cub17CUB_300102_SM_90010AlignBytesIfE5valueE", "_Z15__cccl_requiresILb1ELi0EE",
        "_ZN26__nv_atomic_triv_cp_helperIiE5__valE",
        "_ZN4cupy11type_traits7is_sameIy7float16E5valueE", "_ZN6CArrayIfLi1ELb1ELb1EE4ndimE",
        "_ZN6CArrayIfLi2ELb0ELb1EE12c_contiguousE", "_ZN8CIndexerILi1ELb1EE4ndimE",
        "_ZN7float163nanE"}) {
    EXPECT_TRUE(is_nobodys(name, false)) << name;
  }
  for (const char* name :
       {"x", "", "_ZN", "_ZN4cudaE", "_ZN4cuda7counterE", "_ZN99_INTERNAL_4cuda3std",
        "_ZN2at4cuda3stdE", "_ZZ3fooIN4cuda3std5tupleEEvvE4flag",
        "_ZN18446744073709551617_INTERNAL_4cuda3std", "_ZN6CArrayIfLi1ELb1ELb1EE5countE",
        "_ZN6CArray4ndimE", "_ZN4cupy7counterE"}) {
    EXPECT_FALSE(is_nobodys(name, true)) << name;
  }
}

// Only the host writes constants, and it can't name what a function has for itself.
TEST(NobodysConstants, AreThoseOfFunctionsToo) {
  EXPECT_TRUE(is_nobodys_constant("_ZZN7cutlass4arch12cp_async_nanILi16EEC1EPvbE13OOB_NAN_F16x8"));
  EXPECT_TRUE(is_nobodys_constant("_ZN6thrust3seqE"));
  EXPECT_TRUE(is_nobodys_constant("__cr_lgamma_table"));
  EXPECT_FALSE(is_nobodys_constant("factors"));
  EXPECT_FALSE(is_nobodys_constant("_ZN7cutlass6tableE"));
}

TEST(PlacedVariables, AddressesStandInTheCodeAndTheTable) {
  TestCubin cubin;
  const uint32_t x = cubin.add("x", TestCubin::kGlobal);
  const uint32_t table = cubin.add("table", TestCubin::kInitialised);
  const uint32_t text = cubin.add("$str", TestCubin::kInitialised);
  const uint32_t print = cubin.add("vprintf", TestCubin::kNone, 0, STT_FUNC);
  const uint32_t kernel = cubin.add("kern", TestCubin::kCode, 0, STT_FUNC);
  cubin.relocate(TestCubin::kAddresses, 0, x, kAbsolute64);
  cubin.relocate(TestCubin::kAddresses, 8, table, kAbsolute64, 4);
  cubin.relocate(TestCubin::kAddresses, 16, text, kAbsolute64);
  cubin.relocate(TestCubin::kAddresses, 24, print, kAbsolute64);
  cubin.relocate(TestCubin::kCode, 0, x, kLow32, 8);
  cubin.relocate(TestCubin::kCode, 16, x, kHigh32, 8);
  cubin.relocate(TestCubin::kCode, 16, kernel, kCall);
  const std::string image = cubin.image();
  const std::map<std::string, CUdeviceptr> places{{"x", 0x7f12'3456'fffc}, {"table", 0x7f00'0000}};
  std::vector<std::string> asked;
  const Result<ImageBytes> placed = place_variables(
      view_of(image), kSmVersion, kMost, [&](const std::string& name) -> Result<CUdeviceptr> {
        asked.push_back(name);
        return places.at(name);
      });
  ASSERT_TRUE(placed.ok()) << placed.status().message();
  EXPECT_EQ(asked, (std::vector<std::string>{"x", "table"})) << "once each, none of the compiler's";
  ASSERT_EQ(placed->size(), image.size() + 1);
  EXPECT_EQ(placed->back(), 0);
  const uint64_t addresses = TestCubin::offset_of(image, TestCubin::kAddresses);
  EXPECT_EQ(read<uint64_t>(*placed, addresses), 0x7f12'3456'fffcu);
  EXPECT_EQ(read<uint64_t>(*placed, addresses + 8), 0x7f00'0004u);
  EXPECT_EQ(read<uint64_t>(*placed, addresses + 16), 0u) << "the loader's";
  const uint64_t code = TestCubin::offset_of(image, TestCubin::kCode);
  EXPECT_EQ(read<uint32_t>(*placed, code), 0x7f7f'7f7fu) << "the instruction";
  EXPECT_EQ(read<uint32_t>(*placed, code + 4), 0x3457'0004u);
  EXPECT_EQ(read<uint32_t>(*placed, code + 20), 0x7f12u);
  EXPECT_EQ(read<uint32_t>(*placed, code + 24), 0x7f7f'7f7fu);
  const auto types = [&](TestCubin::Section section, uint64_t count) {
    std::vector<uint64_t> found;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = TestCubin::offset_of(image, section) + i * sizeof(Elf64_Rela);
      found.push_back(ELF64_R_TYPE(read<Elf64_Rela>(*placed, at).r_info));
    }
    return found;
  };
  EXPECT_EQ(types(TestCubin::kOfAddresses, 4),
            (std::vector<uint64_t>{0, 0, kAbsolute64, kAbsolute64}));
  EXPECT_EQ(types(TestCubin::kOfCode, 3), (std::vector<uint64_t>{0, 0, kCall}));
}

TEST(PlacedVariables, WhatIsNotUnderstoodStays) {
  const auto place = [](const TestCubin& cubin) {
    return place_variables(view_of(cubin.image()), kSmVersion, kMost,
                           [](const std::string&) -> Result<CUdeviceptr> { return 0x1000; })
        .status()
        .code();
  };
  const auto cubin_with = [](TestCubin::Section in, uint64_t offset, uint32_t type) {
    TestCubin cubin;
    cubin.relocate(in, offset, cubin.add("x", TestCubin::kGlobal), type);
    return cubin;
  };
  EXPECT_EQ(place(cubin_with(TestCubin::kAddresses, 24, kAbsolute64)), CUDA_SUCCESS);
  EXPECT_EQ(place(cubin_with(TestCubin::kAddresses, 25, kAbsolute64)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(place(cubin_with(TestCubin::kAddresses, ~0ull, kAbsolute64)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(place(cubin_with(TestCubin::kAddresses, 0, kLow32)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(place(cubin_with(TestCubin::kCode, 24, kLow32)), CUDA_SUCCESS);
  EXPECT_EQ(place(cubin_with(TestCubin::kCode, 25, kLow32)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(place(cubin_with(TestCubin::kCode, 0, kAbsolute64)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(place(cubin_with(TestCubin::kCode, 0, kCall)), CUDA_ERROR_NOT_SUPPORTED);
  TestCubin by_section;
  by_section.relocate(TestCubin::kAddresses, 0,
                      by_section.add("", TestCubin::kGlobal, 0, STT_SECTION), kAbsolute64);
  EXPECT_EQ(place(by_section), CUDA_ERROR_NOT_SUPPORTED);
  TestCubin nobodys;
  nobodys.relocate(TestCubin::kAddresses, 0, 77, kAbsolute64);
  EXPECT_EQ(place(nobodys), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(PlacedVariables, WhatNobodyKnowsStays) {
  TestCubin cubin;
  cubin.relocate(TestCubin::kAddresses, 0, cubin.add("x", TestCubin::kGlobal), kAbsolute64);
  EXPECT_EQ(
      place_variables(view_of(cubin.image()), kSmVersion, kMost, nobody_knows).status().code(),
      CUDA_ERROR_NOT_FOUND);
}

// Two modules that were linked may each have a variable of that name for themselves.
TEST(PlacedVariables, OneNameForTwoIsRefused) {
  TestCubin cubin;
  cubin.relocate(TestCubin::kAddresses, 0, cubin.add("x", TestCubin::kGlobal), kAbsolute64);
  cubin.relocate(TestCubin::kAddresses, 8, cubin.add("x", TestCubin::kGlobal, 8), kAbsolute64);
  const auto find = [](const std::string&) { return Result<CUdeviceptr>(0x1000); };
  EXPECT_EQ(place_variables(view_of(cubin.image()), kSmVersion, kMost, find).status().code(),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(lay_out_variables(view_of(cubin.image()), kSmVersion, kMost).status().code(),
            CUDA_ERROR_NOT_SUPPORTED);
  const std::string ptx =
      ".version 8.0\n.target sm_80\n.address_size 64\n.global .u32 x;\n.global .u32 x;\n";
  EXPECT_EQ(lay_out_variables(view_of(ptx), kSmVersion, kMost).status().code(),
            CUDA_ERROR_NOT_SUPPORTED);
  TestCubin same;
  same.add("x", TestCubin::kGlobal);
  same.add("x", TestCubin::kGlobal);
  EXPECT_TRUE(lay_out_variables(view_of(same.image()), kSmVersion, kMost).ok());
}

TEST(VariableLayouts, OfACubinAreItsSections) {
  TestCubin cubin;
  cubin.add("x", TestCubin::kGlobal, 8);
  cubin.add("table", TestCubin::kInitialised, 4);
  cubin.add("kern", TestCubin::kCode, 0, STT_FUNC);
  cubin.add("constant", TestCubin::kConstants);
  const std::string image = cubin.image();
  const Result<VariableLayout> layout = lay_out_variables(view_of(image), kSmVersion, kMost);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  ASSERT_EQ(layout->variables.size(), 2u);
  const auto& x = layout->variables.at("x");
  const auto& table = layout->variables.at("table");
  EXPECT_EQ(x.offset % 256, 8u);
  EXPECT_EQ(table.offset % 256, 4u);
  EXPECT_EQ(table.bytes, 4u);
  ASSERT_EQ(layout->contents.size(), 1u);
  EXPECT_EQ(layout->contents[0].offset, table.offset - 4);
  EXPECT_EQ(layout->contents[0].bytes, ImageBytes(32, 1));
  EXPECT_GE(layout->bytes, 256u + 32u);
}

TEST(VariableLayouts, WhatIsNotUnderstoodIsRefused) {
  TestCubin outside;
  outside.add("x", TestCubin::kGlobal, 61);  // 4 bytes of 64
  EXPECT_FALSE(lay_out_variables(view_of(outside.image()), kSmVersion, kMost).ok());
  TestCubin large;
  large.add("x", TestCubin::kGlobal);
  EXPECT_FALSE(lay_out_variables(view_of(large.image()), kSmVersion, 100).ok());
  const std::string ptx = ".version 8.0\n.target sm_80\n.address_size 64\n";
  EXPECT_FALSE(lay_out_variables(view_of(ptx + ".global .u64 x = y;\n"), kSmVersion, kMost).ok());
  EXPECT_FALSE(
      lay_out_variables(view_of(ptx + ".extern .global .u32 x;\n"), kSmVersion, kMost).ok());
  EXPECT_FALSE(lay_out_variables(view_of(ptx + ".global .b8 x[18446744073709551615];\n"
                                               ".global .b8 y[18446744073709551615];\n"),
                                 kSmVersion, kMost)
                   .ok());
}

TEST(VariableLayouts, OfPtxAreItsDeclarations) {
  const std::string ptx =
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .global .align 8 .b8 x[12];\n.global .f64 y;\n"
      ".const .u32 z;\n.global .b8 v[4] = {1, 0xff, -1};\n.global .f32 w = 0f3F800000;\n"
      ".entry k() { ret; }\n";
  const Result<VariableLayout> layout = lay_out_variables(view_of(ptx), kSmVersion, kMost);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  ASSERT_EQ(layout->variables.size(), 4u);
  ASSERT_EQ(layout->contents.size(), 2u);
  EXPECT_EQ(layout->contents[0].offset, layout->variables.at("v").offset);
  EXPECT_EQ(layout->contents[0].bytes, (ImageBytes{1, 255, 255}));
  EXPECT_EQ(layout->contents[1].bytes, (ImageBytes{0, 0, 0x80, 0x3f}));
  EXPECT_EQ(layout->variables.at("x").offset, 0u);
  EXPECT_EQ(layout->variables.at("x").bytes, 12u);
  EXPECT_EQ(layout->variables.at("y").offset, 256u);
  EXPECT_EQ(layout->bytes, 772u);
}

const std::string kHead = ".version 8.0\n.target sm_80\n.address_size 64\n";

std::string placed_text(const std::string& ptx) {
  const Result<ImageBytes> placed = place_variables(
      view_of(ptx), kSmVersion, kMost, [](const std::string& name) -> Result<CUdeviceptr> {
        return name == "x" ? Result<CUdeviceptr>(0x7f12'0000'0010)
                           : Status(CUDA_ERROR_NOT_FOUND, name);
      });
  return placed.ok() ? std::string(placed->begin(), placed->end() - 1)
                     : "refused: " + placed.status().message();
}

TEST(PlacedVariables, PtxHasThemInRegisters) {
  const std::string begin = kHead + ".visible .global .align 4 .u32 x = 5;\n";
  EXPECT_EQ(placed_text(begin + R"(.visible .entry k(.param .u64 p) {
  // x is named in a comment
  ld.global.u32 %r1, [x];
  @%p1 st.global.u32 [x+4], %r1; atom.global.add.u32 %r2, [x + -4], 1;
  mov.u64 %rd1, x;
  mov.b64 %rd2, x+8;
  cvta.global.u64 %rd3, x;
  mov.u32 %r3, %tid.x;
  ret;
}
.func f() { ret; }
)"),
            begin + R"(.visible .entry k(.param .u64 p) {
.reg .b64 %openmps_variable_0;
mov.b64 %openmps_variable_0, 0x7f1200000010;
  // x is named in a comment
  ld.global.u32 %r1, [%openmps_variable_0];
  @%p1 st.global.u32 [%openmps_variable_0+4], %r1; atom.global.add.u32 %r2, [%openmps_variable_0 + -4], 1;
  mov.u64 %rd1, %openmps_variable_0;
  add.s64 %rd2, %openmps_variable_0, 8;
  cvta.global.u64 %rd3, %openmps_variable_0;
  mov.u32 %r3, %tid.x;
  ret;
}
.func f() { ret; }
)");
  const std::string values = begin + ".global .u64 $str[1] = {x};\n.visible .entry k() { ret; }\n";
  EXPECT_EQ(placed_text(values), values) << "how others begin";
}

TEST(PlacedVariables, OtherUsesInPtxStay) {
  const auto in_kernel = [](const std::string& text) {
    return kHead + ".global .u32 x;\n.entry k() {\n" + text + "\nret;\n}\n";
  };
  for (const std::string& ptx :
       {in_kernel("call f, (x);"), in_kernel(".reg .b32 x;"), in_kernel("x: bra x;"),
        in_kernel("mov.u32 %r1, x;"), in_kernel("cvta.shared.u64 %rd1, x;"),
        in_kernel("ld.global.u32 %r1, [%rd1+x];"), in_kernel("mov.u64 %rd1, x*2;"),
        in_kernel("setp.eq.u64 %p1, %rd1, x;"), in_kernel("add.u64 %rd1, x, 8;"), in_kernel("{"),
        in_kernel("}"), kHead + ".global .u32 x;\n.entry k(.param .u64 x) { ret; }\n",
        kHead + ".global .u32 x;\n.section .debug { .b64 x }\n",
        kHead + ".extern .global .u32 other;\n",
        std::string(".version 8.0\n.target sm_80\n.address_size 32\n.global .u32 x;\n"),
        std::string(".version 8.0\n.target sm_80\n.global .u32 x;\n"),
        in_kernel("mov.u64 %openmps_variable_0, 1;")}) {
    EXPECT_TRUE(placed_text(ptx).starts_with("refused: ")) << ptx << placed_text(ptx);
  }
}

TEST(DeclaredConstants, AreToldFromVariables) {
  TestCubin cubin;
  cubin.add("x", TestCubin::kGlobal);
  cubin.add("c", TestCubin::kConstants);
  const std::string code = cubin.with_constants().image();
  const std::string ptx = kHead + ".const .u32 c;\n.visible .global .u32 x;\n";
  for (const std::string& image : {code, ptx}) {
    EXPECT_TRUE(declares_constant(view_of(image), kSmVersion, "c"));
    EXPECT_FALSE(declares_constant(view_of(image), kSmVersion, "x"));
    EXPECT_TRUE(declares_constant(view_of(image), kSmVersion, "nobody knows"));
  }
}

TEST(PlacedVariables, TooMuchCodeStays) {
  const std::string image = TestCubin().image();
  EXPECT_TRUE(place_variables(view_of(image), kSmVersion, image.size(), nobody_knows).ok());
  EXPECT_EQ(
      place_variables(view_of(image), kSmVersion, image.size() - 1, nobody_knows).status().code(),
      CUDA_ERROR_NOT_SUPPORTED);
}

// Of a container: the newest code that the device runs, if there is one.
TEST(PlacedVariables, OfAContainerTheNewestThatRuns) {
  TestCubin cubin;
  cubin.relocate(TestCubin::kAddresses, 0, cubin.add("x", TestCubin::kGlobal), kAbsolute64);
  const std::string code = cubin.image();
  const auto container = [&](std::initializer_list<uint32_t> architectures) {
    std::string entries;
    for (const uint32_t architecture : architectures) {
      cuda::EntryHeader header{};
      header.kind = cuda::kElfEntry;
      header.header_bytes = sizeof(header);
      header.payload_bytes = code.size();
      header.architecture = architecture;
      entries += std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + code;
    }
    const uint32_t magic = 0xba55ed50;
    const uint16_t version = 1, header_bytes = 16;
    const uint64_t bytes = entries.size();
    std::string head(16, '\0');
    memcpy(head.data(), &magic, 4);
    memcpy(head.data() + 4, &version, 2);
    memcpy(head.data() + 6, &header_bytes, 2);
    memcpy(head.data() + 8, &bytes, 8);
    return head + entries;
  };
  const auto place = [](const std::string& image) {
    return place_variables(view_of(image), kSmVersion, kMost,
                           [](const std::string&) -> Result<CUdeviceptr> { return 0x1000; });
  };
  const Result<ImageBytes> placed = place(container({80, 90, 100}));
  ASSERT_TRUE(placed.ok()) << placed.status().message();
  EXPECT_EQ(placed->size(), code.size() + 1);
  EXPECT_EQ(place(container({80, 100})).status().code(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(place(container({90, 90})).status().code(), CUDA_ERROR_NOT_SUPPORTED)
      << "which of the two is not known";
}

}  // namespace
}  // namespace openmps::worker
