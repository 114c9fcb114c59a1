// SPDX-License-Identifier: Apache-2.0
// The contract between softgpu's two halves. The engine (fatbin, ptx, ir, interpreter) turns an
// image into programs and executes one thread block at a time; the device model (contexts, streams,
// SMs, memory) decides what runs where and when, and serves the driver API. The device model calls
// the engine; the engine calls back only through MemoryMap and DeviceServices.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/status.h"

namespace openmps::softgpu {

struct Image;
struct Texture;

// Half-open range of addresses that a kernel may touch. Device addresses are host addresses.
struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool writable = true;
};

// What is addressable right now. The engine asks on a miss of its own one-entry caches, so a
// look-up may take a lock. Ranges vanish only between two calls of BlockRun::run (the device model
// waits for every running block to come back before it unmaps), so a cached range is good for one
// run().
class MemoryMap {
 public:
  virtual ~MemoryMap() = default;
  // The mapped range that contains `address`; false if there is none.
  virtual bool find(uint64_t address, AddressRange* range) const = 0;
};

// Services a kernel may call. Thread-safe.
struct NodeUpdate;

class DeviceServices {
 public:
  virtual ~DeviceServices() = default;
  virtual void print(std::string_view text) = 0;  // device printf, already formatted
  virtual void print_failure(std::string_view text) { print(text); }  // a failed assert() says why
  virtual uint64_t allocate_device_heap(uint64_t bytes) = 0;  // malloc() in a kernel; 0: exhausted
  virtual void free_device_heap(uint64_t address) = 0;
  virtual uint64_t global_timer_ns() = 0;  // %globaltimer; %clock follows it
  // How much stack recursion may take, bytes per thread: cuCtxSetLimit's. What is known beforehand
  // is there anyhow, as on a GPU.
  virtual uint64_t stack_bytes() { return UINT64_MAX; }
  // cudaGraphSetConditional(). False: there is no such handle in the kernel's context.
  virtual bool set_condition(uint64_t, uint32_t) { return false; }
  // `node`: a CUgraphDeviceNode. CUDA_ERROR_INVALID_VALUE: there is none, or it can't become so.
  virtual CUresult update_node(uint64_t, const NodeUpdate&) { return CUDA_ERROR_INVALID_VALUE; }
  // What a texture or surface handle names; null: nothing.
  virtual std::shared_ptr<const Texture> texture(uint64_t) { return nullptr; }
  virtual std::shared_ptr<const Image> surface(uint64_t) { return nullptr; }
};

// A kernel that a kernel is about to launch.
struct NestedShape {
  uint32_t kernel = 0;  // index into the program's kernels
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
};

// A change that a kernel makes to a kernel node of a graph (cudaGraphKernelNodeUpdate); the values
// of `field` are CUDA's.
struct NodeUpdate {
  enum class Field : uint32_t { kGrid = 1, kParameter = 2, kEnabled = 3 };
  Field field = Field::kGrid;
  std::array<uint32_t, 3> grid{};
  uint64_t offset = 0;  // of `value` in the parameters, bytes
  std::vector<std::byte> value;
  bool enabled = false;
};

// What a kernel that launches others asks of the device (dynamic parallelism), by the thread blocks
// of one launch; `block` is the number of the asking one. Streams and events are numbers; stream 0
// is the default one of each block. Errors are those of CUDA's runtime, whose numbers agree with
// CUresult where both have one. Thread-safe.
class NestedLaunches {
 public:
  virtual ~NestedLaunches() = default;
  // Where the parameters are to be stored before launch(); 0: `error`.
  virtual uint64_t open(const NestedShape& shape, CUresult* error) = 0;
  virtual CUresult launch(uint64_t parameters, uint64_t block, uint64_t stream) = 0;
  virtual CUresult copy(uint64_t to, uint64_t from, uint64_t bytes, uint64_t block,
                        uint64_t stream) = 0;
  virtual CUresult fill(uint64_t to, uint8_t value, uint64_t bytes, uint64_t block,
                        uint64_t stream) = 0;
  virtual uint64_t create_stream() = 0;
  virtual CUresult destroy_stream(uint64_t stream) = 0;
  virtual uint64_t create_event() = 0;
  virtual CUresult destroy_event(uint64_t event) = 0;
  virtual CUresult record(uint64_t event, uint64_t block, uint64_t stream) = 0;
  virtual CUresult wait(uint64_t block, uint64_t stream, uint64_t event) = 0;
  // A text that the kernel can read; 0: no memory for it.
  virtual uint64_t error_text(CUresult error, bool name) = 0;
  virtual int device() = 0;  // ordinal
};

