// SPDX-License-Identifier: Apache-2.0
// See value_watch.h.
#include "worker/device/value_watch.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <type_traits>

namespace openmps::worker {
namespace {

// The pause between two looks is a sixteenth of the time that the youngest word has been watched,
// between the time of a few wake-ups of a thread and a millisecond (decision 17).
constexpr uint64_t kPauseShare = 16;
constexpr uint64_t kShortestPauseNs = 20'000;
constexpr uint64_t kLongestPauseNs = 1'000'000;
// A session that was rung for and has not submitted its work, because other work is before it, is
// rung for again after this time.
constexpr uint64_t kRingAgainNs = 1'000'000;

}  // namespace

bool is_there(const wire::StreamValue& wait) {
  const auto compare = [&wait](auto now, auto wanted) {
    using Signed = std::make_signed_t<decltype(now)>;
    switch (wait.flags & CU_STREAM_WAIT_VALUE_NOR) {
      case CU_STREAM_WAIT_VALUE_EQ: return now == wanted;
      case CU_STREAM_WAIT_VALUE_AND: return (now & wanted) != 0;
      case CU_STREAM_WAIT_VALUE_NOR: return static_cast<decltype(now)>(~(now | wanted)) != 0;
      default: return static_cast<Signed>(now - wanted) >= 0;
    }
  };
  if (wait.width == 8) {
    auto& word = *reinterpret_cast<uint64_t*>(wait.address);
    return compare(std::atomic_ref(word).load(std::memory_order_acquire), wait.value);
  }
  auto& word = *reinterpret_cast<uint32_t*>(wait.address);
  return compare(std::atomic_ref(word).load(std::memory_order_acquire),
                 static_cast<uint32_t>(wait.value));
}

Status ValueWatch::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, error.what());
  }
  pthread_setname_np(thread_.native_handle(), "values");
  return Status();
}

ValueWatch::~ValueWatch() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  news_.notify_one();
  thread_.join();
}

ValueWatch::Row ValueWatch::watch(std::shared_ptr<Bell> bell, const wire::StreamValue& wait) {
  Words one;
  const uint64_t now = clock_.now_ns();
  one.push_back({std::move(bell), wait, now, now});
  const auto word = one.begin();
  bool rests = false;
  {
    const MutexLock lock(mutex_);
    words_.splice(words_.end(), one);
    rests = rests_;
  }
  if (rests) news_.notify_one();
  return Row(this, word);
}

void ValueWatch::forget(Words::iterator word) {
  Words one;
  const MutexLock lock(mutex_);
  one.splice(one.end(), words_, word);
}

// The youngest word is the last. A word that is added while the thread pauses is first looked at
// after the pause; its session looks meanwhile, as long as it spins.
uint64_t ValueWatch::look(uint64_t now) {
  for (Word& word : words_) {
    if (now < word.next_ring_ns || !is_there(word.wait)) continue;
    word.bell->ring();
    word.next_ring_ns = now + kRingAgainNs;
  }
  return std::clamp((now - words_.back().since_ns) / kPauseShare, kShortestPauseNs,
                    kLongestPauseNs);
}

void ValueWatch::run() {
  const MutexLock lock(mutex_);
  while (!ends_) {
    if (words_.empty()) {
      rests_ = true;
      while (!ends_ && words_.empty()) news_.wait(mutex_);
      rests_ = false;
      continue;
    }
    const uint64_t now = clock_.now_ns();
    const uint64_t next_ns = now + look(std::max(now, words_.back().since_ns));
    while (!ends_ && news_.wait_until(mutex_, next_ns)) {
    }
  }
}

}  // namespace openmps::worker
