// SPDX-License-Identifier: Apache-2.0
// See disk_store.h.
#include "worker/images/disk_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace openmps::worker {
namespace {

constexpr uint32_t kMagic = 0x49504d4f;  // "OMPI"
constexpr uint32_t kVersion = 1;
constexpr const char* kEndings[] = {"", ".image", ".kernels"};  // by Kind
// Of a name "KEY-HASH": digits are small hexadecimal ones.
constexpr size_t kKeyDigits = 16;
constexpr size_t kHashDigits = 32;
// The signature of the Cache Directory Tagging Specification, by which backups know a cache.
constexpr const char* kTag = "CACHEDIR.TAG";
constexpr const char* kTagText =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Code that programs use, kept by OpenMPS. All of it may be removed at any time.\n";

// The header of each file, in this machine's byte order: the directory belongs to one user on one
// machine, or on several of one kind.
struct Header {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t kind = 0;
  uint32_t reserved = 0;
  uint64_t key = 0;
  ContentHash image;  // of the image's bytes, in both kinds of file
  ContentHash check;  // of the bytes behind the header
  uint64_t bytes = 0;
};
static_assert(sizeof(Header) == 64);

struct KernelHead {
  uint32_t devices = 0;
  uint32_t bytes = 0;
};

bool are_all(std::string_view text, std::string_view digits) {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

// The "KEY-HASH" of a file's name; "": the name is of another form.
std::string_view stem_of(std::string_view name) {
  const std::string_view stem = name.substr(0, name.find('.'));
  const std::string_view ending = name.substr(stem.size());
  constexpr std::string_view kHex = "0123456789abcdef";
  const bool is_one = (ending == kEndings[1] || ending == kEndings[2]) &&
                      stem.size() == kKeyDigits + 1 + kHashDigits && stem[kKeyDigits] == '-' &&
                      are_all(stem.substr(0, kKeyDigits), kHex) &&
                      are_all(stem.substr(kKeyDigits + 1), kHex);
  return is_one ? stem : "";
}

// The name of a file that is being written: ".PID-NUMBER.new".
std::string new_name(int pid, uint32_t number) { return format_text(".%d-%u.new", pid, number); }

bool is_new_name(const std::string& name) {
  int pid = 0;
  unsigned number = 0;
  return sscanf(name.c_str(), ".%9d-%9u.new", &pid, &number) == 2 && name == new_name(pid, number);
}

Status system_error(const std::string& what) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, what + ": " + strerror(errno));
}

// The file belongs to this user, and no other user may write to it.
Status check_owner(const struct stat& info) {
  if (info.st_uid != geteuid()) {
    return Status(CUDA_ERROR_NOT_PERMITTED, format_text("it is user %u's", info.st_uid));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status(CUDA_ERROR_NOT_PERMITTED, "others may write there");
  }
  return Status();
}

bool write_all(int fd, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t done = write(fd, at, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    bytes -= static_cast<size_t>(done);
  }
  return true;
}

bool read_all(int fd, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes != 0) {
    const ssize_t done = ::read(fd, at, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    bytes -= static_cast<size_t>(done);
  }
  return true;
}

std::vector<unsigned char> packed(const UsedKernels& kernels) {
  std::vector<unsigned char> bytes;
  for (const auto& [name, devices] : kernels) {
    const KernelHead head{devices, static_cast<uint32_t>(name.size())};
    if (bytes.size() + sizeof(head) + name.size() > kMostKernelListBytes) break;
    const auto* raw = reinterpret_cast<const unsigned char*>(&head);
    bytes.insert(bytes.end(), raw, raw + sizeof(head));
    bytes.insert(bytes.end(), name.begin(), name.end());
  }
  return bytes;
}

bool unpack(cuda::Bytes bytes, UsedKernels* kernels) {
  while (!bytes.empty()) {
    KernelHead head;
    if (bytes.size() < sizeof(head)) return false;
    memcpy(&head, bytes.data(), sizeof(head));
    bytes = bytes.subspan(sizeof(head));
    if (head.bytes == 0 || head.bytes > bytes.size()) return false;
    const auto* name = reinterpret_cast<const char*>(bytes.data());
    if (memchr(name, 0, head.bytes) != nullptr) return false;
    (*kernels)[std::string(name, head.bytes)] |= head.devices;
    bytes = bytes.subspan(head.bytes);
  }
  return true;
}

}  // namespace

