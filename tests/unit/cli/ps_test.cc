// SPDX-License-Identifier: Apache-2.0
// The table of `openmps ps`, and the snapshot behind it.
#include "cli/ps.h"

#include <gtest/gtest.h>

namespace openmps::cli {
namespace {

// The answer to ps --json.
constexpr const char* kAnswer = R"([
  {"pid": 4711, "claimed_pid": 4711, "id": 3, "server": 17, "device": "GPU-008cbaa3-6cdc-9444", "namespace": 5,
   "command": "python3 train.py", "ending": true, "worker_silent": false, "moves": 0, "stays": null, "domain": "common", "active_thread_percentage": 50,
   "quality": "latency", "group": "pods:/a/b", "sm_partition": "GPU-008c/1", "residence": "device", "host_bytes": 0,
   "usage": {"age_ns": 10000000000, "gpu_ns": 2500000000, "gpu_ns_least": 0, "gpu_ns_most": 9,
     "sm_ns": 300000000000, "launches": 1200, "batched_launches": 0, "graph_launches": 0,
     "graph_kernels": 300, "copies": 1, "fills": 0,
     "bytes": {"host_to_device": 2000000, "device_to_host": 17, "device_to_device": 0,
               "host_to_host": 0, "filled": 0},
     "blocks": 3000, "threads": 96000,
     "lengths": [0,0,7,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],
     "gap_ns": [0,0,0,0,0,9,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],
     "part_ns": [0,0,0,0,0,0,0,8],
     "devices": [{"device": 1, "gpu_ns": 2500000000, "sm_ns": 200000000000,
                  "compared_ns": 2100000000, "alone_ns": 2000000000, "memory_bytes": 4096, "host_bytes": 0}],
     "held": {"value": {"times": 1, "ns": 4000000, "standing": 1},
              "window": {"times": 9, "ns": 9000000000, "standing": 0}}}},
  {"pid": 0, "claimed_pid": 12, "id": 4, "server": 17, "device": "GPU-008cbaa3-6cdc-9444", "namespace": 5,
   "command": "idle", "ending": false, "worker_silent": true, "moves": 1, "stays": "it has arrays", "domain": "quarantine", "active_thread_percentage": 100,
   "quality": "normal",
   "group": null, "sm_partition": null, "residence": "held", "host_bytes": 1610612736,
   "usage": null}])";

