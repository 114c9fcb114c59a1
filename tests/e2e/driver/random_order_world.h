// SPDX-License-Identifier: Apache-2.0
// The objects of random_order.cc's programs: those that all programs use, and those that each one
// creates, with what the model and CUDA's rules know of them.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "random_order_acts.h"
#include "random_order_rules.h"

namespace e2e::random_order {

constexpr uint32_t kWordsEach = 256;  // words to wait for, in pinned and in device memory each

// A thread that writes values for the program at a later moment.
class Doorman {
 public:
  Doorman() : thread_([this] { work(); }) {}
  Doorman(const Doorman&) = delete;
  ~Doorman() {
    {
      const std::lock_guard guard(lock_);
      end_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  struct Store {
    uint64_t* word;
    uint32_t width;
    uint64_t value;
    void make() const {
      if (width == 8) {
        std::atomic_ref(*word).store(value, std::memory_order_release);
      } else {
        std::atomic_ref(*reinterpret_cast<uint32_t*>(word))
            .store(static_cast<uint32_t>(value), std::memory_order_release);
      }
    }
  };
  void tell(const Store& store, uint32_t hesitation) {
    {
      const std::lock_guard guard(lock_);
      told_.push_back({store, hesitation});
    }
    changed_.notify_all();
  }

 private:
  void work() {
    std::unique_lock guard(lock_);
    for (;;) {
      changed_.wait(guard, [this] { return end_ || !told_.empty(); });
      if (told_.empty()) return;
      const auto [store, hesitation] = told_.front();
      told_.pop_front();
      guard.unlock();
      for (uint32_t i = 0; i < hesitation; i++) std::this_thread::yield();
      store.make();
      guard.lock();
    }
  }
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<std::pair<Store, uint32_t>> told_;
  bool end_ = false;
  std::thread thread_;
};

// The objects that all programs use. The kernels have run once, because loading code may wait for
// streams that wait for something.
struct Ground {
  Session session;
  CUfunction blend = session.function("blend"), spin = session.function("spin"),
             store = session.function("store_at");
  uint64_t* host_words = nullptr;
  CUdeviceptr device_words = 0, scratch = 0;
  CUstream capturing[2] = {};
  Doorman doorman;

  Ground() {
    void* words = nullptr;
    CHECK_CU(cuMemHostAlloc(&words, kWordsEach * 8, CU_MEMHOSTALLOC_DEVICEMAP));
    host_words = static_cast<uint64_t*>(words);
    CHECK_CU(cuMemAlloc_v2(&device_words, kWordsEach * 8));
    CHECK_CU(cuMemAlloc_v2(&scratch, kStreamsEver * 4 + kActBytes));
    for (CUstream& stream : capturing) CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch(blend, 1, kActWords, 0, nullptr, scratch, scratch, kActWords, 0u);
    launch(spin, 1, 1, 0, nullptr, scratch, 1u);
    launch(store, 1, 1, 0, nullptr, scratch, 1u);
    CHECK_CU(cuCtxSynchronize());
  }
  Ground(const Ground&) = delete;
  ~Ground() {
    for (CUstream stream : capturing) CHECK_CU(cuStreamDestroy_v2(stream));
    CHECK_CU(cuMemFree_v2(scratch));
    CHECK_CU(cuMemFree_v2(device_words));
    CHECK_CU(cuMemFreeHost(host_words));
  }
};

struct Stream {
  CUstream handle = nullptr;
  uint32_t id = 0;       // its ID in the rules
  bool is_ours = false;  // the program may destroy it
};

struct Event {
  CUevent handle = nullptr;
  bool recorded = false;
  Clock clock;  // the clock of the last record
};

struct Buffer : ActBuffer {
  // The last operations of each stream that may use the buffer, and the last one that wrote to it.
  std::array<uint32_t, kStreamsEver> touched{};
  Operation written;
};

// A word that is written once, and the condition for which streams wait there.
struct Door {
  CUdeviceptr address = 0;
  uint64_t* host = nullptr;
  uint32_t width = 4;
  unsigned flags = CU_STREAM_WAIT_VALUE_GEQ;
  uint64_t value = 0;   // the value that is written
  uint64_t wanted = 0;  // the value in the condition of a wait
  bool is_gate = false;
  uint32_t gate = 0;
  Clock clock;  // what a wait comes behind: the writer, or the gate

  // A condition, and a value that fulfils it where the word's first one does not.
  void choose(Random& random) {
    width = random.below(3) == 0 ? 8 : 4;
    // No compared value has its highest bit set, so the cyclic comparison of GEQ is an ordinary
    // one.
    value = 2 + random.below(1'000'000);
    if (width == 8) value |= static_cast<uint64_t>(random.below(1000)) << 32;
    switch (random.below(host == nullptr ? 3 : 4)) {
      case 0: wanted = 1 + random.next() % value; break;
      case 1:
        flags = CU_STREAM_WAIT_VALUE_EQ;
        wanted = value;
        break;
      case 2:
        flags = CU_STREAM_WAIT_VALUE_AND;
        wanted = value | random.below(1000);
        break;
      default:
        flags = CU_STREAM_WAIT_VALUE_NOR;
        value &= ~1ull;
        wanted = random.below(1000) & ~1u;
        *host = ~0ull;
    }
  }
};

struct Exec {
  CUgraphExec handle = nullptr;
  bool captured = false;
  bool marked = false;  // the graph records an event at its end
  std::vector<Act> acts;
  Clock launched;  // the clock of the last launch
};

}  // namespace e2e::random_order
