// SPDX-License-Identifier: Apache-2.0
// See image_memory.h.
#include "worker/images/image_memory.h"

#include <pthread.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <system_error>
#include <utility>

#include "base/environment.h"
#include "base/mutex.h"
#include "base/text.h"
#include "worker/device/in_context.h"
#include "worker/device/log.h"
#include "worker/images/image_facts.h"
#include "worker/images/loaded_library.h"

namespace openmps::worker {
namespace {

// The most uses of kernels that are held until they are written.
constexpr size_t kMostPendingUses = 1u << 16;

bool is_own_directory(const std::string& path) {
  struct stat info {};
  return !path.empty() && path[0] == '/' && stat(path.c_str(), &info) == 0 &&
         S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

std::string cache_of(const std::string& home) {
  if (!is_own_directory(home)) return "";
  const std::string cache = home + "/.cache";
  mkdir(cache.c_str(), S_IRWXU);
  return is_own_directory(cache) ? cache : "";
}

}  // namespace

std::string store_key(const DriverTable& driver, const Devices& devices, const std::string& kind) {
  int version = 0;
  driver.cuDriverGetVersion(&version);
  std::string key = kind + " " + std::to_string(version);
  // NVIDIA's driver has versions beyond that of its interface.
  std::string module;
  if (std::ifstream file("/sys/module/nvidia/version"); std::getline(file, module)) {
    key += " " + module;
  }
  for (uint32_t i = 0; i < devices.count(); ++i) {
    char name[256] = "";
    driver.cuDeviceGetName(name, sizeof(name), devices.at(i).handle);
    key += format_text("\n%s %u %u", name, devices.at(i).capability, devices.at(i).sms);
  }
  return key;
}

std::string store_place(std::string* why) {
  if (const char* chosen = environment_variable("OPENMPS_CACHE_DIRECTORY"); chosen != nullptr) {
    if (*chosen == '\0' || *chosen == '/') return chosen;
    *why = "OPENMPS_CACHE_DIRECTORY=" + printable(chosen) + " is no path from the root";
    return "";
  }
  // The environment may be that of a daemon that root has started.
  std::string cache = environment_or("XDG_CACHE_HOME", "");
  if (!is_own_directory(cache)) cache = cache_of(environment_or("HOME", ""));
  if (cache.empty()) {
    const passwd* entry = getpwuid(geteuid());
    if (entry != nullptr && entry->pw_dir != nullptr) cache = cache_of(entry->pw_dir);
  }
  if (!cache.empty()) return cache + "/openmps";
  *why = "user " + std::to_string(geteuid()) + " has no directory for caches";
  return "";
}

// State that jobs keep which may outlive the ImageMemory.
struct ImageMemory::State : std::enable_shared_from_this<State> {
  State(const DriverTable& driver, const Devices& devices, ContextGate& gate, ColdLanes* cold,
        ImageStore& images, DiskStore disk)
      : driver(driver),
        devices(devices),
        gate(gate),
        cold(cold),
        images(images),
        disk(std::move(disk)) {}

  // A program's use of a kernel.
  struct Use {
    std::shared_ptr<const StoredImage> image;
    std::string kernel;
    uint32_t device;
  };
  // An image that has been stored, or is to be.
  struct Known {
    std::weak_ptr<const StoredImage> image;
    uint64_t hash = 0;
    UsedKernels kernels;
    bool is_stored = false;
    bool is_refused = false;  // it can't be written, or is too large
  };

  Known& know(const std::shared_ptr<const StoredImage>& image) REQUIRES(files);

  const DriverTable& driver;
  const Devices& devices;
  ContextGate& gate;
  ColdLanes* const cold;
  ImageStore& images;

  Mutex files{LockRank::kImageFiles};
  DiskStore disk GUARDED_BY(files);
  std::map<const StoredImage*, Known> known GUARDED_BY(files);

