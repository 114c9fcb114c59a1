// SPDX-License-Identifier: Apache-2.0
// See image_store.h.
#include "worker/images/image_store.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/environment.h"
#include "base/mutex.h"
#include "worker/images/disk_store.h"
#include "worker/images/image_bounds.h"

namespace openmps::worker {
namespace {

bool wants_sharing() {
  const char* wish = environment_variable("OPENMPS_SHARE_MODULES");
  return wish == nullptr || strcmp(wish, "0") != 0;
}

// The key of an image's first bytes and size.
uint64_t begin_hash(uint64_t bytes, cuda::Bytes begin) {
  const uint64_t parts[] = {bytes, hash_of(begin)};
  return hash_of({reinterpret_cast<const unsigned char*>(parts), sizeof(parts)});
}

// How many of the first bytes count.
size_t begin_bytes(uint64_t bytes) {
  return std::min<uint64_t>(ImageStore::kBeginBytes, bytes == 0 ? 0 : bytes - 1);
}

}  // namespace

ImageStore::ImageStore() : shares_(wants_sharing()) {}

// ---- Tables -------------------------------------------------------------------------------------

ImageStore::Held& ImageStore::Tables::insert_locked(const std::shared_ptr<const StoredImage>& image,
                                                    uint64_t content) {
  const cuda::Bytes begin(image->data(), begin_bytes(image->size()));
  Held& held = images[image.get()];
  held.image = image;
  held.content = content;
  held.begin = begin_hash(image->size(), begin);
  by_content.emplace(held.content, image.get());
  last_by_begin[held.begin] = image.get();
  return held;
}

void ImageStore::Tables::forget(const StoredImage* image) {
  const MutexLock lock(mutex);
  const auto held = images.find(image);
  if (held == images.end()) return;
  const auto [first, last] = by_content.equal_range(held->second.content);
  const auto same = std::find_if(first, last, [&](const auto& one) { return one.second == image; });
  if (same != last) by_content.erase(same);
  const auto known = last_by_begin.find(held->second.begin);
  if (known != last_by_begin.end() && known->second == image) last_by_begin.erase(known);
  images.erase(held);
}

ImageStore::Held* ImageStore::find_locked(const std::shared_ptr<const StoredImage>& image) {
  const auto held = tables_->images.find(image.get());
  return held == tables_->images.end() ? nullptr : &held->second;
}

std::vector<std::shared_ptr<const StoredImage>> ImageStore::find_alike(uint64_t content) {
  std::vector<std::shared_ptr<const StoredImage>> alike;
  const auto [first, last] = tables_->by_content.equal_range(content);
  for (auto it = first; it != last; ++it) {
    if (auto known = tables_->images.at(it->second).image.lock()) alike.push_back(std::move(known));
  }
  return alike;
}

std::shared_ptr<const StoredImage> ImageStore::make(ImageBytes image, uint64_t content, bool keep,
                                                    bool* is_kept) {
  auto made = std::make_unique<StoredImage>(std::move(image));
  *is_kept = keep && keeping_ != nullptr && content != 0 && made->file().valid() &&
             keeping_->keep(content, made->size(), made->file().get());
  made->close_file();
  const auto keeping = *is_kept ? keeping_ : nullptr;
  return {made.release(), [tables = tables_, keeping, content](const StoredImage* last) {
            tables->forget(last);
            delete last;
            if (keeping != nullptr) keeping->forget(content);
          }};
}

// The hash finds candidates, the comparison decides. Images that are inserted meanwhile are
// compared, too. Of two images of one hash the first is kept.
std::shared_ptr<const StoredImage> ImageStore::intern(ImageBytes image) {
  if (!shares_) return std::make_shared<const StoredImage>(std::move(image));
  const uint64_t content = hash_of(image);
  std::shared_ptr<const StoredImage> made;
  bool is_kept = false;
  std::vector<std::shared_ptr<const StoredImage>> different;
  for (;;) {
    std::vector<std::shared_ptr<const StoredImage>> alike;
    {
      const MutexLock lock(tables_->mutex);
      alike = find_alike(content);
      std::erase_if(alike, [&](const auto& one) {
        return std::ranges::find(different, one) != different.end();
      });
      if (alike.empty() && made != nullptr) {
        tables_->insert_locked(made, content).is_kept = is_kept;
        return made;
      }
    }
    const cuda::Bytes bytes = made != nullptr ? cuda::Bytes(*made) : cuda::Bytes(image);
    for (auto& one : alike) {
      comparisons_.fetch_add(1, std::memory_order_relaxed);
      if (*one == bytes) return use(std::move(one));
      different.push_back(std::move(one));
    }
    if (made == nullptr) made = make(std::move(image), content, different.empty(), &is_kept);
  }
}

// ---- Images of other workers --------------------------------------------------------------------

std::shared_ptr<const StoredImage> ImageStore::use(std::shared_ptr<const StoredImage> held) {
  uint64_t hash = 0;
  {
    const MutexLock lock(tables_->mutex);
    const Held* known = find_locked(held);
    if (known == nullptr || !known->is_given) return held;
    if (auto used = known->used.lock()) return used;
    hash = known->content;
  }
  const bool is_kept = keeping_->keep(hash, held->size(), held->file().get());
  const StoredImage* const image = held.get();
  // The table has a weak reference to this, so its deleter lets go of the image by itself.
  std::shared_ptr<const StoredImage> used(
      image, [held = std::move(held), keeping = is_kept ? keeping_ : nullptr,
              hash](const StoredImage*) mutable {
        if (keeping != nullptr) keeping->forget(hash);
        held.reset();
      });
  const MutexLock lock(tables_->mutex);
  Held& known = tables_->images.at(image);
  if (auto others = known.used.lock()) return others;
  known.used = used;
  known.is_kept = is_kept;
  return used;
}

uint64_t ImageStore::kept_hash(const std::shared_ptr<const StoredImage>& image) {
  const MutexLock lock(tables_->mutex);
  const Held* held = find_locked(image);
  return held != nullptr && held->is_kept ? held->content : 0;
}

std::shared_ptr<const StoredImage> ImageStore::find_kept(uint64_t hash) {
  std::vector<std::shared_ptr<const StoredImage>> alike;  // destroyed without the mutex
  std::vector<std::shared_ptr<const StoredImage>> kept;
  {
    const MutexLock lock(tables_->mutex);
    alike = find_alike(hash);
    for (const auto& one : alike) {
      const Held* held = find_locked(one);
      if (held->is_kept || held->is_given) kept.push_back(one);
    }
  }
  // Two: this worker's and another's, with one hash.
  return kept.size() == 1 ? use(std::move(kept[0])) : nullptr;
}

void ImageStore::give(uint64_t hash, uint64_t bytes, UniqueFd file) {
  Result<StoredImage> opened = StoredImage::open(std::move(file), bytes);
  if (!shares_ || keeping_ == nullptr || !opened.ok()) return;
  const std::shared_ptr<const StoredImage> given(new StoredImage(std::move(opened).value()),
                                                 [tables = tables_](const StoredImage* last) {
                                                   tables->forget(last);
                                                   delete last;
                                                 });
  std::vector<std::shared_ptr<const StoredImage>> alike;
  {
    const MutexLock lock(tables_->mutex);
    alike = find_alike(hash);
  }
  if (std::ranges::any_of(alike, [&](const auto& one) { return *one == *given; })) return;
  const MutexLock lock(mutex_);
  given_[hash] = given;
  const MutexLock tables(tables_->mutex);
  tables_->insert_locked(given, hash).is_given = true;
}

void ImageStore::drop_given(uint64_t hash) {
  std::shared_ptr<const StoredImage> last;
  const MutexLock lock(mutex_);
  const auto found = given_.find(hash);
  if (found == given_.end()) return;
  last = std::move(found->second);
  given_.erase(found);
}

std::shared_ptr<const StoredImage> ImageStore::candidate(uint64_t bytes, cuda::Bytes begin) {
  const size_t counts = begin_bytes(bytes);
  if (!shares_ || begin.size() < counts || begin.size() >= bytes) return nullptr;
  const uint64_t hash = begin_hash(bytes, begin.first(counts));
  std::shared_ptr<const StoredImage> known;
  {
    const MutexLock lock(tables_->mutex);
    const auto last = tables_->last_by_begin.find(hash);
    if (last != tables_->last_by_begin.end()) {
      known = tables_->images.at(last->second).image.lock();
    }
  }
  if (known == nullptr || known->size() != bytes) return nullptr;
  comparisons_.fetch_add(1, std::memory_order_relaxed);
  const bool begins = std::ranges::equal(begin.first(counts), cuda::Bytes(*known).first(counts));
  return begins ? use(std::move(known)) : nullptr;
}

// ---- Facts of an image --------------------------------------------------------------------------

bool ImageStore::find_facts(const std::shared_ptr<const StoredImage>& image, uint32_t capability,
                            ImageFacts* facts, std::shared_ptr<Mutex>* loading) {
  const MutexLock lock(tables_->mutex);
  Held* held = find_locked(image);
  if (held == nullptr) return false;
  *loading = held->loading;
  const auto known = held->facts.find(capability);
  if (known == held->facts.end()) return false;
  *facts = known->second;
  return true;
}

Status ImageStore::read_facts(const std::shared_ptr<const StoredImage>& image, uint32_t capability,
                              ImageFacts* facts) {
  std::shared_ptr<Mutex> loading;
  if (find_facts(image, capability, facts, &loading)) return Status();
  // An image that is not from intern() has no other holders.
  if (loading == nullptr) loading = std::make_shared<Mutex>(LockRank::kImageLoading);
  const MutexLock one_at_a_time(*loading);
  if (find_facts(image, capability, facts, &loading)) return Status();
  const cuda::Bytes code(image->data(), image->size() - 1);
  OPENMPS_RETURN_IF_ERROR(check_image_bounds(code));
  *facts = read_image_facts(code, capability);
  const MutexLock lock(tables_->mutex);
  if (Held* held = find_locked(image)) held->facts[capability] = *facts;
  return Status();
}

Status ImageStore::library(const std::shared_ptr<const StoredImage>& image, const Load& load,
                           std::shared_ptr<LoadedLibrary>* library, Wanted how) {
  if (!shares_) return load(library);
  std::shared_ptr<Mutex> loading;
  {
    const MutexLock lock(tables_->mutex);
    if (const Held* held = find_locked(image)) {
      *library = held->library.lock();
      loading = held->loading;
    }
  }
  if (loading == nullptr) return load(library);  // the image is not from intern()
  if (*library != nullptr) return note_wanted(image, *library, how), Status();
  // The load itself is made without the store's lock: it may wait for the whole context.
  const MutexLock one_at_a_time(*loading);
  {
    const MutexLock lock(tables_->mutex);
    if (Held* held = find_locked(image)) *library = held->library.lock();
    if (*library != nullptr) return Status();
  }
  OPENMPS_RETURN_IF_ERROR(load(library));
  {
    const MutexLock lock(tables_->mutex);
    if (Held* held = find_locked(image)) held->library = *library;
  }
  note_wanted(image, *library, how);
  return Status();
}

// Libraries that are dropped are destroyed without the lock: the last holder unloads them.
void ImageStore::note_wanted(const std::shared_ptr<const StoredImage>& image,
                             const std::shared_ptr<LoadedLibrary>& library, Wanted how) {
  std::list<Kept> gone;
  std::list<Kept> wanted;
  wanted.push_back({image, library});
  const MutexLock lock(mutex_);
  if (const auto known = kept_by_.find(library.get()); known != kept_by_.end()) {
    if (how == Wanted::kNow) kept_.splice(kept_.begin(), kept_, known->second);
    return;
  }
  if (image->size() > most_kept_bytes_) return;
  kept_by_.emplace(library.get(), wanted.begin());
  kept_bytes_ += image->size();
  kept_.splice(how == Wanted::kNow ? kept_.begin() : kept_.end(), wanted);
  while (kept_bytes_ > most_kept_bytes_) {
    kept_by_.erase(kept_.back().library.get());
    kept_bytes_ -= kept_.back().image->size();
    gone.splice(gone.end(), kept_, std::prev(kept_.end()));
  }
}

void ImageStore::keep(uint64_t bytes) {
  std::list<Kept> gone;
  const MutexLock lock(mutex_);
  most_kept_bytes_ = bytes;
  if (bytes != 0) return;
  gone.swap(kept_);
  kept_by_.clear();
  kept_bytes_ = 0;
}

}  // namespace openmps::worker
