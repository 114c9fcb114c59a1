// SPDX-License-Identifier: Apache-2.0
// Credits for the hardware queues of a context. A context has at most 32 of them, and a stream
// whose next item can't start occupies one: while all are occupied no other stream makes progress,
// whatever its priority (measured on an H200, decision 23). A lone running kernel occupies none,
// nor does a graph. So a stream needs a credit to queue work behind work that runs, or to wait on
// the GPU for anything else; a stream without one is given one item at a time. Every credit is an
// object that gives itself back.
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
// One that a counter has counted; the counter forgets it when this object goes. Empty: none.
using CountToken = std::unique_ptr<std::atomic<int32_t>, CountDown>;

// For how long a credit is needed, as far as is known.
enum class CreditTerm : uint8_t {
  kShort,    // it comes back within kLongNs (durations.h)
  kUnknown,  // nobody knows when, or later than that
};

struct QueueCredit : CountToken {
  using CountToken::CountToken;
};
// A stream has asked for a credit in vain: it comes before those that have not asked yet.
struct QueueCreditClaim : CountToken {
  QueueCreditClaim() = default;
  QueueCreditClaim(std::atomic<int32_t>* counter, CreditTerm term)
      : CountToken(counter), term(term) {}
  CreditTerm term = CreditTerm::kUnknown;
};

// Of one device. Thread-safe.
class QueueCredits {
 public:
  // Hardware queues for what takes no credit: fences of legacy streams, wakes of a client's
  // threads, graphs that wait inside.
  static constexpr int32_t kSpare = 4;

  // The context has so many hardware queues. Before anybody takes a credit.
  void set_queues(uint32_t queues) { most_ = std::max(1, static_cast<int32_t>(queues) - kSpare); }
  [[nodiscard]] int32_t most() const { return most_; }
  // At most so many credits have an unknown term: the others are for work that ends soon.
  [[nodiscard]] int32_t most_unknown() const { return most_ - most_ / 2; }
  // Some credits are kept for short terms. Of a device with one credit none is.
  [[nodiscard]] bool keeps_some() const { return most_unknown() < most_; }

  // Empty: none is free for that term. A stream without a claim leaves the free ones to the streams
  // that have claims: for a short term to those of a short term.
  [[nodiscard]] QueueCredit try_take(bool has_claim, CreditTerm term) {
    const bool is_short = term == CreditTerm::kShort;
    const int32_t claims =
        is_short ? claims_of(term).load(std::memory_order_relaxed) : all_claims();
    const int32_t kept = (has_claim ? 0 : claims) + (is_short ? 0 : most_ / 2);
    return QueueCredit(count_below(taken_, most_ - kept));
  }
  // The credit whose holder has called release(): from now on it is this object.
  [[nodiscard]] QueueCredit adopt() { return QueueCredit(&taken_); }
  [[nodiscard]] QueueCreditClaim claim(CreditTerm term) {
    claims_of(term).fetch_add(1, std::memory_order_relaxed);
    return {&claims_of(term), term};
  }
  // Some stream has a claim: a stream that has a credit should give it back before long.
  [[nodiscard]] bool are_wanted() const { return all_claims() > 0; }

 private:
  friend class WaitCredits;

  // The counter, if it has counted one more without getting beyond `most`; else null.
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
  std::atomic<int32_t> waits_{0};  // WaitCredits of all sessions
};

// A stream may wait on the GPU for something else than its own work. Nobody knows the end of such a
// wait, so few streams of a device and of a session may do so at a time.
struct WaitCredit {
  CountToken of_device;
  CountToken of_session;
  explicit operator bool() const { return of_device != nullptr; }
};

// Of one session on one device. Session's thread.
class WaitCredits {
 public:
  // On NVIDIA's driver with the default number of queues the eighth waiting stream of a program
  // stops all its other streams: no program relies on more than seven.
  static constexpr int32_t kMost = 7;

  // Empty: the session has kMost, or streams of the device have QueueCredits::most_unknown().
  [[nodiscard]] WaitCredit try_take(QueueCredits& device) {
    WaitCredit credit;
    credit.of_session.reset(QueueCredits::count_below(taken_, kMost));
    if (credit.of_session == nullptr) return {};
    credit.of_device.reset(QueueCredits::count_below(device.waits_, device.most_unknown()));
    return credit.of_device != nullptr ? std::move(credit) : WaitCredit();
  }
  // A stream of the session is refused a wait, and looks from time to time whether it is over.
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
