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
#include "cuda/jit_options.h"
#include "softgpu/front/front.h"

namespace openmps::softgpu {

namespace {

// The values that an H200 looks at, of options that say nothing to an interpreter.
Status check_value(CUjit_option option, const void* value) {
  const auto number = reinterpret_cast<uintptr_t>(value);
  const bool known = option == CU_JIT_TARGET       ? cuda::is_jit_target(number)
                     : option == CU_JIT_CACHE_MODE ? number <= CU_JIT_CACHE_OPTION_CA
                                                   : true;
  return known ? Status() : invalid_value("no such value of a JIT option");
}

// A log has a place and a size: both or none.
Status check_log(const char* buffer, size_t size, bool placed, bool sized) {
  const bool whole = placed == sized && (buffer != nullptr || size == 0);
  return whole ? Status() : invalid_value("a half of a log");
}

}  // namespace

Status read_jit_options(unsigned count, const CUjit_option* options, void** values, JitLogs* logs) {
  bool info_placed = false;
  bool error_placed = false;
  if (count > 0 && (options == nullptr || values == nullptr)) {
    return invalid_value("options without values");
  }
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        logs->info = static_cast<char*>(values[i]);
        info_placed = true;
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        logs->info_size = static_cast<unsigned>(reinterpret_cast<uintptr_t>(values[i]));
        logs->info_filled = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        logs->error = static_cast<char*>(values[i]);
        error_placed = true;
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        logs->error_size = static_cast<unsigned>(reinterpret_cast<uintptr_t>(values[i]));
        logs->error_filled = &values[i];
        break;
      default:
        if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS) {
          return invalid_value("an unknown JIT option");
        }
        OPENMPS_RETURN_IF_ERROR(check_value(options[i], values[i]));
        break;  // about generated code: nothing to tune in an interpreter
    }
  }
  OPENMPS_RETURN_IF_ERROR(
      check_log(logs->info, logs->info_size, info_placed, logs->info_filled != nullptr));
  return check_log(logs->error, logs->error_size, error_placed, logs->error_filled != nullptr);
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
  if (!file.valid() || fstat(file.get(), &facts) != 0 || S_ISDIR(facts.st_mode)) {
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
