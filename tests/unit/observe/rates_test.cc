// SPDX-License-Identifier: Apache-2.0
// The rates between two snapshots, and order and selection of clients.
#include "observe/rates.h"

#include <gtest/gtest.h>

#include "observe/figures.h"
#include "two_snapshots.h"

namespace openmps::observe {
namespace {

std::vector<uint64_t> pids_of(const View& view) {
  std::vector<uint64_t> pids;
  for (const Rates& rates : view.clients) pids.push_back(rates.client.pid);
  return pids;
}
using Pids = std::vector<uint64_t>;
using RatesTest = TwoSnapshots;

TEST_F(RatesTest, CoverTheTimeBetweenTheSnapshots) {
  const View seen = view();
  ASSERT_EQ(seen.clients.size(), 2u);
  const Rates& busy = seen.clients[0];
  EXPECT_DOUBLE_EQ(busy.seconds, 2);
  EXPECT_DOUBLE_EQ(busy.sm_time_share, 0.2);
  EXPECT_DOUBLE_EQ(busy.sms, 20);
  EXPECT_DOUBLE_EQ(busy.kernel_share, 0.5);
  EXPECT_DOUBLE_EQ(busy.launches, 1500);
  EXPECT_DOUBLE_EQ(busy.copies, 5);
  EXPECT_DOUBLE_EQ(busy.to_device, 4e6);
  EXPECT_EQ(busy.state, State::kActive);
  EXPECT_EQ(busy.held.why, "") << "work was held before the first snapshot only";
  EXPECT_EQ(seen.clients[1].state, State::kIdle);
  EXPECT_EQ(seen.clients[1].sm_time_share, 0);
}

TEST_F(RatesTest, DevicesHaveTheSumOfTheirClients) {
  run(&idle_, 2 * kSecond, 10);
  const View seen = view();
  ASSERT_EQ(seen.devices.size(), 1u);
  const DeviceRates& device = seen.devices[0];
  EXPECT_DOUBLE_EQ(device.sm_time_share, 0.3);
  EXPECT_DOUBLE_EQ(device.kernel_share, 1.5) << "the kernels of the two clients have overlapped";
  EXPECT_EQ(device.memory_bytes, (1u << 30) + (1u << 20));
  EXPECT_EQ(device.clients, 2u);
}

TEST_F(RatesTest, SmTimeOfClientsIsScaledToWhatTheDeviceHas) {
  run(&idle_, 2 * kSecond, 100);
  const View seen = view();
  EXPECT_DOUBLE_EQ(seen.devices[0].sm_time_share, 1) << "at most all SMs are busy";
  EXPECT_DOUBLE_EQ(seen.clients[0].sm_time_share + seen.clients[1].sm_time_share, 1);
  EXPECT_DOUBLE_EQ(seen.clients[0].sm_time_share * 5, seen.clients[1].sm_time_share);
  EXPECT_DOUBLE_EQ(seen.clients[1].kernel_share, 1) << "the share of kernels is not scaled";
}

TEST_F(RatesTest, ANewClientsRatesCoverItsAge) {
  before_.clients.clear();
  busy_.use->age_ns = kSecond;
  const View seen = view();
  EXPECT_DOUBLE_EQ(seen.clients[0].seconds, 1);
  EXPECT_DOUBLE_EQ(seen.clients[0].launches, 3500);
  EXPECT_DOUBLE_EQ(seen.clients[0].kernel_share, 1);
  EXPECT_DOUBLE_EQ(seen.devices[0].kernel_share, 0.5)
      << "the device's rates cover the time between the snapshots";
}

TEST_F(RatesTest, AreNeverNegative) {
  busy_.use->launches = 0;
  busy_.use->age_ns = 1;
  busy_.use->gpu_ns = 0;
  const View seen = view();
  EXPECT_EQ(seen.clients[0].launches, 0);
  EXPECT_EQ(seen.clients[0].kernel_share, 0);
}

TEST_F(RatesTest, StatesOfClients) {
  idle_.use->held[1].held_now = 1;
  EXPECT_EQ(view().clients[1].state, State::kWaiting);
  EXPECT_EQ(held_text(view().clients[1].held), "value now, 0 ns");
  idle_.use->held[0].held_now = 1;
  idle_.use->held[0].ns += kSecond;
  EXPECT_EQ(view().clients[1].state, State::kActive) << "work beyond the stream budget is held";
  idle_.use->held[0].held_now = 0;
  run(&idle_, kSecond, 1);
  EXPECT_EQ(view().clients[1].state, State::kActive) << "another of its streams has run work";
  idle_.residence = "held";
  EXPECT_EQ(view().clients[1].state, State::kSuspended);
  idle_.ending = true;
  EXPECT_EQ(view().clients[1].state, State::kEnding);
}

TEST_F(RatesTest, MemoryOnTheHostIsNotOnTheDevice) {
  idle_.residence = "host";
  idle_.use->devices[0].host_bytes = 768 << 20;
  const View seen = view();
  EXPECT_EQ(seen.clients[1].state, State::kOnHost);
  EXPECT_EQ(seen.clients[1].memory_bytes, 256u << 20);
  EXPECT_EQ(seen.clients[1].host_bytes, 768u << 20);
  EXPECT_EQ(seen.devices[0].memory_bytes, (256u << 20) + (1u << 20));
  EXPECT_EQ(pids_of(select(seen, {Column::kOnHost, false}, "")), (Pids{10, 20}));
  busy_.residence = "host";
  EXPECT_EQ(view().clients[0].state, State::kActive) << "it has come back since";
}

TEST_F(RatesTest, TheReasonThatHeldWorkLongestIsShown) {
  busy_.use->held[0].ns += 1'000'000;
  busy_.use->held[1].ns += 2'000'000;
  EXPECT_EQ(held_text(view().clients[0].held), "value 2.0 ms");
  busy_.use->held[0].held_now = 2;
  EXPECT_EQ(held_text(view().clients[0].held), "window now, 1.0 ms");
}

TEST_F(RatesTest, EveryColumnSorts) {
  idle_.active_thread_percentage = 50;
  idle_.quality = "latency";
  idle_.group = "a";
  for (size_t i = 0; i < kColumns; ++i) {
    const auto column = static_cast<Column>(i);
    EXPECT_EQ(column_of(heading_of(column)), column);
    const bool ascending = ascends_by_nature(column);
    const Pids usual = pids_of(select(view(), {column, ascending}, ""));
    const Pids other = pids_of(select(view(), {column, !ascending}, ""));
    // No client had held work or memory on the host, so both are equal in this column.
    const bool equal = column == Column::kHeld || column == Column::kOnHost;
    EXPECT_EQ(other, (equal ? usual : Pids{usual[1], usual[0]})) << heading_of(column);
  }
  EXPECT_EQ(pids_of(select(view(), {}, "")), (Pids{20, 10})) << "SM time is the default order";
  EXPECT_EQ(pids_of(select(view(), {Column::kMemory, false}, "")), (Pids{10, 20}));
  EXPECT_EQ(pids_of(select(view(), {Column::kPid, true}, "")), (Pids{10, 20}));
  EXPECT_EQ(pids_of(select(view(), {Column::kCommand, true}, "")), (Pids{10, 20}));
  EXPECT_EQ(pids_of(select(view(), {Column::kQuality, true}, "")), (Pids{10, 20}));
  EXPECT_FALSE(column_of("SM"));
}

TEST_F(RatesTest, AFilterDoesNotChangeTheDevices) {
  EXPECT_EQ(pids_of(select(view(), {}, "train")), (Pids{20}));
  EXPECT_EQ(pids_of(select(view(), {}, "10")), (Pids{10}));
  idle_.group = "pods:/a";
  EXPECT_EQ(pids_of(select(view(), {}, "pods")), (Pids{10}));
  EXPECT_EQ(pids_of(select(view(), {}, "1")), Pids{}) << "a part of a PID does not match";
  const View seen = select(view(), {}, "nobody");
  EXPECT_TRUE(seen.clients.empty());
  EXPECT_EQ(seen.devices[0].clients, 2u);
}

TEST(Figures, AreShort) {
  EXPECT_EQ(short_count(812), "812");
  EXPECT_EQ(group_text(""), "-");
  EXPECT_EQ(group_text("train"), "train");
  EXPECT_EQ(group_text("pods:/a/b.slice"), "pods:b.slice");
  EXPECT_EQ(short_count(1500), "1.5k");
  EXPECT_EQ(memory_text(512), "512B");
  EXPECT_EQ(memory_text(20ull << 30), "20.0GiB");
  EXPECT_EQ(memory_text(5000ull << 40), "5000.0TiB");
  EXPECT_EQ(time_text(350), "350 ns");
  EXPECT_EQ(time_text(1500), "1.5 us");
  EXPECT_EQ(time_text(7200 * kSecond), "2.00 h");
  EXPECT_EQ(fit("abc", 5), "abc  ");
  EXPECT_EQ(fit("abc", 5, true), "  abc");
  EXPECT_EQ(fit("\xc3\xa4\xc3\xb6\xc3\xbc", 2), "\xc3\xa4\xc3\xb6") << "cut by characters";
  EXPECT_EQ(fit("", 0), "");
}

}  // namespace
}  // namespace openmps::observe
