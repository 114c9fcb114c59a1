// SPDX-License-Identifier: Apache-2.0
// Images and libraries that are held once. See image_store.h.
#include "worker/shared/image_store.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/environment.h"
#include "worker/shared/image_bounds.h"

namespace openmps::worker {
namespace {

bool wants_sharing() {
  const char* wish = environment_variable("OPENMPS_SHARE_MODULES");
  return wish == nullptr || strcmp(wish, "0") != 0;
}

uint64_t hash_of(const ImageBytes& image) {
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  return std::hash<std::string_view>()(text);
}

}  // namespace

ImageStore::ImageStore() : shares_(wants_sharing()) {}

ImageStore::Held* ImageStore::find_locked(const std::shared_ptr<const ImageBytes>& image) {
  const auto [begin, end] = held_.equal_range(image->size());
  for (auto it = begin; it != end; ++it) {
    if (it->second.image.lock() == image) return &it->second;
  }
  return nullptr;
}

// Once for as many images as were left the last time: each costs its part of one sweep.
void ImageStore::sweep_locked() {
  if (held_.size() < sweep_from_) return;
  std::erase_if(held_, [](const auto& entry) { return entry.second.image.expired(); });
  sweep_from_ = std::max(kFirstSweep, 2 * held_.size());
}

std::shared_ptr<const ImageBytes> ImageStore::intern(ImageBytes image) {
  if (!shares_) return std::make_shared<const ImageBytes>(std::move(image));
  const uint64_t hash = hash_of(image);
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = held_.equal_range(image.size());
  for (auto it = begin; it != end; ++it) {
    if (it->second.hash != hash) continue;
    // The hash finds, the comparison decides.
    auto known = it->second.image.lock();
    if (known != nullptr && *known == image) return known;
  }
  sweep_locked();
  auto made = std::make_shared<const ImageBytes>(std::move(image));
  Held held;
  held.image = made;
  held.hash = hash;
  held_.emplace(made->size(), std::move(held));
  return made;
}

std::shared_ptr<const ImageBytes> ImageStore::candidate(uint64_t bytes, cuda::Bytes begin) const {
  if (!shares_) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto [first, last] = held_.equal_range(bytes);
  for (auto it = first; it != last; ++it) {
    auto known = it->second.image.lock();
    if (known != nullptr && begin.size() < known->size() &&
        memcmp(known->data(), begin.data(), begin.size()) == 0) {
      return known;
    }
  }
  return nullptr;
}

bool ImageStore::find_facts(const std::shared_ptr<const ImageBytes>& image, uint32_t capability,
                            ImageFacts* facts, std::shared_ptr<std::mutex>* loading) {
  const std::lock_guard lock(mutex_);
  Held* held = find_locked(image);
  if (held == nullptr) return false;
  *loading = held->loading;
  const auto known = held->facts.find(capability);
  if (known == held->facts.end()) return false;
  *facts = known->second;
  return true;
}

bool ImageStore::is_made(const std::shared_ptr<const ImageBytes>& image) {
  const std::lock_guard lock(mutex_);
  const Held* held = find_locked(image);
  return held != nullptr && !held->library.expired();
}

Status ImageStore::read_facts(const std::shared_ptr<const ImageBytes>& image, uint32_t capability,
                              const std::function<void()>& meanwhile, ImageFacts* facts) {
  std::shared_ptr<std::mutex> loading;
  if (find_facts(image, capability, facts, &loading)) return Status();
  std::unique_lock<std::mutex> one_at_a_time;
  if (loading != nullptr) {
    one_at_a_time = std::unique_lock(*loading);
    if (find_facts(image, capability, facts, &loading)) return Status();
  }
  const cuda::Bytes code(image->data(), image->size() - 1);
  OPENMPS_RETURN_IF_ERROR(check_image_bounds(code));
  std::future<ImageFacts> aside;
  if (meanwhile != nullptr && !is_made(image) &&
      machine_code_bytes(code, capability) >= kReadAsideBytes) {
    try {
      aside = std::async(std::launch::async, read_image_facts, code, capability);
    } catch (const std::system_error&) {  // no thread to be had
    }
  }
  if (aside.valid()) meanwhile();
  *facts = aside.valid() ? aside.get() : read_image_facts(code, capability);
  const std::lock_guard lock(mutex_);
  if (Held* held = find_locked(image)) held->facts[capability] = *facts;
  return Status();
}

Status ImageStore::library(const std::shared_ptr<const ImageBytes>& image, const Load& load,
                           std::shared_ptr<LoadedLibrary>* library, Wanted how) {
  if (!shares_) return load(library);
  std::shared_ptr<std::mutex> loading;
  {
    const std::lock_guard lock(mutex_);
    Held* held = find_locked(image);
    if (held == nullptr) return load(library);  // not from intern()
    *library = held->library.lock();
    loading = held->loading;
  }
  if (*library != nullptr) return note_wanted(image, *library, how), Status();
  // The load itself without the store's lock: it may wait for the whole context.
  const std::lock_guard one_at_a_time(*loading);
  {
    const std::lock_guard lock(mutex_);
    if (Held* held = find_locked(image)) *library = held->library.lock();
    if (*library != nullptr) return Status();
  }
  OPENMPS_RETURN_IF_ERROR(load(library));
  {
    const std::lock_guard lock(mutex_);
    if (Held* held = find_locked(image)) held->library = *library;
  }
  note_wanted(image, *library, how);
  return Status();
}

// What goes goes without the lock: its last holder unloads it.
void ImageStore::note_wanted(const std::shared_ptr<const ImageBytes>& image,
                             const std::shared_ptr<LoadedLibrary>& library, Wanted how) {
  std::list<Kept> gone;
  std::list<Kept> wanted;
  wanted.push_back({image, library});
  const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  most_kept_bytes_ = bytes;
  if (bytes != 0) return;
  gone.swap(kept_);
  kept_by_.clear();
  kept_bytes_ = 0;
}

}  // namespace openmps::worker
