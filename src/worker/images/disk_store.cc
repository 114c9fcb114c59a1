// SPDX-License-Identifier: Apache-2.0
// See disk_store.h.
#include "worker/images/disk_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>

#include "base/text.h"

namespace openmps::worker {
namespace {

// The endings of the names of files.
constexpr const char* kImage = ".image";
constexpr const char* kKernels = ".kernels";
constexpr const char* kNew = ".new";
// A part of each key: changes with the form of the files.
constexpr const char* kForm = "2 ";
// The signature of the Cache Directory Tagging Specification, by which backups know a cache.
constexpr const char* kTag = "CACHEDIR.TAG";
constexpr std::string_view kTagText =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Code that programs use, kept by OpenMPS. All of it may be removed at any time.\n";

cuda::Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const unsigned char*>(text.data()), text.size()};
}

std::string name_of(uint64_t key, uint64_t hash, const char* ending) {
  return format_text("%016llx-%016llx%s", static_cast<unsigned long long>(key),
                     static_cast<unsigned long long>(hash), ending);
}

// The hash in a file's name. False: the store has no files of such names.
bool parse_name(const char* name, uint64_t* hash) {
  unsigned long long parts[2];
  char ending[9] = "";
  if (sscanf(name, "%16llx-%16llx%8s", &parts[0], &parts[1], ending) != 3) return false;
  *hash = parts[1];
  const auto is = [&](const char* one) { return name == name_of(parts[0], parts[1], one); };
  return is(kImage) || is(kKernels) || is(kNew);
}

Status system_error(const std::string& what) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, what + ": " + strerror(errno));
}

UniqueFd create(int directory, const char* name) {
  return UniqueFd(openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                         S_IRUSR | S_IWUSR));
}

// A file system writes and reads a regular file's bytes in one call, unless it is full, or the file
// ends.
bool write_all(int fd, cuda::Bytes bytes) {
  errno = ENOSPC;  // what a call that writes a part leaves as it is
  return write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

// A directory of this user, made if there is none. `at`: where a relative path begins. `forbidden`:
// rights that others may not have in it.
Result<UniqueFd> open_directory(int at, const char* path, mode_t forbidden) {
  if (mkdirat(at, path, S_IRWXU) != 0 && errno != EEXIST) return system_error("it can't be made");
  UniqueFd directory(openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!directory.valid() || fstat(directory.get(), &info) != 0) {
    return system_error("it can't be opened");
  }
  if (info.st_uid != geteuid()) {
    return Status(CUDA_ERROR_NOT_PERMITTED, format_text("it is user %u's", info.st_uid));
  }
  if ((info.st_mode & forbidden) != 0) {
    return Status(CUDA_ERROR_NOT_PERMITTED, "others may enter it");
  }
  return directory;
}

// The store's folder, with its tag.
Result<UniqueFd> open_folder(int outer) {
  Result<UniqueFd> folder = open_directory(outer, kStoreFolder, S_IRWXG | S_IRWXO);
  if (!folder.ok()) return folder;
  const UniqueFd tag = create(folder->get(), kTag);
  const bool made = tag.valid() ? write_all(tag.get(), bytes_of(kTagText)) : errno == EEXIST;
  if (!made) return system_error("it can't be written to");
  return folder;
}

}  // namespace

// Each step of libstdc++'s hash is a bijection, so two inputs of one length that differ in one word
// never have the same hash: damage of a single word on disk is always noticed. If it ever changes,
// what is stored is taken to be damaged, and stored again.
uint64_t hash_of(cuda::Bytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return std::hash<std::string_view>()(text);
}

Result<DiskStore> DiskStore::open(const std::string& place, const std::string& key, Say say,
                                  uint64_t most_bytes) {
  const Result<UniqueFd> outer = open_directory(AT_FDCWD, place.c_str(), 0);
  if (!outer.ok()) return outer.status();
  Result<UniqueFd> folder = open_folder(outer->get());
  if (!folder.ok()) {
    const Status& status = folder.status();
    return Status(status.code(), std::string(kStoreFolder) + " in it: " + status.message());
  }
  return DiskStore(std::move(folder).value(), hash_of(bytes_of(kForm + key)), std::move(say),
                   most_bytes);
}

std::string DiskStore::image_name(uint64_t hash) const { return name_of(key_, hash, kImage); }

std::string DiskStore::list_name(uint64_t hash) const { return name_of(key_, hash, kKernels); }

