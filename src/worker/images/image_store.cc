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

void ImageStore::Tables::insert_locked(const std::shared_ptr<const ImageBytes>& image,
                                       uint64_t content) {
  const cuda::Bytes begin(image->data(), begin_bytes(image->size()));
  Held& held = images[image.get()];
  held.image = image;
  held.content = content;
  held.begin = begin_hash(image->size(), begin);
  by_content.emplace(held.content, image.get());
  last_by_begin[held.begin] = image.get();
}

void ImageStore::Tables::forget(const ImageBytes* image) {
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

ImageStore::Held* ImageStore::find_locked(const std::shared_ptr<const ImageBytes>& image) {
  const auto held = tables_->images.find(image.get());
  return held == tables_->images.end() ? nullptr : &held->second;
}

// The hash finds candidates, the comparison decides. Images that are inserted meanwhile are
// compared, too.
std::shared_ptr<const ImageBytes> ImageStore::intern(ImageBytes image) {
  if (!shares_) return std::make_shared<const ImageBytes>(std::move(image));
  const uint64_t content = hash_of(image);
  const std::shared_ptr<const ImageBytes> made(new ImageBytes(std::move(image)),
                                               [tables = tables_](const ImageBytes* last) {
                                                 tables->forget(last);
                                                 delete last;
                                               });
  std::vector<std::shared_ptr<const ImageBytes>> alike;
  for (size_t compared = 0;;) {
    {
      const MutexLock lock(tables_->mutex);
      const auto [first, last] = tables_->by_content.equal_range(content);
      for (auto it = first; it != last; ++it) {
        auto known = tables_->images.at(it->second).image.lock();
        if (known == nullptr) continue;
        if (std::ranges::find(alike, known) == alike.end()) alike.push_back(std::move(known));
      }
      if (alike.size() == compared) {
        tables_->insert_locked(made, content);
        return made;
      }
    }
    for (; compared < alike.size(); ++compared) {
      comparisons_.fetch_add(1, std::memory_order_relaxed);
      if (*alike[compared] == *made) return alike[compared];
    }
  }
}

std::shared_ptr<const ImageBytes> ImageStore::candidate(uint64_t bytes, cuda::Bytes begin) const {
  const size_t counts = begin_bytes(bytes);
  if (!shares_ || begin.size() < counts || begin.size() >= bytes) return nullptr;
  const uint64_t hash = begin_hash(bytes, begin.first(counts));
  std::shared_ptr<const ImageBytes> known;
  {
    const MutexLock lock(tables_->mutex);
    const auto last = tables_->last_by_begin.find(hash);
    if (last != tables_->last_by_begin.end()) {
      known = tables_->images.at(last->second).image.lock();
    }
  }
  if (known == nullptr || known->size() != bytes) return nullptr;
  comparisons_.fetch_add(1, std::memory_order_relaxed);
  return std::ranges::equal(begin.first(counts), std::span(*known).first(counts)) ? known : nullptr;
}

// ---- Facts of an image --------------------------------------------------------------------------

bool ImageStore::find_facts(const std::shared_ptr<const ImageBytes>& image, uint32_t capability,
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

Status ImageStore::read_facts(const std::shared_ptr<const ImageBytes>& image, uint32_t capability,
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

Status ImageStore::library(const std::shared_ptr<const ImageBytes>& image, const Load& load,
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
void ImageStore::note_wanted(const std::shared_ptr<const ImageBytes>& image,
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
