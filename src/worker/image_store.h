// SPDX-License-Identifier: Apache-2.0
// What clients load alike is held once: the bytes of images, and libraries without variables, whose
// kernels nobody can tell apart. A client always sends the whole image and gets what is there only
// if it is equal byte by byte, so nobody learns of or uses an image that he does not have. One per
// worker; any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "api/driver_table.h"
#include "base/status.h"
#include "wire/commands.h"
#include "worker/context_gate.h"
#include "worker/image_facts.h"

namespace openmps::worker {

using ImageBytes = std::vector<unsigned char>;

// A library of the driver; unloaded after its last holder, in a quiet moment of where its code is.
class LoadedLibrary {
 public:
  LoadedLibrary(const DriverTable& driver, ContextGate& gate, CUlibrary handle)
      : handle(handle), driver_(driver), gate_(gate) {}
  ~LoadedLibrary();
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  const CUlibrary handle;

  // Its code came to a device: variables are there, and, if `whole`, every function.
  void note_loaded(uint32_t device, bool whole) {
    loaded_.fetch_or(1u << device, std::memory_order_relaxed);
    if (whole) whole_.fetch_or(1u << device, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_loaded(uint32_t device) const {
    return (loaded_.load(std::memory_order_relaxed) >> device & 1) != 0;
  }
  [[nodiscard]] bool is_whole(uint32_t device) const {
    return (whole_.load(std::memory_order_relaxed) >> device & 1) != 0;
  }

  // The attributes of a kernel before anybody changed them: what each session is told. The first
  // caller says them.
  void pristine(CUfunction kernel, int32_t (&attributes)[wire::kFunctionAttributes]);
  // A kernel's attribute only grows while several sessions use it: what one was allowed stays
  // allowed, and each client enforces its own value. The value to set.
  int grown(CUfunction kernel, uint32_t device, CUfunction_attribute attribute, int value);

 private:
  const DriverTable& driver_;
  ContextGate& gate_;
  std::atomic<uint32_t> loaded_{0};  // devices, by bit
  std::atomic<uint32_t> whole_{0};   // the same
  std::mutex mutex_;
  using Attributes = std::array<int32_t, wire::kFunctionAttributes>;
  std::unordered_map<CUfunction, Attributes> pristine_;  // guarded by mutex_
  std::unordered_map<uint64_t, int> most_;               // by kernel, device, attribute; the same
};

class ImageStore {
 public:
  // The environment's OPENMPS_SHARE_MODULES=0 switches sharing off (docs/compatibility.md).
  ImageStore();

  // The same bytes, held once.
  std::shared_ptr<const ImageBytes> intern(ImageBytes image);

  // The library that was made of these bytes and still lives, or what `load` makes. Loads of one
  // image by several sessions at once are one.
  using Load = std::function<Status(std::shared_ptr<LoadedLibrary>*)>;
  Status library(const std::shared_ptr<const ImageBytes>& image, const Load& load,
                 std::shared_ptr<LoadedLibrary>* library);

  [[nodiscard]] bool shares() const { return shares_; }

 private:
  struct Held {
    std::weak_ptr<const ImageBytes> image;
    std::shared_ptr<std::mutex> loading = std::make_shared<std::mutex>();
    std::weak_ptr<LoadedLibrary> library;
  };
  Held* find_locked(const ImageBytes& image, uint64_t hash);
  void sweep_locked();

  const bool shares_;
  std::mutex mutex_;
  std::unordered_multimap<uint64_t, Held> held_;  // by hash of the bytes; guarded by mutex_
};

}  // namespace openmps::worker