// The graph launches of a kernel that is in a graph. Thread-safe.
class GraphLaunches {
 public:
  virtual ~GraphLaunches() = default;
  // `graph`: a CUgraphExec; `how`: one of the streams that CUDA has for it. Errors as above.
  virtual CUresult launch_graph(uint64_t graph, uint64_t how) = 0;
  virtual uint64_t current_graph() = 0;  // %current_graph_exec
};

// CU_DEVICE_ATTRIBUTE_CLOCK_RATE in kHz, and what %clock counts with: that of an H200.
inline constexpr uint64_t kClockRate = 1'980'000;

struct ParameterInfo {
  uint32_t offset = 0;  // bytes from the start of the parameter buffer
  uint32_t size = 0;    // bytes
};

struct KernelInfo {
  std::string name;  // as in the image (mangled)
  std::vector<ParameterInfo> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;  // per thread
  // Per thread, for the occupancy model: our own count, at most what the kernel's directives let
  // ptxas use, so that every block that they allow can be resident.
  uint32_t registers = 0;
  uint32_t max_threads = 1024;               // .maxntid, else the architecture's limit
  uint32_t required_block[3] = {0, 0, 0};    // .reqntid, zeros: none
  uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster, zeros: none
  uint32_t max_cluster_blocks = 0;           // .maxclusterrank, 0: not given
  bool explicit_cluster = false;             // .explicitcluster: must have clusters
  bool uses_cooperative_groups = false;      // reads %envreg1/2 (grid synchronisation)
  bool uses_reserved_shared = false;         // reads %reserved_smem_offset_*
  bool launches_kernels = false;             // calls the device runtime: Launch::nested is needed
  bool launches_graphs = false;              // or asks for its own: Launch::graph is needed
  uint32_t target = 0;                       // of the PTX: 10 * major + minor
  // Set when the kernel is beyond a limit, so that ptxas would refuse it: using it, or asking for
  // it by name, gives CUDA_ERROR_INVALID_PTX and this text. The module's other kernels are
  // unaffected.
  std::string unusable;
};

struct GlobalInfo {
  std::string name;
  uint64_t bytes = 0;
  uint32_t alignment = 1;
  bool is_constant = false;  // .const
  bool is_extern = false;    // declared only
  bool is_managed = false;   // .attribute(.managed)
};

// An image after parsing: immutable, shared by every context that loads it. Thread-safe.
class Program {
 public:
  virtual ~Program() = default;
  virtual const std::vector<KernelInfo>& kernels() const = 0;
  virtual const std::vector<GlobalInfo>& globals() const = 0;
  // Compiles the kernel and what it calls, if that was put off (CompileOptions). Before, of what
  // kernels() has of it its registers and local bytes, what it uses and launches, and whether it is
  // unusable are not to be read.
  virtual void complete(uint32_t) const {}
  // The instructions that fault when they are reached: function and opcode of each. Of functions
  // that are compiled.
  virtual std::vector<std::string> unsupported() const { return {}; }
};

struct CompileOptions {
  uint32_t compute_capability =
      90;  // 10 * major + minor of the device: the newest PTX target taken
  uint32_t max_shared_bytes = 227 * 1024;  // of a block: what a kernel may have of static ones
  std::string origin{};                    // file that the image is part of, for messages; or empty
  // PTX of more bytes is compiled function by function, when they are first needed. A mistake in a
  // function's body makes the kernels unusable that need it, where of less PTX nothing is taken.
  size_t most_at_once = SIZE_MAX;
};

struct CompileError {
  CUresult code = CUDA_SUCCESS;
  std::string log;  // what the JIT log buffers of cuModuleLoadDataEx show: "ptxas ... line 12: ..."
};

