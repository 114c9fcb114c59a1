// SPDX-License-Identifier: Apache-2.0
// Blobs, modules and their globals. Functions are in function.cc.
#include "worker/code/module.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "worker/code/jit_options.h"
#include "worker/device/driver_check.h"
#include "worker/device/log.h"
#include "worker/images/image_memory.h"

namespace openmps::worker {

using wire::ModuleKind;

namespace {

// What belongs to the code and lies in the context's own memory ends with the context. Null: there
// is none.
const char* why_code_stays(const ImageFacts& facts) {
  if (facts.is_managed) return "its code has managed variables";
  if (facts.has_variables) return "its code has variables in device memory";
  if (facts.has_references) return "its code has texture or surface references";
  if (facts.allocates) return "its code allocates memory on the device";
  return nullptr;
}

// How soon a launch looks again whether code in the cold lane can move. A look asks the driver
// about all streams that may be busy.
constexpr uint64_t kMoveLookNs = 50'000'000;
// After a session with a limit has waited in vain for the main lane, its code may be loaded in the
// cold lane for this many times as long: so it waits a fifth of the time at most, as other sessions
// do for holds (GateLimits).
constexpr uint64_t kEscapeShare = 4;
// Code that has been in the cold lane for so long moves, however seldom it is launched; code with
// variables, which is copied for that, moves no sooner.
constexpr uint64_t kSettledNs = 2'000'000'000;
// Code whose constants a program wants to write does not move any more after that. Before, it waits
// for so long, three holds, to move to the main lane: beside kernels of 46 ms, for example.
constexpr uint64_t kSettleNs = 400'000'000;
// Work that the program has just submitted (a fill, a copy) is waited for this long before its code
// is loaded in the cold lane; natively loading waits for all of it.
constexpr uint64_t kOwnWorkNs = 5'000'000;
// The most characters of a kernel's name in the log: mangled names have thousands.
constexpr size_t kMostShown = 200;

}  // namespace

Status Modules::handle(const wire::BlobBegin& command) {
  if (command.bytes == 0 || command.bytes > wire::kMaxSessionImageBytes) {
    return violation("an image of " + std::to_string(command.bytes) + " bytes");
  }
  auto blob = std::make_unique<Blob>();
  blob->bytes = command.bytes;
  const auto too_many = [](const char* what, uint64_t most) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, std::string(what) + " of the session would exceed " +
                                                std::to_string(most) + " bytes");
  };
  if (command.bytes > wire::kMaxAnnouncedBytes - announced_bytes_) {
    blob->error = too_many("images that are not loaded yet", wire::kMaxAnnouncedBytes);
  } else if (command.bytes > wire::kMaxSessionImageBytes - image_bytes_) {
    blob->error = too_many("the images", wire::kMaxSessionImageBytes);
  } else {
    announced_bytes_ += command.bytes;
    image_bytes_ += command.bytes;
  }
  return blobs_.insert(command.blob, std::move(blob));
}

Status Modules::handle(const wire::BlobData& command, Blob& blob) {
  const unsigned char* source = core_.staged(command.source, command.bytes);
  if (source == nullptr || command.offset != blob.arrived() ||
      command.bytes > blob.bytes - command.offset) {
    // A blob over the limit keeps no data, so its offsets do not grow.
    if (source != nullptr && !blob.error.ok()) return Status();
    return violation("a chunk of " + std::to_string(command.bytes) + " bytes at " +
                     std::to_string(command.offset) + " of an image of " +
                     std::to_string(blob.bytes));
  }
  if (!blob.error.ok()) return Status();
  blob.append(source, command.bytes, images_);
  return Status();
}

// Programs often send images that are loaded already: while an image equals a loaded one byte by
// byte it is compared and not stored.
void Modules::Blob::append(const unsigned char* chunk, uint64_t count, ImageStore& images) {
  if (arrived() == 0) like = images.candidate(bytes + 1, {chunk, count});
  if (like != nullptr) {
    if (memcmp(like->data() + alike, chunk, count) == 0) {
      alike += count;
      return;
    }
    differ();
  }
  if (data.empty()) data.reserve(bytes + 1);  // and the NUL: so that it is not moved while it grows
  data.insert(data.end(), chunk, chunk + count);
}

void Modules::Blob::differ() {
  data.reserve(bytes + 1);
  data.assign(like->begin(), like->begin() + static_cast<ptrdiff_t>(alike));
  like.reset();
}

// A blob's bytes count until it is taken; the caller counts them again if it keeps them.
Status Modules::end_blob(wire::Id id, std::unique_ptr<Blob>* ended) {
  std::unique_ptr<Blob> blob = blobs_.take(id);
  if (!blob->error.ok()) return blob->error;
  announced_bytes_ -= blob->bytes;
  image_bytes_ -= blob->bytes;
  if (blob->arrived() != blob->bytes) {
    return violation("an image of " + std::to_string(blob->bytes) + " bytes of which " +
                     std::to_string(blob->arrived()) + " have come");
  }
  *ended = std::move(blob);
  return Status();
}

