// SPDX-License-Identifier: Apache-2.0
// The modules and libraries of a session, their functions and globals, and the images that are sent
// for them. A module is a library to the driver, too, used in one context: making a library
// compiles its PTX and waits for nothing, so that happens in the background; loading its code on a
// device waits for all work of the shared context, so that goes through the gate. Session's thread
// only.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wire/codec.h"
#include "worker/code/jit_options.h"
#include "worker/code/sm_footprint.h"
#include "worker/code/variable_memory.h"
#include "worker/core/object_table.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/images/image_facts.h"
#include "worker/images/image_memory.h"
#include "worker/images/image_store.h"
#include "worker/images/loaded_library.h"
#include "worker/memory/memory.h"

namespace openmps::worker {

// All functions of a library that has no more functions and no larger image than this, and no code
// for other devices (decision 34), are loaded with the first function: what a program brings
// itself. CUDA's own libraries have thousands of functions, of which a program uses few.
inline constexpr unsigned kMostLoadedTogether = 64;
inline constexpr uint64_t kMostBytesLoadedTogether = wire::kMiB;

// Code that runs in the cold lane moves, which loads it once more while others wait, after so many
// launches. 16 of CuPy's test programs at once, which launch most kernels once and end, took 3.5 to
// 4.1 s without moves and 4.9 to 5.6 s when all code moved as soon as it could (an H200).
inline constexpr uint32_t kUsesToMove = 16;

struct Module;

struct KernelCode {
  std::shared_ptr<LoadedLibrary> library;
  CUkernel kernel = nullptr;
};

// Held work keeps a function, and with it the code, after the client has unloaded the module.
struct Function : std::enable_shared_from_this<Function> {
  std::string name;              // as the image spells it
  bool is_kernel = false;        // the client has a handle of it as a kernel of a library
  uint32_t device = 0;           // on which the client looked it up
  uint32_t parameter_bytes = 0;  // the end of the last parameter
  // As the image says. A kernel that prints waits for its session's turn (prints.h).
  bool prints = false;
  bool asserts = false;
  uint32_t quiet_launches = 0;
  uint64_t texts_seen = 0;
  // The number in Durations of this kernel with grids of about that size, on which its work
  // depends.
  [[nodiscard]] uint32_t& duration(uint64_t blocks) {
    return durations[std::min<size_t>(std::bit_width(blocks | 1), kSizes) - 1];
  }
  static constexpr size_t kSizes = 24;  // powers of two; a GPU is full long before the last
  std::array<uint32_t, kSizes> durations{};
  SmFootprint footprint;
  std::optional<bool> has_clusters;  // of each launch; nothing: not asked of the driver yet
  std::array<uint32_t, 3>
      judged_block{};         // the last block shape that the driver has judged before a launch
  uint32_t remembered = ~0u;  // by device: its use there has been noted, or need not be
  Module* module = nullptr;   // while the client has it
  KernelCode code;
  std::map<uint32_t, KernelCode> copies;  // by device, of Module::copies
  [[nodiscard]] const KernelCode& on(uint32_t wanted) const {
    const auto copy = copies.find(wanted);
    return copy == copies.end() ? code : copy->second;
  }
  std::vector<CUfunction> main;  // by device: its handle in the main lane; null: not known
  // The handle in the main lane, also if the library has moved there meanwhile; null: it is not
  // there.
  [[nodiscard]] CUfunction find_in_main(uint32_t on) const;
};

// The handle and the placement of a launch.
struct Located {
  CUfunction handle = nullptr;
  Placement place;
};

// A module's code as the driver has it, and its variables.
struct LoadedCode {
  std::shared_ptr<LoadedLibrary> library;  // perhaps shared with other sessions
  // Its variables, if they lie in the session's own memory, at offsets from `variables.address`.
  VariableMemory::Place variables;
  VariableLayout layout;
  uint64_t charged = 0;  // bytes of the device's memory, for its variables
};

struct Module {
  wire::Id id = 0;
  wire::ModuleKind kind = wire::ModuleKind::kModule;
  uint32_t device = 0;        // a library's: the first on which it was wanted
  CUmodule module = nullptr;  // of the library, if that was loaded for this session,
  Lane lane = Lane::kMain;    // as it is there: another lane has other constants
  LoadedCode code;
  // Of a library whose variables lie in the session's memory, which can be those of one device
  // only: what is used on others.
  std::map<uint32_t, LoadedCode> copies;
  [[nodiscard]] bool has_copy_on(uint32_t wanted) const {
    return kind == wire::ModuleKind::kLibrary && code.variables.address != 0 && wanted != device;
  }
  [[nodiscard]] const LoadedCode& on(uint32_t wanted) const {
    const auto copy = copies.find(wanted);
    return copy == copies.end() ? code : copy->second;
  }
  // A library of the session's own that has the variables and constants of a shared library at
  // addresses of its own, for a program that has asked for an address (image_variables.h). Null: it
  // has not.
  std::shared_ptr<LoadedLibrary> own;
  // Kept while the module lives, so that another worker can load it.
  std::shared_ptr<const StoredImage> image;
  ImageFacts facts;
  std::vector<wire::Id> functions;
  std::vector<uint64_t> globals;         // start addresses
  std::vector<uint64_t> constants;       // addresses of their copies (constants.h)
  std::vector<wire::JitOption> options;  // of the JIT compiler
  bool is_shared = false;                // other sessions may use its library
  bool is_remembered = false;            // its use is noted in the store on disk
  bool in_cold_home = false;   // its code and own variables are in the cold lane of some device,
  uint64_t cold_since_ns = 0;  // since that time
};

class Modules {
  struct Blob;

