// SPDX-License-Identifier: Apache-2.0
// What travels of an image. See sent_image.h.
#include "client/sent_image.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace openmps::client {
namespace {

using cuda::Bytes;

// What the devices run of a container. Nothing: all of it travels.
std::optional<std::vector<Bytes>> entries_for(Bytes container,
                                              std::span<const uint32_t> capabilities) {
  std::vector<Bytes> kept;
  bool any_runs = false;
  bool any_stays = false;
  const Status read = cuda::for_each_entry(container, [&](const cuda::FatbinEntry& entry) {
    const uint16_t kind = entry.header.kind;
    const bool is_code = kind == cuda::kElfEntry || kind == cuda::kPtxEntry;
    const bool runs =
        is_code && std::any_of(capabilities.begin(), capabilities.end(), [&](uint32_t capability) {
          return cuda::may_run(entry.header, kind, capability);
        });
    any_runs |= runs;
    if (!runs && is_code) {
      any_stays = true;
      return Status();
    }
    kept.push_back(entry.whole);
    return Status();
  });
  if (!read.ok() || !any_runs || !any_stays) return std::nullopt;
  return kept;
}

}  // namespace

SentImage::SentImage(const Image& image, std::span<const uint32_t> capabilities) {
  const Bytes code(image.data, image.bytes);
  if (cuda::kind_of(code.data(), code.size()) == cuda::ImageKind::kContainer) {
    add_container(code, capabilities);
  } else {
    add(code);
  }
  if (image.add_nul) ++bytes_;
  for (const Bytes input : image.inputs) {
    bytes_ = Image::padded(bytes_);
    add_container(input, capabilities);
  }
  if (!image.inputs.empty()) bytes_ = Image::padded(bytes_);
}

void SentImage::add(Bytes bytes) {
  if (bytes.empty()) return;
  runs_.push_back({bytes_, bytes});
  bytes_ += bytes.size();
}

void SentImage::add_container(Bytes container, std::span<const uint32_t> capabilities) {
  const auto entries = capabilities.empty() ? std::nullopt : entries_for(container, capabilities);
  if (!entries) return add(container);
  cuda::ContainerHeader& header = headers_.emplace_back();
  memcpy(&header, container.data(), sizeof(header));
  header.body_bytes = 0;
  add({reinterpret_cast<const unsigned char*>(&header), sizeof(header)});
  add(container.subspan(sizeof(header), header.header_bytes - sizeof(header)));
  for (const Bytes entry : *entries) {
    add(entry);
    header.body_bytes += entry.size();
  }
}

void SentImage::copy(uint64_t offset, uint64_t count, unsigned char* target) const {
  const uint64_t end = offset + count;
  uint64_t at = offset;  // what has been written ends here
  const auto zeros_until = [&](uint64_t until) {
    memset(target + (at - offset), 0, until - at);
    at = until;
  };
  auto run = std::partition_point(runs_.begin(), runs_.end(), [offset](const Run& run) {
    return run.start + run.bytes.size() <= offset;
  });
  for (; run != runs_.end() && run->start < end; ++run) {
    if (run->start > at) zeros_until(run->start);
    const Bytes part = run->bytes.subspan(at - run->start);
    const uint64_t bytes = std::min<uint64_t>(part.size(), end - at);
    memcpy(target + (at - offset), part.data(), bytes);
    at += bytes;
  }
  if (at < end) zeros_until(end);
}

}  // namespace openmps::client
