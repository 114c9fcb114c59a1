// SPDX-License-Identifier: Apache-2.0
// Metrics of a sample, and what a page shows of two.
#include "exporter/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "exporter/live.h"

namespace openmps::exporter {
namespace {

using nlohmann::json;

json usage_of(uint64_t launches, const json& device, uint64_t sm_ns) {
  json held;
  for (const char* why : {"value", "event", "streams", "window", "connection", "quiet moment",
                          "print turn", "memory", "share", "host function", "room"}) {
    held[why] = {{"times", 1}, {"ns", 1'000'000'000}, {"standing", 0}};
  }
  held["share"]["standing"] = 2;
  return {{"age_ns", 5'000'000'000},
          {"gpu_ns", 2 * sm_ns},
          {"gpu_ns_least", sm_ns},
          {"gpu_ns_most", 3 * sm_ns},
          {"sm_ns", sm_ns},
          {"launches", launches},
          {"batched_launches", 1},
          {"graph_launches", 1},
          {"graph_kernels", 7},
          {"copies", 3},
          {"fills", 1},
          {"images_loaded", 1},
          {"images_found", 1},
          {"bytes",
           {{"host_to_device", 100},
            {"device_to_host", 50},
            {"device_to_device", 0},
            {"host_to_host", 0},
            {"filled", 5}}},
          {"blocks", 1},
          {"threads", 1},
          {"beyond_limit", 0},
          {"lengths", std::vector<uint64_t>(wire::kTimeBins, 1)},
          {"gap_ns", std::vector<uint64_t>(wire::kTimeBins, 1)},
          {"part_ns", std::vector<uint64_t>(wire::kPartBins, 1)},
          {"devices",
           {{{"device", device},
             {"gpu_ns", 2 * sm_ns},
             {"sm_ns", sm_ns},
             {"compared_ns", 1},
             {"alone_ns", 1},
             {"memory_bytes", 4096},
             {"host_bytes", 1024}}}},
          {"held", held}};
}

// A server with one GPU, one namespace and `clients` clients in it.
Sample some_sample(uint32_t clients, uint64_t sm_ns) {
  Sample sample;
  sample.servers = json::parse(R"([{"name":"main","uid":0,"pid":17,"state":"ACTIVE"}])");
  sample.devices = json::parse(
      R"([{"ordinal":0,"uuid":"GPU-a","name":"NVIDIA H200","sms":100,"chunk_sms":8,"memory_bytes":1048576,
           "pci":"0000:01:00.0","compute_capability":"9.0","cuda_version":"13.0","share":null}])");
  sample.groups = json::parse(R"([{"name":"pod","id":1,"server":17,"members":1,
      "active_thread_percentage":25.0,
      "devices":[{"device":0,"sm_count":25,"memory_limit_bytes":8192,"memory_bytes":4096}]}])");
  sample.partitions =
      json::parse(R"([{"uuid":"GPU-a","partitions":[{"name":"GPU-a/0","id":"0","sms":16}]}])");
  sample.events = json::parse(R"({"counts":{"fault":2,"refused":1},"events":[{"number":9,
      "at_ns":1000000000,"server":"main","event":"fault","result":700,"pid":4711,"id":3,
      "command":"./a \"b\"","group":null,"domain":"common","text":"it"}]})");
  sample.totals.push_back({{"server", "main"},
                           {"group", "pod"},
                           {"sessions", clients + 4},
                           {"open", clients},
                           {"usage", usage_of(1000, "GPU-a", 3'000'000'000)}});
  for (uint32_t i = 1; i <= clients; ++i) {
    sample.clients.push_back({{"pid", 100 + i},
                              {"claimed_pid", 100 + i},
                              {"namespace", 5},
                              {"id", i},
                              {"server", 17},
                              {"device", "GPU-a"},
                              {"command", "./train --name \"x\""},
                              {"ending", false},
                              {"worker_silent", false},
                              {"stays", nullptr},
                              {"domain", "common"},
                              {"active_thread_percentage", 25.0},
                              {"quality", "normal"},
                              {"group", "pod"},
                              {"sm_partition", nullptr},
                              {"residence", "device"},
                              {"host_bytes", 0},
                              {"usage", usage_of(10, 0, sm_ns)}});
  }
  sample.snapshot.clients = observe::read_clients(sample.clients.dump()).value();
  sample.snapshot.devices = observe::read_devices(sample.devices.dump()).value();
  return sample;
}

MetricsOptions options(bool has_details) {
  return {has_details,
          [](uint64_t) {
            return Place{"c", "p"};
          },
          [](uint64_t) { return std::string("1000"); }};
}

size_t series_of(const std::vector<prometheus::MetricFamily>& families) {
  size_t count = 0;
  for (const auto& family : families) {
    for (const auto& metric : family.metric) {
      count +=
          family.type == prometheus::MetricType::Histogram ? metric.histogram.bucket.size() + 2 : 1;
    }
  }
  return count;
}

TEST(Metrics, SayWhatTheDaemonSays) {
  const std::string text = text_of(metrics_of(some_sample(1, 1'000'000'000), options(false)));
  for (const char* line :
       {"openmps_up 1\n",
        "openmps_server_state{server=\"main\",state=\"ACTIVE\"} 1\n",
        "openmps_server_clients{server=\"main\"} 1\n",
        "openmps_device_sms{device=\"0\"} 100\n",
        "openmps_device_memory_used_bytes{device=\"0\"} 3072\n",
        "openmps_device_sm_seconds_total{device=\"0\"} 3\n",
        "openmps_device_gpu_seconds_total{device=\"0\"} 6\n",
        "openmps_faults_total 2\n",
        "openmps_clients_refused_total 1\n",
        "openmps_clients_moved_total 0\n",
        "openmps_fault_timestamp_seconds{number=\"9\",server=\"main\",pid=\"4711\","
        "command=\"./a \\\"b\\\"\",error=\"700\"} 1\n",
        "openmps_clients_admitted_total{server=\"main\",group=\"pod\"} 5\n",
        "openmps_group_sm_limit{server=\"main\",group=\"pod\",device=\"0\"} 25\n",
        "openmps_group_memory_limit_bytes{server=\"main\",group=\"pod\",device=\"0\"} 8192\n",
        "openmps_partition_sms{partition=\"GPU-a/0\"} 16\n",
        "openmps_client_info{server=\"main\",client=\"1\",pid=\"101\",uid=\"1000\","
        "command=\"./train --name \\\"x\\\"\",group=\"pod\",quality=\"normal\",sm_partition=\"\","
        "domain=\"common\",pod=\"p\",container=\"c\"} 1\n",
        "openmps_client_sm_seconds_total{server=\"main\",client=\"1\",device=\"0\"} 1\n",
        "openmps_client_copied_bytes_total{server=\"main\",client=\"1\",direction=\"to_device\"} "
        "100\n",
        "openmps_client_held_seconds_total{server=\"main\",client=\"1\"} 11\n",
        "openmps_client_held_streams{server=\"main\",client=\"1\",reason=\"share\"} 2\n",
        "openmps_group_kernel_duration_seconds_bucket{server=\"main\",group=\"pod\",le=\"+Inf\"} "
        "24\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(Metrics, WithoutADaemonThereIsOne) {
  Sample sample;
  sample.why_not = "nobody listens";
  const std::string text = text_of(metrics_of(sample, options(false)));
  EXPECT_NE(text.find("openmps_up 0\n"), std::string::npos);
  EXPECT_EQ(text.find("openmps_device"), std::string::npos);
}

TEST(Metrics, AThousandClientsAreTwentyThousandSeries) {
  const Sample sample = some_sample(1000, 1);
  EXPECT_LE(series_of(metrics_of(sample, options(false))), 20'000u);
  EXPECT_GT(series_of(metrics_of(sample, options(true))), 100'000u) << "the details are there";
}

TEST(Metrics, AreThereOnceForEachSetOfLabels) {
  for (const bool has_details : {false, true}) {
    for (const auto& family : metrics_of(some_sample(3, 1), options(has_details))) {
      std::set<std::string> seen;
      for (const auto& metric : family.metric) {
        std::string labels;
        for (const auto& label : metric.label) labels += label.name + "=" + label.value + ",";
        EXPECT_TRUE(seen.insert(labels).second) << family.name << " " << labels;
      }
    }
  }
}

TEST(Live, SharesArePartsOfTheSmTime) {
  Sample before = some_sample(2, 0);
  before.snapshot.at_ns = 1'000'000'000;
  Sample now = some_sample(2, 20'000'000'000);  // 20 SMs for a second
  now.snapshot.at_ns = 2'000'000'000;
  for (observe::Client& client : now.snapshot.clients) client.use->age_ns += 1'000'000'000;
  const json page = page_of(&before, now, 7);
  ASSERT_EQ(page["clients"].size(), 2u);
  EXPECT_NEAR(page["clients"][0]["shares"][0].get<double>(), 0.2, 1e-9);
  EXPECT_EQ(page["clients"][0]["key"], "17/1");
  EXPECT_EQ(page["clients"][0]["memory"][0], json::array({0, 3072, 1024}));
  const json moment = moment_of(page);
  EXPECT_EQ(moment["at"], 7);
  ASSERT_EQ(moment["devices"][0]["shares"].size(), 2u);
}

TEST(Live, ManySharesAreKeptTogether) {
  Sample before = some_sample(100, 0);
  before.snapshot.at_ns = 1'000'000'000;
  Sample now = some_sample(100, 500'000'000);  // each half an SM
  now.snapshot.at_ns = 2'000'000'000;
  for (observe::Client& client : now.snapshot.clients) client.use->age_ns += 1'000'000'000;
  const json moment = moment_of(page_of(&before, now, 7));
  const json& device = moment["devices"][0];
  EXPECT_EQ(device["shares"].size(), kMostShares);
  EXPECT_NEAR(device["rest"].get<double>(), 0.005 * (100.0 - kMostShares), 1e-9);
}

TEST(Live, APageGetsTheHistoryAndThenEachSample) {
  Live live;
  uint64_t last = 0;
  for (uint64_t i = 0; i < kKeptMoments + 10; ++i) {
    auto sample = std::make_shared<Sample>(some_sample(1, i));
    sample->snapshot.at_ns = i * 1'000'000'000;
    live.add(sample);
  }
  const json first = json::parse(live.first(&last));
  EXPECT_EQ(first["history"].size(), kKeptMoments);
  EXPECT_EQ(first["now"]["clients"].size(), 1u);
  EXPECT_EQ(live.wait(&last, 1), "") << "there is none behind the first";
  live.add(std::make_shared<Sample>(some_sample(2, 1)));
  EXPECT_EQ(json::parse(live.wait(&last, 10'000))["clients"].size(), 2u);
  Sample gone;
  gone.why_not = "it has ended";
  live.add(std::make_shared<Sample>(gone));
  EXPECT_EQ(json::parse(live.wait(&last, 10'000))["why_not"], "it has ended");
  live.stop();
  EXPECT_EQ(live.wait(&last, 10'000), "");
}

}  // namespace
}  // namespace openmps::exporter