 public:
  // `remembered`: null: nothing is stored on disk.
  Modules(SessionCore& core, SessionMemory& memory, ImageStore& images, ImageMemory* remembered)
      : core_(core), memory_(memory), images_(images), remembered_(remembered) {}

  Status handle(const wire::BlobBegin& command);
  // Chunks come in order, from the staging arena.
  Status handle(const wire::BlobData& command, Blob& blob);
  // Give a whole image to the caller, who counts its bytes from then on (hold_image()).
  Status take_blob(wire::Id id, ImageBytes* image);
  // Give a whole image, with a NUL behind it, as the store holds it.
  Status take_image(wire::Id id, std::shared_ptr<const StoredImage>* image);
  void hold_image(uint64_t bytes) { image_bytes_ += bytes; }
  void drop_image(uint64_t bytes) { image_bytes_ -= bytes; }
  // Replies the JIT logs, also after an error. An image that has to be compiled is answered later.
  Status handle(const wire::ModuleLoad& command, const wire::ModuleLoad::Tail& tail,
                ReplyTo<wire::ModuleLoad> reply);
  // In journals only.
  Status handle(const wire::ModuleCopy& command, Module& module);
  void unload(wire::Id id);
  Status handle(const wire::GetGlobal& command, Module& module, const wire::GetGlobal::Tail& tail,
                ReplyTo<wire::GetGlobal> reply);
  Status handle(const wire::ModuleSymbols& command, Module& module,
                ReplyTo<wire::ModuleSymbols> reply);
  // Make the context of the device current on which a symbol of the module is wanted.
  Status enter(const Module& module, wire::ModuleKind kind, uint32_t wanted, uint32_t* device);
  // Add a function to its module.
  Status add(wire::Id id, std::shared_ptr<Function> function);
  CUresult list_kernels(const LoadedLibrary& library, std::vector<CUkernel>* kernels);

  // Some function of the session may print; may assert.
  [[nodiscard]] bool any_prints() const { return any_prints_; }
  [[nodiscard]] bool any_asserts() const { return any_asserts_; }
  [[nodiscard]] const auto& blobs() const { return blobs_; }
  [[nodiscard]] const auto& modules() const { return modules_; }
  [[nodiscard]] const auto& functions() const { return functions_; }
  // Make sure that the code of `function` is loaded before work with it is made for `place`, at a
  // quiescence of the main context or in the cold lane. `reach`: the lanes in which the work may
  // run; kMainFirst: in the main lane, since a set of SMs limits the session, unless work there may
  // never end (decision 32). Not between the gate's enter() and leave().
  enum class Reach { kAnyLane, kMainLane, kMainFirst, kColdLane };
  Status locate(Function& function, const Placement& place, Reach reach, Located* located) {
    if (is_at_hand(function, place) && reach != Reach::kColdLane) [[likely]] {
      *located = {function.main[place.device], place};
      return Status();
    }
    return find(function, place, reach, located);
  }
  // The main context has the function's code.
  [[nodiscard]] static bool is_at_hand(const Function& function, const Placement& place) {
    return place.device < function.main.size() && function.main[place.device] != nullptr;
  }
  // The function is launched on the device: note that in the store on disk.
  void note_launch(Function& function, uint32_t device) {
    if ((function.remembered >> device & 1) == 0) [[unlikely]]
      remember(function, device);
  }
  // Plan the moves that are due. The time of the next one; 0: there is none.
  uint64_t plan_moves(uint64_t now);
  // Some code runs in the cold lane and can move.
  [[nodiscard]] bool has_cold_code() const { return has_cold_code_; }

  void release_all();

 private:
  struct Blob {
    uint64_t bytes = 0;
    std::vector<unsigned char> data;
    // A loaded image that begins with what has arrived so far; then `data` is empty.
    std::shared_ptr<const StoredImage> like;
    uint64_t alike = 0;
    Status error;  // for the load that takes the blob

    [[nodiscard]] uint64_t arrived() const { return like != nullptr ? alike : data.size(); }
    void append(const unsigned char* chunk, uint64_t count, ImageStore& images);
    // Copy what has arrived into `data`; `like` is null then.
    void differ();
  };

  // The making of a module's library, which may go on after the session's end.
  struct Making {
    Making(SessionCore& core, ImageStore& images)
        : driver(core.driver), gate(core.gate), cold(core.cold), images(images), bell(core.bell) {}

