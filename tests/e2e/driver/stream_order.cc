// SPDX-License-Identifier: Apache-2.0
// Random programs of several streams: legacy, per-thread, blocking and non-blocking ones, with
// kernels, fills, host functions, graphs, events and copies of every kind. A model runs the same
// operations one after the other. Operations that CUDA's rules do not order already are ordered by
// an event or by a synchronisation, chosen at random, so every result is defined and must be the
// model's. Run by run_e2e.py. usage: drv_stream_order [PROGRAMS [SEED]]
#include <algorithm>
#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "driver.h"

namespace {

constexpr uint32_t kWords = 64;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr uint32_t kStreams = 8;   // slots: see Program::open_streams()
constexpr uint32_t kBuffers = 8;   // the first half on the device, the others in pinned memory
constexpr uint32_t kOnDevice = 4;  //
constexpr uint32_t kSteps = 150;   // per program
constexpr uint32_t kStreamsEver = kStreams + kSteps;  // a step replaces at most one stream
constexpr uint32_t kLegacy = 0;
// Rounds of a kernel that keeps its stream busy for about a millisecond, so that a missing wait is
// noticed.
constexpr uint32_t kLongRounds = 20'000;

using Words = std::vector<uint32_t>;

// The number of operations of each stream behind which an operation comes, by the stream's ID and
// not by its slot: a stream in the slot of a destroyed stream is not ordered behind that stream's
// work.
using Clock = std::array<uint32_t, kStreamsEver>;
void merge(Clock& clock, const Clock& other) {
  for (uint32_t i = 0; i < kStreamsEver; i++) clock[i] = std::max(clock[i], other[i]);
}

// A thread that runs functions while the caller waits. It has a per-thread stream of its own.
class Helper {
 public:
  explicit Helper(CUcontext context)
      : thread_([this, context] {
          CHECK_CU(cuCtxSetCurrent(context));
          std::unique_lock guard(lock_);
          for (;;) {
            changed_.wait(guard, [this] { return end_ || task_ != nullptr; });
            if (end_) return;
            (*std::exchange(task_, nullptr))();
            changed_.notify_all();
          }
        }) {}
  Helper(const Helper&) = delete;
  ~Helper() {
    {
      const std::lock_guard guard(lock_);
      end_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void run(const std::function<void()>& task) {
    std::unique_lock guard(lock_);
    task_ = &task;
    changed_.notify_all();
    changed_.wait(guard, [this] { return task_ == nullptr; });
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr;
  bool end_ = false;
  std::thread thread_;
};

struct Stream {
  CUstream handle = nullptr;
  bool blocking = false;
  bool on_helper = false;
  bool replaceable = false;  // the program may destroy it
  Clock clock{};             // what its next operation comes behind
  uint32_t id = 0;           // no other stream of the program ever has it
};

// An operation, by its stream's ID and its number in it. Number 0: no operation.
struct Operation {
  uint32_t stream_id = 0;
  uint32_t number = 0;
};

struct Buffer {
  CUdeviceptr address = 0;
  uint32_t* host = nullptr;  // the host address of a pinned buffer
  Words model;
  // The last operations of each stream that may use it, and the last one that wrote to it.
  Clock touched{};
  Operation written;
  CUgraphExec graph = nullptr;  // runs `mix` on it once, with key 5
};

struct HostCall {
  uint32_t* words;
  uint32_t key;
};
void mix_by_host(void* data) {
  const std::unique_ptr<HostCall> call(static_cast<HostCall*>(data));
  for (uint32_t i = 0; i < kWords; i++) call->words[i] = call->words[i] * 5 + i + call->key;
}

class Program {
 public:
  Program(const e2e::Session& session, Helper& helper, uint64_t seed)
      : helper_(helper), random_(seed) {
    mix_ = session.function("mix");
    spin_ = session.function("spin");
    CHECK_CU(cuMemAlloc_v2(&scratch_, sizeof(uint32_t)));
    CHECK_CU(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    open_streams();
    for (uint32_t i = 0; i < kBuffers; i++) open_buffer(buffers_[i], i < kOnDevice);
    pageable_.resize(kWords);
  }
  Program(const Program&) = delete;
  ~Program() {
    CHECK_CU(cuCtxSynchronize());
    for (Buffer& buffer : buffers_) {
      CHECK_CU(cuGraphExecDestroy(buffer.graph));
      CHECK_CU(buffer.host != nullptr ? cuMemFreeHost(buffer.host) : cuMemFree_v2(buffer.address));
    }
    for (Stream& stream : streams_) {
      if (stream.replaceable) CHECK_CU(cuStreamDestroy_v2(stream.handle));
    }
    CHECK_CU(cuEventDestroy_v2(event_));
    CHECK_CU(cuMemFree_v2(scratch_));
  }

  // False: a result differs from the model's, which is reported once.
  bool run() {
    for (step_ = 0; step_ < kSteps && good_; step_++) step();
    synchronize_context();
    for (uint32_t i = 0; i < kBuffers && good_; i++) read_back(i);
    return good_;
  }

 private:
  void open_streams() {
    const auto made = [](unsigned flags) {
      CUstream stream = nullptr;
      CHECK_CU(cuStreamCreate(&stream, flags));
      return stream;
    };
    streams_[kLegacy] = {nullptr, false, false, false, {}};
    streams_[1] = {CU_STREAM_PER_THREAD, true, false, false, {}};
    streams_[2] = {CU_STREAM_PER_THREAD, true, true, false, {}};
    for (uint32_t i = 3; i < 6; i++) streams_[i] = {made(CU_STREAM_DEFAULT), true, false, true, {}};
    for (uint32_t i = 6; i < kStreams; i++) {
      streams_[i] = {made(CU_STREAM_NON_BLOCKING), false, false, true, {}};
    }
    for (Stream& stream : streams_) stream.id = streams_ever_++;
  }

  void open_buffer(Buffer& buffer, bool on_device) {
    if (on_device) {
      CHECK_CU(cuMemAlloc_v2(&buffer.address, kBytes));
    } else {
      void* host = nullptr;
      CHECK_CU(cuMemHostAlloc(&host, kBytes, CU_MEMHOSTALLOC_DEVICEMAP));
      buffer.host = static_cast<uint32_t*>(host);
      CHECK_CU(cuMemHostGetDevicePointer_v2(&buffer.address, host, 0));
    }
    buffer.model.assign(kWords, 1);
    CHECK_CU(cuMemsetD32_v2(buffer.address, 1, kWords));
    CUstream stream = streams_[kStreams - 1].handle;
    CUgraph graph = nullptr;
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    e2e::launch(mix_, 1, kWords, 0, stream, buffer.address, kWords, 5u);
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphInstantiateWithFlags(&buffer.graph, graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuCtxSynchronize());
  }

  // ---- CUDA's rules ----------------------------------------------------------------------------

  // The operations behind which an operation comes that is given to the stream now.
  Clock behind(uint32_t stream) const {
    Clock clock = streams_[stream].clock;
    merge(clock, host_);
    if (stream == kLegacy) {
      merge(clock, parted_);
      for (const Stream& other : streams_) {
        if (other.blocking) merge(clock, other.clock);
      }
    } else if (streams_[stream].blocking) {
      merge(clock, streams_[kLegacy].clock);
    }
    return clock;
  }
  void issued(uint32_t stream) {
    Clock clock = behind(stream);
    const uint32_t id = streams_[stream].id;
    clock[id] = ++count_[id];
    streams_[stream].clock = clock;
  }
  Operation last_of(uint32_t stream) const {
    return {streams_[stream].id, count_[streams_[stream].id]};
  }
  // Records that the host has waited for the stream.
  void waited(uint32_t stream) {
    merge(host_, stream == kLegacy ? behind(stream) : streams_[stream].clock);
  }

  // ---- Ordering --------------------------------------------------------------------------------

  void on_thread_of(uint32_t stream, const std::function<void()>& task) {
    if (streams_[stream].on_helper) {
      helper_.run(task);
    } else {
      task();
    }
  }

  void wait_for(uint32_t stream) {
    on_thread_of(stream, [&] {
      const CUstream handle = streams_[stream].handle;
      switch (random_.below(3)) {
        case 0: CHECK_CU(cuStreamSynchronize(handle)); break;
        case 1:
          for (CUresult result; (result = cuStreamQuery(handle)) != CUDA_SUCCESS;) {
            if (result != CUDA_ERROR_NOT_READY) CHECK_CU(result);
          }
          break;
        default:
          CHECK_CU(cuEventRecord(event_, handle));
          streams_[stream].clock = behind(stream);
          CHECK_CU(cuEventSynchronize(event_));
      }
    });
    waited(stream);
  }
  void synchronize_context() {
    CHECK_CU(cuCtxSynchronize());
    host_ = count_;
  }

  // The slot of the stream with that ID, or kStreams if it was destroyed.
  uint32_t slot_of(uint32_t id) const {
    uint32_t slot = 0;
    while (slot < kStreams && streams_[slot].id != id) slot++;
    return slot;
  }

  // Orders the next operation of `waiter` (a slot, or kStreams for the host) behind an operation.
  void order(const Operation& operation, uint32_t waiter) {
    const auto ordered = [&] {
      const Clock& clock = waiter == kStreams ? host_ : behind(waiter);
      return clock[operation.stream_id] >= operation.number;
    };
    if (ordered()) return;
    const uint32_t stream = slot_of(operation.stream_id);
    if (stream == kStreams) {
      synchronize_context();
    } else if (waiter == kStreams || random_.below(3) == 0) {
      wait_for(stream);
    } else {
      on_thread_of(stream, [&] { CHECK_CU(cuEventRecord(event_, streams_[stream].handle)); });
      streams_[stream].clock = behind(stream);
      on_thread_of(waiter,
                   [&] { CHECK_CU(cuStreamWaitEvent(streams_[waiter].handle, event_, 0)); });
      merge(streams_[waiter].clock, streams_[stream].clock);
    }
    // The legacy stream waits for other streams only when it is given work.
    if (!ordered()) synchronize_context();
  }
  void may_read(uint32_t buffer, uint32_t reader) { order(buffers_[buffer].written, reader); }
  void may_write(uint32_t buffer, uint32_t writer) {
    for (uint32_t id = 0; id < streams_ever_; id++) {
      order({id, buffers_[buffer].touched[id]}, writer);
    }
  }
  void touched(uint32_t buffer, uint32_t stream, bool wrote) {
    const Operation last = last_of(stream);
    buffers_[buffer].touched[last.stream_id] = last.number;
    if (wrote) buffers_[buffer].written = last;
  }

  // ---- Operations ------------------------------------------------------------------------------

  uint32_t any_buffer() { return random_.below(kBuffers); }

  void fail(const char* what, uint32_t index, const Words& wanted, const uint32_t* got) {
    if (!good_) return;
    good_ = false;
    printf("# step %u, %s, buffer %u: %u instead of %u\n", step_, what, index, got[0], wanted[0]);
  }
  void compare(const char* what, uint32_t index, const uint32_t* got) {
    const Words& wanted = buffers_[index].model;
    if (!std::equal(wanted.begin(), wanted.end(), got)) fail(what, index, wanted, got);
  }

  void step() {
    const uint32_t stream = random_.below(kStreams);
    switch (random_.below(12)) {
      case 0: return keep_busy(stream);
      case 1: return mix(stream, any_buffer());
      case 2: return launch_graph(stream, any_buffer());
      case 3: return call_host(stream, kOnDevice + random_.below(kBuffers - kOnDevice));
      case 4: return fill(stream, any_buffer());
      case 5: return copy(stream, any_buffer(), any_buffer());
      case 6: return from_pageable(stream, any_buffer());
      case 7: return to_pageable(stream, any_buffer());
      case 8: return read_pinned(kOnDevice + random_.below(kBuffers - kOnDevice));
      case 9: return wait_for(stream);
      case 10: return replace(stream);
      default: return read_back(any_buffer());
    }
  }

  void keep_busy(uint32_t stream) {
    order(scratch_user_, stream);
    on_thread_of(stream, [&] {
      e2e::launch(spin_, 1, 1, 0, streams_[stream].handle, scratch_, kLongRounds);
    });
    issued(stream);
    scratch_user_ = last_of(stream);
  }
  void mix(uint32_t stream, uint32_t index) {
    may_write(index, stream);
    const auto key = static_cast<uint32_t>(random_.below(1000));
    on_thread_of(stream, [&] {
      e2e::launch(mix_, 1, kWords, 0, streams_[stream].handle, buffers_[index].address, kWords,
                  key);
    });
    issued(stream);
    touched(index, stream, true);
    e2e::mix_on_host(buffers_[index].model, key);
  }
  void launch_graph(uint32_t stream, uint32_t index) {
    may_write(index, stream);
    on_thread_of(stream,
                 [&] { CHECK_CU(cuGraphLaunch(buffers_[index].graph, streams_[stream].handle)); });
    issued(stream);
    touched(index, stream, true);
    e2e::mix_on_host(buffers_[index].model, 5);
  }
  void call_host(uint32_t stream, uint32_t index) {
    may_write(index, stream);
    const uint32_t key = random_.below(1000);
    on_thread_of(stream, [&] {
      CHECK_CU(cuLaunchHostFunc(streams_[stream].handle, mix_by_host,
                                new HostCall{buffers_[index].host, key}));
    });
    issued(stream);
    touched(index, stream, true);
    e2e::mix_on_host(buffers_[index].model, key);
  }
  void fill(uint32_t stream, uint32_t index) {
    const bool plain = random_.below(3) == 0;  // by a call without a stream: in the legacy stream
    if (plain) stream = kLegacy;
    may_write(index, stream);
    const uint32_t value = random_.below(1000);
    on_thread_of(stream, [&] {
      const CUdeviceptr to = buffers_[index].address;
      CHECK_CU(plain ? cuMemsetD32_v2(to, value, kWords)
                     : cuMemsetD32Async(to, value, kWords, streams_[stream].handle));
    });
    issued(stream);
    touched(index, stream, true);
    buffers_[index].model.assign(kWords, value);
    if (plain && buffers_[index].host != nullptr) waited(stream);
  }

  // A copy between two buffers in any kinds of memory, by one of several calls.
  void copy(uint32_t stream, uint32_t to, uint32_t from) {
    if (to == from) return;
    const uint32_t kind = random_.below(5);
    const bool plain = kind < 3;
    if (plain) stream = kLegacy;
    may_read(from, stream);
    may_write(to, stream);
    const CUdeviceptr target = buffers_[to].address, source = buffers_[from].address;
    CUDA_MEMCPY2D box{};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    box.srcDevice = source;
    box.dstDevice = target;
    box.srcPitch = box.dstPitch = box.WidthInBytes = kBytes / 4;
    box.Height = 4;
    on_thread_of(stream, [&] {
      const CUstream handle = streams_[stream].handle;
      switch (kind) {
        case 0: CHECK_CU(cuMemcpy(target, source, kBytes)); break;
        case 1: CHECK_CU(cuMemcpy2D_v2(&box)); break;
        case 2: CHECK_CU(cuMemcpyDtoD_v2(target, source, kBytes)); break;
        case 3: CHECK_CU(cuMemcpyAsync(target, source, kBytes, handle)); break;
        default: CHECK_CU(cuMemcpy2DAsync_v2(&box, handle));
      }
    });
    issued(stream);
    touched(from, stream, false);
    touched(to, stream, true);
    buffers_[to].model = buffers_[from].model;
    // A copy by a call without a stream has ended when the call returns if one side is host memory;
    // by any call if both sides are. cuMemcpyDtoD is not for host memory.
    const int hosts = (buffers_[to].host != nullptr) + (buffers_[from].host != nullptr);
    if (hosts == 2 ? kind != 2 : hosts == 1 && kind < 2) waited(stream);
  }
  // The program may change the pageable memory when the call returns.
  void from_pageable(uint32_t stream, uint32_t index) {
    const bool plain = random_.below(2) == 0;
    if (plain) stream = kLegacy;
    may_write(index, stream);
    for (uint32_t& word : pageable_) word = random_.below(1000);
    buffers_[index].model = pageable_;
    on_thread_of(stream, [&] {
      const CUdeviceptr to = buffers_[index].address;
      const auto from = reinterpret_cast<CUdeviceptr>(pageable_.data());
      CHECK_CU(plain ? cuMemcpy(to, from, kBytes)
                     : cuMemcpyAsync(to, from, kBytes, streams_[stream].handle));
    });
    issued(stream);
    touched(index, stream, true);
    // A copy between host memory has ended.
    if (buffers_[index].host != nullptr) waited(stream);
    pageable_.assign(kWords, 0);
  }
  // The copy has ended when the call returns.
  void to_pageable(uint32_t stream, uint32_t index) {
    const bool plain = random_.below(2) == 0;
    if (plain) stream = kLegacy;
    may_read(index, stream);
    on_thread_of(stream, [&] {
      const auto to = reinterpret_cast<CUdeviceptr>(pageable_.data());
      const CUdeviceptr from = buffers_[index].address;
      CHECK_CU(plain ? cuMemcpy(to, from, kBytes)
                     : cuMemcpyAsync(to, from, kBytes, streams_[stream].handle));
    });
    issued(stream);
    touched(index, stream, false);
    waited(stream);
    compare("copied to pageable memory", index, pageable_.data());
  }
  void read_pinned(uint32_t index) {
    may_read(index, kStreams);
    compare("read by the host", index, buffers_[index].host);
  }
  void read_back(uint32_t index) {
    if (buffers_[index].host != nullptr) return read_pinned(index);
    may_read(index, kStreams);
    CHECK_CU(cuMemcpyDtoH_v2(pageable_.data(), buffers_[index].address, kBytes));
    issued(kLegacy);
    touched(index, kLegacy, false);
    waited(kLegacy);
    compare("read back", index, pageable_.data());
  }
  // Replaces a stream that may still have work.
  void replace(uint32_t slot) {
    Stream& stream = streams_[slot];
    if (!stream.replaceable) return;
    if (stream.blocking) merge(parted_, stream.clock);
    CHECK_CU(cuStreamDestroy_v2(stream.handle));
    CHECK_CU(cuStreamCreate(&stream.handle,
                            stream.blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    stream.clock = {};
    stream.id = streams_ever_++;
  }

  Helper& helper_;
  e2e::Random random_;
  CUfunction mix_ = nullptr, spin_ = nullptr;
  CUdeviceptr scratch_ = 0;
  Operation scratch_user_;
  CUevent event_ = nullptr;
  std::array<Stream, kStreams> streams_;
  uint32_t streams_ever_ = 0;  // how many IDs are in use
  std::array<Buffer, kBuffers> buffers_;
  Words pageable_;
  Clock count_{};   // the number of operations given to each stream
  Clock host_{};    // operations that the host knows to have ended
  Clock parted_{};  // the work of blocking streams that were destroyed
  uint32_t step_ = 0;
  bool good_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  const e2e::Session session;
  Helper helper(session.context);
  const size_t programs = e2e::argument(argc, argv, 1, 40);
  const size_t first = e2e::argument(argc, argv, 2, 1);
  size_t right = 0;
  for (size_t seed = first; seed < first + programs; seed++) {
    Program program(session, helper, seed);
    if (program.run()) {
      right++;
    } else {
      printf("# program %zu is wrong\n", seed);
    }
  }
  e2e::expect(right == programs, "%zu of %zu programs came to the model's results", right,
              programs);
  return e2e::finish();
}
