// SPDX-License-Identifier: Apache-2.0
// The memory of a session: physical device memory mapped into its window and its extents, host
// memory registered with the driver, and the globals of its modules. What a session holds counts
// against the client's limit, and what is accessible is what commands may name. Session's thread
// only.
//
// Physical memory is created so that it can be exported: the server will keep a descriptor of every
// object, which is what lets memory outlive a faulted worker.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

#include "wire/commands/code.h"
#include "wire/commands/device.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/memory/address_book.h"
#include "worker/memory/host_pages.h"
#include "worker/memory/memory_cache.h"
#include "worker/memory/physical_memory.h"
#include "worker/memory/work_range.h"
#include "worker/partitions/session_group.h"

namespace openmps::worker {

// Device memory that counts against what a session may have, and its group, until this goes. What
// another session finds kept and gives back goes on its thread.
class Charge {
 public:
  // These count already. `granted`: of the session on that device. `share`: null: it is in no
  // group.
  Charge(std::atomic<uint64_t>& granted, uint64_t bytes, std::shared_ptr<GroupCharge> share)
      : granted_(granted), bytes_(bytes), share_(std::move(share)) {}
  ~Charge() { granted_ -= bytes_; }
  Charge(Charge&& other) noexcept
      : granted_(other.granted_),
        bytes_(std::exchange(other.bytes_, 0)),
        share_(std::move(other.share_)) {}
  Charge& operator=(Charge&&) = delete;

  // Of the same session and device.
  void add(Charge&& more) {
    bytes_ += std::exchange(more.bytes_, 0);
    if (share_ != nullptr && more.share_ != nullptr) share_->add(*more.share_);
  }
  // The memory is that of others of the group, too, and counts once.
  void share_with(Physical& physical, const SessionGroup* group) {
    if (share_ != nullptr) share_ = physical.charge(group, std::move(share_));
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  std::atomic<uint64_t>& granted_;
  uint64_t bytes_;
  std::shared_ptr<GroupCharge> share_;
};

// A session's share in physical memory, counted once for as long as a mapping or a handle needs it.
struct Holding {
  Holding(std::shared_ptr<Physical> memory, Charge counted)
      : physical(std::move(memory)), charge(std::move(counted)) {}

  const std::shared_ptr<Physical> physical;
  Charge charge;  // of memory of unknown size: as far as it has been mapped; session's thread
};

class SessionMemory {
 public:
  SessionMemory(SessionCore& core, AddressBook& addresses, MemoryCache& kept)
      : core_(core), group_(core.info.group), addresses_(addresses), kept_(kept) {}

  // The session may name the part of the channel that the GPU reads and writes.
  Status open_channel();

  // ---- Addresses ----
  Status handle(const wire::AddressReserve& command, ReplyTo<wire::AddressReserve> reply);
  Status handle(const wire::AddressFree& command);

  // ---- Device memory ----
  // Physical memory appears in the window. CUDA_ERROR_OUT_OF_MEMORY beyond the limit of the client
  // or of its group, as CUDA_MPS_PINNED_DEVICE_MEM_LIMIT behaves. CUDA_ERROR_NOT_READY: the range
  // is being unmapped, and is not to be had as it was.
  Status map(const wire::MemoryMap& range);
  // Whole mappings only, at once: whether something still uses them is the program's affair.
  Status unmap(uint64_t address, uint64_t bytes);
  // The same in two steps. From the first on nobody may name the memory; the second comes when
  // nothing of the session that was under way then still runs, and gives it back or keeps it for
  // the next map() of the range (wire::kUnmapKeep). Between the two the range can only be mapped as
  // it was.
  Status begin_unmap(const wire::MemoryUnmap& range, uint64_t* ticket);
  void finish_unmap(const wire::MemoryUnmap& range, uint64_t ticket);
  // Give back what has been kept for long. When to look again; 0: nothing is kept.
  uint64_t give_back_old();
  // Memory is short: give back what is kept of all sessions. False: nothing is.
  bool give_back_kept() { return kept_.clear_all(core_.driver); }
  // Others than this session may reach the memory from now on: it is never used again.
  void lend(uint64_t address, uint64_t bytes);
  // New physical memory within the limit; `flags` as of wire::PhysicalCreate.
  Status create(uint32_t device, uint64_t bytes, uint32_t flags, std::shared_ptr<Holding>* holding);
  // A share in memory that is there already. CUDA_ERROR_OUT_OF_MEMORY beyond the limit.
  Status hold(std::shared_ptr<Physical> physical, std::shared_ptr<Holding>* holding);
  // A part of what is held appears at free addresses; nobody can use it yet.
  Status map_held(std::shared_ptr<Holding> holding, uint64_t address, uint64_t bytes,
                  uint64_t offset);
  Status handle(const wire::MemoryAccess& command);
  // The mapping that begins there; null: none.
  [[nodiscard]] std::shared_ptr<Holding> mapped_at(uint64_t address) const;
  // Device memory is mapped at every byte of the range, all on one device, whether or not the
  // session has access. CUDA_ERROR_INVALID_VALUE: it is not.
  [[nodiscard]] Status find_mapped(uint64_t address, uint64_t bytes, uint32_t* device) const;
  // Copies of `device` are to reach the range: CUDA's do, peers or not, but for mappings of the
  // program's own. Where the hardware can't, the driver refuses the copy.
  void open_to_copies(const WorkRange& range, uint32_t device);
  // What is on `peer` becomes accessible from `device`, or stops being so.
  Status handle(const wire::PeerAccess& command);