// Parse `image`: PTX text, a fatbin container, or a bare cubin ELF (which gives
// CUDA_ERROR_NO_BINARY_FOR_GPU). `size` is what the caller knows of its length, SIZE_MAX if
// nothing (then the image's own headers or the NUL of a text bound it). Errors:
// CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
// CUDA_ERROR_NO_BINARY_FOR_GPU; nullptr then.
std::shared_ptr<const Program> compile(const void* image, size_t size,
                                       const CompileOptions& options, CompileError* error);

// A program with its globals placed: made once per cuModuleLoad*. `global_addresses[i]` belongs to
// program->globals()[i]. link() writes the initial values there (relocations resolved).
class LinkedProgram {
 public:
  virtual ~LinkedProgram() = default;
  virtual const Program& program() const = 0;
};
std::shared_ptr<const LinkedProgram> link(std::shared_ptr<const Program> program,
                                          std::vector<uint64_t> global_addresses);

// What a launch's special registers are made of, but for those of the block's place.
struct GridShape {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster[3] = {1, 1, 1};  // blocks; they divide the grid
  bool explicit_cluster = false;    // asked for, by the launch or by the kernel
  uint32_t dynamic_shared_bytes = 0;
  uint32_t sm_count = 1;        // %nsmid
  uint64_t grid_workspace = 0;  // %envreg1/2: cooperative launches, else 0
  bool operator==(const GridShape&) const = default;
};

// One kernel launch, shared by its blocks; outlives them.
struct Launch : GridShape {
  std::shared_ptr<const LinkedProgram> program;
  uint32_t kernel = 0;                // index into program->program().kernels()
  std::vector<std::byte> parameters;  // exactly parameter_bytes
  const MemoryMap* memory = nullptr;
  DeviceServices* services = nullptr;
  NestedLaunches* nested = nullptr;  // null: the kernel has no device runtime
  GraphLaunches* graph = nullptr;    // null: the kernel is of no graph
};

enum class BlockState {
  kFinished,  // every thread has exited
  kRunnable,  // the budget is used up, or `stop` was raised; call run() again
  kFaulted,   // see fault(); the context is to be poisoned
};

struct Fault {
  CUresult code =
      CUDA_SUCCESS;  // ILLEGAL_ADDRESS 700, MISALIGNED_ADDRESS 716, ASSERT 710, ILLEGAL_INSTRUCTION
                     // 715, LAUNCH_FAILED 719 (trap, stack overflow), INVALID_ADDRESS_SPACE 717
  uint64_t address = 0;  // memory faults
  std::string text;      // one line: kernel, block, thread, PTX line, what
};

// The execution of one thread block, or of a cluster of them. Explicit state, no stack of its own:
// it may be resumed on another thread. Not thread-safe.
class BlockRun {
 public:
  virtual ~BlockRun() = default;
  // Execute until the block ends or about `budget` warp instructions have been executed; polls
  // `stop` on back edges (null: never). `sm` is %smid.
  virtual BlockState run(uint64_t budget, const std::atomic<bool>* stop, uint32_t sm) = 0;
  virtual const Fault& fault() const = 0;
  // Warp instructions executed so far (the device model's virtual clock).
  virtual uint64_t warp_instructions() const = 0;
};

// `shuffle_seed` != 0 runs the warps of the block in a seeded random order (deterministic schedule
// fuzzing); 0: round robin. Instances are recycled internally: creation costs no system call in
// steady state.
std::unique_ptr<BlockRun> start_block(const Launch& launch, const uint32_t block_index[3],
                                      uint64_t shuffle_seed);
// Starts the blocks of a cluster (launch.cluster), which run in turn. `cluster_index` is what
// %clusterid shows; sms[i] is %smid of the block of rank i, and the one that run() is given is
// ignored.
std::unique_ptr<BlockRun> start_cluster(const Launch& launch, const uint32_t cluster_index[3],
                                        const std::vector<uint32_t>& sms, uint64_t shuffle_seed);

// xxh3 of everything the engine's opcode table knows, and its coverage as Markdown
// (docs/ptx-coverage.md).
std::string coverage_markdown();

}  // namespace openmps::softgpu
