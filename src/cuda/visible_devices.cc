// SPDX-License-Identifier: Apache-2.0
// See visible_devices.h. Seen on an H200 (driver 580): see the cases of visible_devices_test.cc.
#include "cuda/visible_devices.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

namespace openmps::cuda {
namespace {

bool is_prefix_without_case(std::string_view beginning, std::string_view whole) {
  const auto same = [](char a, char b) {
    return tolower(static_cast<unsigned char>(a)) == tolower(static_cast<unsigned char>(b));
  };
  return beginning.size() <= whole.size() &&
         std::equal(beginning.begin(), beginning.end(), whole.begin(), same);
}

// The only device whose UUID begins so.
std::optional<uint32_t> by_uuid(std::string_view beginning, std::span<const std::string> uuids) {
  std::optional<uint32_t> found;
  for (uint32_t device = 0; device < uuids.size(); ++device) {
    if (!is_prefix_without_case(beginning, uuids[device])) continue;
    if (found) return std::nullopt;
    found = device;
  }
  return found;
}

// The device whose number the entry begins with. strtol() takes white space and a sign before it,
// and stops at the entry's end, since a comma is no digit.
std::optional<uint32_t> by_number(const char* entry, size_t devices) {
  char* end = nullptr;
  const long number = strtol(entry, &end, 10);
  if (end == entry || number < 0 || static_cast<unsigned long>(number) >= devices) {
    return std::nullopt;
  }
  return static_cast<uint32_t>(number);
}

std::optional<uint32_t> named_device(const char* entry, std::span<const std::string> uuids) {
  const std::string_view text(entry, strcspn(entry, ","));
  if (text.starts_with("GPU-") || text.starts_with("MIG-")) return by_uuid(text, uuids);
  return by_number(entry, uuids.size());
}

}  // namespace

std::string uuid_text(std::span<const unsigned char, 16> uuid, std::string_view device_name) {
  constexpr char kDigits[] = "0123456789abcdef";
  constexpr std::string_view kMigInName = " MIG ";
  std::string text = device_name.find(kMigInName) == std::string_view::npos ? "GPU" : "MIG";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 0xf];
  }
  return text;
}

Result<std::vector<uint32_t>> visible_devices(const char* text,
                                              std::span<const std::string> uuids) {
  std::vector<uint32_t> visible;
  if (text == nullptr) {
    for (uint32_t device = 0; device < uuids.size(); ++device) visible.push_back(device);
  }
  for (const char* entry = text; entry != nullptr;) {
    const std::optional<uint32_t> device = named_device(entry, uuids);
    if (!device) break;
    if (std::find(visible.begin(), visible.end(), *device) != visible.end()) {
      return Status(CUDA_ERROR_INVALID_DEVICE,
                    "CUDA_VISIBLE_DEVICES=" + std::string(text) + " names a device twice");
    }
    visible.push_back(*device);
    entry = strchr(entry, ',');
    if (entry != nullptr) ++entry;
  }
  if (visible.empty()) {
    return Status(CUDA_ERROR_NO_DEVICE,
                  text == nullptr
                      ? std::string("there is no device")
                      : "CUDA_VISIBLE_DEVICES=" + std::string(text) + " leaves no device");
  }
  return visible;
}

}  // namespace openmps::cuda
