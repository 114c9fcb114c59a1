// SPDX-License-Identifier: Apache-2.0
// Arguments of loads and links. See image_arguments.h.
#include "softgpu/front/image_arguments.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"
#include "softgpu/front/front.h"

namespace openmps::softgpu {

Status read_jit_options(unsigned count, const CUjit_option* options, void** values, JitLogs* logs) {
  if (count > 0 && (options == nullptr || values == nullptr)) {
    return invalid_value("options without values");
  }
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER: logs->info = static_cast<char*>(values[i]); break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        logs->info_size = static_cast<unsigned>(reinterpret_cast<uintptr_t>(values[i]));
        logs->info_filled = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER: logs->error = static_cast<char*>(values[i]); break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        logs->error_size = static_cast<unsigned>(reinterpret_cast<uintptr_t>(values[i]));
        logs->error_filled = &values[i];
        break;
      default:
        if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS) {
          return invalid_value("an unknown JIT option");
        }
        break;  // about generated code: nothing to tune in an interpreter
    }
  }
  return Status();
}

void fill_log(char* buffer, size_t size, void** filled, const std::string& text) {
  size_t length = 0;
  if (buffer != nullptr && size > 0) {
    length = std::min(text.size(), size - 1);
    memcpy(buffer, text.data(), length);
    buffer[length] = '\0';
  }
  if (filled != nullptr) *filled = reinterpret_cast<void*>(length);
}

Result<std::vector<char>> read_image_file(const char* path) {
  UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file.valid() || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return Status(CUDA_ERROR_FILE_NOT_FOUND, std::string(path) + ": " + strerror(errno));
  }
  std::vector<char> contents(static_cast<size_t>(facts.st_size) + 1, '\0');
  size_t filled = 0;
  while (filled + 1 < contents.size()) {
    ssize_t got = read(file.get(), contents.data() + filled, contents.size() - 1 - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Status(CUDA_ERROR_FILE_NOT_FOUND, std::string("cannot read ") + path);
    filled += static_cast<size_t>(got);
  }
  return contents;
}

}  // namespace openmps::softgpu
