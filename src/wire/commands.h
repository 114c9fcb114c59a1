// SPDX-License-Identifier: Apache-2.0
// The commands of the ring: client to worker, in program order, executed in that order by the
// session's executor. All structs are plain data of fixed layout, followed by the variable part
// that they name. Normative together with layout.h (docs/wire-format.md).
//
// Objects are named by 32-bit ids that the client mints per type, starting at 1; 0 is none. An id
// is free again right after its destroy command: the ring keeps the order. The worker
// checks every id, length and address against what the session owns; a violation ends the session
// with CUDA_ERROR_MPS_RPC_FAILURE and a reason in the log.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/cuda_abi.h"
#include "wire/layout.h"
#include "wire/limits.h"

namespace openmps::wire {

using Id = uint32_t;

// Every record: this header, the command's struct, its variable part; padded to kRecordAlignment.
struct RecordHeader {
  uint32_t bytes;  // of the whole record
  uint16_t opcode;
  uint16_t reply_slot;  // kNoReply: nobody waits; errors go to ChannelHeader::async_error
};
inline constexpr uint32_t kRecordAlignment = 16;
inline constexpr uint16_t kNoReply = 0xffff;
// Holds the largest kernel parameters (32764 bytes since CUDA 12.1) with their launch.
inline constexpr uint32_t kMaxRecordBytes = 64 * 1024;
inline constexpr uint32_t kMaxKernelParameterBytes = 32764;
// What nvcc -rdc=true links travels as several containers, one behind the other, each at a multiple
// of this many bytes: the linked code, then what it was linked from, one of each object file.
inline constexpr uint64_t kContainerAlignment = 8;
inline constexpr uint32_t kMaxContainers = 4096;
inline constexpr uint32_t kMaxNameBytes = 16 * 1024;  // mangled names; also JIT logs

// "sync": has a reply slot, the reply's payload is the named struct. Otherwise reply_slot may
// still be set (the program asked for a checked call): then the payload is empty.
enum class Opcode : uint16_t {
  kPadding = 0,                // fills the ring up to its end
  kPing = 1,                   // sync
  kLaunch = 2,                 // Launch + CUlaunchAttribute[attribute_count] + parameter bytes
  kMemcpy = 3,                 // Memcpy
  kMemcpy3D = 4,               // Memcpy3D
  kMemset = 5,                 // Memset
  kFence = 6,                  // Fence
  kWakeAfter = 7,              // WakeAfter
  kStreamCreate = 8,           // StreamCreate
  kStreamDestroy = 9,          // ObjectOnly
  kEventCreate = 10,           // EventCreate
  kEventDestroy = 11,          // ObjectOnly
  kEventRecord = 12,           // EventRecord
  kStreamWaitEvent = 13,       // StreamWaitEvent
  kEventElapsed = 14,          // EventElapsed, sync -> EventElapsedReply
  kMemoryMap = 15,             // MemoryRange, sync: physical memory appears at this range
  kMemoryUnmap = 16,           // MemoryRange: once the session's work so far has ended
  kHostRegister = 17,          // MemoryRange in the pinned heap, sync
  kHostUnregister = 18,        // MemoryRange: likewise; its pages go back to the system
  kBlobBegin = 19,             // BlobBegin
  kBlobData = 20,              // BlobData
  kModuleLoad = 21,            // ModuleLoad, sync -> ModuleLoadReply + log text
  kModuleUnload = 22,          // ObjectOnly
  kGetFunction = 23,           // GetSymbol + name, sync -> FunctionReply + ParameterLayout[]
  kGetGlobal = 24,             // GetSymbol + name, sync -> GlobalReply
  kHostFunction = 25,          // HostFunction
  kMemoryInfo = 26,            // DeviceOnly, sync -> MemoryInfoReply
  kStreamWriteValue = 27,      // StreamValue
  kStreamWaitValue = 28,       // StreamValue
  kGraphBegin = 29,            // GraphBegin; this and what follows: graph_commands.h
  kGraphNode = 30,             // GraphNode + GraphEdge[] + body
  kGraphInstantiate = 31,      // GraphInstantiate, sync -> GraphInstantiateReply
  kGraphLaunch = 32,           // GraphLaunch
  kGraphUpdate = 33,           // GraphUpdate, sync -> GraphUpdateReply
  kGraphExecDestroy = 34,      // ObjectOnly
  kGraphUpload = 35,           // GraphLaunch
  kFunctionSetAttribute = 36,  // FunctionAttribute, sync
  kFunctionGetAttribute = 37,  // FunctionAttribute, sync -> int32 value
  kOccupancy = 38,             // Occupancy, sync -> OccupancyReply
  kModuleSymbols = 39,         // ObjectOnly, sync -> ModuleSymbolsReply (function and global count)
  kContextReset = 40,  // ContextOnly, sync: drop what the context's limits, streams, modules hold
  kClusterOccupancy = 41,  // ClusterOccupancy + CUlaunchAttribute[], sync -> OccupancyReply
  kModuleFunctions = 42,   // ModuleFunctions, sync -> ModuleFunctionsReply + names
  kStreamBatch = 43,       // StreamBatch + ValueOperation[]
  kArrayCreate = 50,       // ArrayCreate, sync; this and what follows: array_commands.h
  kArrayPart = 51,         // ArrayPart, sync -> ArrayPartReply
  kArrayDestroy = 52,      // ObjectOnly: its parts go with it
  kMipmappedDestroy = 53,  // ObjectOnly
  kArrayCopy = 54,         // ArrayCopy
  kImageCreate = 55,       // ImageCreate, sync -> ImageReply
  kImageDestroy = 56,      // ObjectOnly
  kAddressReserve = 64,    // AddressReserve, sync -> AddressReply: an extent beside the window
  kAddressFree = 65,       // MemoryRange: the extent that begins there, with nothing mapped
  kPhysicalCreate = 66,    // PhysicalCreate, sync: memory that is mapped by kPhysicalMap
  kPhysicalRelease = 67,   // ObjectOnly: mappings keep the memory
  kPhysicalMap = 68,       // PhysicalMap, sync: without access until kMemoryAccess
  kMemoryAccess = 69,      // MemoryAccess, sync
  kPhysicalExport = 70,    // PhysicalTicket, sync; the descriptor comes by PassDescriptor
  kPhysicalImport = 71,    // PhysicalTicket of a descriptor sent before, sync -> PhysicalReply
  kMemoryPublish = 72,     // MemoryRange, sync -> ShareKey: of one kMemoryMap
  kMemoryWithdraw = 73,    // ShareKey: nobody opens it any more; who has, keeps it
  kMemoryOpen = 74,        // MemoryOpen, sync -> MemoryOpenReply: another session's memory
  kEventPublish = 75,      // ObjectOnly, sync -> ShareKey
  kEventOpen = 76,         // EventOpen, sync: another session's event under an id of this one
  kEventQuery = 77,        // ObjectOnly, sync; CUDA_ERROR_NOT_READY
  kPeerAccess = 78,        // PeerAccess, sync
  kRangeExport = 79,       // RangeExport, sync; the descriptor comes by PassDescriptor
  kDeviceResource = 80,    // DeviceResource, sync -> CUdevResource; this and what follows to
                           // kContextFollow: green_commands.h
  kResourceSplit = 81,     // ResourceSplit, sync -> ResourceSplitReply
  kResourceRead = 82,      // ResourceRead, sync -> CUdevResource[]: what the last split made
  kResourceDescribe = 83,  // ResourceDescribe + CUdevResource[], sync
  kGreenCreate = 84,       // GreenCreate, sync
  kGreenDestroy = 85,      // ObjectOnly, sync: its streams have been destroyed
  kContextJoin = 86,       // ContextJoin
  kContextFollow = 87,     // ObjectOnly, a stream: later work of its context comes behind it
  kOutputFlush = 90,       // sync -> OutputFlushReply: what kernels printed is in the output ring
  kLinkCreate = 91,        // LinkCreate, sync
  kLinkAdd = 92,           // LinkAdd + name + JitOption[], sync -> ModuleLoadReply + log text
  kLinkComplete = 93,      // ObjectOnly, sync -> LinkCompleteReply + log text
  kLinkRead = 94,          // LinkRead, sync: a piece of the result, into the staging arena
  kLinkDestroy = 95,       // ObjectOnly
  kGraphSetNode = 48,      // GraphSetNode + body, sync
  kGraphEnableNode = 49,   // GraphEnableNode, sync
  kConditionCreate = 57,   // ConditionCreate, sync -> ConditionReply
  kGraphForget = 58,       // ObjectOnly: a graph with conditional handles
  kLimitGet = 60,          // LimitValue, sync -> uint64: the shared context's, in bytes
  kLimitRaise = 61,        // LimitValue, sync
  kFirstGenerated = 256,   // from here on: Generated + the request of api/messages.h; sync
                           // ones reply its reply, unless the call did not come that far
};

struct Nothing {};  // of a command that says all by its opcode
struct ObjectOnly {
  Id id;
  uint32_t reserved;
};
struct DeviceOnly {
  uint32_t device;
  uint32_t reserved;
};
struct ContextOnly {
  Id context;
  uint32_t device;
};

// A CUlimit of the shared context of a device. Raising it to what it is or less changes nothing: a
// client can't lower what others rely on.
struct LimitValue {
  uint32_t device;
  uint32_t limit;
  uint64_t value;
};

struct Launch {
  Id stream;  // in a graph's node: the device
  Id function;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t attribute_count;  // CUlaunchAttribute, pointers and handles in them are ids or refused
  uint32_t parameter_bytes;
  uint32_t flags;  // kLaunchCooperative
};
inline constexpr uint32_t kLaunchCooperative = 1;
inline constexpr uint32_t kMaxLaunchAttributes = 32;  // CUDA 13.0 has fewer kinds, each once

// Addresses are of the session's window (device or host part) or of its modules' globals.
struct Memcpy {
  Id stream;
  uint32_t flags;  // kOrderAllStreams
  uint64_t destination;
  uint64_t source;
  uint64_t bytes;
};
// Later work of every stream of the context waits for this copy: gives the synchronous pageable
// copies, which return once staged, the ordering that programs rely on.
inline constexpr uint32_t kOrderAllStreams = 1;

struct Memcpy3D {
  Id stream;
  uint32_t flags;
  uint64_t destination;  // linear address of row 0, slice 0, byte 0 of what is copied
  uint64_t source;
  uint64_t destination_pitch;  // bytes from row to row
  uint64_t source_pitch;
  uint64_t destination_slice;  // bytes from slice to slice; a multiple of the pitch
  uint64_t source_slice;
  uint64_t width;  // bytes
  uint64_t height;
  uint64_t depth;
};

struct Memset {
  Id stream;
  uint32_t element_bytes;  // 1, 2, 4
  uint64_t destination;
  uint64_t pitch;  // bytes; ignored for height 1
  uint64_t width;  // elements
  uint64_t height;
  uint32_t value;
  uint32_t reserved;
};

// "Write `value` to fence slot `slot` once the stream has come here."
struct Fence {
  Id stream;
  uint32_t slot;  // and kFenceInOrder
  uint64_t value;
};
// The fence waits for whatever work in its place would wait for, also in other streams: the host
// will do such work itself.
inline constexpr uint32_t kFenceInOrder = 0x8000'0000u;
// "Bump and wake ChannelHeader::wake_epoch once the stream has come here": sent by a thread that
// has spun long enough, before it sleeps.
struct WakeAfter {
  Id stream;
  uint32_t reserved;
};

struct StreamCreate {
  Id stream;
  Id context;  // the client's context: the scope of legacy-stream synchronisation
  uint32_t device;
  uint32_t kind;     // StreamKind
  int32_t priority;  // CUDA's numbers
  Id green;          // the green context whose SMs it uses; 0: all
};
enum class StreamKind : uint32_t { kLegacy = 0, kBlocking = 1, kNonBlocking = 2 };

struct EventCreate {
  Id event;
  uint32_t flags;
  uint32_t device;
  uint32_t reserved;
};
struct EventRecord {
  Id event;
  Id stream;
  uint32_t slot;   // also a fence, if slot != kNoFence
  uint32_t flags;  // CUevent_record_flags
  uint64_t value;
};
inline constexpr uint32_t kNoFence = 0xffff'ffffu;
struct StreamWaitEvent {
  Id stream;
  Id event;
  uint32_t flags;
  uint32_t reserved;
};
struct EventElapsed {
  Id start;
  Id end;
};
struct EventElapsedReply {
  float milliseconds;
  uint32_t reserved;
};

struct MemoryRange {
  uint64_t address;
  uint64_t bytes;  // multiple of kMemoryGranularity (device) or of the page (host)
  uint32_t device;
  uint32_t flags;
};
// Flags of kMemoryUnmap. The program maps by itself (cuMemUnmap): it answers for work in flight.
inline constexpr uint32_t kUnmapAtOnce = 1;
// The session may map exactly this range again, at any time, and wants its memory as it is: it may
// be kept for a while. Without: it is given back.
inline constexpr uint32_t kUnmapKeep = 2;
struct AddressReserve {
  uint64_t bytes;      // multiple of kMemoryGranularity
  uint64_t alignment;  // power of two, kMemoryGranularity at least
};
struct AddressReply {
  uint64_t address;
};

// Physical memory apart from its mappings (cuMemCreate).
struct PhysicalCreate {
  Id physical;
  uint32_t device;
  uint64_t bytes;
  uint32_t flags;  // kPhysicalExportable, ...
  uint32_t reserved;
};
inline constexpr uint32_t kPhysicalExportable = 1;    // as a POSIX descriptor
inline constexpr uint32_t kPhysicalRdma = 2;          // allocFlags.gpuDirectRDMACapable
inline constexpr uint32_t kPhysicalCompressible = 4;  // allocFlags.compressionType
struct PhysicalMap {
  uint64_t address;
  uint64_t bytes;
  uint64_t offset;  // into the physical memory
  Id physical;
  uint32_t reserved;
};
// Whole mappings.
struct MemoryAccess {
  uint64_t address;
  uint64_t bytes;
  uint32_t device;  // whose access
  uint32_t access;  // CUmemAccess_flags
};
// The descriptor of physical memory on its way (handshake.h, PassDescriptor).
struct PhysicalTicket {
  Id physical;
  uint32_t ticket;
};
// Mapped device memory as a dma-buf.
struct RangeExport {
  uint64_t address;
  uint64_t bytes;  // like the address, a multiple of kHostPageBytes
  uint32_t flags;  // CUmemRangeFlags
  uint32_t ticket;
};
struct PhysicalReply {
  uint32_t device;
  uint32_t reserved;
};
// Names what one session shares and another may open: random, so that only who was given it has it.
struct ShareKey {
  unsigned char bytes[16];
};
struct MemoryOpen {
  ShareKey key;
  uint64_t address;  // where to map it
  uint64_t bytes;    // must be those of the memory
};
struct MemoryOpenReply {
  uint32_t device;
  uint32_t reserved;
};
struct EventOpen {
  Id event;
  uint32_t flags;
  ShareKey key;
};
// What the session has or will have on `peer` can be used by kernels of `device`.
struct PeerAccess {
  uint32_t device;
  uint32_t peer;
  uint32_t enable;
  uint32_t reserved;
};
struct MemoryInfoReply {
  uint64_t free;
  uint64_t total;
};

// An image travels as a blob: begin, chunks out of the staging arena, then the load that uses it.
struct BlobBegin {
  Id blob;
  uint32_t reserved;
  uint64_t bytes;
};
struct BlobData {
  Id blob;
  uint32_t bytes;
  uint64_t offset;
  uint64_t source;
};

struct ModuleLoad {
  Id module;
  Id blob;  // consumed, also on failure
  uint32_t device;
  uint32_t kind;          // ModuleKind
  uint32_t log_bytes;     // wanted of each JIT log at most; cut to what a reply holds
  uint32_t option_count;  // followed by JitOption[option_count]
};
enum class ModuleKind : uint32_t { kModule = 0, kLibrary = 1 };
struct JitOption {
  uint32_t option;
  uint32_t reserved;
  uint64_t value;
};  // scalar CUjit_options only
struct ModuleLoadReply {
  uint32_t info_bytes;   // of text that follow, without NUL
  uint32_t error_bytes;  // likewise, after the info log
};

// kGetFunction: `object` becomes the function's id. Kernels of libraries and functions of modules
// are the same to the wire.
struct GetSymbol {
  Id module;
  Id object;
  uint32_t kind;  // ModuleKind of the module
  uint32_t name_bytes;
  uint32_t device = 0;   // of a library: where its kernel or variable is wanted
  uint32_t managed = 0;  // 1: a library's __managed__ variable is meant
};
struct ParameterLayout {
  uint32_t offset;
  uint32_t bytes;
};
inline constexpr uint32_t kFunctionAttributes =
    16;  // CU_FUNC_ATTRIBUTE_* 0..15, those of CUDA 13.0
inline constexpr uint32_t kMaxKernelParameters = 480;  // what a reply holds
struct FunctionReply {
  int32_t attributes[kFunctionAttributes];
  uint32_t parameter_count;  // followed by ParameterLayout[parameter_count]
  uint32_t parameter_bytes;  // end of the last parameter
  uint32_t flags;            // kFunctionPrints
  uint32_t reserved;
};
// The image refers to the device's printf: synchronisation asks for what it printed.
inline constexpr uint32_t kFunctionPrints = 1;
static_assert(sizeof(FunctionReply) + kMaxKernelParameters * sizeof(ParameterLayout) <=
              kMaxReplyBytes);
struct GlobalReply {
  uint64_t address;
  uint64_t bytes;
  uint32_t managed;  // 1: the program may use it, too
  uint32_t reserved;
};
struct ModuleSymbolsReply {
  uint32_t functions;
  uint32_t globals;
};
// The names of a module's functions from number `first` on: as many as a reply holds.
struct ModuleFunctions {
  Id module;
  uint32_t first;
};
struct ModuleFunctionsReply {
  uint32_t functions;  // of the module
  uint32_t names;      // that follow, each with its NUL
};

struct FunctionAttribute {
  Id function;
  uint32_t attribute;
  int32_t value;
  uint32_t kind;
  uint32_t device = 0;  // of a library's kernel: each device has its own value
  uint32_t reserved = 0;
};
// kind: 0 attribute, 1 cache configuration, 2 shared memory bank size
struct Occupancy {
  Id function;
  int32_t block_size;
  uint64_t dynamic_shared_bytes;
  uint32_t flags;
  uint32_t reserved;
};
struct OccupancyReply {
  uint64_t value;
};
struct ClusterOccupancy {
  Id function;
  uint32_t query;  // ClusterQuery
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t attribute_count;  // plain values only
};
enum class ClusterQuery : uint32_t { kMaxActive = 0, kMaxPotentialSize = 1 };

// Inputs of a link travel as blobs.
struct LinkCreate {
  Id link;
  uint32_t device;
  uint32_t log_bytes;     // wanted of each JIT log at most; cut to what a reply holds
  uint32_t option_count;  // followed by JitOption[option_count]
};
struct LinkAdd {
  Id link;
  Id blob;                // consumed, also on failure
  uint32_t type;          // CUjitInputType
  uint32_t name_bytes;    // of the name that follows
  uint32_t option_count;  // JitOption[option_count] after the name
  uint32_t reserved;
};
struct LinkCompleteReply {
  uint64_t bytes;  // of the result; ModuleLoadReply and the logs follow
};
// A piece of the result to an address of the staging arena.
struct LinkRead {
  Id link;
  uint32_t bytes;
  uint64_t offset;
  uint64_t target;
};

struct OutputFlushReply {
  uint32_t pending;  // kernels that may print are still running
  uint32_t reserved;
};

struct HostFunction {
  Id stream;
  uint32_t slot;
};  // slot: of the callback slots

struct StreamValue {
  Id stream;
  uint32_t width;  // 4 or 8 bytes
  uint64_t address;
  uint64_t value;
  uint32_t flags;
  uint32_t reserved;
};

// One of a batch of operations on values: in a stream, or in a node of a graph.
enum class ValueKind : uint32_t { kWait = 0, kWrite = 1, kBarrier = 2 };
struct ValueOperation {
  StreamValue value;  // its stream is 0; of a barrier the flags alone, CUstreamMemoryBarrier_flags
  uint32_t kind;      // ValueKind
  uint32_t reserved;
};
struct StreamBatch {
  Id stream;
  uint32_t count;  // followed by ValueOperation[count]
};
// CUDA's own limit for a batch: 256 are refused.
inline constexpr uint32_t kMaxBatch = 255;

// In front of a generated request (its own size says where the padding of the record begins). A
// generated reply holds kMaxReplyBytes at most: a longer one gives CUDA_ERROR_INVALID_VALUE.
struct Generated {
  Id context;       // of the calling thread; 0 is none
  uint32_t device;  // the context's
  uint32_t bytes;   // of the request that follows
  uint32_t reserved;
};

static_assert(std::is_trivially_copyable_v<Launch> && sizeof(Launch) == 48);
static_assert(sizeof(Memcpy) == 32 && sizeof(Memcpy3D) == 80 && sizeof(Memset) == 48);

}  // namespace openmps::wire