    const DriverTable& driver;
    ContextGate& gate;
    ColdLanes* const cold;
    ImageStore& images;
    const std::shared_ptr<Bell> bell;
    std::unique_ptr<Module> module = std::make_unique<Module>();
    ImageBytes placed;  // what is loaded instead of the module's image; empty: that image
    JitOptions jit;
    bool made = false;  // no library of that image existed
    Status status;
    std::atomic<bool> done{false};
  };

  static void make(Making& making);
  // Read the facts of the image for the device, count its variables, and have these in the
  // session's memory, where that is possible: then `placed` is loaded instead of the image.
  Status prepare(const std::shared_ptr<const StoredImage>& image, uint32_t device,
                 ImageFacts* facts, LoadedCode* code, ImageBytes* placed);
  Status place_variables(const StoredImage& image, uint32_t device, ImageFacts* facts,
                         LoadedCode* code, ImageBytes* placed);
  // Undo prepare().
  void give_back(uint32_t device, const LoadedCode& code);
  // The function's code for the device, if the module has a copy there.
  Status find_copy(Function& function, uint32_t device);
  // The module's, which is made with the first use.
  Status find_copy(Module& module, uint32_t device);
  Status make_copy(Module& module, uint32_t device);
  Status finish_load(wire::Id id, Making& making, ReplyTo<wire::ModuleLoad> reply);
  // The lanes into which code may be loaded. Code of a session that a set of SMs limits belongs to
  // the main lane (kMainFirst), but does not wait there for work that may never end.
  enum class Homes { kMain, kCold, kEither, kMainFirst };
  [[nodiscard]] Homes homes_of(const LoadedLibrary& library, uint32_t device) const;
  // Call load(Placement) at a quiescence of the lane's context: of the main context, or where there
  // is a choice and no quiescence comes soon, of the cold one. `stays`: the code is in the cold
  // lane already and need not be loaded there.
  template <typename F>
  CUresult load_code(GatedCall call, LoadedLibrary& library, uint32_t device, Homes homes,
                     bool stays, F&& load);
  // The session's code need not go to the main lane for now, whatever its limit.
  [[nodiscard]] bool escapes() const { return core_.gate.now_ns() < escapes_until_ns_; }
  // Load in the cold context if nothing runs there, now or after one hold. Nothing: work runs
  // there.
  template <typename F>
  std::optional<CUresult> load_cold(GatedCall call, LoadedLibrary& library, uint32_t device,
                                    uint64_t hold_ns, F&& load);
  // The lane in which the library is loaded on the device, the main lane first; nothing: in none.
  static std::optional<Lane> lane_of(const LoadedLibrary& library, uint32_t device);
  void note_loaded(Module& module, const Placement& place);
  void note_home(Module& module);
  void note_cold_use(LoadedLibrary& library, uint32_t device);
  // Let the module's code, which is in the cold lane with its variables, move without them from now
  // on, if that is possible: if it has been there for long, or `at_once`.
  void leave_variables(const Module& module, uint32_t device, bool at_once);
  // The copy of a constant that the program gets the address of, made with the first request.
  Status copy_constant(Module& module, const Placement& home, CUdeviceptr in_code, uint64_t bytes,
                       uint64_t* address);
  // Find the library whose variables' addresses the program may know; it is not there: `own` stays.
  Status find_own(Module& module, std::shared_ptr<LoadedLibrary>* own);
  // The program asks for a constant's address: from now on the constants are in one lane of each
  // device.
  Status settle(Module& module);
  // In the placement's context, which is current: get the module of the library, and all functions
  // of a small library, so that these need no quiescence of their own.
  CUresult place(Module& module, const Placement& place);
  CUresult load_functions(Module& module, const Placement& place);
  Status find(Function& function, const Placement& place, Reach reach, Located* located);
  bool move_now(Function& function, uint32_t device);
  void tell_of_escape(const Function& function);
  void remember(Function& function, uint32_t device);
  Status end_blob(wire::Id id, std::unique_ptr<Blob>* blob);
  CUresult load_function(Function& function, const Placement& place, Located* located);
  void release(Module& module);

  SessionCore& core_;
  SessionMemory& memory_;
  VariableMemory variables_{core_, memory_};
  ImageStore& images_;
  ImageMemory* const remembered_;
  ObjectTable<Blob> blobs_{"blob"};
  ObjectTable<Module> modules_{"module", wire::kMaxModules};
  ObjectTable<Function, std::shared_ptr<Function>> functions_{"function"};
  uint64_t announced_bytes_ = 0;  // bytes of blobs
  uint64_t image_bytes_ = 0;      // bytes of blobs, links and modules
  bool any_prints_ = false;
  bool any_asserts_ = false;
  bool has_cold_code_ = false;
  bool told_of_escape_ = false;
  uint64_t escapes_until_ns_ = 0;  // escapes() until then
  // Code that has been loaded in the cold lane, and when it moves if it has not moved before.
  struct Settling {
    std::weak_ptr<LoadedLibrary> library;
    uint32_t device;
    uint64_t due_ns;
  };
  std::deque<Settling> settling_;
  uint64_t next_look_ns_ = 0;
};

}  // namespace openmps::worker
