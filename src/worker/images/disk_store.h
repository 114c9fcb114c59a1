// SPDX-License-Identifier: Apache-2.0
// Images on disk, by content, each with the kernels of it that programs have used (decision 22):
// the files, and what is believed of them. Knows nothing of the driver. A store belongs to one
// user; any number of workers use it at once, each on one thread. It is a folder that it has made
// in the place that somebody names, which may have that user's own files, too:
//
//   CACHEDIR.TAG       that this is one; backups leave out what is beside it
//   KEY-HASH.image     header, the bytes of the image
//   KEY-HASH.kernels   header, for each kernel: devices (a bit each), length, name
//   .PID-NUMBER.new    a file that is being written
//
// Files of other names are nobody's business here, whatever they are.
//
// KEY stands for driver and devices, HASH for the bytes. A file gets its name when it is whole. The
// time of an image's last change says when it was last used.
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

// All files of a user's together: twice what a worker keeps loaded (kKeptImageBytes).
inline constexpr uint64_t kStoredBytes = 1024 * wire::kMiB;
// Of one image: cuBLAS has 100 MiB, and one that is larger takes most of what there is.
inline constexpr uint64_t kMostStoredImageBytes = 256 * wire::kMiB;
// Names of some thousand kernels; C++ makes long ones.
inline constexpr uint64_t kMostKernelListBytes = 4 * wire::kMiB;
inline constexpr size_t kMostStoredImages = 4096;
// Who writes for longer has died.
inline constexpr uint64_t kAbandonedFileS = 3600;

// What an image is found by. Not secret and not safe against who wants two images to be alike: the
// bytes are compared where it matters (ImageStore).
struct ContentHash {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const ContentHash&) const = default;
};
[[nodiscard]] ContentHash hash_of(cuda::Bytes bytes);

// Names of kernels, with the devices that they were used on, a bit each.
using UsedKernels = std::map<std::string, uint32_t>;

class DiskStore {
 public:
  // `place`: a directory of this user's, made if it is not there; its parent is. One that is there
  // stays as it is, but for the store's folder in it. `key`: text that is another one wherever what
  // is remembered would be of no use. Errors: CUDA_ERROR_NOT_PERMITTED (another user's, or a folder
  // of that name that is no store or that others may enter), CUDA_ERROR_OPERATING_SYSTEM, each with
  // the reason.
  // `say` gets the lines for the log.
  using Say = std::function<void(const std::string&)>;
  static Result<DiskStore> open(const std::string& place, const std::string& key, Say say,
                                uint64_t most_bytes = kStoredBytes);

  // The images of this key, the last used first, with the bytes of their files.
  struct Entry {
    ContentHash hash;
    uint64_t bytes = 0;
  };
  [[nodiscard]] std::vector<Entry> entries();

  // What was stored. CUDA_ERROR_NOT_FOUND: there is none. What is not whole or not what was stored
  // is ignored, with a line in the log, and removed; what is another user's is ignored.
  Status read(const ContentHash& hash, std::vector<unsigned char>* image, UsedKernels* kernels);

  // Older images go first where there is no room. After an error nothing is written any more.
  Status write_image(const ContentHash& hash, cuda::Bytes image);
  Status write_kernels(const ContentHash& hash, const UsedKernels& kernels);
  [[nodiscard]] bool has_image(const ContentHash& hash);
  // Errors as read().
  Status read_kernels(const ContentHash& hash, UsedKernels* kernels);
  // It is used now.
  void touch(const ContentHash& hash);

 private:
  enum class Kind : uint32_t { kImage = 1, kKernels = 2 };
  struct File {
    std::string name;
    uint64_t bytes = 0;
    int64_t used_ns = 0;  // by the system's clock
  };
  DiskStore(UniqueFd directory, uint64_t key, Say say, uint64_t most_bytes)
      : directory_(std::move(directory)),
        key_(key),
        say_(std::move(say)),
        most_bytes_(most_bytes) {}

  [[nodiscard]] std::string name_of(const ContentHash& hash, Kind kind) const;
  bool parse(const std::string& name, ContentHash* hash, Kind* kind) const;
  // Those of this store, of whichever key; of other names and other users none.
  std::vector<File> files();
  void remove_abandoned();
  Status read_file(const ContentHash& hash, Kind kind, uint64_t most,
                   std::vector<unsigned char>* bytes);
  Status ignore(const std::string& name, const std::string& why, bool removes);
  Status write_file(const ContentHash& hash, Kind kind, cuda::Bytes bytes);
  void make_room(uint64_t bytes);

  UniqueFd directory_;
  uint64_t key_;
  Say say_;
  uint64_t most_bytes_;
  uint32_t written_ = 0;
  Status broken_;
};

}  // namespace openmps::worker