Status Modules::take_blob(wire::Id id, ImageBytes* image) {
  std::unique_ptr<Blob> blob;
  OPENMPS_RETURN_IF_ERROR(end_blob(id, &blob));
  if (blob->like != nullptr) blob->differ();
  *image = std::move(blob->data);
  return Status();
}

// PTX is text that ends with NUL.
Status Modules::take_image(wire::Id id, std::shared_ptr<const StoredImage>* image) {
  std::unique_ptr<Blob> blob;
  OPENMPS_RETURN_IF_ERROR(end_blob(id, &blob));
  if (blob->like != nullptr && blob->like->back() == 0) {
    *image = std::move(blob->like);
    return Status();
  }
  if (blob->like != nullptr) blob->differ();
  blob->data.push_back(0);
  *image = images_.intern(std::move(blob->data));
  return Status();
}

Status Modules::handle(const wire::ModuleLoad& command, const wire::ModuleLoad::Tail& tail,
                       ReplyTo<wire::ModuleLoad> reply) {
  if (command.kind > ModuleKind::kLibrary) {
    return violation("a module of kind " + std::to_string(static_cast<uint32_t>(command.kind)));
  }
  const auto making = std::make_shared<Making>(core_, images_);
  Module& module = *making->module;
  module.id = command.module;
  module.kind = command.kind;
  module.device = command.device;
  if (core_.journal.is_adopting()) {
    module.image = images_.find_kept(core_.journal.kept());
    if (module.image == nullptr) {
      return Status(CUDA_ERROR_INVALID_HANDLE, "the server has not kept the image");
    }
  } else {
    OPENMPS_RETURN_IF_ERROR(take_image(command.blob, &module.image));
  }
  OPENMPS_RETURN_IF_ERROR(making->jit.set(command.log_bytes, tail.options));
  OPENMPS_RETURN_IF_ERROR(
      prepare(module.image, command.device, &module.facts, &module.code, &making->placed));
  image_bytes_ += module.image->size() - 1;
  module.options.assign(tail.options.begin(), tail.options.end());
  // Options change the code, and variables belong to one session.
  module.is_shared = tail.options.empty() && !module.facts.binds() && making->placed.empty();
  module.is_remembered = module.is_shared && remembered_ != nullptr;
  if (!module.facts.compiles) {
    make(*making);
    return finish_load(command.module, *making, reply);
  }
  core_.background.run([making] {
    try {
      make(*making);
    } catch (const std::bad_alloc&) {
      making->status = Status(CUDA_ERROR_OUT_OF_MEMORY, "the host's");
    }
    making->done.store(true, std::memory_order_release);
    making->bell->ring();
  });
  const auto ready = [making] { return making->done.load(std::memory_order_acquire); };
  const auto finish = [this, making, id = command.module](ReplyWriter& writer) {
    return finish_load(id, *making, ReplyTo<wire::ModuleLoad>(writer));
  };
  reply.answer_later(std::make_unique<Pending>(Pending{ready, finish}));
  return Status();
}

Status Modules::prepare(const std::shared_ptr<const StoredImage>& image, uint32_t device,
                        ImageFacts* facts, LoadedCode* code, ImageBytes* placed) {
  OPENMPS_RETURN_IF_ERROR(images_.read_facts(image, core_.devices.at(device).capability, facts));
  // Counted before they are allocated.
  const uint64_t bytes = facts->binds() ? facts->variable_bytes : 0;
  OPENMPS_RETURN_IF_ERROR(memory_.charge(device, bytes));
  code->charged = bytes;
  Status status = place_variables(*image, device, facts, code, placed);
  if (!status.ok()) memory_.refund(device, bytes);
  return status;
}

// Variables in the context's own memory would end with it.
Status Modules::place_variables(const StoredImage& stored, uint32_t device, ImageFacts* facts,
                                LoadedCode* code, ImageBytes* changed) {
  if (!core_.journal.is_open() || !facts->has_variables || facts->is_managed ||
      facts->has_references) {
    return Status();
  }
  const cuda::Bytes image(stored.data(), stored.size() - 1);
  const uint32_t capability = core_.devices.at(device).capability;
  Result<VariableLayout> layout = lay_out_variables(image, capability, kMostPlacedBytes);
  if (!layout.ok()) return Status();
  const auto offset = [&](const std::string& name) -> Result<CUdeviceptr> {
    const auto found = layout->variables.find(name);
    if (found == layout->variables.end()) return Status(CUDA_ERROR_NOT_FOUND, name);
    return found->second.offset;
  };
  // What is not understood is found before memory is taken.
  if (!worker::place_variables(image, capability, kMostPlacedBytes, offset).ok()) return Status();
  const Journal::Variables& had = core_.journal.variables();
  code->variables = {had.address, had.number};
  OPENMPS_RETURN_IF_ERROR(variables_.take(device, *layout, &code->variables));
  Result<ImageBytes> placed = worker::place_variables(
      image, capability, kMostPlacedBytes, [&](const std::string& name) -> Result<CUdeviceptr> {
        const Result<CUdeviceptr> at = offset(name);
        return at.ok() ? Result<CUdeviceptr>(code->variables.address + *at) : at;
      });
  if (!placed.ok()) {
    variables_.give_back(code->variables.address);
    return placed.status();
  }
  *changed = std::move(placed).value();
  code->layout = std::move(layout).value();
  facts->has_variables = false;
  facts->variable_bytes = 0;
  core_.journal.note_variables({code->variables.address, code->variables.number});
  return Status();
}

