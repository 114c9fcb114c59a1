// SPDX-License-Identifier: Apache-2.0
// What clients load alike is held once: the bytes of images, and libraries without variables, whose
// kernels nobody can tell apart. A client always sends all of its image and gets what is there only
// if it is equal byte by byte, so nobody learns of or uses an image that he does not have. One per
// worker; any thread.
#pragma once

#include <atomic>
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
#include "worker/images/image_facts.h"
#include "worker/images/image_variables.h"
#include "worker/images/loaded_library.h"

namespace openmps::worker {

// Of a worker, of images that nobody uses: what a training stack loads, a few times over.
inline constexpr uint64_t kKeptImageBytes = 512 * wire::kMiB;

class ImageStore {
 public:
  // The environment's OPENMPS_SHARE_MODULES=0 switches sharing off (docs/compatibility.md).
  ImageStore();

  // The same bytes, held once.
  std::shared_ptr<const ImageBytes> intern(ImageBytes image);
  // An image of that size which begins alike, the last of them: perhaps it is the one that is to
  // come. `begin` has its first kBeginBytes at least, or all but its last byte. Null: there is
  // none.
  static constexpr size_t kBeginBytes = 4096;
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
  // How often the bytes of an image that is there have been compared with others.
  [[nodiscard]] uint64_t comparisons() const {
    return comparisons_.load(std::memory_order_relaxed);
  }

  // So many bytes of images stay loaded when nobody uses them any more, those that were wanted
  // last: a program that starts again loads nothing, and waits for nobody. 0: none do, from now on.
  void keep(uint64_t bytes);

 private:
  // Less code is read in some 0.2 ms (an H100's host): not worth a thread.
  static constexpr uint64_t kReadAsideBytes = wire::kMiB / 4;

  // What is known of an image that intern() has given, for as long as somebody holds it.
  struct Held {
    std::weak_ptr<const ImageBytes> image;
    uint64_t content = 0;  // hash of the bytes,
    uint64_t begin = 0;    // and of the size and the first bytes
    std::shared_ptr<std::mutex> loading = std::make_shared<std::mutex>();
    std::weak_ptr<LoadedLibrary> library;
    std::map<uint32_t, ImageFacts> facts;  // by capability
  };
  // Each look-up is O(1). The mutex is held for the tables alone: bytes are hashed and compared
  // outside. The last holder of an image takes it out of the tables, so nobody lets go of an image
  // under the mutex.
  struct Tables {
    void insert_locked(const std::shared_ptr<const ImageBytes>& image, uint64_t content);
    void forget(const ImageBytes* image);

    std::mutex mutex;
    std::unordered_map<const ImageBytes*, Held> images;               // guarded by mutex
    std::unordered_multimap<uint64_t, const ImageBytes*> by_content;  // likewise
    std::unordered_map<uint64_t, const ImageBytes*> last_by_begin;    // likewise
  };
  struct Kept {
    std::shared_ptr<const ImageBytes> image;
    std::shared_ptr<LoadedLibrary> library;
  };
  void note_wanted(const std::shared_ptr<const ImageBytes>& image,
                   const std::shared_ptr<LoadedLibrary>& library, Wanted wanted);
  // The entry of an image that intern() has given, else null. The tables' mutex is held.
  Held* find_locked(const std::shared_ptr<const ImageBytes>& image);
  // True: `facts` are known. False: whoever reads them holds `*loading` meanwhile, if there is one.
  bool find_facts(const std::shared_ptr<const ImageBytes>& image, uint32_t capability,
                  ImageFacts* facts, std::shared_ptr<std::mutex>* loading);
  bool is_made(const std::shared_ptr<const ImageBytes>& image);

  const bool shares_;
  const std::shared_ptr<Tables> tables_ = std::make_shared<Tables>();  // images may outlive us
  mutable std::atomic<uint64_t> comparisons_{0};
  std::mutex mutex_;
  uint64_t most_kept_bytes_ = 0;  // guarded by mutex_
  std::list<Kept> kept_;          // last wanted first; guarded by mutex_
  uint64_t kept_bytes_ = 0;       // of their images; guarded by mutex_
  std::unordered_map<const LoadedLibrary*, std::list<Kept>::iterator> kept_by_;  // likewise
};

}  // namespace openmps::worker