// Each step is a bijection, so two inputs of one length that differ in one word never have the same
// hash: damage of a single word on disk is always noticed.
ContentHash hash_of(cuda::Bytes bytes) {
  using Wide = unsigned __int128;
  constexpr Wide kOdd = (Wide{0x9e3779b97f4a7c15} << 64) | 0xd1342543de82ef95;
  Wide state = (Wide{0x6a09e667f3bcc908} << 64) | bytes.size();
  const auto mix = [&state](uint64_t word) {
    state = (state ^ word) * kOdd;
    state ^= state >> 67;
  };
  for (; bytes.size() >= sizeof(uint64_t); bytes = bytes.subspan(sizeof(uint64_t))) {
    uint64_t word = 0;
    memcpy(&word, bytes.data(), sizeof(word));
    mix(word);
  }
  uint64_t last = 0;
  if (!bytes.empty()) memcpy(&last, bytes.data(), bytes.size());
  mix(last);
  mix(0);
  return {static_cast<uint64_t>(state), static_cast<uint64_t>(state >> 64)};
}

// ---- The directory ------------------------------------------------------------------------------

namespace {

// A directory of this user, made if there is none. `at`: where a relative path begins.
Result<UniqueFd> open_directory(int at, const char* path, struct stat* info) {
  if (mkdirat(at, path, S_IRWXU) != 0 && errno != EEXIST) return system_error("it can't be made");
  UniqueFd directory(openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return system_error("it can't be opened");
  if (fstat(directory.get(), info) != 0) return system_error("it can't be looked at");
  if (info->st_uid != geteuid()) {
    return Status(CUDA_ERROR_NOT_PERMITTED, format_text("it is user %u's", info->st_uid));
  }
  return directory;
}

// Its entries except "." and "..".
bool is_empty(int directory) {
  const int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(again < 0 ? nullptr : fdopendir(again),
                                                   closedir);
  if (stream == nullptr) return false;
  int entries = 0;
  while (readdir(stream.get()) != nullptr) ++entries;
  return entries == 2;
}

// Whether the folder is a store, or is empty and becomes one. Another worker may be making it at
// this moment.
Status make_sure_of_tag(int folder) {
  struct stat info {};
  const auto has_tag = [&] {
    return fstatat(folder, kTag, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
           info.st_uid == geteuid();
  };
  if (has_tag()) return Status();
  if (is_empty(folder)) {
    const UniqueFd tag(openat(folder, kTag, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                              S_IRUSR | S_IWUSR));
    if (!tag.valid() && errno != EEXIST) return system_error("it can't be written to");
    if (tag.valid() && !write_all(tag.get(), kTagText, strlen(kTagText))) {
      return system_error("it can't be written to");
    }
  }
  if (has_tag()) return Status();
  return Status(CUDA_ERROR_NOT_PERMITTED,
                format_text("it has files, and no %s: it is no store", kTag));
}

}  // namespace

Result<DiskStore> DiskStore::open(const std::string& place, const std::string& key, Say say,
                                  uint64_t most_bytes) {
  struct stat info {};
  Result<UniqueFd> outer = open_directory(AT_FDCWD, place.c_str(), &info);
  if (!outer.ok()) return outer.status();
  Result<UniqueFd> folder = open_directory(outer->get(), kStoreFolder, &info);
  Status status = folder.status();
  if (status.ok() && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    status = Status(CUDA_ERROR_NOT_PERMITTED, "others may enter it");
  }
  if (status.ok()) status = make_sure_of_tag(folder->get());
  if (!status.ok()) {
    return Status(status.code(), std::string(kStoreFolder) + " in it: " + status.message());
  }
  const std::string_view text = key;
  const ContentHash hashed =
      hash_of({reinterpret_cast<const unsigned char*>(text.data()), text.size()});
  return DiskStore(std::move(folder).value(), hashed.low, std::move(say), most_bytes);
}

std::string DiskStore::name_of(const ContentHash& hash, Kind kind) const {
  return format_text("%016llx-%016llx%016llx%s", static_cast<unsigned long long>(key_),
                     static_cast<unsigned long long>(hash.high),
                     static_cast<unsigned long long>(hash.low),
                     kEndings[static_cast<uint32_t>(kind)]);
}

// False: it is no file of this key.
bool DiskStore::parse(const std::string& name, ContentHash* hash, Kind* kind) const {
  unsigned long long parts[3];
  if (sscanf(name.c_str(), "%16llx-%16llx%16llx", &parts[0], &parts[1], &parts[2]) != 3) {
    return false;
  }
  hash->high = parts[1];
  hash->low = parts[2];
  for (const Kind one : {Kind::kImage, Kind::kKernels}) {
    *kind = one;
    if (name == name_of(*hash, one)) return true;
  }
  return false;
}

std::vector<DiskStore::File> DiskStore::files() {
  std::vector<File> found;
  // A stream of entries has a position of its own, and closes its descriptor.
  const int again = openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(again < 0 ? nullptr : fdopendir(again),
                                                   closedir);
  if (stream == nullptr) return found;
  while (const dirent* entry = readdir(stream.get())) {
    struct stat info {};
    if (stem_of(entry->d_name).empty() && !is_new_name(entry->d_name)) continue;
    if (fstatat(directory_.get(), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) continue;
    found.push_back({entry->d_name, static_cast<uint64_t>(info.st_size),
                     info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec});
  }
  return found;
}

std::vector<DiskStore::Entry> DiskStore::entries() {
  struct Used {
    Entry entry;
    int64_t ns;
  };
  std::vector<Used> all;
  for (const File& file : files()) {
    ContentHash hash;
    Kind kind{};
    if (parse(file.name, &hash, &kind) && kind == Kind::kImage) {
      all.push_back({{hash, file.bytes}, file.used_ns});
    }
  }
  std::sort(all.begin(), all.end(), [](const Used& a, const Used& b) {
    return std::pair(b.ns, a.entry.hash) < std::pair(a.ns, b.entry.hash);
  });
  std::vector<Entry> entries;
  entries.reserve(all.size());
  for (const Used& used : all) entries.push_back(used.entry);
  return entries;
}

// ---- Reading ------------------------------------------------------------------------------------

Status DiskStore::ignore(const std::string& name, const std::string& why, bool removes) {
  say_("Remembered code: " + name + " is ignored" + (removes ? " and removed" : "") + ": " + why);
  if (removes) unlinkat(directory_.get(), name.c_str(), 0);
  return Status(CUDA_ERROR_NOT_FOUND, why);
}

Status DiskStore::read_file(const ContentHash& hash, Kind kind, uint64_t most,
                            std::vector<unsigned char>* bytes) {
  const std::string name = name_of(hash, kind);
  // Non-blocking: a path that is no regular file must not block the worker.
  const UniqueFd file(
      openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) {
    if (errno == ENOENT) return Status(CUDA_ERROR_NOT_FOUND, "there is none");
    return ignore(name, strerror(errno), false);
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return ignore(name, strerror(errno), false);
  if (!S_ISREG(info.st_mode)) return ignore(name, "it is no file", false);
  if (Status status = check_owner(info); !status.ok()) {
    return ignore(name, status.message(), info.st_uid == geteuid());
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  Header header;
  if (size < sizeof(header) || !read_all(file.get(), &header, sizeof(header))) {
    return ignore(name, "it is cut off", true);
  }
  if (header.magic != kMagic || header.version != kVersion ||
      header.kind != static_cast<uint32_t>(kind) || header.key != key_ || header.image != hash) {
    return ignore(name, "it is not what its name says, or of another version", true);
  }
  if (header.bytes != size - sizeof(header) || header.bytes > most) {
    return ignore(name,
                  format_text("it has %llu bytes, and should have %llu",
                              static_cast<unsigned long long>(size - sizeof(header)),
                              static_cast<unsigned long long>(header.bytes)),
                  true);
  }
  if (kind == Kind::kImage && header.check != hash) {
    return ignore(name, "it has other bytes than its name says", true);
  }
  bytes->resize(header.bytes);
  if (!read_all(file.get(), bytes->data(), bytes->size())) {
    return ignore(name, "it is cut off", true);
  }
  if (hash_of(*bytes) != header.check) return ignore(name, "it has changed", true);
  return Status();
}

Status DiskStore::read(const ContentHash& hash, std::vector<unsigned char>* image,
                       UsedKernels* kernels) {
  OPENMPS_RETURN_IF_ERROR(read_file(hash, Kind::kImage, kMostStoredImageBytes, image));
  return read_kernels(hash, kernels);
}

Status DiskStore::read_kernels(const ContentHash& hash, UsedKernels* kernels) {
  std::vector<unsigned char> list;
  OPENMPS_RETURN_IF_ERROR(read_file(hash, Kind::kKernels, kMostKernelListBytes, &list));
  kernels->clear();
  if (unpack(list, kernels)) return Status();
  return ignore(name_of(hash, Kind::kKernels), "its list makes no sense", true);
}

bool DiskStore::has_image(const ContentHash& hash) {
  return faccessat(directory_.get(), name_of(hash, Kind::kImage).c_str(), R_OK,
                   AT_SYMLINK_NOFOLLOW) == 0;
}

// ---- Writing ------------------------------------------------------------------------------------

void DiskStore::touch(const ContentHash& hash) {
  static_cast<void>(utimensat(directory_.get(), name_of(hash, Kind::kImage).c_str(), nullptr,
                              AT_SYMLINK_NOFOLLOW));
}

void DiskStore::remove_abandoned() {
  const int64_t now = time(nullptr);
  for (const File& file : files()) {
    const int64_t age_s = now - file.used_ns / 1'000'000'000;
    if (is_new_name(file.name) && age_s > static_cast<int64_t>(kAbandonedFileS)) {
      unlinkat(directory_.get(), file.name.c_str(), 0);
    }
  }
}

// Removes the images that were used longest ago, with their lists. Files of other keys are of other
// drivers and devices of this machine.
void DiskStore::make_room(uint64_t bytes) {
  struct Stored {
    uint64_t bytes = 0;
    int64_t used_ns = 0;
    std::vector<std::string> names;
  };
  remove_abandoned();
  uint64_t total = bytes;
  std::map<std::string, Stored> stored;  // by name without the ending
  for (const File& file : files()) {
    const std::string_view stem = stem_of(file.name);
    if (stem.empty()) continue;
    Stored& one = stored[std::string(stem)];
    one.bytes += file.bytes;
    one.used_ns = std::max(one.used_ns, file.used_ns);
    one.names.push_back(file.name);
    total += file.bytes;
  }
  std::vector<const Stored*> oldest;
  for (const auto& [name, one] : stored) oldest.push_back(&one);
  std::stable_sort(oldest.begin(), oldest.end(),
                   [](const Stored* a, const Stored* b) { return a->used_ns < b->used_ns; });
  size_t left = oldest.size();
  for (const Stored* one : oldest) {
    if (total <= most_bytes_ && left < kMostStoredImages) return;
    for (const std::string& name : one->names) unlinkat(directory_.get(), name.c_str(), 0);
    total -= one->bytes;
    --left;
  }
}

Status DiskStore::write_file(const ContentHash& hash, Kind kind, cuda::Bytes bytes) {
  OPENMPS_RETURN_IF_ERROR(broken_);
  if (sizeof(Header) + bytes.size() > most_bytes_) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "it is larger than all that may be stored");
  }
  make_room(sizeof(Header) + bytes.size());
  Header header;
  header.kind = static_cast<uint32_t>(kind);
  header.key = key_;
  header.image = hash;
  header.check = hash_of(bytes);
  header.bytes = bytes.size();
  const std::string temporary = new_name(getpid(), ++written_);
  const std::string name = name_of(hash, kind);
  const UniqueFd file(openat(directory_.get(), temporary.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                             S_IRUSR | S_IWUSR));
  if (!file.valid()) return broken_ = system_error("creating " + temporary);
  if (write_all(file.get(), &header, sizeof(header)) &&
      write_all(file.get(), bytes.data(), bytes.size()) &&
      renameat(directory_.get(), temporary.c_str(), directory_.get(), name.c_str()) == 0) {
    return Status();
  }
  broken_ = system_error("writing " + name);
  unlinkat(directory_.get(), temporary.c_str(), 0);
  return broken_;
}

Status DiskStore::write_image(const ContentHash& hash, cuda::Bytes image) {
  if (image.size() > kMostStoredImageBytes) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "it is larger than any image may be");
  }
  return write_file(hash, Kind::kImage, image);
}

Status DiskStore::write_kernels(const ContentHash& hash, const UsedKernels& kernels) {
  return write_file(hash, Kind::kKernels, packed(kernels));
}

}  // namespace openmps::worker
