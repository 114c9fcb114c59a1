// SPDX-License-Identifier: Apache-2.0
// ELF sections and archive members. See host_object.h.
#include "softgpu/fatbin/host_object.h"

#include <ar.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "softgpu/fatbin/fatbin.h"

namespace openmps::softgpu::fatbin {
namespace {

using Bytes = std::string_view;
using Objects = std::vector<ObjectText>;

// Where nvcc puts fatbins: with relocatable device code (-rdc=true), and without.
constexpr Bytes kSections[] = {"__nv_relfatbin", ".nv_fatbin"};
constexpr size_t kSectionAlignment = 8;  // of containers

Status damaged(const std::string& name, const char* what) {
  return {CUDA_ERROR_INVALID_IMAGE, "error   : " + name + ": " + what};
}

// `count` bytes at `at`; empty: not all of them are there.
Bytes part(Bytes all, uint64_t at, uint64_t count) {
  return at <= all.size() && count <= all.size() - at ? all.substr(at, count) : Bytes();
}

template <typename T>
bool read(Bytes all, uint64_t at, T* value) {
  const Bytes bytes = part(all, at, sizeof(T));
  if (bytes.empty()) return false;
  std::memcpy(value, bytes.data(), sizeof(T));
  return true;
}

// All containers of a section, one behind the other.
Status read_containers(const std::string& name, Bytes section, uint32_t capability, Objects* out) {
  while (!section.empty()) {
    const size_t size = container_size(section.data(), section.size());
    if (size == 0) return damaged(name, "a damaged fatbin");
    if (!is_runtime_library(section.data(), size)) {
      const Result<std::vector<std::string>> texts = extract_ptx(section.data(), size, capability);
      if (!texts.ok())
        return {texts.status().code(), "error   : " + name + ": " + texts.status().message()};
      out->push_back({name, texts.value().front()});
    }
    const size_t step = (size + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
    section.remove_prefix(std::min(step, section.size()));
  }
  return {};
}

Status read_object(const std::string& name, Bytes file, uint32_t capability, Objects* out) {
  Elf64_Ehdr header;
  if (!read(file, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return damaged(name, "not an object");
  if (header.e_machine == EM_CUDA)
    return {CUDA_ERROR_NO_BINARY_FOR_GPU,
            "error   : " + name + ": machine code (a cubin) can't be linked on this device"};
  const auto section_at = [&](uint64_t index, Elf64_Shdr* section) {
    return read(file, header.e_shoff + index * sizeof(Elf64_Shdr), section);
  };
  Elf64_Shdr names;
  if (header.e_shoff > file.size() || header.e_shentsize != sizeof(Elf64_Shdr) ||
      !section_at(header.e_shstrndx, &names))
    return damaged(name, "no table of sections");
  const Bytes strings = part(file, names.sh_offset, names.sh_size);
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!section_at(i, &section)) return damaged(name, "a cut table of sections");
    const Bytes title = strings.substr(std::min<size_t>(section.sh_name, strings.size()));
    const Bytes called = title.substr(0, title.find('\0'));
    if (std::find(std::begin(kSections), std::end(kSections), called) == std::end(kSections))
      continue;
    const Bytes contents = part(file, section.sh_offset, section.sh_size);
    if (contents.empty()) return damaged(name, "a cut section");
    OPENMPS_RETURN_IF_ERROR(read_containers(name, contents, capability, out));
  }
  return {};
}

// The members of an archive; those that are no objects (its index, its table of names) have no name
// of their own, or are of no interest.
Status read_archive(const std::string& name, Bytes file, uint32_t capability, Objects* out) {
  uint64_t at = SARMAG;
  ar_hdr header;
  while (at < file.size()) {
    if (!read(file, at, &header) || std::memcmp(header.ar_fmag, ARFMAG, sizeof header.ar_fmag) != 0)
      return damaged(name, "a damaged archive");
    const std::string digits(header.ar_size, sizeof header.ar_size);
    const uint64_t size = strtoull(digits.c_str(), nullptr, 10);
    at += sizeof header;
    const Bytes member = part(file, at, size);
    if (member.size() != size) return damaged(name, "a cut archive");
    const Bytes padded(header.ar_name, sizeof header.ar_name);
    const std::string title(padded.substr(0, padded.find_first_of("/ ")));
    if (member.starts_with(ELFMAG))
      OPENMPS_RETURN_IF_ERROR(read_object(name + ":" + title, member, capability, out));
    at += size + size % 2;
  }
  return {};
}

}  // namespace

Result<std::vector<ObjectText>> extract_objects(const std::string& name, const void* data,
                                                size_t size, uint32_t compute_capability) {
  const Bytes file(static_cast<const char*>(data), size);
  Objects objects;
  OPENMPS_RETURN_IF_ERROR(file.starts_with(ARMAG)
                              ? read_archive(name, file, compute_capability, &objects)
                              : read_object(name, file, compute_capability, &objects));
  return objects;
}

}  // namespace openmps::softgpu::fatbin
