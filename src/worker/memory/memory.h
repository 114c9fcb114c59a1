// SPDX-License-Identifier: Apache-2.0
// The memory of a session: physical device memory mapped into the session's window and extents,
// host memory registered with the driver, and the globals of its modules. Memory that a session
// holds counts against the client's limit; commands may name the memory that the session can
// access. Session's thread only.
//
// The server keeps a descriptor of every object of physical memory, so that memory outlives a
// worker that has been lost to a kernel's fault.
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
#include "worker/core/keeper.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/memory/address_book.h"
#include "worker/memory/constants.h"
#include "worker/memory/host_pages.h"
#include "worker/memory/host_store.h"
#include "worker/memory/memory_cache.h"
#include "worker/memory/physical_memory.h"
#include "worker/memory/pressure.h"
#include "worker/memory/work_range.h"
#include "worker/partitions/session_group.h"

namespace openmps::worker {

class Transfer;

// Device memory that counts against the limits of a session and of its group until this is
// destroyed, perhaps on another session's thread that gives back memory kept for this one.
class Charge {
 public:
  // `bytes` have been counted. `granted`: the session's on that device. `share`: what counts
  // against the group; null: the session is in none.
  // `on_host`: what of `granted` is on the host.
  Charge(std::atomic<uint64_t>& granted, std::atomic<uint64_t>& on_host, uint64_t bytes,
         std::shared_ptr<GroupCharge> share)
      : granted_(granted), on_host_(on_host), bytes_(bytes), share_(std::move(share)) {}
  ~Charge() {
    set_on_host(false);
    granted_ -= bytes_;
  }
  Charge(Charge&& other) noexcept
      : granted_(other.granted_),
        on_host_(other.on_host_),
        bytes_(std::exchange(other.bytes_, 0)),
        is_on_host_(std::exchange(other.is_on_host_, false)),
        share_(std::move(other.share_)) {}
  Charge& operator=(Charge&&) = delete;

  // Take over a charge of the same session and device.
  void add(Charge&& more) {
    bytes_ += std::exchange(more.bytes_, 0);
    if (share_ != nullptr && more.share_ != nullptr) share_->add(*more.share_);
  }
  // Other sessions of the group have the memory, too: it counts once against the group.
  void share_with(Physical& physical, const SessionGroup* group) {
    if (share_ != nullptr) share_ = physical.charge(group, std::move(share_));
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  // The memory is on the host, or on its device: it counts either way.
  void set_on_host(bool is_there) {
    if (std::exchange(is_on_host_, is_there) == is_there) return;
    on_host_ += is_there ? bytes_ : -bytes_;
    if (share_ != nullptr) share_->note_on_host(bytes_, is_there);
  }

 private:
  std::atomic<uint64_t>& granted_;
  std::atomic<uint64_t>& on_host_;
  uint64_t bytes_;
  bool is_on_host_ = false;
  std::shared_ptr<GroupCharge> share_;
};

// A session's hold on physical memory, counted once for as long as a mapping or a handle needs it.
struct Holding {
  Holding(std::shared_ptr<Physical> memory, Charge counted, KeptMemory kept)
      : kept(std::move(kept)), physical(std::move(memory)), charge(std::move(counted)) {}

  KeptMemory kept;  // ends behind the others: the server says when the memory is free
  std::shared_ptr<Physical> physical;  // null: the contents are on the host
  HostStore::Part contents;            // there
  uint32_t device = 0;                 // of the memory whose contents are there
  uint32_t flags = 0;                  // with which the memory was made, as of wire::PhysicalCreate
  bool is_counted = true;  // against the limits; false: what it is for is counted elsewhere
  Charge charge;           // of memory of unknown size: the bytes mapped so far; session's thread
};

class SessionMemory {
 public:
  // `keeper`: null: no memory is kept for a next worker. `store`: null: no memory is moved to the
  // host.
  SessionMemory(SessionCore& core, AddressBook& addresses, MemoryCache& kept, Keeper* keeper,
                std::shared_ptr<HostStore> store, MemoryPressure& pressure);
  ~SessionMemory() { pressure_.leave(&member); }

  // Commands may name the part of the channel that the GPU reads and writes from now on.
  Status open_channel();

