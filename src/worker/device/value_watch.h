// SPDX-License-Identifier: Apache-2.0
// One thread that looks at the words in host memory that streams of all sessions wait for, and
// rings for the session whose word has come. So a session that waits costs nobody a thread that
// wakes each millisecond (decision 25). What it sees decides when an executor looks, nothing else.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "cuda/status.h"
#include "wire/commands/stream.h"
#include "worker/device/background.h"

namespace openmps::worker {

// The word is as the wait wants it, compared as the GPU does (CUstreamWaitValue_flags). The address
// can be read; the peer and the GPU write it.
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
  ValueWatch() = default;
  ~ValueWatch();
  ValueWatch(const ValueWatch&) = delete;
  ValueWatch& operator=(const ValueWatch&) = delete;

  // Without a thread to be had: the error. Then nothing is to be watched.
  Status start();

  // A word is looked at for as long as this lives.
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
  // Rings for what has come. How long the next look has time.
  uint64_t look(uint64_t now);

  std::mutex mutex_;
  std::condition_variable news_;  // a word, or the end
  Words words_;                   // guarded by mutex_
  bool ends_ = false;             // likewise
  bool rests_ = false;            // likewise: the thread waits for news
  std::thread thread_;
};

}  // namespace openmps::worker
