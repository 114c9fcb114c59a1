// SPDX-License-Identifier: Apache-2.0
// The fatbin container: headers, entries, which entry fits, decompression. See fatbin.h.
#include "softgpu/fatbin/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "softgpu/ptx/device_calls.h"

namespace openmps::softgpu::fatbin {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kContainerMagic = 0xba55ed50;
constexpr uint16_t kKindPtx = 1;
constexpr uint64_t kFlagLz4 = 0x2000;
constexpr uint64_t kFlagZstd = 0x8000;
constexpr size_t kContainerHeaderBytes = 16;
constexpr size_t kEntryHeaderBytes = 64;
// Prelinked containers of one wrapper (-rdc): one per object file.
constexpr size_t kMaxPrelinked = 4096;

using Texts = Result<std::vector<std::string>>;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
  const void* extra;  // version 2: null-terminated array of prelinked containers
};
static_assert(sizeof(Wrapper) == 24);

template <class T>
T get(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct Candidate {
  uint32_t capability = 0;
  const uint8_t* payload = nullptr;
  size_t payload_bytes = 0;  // compressed
  size_t text_bytes = 0;     // decompressed; 0: not compressed
  uint64_t flags = 0;
};

Status damaged(const std::string& what) {
  return {CUDA_ERROR_INVALID_IMAGE, "damaged fatbin: " + what};
}

// Look through one container; `best` keeps the newest PTX that fits. `length`: its whole size.
Status scan(const uint8_t* data, size_t known, uint32_t capability, Candidate* best) {
  if (known < kContainerHeaderBytes) return damaged("no room for a header");
  if (get<uint32_t>(data) != kContainerMagic) return damaged("no container");
  const size_t header = get<uint16_t>(data + 6);
  const uint64_t body = get<uint64_t>(data + 8);
  if (header < kContainerHeaderBytes || body > kMaxContainerBytes || header + body > known)
    return damaged("container of " + std::to_string(body) + " bytes in " + std::to_string(known));
  const uint8_t* at = data + header;
  const uint8_t* end = at + body;
  while (at < end) {
    const auto left = static_cast<size_t>(end - at);
    if (left < kEntryHeaderBytes) {
      // Padding after the last entry is zeros.
      if (std::any_of(at, end, [](uint8_t b) { return b != 0; }))
        return damaged("cut entry header");
      break;
    }
    const uint32_t entry_header = get<uint32_t>(at + 4);
    const uint64_t padded = get<uint64_t>(at + 8);
    if (entry_header < kEntryHeaderBytes || entry_header > left || padded > left - entry_header)
      return damaged("entry of " + std::to_string(padded) + " bytes in " + std::to_string(left));
    if (get<uint16_t>(at) == kKindPtx) {
      Candidate found;
      found.capability = get<uint32_t>(at + 28);
      found.flags = get<uint64_t>(at + 40);
      found.payload = at + entry_header;
      found.payload_bytes = static_cast<size_t>(padded);
      if (found.flags & (kFlagLz4 | kFlagZstd)) {
        const uint32_t compressed = get<uint32_t>(at + 16);
        const uint64_t text = get<uint64_t>(at + 56);
        if (compressed > padded || text > kMaxTextBytes || text == 0)
          return damaged("compressed entry of " + std::to_string(compressed) + " bytes for " +
                         std::to_string(text));
        found.payload_bytes = compressed;
        found.text_bytes = static_cast<size_t>(text);
      } else if (padded > kMaxTextBytes) {
        return damaged("PTX of " + std::to_string(padded) + " bytes");
      }
      if (found.capability <= capability &&
          (!best->payload || found.capability >= best->capability))
        *best = found;
    }
    at += entry_header + padded;
  }
  return {};
}

Result<std::string> text_of(const Candidate& found) {
  const auto* payload = reinterpret_cast<const char*>(found.payload);
  if (found.text_bytes == 0) {
    const void* nul = std::memchr(payload, 0, found.payload_bytes);
    return std::string(payload, nul ? static_cast<size_t>(static_cast<const char*>(nul) - payload)
                                    : found.payload_bytes);
  }
  std::string text(found.text_bytes, '\0');
  if (found.flags & kFlagZstd) {
    const size_t n = ZSTD_decompress(text.data(), text.size(), payload, found.payload_bytes);
    if (ZSTD_isError(n)) return damaged(std::string("zstd: ") + ZSTD_getErrorName(n));
    text.resize(n);
  } else {
    const int n = LZ4_decompress_safe(payload, text.data(), static_cast<int>(found.payload_bytes),
                                      static_cast<int>(text.size()));
    if (n < 0) return damaged("LZ4");
    text.resize(static_cast<size_t>(n));
  }
  text.resize(std::min(text.size(), text.find('\0')));
  return text;
}

// The length of a container, as far as its header tells.
size_t container_bytes(const uint8_t* data, size_t known) {
  if (known != SIZE_MAX) return known;
  const uint64_t body = get<uint64_t>(data + 8);
  return body > kMaxContainerBytes ? 0 : get<uint16_t>(data + 6) + static_cast<size_t>(body);
}

// PTX for "sm_90a" or "sm_100f" runs on that very architecture only.
bool is_family_specific(const std::string& text, uint32_t capability) {
  const size_t at = text.find(".target");
  if (at == std::string::npos) return false;
  const size_t name = text.find("sm_", at);
  if (name == std::string::npos || name > at + 64) return false;
  size_t end = name + 3;
  uint32_t value = 0;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9' && value < 10000)
    value = 10 * value + static_cast<uint32_t>(text[end++] - '0');
  return end < text.size() && (text[end] == 'a' || text[end] == 'f') && value != capability;
}

Result<std::string> from_container(const uint8_t* data, size_t size, uint32_t capability) {
  // A family-specific entry turns up only after decompression: then the next older one is tried.
  for (uint32_t limit = capability;;) {
    Candidate best;
    OPENMPS_RETURN_IF_ERROR(scan(data, container_bytes(data, size), limit, &best));
    if (!best.payload)
      return Status(
          CUDA_ERROR_NO_BINARY_FOR_GPU,
          "no PTX for compute capability " + std::to_string(capability) + " in the fatbin");
    Result<std::string> text = text_of(best);
    if (!text.ok() || !is_family_specific(text.value(), capability)) return text;
    if (best.capability == 0)
      return Status(CUDA_ERROR_NO_BINARY_FOR_GPU, "only PTX for one architecture in the fatbin");
    limit = best.capability - 1;
  }
}

Texts one_text(Result<std::string> text) {
  if (!text.ok()) return text.status();
  return std::vector<std::string>{std::move(text.value())};
}

// A version 2 wrapper has what the device linker made, and a list of what it made it of. The former
// is machine code, unless somebody put PTX beside it.
Texts from_wrapper(const Wrapper& wrapper, uint32_t capability) {
  const auto* first = static_cast<const uint8_t*>(wrapper.data);
  const auto* const* prelinked = static_cast<const uint8_t* const*>(wrapper.extra);
  Result<std::string> whole =
      first ? from_container(first, SIZE_MAX, capability)
            : Result<std::string>(Status(CUDA_ERROR_NO_BINARY_FOR_GPU, "an empty fatbin wrapper"));
  const bool only_code = !whole.ok() && whole.status().code() == CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (wrapper.version != 2 || !prelinked || !only_code) return one_text(std::move(whole));
  std::vector<std::string> texts;
  for (size_t i = 0; i < kMaxPrelinked && prelinked[i]; ++i) {
    if (is_runtime_library(prelinked[i], SIZE_MAX)) continue;
    Result<std::string> text = from_container(prelinked[i], SIZE_MAX, capability);
    if (!text.ok()) return text.status();
    texts.push_back(std::move(text.value()));
  }
  if (texts.empty()) return whole.status();
  return texts;
}

}  // namespace

