// SPDX-License-Identifier: Apache-2.0
// See context_sms.h.
#include "client/context_sms.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/environment.h"

namespace openmps::client {
namespace {

constexpr const char* kPercentage = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
constexpr const char* kByContext = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING";

float number_of(const char* text) { return text == nullptr ? 0 : strtof(text, nullptr); }

}  // namespace

bool has_percentages_by_context() {
  const char* said = environment_variable(kByContext);
  return said != nullptr && *said != '\0' && strcmp(said, "0") != 0;
}

float percentage_of_program() {
  if (!has_percentages_by_context()) return number_of(environment_variable(kPercentage));
  return number_of(environment_at_start(kPercentage).c_str());
}

uint32_t sms_of_new_context(const Devices& devices, uint32_t device, uint32_t wanted) {
  const cuda::SmSteps& steps = devices.steps(device);
  uint32_t sms = devices.sms(device);
  const uint32_t of_program = sms;
  if (wanted != 0) sms = std::min(sms, cuda::sms_of_wish(steps, wanted));
  const float percentage =
      has_percentages_by_context() ? number_of(environment_variable(kPercentage)) : 0;
  if (percentage > 0) sms = std::min(sms, cuda::sms_of_percentage(steps, percentage));
  return sms < of_program ? sms : 0;
}

}  // namespace openmps::client
