// SPDX-License-Identifier: Apache-2.0
// What NVML's calls are told of a share, from the daemon's answers.
#include "share_nvml/share.h"

#include <gtest/gtest.h>

namespace openmps::share_nvml {
namespace {

constexpr const char* kUuid = "GPU-1";
constexpr uint32_t kHere = 4026531836;  // the inode of our PID namespace
constexpr uint32_t kElsewhere = 4026532000;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSecond = 1'000'000'000;

// A device with 100 SMs, of which the share has 25.
observe::Device some_device(uint32_t ordinal, const char* uuid) {
  observe::Device device;
  device.ordinal = ordinal;
  device.uuid = uuid;
  device.name = "NVIDIA H200";
  device.sms = 100;
  device.memory_bytes = 1000 * kMiB;
  device.pci = "0001:0a:00.0";
  device.compute_capability = "10.3";
  device.cuda_version = "12.8";
  device.share = {{25, 100 * kMiB}};
  return device;
}

// One that has had so much of the device 2.
observe::Client some_client(uint64_t id, uint32_t pid_namespace, uint64_t memory_bytes,
                            uint64_t age_ns = 0, uint64_t sm_ns = 0) {
  observe::Client client;
  client.server = 17;
  client.id = id;
  client.pid = 1000 + id;
  client.claimed_pid = id;
  client.pid_namespace = pid_namespace;
  client.device = "GPU-0";
  client.use.emplace();
  client.use->gpu_ns = sm_ns;
  client.use->age_ns = age_ns;
  client.use->devices.push_back({.ordinal = 2, .sm_ns = sm_ns, .memory_bytes = memory_bytes});
  return client;
}

observe::Snapshot snapshot_of(std::vector<observe::Client> clients) {
  return {.at_ns = 1,
          .devices = {some_device(0, "GPU-0"), some_device(2, kUuid)},
          .clients = std::move(clients)};
}

TEST(ShareNvml, DevicesAreTheDaemons) {
  const observe::Snapshot snapshot = snapshot_of({});
  const std::vector<nvml::Device> devices = devices_of(snapshot);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].name, "NVIDIA H200");
  EXPECT_EQ(devices[1].uuid, kUuid);
  EXPECT_EQ(devices[1].pci, (cuda::PciAddress{1, 10, 0}));
  EXPECT_EQ(devices[1].compute_capability, 103u);
  EXPECT_EQ(cuda_version_of(snapshot), 12080u);
}

TEST(ShareNvml, WhatTheDaemonDoesNotKnowIsNotKnown) {
  observe::Snapshot snapshot = snapshot_of({});
  for (const char* text : {"", "9", "9.x", ".", "-1.0", "99999999999.0"}) {
    snapshot.devices[0].compute_capability = text;
    snapshot.devices[0].cuda_version = text;
    EXPECT_EQ(devices_of(snapshot)[0].compute_capability, 0u) << text;
    EXPECT_EQ(cuda_version_of(snapshot), 0u) << text;
  }
  EXPECT_EQ(cuda_version_of({}), 0u);
}

TEST(ShareNvml, MemoryIsTheShares) {
  const observe::Snapshot snapshot =
      snapshot_of({some_client(1, kHere, 30 * kMiB), some_client(2, kElsewhere, 20 * kMiB)});
  const nvml::Memory memory = memory_of(snapshot, kUuid).value();
  EXPECT_EQ(memory.total_bytes, 100 * kMiB);
  EXPECT_EQ(memory.used_bytes, 50 * kMiB) << "of all its clients, wherever they are";
  EXPECT_EQ(memory_of(snapshot, "GPU-0")->used_bytes, 0u);
  EXPECT_EQ(memory_of(snapshot, "GPU-7").status().code(), CUDA_ERROR_INVALID_DEVICE);
}

TEST(ShareNvml, MemoryInUseIsNotMoreThanThereIs) {
  const observe::Snapshot snapshot =
      snapshot_of({some_client(1, kHere, 80 * kMiB), some_client(2, kHere, 80 * kMiB)});
  EXPECT_EQ(memory_of(snapshot, kUuid)->used_bytes, 100 * kMiB);
}

TEST(ShareNvml, WithoutAShareTheDeviceIsWhole) {
  observe::Snapshot snapshot = snapshot_of({});
  snapshot.devices[1].share.reset();
  EXPECT_EQ(memory_of(snapshot, kUuid)->total_bytes, 1000 * kMiB);
}