  // ---- Addresses ----
  Status handle(const wire::AddressReserve& command, ReplyTo<wire::AddressReserve> reply);
  Status handle(const wire::AddressFree& command);
  // Reserve addresses beside the window, in whole multiples of kMemoryGranularity: at `at`, or,
  // where that is 0, at a multiple of `alignment`. CUDA_ERROR_OUT_OF_MEMORY: the session has too
  // many, or these addresses are not free.
  Result<uint64_t> reserve_extent(uint64_t bytes, uint64_t alignment, uint64_t at);

  // ---- Device memory ----
  // Map new physical memory in the window. CUDA_ERROR_OUT_OF_MEMORY: beyond the limit of the client
  // or of its group, as with CUDA_MPS_PINNED_DEVICE_MEM_LIMIT. CUDA_ERROR_NOT_READY: the range is
  // being unmapped, and its former mapping can't be taken back.
  Status map(const wire::MemoryMap& range);
  // Unmap whole mappings at once, also if work still uses them: that is the program's error.
  Status unmap(uint64_t address, uint64_t bytes);
  // Unmap in two steps. From the first step on commands may not name the memory. The second step
  // follows when all work of the session that was unfinished then has ended; it releases the memory
  // or keeps it for the next map() of the range (wire::kUnmapKeep). Between the two steps map()
  // only takes back the former mapping.
  Status begin_unmap(const wire::MemoryUnmap& range, uint64_t* ticket);
  void finish_unmap(const wire::MemoryUnmap& range, uint64_t ticket);
  // The session is handed over: have the server keep all of its memory now.
  void keep_all_now();
  // The session leaves this worker: what is released here from now on lives on, with its contents,
  // in the next one.
  void leave();
  // The session has been made again: both steps of all that a former worker has begun are done.
  void take_over();
  // Release memory that has been kept for long. When to call this again; 0: none is kept.
  uint64_t give_back_old();
  // Memory is short: release what is kept of all sessions, and wait until the server has, too.
  // False: there was none.
  bool give_back_kept();
  // Other sessions may reach the memory from now on, so it is never kept for this one.
  void lend(uint64_t address, uint64_t bytes);
  // Create physical memory within the limit, or import what has been created in another worker;
  // `flags`: as of wire::PhysicalCreate. The server keeps it, if it can.
  Status create(uint32_t device, uint64_t bytes, uint32_t flags, std::shared_ptr<Holding>* holding);
  // create() without counting it.
  Status create_uncounted(uint32_t device, uint64_t bytes, std::shared_ptr<Holding>* holding);
  // Hold memory that exists already. CUDA_ERROR_OUT_OF_MEMORY: beyond the limit.
  Status hold(std::shared_ptr<Physical> physical, KeptMemory kept,
              std::shared_ptr<Holding>* holding);
  // Have the server keep memory that the command in hand has made: soon, or now, as the caller has
  // a descriptor of it.
  KeptMemory keep(const std::shared_ptr<Physical>& physical);
  KeptMemory keep_now(uint64_t bytes, uint32_t device, int descriptor);
  // While the session is made again: what the server has given for the command in hand.
  // CUDA_ERROR_INVALID_HANDLE: nothing.
  Result<Keeper::Taken> take_kept();
  // The same, imported, if it has so many bytes. It stays kept until `kept` ends.
  Result<std::shared_ptr<Physical>> import_kept(uint64_t bytes, KeptMemory* kept,
                                                uint32_t flags = 0);
  // Sessions of other workers get the memory by this key, too, until it is withdrawn.
  void share(const Holding& holding, const wire::ShareKey& key);
  // Others have got it by a descriptor of the driver's.
  void note_exported(const Holding& holding);
  void withdraw(const wire::ShareKey& key);
  // Import what a session of another worker shares, and have the server keep it for this one.
  // CUDA_ERROR_INVALID_HANDLE: the key names nothing, or not memory of this size.
  Result<std::shared_ptr<Physical>> import_shared(const wire::ShareKey& key, uint64_t bytes,
                                                  KeptMemory* kept);
  // Map a part of held memory at free addresses, without access for any device yet.
  Status map_held(std::shared_ptr<Holding> holding, uint64_t address, uint64_t bytes,
                  uint64_t offset);
  Status handle(const wire::MemoryAccess& command);
  // The memory whose mapping begins at that address; null: none.
  [[nodiscard]] std::shared_ptr<Holding> mapped_at(uint64_t address) const;
  // Device memory is mapped at every byte of the range, all on one device, whether or not the
  // session has access. CUDA_ERROR_INVALID_VALUE: it is not.
  [[nodiscard]] Status find_mapped(uint64_t address, uint64_t bytes, uint32_t* device) const;
  // Give `device` access to the range for its copies: CUDA's copies reach memory of other devices
  // without peer access, except the program's own mappings. Where the hardware can't, the driver
  // refuses the copy.
  void open_to_copies(const WorkRange& range, uint32_t device);
  // Give `device` access to the memory on `peer`, or end it.
  Status handle(const wire::PeerAccess& command);