std::vector<DiskStore::File> DiskStore::files() const {
  std::vector<File> found;
  // A stream of entries has a position of its own, and closes its descriptor.
  const int again = openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(again < 0 ? nullptr : fdopendir(again),
                                                   closedir);
  if (stream == nullptr) return found;
  while (const dirent* entry = readdir(stream.get())) {
    struct stat info {};
    uint64_t hash = 0;
    if (!parse_name(entry->d_name, &hash)) continue;
    if (fstatat(directory_.get(), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) continue;
    found.push_back({entry->d_name,
                     {hash, static_cast<uint64_t>(info.st_size)},
                     info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec});
  }
  std::ranges::sort(found, std::ranges::greater(), [](const File& file) {
    return std::pair<int64_t, std::string_view>(file.used_ns, file.name);
  });
  return found;
}

std::vector<DiskStore::Entry> DiskStore::entries() const {
  std::vector<Entry> entries;
  for (const File& file : files()) {
    if (file.name == image_name(file.entry.hash)) entries.push_back(file.entry);
  }
  return entries;
}

// ---- Reading ------------------------------------------------------------------------------------

Status DiskStore::ignore(const std::string& name, const std::string& why, bool removes) {
  say_("Remembered code: " + name + " is ignored" + (removes ? " and removed" : "") + ": " + why);
  if (removes) unlinkat(directory_.get(), name.c_str(), 0);
  return Status(CUDA_ERROR_NOT_FOUND, why);
}

Status DiskStore::read_file(const std::string& name, uint64_t most,
                            std::vector<unsigned char>* bytes) {
  // Non-blocking: a path that is no regular file must not block the worker.
  const UniqueFd file(
      openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    if (errno == ENOENT) return Status(CUDA_ERROR_NOT_FOUND, "there is none");
    return ignore(name, strerror(errno), false);
  }
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    return ignore(name, "it is no file of this user", false);
  }
  if (static_cast<uint64_t>(info.st_size) > most) return ignore(name, "it is too large", true);
  bytes->resize(static_cast<size_t>(info.st_size));
  if (::read(file.get(), bytes->data(), bytes->size()) != info.st_size) {
    return ignore(name, "it can't be read", true);
  }
  return Status();
}

Status DiskStore::read(uint64_t hash, std::vector<unsigned char>* image, UsedKernels* kernels) {
  const std::string name = image_name(hash);
  OPENMPS_RETURN_IF_ERROR(read_file(name, kMostStoredImageBytes, image));
  if (hash_of(*image) != hash) return ignore(name, "it has changed", true);
  return read_kernels(hash, kernels);
}

// A name that is not the image's does no harm: the driver finds no such kernel.
Status DiskStore::read_kernels(uint64_t hash, UsedKernels* kernels) {
  std::vector<unsigned char> list;
  OPENMPS_RETURN_IF_ERROR(read_file(list_name(hash), kMostKernelListBytes, &list));
  std::istringstream lines(std::string(list.begin(), list.end()));
  kernels->clear();
  uint32_t devices = 0;
  for (std::string name; lines >> std::hex >> devices >> name;) (*kernels)[name] |= devices;
  return lines.eof() ? Status() : ignore(list_name(hash), "its list makes no sense", true);
}

bool DiskStore::has_image(uint64_t hash) const {
  return faccessat(directory_.get(), image_name(hash).c_str(), R_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// ---- Writing ------------------------------------------------------------------------------------

void DiskStore::touch(uint64_t hash) const {
  for (const std::string& name : {image_name(hash), list_name(hash)}) {
    static_cast<void>(utimensat(directory_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW));
  }
}

// Removes the files that were used longest ago. Those of other keys are of other drivers and
// devices of this machine; a new one is as old as that belongs to a worker that has ended.
void DiskStore::make_room(uint64_t bytes) {
  // With as many images there are as many lists.
  constexpr size_t kMostFiles = 2 * kMostStoredImages;
  size_t count = 1;
  for (const File& file : files()) {
    bytes += file.entry.bytes;
    if (bytes > most_bytes_ || ++count > kMostFiles) {
      unlinkat(directory_.get(), file.name.c_str(), 0);
    }
  }
}

Status DiskStore::write_file(const std::string& name, cuda::Bytes bytes) {
  OPENMPS_RETURN_IF_ERROR(broken_);
  if (bytes.size() > most_bytes_) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "it is larger than all that may be stored");
  }
  make_room(bytes.size());
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string temporary =
      name_of(static_cast<uint64_t>(getpid()), static_cast<uint64_t>(now), kNew);
  const UniqueFd file = create(directory_.get(), temporary.c_str());
  if (file.valid() && write_all(file.get(), bytes) &&
      renameat(directory_.get(), temporary.c_str(), directory_.get(), name.c_str()) == 0) {
    return Status();
  }
  broken_ = system_error("writing " + name);
  if (file.valid()) unlinkat(directory_.get(), temporary.c_str(), 0);
  say_("Code is not remembered: " + broken_.message());
  return broken_;
}

Status DiskStore::write_image(uint64_t hash, cuda::Bytes image) {
  if (image.size() > kMostStoredImageBytes) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "it is larger than any image may be");
  }
  return write_file(image_name(hash), image);
}

Status DiskStore::write_kernels(uint64_t hash, const UsedKernels& kernels) {
  std::string list;
  for (const auto& [name, devices] : kernels) {
    const std::string line = format_text("%x %s\n", devices, name.c_str());
    if (list.size() + line.size() > kMostKernelListBytes) break;
    list += line;
  }
  return write_file(list_name(hash), bytes_of(list));
}

}  // namespace openmps::worker
