// SPDX-License-Identifier: Apache-2.0
// The memory that a client and a worker share: where a session's addresses lie and how its host
// file is laid out. Normative together with commands/*.h and handshake.h (docs/wire-format.md).
//
// A session owns one address window, the same addresses in the client and in the worker:
//
//   base                      base + kDeviceBytes                         base + kWindowBytes
//   | device memory: VMM maps | host file: channel | pinned host memory   |
//
// The upper part is one sparse, sealed memfd ("host file") that both map at that address. So a
// pointer into it means the same in the program, in the worker and, once registered, on the GPU.
// Its first kChannelBytes hold the channel, the rest is the heap of pinned host memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace openmps::wire {

inline constexpr uint32_t kMagic = 0x53504d4f;  // "OMPS"
inline constexpr uint32_t kProtocolVersion = 4;

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

inline constexpr uint32_t kMaxDevices = 16;  // the largest single machines have as many GPUs
inline constexpr uint32_t kAllDevices = (1u << kMaxDevices) - 1;  // a bit each

// ---- Address windows ------------------------------------------------------------------------
// A process has 128 TiB. Measured on an H200: reservations at chosen addresses from
// 0x1000'0000'0000 up are granted. The first window starts above AddressSanitizer's shadow (which
// ends at 0x1000'7fff'8000); the end leaves 4 TiB below the stack to a program's own mappings, and
// the hole is where executables and their heaps lie: 104 TiB are ours (docs/decisions/0019).
// Windows are given out from the bottom. Extents are given out from the top: for device memory that
// does not fit into a window, and for reservations (PyTorch's expandable segments: 9/8 of the
// device's memory for every stream and pool; docs/decisions/0006). ThreadSanitizer allows a program
// only three ranges of addresses: in its builds the windows are small and lie at the bottom of the
// highest range.
#if defined(__SANITIZE_THREAD__)
inline constexpr uint64_t kFirstWindow = 0x7e80'0000'0000;
inline constexpr uint64_t kWindowBytes = 4 * kGiB;
inline constexpr uint64_t kDeviceBytes = 3 * kGiB;
inline constexpr uint64_t kExtentBytes = kDeviceBytes;
inline constexpr uint32_t kMaxWindows = 96;
inline constexpr uint64_t kAddressEnd = kFirstWindow + kMaxWindows * kWindowBytes;
inline constexpr uint64_t kAddressHole = kAddressEnd;
inline constexpr uint64_t kAddressHoleEnd = kAddressEnd;
#else
inline constexpr uint64_t kFirstWindow = 0x1100'0000'0000;
inline constexpr uint64_t kWindowBytes = 72 * kGiB;
inline constexpr uint64_t kDeviceBytes = 8 * kGiB;  // most programs need no extent
// The size of an extent, for a client whose window is full: more than the memory of one GPU today
// (141 GB).
inline constexpr uint64_t kExtentBytes = 192 * kGiB;
inline constexpr uint32_t kMaxWindows = 1024;  // clients of a server; they take 72 TiB
inline constexpr uint64_t kAddressEnd = 0x7c00'0000'0000;
inline constexpr uint64_t kAddressHole = 0x5500'0000'0000;
inline constexpr uint64_t kAddressHoleEnd = 0x5800'0000'0000;
#endif
inline constexpr uint64_t kHostBytes = kWindowBytes - kDeviceBytes;

// Each worker of a server chooses addresses beside windows from a place of its own down, in the
// upper quarter of the addresses, of which windows have the lower ones: a session that comes from
// another worker finds its addresses free. A place is 0.8 TiB long.
inline constexpr uint32_t kAddressPlaces = 32;
inline constexpr uint64_t kPlaceBytes =
    (kAddressEnd - kFirstWindow) / 4 / kAddressPlaces / kGiB * kGiB;
constexpr uint64_t place_end(uint32_t place) { return kAddressEnd - place * kPlaceBytes; }
// The places in which a range lies, a bit each.
constexpr uint32_t places_of(uint64_t begin, uint64_t end) {
  uint32_t places = 0;
  for (uint32_t i = 0; i < kAddressPlaces; ++i) {
    if (begin < place_end(i) && end > place_end(i + 1)) places |= 1u << i;
  }
  return places;
}

