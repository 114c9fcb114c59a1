// SPDX-License-Identifier: Apache-2.0
// What outlives a worker: descriptors of the physical memory of sessions and of images, which
// workers have the server keep (wire/handshake.h: Keep) and which it gives to a next worker. Used
// by Server on the loop's thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "cuda/status.h"
#include "wire/handshake.h"

namespace openmps::server {

struct Worker;

// How long images are kept that a worker had which has ended: its sessions are made again by then.
inline constexpr uint64_t kKeptImageMs = 60'000;

class Kept {
 public:
  // Sends a message with a descriptor to a worker.
  using Send = std::function<void(std::span<const std::byte> message, std::span<const int> fds)>;

  // Tells a worker that what it has released up to that ticket is closed.
  using Answer = std::function<void(const Worker& worker, uint64_t ticket)>;

  // `most`: how many descriptors are kept.
  Kept(EventLoop& loop, uint64_t most, Answer answer)
      : loop_(loop), most_(most), answer_(std::move(answer)) {}
  ~Kept();
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  // ---- Memory ----
  // Keep the session's memory, or its contents, in place of what has been kept by that number; a
  // descriptor that does not fit, or did not come, is not kept.
  void keep_memory(const wire::Keep& message, UniqueFd memory);
  void forget_memory(uint32_t session, uint64_t number);
  // Some memory of the session is not kept: it can't move.
  [[nodiscard]] bool lacks_memory(uint32_t session) const { return lacking_.contains(session); }
  // Give all memory of the session to a worker.
  void give_memory(uint32_t session, const Send& send) const;
  // Workers get the session's memory by that key, until it is forgotten, or no longer (number 0).
  void share_memory(const wire::ShareMemory& message);
  // Give a worker the memory that it asks for, or say that there is none.
  void give_found(const wire::FindMemory& message, const Send& send) const;
  // Answer once all is closed that has been forgotten so far.
  void answer_when_closed(const Worker& worker, uint64_t ticket);
  // The session has ended: close all of it.
  void erase(uint32_t session);

  // ---- Images ----
  // The worker has the image, once more. True: it is new, and other workers are to be given it.
  // An image without a file that has not come before, or does not fit, is not kept.
  bool keep_image(const Worker& worker, const wire::Keep& message, UniqueFd file);
  // The worker has it no more, once. With `is_awaited` an image that no worker has is kept for
  // kKeptImageMs: sessions are between two workers.
  enum class Forgotten {
    kNo,      // the worker has it once more, or it is not kept
    kLeft,    // it is kept, and the worker is to be given it: a session may come back
    kClosed,  // no worker has it, and all are to be told
  };
  Forgotten forget_image(const Worker& worker, uint64_t hash, bool is_awaited);
  void give_images(const Send& send) const;
  void give_image(uint64_t hash, const Send& send) const;
  // The worker has ended. What it alone had is kept for kKeptImageMs.
  void on_worker_gone(const Worker& worker);
  // Images that are due to be closed now, and have been.
  [[nodiscard]] std::vector<uint64_t> close_old_images(uint64_t now_ns);

  [[nodiscard]] uint64_t count() const { return count_; }

 private:
  struct Memory {
    UniqueFd file;
    uint64_t bytes = 0;
    uint32_t device = 0;
    bool is_shared = false;    // other sessions or processes may have it, for good
    bool is_contents = false;  // of memory that is on no device
    uint64_t offset = 0;       // of contents
  };
  struct Image {
    UniqueFd file;
    uint64_t bytes = 0;
    std::map<const Worker*, uint64_t> had;  // how often by each worker
    uint64_t unused_ns = 0;                 // since when no worker has it
  };
  // A descriptor, or an answer that is due when those before it are closed.
  struct Closing {
    UniqueFd file;
    const Worker* worker = nullptr;
    uint64_t ticket = 0;
  };
  void close(Closing closing);
  void run_closer();
  void on_closed();

  EventLoop& loop_;
  const uint64_t most_;
  const Answer answer_;
  uint64_t count_ = 0;
  std::map<uint32_t, std::map<uint64_t, Memory>> memory_;  // by session and number
  std::set<uint32_t> lacking_;
  // Session and number by key. Keys of memory that was forgotten stay until the session's end.
  using ShareKey = std::array<unsigned char, wire::kShareKeyBytes>;
  std::map<ShareKey, std::pair<uint32_t, uint64_t>> shared_;
  std::map<uint64_t, Image> images_;  // by hash
  // Closing takes the driver 480 to 1,265 us each (an H200, driver 580), so a thread does it, which
  // is made with the first.
  UniqueFd closed_event_;  // eventfd: answers are due
  Mutex mutex_{LockRank::kKeptClosing};
  CondVar changed_;
  std::deque<Closing> closing_ GUARDED_BY(mutex_);
  std::vector<Closing> closed_ GUARDED_BY(mutex_);  // answers
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread closer_;
  std::set<const Worker*> asking_;  // workers that wait for an answer
};

}  // namespace openmps::server