void Modules::give_back(uint32_t device, const LoadedCode& code) {
  memory_.refund(device, code.charged);
  if (code.variables.address != 0) variables_.give_back(code.variables.address);
}

// Any thread.
void Modules::make(Making& making) {
  Module& module = *making.module;
  const auto load = [&making, &module](std::shared_ptr<LoadedLibrary>* made) {
    making.made = true;
    JitOptions& jit = making.jit;
    const cuda::Bytes image = making.placed.empty() ? cuda::Bytes(*module.image) : making.placed;
    return load_library(making.driver, making.gate, making.cold, image, module.facts,
                        {jit.count(), jit.names(), jit.values()}, made);
  };
  std::shared_ptr<LoadedLibrary>& library = module.code.library;
  making.status =
      module.is_shared ? making.images.library(module.image, load, &library) : load(&library);
}

Status Modules::finish_load(wire::Id id, Making& making, ReplyTo<wire::ModuleLoad> reply) {
  std::unique_ptr<Module> module = std::move(making.module);
  Status status = making.status;
  if (status.ok()) {
    core_.usage.count(making.made ? wire::UsageCount::kImagesMade : wire::UsageCount::kImagesFound);
    status = core_.use(module->device);
  }
  // Loaded code is known to be valid for the device.
  if (status.ok() && module->kind == ModuleKind::kModule &&
      !lane_of(*module->code.library, module->device)) {
    LoadedLibrary& library = *module->code.library;
    status = check(load_code(GatedCall::kModuleLoad, library, module->device,
                             homes_of(library, module->device), false,
                             [&](const Placement& at) { return place(*module, at); }),
                   "cuLibraryGetModule");
  }
  reply.put({}, making.jit.logs<wire::ModuleLoad::ReplyTail>());
  if (status.ok()) status = modules_.check_free(id);
  if (!status.ok()) {
    image_bytes_ -= module->image->size() - 1;
    give_back(module->device, module->code);
    return status;
  }
  if (const uint64_t hash = images_.kept_hash(module->image); hash != 0) {
    core_.journal.note_kept(hash);
  } else {
    core_.journal.note_stays("its code is not kept");
  }
  if (const char* const why = why_code_stays(module->facts)) core_.journal.note_stays(why);
  return modules_.insert(id, std::move(module));
}

// ---- Copies for other devices -------------------------------------------------------------------

Status Modules::find_copy(Function& function, uint32_t device) {
  if (function.module == nullptr || !function.module->has_copy_on(device) ||
      function.copies.contains(device)) {
    return Status();
  }
  OPENMPS_RETURN_IF_ERROR(find_copy(*function.module, device));
  KernelCode code{.library = function.module->on(device).library};
  OPENMPS_RETURN_IF_ERROR(check(
      core_.driver.cuLibraryGetKernel(&code.kernel, code.library->handle, function.name.c_str()),
      "cuLibraryGetKernel"));
  function.copies.emplace(device, std::move(code));
  return Status();
}

// Noted as if it had been a command of its own, before the one in hand.
Status Modules::find_copy(Module& module, uint32_t device) {
  if (!module.has_copy_on(device) || module.copies.contains(device)) return Status();
  Journal& journal = core_.journal;
  if (journal.is_adopting()) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "a copy of its module is not in the journal");
  }
  const Journal::Notes notes = journal.notes();
  journal.begin();
  const Status status = make_copy(module, device);
  if (status.ok()) {
    using Command = wire::ModuleCopy;
    const Command command{.module = module.id, .device = device};
    const Journal::ObjectKey lives_with[] = {Journal::object(wire::Object::kModule, module.id)};
    Journal::Command made;
    made.opcode = Command::kOpcode;
    made.keeping = Command::kKeeping;
    made.record = {reinterpret_cast<const unsigned char*>(&command), sizeof(command)};
    made.lives_with = lives_with;
    journal.add(made);
  }
  journal.resume(notes);
  return status;
}

Status Modules::make_copy(Module& module, uint32_t device) {
  LoadedCode code;
  ImageFacts facts;
  ImageBytes placed;
  OPENMPS_RETURN_IF_ERROR(prepare(module.image, device, &facts, &code, &placed));
  JitOptions jit;
  Status status = jit.set(0, module.options);
  if (status.ok()) {
    status = load_library(core_.driver, core_.gate, core_.cold,
                          placed.empty() ? cuda::Bytes(*module.image) : placed, facts,
                          {jit.count(), jit.names(), jit.values()}, &code.library);
  }
  if (!status.ok()) {
    give_back(device, code);
    return status;
  }
  if (const char* const why = why_code_stays(facts)) core_.journal.note_stays(why);
  module.copies.emplace(device, std::move(code));
  return Status();
}

