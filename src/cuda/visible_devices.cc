// SPDX-License-Identifier: Apache-2.0
// See visible_devices.h. The rules are what driver 580 did on an H200 with some 60 values, which
// are in the tests.
#include "cuda/visible_devices.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace openmps::cuda {
namespace {

constexpr size_t kKindLength = 4;   // "GPU-" or "MIG-"
constexpr size_t kUuidDigits = 32;  // of its 16 bytes

bool names_uuid(std::string_view text) {
  return text.starts_with("GPU-") || text.starts_with("MIG-");
}

// The kind, and the hexadecimal digits behind it, in lower case: up to the first character that is
// none, and 32 at most. Dashes may be anywhere.
std::string digits_of(std::string_view uuid) {
  std::string digits(uuid.substr(0, kKindLength));
  for (const char character : uuid.substr(kKindLength)) {
    if (character == '-') continue;
    if (isxdigit(static_cast<unsigned char>(character)) == 0) break;
    if (digits.size() == kKindLength + kUuidDigits) break;
    digits += static_cast<char>(tolower(static_cast<unsigned char>(character)));
  }
  return digits;
}

// The only device whose UUID begins so.
std::optional<uint32_t> by_uuid(std::string_view entry, std::span<const std::string> uuids) {
  if (!names_uuid(entry)) return std::nullopt;
  const std::string beginning = digits_of(entry);
  if (beginning.size() == kKindLength) return std::nullopt;
  std::optional<uint32_t> found;
  for (uint32_t device = 0; device < uuids.size(); ++device) {
    if (!digits_of(uuids[device]).starts_with(beginning)) continue;
    if (found) return std::nullopt;
    found = device;
  }
  return found;
}

// The device whose number the entry begins with, white space and a sign before it taken as well.
// The number's lowest 32 bits count.
std::optional<uint32_t> by_number(const char* entry, size_t devices) {
  char* end = nullptr;
  const auto number = static_cast<int32_t>(strtol(entry, &end, 10));
  if (end == entry || number < 0 || static_cast<size_t>(number) >= devices) return std::nullopt;
  return static_cast<uint32_t>(number);
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
  const bool of_uuids = text != nullptr && names_uuid(text);
  if (text == nullptr) {
    for (uint32_t device = 0; device < uuids.size(); ++device) visible.push_back(device);
  }
  for (const char* entry = text; entry != nullptr;) {
    // White space is skipped before a number, so an entry of it alone would be the next one's.
    const std::string own(entry, strcspn(entry, ","));
    const std::optional<uint32_t> device =
        of_uuids ? by_uuid(own, uuids) : by_number(own.c_str(), uuids.size());
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
