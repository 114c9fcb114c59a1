// SPDX-License-Identifier: Apache-2.0
// The usage table of a worker as its reader sees it: a file is read only if it is a valid table, a
// row only while it belongs to the session.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <string>

#include <memory>
#include <new>

#include "wire/usage_table.h"

namespace openmps::wire {
namespace {

constexpr uint32_t kRow = 7;
constexpr uint32_t kSession = 12;

class UsageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<UniqueFd> file = create_shown_file("usage", kUsageBytes, &mapping_);
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = std::move(file).value();
    header_ = new (mapping_.address())
        UsageHeader{kUsageMagic, kUsageVersion, sizeof(UsageRow), kMaxWindows, 1, 1, 1, 0, {}};
    row_ = reinterpret_cast<UsageRow*>(static_cast<unsigned char*>(mapping_.address()) +
                                       kUsageRowsOffset) +
           kRow;
    row_->session = kSession;
  }
  // Why opening the file fails; "" if it succeeds.
  static std::string refusal(int file) {
    const Result<UsageTable> table = UsageTable::open(file);
    EXPECT_TRUE(table.ok() || table.status().code() == CUDA_ERROR_INVALID_VALUE);
    return table.ok() ? "" : table.status().message();
  }

  UniqueFd file_;
  Mapping mapping_;
  UsageHeader* header_ = nullptr;
  UsageRow* row_ = nullptr;
};

TEST_F(UsageTest, CountersAreRead) {
  Result<UsageTable> table = UsageTable::open(file_.get());
  ASSERT_TRUE(table.ok()) << table.status().message();
  row_->counts[static_cast<size_t>(UsageCount::kFilled)] = 5;
  row_->held_ns[static_cast<size_t>(HeldFor::kMemory)] = 6;
  row_->held_now[static_cast<size_t>(HeldFor::kValue)] = 2;
  for (const uint32_t device : {0u, kUsageDevices - 1}) {
    auto& uses = row_->devices[device];
    uses[static_cast<size_t>(DeviceUse::kNs)] = 100;
    uses[static_cast<size_t>(DeviceUse::kMostNs)] = 150;
    uses[static_cast<size_t>(DeviceUse::kSmNs)] = 1000;
    row_->memory[device] = 4096 + device;
  }
  const Usage usage = table->read(kRow, kSession);
  EXPECT_EQ(usage.is_known, 1u);
  EXPECT_EQ(usage.is_timed, 1u);
  EXPECT_GT(usage.age_ns, 0u);
  EXPECT_EQ(usage.count(UsageCount::kFilled), 5u);
  EXPECT_EQ(usage.count(UsageCount::kLaunches), 0u);
  EXPECT_EQ(usage.held_ns[static_cast<size_t>(HeldFor::kMemory)], 6u);
  EXPECT_EQ(usage.held_now[static_cast<size_t>(HeldFor::kValue)], 2u);
  EXPECT_EQ(usage.use(DeviceUse::kNs), 200u) << "the sum over all devices";
  EXPECT_EQ(usage.use(DeviceUse::kSmNs), 2000u);
  EXPECT_EQ(usage.use(kUsageDevices - 1, DeviceUse::kSmNs), 1000u);
  EXPECT_EQ(usage.use(1, DeviceUse::kSmNs), 0u);
  EXPECT_EQ(usage.memory[kUsageDevices - 1], 4096u + kUsageDevices - 1);
}

TEST_F(UsageTest, AnEstimateIsClampedToItsMeasuredBounds) {
  Result<UsageTable> table = UsageTable::open(file_.get());
  ASSERT_TRUE(table.ok());
  auto& uses = row_->devices[0];
  uses[static_cast<size_t>(DeviceUse::kNs)] = 500;
  uses[static_cast<size_t>(DeviceUse::kMostNs)] = 300;
  EXPECT_EQ(table->read(kRow, kSession).use(DeviceUse::kNs), 300u);
  uses[static_cast<size_t>(DeviceUse::kLeastNs)] = 700;
  EXPECT_EQ(table->read(kRow, kSession).use(DeviceUse::kNs), 700u);
}