size_t container_size(const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  if (size < kContainerHeaderBytes || get<uint32_t>(bytes) != kContainerMagic) return 0;
  const size_t length = container_bytes(bytes, SIZE_MAX);
  return length <= size ? length : 0;
}

bool is_runtime_library(const void* container, size_t size) {
  const Result<std::string> text =
      from_container(static_cast<const uint8_t*>(container), size, UINT32_MAX);
  return text.ok() && ptx::is_device_runtime(*text);
}

Result<std::vector<std::string>> extract_ptx(const void* image, size_t size, uint32_t capability) {
  const auto* data = static_cast<const uint8_t*>(image);
  if (!data || size == 0) return Status(CUDA_ERROR_INVALID_IMAGE, "no image");
  // A text may be shorter than a magic number: its NUL ends the look.
  const bool is_longer = size >= 4 && std::memchr(data, 0, 4) == nullptr;
  const uint32_t magic = is_longer ? get<uint32_t>(data) : 0;
  if (magic == kWrapperMagic) {
    if (size < sizeof(Wrapper)) return damaged("cut wrapper");
    Wrapper wrapper;
    std::memcpy(&wrapper, data, sizeof wrapper);
    return from_wrapper(wrapper, capability);
  }
  if (magic == kContainerMagic) {
    if (size < kContainerHeaderBytes) return damaged("cut container header");
    return one_text(from_container(data, size, capability));
  }
  if (magic == 0x464c457f)  // "\x7f" "ELF"
    return Status(CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code (a cubin) can't run on this device");
  const size_t limit = std::min(size, kMaxTextBytes);
  const size_t length = strnlen(reinterpret_cast<const char*>(data), limit);
  if (length == kMaxTextBytes) return Status(CUDA_ERROR_INVALID_IMAGE, "PTX without an end");
  std::string text(reinterpret_cast<const char*>(data), length);
  if (text.find(".version") == std::string::npos)
    return Status(CUDA_ERROR_INVALID_IMAGE, "neither PTX nor a fatbin");
  return one_text(std::move(text));
}

}  // namespace openmps::softgpu::fatbin
