// SPDX-License-Identifier: Apache-2.0
// Files that processes share. See shared_file.h.
#include "softgpu/device/machine/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace openmps::softgpu {
namespace {

constexpr char kName[] = "softgpu-shared-";

// The description of a file with that key, as memfd_create takes it.
std::string name_of(const ShareKey& key) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = kName;
  for (const unsigned char byte : key) {
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

// What /proc says about a descriptor of this process: "/memfd:NAME (deleted)".
std::string description_of(int descriptor) {
  char text[256];
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(path.c_str(), text, sizeof text);
  const std::string whole(text, length > 0 ? static_cast<size_t>(length) : 0);
  constexpr std::string_view kBefore = "/memfd:";
  constexpr std::string_view kAfter = " (deleted)";
  if (!whole.starts_with(kBefore) || !whole.ends_with(kAfter)) return {};
  return whole.substr(kBefore.size(), whole.size() - kBefore.size() - kAfter.size());
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

uint64_t round_to_pages(uint64_t bytes) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::shared_ptr<const SharedFile> make_shared_file(uint64_t bytes) {
  auto made = std::make_shared<SharedFile>();
  if (getrandom(made->key.data(), made->key.size(), 0) != static_cast<ssize_t>(made->key.size())) {
    return nullptr;
  }
  made->file.reset(memfd_create(name_of(made->key).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made->file.valid() ||
      ftruncate(made->file.get(), static_cast<off_t>(round_to_pages(bytes))) != 0) {
    return nullptr;
  }
  // A peer that shrank the file would take every process that maps it down with SIGBUS.
  fcntl(made->file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return made;
}

bool shared_file_key(int descriptor, ShareKey* key) {
  const std::string name = description_of(descriptor);
  constexpr size_t kDigitsAt = sizeof kName - 1;
  if (!name.starts_with(kName) || name.size() != kDigitsAt + 2 * key->size()) return false;
  for (size_t i = 0; i < key->size(); ++i) {
    const int high = digit_of(name[kDigitsAt + 2 * i]);
    const int low = digit_of(name[kDigitsAt + 2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*key)[i] = static_cast<unsigned char>(high << 4 | low);
  }
  return true;
}

Result<UniqueFd> open_shared_file(pid_t owner, int descriptor, const ShareKey& key,
                                  uint64_t bytes) {
  const std::string path = "/proc/" + std::to_string(owner) + "/fd/" + std::to_string(descriptor);
  UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  ShareKey found{};
  struct stat facts {};
  const bool same = file.valid() && shared_file_key(file.get(), &found) && found == key;
  const int seals = same ? fcntl(file.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file.get(), &facts) != 0 ||
      static_cast<uint64_t>(facts.st_size) < round_to_pages(bytes)) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "what the handle names is not there");
  }
  return file;
}

}  // namespace openmps::softgpu