// Extents of one session: as many as eight segments on each of 16 devices need, and few enough
// that one client cannot use up the addresses of all clients.
inline constexpr uint64_t kMaxExtentBytes = 16 * 1024 * kGiB;
inline constexpr uint32_t kMaxExtents = 256;

inline constexpr uint32_t kWindowsBelowHole = (kAddressHole - kFirstWindow) / kWindowBytes;
constexpr uint64_t window_base(uint32_t index) {
  return index < kWindowsBelowHole ? kFirstWindow + index * kWindowBytes
                                   : kAddressHoleEnd + (index - kWindowsBelowHole) * kWindowBytes;
}
static_assert(window_base(kMaxWindows - 1) + kWindowBytes <= kAddressEnd);

// Physical device memory is granted, mapped and freed in units of this size: the VMM granularity of
// every GPU so far.
inline constexpr uint64_t kMemoryGranularity = 2 * kMiB;
// Host memory is registered, and dma-bufs are made, in whole pages: of every x86-64 host.
inline constexpr uint64_t kHostPageBytes = 4096;

// ---- Host file ------------------------------------------------------------------------------
inline constexpr uint64_t kRingBytes = kMiB;  // power of two; ~8000 launches of typical size
// Of that, what has been done last stays as it is: the next worker may have to do it again. More
// than the driver takes of a few streams (some 1,020 launches of each).
inline constexpr uint64_t kRingHistoryBytes = kRingBytes / 2;
// The consumer marks where a record begins in each part of the ring.
inline constexpr uint32_t kRingParts = 16;
inline constexpr uint32_t kReplySlots = 256;  // client threads in a synchronous call at once
inline constexpr uint64_t kReplySlotBytes = 4 * kKiB;
inline constexpr uint32_t kFenceSlots = 4096;    // live streams of a session
inline constexpr uint64_t kFenceSlotBytes = 64;  // one cache line: the GPU writes, the client spins
inline constexpr uint32_t kCallbackSlots = 1024;  // host functions between enqueue and completion
// How many rows of each kind `openmps inspect` is shown; a session may have more. All rows together
// fit a report (kMaxWaitRows).
inline constexpr uint32_t kShownHindrances = 8;
inline constexpr uint32_t kShownValueWaits = 128;
inline constexpr uint32_t kShownReturns = 128;
inline constexpr uint64_t kStagingBytes = 16 * kMiB;  // pageable copies and blobs in flight
// The client cuts the arena into pieces: small ones first, then pieces of this size up to the end.
inline constexpr uint64_t kSmallStagingBytes = 2 * kMiB;
inline constexpr uint64_t kStagingPieceBytes = 512 * kKiB;

inline constexpr uint64_t kHeaderOffset = 0;
inline constexpr uint64_t kRingControlOffset = 4 * kKiB;
inline constexpr uint64_t kExecutorOffset = 8 * kKiB;
inline constexpr uint64_t kValueWaitOffset = 12 * kKiB;
inline constexpr uint64_t kReturnOffset = 16 * kKiB;
inline constexpr uint64_t kLostEventsOffset = 20 * kKiB;
inline constexpr uint64_t kEventTimesOffset = 53 * kKiB;
inline constexpr uint64_t kReplyOffset = 64 * kKiB;
inline constexpr uint64_t kPromiseOffset = 1280 * kKiB;
inline constexpr uint64_t kFullOffset = 1344 * kKiB;
inline constexpr uint64_t kRingOffset = 2 * kMiB;
// What the GPU reads and writes is contiguous: the worker registers it piece by piece on first use.
inline constexpr uint64_t kRegisteredOffset = 4 * kMiB;
inline constexpr uint64_t kFenceOffset = kRegisteredOffset;
inline constexpr uint64_t kCallbackOffset = kFenceOffset + kFenceSlots * kFenceSlotBytes;
inline constexpr uint64_t kStagingOffset = 6 * kMiB;
inline constexpr uint64_t kRegisteredEnd = kStagingOffset + kStagingBytes;
// What the client's kernels print (output_ring.h). Text of four times the default printf FIFO,
// whose records grow when they are formatted.
inline constexpr uint64_t kOutputOffset = 24 * kMiB;
inline constexpr uint64_t kOutputTextOffset = 28 * kMiB;
inline constexpr uint64_t kOutputTextBytes = 4 * kMiB;
inline constexpr uint64_t kChannelBytes = 32 * kMiB;
inline constexpr uint64_t kPinnedOffset = kChannelBytes;  // the pinned heap, to the end of the file
static_assert(kValueWaitOffset + kShownValueWaits * 32 <= kReturnOffset);
static_assert(kReturnOffset + kShownReturns * 32 <= kLostEventsOffset);
static_assert(kReplyOffset + kReplySlots * kReplySlotBytes <= kPromiseOffset);
static_assert(kPromiseOffset + kFenceSlots * 16 <= kFullOffset);
static_assert(kFullOffset + kFenceSlots * 4 <= kRingOffset);
static_assert(kRingOffset + kRingBytes <= kRegisteredOffset);
static_assert(kCallbackOffset + kCallbackSlots * 64 <= kStagingOffset);
static_assert(kRegisteredEnd <= kOutputOffset);
static_assert(kOutputTextOffset + kOutputTextBytes <= kChannelBytes);

