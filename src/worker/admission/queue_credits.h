// SPDX-License-Identifier: Apache-2.0
// Credits for the hardware queues of a context. A context has at most 32 of them, and a stream
// whose next item can't start occupies one: while all are occupied no other stream makes progress,
// whatever its priority (measured on an H200, decision 23). A running kernel or graph with nothing
// behind it occupies none. So a stream needs a credit to queue work behind unfinished work, or to
// wait on the GPU for something other than its own work; of a stream without a credit one item at a
// time is submitted. A credit is returned when the object that stands for it is destroyed.
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
// One unit of a counter; the destructor subtracts it from the counter. Empty: no unit.
using CountToken = std::unique_ptr<std::atomic<int32_t>, CountDown>;

// For how long a stream will need a queue credit, as far as is known.
enum class CreditTerm : uint8_t {
  kShort,    // the credit is given back within kLongNs (durations.h)
  kUnknown,  // later than that, or the time is not known
};

struct QueueCredit : CountToken {
  using CountToken::CountToken;
};
// A stream that was refused a credit has a claim, and comes before streams without one.
struct QueueCreditClaim : CountToken {
  QueueCreditClaim() = default;
  QueueCreditClaim(std::atomic<int32_t>* counter, CreditTerm term)
      : CountToken(counter), term(term) {}
  CreditTerm term = CreditTerm::kUnknown;
};

// The credits of one device. Thread-safe.
class QueueCredits {
 public:
  // Hardware queues left for what takes no credit: fences of legacy streams, values written to wake
  // a client's threads, graphs whose nodes wait.
  static constexpr int32_t kSpare = 4;

  // Sets how many hardware queues the context has. To be called before a credit is taken.
  void set_queues(uint32_t queues) { most_ = std::max(1, static_cast<int32_t>(queues) - kSpare); }
  [[nodiscard]] int32_t most() const { return most_; }
  // The most credits of an unknown term. The others are for work that ends soon (kShort).
  [[nodiscard]] int32_t most_unknown() const { return most_ - most_ / 2; }
  // Some credits are kept for short terms: true if the device has more than one credit.
  [[nodiscard]] bool keeps_some() const { return most_unknown() < most_; }

  // Empty: no credit is free for that term. For a stream without a claim those that streams with
  // claims are waiting for are not free: of all claims, or for a short term, of short claims only.
  [[nodiscard]] QueueCredit try_take(bool has_claim, CreditTerm term) {
    const bool is_short = term == CreditTerm::kShort;
    const int32_t claims =
        is_short ? claims_of(term).load(std::memory_order_relaxed) : all_claims();
    const int32_t kept = (has_claim ? 0 : claims) + (is_short ? 0 : most_ / 2);
    return QueueCredit(count_below(taken_, most_ - kept));
  }
  // Makes a token again of a credit whose token was released with unique_ptr::release().
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

// Lets a stream wait on the GPU for something other than its own work. The end of such a wait is
// unknown, so few streams of a device and of a session may do so at a time.
struct WaitCredit {
  CountToken of_device;
  CountToken of_session;
  explicit operator bool() const { return of_device != nullptr; }
};

// The wait credits of one session on one device. Session's thread only.
class WaitCredits {
 public:
  // On NVIDIA's driver with the default number of queues the eighth waiting stream of a program
  // stops all its other streams: no program relies on more than seven.
  static constexpr int32_t kMost = 7;

  // Empty: the session has taken kMost, or all sessions most_unknown() of the device.
  [[nodiscard]] WaitCredit try_take(QueueCredits& device) {
    WaitCredit credit;
    credit.of_session.reset(QueueCredits::count_below(taken_, kMost));
    if (credit.of_session == nullptr) return {};
    credit.of_device.reset(QueueCredits::count_below(device.waits_, device.most_unknown()));
    return credit.of_device != nullptr ? std::move(credit) : WaitCredit();
  }
  // A token to be kept while a stream is refused a wait and polls the wait's condition.
  [[nodiscard]] CountToken count_refused() {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return CountToken(&refused_);
  }
  [[nodiscard]] uint64_t refused() const { return static_cast<uint64_t>(refused_); }

 private:
  std::atomic<int32_t> taken_{0};
  std::atomic<int32_t> refused_{0};
};

}  // namespace openmps::worker