  // ---- Host memory ----
  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: pages of the program's that the driver has not let
  // go of since they were unregistered.
  Status register_host(const wire::HostRegister& command);
  // The addresses at which the program has its pages, or others. CUDA_ERROR_OUT_OF_MEMORY: there
  // are none.
  Status reserve_host(const wire::HostReserve& range, uint64_t* address);
  // Violations; then a file's pages appear there.
  [[nodiscard]] Status check_host_map(const wire::HostMap& command) const;
  Status map_host(const wire::HostMap& command, int file);
  Status handle(const wire::HostFree& command);
  // In two steps, as unmapping: from the first on nobody may name the memory, at the second the
  // driver lets go of its pages and they go back to the system.
  Status begin_unregister(const wire::HostUnregister& range, uint64_t* ticket);
  void finish_unregister(const wire::HostUnregister& range, uint64_t ticket);
  // What is allocated elsewhere for the session (arrays) counts, too.
  // CUDA_ERROR_OUT_OF_MEMORY beyond the limits.
  Status charge(uint32_t device, uint64_t bytes) { return charge(device, bytes, group_.get()); }
  void refund(uint32_t device, uint64_t bytes) {
    granted_[device] -= bytes;
    if (group_ != nullptr) group_->give_back_memory(device, bytes);
  }

  // cuMemGetInfo as the limits of the client and of its group make it.
  Status info(uint32_t device, ReplyTo<wire::MemoryInfo> reply);

  // A module's global may be named by copies while the module is loaded.
  void add_global(uint64_t address, uint64_t bytes, Lane lane);
  void remove_global(uint64_t address);
  // Whose streams may fill that address and work on its values: those of the lane of its global;
  // for all other memory any.
  [[nodiscard]] Lane lane_of(uint64_t address) const;
  // Grows whenever something stops being accessible: what was checked before may be gone.
  [[nodiscard]] uint64_t removals() const { return removals_; }

  // Every byte of [address, address + bytes) belongs to the session and can be read; `writable`:
  // and written. What of it is in the channel is there for the driver from now on.
  [[nodiscard]] bool contains(uint64_t address, uint64_t bytes, bool writable = false) const;
  // The same as contains() as a Status, for the operand of a command. `role`: "source".
  [[nodiscard]] Status check_operand(const WorkRange& range, const char* role) const;
  // All ranges that the command touches by addresses of its own.
  template <typename Command>
  [[nodiscard]] Status check_operands(const Command& command) const {
    // Chunks of images are copied by this process.
    constexpr bool kHere =
        std::is_same_v<Command, wire::BlobData> || std::is_same_v<Command, wire::LinkRead>;
    return visit_ranges(command,
                        [this](uint64_t address, uint64_t bytes, bool writes, const char* role) {
                          const WorkRange range{address, bytes, writes};
                          return kHere ? check_owned(range, role) : check_operand(range, role);
                        });
  }
  // The word can be written from now on, though the program only ever reads it: the client has gone
  // and what waits for the word is let pass.
  void allow_writes(uint64_t address);