Status Modules::handle(const wire::ModuleCopy& command, Module& module) {
  if (!core_.journal.is_adopting() || !module.has_copy_on(command.device) ||
      module.copies.contains(command.device)) {
    return violation("a copy of a module for device " + std::to_string(command.device));
  }
  return make_copy(module, command.device);
}

// ---- Lanes --------------------------------------------------------------------------------------

Modules::Homes Modules::homes_of(const LoadedLibrary& library, uint32_t device) const {
  if (library.has_one_home()) {
    if (library.is_loaded({device, Lane::kMain})) return Homes::kMain;
    if (library.is_loaded({device, Lane::kCold})) return Homes::kCold;
  }
  // A worker to which sessions move has nothing running yet: it needs no cold context for their
  // code.
  const bool may = core_.cold != nullptr && library.may_run_cold && core_.image_objects == 0 &&
                   !core_.journal.is_adopting();
  if (!may) return Homes::kMain;
  return core_.parts.is_limited(device) ? Homes::kMainFirst : Homes::kEither;
}

std::optional<Lane> Modules::lane_of(const LoadedLibrary& library, uint32_t device) {
  for (const Lane lane : {Lane::kMain, Lane::kCold}) {
    if (library.is_loaded({device, lane})) return lane;
  }
  return std::nullopt;
}

// Loading waits for all work of the context in which it is done: it is done in that of the two
// contexts where nothing runs first.
template <typename F>
CUresult Modules::load_code(GatedCall call, LoadedLibrary& library, uint32_t device, Homes homes,
                            bool stays, F&& load) {
  ContextGate& gate = core_.gate;
  const auto in_main = [&] { return load(Placement{device}); };
  if (const Status status = core_.use(device); !status.ok()) return status.code();
  const Request limited{call, device, &core_.gate_client, Patience::kLimited, Otherwise::kCall};
  if (homes == Homes::kMain) return *gate.run_quiescent(limited, in_main);
  if (homes == Homes::kMainFirst && !escapes()) {
    const uint64_t start = core_.gate.now_ns();
    const Request request{call, device, &core_.gate_client, Patience::kUnlessStuck};
    if (const auto result = gate.run_quiescent(request, in_main)) return *result;
    const uint64_t now = core_.gate.now_ns();
    escapes_until_ns_ = now + std::max(kEscapeShare * (now - start), kMoveLookNs);
  }
  if (stays) return CUDA_SUCCESS;
  // If the main context is known to be busy for longer, the cold lane is sooner, and no work is
  // held back.
  const auto main_is_near = [&] { return gate.near_end_ns(device) <= core_.gate.now_ns(); };
  if (main_is_near()) gate.wait_for_own_work(device, core_.gate_client, kOwnWorkNs);
  bool lonely = false;  // there is no cold lane
  std::optional<CUresult> result;
  const auto loaded = [&](uint64_t hold_ns) {
    if (homes != Homes::kCold) {
      const uint64_t main_ns = hold_ns > gate.first_hold_ns() || main_is_near() ? hold_ns : 0;
      const Request request{
          call, device, &core_.gate_client, Patience::kOneHold, Otherwise::kSkip, main_ns};
      result = gate.run_quiescent(request, in_main);
      if (result) return true;
      lonely = core_.cold->want(device) == nullptr;
    }
    if (!lonely) result = load_cold(call, library, device, hold_ns, load);
    return lonely || result.has_value();
  };
  gate.retry(core_.gate_client, loaded);
  if (lonely) return *gate.run_quiescent(limited, in_main);
  if (result) return *result;
  return gate.gave_up() ? CUDA_ERROR_MPS_SERVER_NOT_READY : CUDA_ERROR_NOT_READY;
}

template <typename F>
std::optional<CUresult> Modules::load_cold(GatedCall call, LoadedLibrary& library, uint32_t device,
                                           uint64_t hold_ns, F&& load) {
  const Placement cold{device, Lane::kCold};
  if (const Status status = core_.use(cold); !status.ok()) return status.code();
  const Request request{
      call, device, &core_.cold_gate_client, Patience::kOneHold, Otherwise::kSkip, hold_ns};
  const std::optional<CUresult> result =
      core_.cold_gate->run_quiescent(request, [&] { return load(cold); });
  if (const Status status = core_.use(device); !status.ok()) return status.code();
  if (result == CUDA_SUCCESS && library.may_move(device)) {
    has_cold_code_ = true;
    settling_.push_back({library.weak_from_this(), device, core_.gate.now_ns() + kSettledNs});
  }
  return result;
}

uint64_t Modules::plan_moves(uint64_t now) {
  while (!settling_.empty() && settling_.front().due_ns <= now) {
    const Settling& code = settling_.front();
    if (const auto library = code.library.lock()) library->plan_move(code.device);
    settling_.pop_front();
  }
  return settling_.empty() ? 0 : settling_.front().due_ns;
}

