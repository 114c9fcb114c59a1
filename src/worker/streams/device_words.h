// SPDX-License-Identifier: Apache-2.0
// Words in device memory that held waits name. The worker can't read them, so the GPU copies them
// to host memory, in streams made for that, whenever admission looks. A copy may be outdated: it
// decides when a wait is submitted, and the GPU compares once more (decision 17). Session's thread
// only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/shared_memory.h"
#include "wire/commands/stream.h"
#include "worker/core/session_core.h"
#include "worker/streams/side_streams.h"

namespace openmps::worker {

class DeviceWords {
 public:
  // At most so many words of a session: one for the first item of each stream.
  static constexpr uint32_t kRows = wire::kMaxStreams;

  explicit DeviceWords(SessionCore& core) : core_(core) {}
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;

  // A word that is read for as long as this object exists.
  class Row {
   public:
    // The word is in memory of that device, or read by that device. Throws std::bad_alloc.
    Row(DeviceWords& words, const wire::StreamValue& wait, uint32_t device)
        : words_(words), wait_(wait), device_(device), row_(words.take(device)) {}
    Row(const Row&) = delete;
    Row& operator=(const Row&) = delete;
    ~Row() {
      if (row_) words_.free_.push_back(*row_);
    }
    // The wait was satisfied by the word as it was read last. If not, the word is read again.
    [[nodiscard]] bool has_come();

   private:
    DeviceWords& words_;
    const wire::StreamValue wait_;
    const uint32_t device_;
    const std::optional<uint32_t> row_;  // nothing: no memory for it, the word is never read
    bool asked_ = false;
  };

  // No copy is under way: the memory that copies read may go. After a fault none is.
  [[nodiscard]] bool idle() const { return readers_.idle(); }
  // Wait until idle(): some microseconds, or as long as copies of other sessions before these.
  void settle() const;
  void release_all();

 private:
  // What a copy writes: the value, and behind it the number of the copy.
  struct Slot {
    uint64_t value;
    std::atomic<uint32_t> came;
    uint32_t asked;
  };
  struct Page {
    std::shared_ptr<Mapping> mapping;  // of slots; registered with the driver
    uint64_t delta = 0;                // from its address to the GPU's address of it
  };
  static constexpr uint32_t kRowsOfPage = wire::kHostPageBytes / sizeof(Slot);
  static_assert(kRows % kRowsOfPage == 0);

  [[nodiscard]] bool add_page();
  std::optional<uint32_t> take(uint32_t device);
  [[nodiscard]] Slot& slot(uint32_t row) const {
    return static_cast<Slot*>(pages_[row / kRowsOfPage].mapping->address())[row % kRowsOfPage];
  }
  [[nodiscard]] bool is_under_way(const Slot& slot) const {
    return slot.came.load(std::memory_order_acquire) != slot.asked;
  }
  Status ask(uint32_t row, const wire::StreamValue& wait, uint32_t device);

  SessionCore& core_;
  std::vector<Page> pages_;     // as many as have been needed at once
  std::vector<uint32_t> free_;  // rows; its capacity is enough for all
  SideStreams readers_{core_, 1};
};

}  // namespace openmps::worker
