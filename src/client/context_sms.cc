// SPDX-License-Identifier: Apache-2.0
// See context_sms.h.
#include "client/context_sms.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace openmps::client {
namespace {

constexpr const char* kPercentage = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
constexpr const char* kByContext = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING";

// The environment that the program was started with, as the kernel keeps it: NAME=VALUE, each with
// its NUL. Empty: it can't be read.
std::string first_environment() {
  const UniqueFd file(open("/proc/self/environ", O_RDONLY | O_CLOEXEC));
  std::string all;
  char piece[4096];
  for (ssize_t got = 0; file.valid() && (got = read(file.get(), piece, sizeof(piece))) > 0;) {
    all.append(piece, static_cast<size_t>(got));
  }
  return all;
}

std::string first_value(const std::string& environment, std::string_view name) {
  for (size_t at = 0; at < environment.size();) {
    const std::string_view entry(environment.c_str() + at);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return std::string(entry.substr(name.size() + 1));
    }
    at += entry.size() + 1;
  }
  return "";
}

float number_of(const char* text) { return text == nullptr ? 0 : strtof(text, nullptr); }

}  // namespace

bool has_percentages_by_context() {
  const char* said = getenv(kByContext);
  return said != nullptr && *said != '\0' && strcmp(said, "0") != 0;
}

float percentage_of_program() {
  if (!has_percentages_by_context()) return number_of(getenv(kPercentage));
  return number_of(first_value(first_environment(), kPercentage).c_str());
}

uint32_t sms_of_new_context(const Devices& devices, uint32_t device, uint32_t wanted) {
  const cuda::SmSteps& steps = devices.steps(device);
  uint32_t sms = devices.sms(device);
  const uint32_t of_program = sms;
  if (wanted != 0) sms = std::min(sms, cuda::sms_of_wish(steps, wanted));
  const float percentage = has_percentages_by_context() ? number_of(getenv(kPercentage)) : 0;
  if (percentage > 0) sms = std::min(sms, cuda::sms_of_percentage(steps, percentage));
  return sms < of_program ? sms : 0;
}

}  // namespace openmps::client