TEST(UsageBins, EveryTimeAndShareHasABin) {
  EXPECT_EQ(time_bin(0), 0u);
  EXPECT_EQ(time_bin(511), 0u);
  EXPECT_EQ(time_bin(512), 1u);
  EXPECT_EQ(time_bin(~0ull), kTimeBins - 1);
  for (size_t bin = 1; bin < kTimeBins; ++bin) {
    EXPECT_EQ(time_bin(time_bin_ns(bin)), bin);
    EXPECT_EQ(time_bin(time_bin_ns(bin) - 1), bin - 1);
  }
  EXPECT_EQ(part_bin(1, 132), 0u);
  EXPECT_EQ(part_bin(16.5, 132), 0u) << "an eighth";
  EXPECT_EQ(part_bin(17, 132), 1u);
  EXPECT_EQ(part_bin(132, 132), kPartBins - 1);
  EXPECT_EQ(part_bin(133, 132), kPartBins - 1);
  EXPECT_EQ(part_bin(1, 0), 0u) << "a device without SMs";
}

TEST_F(UsageTest, ARowIsReadForItsSessionOnly) {
  Result<UsageTable> table = UsageTable::open(file_.get());
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->read(kRow, kSession + 1).is_known, 0u);
  EXPECT_EQ(table->read(kRow + 1, kSession).is_known, 0u);
  EXPECT_EQ(table->read(kMaxWindows, kSession).is_known, 0u);
  row_->session = 0;
  EXPECT_EQ(table->read(kRow, 0).is_known, 0u) << "a free row is not read";
  EXPECT_EQ(UsageTable().read(kRow, kSession).is_known, 0u) << "no table is open";
}

TEST_F(UsageTest, AnInvalidTableIsRefusedWithTheReason) {
  EXPECT_EQ(refusal(file_.get()), "");
  header_->rows = kMaxWindows + 1;
  EXPECT_NE(refusal(file_.get()).find("rows of "), std::string::npos);
  header_->rows = kMaxWindows;
  header_->row_bytes = 8;
  EXPECT_NE(refusal(file_.get()).find("rows of 8 bytes"), std::string::npos);
  header_->version = kUsageVersion + 1;
  EXPECT_NE(refusal(file_.get())
                .find("is of version " + std::to_string(kUsageVersion + 1) +
                      ", and this program reads " + std::to_string(kUsageVersion)),
            std::string::npos);
  header_->magic = 0x1234;
  EXPECT_NE(refusal(file_.get()).find("it begins with 0x00001234"), std::string::npos);

  Result<UniqueFd> small = create_shared_file("small", kUsageBytes - 1);
  ASSERT_TRUE(small.ok());
  EXPECT_NE(refusal(small->get()).find("is cut off: "), std::string::npos);
  const UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), static_cast<off_t>(kUsageBytes)), 0);
  EXPECT_NE(refusal(loose.get()).find("no sealed file"), std::string::npos)
      << "the writer could truncate an unsealed file while it is read";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd in(ends[0]);
  const UniqueFd out(ends[1]);
  EXPECT_NE(refusal(in.get()).find("no sealed file"), std::string::npos);
  EXPECT_NE(refusal(-1), "");
}

TEST_F(UsageTest, TheReaderCanNotWrite) {
  EXPECT_FALSE(map_shared(file_.get(), 0, kUsageBytes, MapAccess::kReadWrite).ok());
  EXPECT_NE(pwrite(file_.get(), "x", 1, 0), 1);
  EXPECT_EQ(row_->session, kSession) << "only the worker, which made the file, can write";
  row_->session = 3;
  EXPECT_EQ(UsageTable::open(file_.get())->read(kRow, 3).is_known, 1u);
}

}  // namespace
}  // namespace openmps::wire