  // ---- Memory that is on the host ----
  // Nothing of the session is under way in the following two. While some memory is on the host
  // (is_away()) no command may be executed but those that name no memory.
  struct Moved {
    uint64_t moved = 0;  // bytes
    uint64_t stays = 0;  // that can't be moved: others may have them, too
  };
  // Move memory of the device to the host, as long as `wants_more(bytes)`, of which so many are
  // being copied. Memory of unknown size, or that others may have, stays. After an error some of it
  // has been moved. CUDA_ERROR_OUT_OF_MEMORY: the host has too little; CUDA_ERROR_NOT_READY:
  // gives_up(); CUDA_ERROR_NOT_SUPPORTED: memory is not moved.
  Status move_to_host(uint32_t device, const std::function<bool(uint64_t under_way)>& wants_more,
                      Moved* moved);
  // Move all of it back, and wait for memory of the devices. After an error some of it is still on
  // the host. CUDA_ERROR_NOT_READY: gives_up(). `needs_less`: so many bytes of the device have been
  // found.
  using NeedsLess = std::function<void(uint32_t device, uint64_t bytes)>;
  Status move_back(const NeedsLess& needs_less);
  [[nodiscard]] bool is_away() const { return away_ != 0; }
  // Bytes of the device that are on the host.
  [[nodiscard]] uint64_t on_host(uint32_t device);
  // Bytes on the device beyond what is guaranteed to the session, or to its group. Any thread.
  [[nodiscard]] uint64_t borrowed(uint32_t device) const;
  // What others know of the session, and ask of it.
  MemoryPressure::Member member;
  // The session ends, or goes on in another worker, so nothing is waited for any more.
  std::function<bool()> gives_up = [] { return false; };
  // Give host memory that nothing is in back to the system. When to call this again; 0: nothing is
  // there.
  uint64_t give_back_store();

  // ---- Host memory ----
  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: the driver has not released some of the program's
  // pages since they were unregistered.
  Status register_host(const wire::HostRegister& command);
  // Reserve the addresses of the program's pages, or others. CUDA_ERROR_OUT_OF_MEMORY: none is
  // free.
  Status reserve_host(const wire::HostReserve& range, uint64_t* address);
  // Map a file's pages there, which the server keeps as `kept`; the check returns violations.
  [[nodiscard]] Status check_host_map(const wire::HostMap& command) const;
  Status map_host(const wire::HostMap& command, int file, KeptMemory kept);
  Status handle(const wire::HostFree& command);
  // Unregister in two steps, as unmapping: from the first on commands may not name the memory; in
  // the second the driver releases the pages, which go back to the system.
  Status begin_unregister(const wire::HostUnregister& range, uint64_t* ticket);
  void finish_unregister(const wire::HostUnregister& range, uint64_t ticket);
  // Count memory that is allocated elsewhere for the session (arrays). CUDA_ERROR_OUT_OF_MEMORY:
  // beyond the limits.
  Status charge(uint32_t device, uint64_t bytes) { return charge(device, bytes, group_.get()); }
  void refund(uint32_t device, uint64_t bytes) {
    granted_[device] -= bytes;
    if (group_ != nullptr) group_->give_back_memory(device, bytes);
  }

  // cuMemGetInfo within the limits of the client and of its group.
  Status info(uint32_t device, ReplyTo<wire::MemoryInfo> reply);

  // Commands may name a module's global while the module is loaded.
  void add_global(uint64_t address, uint64_t bytes, Lane lane);
  void remove_global(uint64_t address);
  // Constants whose addresses the program knows. Without one that is removed, what names it can't
  // be done any more.
  [[nodiscard]] const Constants& constants() const { return constants_; }
  void add_constant(const Constant& constant) { constants_.add(constant); }
  void remove_constant(uint64_t address) {
    constants_.remove(address);
    ++removals_;
  }
  // The lane whose streams may fill that address or wait for its value: the lane of the global
  // there; streams of any lane may for all other memory.
  [[nodiscard]] Lane lane_of(uint64_t address) const;
  // Grows whenever memory stops being accessible, so earlier checks may not hold any more.
  [[nodiscard]] uint64_t removals() const { return removals_; }