  Mutex mutex{LockRank::kImageMemory};
  CondVar changed;
  bool stop GUARDED_BY(mutex) = false;
  bool recalls GUARDED_BY(mutex) = false;
  std::vector<Use> uses GUARDED_BY(mutex);  // to be written
};

ImageMemory::ImageMemory(const DriverTable& driver, const Devices& devices, ContextGate& gate,
                         ColdLanes* cold, ImageStore& images, DiskStore disk)
    : state_(std::make_shared<State>(driver, devices, gate, cold, images, std::move(disk))) {}

ImageMemory::~ImageMemory() {
  stop();
  wait();
}

void ImageMemory::stop() {
  {
    const MutexLock lock(state_->mutex);
    state_->stop = true;
    state_->changed.notify_all();
  }
  if (writing_.joinable()) writing_.join();
}

void ImageMemory::wait() {
  const MutexLock lock(state_->mutex);
  while (state_->recalls) state_->changed.wait(state_->mutex);
}

// ---- Recalling ----------------------------------------------------------------------------------

void ImageMemory::begin() {
  {
    const MutexLock lock(state_->mutex);
    state_->recalls = true;
  }
  recalling_.run([state = state_] {
    try {
      recall(*state);
    } catch (const std::bad_alloc&) {
      // The rest is not loaded, then.
    }
    const MutexLock lock(state->mutex);
    state->recalls = false;
    state->changed.notify_all();
  });
  try {
    writing_ = std::thread([&state = *state_] { write_at_times(state); });
    pthread_setname_np(writing_.native_handle(), "remembering");
  } catch (const std::system_error&) {
    // Without a thread all is written at the end.
  }
}

void ImageMemory::recall(State& state) {
  std::vector<DiskStore::Entry> entries;
  {
    const MutexLock lock(state.files);
    entries = state.disk.entries();
  }
  uint64_t bytes = 0;
  uint64_t images = 0;
  uint64_t kernels = 0;
  for (const DiskStore::Entry& entry : entries) {
    {
      const MutexLock lock(state.mutex);
      if (state.stop) return;
    }
    if (bytes + entry.bytes > kKeptImageBytes) continue;
    const uint64_t before = images;
    recall(state, entry, &images, &kernels);
    if (images != before) bytes += entry.bytes;
  }
  if (entries.empty()) return;
  log(format_text("Remembered code: %llu images with %llu kernels are loaded (%llu MiB)",
                  static_cast<unsigned long long>(images), static_cast<unsigned long long>(kernels),
                  static_cast<unsigned long long>((bytes + wire::kMiB - 1) / wire::kMiB)));
}

void ImageMemory::recall(State& state, const DiskStore::Entry& entry, uint64_t* images,
                         uint64_t* kernels) {
  ImageBytes bytes;
  UsedKernels used;
  uint32_t devices = 0;
  {
    const MutexLock lock(state.files);
    if (!state.disk.read(entry.hash, &bytes, &used).ok()) return;
  }
  for (const auto& [name, on] : used) devices |= on;
  uint32_t there = 0;
  for (const uint32_t device : state.devices.used()) there |= 1u << device;
  devices &= there;
  // With a NUL behind it, as a client's image.
  if (devices == 0 || bytes.empty() || bytes.back() != 0) return;
  const auto first = static_cast<uint32_t>(std::countr_zero(devices));
  const std::shared_ptr<const StoredImage> image = state.images.intern(std::move(bytes));
  ImageFacts facts;  // read once, so that the client that sends the image need not have it read
  const uint32_t capability = state.devices.at(first).capability;
  if (!state.images.read_facts(image, capability, &facts).ok() || facts.binds()) return;
  std::shared_ptr<LoadedLibrary> library;
  const auto load = [&](std::shared_ptr<LoadedLibrary>* made) {
    return load_library(state.driver, state.gate, state.cold, *image, facts, {}, made);
  };
  if (!state.images.library(image, load, &library, ImageStore::Wanted::kPerhaps).ok()) return;
  {
    const MutexLock lock(state.files);
    State::Known& known = state.known[image.get()];
    known = {image, entry.hash, used, true, false};
  }
  ++*images;
  for (const uint32_t device : state.devices.used()) {
    if ((devices >> device & 1) == 0) continue;
    *kernels += load_kernels(state, library, used, device);
  }
}

namespace {

// Kernels that are loaded into the main context at quiescences, some in each.
struct Arrival {
  std::weak_ptr<LoadedLibrary> library;  // may be destroyed before its quiescence
  std::vector<std::string> names;
  size_t next = 0;
  uint64_t loaded = 0;
  bool has_come = false;  // guarded by the state's mutex: the quiescence has come
};

}  // namespace

uint64_t ImageMemory::load_kernels(State& state, const std::shared_ptr<LoadedLibrary>& library,
                                   const UsedKernels& kernels, uint32_t device) {
  const auto arrival = std::make_shared<Arrival>();
  arrival->library = library;
  for (const auto& [name, on] : kernels) {
    if ((on >> device & 1) != 0) arrival->names.push_back(name);
  }
  const InContext current(state.driver, state.devices.at(device).context);
  while (arrival->next < arrival->names.size()) {
    arrival->has_come = false;
    const auto load = [self = state.shared_from_this(), arrival, device] {
      State& state = *self;
      const InContext main(state.driver, state.devices.at(device).context);
      const uint64_t until = state.gate.now_ns() + kRecallMomentNs;
      if (const auto there = arrival->library.lock()) {
        do {
          CUkernel kernel = nullptr;
          CUfunction function = nullptr;
          const std::string& name = arrival->names[arrival->next++];
          if (state.driver.cuLibraryGetKernel(&kernel, there->handle, name.c_str()) ==
                  CUDA_SUCCESS &&
              (there->function(kernel, {device}) != nullptr ||
               there->load(kernel, {device}, &function) == CUDA_SUCCESS)) {
            ++arrival->loaded;
            there->note_loaded({device}, false);
          }
        } while (arrival->next < arrival->names.size() && state.gate.now_ns() < until);
      } else {
        arrival->next = arrival->names.size();
      }
      const MutexLock lock(state.mutex);
      arrival->has_come = true;
      state.changed.notify_all();
      return CUDA_SUCCESS;
    };
    state.gate.defer(GatedCall::kFunctionLoad, device, load);
    const MutexLock lock(state.mutex);
    while (!arrival->has_come && !state.stop) state.changed.wait(state.mutex);
    if (!arrival->has_come) break;
  }
  return arrival->loaded;
}

// ---- Remembering --------------------------------------------------------------------------------

void ImageMemory::note_used(const std::shared_ptr<const StoredImage>& image, CUkernel kernel,
                            uint32_t device) {
  const char* name = nullptr;
  if (state_->driver.cuKernelGetName == nullptr ||
      state_->driver.cuKernelGetName(&name, kernel) != CUDA_SUCCESS || name == nullptr) {
    return;
  }
  const MutexLock lock(state_->mutex);
  if (state_->uses.size() >= kMostPendingUses) return;
  state_->uses.push_back({image, name, device});
  if (state_->uses.size() == 1) state_->changed.notify_all();
}

void ImageMemory::write_at_times(State& state) {
  try {
    const MutexLock lock(state.mutex);
    while (!state.stop) {
      if (state.uses.empty()) {
        state.changed.wait(state.mutex);
        continue;
      }
      const uint64_t due_ns = state.gate.now_ns() + kRememberAfterNs;
      while (!state.stop && state.changed.wait_until(state.mutex, due_ns)) {
      }
      const MutexUnlock unlocked(state.mutex);
      write(state);
    }
  } catch (const std::bad_alloc&) {
    // Nothing is stored any more, then.
  }
}

void ImageMemory::finish() {
  stop();
  write(*state_);
}

// What other workers have stored of the image counts, too.
ImageMemory::State::Known& ImageMemory::State::know(
    const std::shared_ptr<const StoredImage>& image) {
  Known& found = known[image.get()];
  if (found.image.lock() == image) return found;
  found = {image, hash_of(*image), {}, false, false};
  found.is_stored = disk.has_image(found.hash);
  if (found.is_stored) static_cast<void>(disk.read_kernels(found.hash, &found.kernels).ok());
  return found;
}

void ImageMemory::write(State& state) {
  const MutexLock files(state.files);
  std::vector<State::Use> uses;
  {
    const MutexLock lock(state.mutex);
    uses.swap(state.uses);
  }
  std::erase_if(state.known, [](const auto& entry) { return entry.second.image.expired(); });
  std::map<State::Known*, bool> used;  // the image has more kernels than before
  for (const State::Use& use : uses) {
    State::Known& known = state.know(use.image);
    uint32_t& devices = known.kernels[use.kernel];
    const uint32_t with = devices | 1u << use.device;
    used[&known] |= with != devices;
    devices = with;
  }
  for (const auto& [known, has_more] : used) {
    const std::shared_ptr<const StoredImage> image = known->image.lock();
    if (known->is_refused || image == nullptr) continue;
    state.disk.touch(known->hash);
    if (!known->is_stored) known->is_stored = state.disk.write_image(known->hash, *image).ok();
    known->is_refused = !known->is_stored ||
                        (has_more && !state.disk.write_kernels(known->hash, known->kernels).ok());
  }
}

}  // namespace openmps::worker
