// SPDX-License-Identifier: Apache-2.0
// A daemon with static partitions (-S): the answers of the shell, which clients are admitted, and
// the messages to workers. The answers in the first test are those of NVIDIA's daemon.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "mps_fixture.h"
#include "wire/message.h"

namespace openmps {
namespace {

constexpr const char* kUuid = "GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155";

class StaticTest : public MpsTest {
 protected:
  Client enter(const std::string& partition, const std::string& command = "./program") {
    Result<UniqueFd> socket = connect_raw();
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    if (!socket.ok()) return {};
    wire::Hello first = hello(command);
    fill_field(first.sm_partition, partition);
    EXPECT_TRUE(send_packet(socket->get(), wire::message_bytes(first)).ok());
    return finish_join(std::move(socket).value());
  }
  std::string say(const std::string& command) { return shell(command + "\n").out; }
  static std::string name(int id) { return std::string(kUuid) + "/" + std::to_string(id); }
  // Waits until `text` is in the server's log `times` times.
  bool is_logged(const std::string& text, int times = 1) {
    return eventually([&] {
      const std::string log = log_text("server.log");
      int found = 0;
      for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) {
        ++found;
      }
      return found == times;
    });
  }
};

TEST_F(StaticTest, AnswersAreThoseOfNvidiasDaemon) {
  start_daemon("-S");
  EXPECT_EQ(say("sm_partition add GPU-008c 7"), "Partition " + name(1) + " created\n");
  EXPECT_EQ(say("sm_partition add " + std::string(kUuid) + " 9"),
            "Failed to fulfill the requested SM partition of 9 chunks, error "
            "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n");
  EXPECT_EQ(say("sm_partition add GPU-0 8"), "Partition " + name(2) + " created\n");
  EXPECT_EQ(say("sm_partition rm GPU-008c 1"), "Partition " + name(1) + " removed\n");
  EXPECT_EQ(say("sm_partition rm GPU-008c 1"), "Partition 1 not found\n");
  EXPECT_EQ(say("sm_partition rm GPU-1 2"), "Partition 2 not found\n");
  EXPECT_EQ(say("sm_partition rm 2"), "Partition  not found\n");
  EXPECT_EQ(
      say("lspart"),
      "GPU           Partition                             free   used   free  used  clients\n"
      "                                                    chunk  chunk  SM    SM    \n"
      "GPU-008cbaa3  -                                     7      8      56    64    -\n"
      "GPU-008cbaa3  2                                     -      8      -     64    No\n");
  EXPECT_EQ(say("sm_partition rm GPU-008c " + name(2)), "Partition " + name(2) + " removed\n");
  const std::string usage =
      "\nUsage: sm_partition add <device UUID> <chunks> | rm <device UUID> <id>\n";
  for (const auto& [command, wrong] :
       {std::pair("sm_partition", "the action \"\""),
        std::pair("sm_partition drop GPU 2", "the action \"drop\""),
        std::pair("sm_partition add GPU-008c two", "the value \"two\""),
        std::pair("sm_partition add GPU-9 2", "the device UUID \"GPU-9\"")}) {
    const Outcome told = shell(std::string(command) + "\n");
    EXPECT_EQ(told.out, "Not understood: " + std::string(wrong) + usage);
    EXPECT_EQ(told.status, 1);
  }
}

TEST_F(StaticTest, WithoutTheOptionThereAreNoPartitions) {
  start_daemon();
  EXPECT_EQ(say("lspart"), "Unknown command \"lspart\"\n");
  EXPECT_EQ(say("sm_partition add GPU 2"), "Unknown command \"sm_partition\"\n");
  const Client client = enter(name(1));
  EXPECT_EQ(client.welcome.result, CUDA_SUCCESS) << "CUDA_MPS_SM_PARTITION is ignored without -S";
  EXPECT_EQ(client.welcome.partition.sms, 0u);
}

TEST_F(StaticTest, AClientHasToNameAPartitionThatExists) {
  start_daemon("-S");
  const Client none = enter("");
  EXPECT_EQ(none.welcome.result, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_STREQ(none.welcome.reason,
               "CUDA_MPS_SM_PARTITION is not set, and this daemon has static partitions (-S)");
  EXPECT_NE(log_text("control.log").find("refused, CUDA_MPS_SM_PARTITION is not set"),
            std::string::npos);
  say("sm_partition add GPU-008c 2");
  say("sm_partition add GPU-008c 3");
  EXPECT_EQ(enter(name(3)).welcome.result, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  const Client client = enter("GPU-008c/2", "./second");
  ASSERT_EQ(client.welcome.result, CUDA_SUCCESS) << client.welcome.reason;
  EXPECT_EQ(client.welcome.partition, (wire::StaticPartition{0, 24, {0b11100, 0}}));
  EXPECT_TRUE(is_logged("fake worker: 24 SMs in groups 1c for 1"));
  EXPECT_TRUE(is_logged("fake worker: ./second in 1"));
  EXPECT_EQ(say("reserve_sms ./second 0 8"),
            "With static partitions (-S) SMs are kept by sm_partition\n");
}

TEST_F(StaticTest, ThePartitionOfAWaitingClientIsCheckedAgainWhenTheServerIsReady) {
  const std::string go = directory_ + "/go";
  driver_ = "await:" + go;
  std::ofstream(go).close();
  start_daemon("-S");
  EXPECT_EQ(say("sm_partition add GPU-008c 2"), "Partition " + name(1) + " created\n");
  EXPECT_TRUE(eventually([&] { return processes("openmps-server").empty(); }))
      << "the server that has reported the devices ends";
  std::filesystem::remove(go);
  Result<UniqueFd> waiting = connect_raw();
  ASSERT_TRUE(waiting.ok());
  wire::Hello first = hello("./waits");
  fill_field(first.sm_partition, name(1));
  ASSERT_TRUE(send_packet(waiting->get(), wire::message_bytes(first)).ok());
  EXPECT_TRUE(eventually([&] {
    return log_text("control.log").find("push client to pending list") != std::string::npos;
  }));
  EXPECT_EQ(say("sm_partition rm GPU-008c 1"), "Partition " + name(1) + " removed\n");
  std::ofstream(go).close();
  const Client late = finish_join(std::move(waiting).value());
  EXPECT_EQ(late.welcome.result, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION) << late.welcome.reason;
  EXPECT_NE(log_text("control.log").find("is refused, CUDA_MPS_SM_PARTITION says"),
            std::string::npos);
}

TEST_F(StaticTest, APartitionWithClientsCanNotBeRemoved) {
  start_daemon("-S");
  say("sm_partition add GPU-008c 2");
  const std::string in_use =
      "Partition " + name(1) + " in use. Terminate all clients before removing.\n";
  {
    const Client first = enter(name(1)), second = enter(name(1));
    EXPECT_EQ(say("sm_partition rm GPU-008c 1"), in_use);
    EXPECT_NE(say("lspart").find("16    Yes\n"), std::string::npos);
    EXPECT_EQ(enter(name(1)).welcome.result, CUDA_SUCCESS) << "the partition is unchanged";
  }
  EXPECT_TRUE(is_logged("fake worker: 0 SMs in groups 0 for 1"))
      << "the worker's reservation ends with the last client";
  EXPECT_TRUE(is_logged("fake worker: 16 SMs in groups 3 for 1"));
  { const Client ending = enter(name(1), "never-ends"); }
  EXPECT_TRUE(is_logged("Number of active client contexts is 0.", 2));
  EXPECT_EQ(say("sm_partition rm GPU-008c 1"), in_use) << "work of an ended client still runs";
}

TEST_F(StaticTest, TheNextWorkerGetsThePartitionsInUse) {
  environment_ = "OPENMPS_DRAIN_SECONDS=1";
  start_daemon("-S");
  say("sm_partition add GPU-008c 2");
  const Client stays = enter(name(1), "./stays");
  { const Client ending = enter(name(1), "never-ends"); }
  EXPECT_TRUE(is_logged("16 SMs in groups 3 for 1", 2)) << "the first worker and the next log it";
  const Client next = enter(name(1), "./next");
  EXPECT_EQ(next.welcome.result, CUDA_SUCCESS) << next.welcome.reason;
  EXPECT_TRUE(is_logged("fake worker: ./next in 1"));
}

TEST_F(StaticTest, PartitionsOutliveAKilledDaemon) {
  start_daemon("-S");
  say("sm_partition add GPU-008c 2");
  say("sm_partition add GPU-008c 3");
  say("sm_partition add GPU-008c 1");
  say("sm_partition rm GPU-008c 3");
  const Client first = enter(name(1));
  kill_daemon();
  start_daemon("-S");
  const Client second = enter(name(2)), beside = enter(name(1));
  ASSERT_EQ(second.welcome.result, CUDA_SUCCESS) << second.welcome.reason;
  EXPECT_EQ(second.welcome.partition, (wire::StaticPartition{0, 24, {0b11100, 0}}));
  EXPECT_EQ(beside.welcome.partition, first.welcome.partition);
  EXPECT_EQ(beside.welcome.server_pid, first.welcome.server_pid);
  EXPECT_NE(say("sm_partition rm GPU-008c 1").find("in use"), std::string::npos);
  EXPECT_EQ(say("sm_partition add GPU-008c 1"), "Partition " + name(4) + " created\n")
      << "no ID is used twice";
  // A next daemon without -S forgets the partitions.
  kill_daemon();
  start_daemon();
  kill_daemon();
  start_daemon("-S");
  EXPECT_NE(enter(name(2)).welcome.result, CUDA_SUCCESS);
}

}  // namespace
}  // namespace openmps
