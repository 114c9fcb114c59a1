// SPDX-License-Identifier: Apache-2.0
// A driver for the worker's unit tests: records its calls as text, keeps count of what lives, and
// runs what streams are given in order, on whichever thread calls. Streams stop at unsatisfied
// waits. One instance at a time; thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "api/driver_table.h"

namespace openmps::worker {

inline constexpr unsigned kFakeSms = 16;

class FakeDriver {
 public:
  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  [[nodiscard]] const DriverTable& table() const { return table_; }
  // Room for streams can be made, and is counted, from now on (stream_slots.h).
  void make_room() {
    table_.cuMemAlloc_v2 = [](CUdeviceptr* address, size_t) {
      *address = 256;  // nobody looks
      return CUDA_SUCCESS;
    };
    table_.cuMemFree_v2 = [](CUdeviceptr) { return CUDA_SUCCESS; };
  }

  // What has been called since the last take, without the calls that are always made
  // (cuCtxSetCurrent, cuStreamQuery): "record e1 s1", "wait s2 e1", "launch s1"...
  std::vector<std::string> take_calls();
  // Everything that lives, as "streams 2 events 1"; "" for nothing.
  std::string live();
  // While set, compiling does not end.
  std::atomic<bool> hold_compiling{false};
  // What the next calls of this name return, until it is set to success.
  void fail(const std::string& call, CUresult result);
  // Of the calls that can fail, the one after `more` others fails, whichever that is.
  void fail_after(uint32_t more, CUresult result);
  // From now on the process ends when a call names a handle that is not alive.
  void require_live_handles() { requires_live_ = true; }
  // Nothing of the stream runs while it is held. By number: s1 is the first made.
  void hold(uint32_t stream, bool held);
  // Every call that touches the context fails from now on, and nothing queued runs any more.
  void poison(CUresult result);
  // cuCtxSetLimit's.
  std::map<int, size_t> limits{{CU_LIMIT_STACK_SIZE, 1024},
                               {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                               {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
                               {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
                               {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64}};
  // Called once, when an event or a stream has been asked for and was not reached, before that is
  // answered.
  std::function<void()> after_query;
  // Words in device memory, by address: what copies, waits and writes find there. Of other memory
  // nothing is copied. Not while streams run on another thread.
  std::map<uint64_t, uint64_t> words;
  // Of contexts that are made.
  std::map<int, size_t> other_limits{{CU_LIMIT_STACK_SIZE, 1024},
                                     {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048}};
  // How often loading code, or destroying an executable graph, had work of its context to wait for.
  std::atomic<uint32_t> waited{0};
  int devices = 1;
  // Of each device: its SMs, how many go in a group at least, and how many are in none.
  unsigned sms = kFakeSms;
  unsigned sm_step = 2;
  unsigned ungrouped_sms = 0;
  uint32_t holes = 0;     // reservations that go elsewhere than was asked for, the next ones
  int cluster_width = 0;  // that each kernel has to be launched with; 0: with none
  // No more physical memory than this exists at a time.
  void limit_physical(uint64_t bytes);
  // Bytes of physical memory that exist.
  uint64_t physical_bytes();

  // The calling thread is in a call of the driver, whose memory is the driver's own matter.
  static bool is_in_call();

  // ---- For the functions of the table.
  static FakeDriver& current();
  CUresult call(const std::string& name, const std::string& text);
  uint64_t make(const char* kind);
  bool drop(const char* kind, uint64_t handle);
  bool exists(const char* kind, uint64_t handle);
  bool is_live(const char* kind, uint64_t handle);
  void push(uint64_t stream, std::function<bool()> operation);
  bool idle(uint64_t stream);
  // The context in which the object was made.
  uint64_t context_of(const char* kind, uint64_t handle);
  // Code of this number comes to a context, or is there.
  void load_code(uint64_t context, uint64_t code);
  // A call that waits for all work of the main context.
  void wait_for_all();
  // The newest record of an event counts: its number, and whether the stream has come to it.
  uint64_t begin_record(uint64_t event);
  void end_record(uint64_t event, uint64_t record);
  bool reached(uint64_t event);
  // A stream's wait for what has been recorded so far.
  std::function<bool()> wait_for(uint64_t event);
  // A stream is made in a green context. While it lives, the process ends if that is destroyed.
  void put_in_green(uint64_t stream, uint64_t green);
  // What green contexts have, by number.
  std::map<uint64_t, unsigned> green_sms;
  void must_be_unused(uint64_t green);
  CUresult poisoned();
  // False: there is not so much.
  bool add_physical(int64_t bytes);
  // Arrays have elements of one byte. Null: there is none of that number.
  void shape_array(uint64_t array, const CUDA_ARRAY3D_DESCRIPTOR& shape);
  const CUDA_ARRAY3D_DESCRIPTOR* shape_of(uint64_t array);

  std::string parameters;                            // of the kernel that was launched last
  std::vector<CUstreamBatchMemOpParams> last_batch;  // of operations on values
  bool global_is_managed = false;                    // the variable that was looked up last

 private:
  struct Queue {
    bool held = false;
    std::deque<std::function<bool()>> operations;
  };
  void advance_locked();
  bool busy_locked(uint64_t context);

  DriverTable table_{};
  std::recursive_mutex mutex_;
  std::vector<std::string> calls_;
  std::map<std::string, std::set<uint64_t>> live_;
  std::map<std::string, uint64_t> made_;
  std::map<std::string, CUresult> failures_;
  uint32_t calls_to_failure_ = 0;  // 0: none is to fail
  CUresult coming_failure_ = CUDA_SUCCESS;
  bool requires_live_ = false;
  std::map<uint64_t, Queue> queues_;
  std::map<std::pair<std::string, uint64_t>, uint64_t> contexts_;  // of objects
  std::set<std::pair<uint64_t, uint64_t>> loaded_;                 // context and code
  std::map<uint64_t, CUDA_ARRAY3D_DESCRIPTOR> shapes_;             // of arrays, by number
  std::map<uint64_t, uint64_t> green_of_;                          // by stream
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> records_;      // begun and done, by event
  CUresult poison_ = CUDA_SUCCESS;
  uint64_t physical_bytes_ = 0;
  uint64_t physical_limit_ = ~0ull;
};

// The addresses of the fake module's global, and the sizes of its kernel's parameters.
inline constexpr uint64_t kFakeGlobal = 0x7f00'0000'0000;
// The same in the context that is not the primary one; there it can't be filled from the other.
inline constexpr uint64_t kFakeColdGlobal = kFakeGlobal + 0x1'0000;
inline constexpr uint64_t kFakeGlobalBytes = 256;
// Contexts from here on are green ones.
inline constexpr uint64_t kFakeGreenContexts = 1'000'000;
inline constexpr uint64_t kFakeTotalMemory = 1ull << 30;

}  // namespace openmps::worker
