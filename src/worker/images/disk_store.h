// SPDX-License-Identifier: Apache-2.0
// Images on disk, by content, each with its kernels that programs have used (decision 22): the
// files, and the checks of what is read from them. Does not know the driver. A store belongs to one
// user; any number of workers use it at once, each on one thread. It is a folder that the store
// makes in a given directory, which may hold other files of the user:
//
//   CACHEDIR.TAG       marks the folder as a cache, which backups leave out
//   KEY-HASH.image     the bytes of the image
//   KEY-HASH.kernels   a line for each kernel: devices (a bit each, hexadecimal), name
//   PID-TIME.new       a file that is being written
//
// Files of other names are ignored. KEY stands for driver and devices, HASH for the bytes. A file
// gets its name when it is complete. The time of a file's last change is that of its last use.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/fatbin.h"
#include "cuda/status.h"
#include "wire/layout.h"

namespace openmps::worker {

inline constexpr const char* kStoreFolder = "openmps-code";

// All files of one user together: twice what a worker keeps loaded (kKeptImageBytes).
inline constexpr uint64_t kStoredBytes = 1024 * wire::kMiB;
// Of one image: cuBLAS has 100 MiB, and a larger image would take most of the store.
inline constexpr uint64_t kMostStoredImageBytes = 256 * wire::kMiB;
// Names of some thousand kernels; names of C++ functions are long.
inline constexpr uint64_t kMostKernelListBytes = 4 * wire::kMiB;
inline constexpr size_t kMostStoredImages = 4096;

// The hash by which an image is found. Not secret, and no protection against a user who constructs
// two images of one hash: bytes are compared where that matters (ImageStore).
[[nodiscard]] uint64_t hash_of(cuda::Bytes bytes);

// Names of kernels, with the devices on which they were used, a bit each.
using UsedKernels = std::map<std::string, uint32_t>;

class DiskStore {
 public:
  // `place`: a directory of this user, made if it is not there; its parent exists. An existing
  // directory is not changed, except for the store's folder in it. `key`: differs wherever the
  // entries would be useless (another driver, other devices). Errors: CUDA_ERROR_NOT_PERMITTED (the
  // directory is another user's, or a folder of the store's name is no store or others may enter
  // it), CUDA_ERROR_OPERATING_SYSTEM, each with the reason. `say` gets the lines for the log.
  using Say = std::function<void(const std::string&)>;
  static Result<DiskStore> open(const std::string& place, const std::string& key, Say say,
                                uint64_t most_bytes = kStoredBytes);

  // The images of this key, the last used first, with the sizes of their files.
  struct Entry {
    uint64_t hash = 0;
    uint64_t bytes = 0;
  };
  [[nodiscard]] std::vector<Entry> entries() const;

  // Read an entry. CUDA_ERROR_NOT_FOUND: there is none. A file whose bytes are not those of its
  // name is ignored, with a line in the log, and removed; another user's is ignored.
  Status read(uint64_t hash, std::vector<unsigned char>* image, UsedKernels* kernels);

  // Write an entry. What was used longest ago is removed if the store is full. After an error, of
  // which the log has a line, nothing is written any more.
  Status write_image(uint64_t hash, cuda::Bytes image);
  Status write_kernels(uint64_t hash, const UsedKernels& kernels);
  [[nodiscard]] bool has_image(uint64_t hash) const;
  // Errors as read().
  Status read_kernels(uint64_t hash, UsedKernels* kernels);
  // The image is used now.
  void touch(uint64_t hash) const;

 private:
  struct File {
    std::string name;
    Entry entry;
    int64_t used_ns = 0;  // by the system's clock
  };
  DiskStore(UniqueFd directory, uint64_t key, Say say, uint64_t most_bytes)
      : directory_(std::move(directory)),
        key_(key),
        say_(std::move(say)),
        most_bytes_(most_bytes) {}

  [[nodiscard]] std::string image_name(uint64_t hash) const;
  [[nodiscard]] std::string list_name(uint64_t hash) const;
  // The files of the store, of any key, the last used first; none of other names or users.
  [[nodiscard]] std::vector<File> files() const;
  Status read_file(const std::string& name, uint64_t most, std::vector<unsigned char>* bytes);
  Status ignore(const std::string& name, const std::string& why, bool removes);
  Status write_file(const std::string& name, cuda::Bytes bytes);
  void make_room(uint64_t bytes);

  UniqueFd directory_;
  uint64_t key_;
  Say say_;
  uint64_t most_bytes_;
  Status broken_;
};

}  // namespace openmps::worker