void Modules::note_cold_use(LoadedLibrary& library, uint32_t device) {
  if (library.note_cold_use() != kUsesToMove || !library.may_move(device)) return;
  has_cold_code_ = true;
  library.plan_move(device);
}

CUfunction Function::find_in_main(uint32_t on) const {
  const KernelCode& there = this->on(on);
  return there.library->function(there.kernel, {on, Lane::kMain});
}

void Modules::note_loaded(Module& module, const Placement& place) {
  LoadedLibrary& library = *module.on(place.device).library;
  library.note_loaded(place, false);
  if (place.lane == Lane::kCold && library.has_one_home()) note_home(module);
}

void Modules::note_home(Module& module) {
  if (module.in_cold_home) return;
  module.in_cold_home = true;
  module.cold_since_ns = core_.gate.now_ns();
  ++core_.cold_homes;
}

void Modules::leave_variables(const Module& module, uint32_t device, bool at_once) {
  LoadedLibrary& library = *module.on(device).library;
  if (!library.may_leave_variables(device) || !module.in_cold_home) return;
  // Compiling takes long, so it is done only if there is no other way.
  if (!at_once &&
      (module.facts.compiles || core_.gate.now_ns() < module.cold_since_ns + kSettledNs)) {
    return;
  }
  JitOptions jit;
  if (!jit.set(0, module.options).ok() || !core_.use({device, Lane::kCold}).ok()) return;
  library.leave_variables(*module.image, core_.devices.at(device).capability,
                          {jit.count(), jit.names(), jit.values()}, device);
  static_cast<void>(core_.use(device).ok());  // the device's main context, which was current before
  if (!library.may_move(device)) return;
  has_cold_code_ = true;
  library.plan_move(device);
}

CUresult Modules::place(Module& module, const Placement& place) {
  const CUresult result =
      core_.driver.cuLibraryGetModule(&module.module, module.code.library->handle);
  if (result != CUDA_SUCCESS) return result;
  module.lane = place.lane;
  note_loaded(module, place);
  return load_functions(module, place);
}

CUresult Modules::load_functions(Module& module, const Placement& place) {
  LoadedLibrary& library = *module.on(place.device).library;
  if (core_.driver.cuFuncLoad == nullptr || library.is_whole(place) ||
      module.image->size() > kMostBytesLoadedTogether) {
    return CUDA_SUCCESS;
  }
  std::vector<CUkernel> kernels;
  const CUresult listed = list_kernels(library, &kernels);
  if (listed != CUDA_SUCCESS || kernels.size() > kMostLoadedTogether) return CUDA_SUCCESS;
  for (CUkernel kernel : kernels) {
    CUfunction function = nullptr;
    const CUresult result = library.load(kernel, place, &function);
    // Only the caller that asks for that function gets the error.
    if (result != CUDA_SUCCESS) return is_sticky(result) ? result : CUDA_SUCCESS;
  }
  library.note_loaded(place, true);
  return CUDA_SUCCESS;
}

