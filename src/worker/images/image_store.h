// SPDX-License-Identifier: Apache-2.0
// Holds once what several clients load alike: the bytes of images, and libraries without variables,
// whose kernels behave the same for every session. A client always sends its whole image and gets
// the held one only if it is equal byte by byte, so no client learns of or uses an image that it
// does not have. One per worker; any thread.
//
// The server keeps each image under the hash of its bytes and gives it to other workers, which hold
// it until the server tells them to drop it: a session that is made again names its images so.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "cuda/status.h"
#include "wire/layout.h"
#include "worker/images/image_facts.h"
#include "worker/images/image_variables.h"
#include "worker/images/loaded_library.h"
#include "worker/images/stored_image.h"

namespace openmps::worker {

// The most bytes of unused images that a worker keeps: what a training stack loads, a few times
// over.
inline constexpr uint64_t kKeptImageBytes = 512 * wire::kMiB;

class ImageStore {
 public:
  // OPENMPS_SHARE_MODULES=0 in the environment switches sharing off (docs/compatibility.md).
  ImageStore();

  // How images are kept for other workers (Keeper). `keep`: the server keeps the file under that
  // hash until as many calls of `forget`; false: it can't. Set before there are images.
  struct Keeping {
    std::function<bool(uint64_t hash, uint64_t bytes, int file)> keep;
    std::function<void(uint64_t hash)> forget;
  };
  void set_keeping(Keeping keeping) {
    keeping_ = std::make_shared<const Keeping>(std::move(keeping));
  }
  // The hash under which the server keeps the image; 0: it does not.
  [[nodiscard]] uint64_t kept_hash(const std::shared_ptr<const StoredImage>& image);
  // The image that the server keeps under that hash; null: this worker does not have it.
  [[nodiscard]] std::shared_ptr<const StoredImage> find_kept(uint64_t hash);
  // The server gives an image of another worker, or tells this one to drop it.
  void give(uint64_t hash, uint64_t bytes, UniqueFd file);
  void drop_given(uint64_t hash);

  // The held image of these bytes.
  std::shared_ptr<const StoredImage> intern(ImageBytes image);
  // The last held image of that size which begins with `begin`, as a guess of the image that is
  // arriving. `begin` has the first kBeginBytes at least, or all but the image's last byte. Null:
  // there is none.
  static constexpr size_t kBeginBytes = 4096;
  [[nodiscard]] std::shared_ptr<const StoredImage> candidate(uint64_t bytes, cuda::Bytes begin);
  // The facts of an image with a NUL behind it, for a device of that capability: read once, also if
  // several sessions want them at once. Errors: those of check_image_bounds(), before anything
  // else.
  Status read_facts(const std::shared_ptr<const StoredImage>& image, uint32_t capability,
                    ImageFacts* facts);

  // The library that was made of these bytes and still exists, or that `load` makes. Loads of one
  // image by several sessions at once are one. Keeps the library loaded for later as far as keep()
  // allows.
  using Load = std::function<Status(std::shared_ptr<LoadedLibrary>*)>;
  enum class Wanted { kNow, kPerhaps };
  Status library(const std::shared_ptr<const StoredImage>& image, const Load& load,
                 std::shared_ptr<LoadedLibrary>* library, Wanted wanted = Wanted::kNow);

  [[nodiscard]] bool shares() const { return shares_; }
  // How often the bytes of a held image have been compared with others.
  [[nodiscard]] uint64_t comparisons() const {
    return comparisons_.load(std::memory_order_relaxed);
  }

  // Keep so many bytes of images loaded that no session uses any more, those that were wanted last:
  // a program that starts again loads nothing and waits for no other. 0: none from now on.
  void keep(uint64_t bytes);

 private:
  // An image that intern() has given, while it is held.
  struct Held {
    std::weak_ptr<const StoredImage> image;
    uint64_t content = 0;  // hash of the bytes,
    uint64_t begin = 0;    // and of the size and the first bytes
    std::shared_ptr<Mutex> loading = std::make_shared<Mutex>(LockRank::kImageLoading);
    std::weak_ptr<LoadedLibrary> library;
    std::map<uint32_t, ImageFacts> facts;  // by capability
    bool is_kept = false;                  // by the server, under `content`
    bool is_given = false;                 // `image` is given_'s, and its users hold this:
    std::weak_ptr<const StoredImage> used;
  };
  // Each look-up is O(1). The mutex is held for the tables alone: bytes are hashed and compared
  // without it. The last holder of an image takes it out of the tables, so no image is destroyed
  // under the mutex.
  struct Tables {
    Held& insert_locked(const std::shared_ptr<const StoredImage>& image, uint64_t content)
        REQUIRES(mutex);
    void forget(const StoredImage* image);

    Mutex mutex{LockRank::kImageTables};
    std::unordered_map<const StoredImage*, Held> images GUARDED_BY(mutex);
    std::unordered_multimap<uint64_t, const StoredImage*> by_content GUARDED_BY(mutex);
    std::unordered_map<uint64_t, const StoredImage*> last_by_begin GUARDED_BY(mutex);
  };
  // The images of that hash that are still held.
  std::vector<std::shared_ptr<const StoredImage>> find_alike(uint64_t content)
      REQUIRES(tables_->mutex);
  std::shared_ptr<const StoredImage> make(ImageBytes image, uint64_t content, bool keep,
                                          bool* is_kept);
  // A held image for a user, as which this worker has it.
  std::shared_ptr<const StoredImage> use(std::shared_ptr<const StoredImage> held);
  struct Kept {
    std::shared_ptr<const StoredImage> image;
    std::shared_ptr<LoadedLibrary> library;
  };
  void note_wanted(const std::shared_ptr<const StoredImage>& image,
                   const std::shared_ptr<LoadedLibrary>& library, Wanted wanted);
  // The entry of an image that intern() has given; null: it has not.
  Held* find_locked(const std::shared_ptr<const StoredImage>& image) REQUIRES(tables_->mutex);
  // True: `facts` are known. False: the caller reads them, and holds `*loading` meanwhile, if it is
  // not null.
  bool find_facts(const std::shared_ptr<const StoredImage>& image, uint32_t capability,
                  ImageFacts* facts, std::shared_ptr<Mutex>* loading);

  const bool shares_;
  const std::shared_ptr<Tables> tables_ =
      std::make_shared<Tables>();           // images may outlive the store
  std::shared_ptr<const Keeping> keeping_;  // null: images are not kept
  std::atomic<uint64_t> comparisons_{0};
  Mutex mutex_{LockRank::kImageStore};
  uint64_t most_kept_bytes_ GUARDED_BY(mutex_) = 0;
  std::list<Kept> kept_ GUARDED_BY(mutex_);     // last wanted first
  uint64_t kept_bytes_ GUARDED_BY(mutex_) = 0;  // of their images
  std::unordered_map<const LoadedLibrary*, std::list<Kept>::iterator> kept_by_ GUARDED_BY(mutex_);
  // By hash.
  std::map<uint64_t, std::shared_ptr<const StoredImage>> given_ GUARDED_BY(mutex_);
};

}  // namespace openmps::worker