inline constexpr uint32_t kCulpritBytes = 256;  // one sentence

// First page. The server fills the constants before anyone else maps it; both sides check them.
struct ChannelHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t window_base;
  uint32_t session;
  // 1 once the session has tainted the worker (wire::SessionClosed). Written by the worker, read by
  // the server when the client has gone. A client that forges it can only make the server renew the
  // worker.
  std::atomic<uint32_t> tainted;
  // The state of the session, a CUresult: CUDA_SUCCESS until it ends, then sticky. Written by the
  // worker (fault 7xx, violation 806) or the server (worker lost 806, terminated 810); read by the
  // client in every wait and every synchronous call.
  alignas(64) std::atomic<uint32_t> status;
  // Grows when the session has moved to another worker, which takes the ring's commands from then
  // on. Written by the server; read by waiting threads, whose requests to be woken are lost.
  std::atomic<uint32_t> generation;
  // First error of a command without reply since the last report, a CUresult (0: none), with the
  // opcode that failed. Written by the executor (only if zero), taken by the client's next
  // synchronous call, as CUDA documents for asynchronous errors.
  alignas(64) std::atomic<uint32_t> async_error;
  std::atomic<uint32_t> async_error_opcode;
  // The one futex of a session's waiting client threads: bumped and woken after whatever may end a
  // wait, when `waiters` is not zero.
  alignas(64) std::atomic<uint32_t> wake_epoch;
  std::atomic<uint32_t> waiters;
  // How many kMemoryUnmap (except those carried out at once) and kHostUnregister commands of the
  // session have been carried out, in the order of the ring: their addresses are free again. Stored
  // with release by the executor, which never reads them.
  alignas(64) std::atomic<uint64_t> unmapped;
  std::atomic<uint64_t> unregistered;
  // Who has ended the worker that the session had before: one sentence, with a terminating zero.
  // Written by the server before `generation`, for the client's messages alone.
  char culprit[kCulpritBytes];
};
static_assert(sizeof(ChannelHeader) <= kRingControlOffset);

// Whether the consumer of a ring sleeps, and what wakes it. A consumer that naps looks again by
// itself soon; only a producer that waits for the result of a command wakes it (decision 24).
enum class ConsumerRest : uint32_t { kAwake = 0, kAsleep = 1, kNaps = 2 };

// Free-running byte counters, each on its own cache line. tail: stored with release by the
// producer after the record, loaded with acquire by the consumer. head: stored with release by the
// consumer after it has done what the record says, loaded with acquire by the producer: free space.
// After the consumer's end the next one takes the record at head again.
struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
  std::atomic<uint64_t> taken;  // by the consumer, which may not have done it: head or more
  // The first record that began in each part, counted like head, for RingHistory alone.
  alignas(64) std::atomic<uint64_t> begins[kRingParts];
  // A ConsumerRest, the futex on which the consumer sleeps. The producer publishes a record, then
  // fences (seq_cst), then reads it.
  alignas(64) std::atomic<uint32_t> consumer_sleeping;
  // How often the producer has woken the consumer without a record (RingProducer::nudge()).
  std::atomic<uint32_t> nudges;
};

