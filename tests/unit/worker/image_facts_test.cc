// SPDX-License-Identifier: Apache-2.0
// What an image says of itself: textures and surfaces.
#include "worker/shared/image_facts.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace openmps::worker {
namespace {

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

TEST(ImageFactsTest, OtherCodeUsesNone) {
  EXPECT_FALSE(facts_of_ptx("ld.global.u32 %r1, [%rd1];").uses_images);
  EXPECT_FALSE(facts_of_ptx("add.s32 %r1, %r2, %r3;").uses_images);
}

}  // namespace
}  // namespace openmps::worker