  // The driver can write there, also if nobody may name it any more.
  [[nodiscard]] bool may_write(uint64_t address, uint64_t bytes) const;

  // Give everything back; the session's work has drained, and what was given up has been released.
  // Errors are not reported: after a fault the driver refuses, and there is nothing left to do
  // about it.
  void release_all();

  [[nodiscard]] uint64_t granted(uint32_t device) const { return granted_[device]; }

 private:
  enum class Kind { kDeviceMemory, kRegistered, kChannel, kGlobal };
  struct Range {
    uint64_t end = 0;
    Kind kind = Kind::kGlobal;
    uint32_t device = 0;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    std::shared_ptr<Holding> holding = nullptr;
    bool lent = false;         // other processes have it, or may
    bool for_copies = false;   // of every device, as what cuMemAlloc gives
    uint32_t copiers = 0;      // devices that have access for their copies
    uint32_t peers = 0;        // of its device, when it was given up
    uint64_t ticket = 0;       // of the command that gave it up
    Lane lane = Lane::kMain;   // of a global
    HostPagesList pages = {};  // of the program, registered
  };
  using Ranges = std::map<uint64_t, Range>;

  [[nodiscard]] bool owns(uint64_t address, uint64_t bytes, bool writable) const;
  [[nodiscard]] Status check_owned(const WorkRange& range, const char* role) const;
  Status reserve_window();
  Status check_device_range(uint64_t address, uint64_t bytes) const;
  // `group`: of the group, if it counts there, too.
  Status charge(uint32_t device, uint64_t bytes, SessionGroup* group);
  Result<Charge> take(uint32_t device, uint64_t bytes);
  // Nobody but this mapping has the memory, and it is as map() made it.
  [[nodiscard]] static bool is_own(const Range& range);
  // The range as it was when it was given up. False: it is not to be had.
  bool take_back(const wire::MemoryMap& range);
  void forget_kept(uint64_t address, uint64_t bytes);
  // CUDA_ERROR_OUT_OF_MEMORY: wire::kMaxMappings.
  Status check_count() const;
  // Access for the device of its own and for those that are its peers.
  Status open_access(uint64_t address, const Range& range);
  // [address, address + bytes) consists of whole mappings of device memory.
  Status check_whole(uint64_t address, uint64_t bytes) const;
  [[nodiscard]] static bool is_free(const Ranges& ranges, uint64_t begin, uint64_t end);
  [[nodiscard]] bool is_free(uint64_t begin, uint64_t end) const {
    return is_free(ranges_, begin, end);
  }
  // The program's own pages at every byte of the range; empty: somewhere there are none.
  [[nodiscard]] HostPagesList host_pages(uint64_t address, uint64_t bytes) const;
  [[nodiscard]] bool is_pinned_heap(uint64_t address) const {
    return address >= core_.device_end() + wire::kPinnedOffset && address < core_.window_end();
  }
  Status check_host_range(uint64_t address, uint64_t bytes, HostPagesList* pages) const;
  void unregister(uint64_t address, const Range& range, std::function<void()> done);
  void release(Ranges::iterator it);

  SessionCore& core_;
  const std::shared_ptr<SessionGroup> group_;
  AddressBook& addresses_;
  MemoryCache& kept_;
  uint64_t removals_ = 0;
  Ranges ranges_;               // disjoint, by start address
  Ranges leaving_;              // between the two steps of unmapping
  uint64_t unmap_tickets_ = 0;  // given
  uint64_t unregister_tickets_ = 0;
  std::map<uint64_t, uint64_t> extents_;  // begin -> end
  uint64_t extent_bytes_ = 0;
  std::map<uint64_t, std::shared_ptr<HostPages>> host_pages_;  // by first address
  uint32_t cold_globals_ = 0;
  // By device. Nobody else writes them, and whoever looks at the session's usage sees them.
  wire::UsageCells<wire::UsageRow::Cell, wire::kMaxDevices>& granted_ = core_.usage.memory();
  std::array<uint32_t, wire::kMaxDevices> peers_{};  // of memory on a device: who else uses it
  bool window_reserved_ = false;
};

}  // namespace openmps::worker
