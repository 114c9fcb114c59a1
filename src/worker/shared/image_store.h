// SPDX-License-Identifier: Apache-2.0
// What clients load alike is held once: the bytes of images, and libraries without variables, whose
// kernels nobody can tell apart. A client always sends all of its image and gets what is there only
// if it is equal byte by byte, so nobody learns of or uses an image that he does not have. One per
// worker; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cuda/status.h"
#include "wire/layout.h"
#include "worker/shared/image_facts.h"
#include "worker/shared/image_variables.h"
#include "worker/shared/loaded_library.h"

namespace openmps::worker {

// Of a worker, of images that nobody uses: what a training stack loads, a few times over.
inline constexpr uint64_t kKeptImageBytes = 512 * wire::kMiB;

class ImageStore {
 public:
  // The environment's OPENMPS_SHARE_MODULES=0 switches sharing off (docs/compatibility.md).
  ImageStore();

  // The same bytes, held once.
  std::shared_ptr<const ImageBytes> intern(ImageBytes image);
  // An image of that size that begins so: perhaps it is the one that is to come. Null: none is.
  [[nodiscard]] std::shared_ptr<const ImageBytes> candidate(uint64_t bytes,
                                                            cuda::Bytes begin) const;
  // Of an image with a NUL behind it, for a device of that capability: read once, and of sessions
  // that want them at once by one. If that takes a while, the library is still to be made and the
  // driver has nothing to compile for it, another thread reads, and `meanwhile`, if there is one,
  // runs in this: loading takes the driver as long. Errors: those of check_image_bounds(), before
  // anything else.
  Status read_facts(const std::shared_ptr<const ImageBytes>& image, uint32_t capability,
                    const std::function<void()>& meanwhile, ImageFacts* facts);

  // The library that was made of these bytes and still lives, or what `load` makes. Loads of one
  // image by several sessions at once are one. Who may be wanted only is kept if there is room
  // beside what has been.
  using Load = std::function<Status(std::shared_ptr<LoadedLibrary>*)>;
  enum class Wanted { kNow, kPerhaps };
  Status library(const std::shared_ptr<const ImageBytes>& image, const Load& load,
                 std::shared_ptr<LoadedLibrary>* library, Wanted wanted = Wanted::kNow);

  [[nodiscard]] bool shares() const { return shares_; }

  // So many bytes of images stay loaded when nobody uses them any more, those that were wanted
  // last: a program that starts again loads nothing, and waits for nobody. 0: none do, from now on.
  void keep(uint64_t bytes);

 private:
  // Fewer images are not worth a look at which of them are gone.
  static constexpr size_t kFirstSweep = 64;
  // Less code is read in some 0.2 ms (an H100's host): not worth a thread.
  static constexpr uint64_t kReadAsideBytes = wire::kMiB / 4;

  struct Held {
    std::weak_ptr<const ImageBytes> image;
    uint64_t hash = 0;
    std::shared_ptr<std::mutex> loading = std::make_shared<std::mutex>();
    std::weak_ptr<LoadedLibrary> library;
    std::map<uint32_t, ImageFacts> facts;  // by capability
  };
  struct Kept {
    std::shared_ptr<const ImageBytes> image;
    std::shared_ptr<LoadedLibrary> library;
  };
  void note_wanted(const std::shared_ptr<const ImageBytes>& image,
                   const std::shared_ptr<LoadedLibrary>& library, Wanted wanted);
  // The entry of an image that intern() has given.
  Held* find_locked(const std::shared_ptr<const ImageBytes>& image);
  // True: `facts` are known. False: whoever reads them holds `*loading` meanwhile, if there is one.
  bool find_facts(const std::shared_ptr<const ImageBytes>& image, uint32_t capability,
                  ImageFacts* facts, std::shared_ptr<std::mutex>* loading);
  bool is_made(const std::shared_ptr<const ImageBytes>& image);
  void sweep_locked();

  const bool shares_;
  mutable std::mutex mutex_;
  std::unordered_multimap<uint64_t, Held> held_;  // by number of bytes; guarded by mutex_
  size_t sweep_from_ = kFirstSweep;               // so many of them; guarded by mutex_
  uint64_t most_kept_bytes_ = 0;                  // guarded by mutex_
  std::list<Kept> kept_;                          // last wanted first; guarded by mutex_
  uint64_t kept_bytes_ = 0;                       // of their images; guarded by mutex_
  std::unordered_map<const LoadedLibrary*, std::list<Kept>::iterator> kept_by_;  // likewise
};

}  // namespace openmps::worker
