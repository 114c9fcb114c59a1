// SPDX-License-Identifier: Apache-2.0
// Which session's work is submitted first if several want one device: a replaceable function of the
// SMs that each wants and its use of late (decision 25). A policy has no state; FairShares
// (fair_share.h) has the figures and calls it. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace openmps::worker {

// The expected time of the work that the driver may have of a stream beyond what runs, if no other
// session competes. It is short, since the context cannot be quiescent before, and long enough for
// a thread to wake (0.1 ms late as a rule) and submit more.
inline constexpr uint64_t kWindowNs = 2'000'000;

// A session's rank. Work of a lower value goes first.
enum class Rank : uint32_t {
  kLatency = 0,     // OPENMPS_QOS=latency
  kNormal = 1,      // MPS's priority 0
  kBestEffort = 2,  // MPS's priority 1, "below normal"
};

// What a policy knows of a session on a device. A queue credit's claim is something else.
struct Claim {
  Rank rank = Rank::kNormal;
  uint32_t sms = 0;      // SMs that its work keeps busy on average; 0: it copies only
  uint64_t used_ns = 0;  // FairShare::used_ns()
};

// The policy's decision on a session, in force until the next one.
struct Grant {
  uint64_t window_ns = kWindowNs;
  bool waits = false;  // its work that needs SMs is held: others come first
  // A session that has waited longer may submit work nevertheless: other sessions' work may depend
  // on it.
  uint64_t longest_wait_ns = 50'000'000;
};

class Policy {
 public:
  Policy() = default;
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // `others`: the other sessions with unfinished work on the device. `sms`: SMs of the device.
  [[nodiscard]] virtual Grant decide(const Claim& mine, std::span<const Claim> others,
                                     uint32_t sms) const = 0;
};

// The default: sessions of a rank that compete get equal parts of the device, and those of a higher
// rank go first. No session waits while the device has enough SMs for all, or if it copies only.
class FairSharePolicy : public Policy {
 public:
  // A session waits for another if its use is more than kLeadTimes times the other's plus kLeadNs,
  // about the time of long kernels: so much, since these figures are estimates. With half of that,
  // equal programs were held in turn, and eight of them took up to 18 % longer (decision 25).
  static constexpr uint64_t kLeadNs = 10'000'000;
  static constexpr uint64_t kLeadTimes = 3;
  // The window while a higher rank has work, which runs after what is in the window already.
  static constexpr uint64_t kShortWindowNs = 500'000;

  [[nodiscard]] Grant decide(const Claim& mine, std::span<const Claim> others,
                             uint32_t sms) const override;
};

// Work of a session is submitted only while no session of a higher rank wants SMs, without a limit
// of time. Sessions of one rank do not wait for each other.
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
