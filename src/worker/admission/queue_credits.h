// SPDX-License-Identifier: Apache-2.0
// Credits for the hardware queues of a device's main context, which has at most 32 of them (CUDA
// calls them connections). A stream occupies one from the submission of an item that can't start
// yet until that item starts. While all are occupied no other stream makes progress, whatever its
// priority (measured on an H200, decision 23). What runs occupies none. So a stream needs a credit
// to queue work behind unfinished work, or to wait on the GPU for something other than its own
// work. A stream without a credit is given one item at a time, with nothing behind it. A credit is
// returned when the object that stands for it is destroyed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace openmps::worker {

struct CountDown {
  void operator()(std::atomic<int32_t>* counter) const {
    counter->fetch_sub(1, std::memory_order_relaxed);
  }
};
// One unit of a counter: of credits that are taken, of claims, of streams that poll. The destructor
// subtracts it from the counter. Empty: no unit.
using CountToken = std::unique_ptr<std::atomic<int32_t>, CountDown>;

// For how long a stream will need a queue credit, as far as is known.
enum class CreditTerm : uint8_t {
  kShort,    // what it is taken for is expected to end within kShortTermNs (durations.h)
  kUnknown,  // later than that, or the time is not known
};

struct QueueCredit : CountToken {
  using CountToken::CountToken;
};
// A stream whose work was refused for want of a credit has a claim until it gets one or all its
// work has ended, and comes before streams without a claim.
struct QueueCreditClaim : CountToken {
  QueueCreditClaim() = default;
  QueueCreditClaim(std::atomic<int32_t>* counter, CreditTerm term)
      : CountToken(counter), term(term) {}
  CreditTerm term = CreditTerm::kUnknown;
};

// The credits of one device, for streams in its main context. Work for a cold stream takes one for
// the client's stream, which waits for it. Thread-safe.
class QueueCredits {
 public:
  // Hardware queues kept back for what takes no credit: fences of legacy streams, graphs whose
  // nodes wait, records of another device's events. Nothing bounds how many of these there are;
  // four have been enough (decision 23).
  static constexpr int32_t kSpare = 4;

  // Sets how many hardware queues the context has. To be called before a credit is taken.
  void set_queues(uint32_t queues) { most_ = std::max(1, static_cast<int32_t>(queues) - kSpare); }
  [[nodiscard]] int32_t most() const { return most_; }
  // A credit for an unknown term is given only while fewer than so many of all credits are taken,
  // whatever their terms.
  [[nodiscard]] int32_t unknown_limit() const { return most_ - most_ / 2; }
  // The other credits are given for short terms only. False: there are none, since the device has
  // only one credit.
  [[nodiscard]] bool reserves_for_short() const { return unknown_limit() < most_; }

  // Empty: no credit is free for that term. A stream without a claim takes one only if one is left
  // for each claim: of claims for a short term if it asks for a short term, else of all claims.
  [[nodiscard]] QueueCredit try_take(bool has_claim, CreditTerm term) {
    const bool is_short = term == CreditTerm::kShort;
    const int32_t claims =
        is_short ? claims_of(term).load(std::memory_order_relaxed) : all_claims();
    const int32_t kept = (has_claim ? 0 : claims) + (is_short ? 0 : most_ / 2);
    return QueueCredit(count_below(taken_, most_ - kept));
  }
  // Makes a token again of a credit whose token was given up with unique_ptr::release(), to pass
  // through a host function of the driver's.
  [[nodiscard]] QueueCredit adopt() { return QueueCredit(&taken_); }
  [[nodiscard]] QueueCreditClaim claim(CreditTerm term) {
    claims_of(term).fetch_add(1, std::memory_order_relaxed);
    return {&claims_of(term), term};
  }
  // Some stream has a claim, so streams that have credits should give them back before long.
  [[nodiscard]] bool are_wanted() const { return all_claims() > 0; }

 private:
  friend class WaitCredits;

  // Adds one to the counter and returns it if it was below `most`; else returns null.
  static std::atomic<int32_t>* count_below(std::atomic<int32_t>& counter, int32_t most) {
    int32_t count = counter.load(std::memory_order_relaxed);
    while (count < most) {
      if (counter.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) {
        return &counter;
      }
    }
    return nullptr;
  }
  std::atomic<int32_t>& claims_of(CreditTerm term) {
    return term == CreditTerm::kShort ? short_claims_ : unknown_claims_;
  }
  [[nodiscard]] int32_t all_claims() const {
    return short_claims_.load(std::memory_order_relaxed) +
           unknown_claims_.load(std::memory_order_relaxed);
  }

  int32_t most_ = 28;
  std::atomic<int32_t> taken_{0};
  std::atomic<int32_t> short_claims_{0};
  std::atomic<int32_t> unknown_claims_{0};
  std::atomic<int32_t> waits_{0};  // wait credits taken by all sessions
};

// Lets a stream wait on the GPU for something other than its own work; taken in addition to a queue
// credit for an unknown term. The end of such a wait is unknown, so few streams of a device and of
// a session may do so at a time.
struct WaitCredit {
  CountToken of_device;
  CountToken of_session;
  explicit operator bool() const { return of_device != nullptr; }
};

// The wait credits of one session on one device. Session's thread only.
class WaitCredits {
 public:
  // With the driver's default of 8 queues, the eighth waiting stream of a program stops all its
  // other streams: no program relies on more than seven.
  static constexpr int32_t kMost = 7;

  // Empty: the session has taken kMost, or all sessions unknown_limit() of the device.
  [[nodiscard]] WaitCredit try_take(QueueCredits& device) {
    WaitCredit credit;
    credit.of_session.reset(QueueCredits::count_below(taken_, kMost));
    if (credit.of_session == nullptr) return {};
    credit.of_device.reset(QueueCredits::count_below(device.waits_, device.unknown_limit()));
    return credit.of_device != nullptr ? std::move(credit) : WaitCredit();
  }
  // A token for a stream that got no wait credit and polls the condition of its wait meanwhile.
  [[nodiscard]] CountToken count_polling() {
    polling_.fetch_add(1, std::memory_order_relaxed);
    return CountToken(&polling_);
  }
  // How many streams of the session poll.
  [[nodiscard]] uint64_t polling() const { return static_cast<uint64_t>(polling_); }

 private:
  std::atomic<int32_t> taken_{0};
  std::atomic<int32_t> polling_{0};
};

}  // namespace openmps::worker