TEST(ShareNvml, ProcessesAreThoseThatHaveAPidHere) {
  observe::Snapshot snapshot =
      snapshot_of({some_client(1, kHere, 30 * kMiB), some_client(2, kElsewhere, 20 * kMiB),
                   some_client(3, kHere, kMiB), some_client(3, kHere, kMiB)});
  snapshot.clients.push_back(some_client(4, kHere, kMiB));
  snapshot.clients.back().ending = true;
  const std::vector<nvml::Process> processes = processes_of(snapshot, kUuid, kHere).value();
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].pid, 1);
  EXPECT_EQ(processes[0].memory_bytes, 30 * kMiB);
  EXPECT_EQ(processes[1].pid, 3) << "two sessions of one program";
  EXPECT_EQ(processes[1].memory_bytes, 2 * kMiB);
  // Without /proc nobody knows.
  for (observe::Client& client : snapshot.clients) client.pid_namespace = 0;
  EXPECT_TRUE(processes_of(snapshot, kUuid, 0)->empty());
}

TEST(ShareNvml, AProcessIsOnTheDeviceOfItsContext) {
  const observe::Snapshot snapshot = snapshot_of({some_client(1, kHere, 0)});
  EXPECT_EQ(processes_of(snapshot, "GPU-0", kHere)->size(), 1u);
  observe::Snapshot unused = snapshot;
  unused.clients[0].use->devices.clear();
  EXPECT_TRUE(processes_of(unused, kUuid, kHere)->empty());
}

TEST(ShareNvml, UtilizationIsOfTheSharesSms) {
  // In a second one had 5 SMs and the other 10, of 25.
  const observe::Snapshot before = snapshot_of(
      {some_client(1, kHere, 0, kSecond, 7), some_client(2, kElsewhere, 0, kSecond, 9)});
  const observe::Snapshot now =
      snapshot_of({some_client(1, kHere, 0, 2 * kSecond, 7 + 5 * kSecond),
                   some_client(2, kElsewhere, 0, 2 * kSecond, 9 + 10 * kSecond)});
  const nvml::Utilization utilization = utilization_between(before, now, kUuid, kHere).value();
  EXPECT_EQ(utilization.percent, 60u);
  ASSERT_EQ(utilization.processes.size(), 1u);
  EXPECT_EQ(utilization.processes[0].pid, 1);
  EXPECT_EQ(utilization.processes[0].percent, 20u);
  EXPECT_EQ(utilization_between(before, now, "GPU-0", kHere)->percent, 0u);
}

TEST(ShareNvml, UtilizationOfWhoHasComeOrBorrows) {
  const observe::Snapshot now = snapshot_of({some_client(1, kHere, 0, kSecond / 2, 5 * kSecond)});
  const observe::Snapshot nobody = snapshot_of({});
  EXPECT_EQ(utilization_between(nobody, now, kUuid, kHere)->percent, 40u) << "since it has come";
  const observe::Snapshot borrower = snapshot_of({some_client(1, kHere, 0, kSecond, 80 * kSecond)});
  EXPECT_EQ(utilization_between(nobody, borrower, kUuid, kHere)->percent, 100u);
  EXPECT_EQ(utilization_between(now, nobody, kUuid, kHere)->percent, 0u);
}

TEST(ShareNvml, UtilizationThatIsNotMeasuredIsNotSupported) {
  observe::Snapshot now = snapshot_of({some_client(1, kHere, 0, kSecond, kSecond)});
  now.clients[0].use->gpu_ns.reset();
  EXPECT_EQ(utilization_between(now, now, kUuid, kHere).status().code(), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(ShareNvmlReadings, TheLatestIsComparedWithOneOfASecondAgo) {
  Readings readings;
  EXPECT_EQ(readings.latest(), nullptr);
  const auto add = [&readings](uint64_t at_ns) {
    readings.add(std::make_shared<observe::Snapshot>(observe::Snapshot{at_ns, {}, {}}));
  };
  add(kSecond);
  EXPECT_EQ(readings.latest()->at_ns, kSecond);
  EXPECT_EQ(readings.before(), nullptr);
  for (uint64_t tenths = 12; tenths <= 40; tenths += 2) {
    add(tenths * kSecond / 10);
    EXPECT_EQ(readings.before()->at_ns, (tenths <= 20 ? 10 : tenths - 10) * kSecond / 10);
  }
  // By one who asks each 5 seconds, with the one before; and by one who asks after an hour, with
  // none.
  add(9 * kSecond);
  EXPECT_EQ(readings.before()->at_ns, 4 * kSecond);
  add(3600 * kSecond);
  EXPECT_EQ(readings.latest()->at_ns, 3600 * kSecond);
  EXPECT_EQ(readings.before(), nullptr);
}

}  // namespace
}  // namespace openmps::share_nvml
