// SPDX-License-Identifier: Apache-2.0
// The modules and libraries of a session, their functions and globals, and the images on their way
// into one. To the driver a module is a library, too, used in one context: making a library
// compiles its PTX and waits for nothing, so that happens in the background; getting its code to a
// device synchronises the shared context, so that goes through the gate. Session's thread only.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wire/codec.h"
#include "worker/code/jit_options.h"
#include "worker/code/sm_footprint.h"
#include "worker/core/object_table.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/images/image_facts.h"
#include "worker/images/image_memory.h"
#include "worker/images/image_store.h"
#include "worker/images/loaded_library.h"
#include "worker/memory/memory.h"
#include "worker/streams/retirement.h"

namespace openmps::worker {

// All functions of a library with no more of them and no larger image, without code for other
// devices (decision 34), are loaded with the first: what a program brings itself. CUDA's own
// libraries have thousands, of which it uses few.
inline constexpr unsigned kMostLoadedTogether = 64;
inline constexpr uint64_t kMostBytesLoadedTogether = wire::kMiB;

// What runs in the cold lane is loaded once more to move, in a moment that others wait for: it does
// when it has been launched so often. 16 of CuPy's test programs at once, which launch most kernels
// once and end, took 3.5 to 4.1 s without moves, 4.9 to 5.6 when all moved as soon as it could (an
// H200).
inline constexpr uint32_t kUsesToMove = 16;

struct Module;

// Work that is held back keeps it, and with it the code, beyond its module.
struct Function : std::enable_shared_from_this<Function> {
  CUkernel kernel = nullptr;
  bool is_kernel = false;        // the client has it as a kernel of a library
  uint32_t device = 0;           // that it was asked for on
  uint32_t parameter_bytes = 0;  // end of the last parameter
  // Of its image; a kernel that prints runs in turns (prints.h).
  bool prints = false;
  bool asserts = false;
  uint32_t quiet_launches = 0;
  uint64_t texts_seen = 0;
  // Durations::add() for each size of grid: what a kernel does depends on it.
  [[nodiscard]] uint32_t& duration(uint64_t blocks) {
    return durations[std::min<size_t>(std::bit_width(blocks | 1), kSizes) - 1];
  }
  static constexpr size_t kSizes = 24;  // powers of two; a GPU is full long before the last
  std::array<uint32_t, kSizes> durations{};
  SmFootprint footprint;
  std::optional<bool> has_clusters;        // each of its launches; none: nobody has asked
  std::array<uint32_t, 3> judged_block{};  // the last that the driver was asked about beforehand
  uint32_t remembered = ~0u;  // by device: it is known to be used there, or nobody wants to know
  Module* module = nullptr;   // while the client has it
  std::shared_ptr<LoadedLibrary> library;
  std::vector<CUfunction> main;  // by device: in the main lane; null: not known to be there
  // The same, asked of its library: it may have moved.
  [[nodiscard]] CUfunction find_in_main(uint32_t on) const;
};

// Where work with a function goes.
struct Located {
  CUfunction handle = nullptr;
  Placement place;
};

struct Module {
  wire::ModuleKind kind = wire::ModuleKind::kModule;
  uint32_t device = 0;
  CUmodule module = nullptr;               // of the library, where it was loaded for this session
  std::shared_ptr<LoadedLibrary> library;  // perhaps shared with other sessions
  // The same for the variables and constants of a shared one, which nobody writes
  // (image_variables.h): whoever wants to know where they are gets some of his own. Null: nobody
  // has asked.
  std::shared_ptr<LoadedLibrary> own;
  // Kept while the module lives: what another worker would load it from.
  std::shared_ptr<const ImageBytes> image;
  ImageFacts facts;
  std::vector<wire::Id> functions;
  std::vector<uint64_t> globals;         // start addresses
  uint64_t charged = 0;                  // of the device's memory, for its variables
  std::vector<wire::JitOption> options;  // of the compiler's
  bool is_shared = false;                // its library, as far as others want it
  bool is_remembered = false;            // what is used of it
  bool in_cold_home = false;   // it has come to the cold lane of some device with what is its own,
  uint64_t cold_since_ns = 0;  // by now_ns()
};

class Modules {
  struct Blob;

