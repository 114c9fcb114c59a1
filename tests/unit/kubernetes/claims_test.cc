// SPDX-License-Identifier: Apache-2.0
// Claims of dynamic resource allocation: amounts, what a node offers, what a claim is worth, files.
#include "kubernetes/claims.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kubernetes/quantity.h"

namespace openmps::kubernetes {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kGiB = 1ull << 30;
constexpr uint64_t kMiB = 1ull << 20;
constexpr const char* kUid = "7d2f1c7e-0000-4000-8000-0123456789ab";
const DriverName kName{.driver = "gpu.openmps.org", .node = "node1"};

observe::Device gpu(const std::string& uuid, uint32_t sms, uint32_t step, uint64_t memory) {
  observe::Device device;
  device.uuid = uuid;
  device.name = "NVIDIA H200";
  device.sms = sms;
  device.sm_step = step;
  device.memory_bytes = memory;
  return device;
}
const std::vector<observe::Device> kNode = {gpu("GPU-A", 132, 8, 141 * kGiB),
                                            gpu("GPU-B", 56, 2, 24 * kGiB),
                                            gpu("GPU-C", 30, 0, 16 * kGiB)};

Json result(const std::string& device, const std::string& memory, const std::string& sms) {
  return {{"request", "gpu"},         {"driver", "gpu.openmps.org"},
          {"pool", "node1"},          {"device", device},
          {"shareID", "s-" + device}, {"consumedCapacity", {{"memory", memory}, {"sms", sms}}}};
}

Json config(const std::string& source, Json parameters) {
  Json all = {{"apiVersion", "openmps.org/v1alpha1"}, {"kind", "ShareConfig"}};
  all.update(parameters);
  return {{"source", source},
          {"requests", Json::array()},
          {"opaque", {{"driver", "gpu.openmps.org"}, {"parameters", all}}}};
}

Json claim_of(std::vector<Json> results, std::vector<Json> configs = {}) {
  return {{"metadata", {{"uid", kUid}}},
          {"status", {{"allocation", {{"devices", {{"results", results}, {"config", configs}}}}}}}};
}

Result<Claim> read(const Json& claim) { return read_claim(claim.dump(), kUid, kName, kNode, kGiB); }

std::string fault_of(const Json& claim) { return read(claim).status().message(); }

TEST(Quantities, AreWholeNumbersAsKubernetesRoundsThem) {
  const std::pair<const char*, uint64_t> known[] = {{"0", 0},
                                                    {"4", 4},
                                                    {"4000m", 4},
                                                    {"2500m", 3},
                                                    {"1k", 1000},
                                                    {"1Ki", 1024},
                                                    {"3Gi", 3 * kGiB},
                                                    {"1.5Gi", 3 * kGiB / 2},
                                                    {".5Mi", kMiB / 2},
                                                    {"2.", 2},
                                                    {"12e3", 12000},
                                                    {"12E3", 12000},
                                                    {"1e-1", 1},
                                                    {"2E", 2000000000000000000},
                                                    {"7Ei", 7ull << 60},
                                                    {"151397597184", 151397597184}};
  for (const auto& [text, value] : known) EXPECT_EQ(parse_quantity(text), value) << text;
  for (const char* text : {"", ".", "-1", "+1", "1 Gi", "Gi", "1gi", "1.2.3", "8Ei", "1e19", "1e",
                           "0x10", "12345678901234567890123", "1Gi ", "1\n"}) {
    EXPECT_FALSE(parse_quantity(text).has_value()) << text;
  }
  EXPECT_EQ(bytes_quantity(3 * kGiB), "3Gi");
  EXPECT_EQ(bytes_quantity(1792 * kMiB), "1792Mi");
  EXPECT_EQ(bytes_quantity(1000), "1000");
}

TEST(Slices, OfferEachGpu) {
  const Json spec = Json::parse(slice_spec(kName, kNode, kGiB, 7));
  EXPECT_EQ(slice_name(kName), "node1-gpu.openmps.org");
  EXPECT_EQ(spec["driver"], "gpu.openmps.org");
  EXPECT_EQ(spec["nodeName"], "node1");
  EXPECT_EQ(spec["pool"], Json({{"name", "node1"}, {"generation", 7}, {"resourceSliceCount", 1}}));
  ASSERT_EQ(spec["devices"].size(), 3u);
  const Json& first = spec["devices"][0];
  EXPECT_EQ(first["name"], "gpu-a");
  EXPECT_EQ(first["allowMultipleAllocations"], true);
  EXPECT_EQ(first["attributes"]["uuid"]["string"], "GPU-A");
  EXPECT_EQ(first["attributes"]["smStep"]["int"], 8);
  EXPECT_EQ(first["capacity"]["memory"],
            Json::parse(R"({"value": "140Gi", "requestPolicy": {"default": "140Gi",
                            "validRange": {"min": "64Mi", "max": "140Gi", "step": "2Mi"}}})"));
  // 132 SMs are 16 steps of 8, and 4 that only who has all of them gets.
  EXPECT_EQ(first["capacity"]["sms"],
            Json::parse(R"({"value": "128", "requestPolicy": {"default": "128",
                            "validRange": {"min": "8", "max": "128", "step": "8"}}})"));
  EXPECT_EQ(spec["devices"][2]["capacity"]["sms"]["value"], "30");
  EXPECT_TRUE(Json::parse(slice_spec(kName, {}, kGiB, 1))["devices"].empty());
}