// What the executor is doing, for `openmps inspect` alone. The client can write here, too, and so
// only mislead the reader of its own report. Relaxed.
enum class ExecutorWait : uint32_t { kNone = 0, kQuietMoment = 1, kHeldBack = 2, kPrintTurn = 3 };
// Why another session, or the session's own work, keeps the executor waiting. A later enumerator is
// the more precise reason.
enum class Hindrance : uint32_t {
  kNone = 0,
  kSubmits = 1,       // the session is submitting work
  kRuns = 2,          // work of the stream has not ended
  kOutlasts = 3,      // work of the stream has not ended although new work was held back
  kAwaitsValue = 4,   // the stream may wait for a value that the program writes
  kHostFunction = 5,  // the stream may wait for a host function that the program has to run
  kQuietMoment = 6,   // the session waits for quiescence, or has it
  kPrintTurn = 7,     // the session's kernels, which may print, have the turn
};
struct ShownHindrance {
  std::atomic<uint32_t> session;  // 0: the worker itself
  std::atomic<uint32_t> stream;   // 0: no single one
  std::atomic<Hindrance> why;     // kNone: this and what follows is not in use
  std::atomic<uint32_t> reserved;
};
struct ExecutorState {
  std::atomic<uint64_t> executed;       // commands so far
  std::atomic<uint32_t> opcode;         // in work; 0: none
  std::atomic<uint32_t> later;          // commands that will be answered when something is done
  std::atomic<ExecutorWait> wait;       // for what other sessions do
  std::atomic<uint32_t> value_waits;    // open ones that are known, with and without a row
  std::atomic<uint64_t> wait_since_ns;  // by now_ns()
  std::atomic<uint64_t>
      value_waits_seen_ns;        // when the executor last looked which are open; by now_ns()
  std::atomic<uint32_t> returns;  // deferred releases, with and without a row
  std::atomic<uint32_t>
      return_stream;           // the stream whose work the releases behind streams wait for first
  std::atomic<uint32_t> held;  // pieces of work that are held
  std::atomic<uint32_t> unused;
  ShownHindrance hindrances[kShownHindrances];  // while `wait` is not kNone
};
static_assert(sizeof(ExecutorState) <= kValueWaitOffset - kExecutorOffset);
// A value that a stream waits for (cuStreamWaitValue, alone or in a graph).
struct ValueWait {
  std::atomic<uint64_t> address;
  std::atomic<uint64_t> value;
  std::atomic<uint64_t> since_ns;  // given to the stream, by now_ns()
  std::atomic<uint32_t> stream;
  // Bytes of the word, and kValueCondition times its condition (CU_STREAM_WAIT_VALUE_*); 0: not in
  // use.
  std::atomic<uint32_t> how;
};
static_assert(sizeof(ValueWait) == 32);
inline constexpr uint32_t kValueCondition = 16;
// What the program has released and the driver still has.
enum class ReturnKind : uint32_t {
  kNone = 0,
  kDeviceMemory = 1,
  kHostMemory = 2,
  kArray = 3,
  kGreenContext = 4,
  kImage = 5,  // a texture or surface object
  kCode = 6,
};
enum class ReturnWait : uint32_t {
  kStreams = 0,      // until the session's earlier work has ended
  kQuietMoment = 1,  // until no session's work runs
};
struct PendingReturn {
  std::atomic<uint64_t> address;   // of memory
  std::atomic<uint64_t> bytes;     // of memory, arrays and green contexts
  std::atomic<uint64_t> since_ns;  // by now_ns()
  std::atomic<ReturnKind> kind;    // kNone: not in use
  std::atomic<ReturnWait> wait;
};
static_assert(sizeof(PendingReturn) == 32);
// The value that a fence slot will reach. Relaxed, for `openmps inspect` alone.
struct FencePromise {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> stream;
  std::atomic<uint32_t> reserved;
};
static_assert(sizeof(FencePromise) == 16);