CUresult Modules::load_function(Function& function, const Placement& place, Located* located) {
  if (function.module == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // unloaded
  CUresult result = load_functions(*function.module, place);
  if (result != CUDA_SUCCESS) return result;
  const KernelCode& code = function.on(place.device);
  result = code.library->load(code.kernel, place, &located->handle);
  if (result != CUDA_SUCCESS) return result;
  located->place = place;
  note_loaded(*function.module, place);
  return CUDA_SUCCESS;
}

// Code in the cold lane moves if the main context is quiescent, or at times brings that about: a
// program that is never idle would not move otherwise. Holds that fail are made ever more rarely
// (GateLimits).
bool Modules::move_now(Function& function, uint32_t device) {
  const uint64_t now = core_.gate.now_ns();
  if (now < next_look_ns_ || !core_.use(device).ok()) return false;
  next_look_ns_ = now + kMoveLookNs;
  // If long kernels follow each other, the moment is near the end of one of them.
  const uint64_t near_ns = core_.gate.near_end_ns(device);
  if (near_ns > now) next_look_ns_ = std::min(next_look_ns_, near_ns);
  const uint64_t hold_ns = near_ns > now ? 0 : core_.gate.first_hold_ns();
  const Request request{GatedCall::kFunctionLoad, device,           &core_.gate_client,
                        Patience::kOneHold,       Otherwise::kSkip, hold_ns};
  const auto move = [&] {
    function.on(device).library->move_to_main(device);
    return CUDA_SUCCESS;
  };
  return core_.gate.run_quiescent(request, move).has_value();
}

// Logged once for each session; beyond_limit counts the launches.
void Modules::tell_of_escape(const Function& function) {
  core_.usage.count(wire::UsageCount::kBeyondLimit);
  if (std::exchange(told_of_escape_, true)) return;
  const char* name = nullptr;
  const bool named = core_.driver.cuKernelGetName != nullptr &&
                     core_.driver.cuKernelGetName(&name, function.code.kernel) == CUDA_SUCCESS;
  const std::string_view shown = named ? std::string_view(name).substr(0, kMostShown) : "a kernel";
  log("Session " + std::to_string(core_.info.id) + " (client " +
      std::to_string(core_.info.client_pid) + " " + core_.info.command + "): " + printable(shown) +
      " runs on all SMs, not on those that the client is limited to: it was " +
      "loaded while a stream waited for its program, or the program knows addresses in it " +
      "(decision 32)");
}

Status Modules::find(Function& function, const Placement& place, Reach reach, Located* located) {
  const uint32_t device = place.device;
  OPENMPS_RETURN_IF_ERROR(find_copy(function, device));
  const KernelCode& code = function.on(device);
  LoadedLibrary& library = *code.library;
  const bool is_limited = place.partition != nullptr && place.partition->is_limit;
  if (is_limited && reach != Reach::kMainLane) reach = Reach::kMainFirst;
  const auto is_in = [&](Lane lane) {
    *located = {library.function(code.kernel, place.in(lane)), place.in(lane)};
    return located->handle != nullptr;
  };
  Homes homes = homes_of(library, device);
  const bool is_used = library.cold_uses() >= kUsesToMove;
  const bool wants_main = reach == Reach::kMainLane || reach == Reach::kMainFirst;
  if (homes == Homes::kCold && (is_used || wants_main) && function.module != nullptr) {
    leave_variables(*function.module, device, wants_main);
  }
  const auto may_move = [&] {
    return homes == Homes::kEither || homes == Homes::kMainFirst || library.may_move(device);
  };
  if (homes != Homes::kMain && wants_main && may_move()) {
    homes = reach == Reach::kMainLane ? Homes::kMain : Homes::kMainFirst;
  }
  if (homes == Homes::kMainFirst && escapes()) homes = Homes::kEither;
  if (homes == Homes::kEither && reach == Reach::kColdLane &&
      core_.cold->context(device) != nullptr) {
    homes = Homes::kCold;
  }
  bool found = homes != Homes::kCold && is_in(Lane::kMain);
  const bool is_cold = !found && homes != Homes::kMain && is_in(Lane::kCold);
  if (is_cold && homes != Homes::kMainFirst) {
    const bool moves = (is_used || wants_main) && reach != Reach::kColdLane && may_move();
    const bool moved = moves && move_now(function, device) && is_in(Lane::kMain);
    found = moved || is_in(Lane::kCold);
  }
  if (!found) {
    // Code in the cold lane is not in the main lane unless it is loaded there.
    const auto load = [&](const Placement& at) { return load_function(function, at, located); };
    OPENMPS_RETURN_IF_ERROR(
        check(load_code(GatedCall::kFunctionLoad, library, device, homes, is_cold, load),
              "cuKernelGetFunction"));
  }
  if (located->place.lane == Lane::kCold) {
    note_cold_use(library, device);
    if (is_limited) tell_of_escape(function);
    return Status();
  }
  function.main.resize(core_.devices.count());
  function.main[device] = located->handle;
  return Status();
}

void Modules::remember(Function& function, uint32_t device) {
  function.remembered |= 1u << device;
  remembered_->note_used(function.module->image, function.code.kernel, device);
}

void Modules::release(Module& module) {
  for (const wire::Id id : module.functions) {
    if (const std::shared_ptr<Function> function = functions_.take(id)) function->module = nullptr;
  }
  for (const uint64_t address : module.globals) memory_.remove_global(address);
  const auto give_back_later = [&](uint64_t address) {
    core_.releases.add_behind_work({wire::ReturnKind::kCode},
                                   [this, address] { variables_.give_back(address); });
  };
  for (const uint64_t address : std::exchange(module.constants, {})) {
    if (const Constant* const constant = memory_.constants().at(address); constant != nullptr) {
      memory_.refund(constant->device, constant->bytes);
    }
    memory_.remove_constant(address);
    give_back_later(address);
  }
  image_bytes_ -= module.image->size() - 1;
  if (module.in_cold_home) --core_.cold_homes;
  // Libraries are unloaded, if no other session holds them, at the next quiescence of the context
  // that their code is in. Held work may use their variables then, and cold streams may still use
  // them.
  std::vector<std::shared_ptr<LoadedLibrary>> libraries{std::move(module.own)};
  const auto leave = [&](uint32_t device, LoadedCode& code) {
    memory_.refund(device, std::exchange(code.charged, 0));
    libraries.push_back(std::move(code.library));
    if (code.variables.address != 0) give_back_later(code.variables.address);
  };
  leave(module.device, module.code);
  for (auto& [device, code] : module.copies) leave(device, code);
  const auto let_go = [libraries = std::move(libraries)]() mutable {
    for (std::shared_ptr<LoadedLibrary>& library : libraries) library.reset();
  };
  if (module.in_cold_home || core_.releases.is_behind_held()) {
    core_.releases.add_behind_work({wire::ReturnKind::kCode}, let_go);
  }
}

void Modules::unload(wire::Id id) {
  const std::unique_ptr<Module> module = modules_.take(id);
  release(*module);
}

Status Modules::enter(const Module& module, ModuleKind kind, uint32_t wanted, uint32_t* device) {
  if (module.kind != kind) {
    return violation("a module that is not of kind " + std::to_string(static_cast<uint32_t>(kind)));
  }
  *device = kind == ModuleKind::kLibrary ? wanted : module.device;
  return core_.use(*device);
}

Status Modules::add(wire::Id id, std::shared_ptr<Function> function) {
  any_prints_ |= function->prints;
  any_asserts_ |= function->asserts;
  function->module->functions.push_back(id);
  return functions_.insert(id, std::move(function));
}

Status Modules::handle(const wire::GetGlobal& command, Module& module,
                       const wire::GetGlobal::Tail& tail, ReplyTo<wire::GetGlobal> reply) {
  uint32_t device = 0;
  OPENMPS_RETURN_IF_ERROR(enter(module, command.kind, command.device, &device));
  const std::string symbol(tail.name);
  OPENMPS_RETURN_IF_ERROR(find_copy(module, device));
  const LoadedCode& code = module.on(device);
  if (const auto found = code.layout.variables.find(symbol);
      found != code.layout.variables.end() && command.managed == 0) {
    reply.put({code.variables.address + found->second.offset, found->second.bytes, 0});
    return Status();
  }
  std::shared_ptr<LoadedLibrary> library = code.library;
  OPENMPS_RETURN_IF_ERROR(find_own(module, &library));
  const bool is_copy = library != code.library;
  const bool is_constant =
      library->has_both() && declares_constant({module.image->data(), module.image->size() - 1},
                                               core_.devices.at(device).capability, symbol);
  if (library->may_be_pinned() && (!library->has_both() || is_constant)) {
    OPENMPS_RETURN_IF_ERROR(settle(module));
  }
  CUdeviceptr address = 0;
  size_t bytes = 0;
  Lane lane = lane_of(*library, device).value_or(Lane::kMain);
  CUlibrary handle = library->handle;
  if (is_constant) {
    handle = library->library_of_constants(device);
  } else if (library->has_left_variables(device)) {
    lane = Lane::kCold;
  }
  const auto look = [&] {
    const bool is_there = module.module != nullptr && module.lane == lane;
    if (is_there && handle == module.code.library->handle) {
      return core_.driver.cuModuleGetGlobal_v2(&address, &bytes, module.module, symbol.c_str());
    }
    return (command.managed != 0
                ? core_.driver.cuLibraryGetManaged
                : core_.driver.cuLibraryGetGlobal)(&address, &bytes, handle, symbol.c_str());
  };
  CUresult result = CUDA_SUCCESS;
  if (library->is_loaded({device, lane})) {
    OPENMPS_RETURN_IF_ERROR(core_.use({device, lane}));
    result = look();
    OPENMPS_RETURN_IF_ERROR(core_.use(device));
  } else {
    // The first look-up of a symbol in a lazily loaded image loads the image, also if the symbol
    // does not exist.
    const auto load = [&](const Placement& home) {
      lane = home.lane;
      const CUresult looked = look();
      if (looked != CUDA_SUCCESS && looked != CUDA_ERROR_NOT_FOUND) return looked;
      is_copy ? library->note_loaded(home, false) : note_loaded(module, home);
      return looked;
    };
    const Homes homes = is_copy ? Homes::kMain : homes_of(*library, device);
    result = load_code(GatedCall::kFunctionLoad, *library, device, homes, false, load);
  }
  OPENMPS_RETURN_IF_ERROR(check(result, "cuModuleGetGlobal"));
  // The variables of a module are either all managed or none, as far as the driver knows.
  int managed = 0;
  static_cast<void>(
      core_.driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  const ImageFacts& facts = module.facts;
  if (core_.journal.is_open() && managed == 0 && command.managed == 0 && bytes != 0 &&
      !facts.has_variables && !facts.is_managed && !facts.has_references) {
    uint64_t copy = 0;
    OPENMPS_RETURN_IF_ERROR(copy_constant(module, {device, lane}, address, bytes, &copy));
    reply.put({copy, bytes, 0});
    return Status();
  }
  if (std::find(module.globals.begin(), module.globals.end(), address) == module.globals.end()) {
    memory_.add_global(address, bytes, lane);
    module.globals.push_back(address);
  }
  // What the program writes there ends with the context.
  core_.journal.note_stays("it has asked for the address of a variable");
  reply.put({address, bytes, managed != 0 ? 1u : 0u});
  return Status();
}

// In another worker the copy has what the program has written, and the constant what the image
// says.
Status Modules::copy_constant(Module& module, const Placement& home, CUdeviceptr in_code,
                              uint64_t bytes, uint64_t* address) {
  if (const Constant* const known = memory_.constants().in_code(in_code); known != nullptr) {
    *address = known->address;
    core_.journal.note_variables({known->address, known->number});
    return Status();
  }
  const bool is_adopting = core_.journal.is_adopting();
  VariableMemory::Place place{core_.journal.variables().address, core_.journal.variables().number};
  VariableLayout layout;
  layout.bytes = bytes;
  OPENMPS_RETURN_IF_ERROR(memory_.charge(home.device, bytes));
  if (Status status = variables_.take(home.device, layout, &place); !status.ok()) {
    memory_.refund(home.device, bytes);
    return status;
  }
  const auto copy = [&]() -> Status {
    OPENMPS_RETURN_IF_ERROR(core_.use(home));
    const DriverTable& driver = core_.driver;
    OPENMPS_RETURN_IF_ERROR(
        check(driver.cuMemcpyDtoD_v2(is_adopting ? in_code : place.address,
                                     is_adopting ? place.address : in_code, bytes),
              "cuMemcpyDtoD of a constant"));
    // In the legacy stream, as VariableMemory fills variables.
    return check(driver.cuStreamSynchronize(nullptr), "cuStreamSynchronize of a constant");
  };
  const Status status = copy();
  OPENMPS_RETURN_IF_ERROR(core_.use(home.device));
  if (!status.ok()) {
    memory_.refund(home.device, bytes);
    variables_.give_back(place.address);
    return status;
  }
  memory_.add_constant({place.address, bytes, place.number, in_code, home.device});
  module.constants.push_back(place.address);
  core_.journal.note_kept(0);  // the memory's number is among the variables
  core_.journal.note_variables({place.address, place.number});
  *address = place.address;
  return Status();
}

Status Modules::find_own(Module& module, std::shared_ptr<LoadedLibrary>* own) {
  const bool has_any = module.facts.variable_bytes != 0 || module.facts.has_nobodys;
  if (!module.is_shared || !has_any) return Status();
  if (module.own == nullptr) {
    const uint64_t bytes = module.facts.variable_bytes;
    OPENMPS_RETURN_IF_ERROR(memory_.charge(module.device, bytes));
    const Status made = load_library(core_.driver, core_.gate, core_.cold, *module.image,
                                     module.facts, {}, &module.own);
    if (!made.ok()) return memory_.refund(module.device, bytes), made;
    module.code.charged += bytes;
  }
  *own = module.own;
  return Status();
}

// Move the code to the main lane if that is quiescent within a few holds, and always if a part of
// it is there.
Status Modules::settle(Module& module) {
  ContextGate& gate = core_.gate;
  for (const uint32_t device : core_.devices.used()) {
    LoadedLibrary& library = *module.on(device).library;
    if (!library.is_loaded({device, Lane::kCold})) continue;
    leave_variables(module, device, !module.facts.compiles);
    if (!library.may_move(device)) continue;
    OPENMPS_RETURN_IF_ERROR(core_.use(device));
    Request request{GatedCall::kFunctionLoad, device, &core_.gate_client, Patience::kOneHold};
    const auto move = [&library, device] { return library.move_to_main(device), CUDA_SUCCESS; };
    const auto try_to = [&](uint64_t hold_ns) {
      request.hold_ns = hold_ns;
      return gate.run_quiescent(request, move).has_value();
    };
    const bool moved = gate.retry(core_.gate_client, try_to, core_.gate.now_ns() + kSettleNs);
    if (!moved && library.is_loaded({device, Lane::kMain})) {
      request.patience = Patience::kLimited;
      request.otherwise = Otherwise::kCall;
      OPENMPS_RETURN_IF_ERROR(
          check(*gate.run_quiescent(request, move), "moving code to the main context"));
    }
  }
  module.code.library->pin();
  for (const auto& [device, code] : module.copies) code.library->pin();
  for (const uint32_t device : core_.devices.used()) {
    const LoadedLibrary& library = *module.on(device).library;
    if (library.is_loaded({device, Lane::kCold}) && !library.is_loaded({device, Lane::kMain})) {
      note_home(module);
    }
  }
  return Status();
}

Status Modules::handle(const wire::ModuleSymbols&, Module& module,
                       ReplyTo<wire::ModuleSymbols> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(module.device));
  unsigned count = 0;
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuLibraryGetKernelCount(&count, module.code.library->handle),
            "cuLibraryGetKernelCount"));
  reply.put({count});
  return Status();
}

CUresult Modules::list_kernels(const LoadedLibrary& library, std::vector<CUkernel>* kernels) {
  unsigned count = 0;
  const CUresult counted = core_.driver.cuLibraryGetKernelCount(&count, library.handle);
  if (counted != CUDA_SUCCESS) return counted;
  kernels->assign(count, nullptr);
  if (count == 0) return CUDA_SUCCESS;
  return core_.driver.cuLibraryEnumerateKernels(kernels->data(), count, library.handle);
}

void Modules::release_all() {
  modules_.for_each([this](Module& module) { release(module); });
  modules_.clear();
  blobs_.clear();
  functions_.clear();
  variables_.release_all();
}

}  // namespace openmps::worker
