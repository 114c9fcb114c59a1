// SPDX-License-Identifier: Apache-2.0
// What travels of an image. See sent_image.h.
#include "client/sent_image.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/program_switches.h"

namespace openmps::client {
namespace {

using cuda::Bytes;

// 10 * major + minor of each.
using Capabilities = std::span<const uint32_t>;

bool is_code(const cuda::FatbinEntry& entry) {
  return entry.header.kind == cuda::kElfEntry || entry.header.kind == cuda::kPtxEntry;
}

bool runs_on(const cuda::FatbinEntry& entry, uint32_t capability) {
  return is_code(entry) && cuda::may_run(entry.header, entry.header.kind, capability);
}

// What the devices run of a container. Nothing: all of it travels.
std::optional<std::vector<Bytes>> entries_for(Bytes container, Capabilities capabilities,
                                              bool forces_ptx) {
  std::vector<Bytes> kept;
  bool any_runs = false;
  bool any_stays = false;
  const Status read = cuda::for_each_entry(container, [&](const cuda::FatbinEntry& entry) {
    const bool is_taken = !forces_ptx || entry.header.kind == cuda::kPtxEntry;
    const bool runs = is_taken && std::any_of(capabilities.begin(), capabilities.end(),
                                              [&](uint32_t one) { return runs_on(entry, one); });
    any_runs |= runs;
    if (runs || !is_code(entry)) {
      kept.push_back(entry.whole);
    } else {
      any_stays = true;
    }
    return Status();
  });
  if (!read.ok() || !any_runs || !any_stays) return std::nullopt;
  return kept;
}

// Each device runs some of a container.
bool runs_on_all(Bytes container, Capabilities capabilities) {
  return std::all_of(capabilities.begin(), capabilities.end(), [&](uint32_t one) {
    bool runs = false;
    const Status read = cuda::for_each_entry(container, [&](const cuda::FatbinEntry& entry) {
      runs |= runs_on(entry, one);
      return Status();
    });
    return read.ok() && runs;
  });
}

}  // namespace

CUresult check_code_of(const Image& image, Capabilities capabilities) {
  const JitSwitches switches = jit_switches();
  if (!switches.any()) return CUDA_SUCCESS;
  const Bytes code(image.data, image.bytes);
  switch (cuda::kind_of(code.data(), code.size())) {
    case cuda::ImageKind::kElf: return CUDA_SUCCESS;
    case cuda::ImageKind::kContainer: break;
    default: return check_code(switches, false, true);
  }
  bool has_machine_code = false;
  bool has_ptx = false;
  const auto look = [&](const cuda::FatbinEntry& entry) {
    const bool runs = std::any_of(capabilities.begin(), capabilities.end(),
                                  [&](uint32_t one) { return runs_on(entry, one); });
    has_machine_code |= runs && entry.header.kind == cuda::kElfEntry;
    has_ptx |= runs && entry.header.kind == cuda::kPtxEntry;
    return Status();
  };
  // What can't be read is the driver's to refuse.
  if (!cuda::for_each_entry(code, look).ok()) return CUDA_SUCCESS;
  for (const Bytes input : image.inputs) {
    if (!cuda::for_each_entry(input, look).ok()) return CUDA_SUCCESS;
  }
  return check_code(switches, has_machine_code, has_ptx);
}

SentImage::SentImage(const Image& image, Capabilities capabilities, bool forces_ptx) {
  const Bytes code(image.data, image.bytes);
  if (cuda::kind_of(code.data(), code.size()) != cuda::ImageKind::kContainer) {
    add(code);
    if (image.add_nul) ++bytes_;
    return;
  }
  if (!image.inputs.empty() && !runs_on_all(code, capabilities)) capabilities = {};
  add_container(code, capabilities, forces_ptx && image.inputs.empty());
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

void SentImage::add_container(Bytes container, Capabilities capabilities, bool forces_ptx) {
  const auto entries =
      capabilities.empty() ? std::nullopt : entries_for(container, capabilities, forces_ptx);
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