  // Every byte of [address, address + bytes) belongs to the session and can be read; `writable`:
  // and written. Registers what of the range is in the channel (ChannelPages).
  [[nodiscard]] bool contains(uint64_t address, uint64_t bytes, bool writable = false) const;
  // contains() for the operand of a command. `role`: "source", for the violation's text.
  [[nodiscard]] Status check_operand(const WorkRange& range, const char* role) const;
  // Check all ranges that the command names by address.
  template <typename Command>
  [[nodiscard]] Status check_operands(const Command& command) const {
    // This process copies chunks of images, not the driver.
    constexpr bool kHere =
        std::is_same_v<Command, wire::BlobData> || std::is_same_v<Command, wire::LinkRead>;
    return visit_ranges(command,
                        [this](uint64_t address, uint64_t bytes, bool writes, const char* role) {
                          const WorkRange range{address, bytes, writes};
                          return kHere ? check_owned(range, role) : check_operand(range, role);
                        });
  }
  // Make a word writable that the program has mapped for reading only: its client has ended, and
  // the worker writes the word to release the streams that wait for it.
  void allow_writes(uint64_t address);

  // The driver can write there, even if commands may not name the memory any more.
  [[nodiscard]] bool may_write(uint64_t address, uint64_t bytes) const;

  // Release everything, once the session's work has ended and deferred releases have been made.
  // Errors are not reported: after a fault the driver refuses.
  void release_all();

  [[nodiscard]] uint64_t granted(uint32_t device) const { return granted_[device]; }

 private:
  Status reserve_host_again(uint64_t address, uint64_t bytes);
  void show_places();
  enum class Kind { kDeviceMemory, kRegistered, kChannel, kGlobal };
  struct Range {
    uint64_t end = 0;
    Kind kind = Kind::kGlobal;
    uint32_t device = 0;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    std::shared_ptr<Holding> holding = nullptr;
    bool lent = false;        // other sessions have the memory, or may
    bool for_copies = false;  // of any device, as with memory of cuMemAlloc
    uint32_t copiers = 0;     // devices that have access for their copies
    uint32_t peers = 0;       // of the device, when unmapping began
    uint64_t ticket = 0;      // of the command that began to unmap it
    uint64_t offset = 0;      // in the physical memory
    // Of each device of Devices::used(), while the memory is on the host.
    std::vector<CUmemAccess_flags> accesses = {};
    Lane lane = Lane::kMain;   // of a global
    HostPagesList pages = {};  // of the program, registered
  };
  using Ranges = std::map<uint64_t, Range>;

  // A holding with its mappings, which are all of ranges_ that have it.
  struct Movable {
    std::shared_ptr<Holding> holding;
    std::vector<Ranges::iterator> mappings;
  };
  // All memory of the device that create() has made: what is there, or what is on the host.
  std::vector<Movable> movables(uint32_t device, bool on_host);
  [[nodiscard]] static bool may_move(const Movable& movable);
  [[nodiscard]] static uint32_t device_of(const Holding& holding);
  // Note which devices have access to the mappings.
  void note_accesses(const Movable& movable) const;
  // Where all of the physical memory is mapped with access; else it is mapped for the moment, in
  // `view`.
  Result<uint64_t> whole_of(const Movable& movable, const std::shared_ptr<Physical>& physical,
                            std::shared_ptr<void>* view);
  // The contents are on the host.
  void let_go(const Movable& movable, HostStore::Part contents);
  Status map_again(const Movable& movable, const Physical& physical);
  void unmap_again(const Movable& movable);
  Status move_back_now(const NeedsLess& needs_less);
  Status begin_move_back(const Movable& movable, Transfer& transfer, std::vector<Movable>* begun);
  // And back on the device.
  void take_again(const Movable& movable, std::shared_ptr<Physical> physical);
  // Memory that holds what another worker has left in a file.
  Result<std::shared_ptr<Physical>> make_with_contents(Keeper::Taken& taken, uint64_t bytes,
                                                       uint32_t flags);
  // Map all of the memory for the moment, with access for its device.
  Result<uint64_t> view_of(const std::shared_ptr<Physical>& physical, std::shared_ptr<void>* view);
  Keeper::Export export_of(const std::shared_ptr<Physical>& physical) const;
  // Have others give memory, for a cuMemCreate that found none. Errors: the driver's;
  // CUDA_ERROR_OUT_OF_MEMORY: there is none to be had; CUDA_ERROR_NOT_READY: gives_up().
  Status await_memory(uint32_t device, uint64_t bytes, FunctionRef<CUresult()> make);
  // What the session, or its group, has on the device, and what is stated for it.
  struct Held {
    uint64_t bytes = 0;
    uint64_t guaranteed = 0;  // 0: nothing is stated
    wire::OnPressure on_pressure = wire::OnPressure::kUnset;
  };
  [[nodiscard]] Held held(uint32_t device) const;
  [[nodiscard]] MemoryPressure::Busy busy_of(uint32_t device, uint64_t bytes) const;
  void note_made(const std::shared_ptr<Holding>& holding, uint32_t flags);

