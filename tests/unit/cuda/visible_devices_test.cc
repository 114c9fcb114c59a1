// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES, as NVIDIA's driver reads it on a machine with three GPUs.
#include "cuda/visible_devices.h"

#include <gtest/gtest.h>

#include <optional>

namespace openmps::cuda {
namespace {

const std::vector<std::string> kUuids = {"GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155",
                                         "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
                                         "GPU-8a32f937-d72c-4106-c12f-20bd9faed9f6"};

using Devices = std::vector<uint32_t>;

struct Case {
  const char* text;
  Devices devices;  // if empty, `error` is expected
  CUresult error = CUDA_ERROR_NO_DEVICE;
};

class Visible : public testing::TestWithParam<Case> {};

TEST_P(Visible, DevicesAreThoseOfNvidiasDriver) {
  const Case& one = GetParam();
  const Result<Devices> got = visible_devices(one.text, kUuids);
  if (one.devices.empty()) {
    EXPECT_EQ(got.status().code(), one.error) << one.text;
  } else {
    ASSERT_TRUE(got.ok()) << one.text << ": " << got.status().message();
    EXPECT_EQ(*got, one.devices) << one.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Numbers, Visible,
                         testing::Values(Case{nullptr, {0, 1, 2}}, Case{"", {}}, Case{" ", {}},
                                         Case{"0", {0}}, Case{"2,0", {2, 0}}, Case{"0 ", {0}},
                                         Case{" 1", {1}}, Case{"\t1", {1}}, Case{"0x0", {0}},
                                         Case{"0.5", {0}}, Case{"0;1", {0}}, Case{"1 0", {1}},
                                         Case{"00", {0}}, Case{"+1", {1}}, Case{"-0", {0}},
                                         Case{"0, 2", {0, 2}}, Case{"0x,1y", {0, 1}},
                                         Case{"0a", {0}}, Case{"4294967297", {1}}));
INSTANTIATE_TEST_SUITE_P(EndAtTheFirstInvalidEntry, Visible,
                         testing::Values(Case{"-1", {}}, Case{"0,-1,1", {0}},
                                         Case{"0,2,-1,1", {0, 2}}, Case{"3", {}},
                                         Case{"1,3,0", {1}}, Case{"1,,0", {1}}, Case{"1, ,0", {1}},
                                         Case{"1,", {1}}, Case{",1", {}}, Case{"none", {}},
                                         Case{"1,x", {1}}, Case{"18446744073709551616", {}},
                                         Case{"\"0\"", {}}, Case{"1,GPU-008cbaa3", {1}},
                                         Case{"GPU-008cbaa3,1", {0}}));
INSTANTIATE_TEST_SUITE_P(Duplicates, Visible,
                         testing::Values(Case{"0,0", {}, CUDA_ERROR_INVALID_DEVICE},
                                         Case{"1,0,1x", {}, CUDA_ERROR_INVALID_DEVICE},
                                         Case{"0, 00", {}, CUDA_ERROR_INVALID_DEVICE},
                                         Case{"GPU-0,GPU-00", {}, CUDA_ERROR_INVALID_DEVICE},
                                         Case{"0,3,0", {0}}));
INSTANTIATE_TEST_SUITE_P(
    Uuids, Visible,
    testing::Values(Case{"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", {1}}, Case{"GPU-8a", {2}},
                    Case{"GPU-8A", {2}}, Case{"GPU-0,GPU-8a", {0, 2}}, Case{"GPU-8", {}},
                    Case{"GPU-0,GPU-8,GPU-8a", {0}}, Case{"GPU-ff", {}}, Case{"GPU-zz", {}},
                    Case{"GPU-", {}}, Case{"GPU", {}}, Case{"GPU-8932f937-", {1}},
                    Case{"GPU-8932f937d72c4106c12f20bd9faed9f6", {1}},
                    Case{"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6x", {1}},
                    Case{"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 ", {1}},
                    Case{" GPU-8932f937", {}}, Case{"gpu-8932f937", {}}, Case{"8932f937", {}},
                    Case{"MIG-8932f937", {}}, Case{"MIG-", {}}, Case{"MIG-0", {}},
                    Case{"MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0", {}}));

TEST(Uuid, IsWrittenAsByNvidiaSmi) {
  const unsigned char bytes[16] = {0x00, 0x8c, 0xba, 0xa3, 0x6c, 0xdc, 0x94, 0x44,
                                   0x31, 0x2b, 0x2c, 0xa5, 0x0d, 0x63, 0xb1, 0x55};
  EXPECT_EQ(uuid_text(bytes, "NVIDIA H200"), kUuids[0]);
  EXPECT_EQ(uuid_text(bytes, "NVIDIA H200 MIG 1g.18gb"),
            "MIG-008cbaa3-6cdc-9444-312b-2ca50d63b155");
}

TEST(Uuid, OfAMigInstanceBeginsWithMig) {
  const std::vector<std::string> instance = {"MIG-008cbaa3-6cdc-9444-312b-2ca50d63b155"};
  EXPECT_TRUE(visible_devices("MIG-008c", instance).ok());
  EXPECT_FALSE(visible_devices("GPU-008c", instance).ok());
}

}  // namespace
}  // namespace openmps::cuda
