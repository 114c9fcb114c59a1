// SPDX-License-Identifier: Apache-2.0
// Images and libraries that are held once. See image_store.h.
#include "worker/image_store.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

namespace openmps::worker {
namespace {

bool wants_sharing() {
  const char* wish = getenv("OPENMPS_SHARE_MODULES");
  return wish == nullptr || strcmp(wish, "0") != 0;
}

uint64_t hash_of(const ImageBytes& image) {
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  return std::hash<std::string_view>()(text);
}

}  // namespace

LoadedLibrary::~LoadedLibrary() {
  const uint32_t devices = loaded_.load(std::memory_order_relaxed);
  const auto unload = [&driver = driver_, handle = handle] {
    return driver.cuLibraryUnload(handle);
  };
  if (devices == 0) {  // nothing to wait for
    gate_.run_at_once(GatedCall::kLibraryUnload, unload);
    return;
  }
  const bool one = (devices & (devices - 1)) == 0;
  try {
    gate_.run_later(GatedCall::kLibraryUnload,
                    one ? static_cast<uint32_t>(__builtin_ctz(devices)) : ContextGate::kAllDevices,
                    unload);
  } catch (const std::bad_alloc&) {
    // It stays loaded until the worker is renewed: unloading it now could stop everybody.
  }
}

void LoadedLibrary::pristine(CUfunction kernel, int32_t (&attributes)[wire::kFunctionAttributes]) {
  Attributes seen;
  std::copy(std::begin(attributes), std::end(attributes), seen.begin());
  const std::lock_guard lock(mutex_);
  const Attributes& first = pristine_.try_emplace(kernel, seen).first->second;
  std::copy(first.begin(), first.end(), attributes);
}

int LoadedLibrary::grown(CUfunction kernel, uint32_t device, CUfunction_attribute attribute,
                         int value) {
  // Addresses have 48 bits at most, devices and attributes fewer than 256.
  const uint64_t key =
      reinterpret_cast<uint64_t>(kernel) << 16 ^ device << 8 ^ static_cast<uint64_t>(attribute);
  const std::lock_guard lock(mutex_);
  int& most = most_.try_emplace(key, value).first->second;
  most = std::max(most, value);
  return most;
}

ImageStore::ImageStore() : shares_(wants_sharing()) {}

ImageStore::Held* ImageStore::find_locked(const ImageBytes& image, uint64_t hash) {
  const auto [begin, end] = held_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const std::shared_ptr<const ImageBytes> known = it->second.image.lock();
    // The hash finds, the comparison decides.
    if (known != nullptr && *known == image) return &it->second;
  }
  return nullptr;
}

void ImageStore::sweep_locked() {
  std::erase_if(held_, [](const auto& entry) { return entry.second.image.expired(); });
}

std::shared_ptr<const ImageBytes> ImageStore::intern(ImageBytes image) {
  if (!shares_) return std::make_shared<const ImageBytes>(std::move(image));
  const uint64_t hash = hash_of(image);
  const std::lock_guard lock(mutex_);
  if (Held* held = find_locked(image, hash)) {
    if (auto known = held->image.lock()) return known;
  }
  sweep_locked();
  auto made = std::make_shared<const ImageBytes>(std::move(image));
  Held held;
  held.image = made;
  held_.emplace(hash, std::move(held));
  return made;
}

Status ImageStore::library(const std::shared_ptr<const ImageBytes>& image, const Load& load,
                           std::shared_ptr<LoadedLibrary>* library) {
  if (!shares_) return load(library);
  std::shared_ptr<std::mutex> loading;
  const uint64_t hash = hash_of(*image);
  {
    const std::lock_guard lock(mutex_);
    Held* held = find_locked(*image, hash);
    if (held == nullptr) return load(library);  // not from intern()
    *library = held->library.lock();
    if (*library != nullptr) return Status();
    loading = held->loading;
  }
  // The load itself without the store's lock: it may wait for the whole context.
  const std::lock_guard one_at_a_time(*loading);
  {
    const std::lock_guard lock(mutex_);
    if (Held* held = find_locked(*image, hash)) *library = held->library.lock();
    if (*library != nullptr) return Status();
  }
  OPENMPS_RETURN_IF_ERROR(load(library));
  const std::lock_guard lock(mutex_);
  if (Held* held = find_locked(*image, hash)) held->library = *library;
  return Status();
}

}  // namespace openmps::worker
