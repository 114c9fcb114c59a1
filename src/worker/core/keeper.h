// SPDX-License-Identifier: Apache-2.0
// What the server keeps for a next worker: descriptors of the physical memory of this worker's
// sessions, and of images (wire/handshake.h: Keep). And what it has given to this worker of
// sessions that come from another one, or are in another one and share memory. One per worker, any
// thread; a worker without it keeps nothing, and its sessions can't move.
//
// To export memory takes the driver 600 to 850 us, and to close a descriptor of it 480 to 1,265 us
// (an H200, driver 580). So memory is exported on a thread of its own, once it has lived for a
// while, and the server closes on another thread. Memory is free only when the server has closed
// its descriptor, too: it says so by Forgotten.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "wire/handshake.h"

namespace openmps::worker {

// How long memory lives before it is exported: most that lives shorter never is. A session whose
// worker dies within that time is lost.
inline constexpr uint64_t kKeepAfterNs = 50'000'000;

// How long a session that finds no memory waits for the server to close descriptors: those of 2,000
// allocations at least.
inline constexpr uint64_t kForgottenMs = 3'000;

// How long a session waits for the server's answer about shared memory: some 0.1 ms, and as long as
// the server's process may be stopped.
inline constexpr uint64_t kAnswerMs = 3'000;

class Keeper;

// A session's memory that the server keeps until this ends.
class KeptMemory {
 public:
  KeptMemory() = default;
  KeptMemory(KeptMemory&& other) noexcept
      : keeper_(std::exchange(other.keeper_, nullptr)), memory_(other.memory_) {}
  KeptMemory& operator=(KeptMemory&& other) noexcept {
    std::swap(keeper_, other.keeper_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~KeptMemory();

  // wire::Keep::number; 0: nothing is kept.
  [[nodiscard]] uint64_t number() const { return keeper_ == nullptr ? 0 : memory_.number; }

 private:
  friend class Keeper;
  struct Memory {
    uint32_t session = 0;
    uint32_t device = 0;
    uint64_t number = 0;
    uint64_t bytes = 0;
  };
  KeptMemory(Keeper& keeper, const Memory& memory) : keeper_(&keeper), memory_(memory) {}

  Keeper* keeper_ = nullptr;
  Memory memory_;
};

class Keeper {
 public:
  // Sends a message to the server, with a descriptor or none. False: it could not be sent.
  using Send = std::function<bool(std::span<const std::byte> message, std::span<const int> fds)>;
  // `most`: how many descriptors are kept at once. `after_ns`: kKeepAfterNs.
  Keeper(uint64_t most, uint64_t after_ns, Send send)
      : most_(most), after_ns_(after_ns), send_(std::move(send)) {}
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Have the server keep a session's memory, later. `exported` makes a descriptor of it, on any
  // thread; invalid: it can't be exported. `number`: Journal::next_number(). Nothing is kept
  // (number() is 0) where `most` are.
  using Export = std::function<UniqueFd()>;
  [[nodiscard]] KeptMemory keep(uint32_t session, uint64_t number, uint64_t bytes, uint32_t device,
                                Export exported);
  // As keep(), at once: the caller has, and keeps, a descriptor. `bytes` 0: unknown. Nothing is
  // kept if the message can't be sent, either.
  [[nodiscard]] KeptMemory keep_now(uint32_t session, uint64_t number, uint64_t bytes,
                                    uint32_t device, int memory);
  // The session leaves for another worker: what the server keeps for it stays kept when it ends
  // here. Until begin().
  void leave(uint32_t session);
  // A session of that number begins in this worker.
  void begin(uint32_t session);
  // Something of the session is to be kept later.
  [[nodiscard]] bool has_waiting(uint32_t session);
  // Have the server keep now what it is to keep of the session later: the session is handed over.
  // Works after a kernel's fault, too.
  void keep_all_now(uint32_t session);
  // The memory's contents are in the file at `offset` from now on, and the memory will be released:
  // the server keeps that instead. Nothing if it keeps nothing.
  void set_contents(KeptMemory& kept, int file, uint64_t offset);
  // The contents are in memory of the device again, and change: the server keeps nothing until it
  // has been exported, as by keep().
  void set_memory(KeptMemory& kept, uint64_t bytes, Export exported);
  // Have the server keep an image, in a sealed file, under its hash. Each success counts until a
  // forget_image(). False: as keep().
  [[nodiscard]] bool keep_image(uint64_t hash, uint64_t bytes, int file);
  void forget_image(uint64_t hash);

  // ---- Memory that is on its way back ----
  // Bytes of a device of which the server, or the thread that exports, may still hold descriptors.
  [[nodiscard]] uint64_t on_way(uint32_t device) const {
    return on_way_[device].load(std::memory_order_relaxed);
  }
  // Wait until what has been released so far is closed everywhere. False: there was nothing, or it
  // took longer.
  bool wait_forgotten(uint64_t limit_ms = kForgottenMs);
  void on_forgotten(const wire::Forgotten& message);

  // ---- Sessions that come from another worker ----
  void on_give(const wire::Give& message, UniqueFd memory);
  // What the server has given, which stays kept until `kept` ends.
  struct Taken {
    UniqueFd memory;  // invalid: there is no such memory
    uint64_t bytes = 0;
    uint32_t device = 0;
    bool is_shared = false;    // other sessions may have it
    bool is_contents = false;  // of memory that is on no device: in that file,
    uint64_t offset = 0;       // there
    KeptMemory kept;
  };
  [[nodiscard]] Taken take(uint32_t session, uint64_t number);
  // The session has been made again, or will not be: the server closes what it did not need.
  void drop_given(uint32_t session);

  // ---- Memory that sessions of other workers may have ----
  // A wire::ShareKey.
  using ShareKey = std::span<const unsigned char, wire::kShareKeyBytes>;
  // Others get the memory by this key, from when this returns until withdraw() or the session's
  // end. What is not kept is not shared.
  void share(const KeptMemory& memory, ShareKey key);
  void withdraw(uint32_t session, ShareKey key);
  // Others may have the memory from now on, by a descriptor of the driver's.
  void note_exported(const KeptMemory& memory);
  // What a session of any worker shares by this key. `memory` invalid: nothing.
  struct Found {
    UniqueFd memory;
    uint64_t bytes = 0;
    uint32_t device = 0;
    bool is_shared = false;
    bool is_contents = false;
    uint64_t offset = 0;
  };
  [[nodiscard]] Found find(ShareKey key);

 private:
  friend class KeptMemory;
  using Memory = KeptMemory::Memory;
  using Key = std::pair<uint32_t, uint64_t>;  // session and number
  struct Waiting {
    Memory memory;
    Export exported;
    bool is_in_hand = false;   // a thread exports it
    bool is_released = false;  // meanwhile: the thread closes the descriptor
  };
  void forget(const Memory& memory);
  // The server has a descriptor of the memory when this returns.
  void export_now_locked(const Key& key) REQUIRES(mutex_);
  bool send_share(uint32_t session, uint64_t number, uint64_t ticket, ShareKey key);
  // Wait for the server's answer to what `send(ticket)` sends, kAnswerMs at most; the mutex is
  // given back meanwhile.
  template <typename F>
  Found ask_for_locked(F&& send) REQUIRES(mutex_);
  // The thread exports the memory when it is due.
  void wait_for_export_locked(const Memory& memory, Export exported) REQUIRES(mutex_);
  void run();
  // Export it and send it, if it is still there then. The mutex is given back meanwhile.
  void export_locked(const Key& key) REQUIRES(mutex_);
  bool send_keep(const Memory& memory, int file);
  // Ask the server for an answer when it has closed all that it was told to.
  void ask_locked() REQUIRES(mutex_);
  void send_forget_locked(const wire::Forget& message) REQUIRES(mutex_);

  const uint64_t most_;
  const uint64_t after_ns_;
  const Send send_;
  std::atomic<uint64_t> count_{0};  // of what is kept
  std::array<std::atomic<uint64_t>, wire::kMaxDevices> on_way_{};

  // Held while Keep and Forget of memory are sent, so that they, and tickets, are in their order.
  Mutex mutex_{LockRank::kKeeper};
  CondVar forgotten_;
  uint64_t asked_ GUARDED_BY(mutex_) = 0;  // the last ticket that was sent
  uint64_t answered_ GUARDED_BY(mutex_) = 0;
  struct Leaving {
    uint64_t ticket = 0;  // whose answer says that it is free: asked_ + 1 at most
    uint32_t device = 0;
    uint64_t bytes = 0;
  };
  std::deque<Leaving> leaving_ GUARDED_BY(mutex_);  // by ticket
  std::map<Key, Found> given_ GUARDED_BY(mutex_);
  // By ticket; without a value: not answered yet.
  std::map<uint64_t, std::optional<Found>> answers_ GUARDED_BY(mutex_);
  uint64_t last_question_ GUARDED_BY(mutex_) = 0;
  CondVar answer_came_;
  std::map<Key, Waiting> waiting_ GUARDED_BY(mutex_);
  std::set<uint32_t> left_ GUARDED_BY(mutex_);  // sessions that have left this worker
  uint64_t released_in_hand_ GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<uint64_t, Key>> due_ GUARDED_BY(mutex_);  // when, of those that were waiting
  CondVar exported_;  // one has been exported, or there is something for the thread
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // that exports; made with the first
};

}  // namespace openmps::worker