// Free-running byte counters of the printed text: tail is stored with release by the worker after
// the text, head by the client after it has copied the text out.
struct OutputControl {
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
};

// One per client thread in a synchronous call. The client writes kPending before it publishes the
// command; the worker writes result, bytes and payload, then kDone with release.
struct ReplySlot {
  enum State : uint32_t { kIdle = 0, kPending = 1, kDone = 2 };
  std::atomic<uint32_t> state;
  uint32_t result;  // CUresult
  uint32_t bytes;   // of payload
  uint32_t reserved;
  unsigned char payload[kReplySlotBytes - 16];
};
static_assert(sizeof(ReplySlot) == kReplySlotBytes);
inline constexpr uint64_t kMaxReplyBytes = kReplySlotBytes - 16;

// The GPU writes `value` (cuStreamWriteValue64) when the stream has come that far. Values of a slot
// only grow, also when a slot passes to another stream, so "value >= wanted" remains true.
//
// Work of a stream that was under way when its worker was lost has not been carried out
// (docs/decisions/0042). Then the worker stores `good`, the last value that was really reached, and
// `lost`, then the values that it has promised, so that waits end once the session's generation is
// that of the loss, or its status is set. Whoever waits for a value above `good` while `lost` is
// not 0 returns the error once, and sends StreamAcknowledge.
struct FenceSlot {
  std::atomic<uint64_t> value;
  std::atomic<uint64_t> good;
  // The number of the loss (number_of_loss()); 0: nothing is lost. Cleared by the worker when it
  // takes StreamAcknowledge.
  std::atomic<uint32_t> lost;
  unsigned char padding[kFenceSlotBytes - 20];
};
static_assert(sizeof(FenceSlot) == kFenceSlotBytes);
// Differs from the number of the slot's last loss. `generation`: of the session in the worker that
// drops the work; `count`: of the losses in that worker, 0: what its predecessor has lost.
constexpr uint32_t number_of_loss(uint32_t generation, uint32_t count) {
  const uint32_t number = generation << 16 | (count & 0xffff);
  return number != 0 ? number : 1;
}
// The loss is of a worker from which the session has not moved yet. Generations are cyclic.
constexpr bool is_of_later_generation(uint32_t number, uint32_t generation) {
  return static_cast<int16_t>(static_cast<uint16_t>(number >> 16) -
                              static_cast<uint16_t>(generation)) > 0;
}
// Events that were recorded in lost streams and not reached, for the next worker: whoever waits for
// them is lost as well. Written by the worker before the session moves.
struct LostEvent {
  std::atomic<uint64_t> event;
  std::atomic<uint64_t> stream;
};
inline constexpr uint32_t kMostLostEvents = 2048;
struct LostEvents {
  std::atomic<uint32_t> count;  // above kMostLostEvents: there are more, any event may be lost
  uint32_t reserved[3];
  LostEvent events[kMostLostEvents];
};
static_assert(kLostEventsOffset + sizeof(LostEvents) <= kEventTimesOffset);

// When events were recorded, for the next worker (cuEventElapsedTime). Written by the worker before
// the session leaves it.
struct EventTime {
  std::atomic<uint64_t> event;
  std::atomic<uint64_t> ns;  // CLOCK_MONOTONIC, to some 10 us
};
inline constexpr uint32_t kMostEventTimes = 640;
struct EventTimes {
  std::atomic<uint32_t> count;
  uint32_t reserved[3];
  EventTime events[kMostEventTimes];
};
static_assert(kEventTimesOffset + sizeof(EventTimes) <= kReplyOffset);

// A host function of the client (cuLaunchHostFunc) on its way: the worker's stream posts
// `posted` = 1 (GPU write), the client's callback thread runs the function and writes `done` = 1,
// for which the stream waits (cuStreamWaitValue32). The client owns the allocation of slots.
// `posted` = kCallbackDropped: the function's stream has been lost, and the function is not to run,
// as after an error of CUDA's.
inline constexpr uint32_t kCallbackDropped = 2;
struct CallbackSlot {
  std::atomic<uint32_t> posted;
  std::atomic<uint32_t> done;
  unsigned char padding[56];
};
static_assert(sizeof(CallbackSlot) == 64);

}  // namespace openmps::wire
