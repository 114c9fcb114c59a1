// SPDX-License-Identifier: Apache-2.0
// The gate through which every driver call goes that waits for all work queued in a shared context
// (loading and unloading code, unregistering host memory). Inside the driver such a call holds
// locks of the whole process while it waits: a neighbour's launch in that context waits with it,
// and so does the creation of an event on any GPU (both seen on an H200). If the work it waits for
// needs that neighbour to go on - NCCL's kernels on two GPUs - nobody ever does. So the gate first
// waits itself, outside of the driver: it holds back new work on the device, for a bounded time,
// until what is queued has ended, and only then makes the call.
//
// Thread-safe. Sessions submit between enter() and leave() of their Feeder and list the driver's
// streams that they use.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

#include "api/driver_table.h"
#include "base/clock.h"
#include "base/cuda_abi.h"
#include "wire/handshake.h"

namespace openmps::worker {

enum class GatedCall : uint32_t {
  kModuleLoad = 0,
  kLibraryLoad,   // does not wait (lazy), but belongs to the same moment
  kFunctionLoad,  // the first look at a function loads its code
  kModuleUnload,
  kLibraryUnload,
  kHostUnregister,
  kArrayCreate,   // not measured; taken for what cuMemAlloc is, which does not wait,
  kArrayDestroy,  // and cuMemFree, which does
  kGreenCreate,   // not measured; taken for calls that wait
  kGreenDestroy,
  kStackLimit,
  kCount,
};
const char* name_of(GatedCall call);

// How long the gate tries.
struct GateLimits {
  // New work is held back this long at first, and as long let through before the next try; both
  // double. Most queues are done within the first: a training loop runs some hundred launches
  // ahead.
  uint64_t first_hold_ns = 500'000'000;
  // Nobody takes a program that is held back this long for dead.
  uint64_t longest_hold_ns = 2'000'000'000;
  // After that the call is made whatever runs: a kernel that does not end (a server's that polls)
  // must not keep others from loading code for longer than the driver itself would.
  uint64_t total_ns = 5'000'000'000;
};

class ContextGate {
 public:
  static constexpr uint32_t kAllDevices = ~0u;

  // What one session is submitting right now.
  class Feeder {
   private:
    friend class ContextGate;
    std::atomic<uint32_t> device_{kNowhere};
  };

  // A stream of the driver's.
  struct Stream {
    Stream(CUstream handle, uint32_t device) : handle(handle), device(device) {}

    const CUstream handle;
    const uint32_t device;
    std::atomic<bool> busy{false};  // may have unfinished work; set by its session alone
  };

  struct Cost {
    uint64_t calls = 0;
    uint64_t total_ns = 0;
    uint64_t longest_ns = 0;
  };

  explicit ContextGate(const DriverTable& driver, GateLimits limits = {})
      : driver_(driver), limits_(limits) {}

  void add(Feeder& feeder);
  void remove(Feeder& feeder);
  // Before work is submitted to `device`: waits while the gate holds new work back there.
  void enter(Feeder& feeder, uint32_t device);
  // What was submitted since enter() shows in its streams.
  static void leave(Feeder& feeder) { feeder.device_.store(kNowhere, std::memory_order_release); }

  // leave() at the end of a block.
  class Leaving {
   public:
    explicit Leaving(Feeder& feeder) : feeder_(feeder) {}
    ~Leaving() { leave(feeder_); }
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;

   private:
    Feeder& feeder_;
  };

  // The stream stays listed until remove(), which does not destroy it.
  Stream* add(CUstream handle, uint32_t device);
  void remove(Stream* stream);

  // `f` makes the driver call, which waits for the work of `device` (or kAllDevices), and returns
  // its CUresult. That device's context is current; the calling session is not between enter() and
  // leave().
  template <typename F>
  CUresult run(GatedCall call, uint32_t device, F&& f) {
    const uint64_t start = now_ns();
    const Quiet quiet(*this, device);
    const CUresult result = quiet.found() || !gave_up() ? f() : without(call);
    count(call, now_ns() - start);
    return result;
  }
  // Work that never ends runs: from now on what does not find its quiet moment within one hold is
  // not called. What gives back is left to the end of the process and says success; what makes
  // something says CUDA_ERROR_MPS_SERVER_NOT_READY.
  void give_up() { gave_up_.store(true, std::memory_order_release); }
  // The same in a quiet moment only: `otherwise`, without the call, if none comes within the limit.
  template <typename F>
  CUresult run_if_quiet(GatedCall call, uint32_t device, CUresult otherwise, F&& f) {
    const uint64_t start = now_ns();
    const Quiet quiet(*this, device);
    const CUresult result = quiet.found() ? f() : otherwise;
    count(call, now_ns() - start);
    return result;
  }
  // The same for a call that does not wait.
  template <typename F>
  CUresult run_at_once(GatedCall call, F&& f) {
    const uint64_t start = now_ns();
    const CUresult result = f();
    count(call, now_ns() - start);
    return result;
  }
  [[nodiscard]] Cost cost(GatedCall call) const;

 private:
  static constexpr uint32_t kNowhere = ~0u;

  struct Counter {
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> total_ns{0};
    std::atomic<uint64_t> longest_ns{0};
  };

  // Nothing runs on a device and nothing is submitted while one of these lives, or the limit is
  // past.
  class Quiet {
   public:
    Quiet(ContextGate& gate, uint32_t device) : gate_(gate), device_(device) {
      closed_ = gate_.seek(device_);
    }
    ~Quiet() {
      if (closed_) gate_.open(device_);
    }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    [[nodiscard]] bool found() const { return closed_; }

   private:
    ContextGate& gate_;
    const uint32_t device_;
    bool closed_;
  };

  [[nodiscard]] bool gave_up() const { return gave_up_.load(std::memory_order_acquire); }
  static CUresult without(GatedCall call);
  void count(GatedCall call, uint64_t ns);
  // True: quiet, and closed until open().
  bool seek(uint32_t device);
  void close(uint32_t device);
  void open(uint32_t device);
  bool quiet(uint32_t device);
  bool wait_quiet(uint32_t device, uint64_t until);

  const DriverTable& driver_;
  const GateLimits limits_;
  std::array<std::atomic<uint32_t>, wire::kMaxDevices> closed_{};  // by how many
  std::atomic<bool> gave_up_{false};
  std::mutex mutex_;  // guards the lists
  std::vector<Feeder*> feeders_;
  std::list<Stream> streams_;
  std::array<Counter, static_cast<size_t>(GatedCall::kCount)> counters_;
};

}  // namespace openmps::worker
