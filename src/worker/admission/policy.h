// SPDX-License-Identifier: Apache-2.0
// Which session's work goes first where several want one device: a replaceable function of what
// each of them wants and has had (decision 25). It keeps nothing; FairShares (fair_share.h) keeps
// the figures and asks. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace openmps::worker {

// How much of a stream's work the driver may have beyond what runs, if no other session is in the
// way: the time that passes before the context can be quiescent, and long enough for a thread to
// come and give more (a wake-up is late by 0.1 ms as a rule).
inline constexpr uint64_t kWindowNs = 2'000'000;

// Of a session among the others. A lower value goes first.
enum class Rank : uint32_t {
  kLatency = 0,     // OPENMPS_QOS=latency
  kNormal = 1,      // MPS's priority 0
  kBestEffort = 2,  // MPS's priority 1, "below normal"
};

// What a session wants of a device.
struct Claim {
  Rank rank = Rank::kNormal;
  uint32_t sms = 0;      // SMs that its work keeps busy on average; 0: it copies only
  uint64_t used_ns = 0;  // FairShare::used_ns()
};

// How a session may go on until the policy is asked again.
struct Grant {
  uint64_t window_ns = kWindowNs;
  bool waits = false;  // none of its work for SMs is submitted: others come first
  // A session that waits for longer submits something nevertheless: work of the others may need
  // it.
  uint64_t longest_wait_ns = 50'000'000;
};

class Policy {
 public:
  Policy() = default;
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // `others`: the other sessions with unfinished work on the device, which has so many SMs.
  [[nodiscard]] virtual Grant decide(const Claim& mine, std::span<const Claim> others,
                                     uint32_t sms) const = 0;
};

// The default: competing sessions of a rank get equal parts of the device, and those of a higher
// rank go first. No session waits while the device has SMs for all, and none that copies only.
class FairSharePolicy : public Policy {
 public:
  // A session may be ahead of another by this, about the time of long kernels, and by so many times
  // what the other has had, since all figures are estimates. With half of it equal programs were
  // held back by turns, and eight of them took up to 18 % longer (decision 25).
  static constexpr uint64_t kLeadNs = 10'000'000;
  static constexpr uint64_t kLeadTimes = 3;
  // The window beside work of a higher rank, which comes behind what is in it.
  static constexpr uint64_t kShortWindowNs = 500'000;

  [[nodiscard]] Grant decide(const Claim& mine, std::span<const Claim> others,
                             uint32_t sms) const override;
};

// Work of a session runs only while no session of a higher rank wants SMs, for however long that
// is. Sessions of one rank do not wait for each other.
class StrictPriorityPolicy : public Policy {
 public:
  [[nodiscard]] Grant decide(const Claim& mine, std::span<const Claim> others,
                             uint32_t sms) const override;
};

inline constexpr char kDefaultPolicy[] = "fair";
// The policy that OPENMPS_POLICY calls `name`; null: there is none of that name.
[[nodiscard]] std::unique_ptr<Policy> make_policy(std::string_view name);
// All names, as a list for people.
[[nodiscard]] std::string policy_names();

// The driver's priority of a stream for which the program has asked for priority `asked`, in a
// session of that rank. The device has priorities from `least` to `greatest`, which is the lower
// number. Latency sessions get the greatest, best-effort ones the least, others what they ask for.
[[nodiscard]] int32_t driver_priority(Rank rank, int32_t asked, int32_t least, int32_t greatest);

}  // namespace openmps::worker