 public:
  // `remembered`: null: nothing is remembered on disk. `parallel_facts`: an image is read on
  // another thread while the driver loads it (decision 34).
  Modules(SessionCore& core, SessionMemory& memory, Retirement& retirement, ImageStore& images,
          ImageMemory* remembered, bool parallel_facts)
      : core_(core),
        memory_(memory),
        retirement_(retirement),
        images_(images),
        remembered_(remembered),
        parallel_facts_(parallel_facts) {}

  Status handle(const wire::BlobBegin& command);
  // Chunks come in order, out of the staging arena.
  Status handle(const wire::BlobData& command, Blob& blob);
  // A whole image, now the caller's, who counts it for as long as somebody holds it.
  Status take_blob(wire::Id id, ImageBytes* image);
  // The same, with a NUL behind it, as the store holds it.
  Status take_image(wire::Id id, std::shared_ptr<const ImageBytes>* image);
  void hold_image(uint64_t bytes) { image_bytes_ += bytes; }
  void drop_image(uint64_t bytes) { image_bytes_ -= bytes; }
  // Replies the JIT logs, also when loading fails. What has to be compiled is
  // answered later.
  Status handle(const wire::ModuleLoad& command, const wire::ModuleLoad::Tail& tail,
                ReplyTo<wire::ModuleLoad> reply);
  void unload(wire::Id id);
  Status handle(const wire::GetGlobal& command, Module& module, const wire::GetGlobal::Tail& tail,
                ReplyTo<wire::GetGlobal> reply);
  Status handle(const wire::ModuleSymbols& command, Module& module,
                ReplyTo<wire::ModuleSymbols> reply);
  // The device that a symbol of the module is wanted on, whose context becomes
  // current.
  Status enter(const Module& module, wire::ModuleKind kind, uint32_t wanted, uint32_t* device);
  // A function of its module.
  Status add(wire::Id id, std::shared_ptr<Function> function);
  CUresult list_kernels(const Module& module, std::vector<CUkernel>* kernels);

  // Some function of the session may print, or assert.
  [[nodiscard]] bool any_prints() const { return any_prints_; }
  [[nodiscard]] bool any_asserts() const { return any_asserts_; }
  [[nodiscard]] const auto& blobs() const { return blobs_; }
  [[nodiscard]] const auto& modules() const { return modules_; }
  [[nodiscard]] const auto& functions() const { return functions_; }
  // Before work with `function` is made for `device`: its code is there, loaded in a quiet moment
  // or in the cold lane, and not inside a launch. `reach`: work that belongs in one lane goes to
  // the other one only if the code can't come there; that of a partition that limits belongs in the
  // main one, and leaves it only beside what may never end (decision 32). The session is not
  // between the gate's enter() and leave().
  enum class Reach { kAnyLane, kMainLane, kMainFirst, kColdLane };
  Status locate(Function& function, const Placement& place, Reach reach, Located* located) {
    if (is_at_hand(function, place) && reach != Reach::kColdLane) [[likely]] {
      *located = {function.main[place.device], place};
      return Status();
    }
    return find(function, place, reach, located);
  }
  // The main context has its code.
  [[nodiscard]] static bool is_at_hand(const Function& function, const Placement& place) {
    return place.device < function.main.size() && function.main[place.device] != nullptr;
  }
  // It is launched there.
  void note_launch(Function& function, uint32_t device) {
    if ((function.remembered >> device & 1) == 0) [[unlikely]]
      remember(function, device);
  }
  // Plan the moves that are due, by now_ns(). When the next one is; 0: there is none.
  uint64_t tend(uint64_t now);
  // Some code runs in the cold lane and is to move.
  [[nodiscard]] bool has_cold_code() const { return has_cold_code_; }

  void release_all();

 private:
  struct Blob {
    uint64_t bytes = 0;
    std::vector<unsigned char> data;
    // An image that is there; what has come so far is as it begins, and `data` is empty.
    std::shared_ptr<const ImageBytes> like;
    uint64_t alike = 0;
    Status error;  // reported by the load that uses it