TEST(Claims, AreWorthWhatTheyHaveConsumed) {
  const Result<Claim> one = read(claim_of({result("gpu-a", "3Gi", "16")}));
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->grant.name, std::string("claim-") + kUid);
  EXPECT_EQ(claim_of_namespace(one->grant.name), kUid);
  ASSERT_EQ(one->grant.parts.size(), 1u);
  EXPECT_EQ(one->grant.parts.at("GPU-A").sms, 16u);
  EXPECT_EQ(one->grant.parts.at("GPU-A").memory_bytes, 3 * kGiB);
  ASSERT_EQ(one->devices.size(), 1u);
  EXPECT_EQ(one->devices[0].request, "gpu");
  EXPECT_EQ(one->devices[0].pool, "node1");
  EXPECT_EQ(one->devices[0].device, "gpu-a");
  EXPECT_EQ(one->devices[0].share, "s-gpu-a");
}

TEST(Claims, HavePartsOfSeveralGpus) {
  Json other = result("gpu-x", "1Gi", "8");
  other["driver"] = "gpu.nvidia.com";
  const Result<Claim> claim =
      read(claim_of({result("gpu-a", "3Gi", "16"), other, result("gpu-b", "1Gi", "2"),
                     result("gpu-a", "1Gi", "8")}));
  ASSERT_TRUE(claim.ok()) << claim.status().message();
  EXPECT_EQ(claim->devices.size(), 3u);
  EXPECT_EQ(claim->grant.parts.at("GPU-A").sms, 24u);
  EXPECT_EQ(claim->grant.parts.at("GPU-A").memory_bytes, 4 * kGiB);
  EXPECT_EQ(claim->grant.parts.at("GPU-B").sms, 2u);
  EXPECT_EQ(visible_devices(claim->grant, kNode), "GPU-A,GPU-B");
}

TEST(Claims, WhoHasAllStepsHasAllSms) {
  EXPECT_EQ(read(claim_of({result("gpu-a", "3Gi", "128")}))->grant.parts.at("GPU-A").sms, 132u);
  EXPECT_EQ(read(claim_of({result("gpu-a", "3Gi", "120")}))->grant.parts.at("GPU-A").sms, 120u);
  EXPECT_EQ(read(claim_of({result("gpu-c", "3Gi", "30")}))->grant.parts.at("GPU-C").sms, 30u);
  // Of a cluster that does not count capacities.
  Json whole = result("gpu-a", "", "");
  whole.erase("consumedCapacity");
  const Result<Claim> all = read(claim_of({whole}));
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->grant.parts.at("GPU-A").sms, 132u);
  EXPECT_EQ(all->grant.parts.at("GPU-A").memory_bytes, 140 * kGiB);
}

TEST(Claims, OfSomethingElseAreErrors) {
  Json other = claim_of({result("gpu-a", "3Gi", "16")});
  other["metadata"]["uid"] = "other";
  EXPECT_EQ(fault_of(other), "the claim of that name has another UID");
  EXPECT_EQ(fault_of(claim_of({})), "the claim has no device of gpu.openmps.org");
  EXPECT_EQ(fault_of({{"metadata", {{"uid", kUid}}}}),
            "the claim has no device of gpu.openmps.org");
  EXPECT_EQ(fault_of(Json::array()), "the API server's answer is no claim");
  EXPECT_FALSE(read_claim("{", kUid, kName, kNode, kGiB).ok());
  EXPECT_EQ(fault_of(claim_of({result("gpu-z", "3Gi", "16")})),
            "this node has no device node1/gpu-z");
  Json elsewhere = result("gpu-a", "3Gi", "16");
  elsewhere["pool"] = "node2";
  EXPECT_EQ(fault_of(claim_of({elsewhere})), "this node has no device node2/gpu-a");
  for (const auto& [memory, sms] :
       {std::pair("", "16"), std::pair("3Gi", ""), std::pair("0", "8"), std::pair("3Gi", "0"),
        std::pair("-3Gi", "8"), std::pair("141Gi", "8"), std::pair("3Gi", "136")}) {
    EXPECT_FALSE(read(claim_of({result("gpu-a", memory, sms)})).ok()) << memory << " " << sms;
  }
  for (const char* uid : {"", "a/b", "..", "a b", "a_b"}) {
    EXPECT_FALSE(namespace_of_claim(uid).ok()) << uid;
  }
  EXPECT_FALSE(namespace_of_claim(std::string(58, 'a')).ok());
  EXPECT_EQ(claim_of_namespace("kube-0"), "");
}

