// SPDX-License-Identifier: Apache-2.0
// The tables, byte by byte as NVIDIA's daemon of driver 580 prints them, and the check of device
// lists from servers, which are not trusted.
#include "control/format.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "wire/command.h"

namespace openmps::control {
namespace {

const Device kH200{"0000:00:06.0", "GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155", "NVIDIA H200"};
const ClientLine kPython{1338, 1, 1272, 4026531836, kH200.uuid, "python3 train.py"};

TEST(Format, Ps) {
  EXPECT_EQ(format_ps({}), "");
  EXPECT_EQ(
      format_ps({kPython}),
      "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        "
      "\n"
      "1338      1         1272           GPU-008cbaa3-6cdc-9444    4026531836     python3        "
      "\n");
}

TEST(Format, WhereTheMemoryOfClientsIs) {
  ClientLine away = kPython;
  away.residence = wire::Residence::kHost;
  away.usage.is_known = 1;
  away.usage.memory[1] = away.usage.memory[2] = 4 * wire::kMiB;
  away.usage.on_host[1] = 3 * wire::kMiB;
  away.usage.on_host[2] = 4 * wire::kMiB;
  ClientLine held = kPython;
  held.residence = wire::Residence::kHeld;
  held.ending = true;
  EXPECT_NE(format_ps({away}).find(" python3 (on the host)\n"), std::string::npos);
  EXPECT_NE(format_ps({held}).find(" python3 (ending) (suspended)\n"), std::string::npos);
  EXPECT_EQ(format_client_list({away, kPython}), "1338\n1338\n") << "PIDs, for scripts";
  const auto json = nlohmann::json::parse(format_ps_json({kPython, away, held}));
  EXPECT_EQ(json[0].at("residence"), "device");
  EXPECT_EQ(json[0].at("host_bytes"), 0);
  EXPECT_EQ(json[1].at("residence"), "host");
  EXPECT_EQ(json[1].at("host_bytes"), 7 * wire::kMiB);
  EXPECT_EQ(json[1].at("usage").at("devices")[0].at("host_bytes"), 3 * wire::kMiB);
  EXPECT_EQ(json[1].at("usage").at("devices")[0].at("memory_bytes"), 4 * wire::kMiB);
  EXPECT_EQ(json[2].at("residence"), "held");
  held.residence = static_cast<wire::Residence>(77);  // a broken server's
  EXPECT_NE(format_ps_json({held}).find("\"residence\": \"\""), std::string::npos);
}

TEST(Format, WhatHasComeOfSuspending) {
  EXPECT_EQ(format_suspended("4711", 1536 * wire::kMiB, 0),
            "Client 4711: 1536 MiB are on the host\n");
  EXPECT_EQ(format_suspended("id:3", 1536 * wire::kMiB + 1, 5),
            "Client id:3: 1537 MiB are on the host; 1 MiB stay, which other programs have, too\n");
  EXPECT_EQ(format_suspended("4711", 0, 0), "Client 4711: no memory had to go to the host\n");
}

TEST(Format, EndingClientsAreMarked) {
  ClientLine ending = kPython;
  ending.ending = true;
  EXPECT_EQ(format_client_list({kPython, ending}), "1338\n1338 (ending)\n");
  EXPECT_NE(format_ps({ending}).find("4026531836     python3 (ending)\n"), std::string::npos);
  EXPECT_EQ(format_device_clients({kH200}, {ending}),
            "[0] 00:00.0, NVIDIA H200\n1338.1 (ending)\n");
  EXPECT_NE(format_ps_json({ending}).find("\"ending\": true"), std::string::npos);
  ClientLine silent = kPython;
  silent.silent = true;
  EXPECT_NE(format_ps({silent}).find(" python3 (worker does not answer)\n"), std::string::npos);
  EXPECT_NE(format_ps_json({silent}).find("\"worker_silent\": true"), std::string::npos);
}

TEST(Format, ClientsWithoutAPidAreNamedByTheirIds) {
  ClientLine outside = kPython;
  outside.pid = 0;
  outside.claimed_pid = 4711;
  EXPECT_EQ(format_client_list({kPython, outside}), "1338\nid:1\n");
  const std::string table = format_ps({kPython, outside});
  EXPECT_NE(table.find("\nid:1      1         1272           GPU-008cbaa3-6cdc-9444    "
                       "4026531836     python3 (PID 4711 by its own word)\n"),
            std::string::npos)
      << table;
  EXPECT_TRUE(table.ends_with("and rules by cgroup do not fit them\n")) << table;
  Inspected inspected;
  inspected.report.id = 3;
  EXPECT_EQ(format_inspected(inspected).find("Session 3 of a process that has no PID here\n"), 0u);
}

TEST(Format, Inspected) {
  Inspected inspected;
  inspected.report.pid = 4711;
  inspected.report.id = 3;
  inspected.report.executed = 12;
  inspected.report.ring_bytes = 96;
  inspected.report.opcode = static_cast<uint32_t>(wire::Opcode::kModuleLoad);
  inspected.report.wait = wire::ExecutorWait::kQuietMoment;
  inspected.report.wait_ns = 1'500'000'000;
  inspected.report.waiters = 1;
  inspected.waits = {{wire::WaitKind::kQueued, 2, 0, 0, 7, 0},
                     {wire::WaitKind::kReply, 5},
                     {wire::WaitKind::kFence, 9, 2, 0, 3, 4},
                     {wire::WaitKind::kHostFunction, 8}};
  inspected.report.more_waits = 6;
  EXPECT_EQ(
      format_inspected(inspected),
      "Session 3 of process 4711\n"
      "  executor: 12 commands done, 96 bytes queued, executes ModuleLoad\n"
      "  has waited for 1.500 s: its command needs a quiet moment, in which no session's work "
      "runs\n"
      "  threads of the program that sleep: 1\n"
      "  queued: 7 Launch\n"
      "  a thread waits for the reply in slot 5\n"
      "  stream 2 has not come to 4, it is at 3 (fence 9)\n"
      "  a stream waits for host function 8 of the program\n"
      "  and 6 more\n");
  inspected.host_bytes = 3 * wire::kMiB;
  inspected.residence = wire::Residence::kHeld;
  EXPECT_NE(format_inspected(inspected).find(
                "\n  memory: 3 MiB are on the host; it is suspended, and its work waits for "
                "resume\n"),
            std::string::npos);
  const std::string json = format_inspected_json(inspected);
  for (const char* part :
       {"\"residence\": \"held\"", "\"host_bytes\": 3145728", "\"executing\": \"ModuleLoad\"",
        "\"executor_waits_for\": \"quiet moment\"", "\"command\": \"Launch\"", "\"promised\": 4",
        "\"kind\": \"host function\""}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " in " << json;
  }
}

TEST(Format, InspectedHindrancesValuesAndReturns) {
  const auto hindrance = [](uint32_t session, uint64_t pid, uint32_t stream, wire::Hindrance why) {
    return wire::WaitRow{wire::WaitKind::kHindrance, session, stream,
                         static_cast<uint32_t>(why), 0,       pid};
  };
  const auto value = [](uint32_t condition, bool stands_at_it) {
    return wire::WaitRow{wire::WaitKind::kValue,
                         stands_at_it ? 1u : 0u,
                         2,
                         8 + condition * wire::kValueCondition,
                         0,
                         17,
                         0x1000,
                         2'000'000'000};
  };
  const auto given_up = [](wire::ReturnKind kind, wire::ReturnWait wait, uint32_t stream) {
    return wire::WaitRow{wire::WaitKind::kReturn,
                         static_cast<uint32_t>(kind),
                         stream,
                         static_cast<uint32_t>(wait),
                         4096,
                         0,
                         0x2000,
                         3'000'000'000};
  };
  using wire::Hindrance;
  using wire::ReturnKind;
  using wire::ReturnWait;
  Inspected inspected;
  inspected.report.pid = 4711;
  inspected.report.id = 3;
  inspected.report.sleeping = 1;
  inspected.report.wait = wire::ExecutorWait::kPrintTurn;
  inspected.report.value_waits = 4;
  inspected.report.value_waits_age_ns = 250'000'000;
  inspected.report.returns = 6;
  inspected.waits = {hindrance(1, 4709, 7, Hindrance::kAwaitsValue),
                     hindrance(3, 4711, 5, Hindrance::kRuns),
                     hindrance(2, 0, 0, Hindrance::kSubmits),
                     hindrance(4, 4712, 6, Hindrance::kOutlasts),
                     hindrance(5, 4713, 8, Hindrance::kHostFunction),
                     hindrance(0, 0, 0, Hindrance::kQuietMoment),
                     hindrance(6, 4714, 0, Hindrance::kPrintTurn),
                     value(CU_STREAM_WAIT_VALUE_GEQ, true),
                     value(CU_STREAM_WAIT_VALUE_EQ, false),
                     value(CU_STREAM_WAIT_VALUE_AND, false),
                     value(CU_STREAM_WAIT_VALUE_NOR, false),
                     given_up(ReturnKind::kDeviceMemory, ReturnWait::kStreams, 2),
                     given_up(ReturnKind::kHostMemory, ReturnWait::kStreams, 0),
                     given_up(ReturnKind::kArray, ReturnWait::kQuietMoment, 0),
                     given_up(ReturnKind::kGreenContext, ReturnWait::kQuietMoment, 0),
                     given_up(ReturnKind::kImage, ReturnWait::kStreams, 2),
                     given_up(ReturnKind::kCode, ReturnWait::kStreams, 2)};
  const std::string behind =
      ", given up 3.000 s ago: it waits for earlier work, first in stream 2\n";
  const std::string quiet =
      ", given up 3.000 s ago: it waits for a quiet moment, in which no session's work runs\n";
  const std::string told = ", as it was told 2.000 s ago\n";
  EXPECT_EQ(format_inspected(inspected),
            "Session 3 of process 4711\n"
            "  executor: 0 commands done, 0 bytes queued, sleeps\n"
            "  has waited for 0.000 s: its kernel may print, and has to wait for its turn to\n"
            "    in its way: session 1 of process 4709 has work in stream 7, which waits for a "
            "value\n"
            "    in its way: the session itself has work in stream 5\n"
            "    in its way: session 2 is submitting work\n"
            "    in its way: session 4 of process 4712 has work in stream 6 that did not end while "
            "new work was held back\n"
            "    in its way: session 5 of process 4713 has work in stream 8, and its program a "
            "host function to run\n"
            "    in its way: the worker looks for a quiet moment, or has it\n"
            "    in its way: session 6 of process 4714 has its turn to print, or is to have it "
            "next\n"
            "  values that streams wait for: 4, as of 0.250 s ago\n"
            "  given up and not yet given back: 6\n"
            "  stream 2 waits for 8 bytes at 0x1000 to be at least 17" +
                told + "  stream 2 has then to wait for 8 bytes at 0x1000 to be 17" + told +
                "  stream 2 has then to wait for 8 bytes at 0x1000 to be a value with a bit of "
                "0x11" +
                told +
                "  stream 2 has then to wait for 8 bytes at 0x1000 to be a value that lacks a bit "
                "that 0x11 lacks, too" +
                told + "  4096 bytes of device memory at 0x2000" + behind +
                "  4096 bytes of host memory at 0x2000, given up 3.000 s ago: it waits for earlier "
                "work of the session\n"
                "  an array of 4096 bytes" +
                quiet + "  a green context" + quiet + "  a texture or surface object" + behind +
                "  a module's code" + behind);
  const std::string json = format_inspected_json(inspected);
  for (const char* part :
       {"\"executor_waits_for\": \"print turn\"", "\"kind\": \"hindrance\"",
        "\"session\": 1,\n      \"pid\": 4709,\n      \"stream\": 7,\n      \"why\": \"value\"",
        "\"value_waits\": 4", "\"returns\": 6", "\"stands_at_it\": true,\n      \"address\": 4096",
        "\"bytes\": 8,\n      \"condition\": \"geq\",\n      \"value\": 17",
        "\"what\": \"device memory\"", "\"waits_for\": \"streams\",\n      \"stream\": 2",
        "\"age_ns\": 3000000000"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " in " << json;
  }
}

TEST(Format, InspectedWithUnknownNumbersFromAServer) {
  Inspected inspected;
  inspected.report.opcode = 9999;
  inspected.report.wait = static_cast<wire::ExecutorWait>(77);
  inspected.waits = {{static_cast<wire::WaitKind>(8), 1}};
  for (const auto kind :
       {wire::WaitKind::kHindrance, wire::WaitKind::kValue, wire::WaitKind::kReturn}) {
    inspected.waits.push_back({kind, 77, 77, ~0u, ~0ull, ~0ull, ~0ull, ~0ull});
  }
  EXPECT_NE(format_inspected(inspected).find("executes \n"), std::string::npos);
  EXPECT_NE(format_inspected_json(inspected).find("\"executor_waits_for\": \"\""),
            std::string::npos);
}

TEST(Format, DeviceQuery) {
  EXPECT_EQ(format_devices("Default", {kH200}, false),
            "Default\n"
            "Device Ordinal  PCI IDs        UUID                                      Name       "
            "                       Attributes\n"
            "0               0000:00.06.00  GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155  NVIDIA H200"
            "                       N/A\n");
  EXPECT_EQ(format_devices("Default", {kH200}, true),
            "Default\n"
            "Device Ordinal,PCI IDs,UUID,Name,Attributes\n"
            "0,0000:00.06.00,GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155,NVIDIA H200,N/A\n");
}

TEST(Format, DeviceClients) {
  ClientLine elsewhere = kPython;
  elsewhere.device_uuid = "GPU-of-another-server";
  EXPECT_EQ(format_device_clients({kH200}, {kPython, elsewhere}),
            "[0] 00:00.0, NVIDIA H200\n1338.1\n");
}

TEST(Format, JsonKeepsArgumentsAndReplacesInvalidUtf8) {
  ClientLine odd = kPython;
  odd.command = "a \"b\" \xff";
  odd.domain = "common";
  EXPECT_EQ(format_ps_json({odd}),
            "[\n  {\n    \"pid\": 1338,\n    \"id\": 1,\n    \"server\": 1272,\n    \"device\": "
            "\"GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155\",\n    \"namespace\": 4026531836,\n    "
            "\"claimed_pid\": 0,\n    \"command\": \"a \\\"b\\\" \xef\xbf\xbd\",\n    \"ending\": "
            "false,\n    \"worker_silent\": false,\n    \"moves\": 0,\n    \"stays\": null,\n    "
            "\"domain\": "
            "\"common\",\n    \"active_thread_percentage\": 100.0,\n    \"quality\": \"normal\",\n "
            "   \"group\": "
            "null,\n    \"sm_partition\": null,\n    \"residence\": \"device\",\n    "
            "\"host_bytes\": 0,\n    "
            "\"usage\": null\n  }\n]\n");
  EXPECT_EQ(format_ps_json({}), "[]\n");
  EXPECT_EQ(format_server_list_json({{7, 1000, "ACTIVE", "main"}}),
            "[\n  {\n    \"pid\": 7,\n    \"uid\": 1000,\n    \"name\": \"main\",\n    "
            "\"state\": \"ACTIVE\"\n  }\n]\n");
}

TEST(Format, Groups) {
  EXPECT_EQ(format_groups({}), "");
  EXPECT_EQ(format_groups_json({}), "[]\n");
  GroupLine plain;
  plain.name = "train";
  plain.server = 7;
  plain.id = 1;
  GroupLine limited;
  limited.name = "pods:/a/b";
  limited.server = 1272;
  limited.id = 2;
  limited.members = 12;
  limited.limits = {.active_thread_percentage = 12.5, .client_priority = 1};
  limited.limits.sm_count[1] = 32;
  limited.limits.memory_limit[0] = 8 * wire::kGiB;
  limited.memory[0] = 512 * wire::kMiB + 5;
  limited.memory[2] = 3 * wire::kMiB;
  limited.limits.guaranteed_memory[3] = wire::kGiB;
  limited.limits.on_pressure = wire::OnPressure::kTerminate;
  EXPECT_EQ(
      format_groups({plain, limited}),
      "SERVER  MEMBERS  SMS           PRIORITY  MEMORY                                         "
      "GROUP\n"
      "7       0        all           -         -                                              "
      "train\n"
      "1272    12       12.5%, 1: 32  1         0: 512.0M of 8G, 2: 3M, 3: 0G (1G guaranteed)  "
      "pods:/a/b\n");
  const auto json = nlohmann::json::parse(format_groups_json({plain, limited}));
  EXPECT_EQ(json[0].at("client_priority"), nullptr);
  EXPECT_TRUE(json[0].at("devices").empty());
  EXPECT_EQ(json[1].at("name"), "pods:/a/b");
  EXPECT_EQ(json[1].at("members"), 12);
  EXPECT_EQ(json[0].at("on_pressure"), "none");
  EXPECT_EQ(json[1].at("on_pressure"), "terminate");
  EXPECT_EQ(json[1].at("devices")[3].at("guaranteed_memory_bytes"), wire::kGiB);
  EXPECT_EQ(json[1].at("devices").size(), 4u);
  EXPECT_EQ(json[1].at("devices")[1].at("sm_count"), 32);
  EXPECT_EQ(json[1].at("devices")[2].at("memory_bytes"), 3 * wire::kMiB);
}

TEST(Format, UsageInJson) {
  ClientLine busy = kPython;
  busy.usage.is_known = busy.usage.is_timed = 1;
  busy.usage.counts[static_cast<size_t>(wire::UsageCount::kHostToDevice)] = 123;
  busy.usage.devices[3][static_cast<size_t>(wire::DeviceUse::kMostNs)] = 456;
  busy.usage.devices[3][static_cast<size_t>(wire::DeviceUse::kAloneNs)] = 45;
  busy.usage.memory[3] = 4096;
  busy.usage.lengths[2] = 8;
  busy.quality = wire::Quality::kLatency;
  busy.usage.held_times[static_cast<size_t>(wire::HeldFor::kMemory)] = 7;
  std::string json = format_ps_json({busy});
  EXPECT_NE(json.find("\"host_to_device\": 123"), std::string::npos) << json;
  EXPECT_NE(json.find("\"gpu_ns_most\": 456"), std::string::npos);
  EXPECT_NE(json.find("\"quality\": \"latency\""), std::string::npos);
  const nlohmann::json usage = nlohmann::json::parse(json)[0]["usage"];
  EXPECT_EQ(usage["lengths"][2], 8);
  EXPECT_EQ(nlohmann::json::parse(json)[0]["sm_partition"], nullptr);
  busy.partition = "GPU-008cbaa3/1";
  EXPECT_EQ(nlohmann::json::parse(format_ps_json({busy}))[0]["sm_partition"], "GPU-008cbaa3/1");
  EXPECT_EQ(
      usage["devices"].dump(),
      R"([{"alone_ns":45,"compared_ns":0,"device":3,"gpu_ns":0,"host_bytes":0,"memory_bytes":4096,)"
      R"("sm_ns":0}])")
      << "only devices that the client has used are listed";
  EXPECT_NE(json.find("\"memory\": {\n          \"times\": 7"), std::string::npos);
  busy.usage.is_timed = 0;
  json = format_ps_json({busy});
  EXPECT_NE(json.find("\"gpu_ns_most\": null"), std::string::npos) << "the time is not measured";
}

// The spacing is that of the table in NVIDIA's documentation.
TEST(Format, PartitionsAreTheTableOfNvidiasDaemon) {
  const std::vector<DevicePartitions> devices = {
      {"GPU-74d43ed3-0000-0000-0000-000000000000",
       8,
       10,
       {{"1", 7, true}, {"12", 1, false, true, 3}}},
      {"GPU-bbbbbbbb-0000-0000-0000-000000000000", 0, 0, {}}};
  EXPECT_EQ(
      format_partitions(devices),
      "GPU           Partition                             free   used   free  used  clients\n"
      "                                                    chunk  chunk  SM    SM    \n"
      "GPU-74d43ed3  -                                     2      8      16    64    -\n"
      "GPU-74d43ed3  1                                     -      7      -     56    Yes\n"
      "GPU-74d43ed3  12                                    -      1      -     8     No\n"
      "GPU-bbbbbbbb  -                                     0      0      0     0     -\n");
  const nlohmann::json list = nlohmann::json::parse(format_partitions_json(devices));
  EXPECT_EQ(list[0]["used_chunks"], 8);
  EXPECT_EQ(list[0]["partitions"][1].dump(),
            R"({"chunks":1,"clients":false,"id":"12","max_chunks":3,)"
            R"("name":"GPU-74d43ed3-0000-0000-0000-000000000000/12","shareable":true,"sms":8})");
  EXPECT_EQ(list[1]["partitions"].size(), 0u);
}

TEST(Format, DevicesInJson) {
  const nlohmann::json list = nlohmann::json::parse(format_devices_json(
      {{{"0000:00:06.0", "GPU-1", "NVIDIA H200", 132, 4096, 8, 15, 103, 12080}},
       {{"0000:00:07.0", "GPU-2", "H200", 132, 4096, 8, 15}, 3, {{16, 1024}}}}));
  EXPECT_EQ(list[0].dump(),
            R"({"chunk_sms":8,"chunks":15,"compute_capability":"10.3","cuda_version":"12.8",)"
            R"("memory_bytes":4096,"name":"NVIDIA H200","ordinal":0,"pci":"0000:00:06.0",)"
            R"("share":null,"sms":132,"uuid":"GPU-1"})");
  EXPECT_EQ(list[1]["ordinal"], 3);
  EXPECT_EQ(list[1]["compute_capability"], nullptr);
  EXPECT_EQ(list[1]["share"].dump(), R"({"memory_bytes":1024,"sms":16})");
}

TEST(Format, DeviceListsOfServersAreCheckedAndMadePrintable) {
  const std::vector<Device> devices = parse_devices(
      "p\tu\tname \x1b[2J\t132\t4096\t8\t120\t90\t13000\nno fields\na\tb\tc\nx\ty\tz\t1\t2\t0\t0\n"
      "x\ty\tz\t-1\t2\t0\t0\nx\ty\tz\t1\t2\t3\tmany\n"
      "x\ty\tz\t1\t2\t0\t0\t90\nx\ty\tz\t1\t2\t0\t0\t90\tnew");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "name ?[2J");
  EXPECT_EQ(devices[0].sms, 132u);
  EXPECT_EQ(devices[0].memory_bytes, 4096u);
  EXPECT_EQ(devices[0].chunk_sms, 8u);
  EXPECT_EQ(devices[0].chunks, 15u);
  EXPECT_EQ(devices[0].compute_capability, 90u);
  EXPECT_EQ(devices[0].cuda_version, 13000u);
  EXPECT_EQ(devices[1].cuda_version, 0u) << "of a server of an older build";
  EXPECT_EQ(devices[1].chunks, 0u) << "the device has no SM partitions";
  EXPECT_EQ(devices[1].name, "z");
  std::string many;
  for (int i = 0; i < 100; ++i) many += "p\tu\tn\t1\t2\t1\t1\n";
  EXPECT_EQ(parse_devices(many).size(), 16u);
}

}  // namespace
}  // namespace openmps::control