    [[nodiscard]] uint64_t arrived() const { return like != nullptr ? alike : data.size(); }
    void append(const unsigned char* chunk, uint64_t count, const ImageStore& images);
    // What has come so far becomes the blob's own; `like` is null then.
    void differ();
  };

  // The making of a library, which may outlive the session.
  struct Making {
    Making(SessionCore& core, ImageStore& images, std::shared_ptr<const ImageBytes> image)
        : cold(core.cold),
          images(images),
          bell(core.bell),
          image(std::move(image)),
          begun(core.driver, core.gate) {}
    // The driver's part, the first time: its result.
    const Status& begin();

    ColdLanes* const cold;
    ImageStore& images;
    const std::shared_ptr<Bell> bell;
    const std::shared_ptr<const ImageBytes> image;
    JitOptions jit;
    DriverLibrary begun;
    std::optional<Status> result;  // of begin()
    ImageFacts facts;
    bool shareable = false;
    bool made = false;  // nobody else had
    Status status;
    std::shared_ptr<LoadedLibrary> library;
    std::atomic<bool> done{false};
  };
  class PendingLoad;

  static void make(Making& making);
  Status finish_load(wire::Id id, std::unique_ptr<Module> module, Making& making,
                     ReplyTo<wire::ModuleLoad> reply);
  // Where code may be loaded that is not in the main lane. That of who is limited belongs there,
  // but does not wait there for a program, which may wait for it.
  enum class Homes { kMain, kCold, kEither, kMainFirst };
  [[nodiscard]] Homes homes_of(const LoadedLibrary& library, uint32_t device) const;
  // load(Placement) in that context, in a quiet moment of it: of the main one, or where there is a
  // choice and that has no such moment soon, of the cold one. `stays`: it is in the cold one, and
  // instead of being loaded there it stays.
  template <typename F>
  CUresult load_code(GatedCall call, LoadedLibrary& library, uint32_t device, Homes homes,
                     bool stays, F&& load);
  // Its code need not come to the main lane right now, whatever the limit.
  [[nodiscard]] bool escapes() const { return core_.clock.now_ns() < escapes_until_ns_; }
  // Load in the cold context if nothing runs there now or after one hold. Nothing: work runs there.
  template <typename F>
  std::optional<CUresult> load_cold(GatedCall call, LoadedLibrary& library, uint32_t device,
                                    uint64_t hold_ns, F&& load);
  // The lane in which the library is on the device, the main one first; nothing: in none.
  static std::optional<Lane> lane_of(const LoadedLibrary& library, uint32_t device);
  void note_loaded(Module& module, const Placement& place);
  void note_home(Module& module);
  void note_cold_use(LoadedLibrary& library, uint32_t device);
  // The module's code, which is in the cold lane with its variables, can move from now on if it is
  // there for long, or `at_once`, and if it can move without them.
  void leave_variables(const Module& module, uint32_t device, bool at_once);
  // The library whose variables the program may know.
  Status find_own(Module& module, std::shared_ptr<LoadedLibrary>* own);
  // Somebody gets to know where its constants are: they are in one lane of each device.
  Status settle(Module& module);
  // In the current context, which is that: the module of the library, and all functions of a small
  // library, so that the next of them needs no moment of its own.
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
  Retirement& retirement_;
  ImageStore& images_;
  ImageMemory* const remembered_;
  const bool parallel_facts_;
  ObjectTable<Blob> blobs_{"blob"};
  ObjectTable<Module> modules_{"module", wire::kMaxModules};
  ObjectTable<Function, std::shared_ptr<Function>> functions_{"function"};
  uint64_t announced_bytes_ = 0;  // of blobs
  uint64_t image_bytes_ = 0;      // of blobs, links and modules
  bool any_prints_ = false;
  bool any_asserts_ = false;
  bool has_cold_code_ = false;
  bool told_of_escape_ = false;
  uint64_t escapes_until_ns_ = 0;  // by now_ns()
  // Code that has come to the cold lane, and when it moves, if it has not before.
  struct Settling {
    std::weak_ptr<LoadedLibrary> library;
    uint32_t device;
    uint64_t due_ns;
  };
  std::deque<Settling> settling_;
  uint64_t next_look_ns_ = 0;
};

}  // namespace openmps::worker