TEST(Claims, AreConfigured) {
  const std::vector<Json> results = {result("gpu-a", "3Gi", "16"), result("gpu-b", "1Gi", "4")};
  const Result<Claim> plain = read(claim_of(results));
  EXPECT_EQ(plain->grant.quality, "");
  EXPECT_FALSE(plain->grant.borrows || plain->grant.is_exclusive);
  EXPECT_TRUE(plain->grant.partitions.empty());
  // A claim's word counts before its class's, whatever the order.
  const Result<Claim> latency = read(
      claim_of(results, {config("FromClaim", {{"quality", "latency"}}),
                         config("FromClass", {{"quality", "best-effort"}, {"borrowSMs", true}})}));
  ASSERT_TRUE(latency.ok()) << latency.status().message();
  EXPECT_EQ(latency->grant.quality, "latency");
  EXPECT_TRUE(latency->grant.borrows);
  const Result<Claim> exclusive =
      read(claim_of(results, {config("FromClaim", {{"exclusive", true}})}));
  ASSERT_TRUE(exclusive.ok()) << exclusive.status().message();
  EXPECT_TRUE(exclusive->grant.is_exclusive);
  EXPECT_EQ(exclusive->grant.partitions,
            (std::map<std::string, std::string>{{"GPU-A", exclusive->grant.name},
                                                {"GPU-B", exclusive->grant.name}}));
  const Result<Claim> partition =
      read(claim_of(results, {config("FromClaim", {{"partition", "large"}})}));
  ASSERT_TRUE(partition.ok()) << partition.status().message();
  EXPECT_FALSE(partition->grant.is_exclusive);
  EXPECT_EQ(partition->grant.partitions.at("GPU-B"), "large");
  // Another driver's parameters are its own.
  Json others = config("FromClaim", {{"sharing", "MPS"}});
  others["opaque"]["driver"] = "gpu.nvidia.com";
  EXPECT_TRUE(read(claim_of(results, {others})).ok());
}

TEST(Claims, WrongConfigurationsAreErrors) {
  const std::vector<Json> results = {result("gpu-a", "3Gi", "16")};
  const auto fault = [&](const std::vector<Json>& configs) {
    return fault_of(claim_of(results, configs));
  };
  EXPECT_EQ(fault({config("FromClaim", {{"quality", "high"}})}),
            "quality: expected latency, normal or best-effort");
  EXPECT_EQ(fault({config("FromClaim", {{"exclusive", "yes"}})}),
            "parameters have no 'exclusive' of that kind");
  EXPECT_EQ(fault({config("FromClass", {{"more", 1}})}), "parameters have no 'more' of that kind");
  EXPECT_EQ(fault({config("FromClaim", {{"exclusive", true}, {"partition", "a"}})}),
            "a claim has exclusive SMs or a partition, not both");
  EXPECT_EQ(fault({config("FromClaim", {{"partition", "a --force"}})}),
            "partition: 'a --force' is no name");
  EXPECT_EQ(fault({config("FromClaim", {{"partition", "a\t--force"}})}),
            "partition: 'a?--force' is no name");
  EXPECT_EQ(fault({config("FromClaim", {{"quality", "normal"}}),
                   config("FromClaim", {{"quality", "latency"}})}),
            "two values of quality: a claim has one");
  EXPECT_EQ(fault({config("FromClaim", {{"quality", "normal"}}),
                   config("FromClaim", {{"quality", "normal"}})}),
            "");
  Json unknown = config("FromClaim", Json::object());
  unknown["opaque"]["parameters"]["apiVersion"] = "openmps.org/v2";
  EXPECT_NE(fault({unknown}).find("are not of apiVersion openmps.org/v1alpha1"), std::string::npos);
  EXPECT_EQ(fault_of(claim_of({result("gpu-c", "3Gi", "30")},
                              {config("FromClaim", {{"exclusive", true}})})),
            "gpu-c can't give out SMs exclusively");
}

TEST(Claims, OutliveTheDaemonInFiles) {
  Grant grant = read(claim_of({result("gpu-a", "3Gi", "16"), result("gpu-b", "1Gi", "4")},
                              {config("FromClaim", {{"exclusive", true}, {"quality", "latency"}})}))
                    ->grant;
  const Result<Grant> again = read_grant(grant_text(grant));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(grant_text(*again), grant_text(grant));
  EXPECT_EQ(options_of(*again, kNode), options_of(grant, kNode));
  EXPECT_EQ(first_options_of(*again), first_options_of(grant));
  for (const char* text : {"", "{}", "[]", R"({"name": 1})", "x"}) {
    EXPECT_FALSE(read_grant(text).ok()) << text;
  }
}

}  // namespace
}  // namespace openmps::kubernetes