std::vector<std::string> words_of(const std::string& text, size_t line) {
  std::vector<std::string> words;
  size_t at = 0;
  for (; line != 0; --line) at = text.find('\n', at) + 1;
  std::string word;
  for (; text[at] != '\n'; ++at) {
    if (text[at] != ' ') {
      word += text[at];
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  words.push_back(word);
  return words;
}

using Words = std::vector<std::string>;

TEST(Ps, TotalsSinceEachSessionBegan) {
  const auto rows = observe::read_clients(kAnswer);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ((*rows)[0].sm_partition, "GPU-008c/1");
  EXPECT_EQ((*rows)[1].sm_partition, "");
  const std::string table = format_ps_table(*rows, {});
  EXPECT_EQ(words_of(table, 1),
            (Words{"4711", "3", "17", "GPU-008cbaa3", "2.50", "s", "25%", "20.0", "1.5k", "2.0MB",
                   "17B", "value", "now,", "4.0", "ms", "yes", "pods:b", "python3", "(ending)"}));
  EXPECT_EQ(
      words_of(table, 2),
      (Words{"id:4", "4",       "17",          "GPU-008cbaa3", "-",  "-",    "-",       "-",
             "-",    "-",       "-",           "no",           "-",  "idle", "(worker", "does",
             "not",  "answer)", "(suspended)", "(PID",         "12", "by",   "its",     "own",
             "word)"}));
  EXPECT_NE(table.find("id:4 has 1.5GiB on the host, and its GPU work waits for openmps resume\n"),
            std::string::npos);
  EXPECT_EQ(table.find("4711 has"), std::string::npos);
  std::vector<observe::Client> away = *rows;
  away[0].residence = "host";
  away[0].host_bytes = 1 << 20;
  EXPECT_NE(format_ps_table(away, {}).find(" python3 (ending) (on the host)\n"), std::string::npos);
  EXPECT_NE(format_ps_table(away, {}).find("\n4711 has 1.0MiB on the host\n"), std::string::npos);
  EXPECT_NE(table.find("rules by cgroup do not fit"), std::string::npos);
  EXPECT_NE(table.find("\nIn domain quarantine, with a worker of its own: id:4\n"),
            std::string::npos);
  EXPECT_EQ(table.find("In domain common"), std::string::npos);
  EXPECT_NE(table.find("id:4 would not survive a fault of another: it has arrays\n"),
            std::string::npos);
  EXPECT_EQ(format_ps_table({(*rows)[0]}, {}).find("cgroup"), std::string::npos);
  EXPECT_EQ(format_ps_table({}, {}), "No program uses OpenMPS\n");
  const Result<std::string> silent = observe::silent_servers(
      R"([{"pid": 7, "uid": 0, "state": "ACTIVE"}, {"pid": 8, "uid": 5, "state": "UNRESPONSIVE"}])");
  ASSERT_TRUE(silent.ok());
  EXPECT_EQ(*silent, "Server 8 of user 5 does not answer: its programs are not listed\n");
  EXPECT_FALSE(observe::silent_servers("[{}]").ok());
}

TEST(Ps, RatesSinceTheLastSnapshot) {
  const auto before = observe::read_clients(kAnswer);
  ASSERT_TRUE(before.ok());
  std::vector<observe::Client> now = *before;
  observe::Use& use = *now[0].use;
  use.age_ns += 2'000'000'000;
  *use.gpu_ns += 1'000'000'000;
  use.sm_ns += 4'000'000'000;
  use.launches += 50'000;
  use.from_device += 10;
  use.held[0].held_now = 0;
  use.held[1].ns += 500'000'000;
  EXPECT_EQ(words_of(format_ps_table(now, *before), 1),
            (Words{"4711", "3", "17", "GPU-008cbaa3", "3.50", "s", "50%", "2.0", "25.0k/s", "0B/s",
                   "5B/s", "window", "500.0", "ms", "yes", "pods:b", "python3", "(ending)"}));
  now[0].id = 9;
  EXPECT_EQ(words_of(format_ps_table(now, *before), 1)[7], "17.0")
      << "a snapshot of another session is not compared";
  use.gpu_ns.reset();
  EXPECT_EQ(words_of(format_ps_table(now, {}), 1)[4], "-");
}

TEST(Ps, TheDaemonsAnswersAreRead) {
  const auto clients = observe::read_clients(kAnswer);
  ASSERT_TRUE(clients.ok()) << clients.status().message();
  const observe::Client& client = (*clients)[0];
  EXPECT_EQ(client.active_thread_percentage, 50);
  EXPECT_EQ(client.quality, "latency");
  EXPECT_EQ(client.group, "pods:/a/b");
  EXPECT_EQ((*clients)[1].group, "");
  ASSERT_TRUE(client.use);
  EXPECT_EQ(client.pid_namespace, 5u);
  EXPECT_EQ(client.use->launches, 1500u) << "kernels in graphs are counted, too";
  EXPECT_EQ(client.use->threads, 96000u);
  EXPECT_EQ(client.use->lengths[2], 7u);
  EXPECT_EQ(client.use->gap_ns[5], 9u);
  EXPECT_EQ(client.use->part_ns[7], 8u);
  ASSERT_EQ(client.use->devices.size(), 1u);
  EXPECT_EQ(client.use->devices[0].ordinal, 1u);
  EXPECT_EQ(client.use->devices[0].alone_ns, 2'000'000'000u);
  EXPECT_EQ(client.use->devices[0].memory_bytes, 4096u);
  EXPECT_FALSE((*clients)[1].use);
  const auto devices = observe::read_devices(
      R"([{"ordinal": 1, "pci": "0", "uuid": "GPU-1", "name": "H200", "sms": 132, "chunk_sms": 8,
           "memory_bytes": 5, "compute_capability": "9.0", "cuda_version": null,
           "share": {"sms": 16, "memory_bytes": 3}}])");
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  EXPECT_EQ((*devices)[0].sms, 132u);
  EXPECT_EQ((*devices)[0].name, "H200");
  EXPECT_EQ((*devices)[0].compute_capability, "9.0");
  EXPECT_EQ((*devices)[0].cuda_version, "");
  ASSERT_TRUE((*devices)[0].share);
  EXPECT_EQ((*devices)[0].share->sms, 16u);
  EXPECT_EQ((*devices)[0].share->memory_bytes, 3u);
}

TEST(Ps, AnAnswerInAnotherFormatIsAnError) {
  std::string other_bins = kAnswer;
  other_bins.replace(other_bins.find("[0,0,0,0,0,0,0,8]"), 17, "[0,0,0,0,0,0,8]");
  for (const char* answer :
       {"", "{", "[1]", "[{}]", R"([{"pid": "x"}])", "Server not found\n", other_bins.c_str()}) {
    const auto clients = observe::read_clients(answer);
    ASSERT_FALSE(clients.ok()) << answer;
    EXPECT_NE(clients.status().message().find("the daemon's list"), std::string::npos);
  }
  EXPECT_FALSE(observe::read_devices("[{}]").ok());
}

}  // namespace
}  // namespace openmps::cli
