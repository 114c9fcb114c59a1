// SPDX-License-Identifier: Apache-2.0
// The tables, to the byte as NVIDIA's daemon of driver 580 printed them; and device lists from
// servers, which are not trusted.
#include "control/format.h"

#include <gtest/gtest.h>

#include "wire/commands.h"

namespace openmps::control {
namespace {

const Device kH200{"0000:00:06.0", "GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155", "NVIDIA H200"};
const ClientLine kPython{1338, 1, 1272, 0, 4026531836, kH200.uuid, "python3 train.py"};

TEST(Format, Ps) {
  EXPECT_EQ(format_ps({}), "");
  EXPECT_EQ(
      format_ps({kPython}),
      "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        "
      "\n"
      "1338      1         1272           GPU-008cbaa3-6cdc-9444    4026531836     python3        "
      "\n");
}

TEST(Format, ClientsThatEndAreMarked) {
  ClientLine ending = kPython;
  ending.ending = true;
  EXPECT_EQ(format_client_list({kPython, ending}), "1338\n1338 (ending)\n");
  EXPECT_NE(format_ps({ending}).find("4026531836     python3 (ending)\n"), std::string::npos);
  EXPECT_EQ(format_device_clients({kH200}, {ending}),
            "[0] 00:00.0, NVIDIA H200\n1338.1 (ending)\n");
  EXPECT_NE(format_ps_json({ending}).find("\"ending\": true"), std::string::npos);
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
  const std::string json = format_inspected_json(inspected);
  for (const char* part :
       {"\"executing\": \"ModuleLoad\"", "\"executor_waits_for\": \"quiet moment\"",
        "\"command\": \"Launch\"", "\"promised\": 4", "\"kind\": \"host function\""}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " in " << json;
  }
  // A server that knows no better.
  inspected.report.opcode = 9999;
  inspected.report.wait = static_cast<wire::ExecutorWait>(77);
  inspected.waits = {{static_cast<wire::WaitKind>(8), 1}};
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
  elsewhere.device = 1;
  EXPECT_EQ(format_device_clients({kH200}, {kPython, elsewhere}),
            "[0] 00:00.0, NVIDIA H200\n1338.1\n");
}

TEST(Format, JsonKeepsArgumentsAndReplacesWhatIsNotText) {
  ClientLine odd = kPython;
  odd.command = "a \"b\" \xff";
  EXPECT_EQ(format_ps_json({odd}),
            "[\n  {\n    \"pid\": 1338,\n    \"id\": 1,\n    \"server\": 1272,\n    \"device\": "
            "\"GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155\",\n    \"namespace\": 4026531836,\n    "
            "\"command\": \"a \\\"b\\\" \xef\xbf\xbd\",\n    \"ending\": false\n  }\n]\n");
  EXPECT_EQ(format_ps_json({}), "[]\n");
  EXPECT_EQ(format_server_list_json({{7, 1000, "ACTIVE"}}),
            "[\n  {\n    \"pid\": 7,\n    \"uid\": 1000,\n    \"state\": \"ACTIVE\"\n  }\n]\n");
}

TEST(Format, DeviceListsOfServersAreCheckedAndMadeSafe) {
  const std::vector<Device> devices = parse_devices("p\tu\tname \x1b[2J\nno fields\na\tb\nx\ty\tz");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "name ?[2J");
  EXPECT_EQ(devices[1].name, "z");
  std::string many;
  for (int i = 0; i < 100; ++i) many += "p\tu\tn\n";
  EXPECT_EQ(parse_devices(many).size(), 16u);
}

}  // namespace
}  // namespace openmps::control
