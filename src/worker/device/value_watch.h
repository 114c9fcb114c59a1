// SPDX-License-Identifier: Apache-2.0
// One thread looks at the words in host memory that streams of all sessions wait for, and rings the
// bell of the session whose value has come. So no session needs a thread that wakes each
// millisecond (decision 25). The thread decides when an executor looks, and nothing else.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "cuda/status.h"
#include "wire/commands/stream.h"
#include "worker/device/background.h"

namespace openmps::worker {

// The word has the value that the wait is for, compared as the GPU does (CUstreamWaitValue_flags).
// The address can be read; the peer and the GPU write it.
[[nodiscard]] bool is_there(const wire::StreamValue& wait);

class ValueWatch {
  struct Word {
    std::shared_ptr<Bell> bell;
    wire::StreamValue wait;
    uint64_t since_ns;
    uint64_t next_ring_ns;
  };
  using Words = std::list<Word>;

 public:
  explicit ValueWatch(const Clock& clock) : clock_(clock) {}
  ~ValueWatch();
  ValueWatch(const ValueWatch&) = delete;
  ValueWatch& operator=(const ValueWatch&) = delete;

  // Error: no thread can be started, and watch() must not be called.
  Status start();

  // A word is looked at while its Row exists.
  class Row {
   public:
    Row() = default;
    Row(Row&& other) noexcept : watch_(std::exchange(other.watch_, nullptr)), word_(other.word_) {}
    Row& operator=(Row&& other) noexcept {
      std::swap(watch_, other.watch_);
      std::swap(word_, other.word_);
      return *this;
    }
    ~Row() {
      if (watch_ != nullptr) watch_->forget(word_);
    }

   private:
    friend class ValueWatch;
    Row(ValueWatch* watch, Words::iterator word) : watch_(watch), word_(word) {}
    ValueWatch* watch_ = nullptr;
    Words::iterator word_;
  };
  // Any thread. Throws std::bad_alloc.
  [[nodiscard]] Row watch(std::shared_ptr<Bell> bell, const wire::StreamValue& wait);

 private:
  void forget(Words::iterator word);
  void run();
  // Ring for the values that have come. Returns the time until the next look, in ns.
  uint64_t look(uint64_t now) REQUIRES(mutex_);

  const Clock& clock_;
  Mutex mutex_{LockRank::kValueWatch};
  CondVar news_;  // a word was added, or the thread is to end
  Words words_ GUARDED_BY(mutex_);
  bool ends_ GUARDED_BY(mutex_) = false;
  bool rests_ GUARDED_BY(mutex_) = false;  // the thread waits for news_
  std::thread thread_;
};

}  // namespace openmps::worker