  [[nodiscard]] bool owns(uint64_t address, uint64_t bytes, bool writable) const;
  [[nodiscard]] Status check_owned(const WorkRange& range, const char* role) const;
  Status reserve_window();
  Status check_device_range(uint64_t address, uint64_t bytes) const;
  // `group`: against which it counts, too; null: none.
  Status charge(uint32_t device, uint64_t bytes, SessionGroup* group);
  Result<Charge> take(uint32_t device, uint64_t bytes);
  Status create(uint32_t device, uint64_t bytes, uint32_t flags, Charge charge,
                std::shared_ptr<Holding>* holding);
  // Only this mapping has the memory, as map() made it.
  [[nodiscard]] static bool is_own(const Range& range);
  Result<CUmemGenericAllocationHandle> make_physical(uint32_t device, uint64_t bytes,
                                                     uint32_t flags);
  // Import memory that the server has given. CUDA_ERROR_INVALID_HANDLE: it has another size.
  Result<std::shared_ptr<Physical>> import_given(int descriptor, uint64_t its_bytes,
                                                 uint32_t device, uint64_t bytes);
  // The command in hand needs that memory to be made again.
  void note_kept(const KeptMemory& kept, uint32_t device);
  // Take back the mapping that is being unmapped or is kept. False: there is none of that range.
  bool take_back(const wire::MemoryMap& range);
  void forget_kept(uint64_t address, uint64_t bytes);
  // CUDA_ERROR_OUT_OF_MEMORY: there are wire::kMaxMappings.
  Status check_count() const;
  // Give access to the memory's device and to its peers.
  Status open_access(uint64_t address, const Range& range);
  // [address, address + bytes) consists of whole mappings of device memory.
  Status check_whole(uint64_t address, uint64_t bytes) const;
  [[nodiscard]] static bool is_free(const Ranges& ranges, uint64_t begin, uint64_t end);
  [[nodiscard]] bool is_free(uint64_t begin, uint64_t end) const {
    return is_free(ranges_, begin, end);
  }
  // Nor is any of it being unmapped.
  [[nodiscard]] bool is_unused(uint64_t begin, uint64_t end) const {
    return is_free(begin, end) && is_free(leaving_, begin, end);
  }
  // The program's pages that cover the range; empty: not every byte is covered.
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
  Keeper* const keeper_;
  const std::shared_ptr<HostStore> store_;
  MemoryPressure& pressure_;
  bool comes_back_ = false;                   // in move_back()
  std::vector<std::weak_ptr<Holding>> made_;  // by create(), some of which have ended
  size_t away_ = 0;                           // holdings whose contents are on the host
  Constants constants_;
  uint64_t removals_ = 0;
  Ranges ranges_;               // disjoint, by start address
  Ranges leaving_;              // between the two steps of unmapping
  uint64_t unmap_tickets_ = 0;  // the last that was given
  uint64_t unregister_tickets_ = 0;
  std::map<uint64_t, uint64_t> extents_;  // begin -> end
  uint64_t extent_bytes_ = 0;
  std::map<uint64_t, std::shared_ptr<HostPages>> host_pages_;  // by first address
  uint32_t host_places_ = 0;                                   // in which they have ever been
  uint32_t cold_globals_ = 0;
  // By device. Only the session writes these; the table of usage shows them.
  wire::UsageCells<wire::UsageRow::Cell, wire::kMaxDevices>& granted_ = core_.usage.memory();
  wire::UsageCells<wire::UsageRow::Cell, wire::kMaxDevices>& on_host_ = core_.usage.on_host();
  std::array<uint32_t, wire::kMaxDevices>
      peers_{};          // by device: other devices with access to its memory
  bool leaves_ = false;  // leave() has been called
  bool window_reserved_ = false;
};

}  // namespace openmps::worker
