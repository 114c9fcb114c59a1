// SPDX-License-Identifier: Apache-2.0
// ELF sections and archive members. See host_object.h.
#include "softgpu/fatbin/host_object.h"

#include <ar.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cuda/elf.h"
#include "softgpu/fatbin/fatbin.h"

namespace openmps::softgpu::fatbin {
namespace {

using cuda::Bytes;
using Objects = std::vector<ObjectText>;

// Where nvcc puts fatbins: with relocatable device code (-rdc=true), and without.
constexpr std::string_view kSections[] = {"__nv_relfatbin", ".nv_fatbin"};
constexpr size_t kSectionAlignment = 8;  // of containers

Status damaged(const std::string& name, const std::string& what) {
  return {CUDA_ERROR_INVALID_IMAGE, "error   : " + name + ": " + what};
}

bool begins_with(Bytes file, std::string_view magic) {
  return file.size() >= magic.size() && memcmp(file.data(), magic.data(), magic.size()) == 0;
}

// All containers of a section, one behind the other.
Status read_containers(const std::string& name, Bytes section, uint32_t capability, Objects* out) {
  while (!section.empty()) {
    const Result<Bytes> container = cuda::front_container(section);
    if (!container.ok()) return damaged(name, container.status().message());
    if (!is_runtime_library(*container)) {
      const Result<std::vector<std::string>> texts =
          extract_ptx(container->data(), container->size(), capability);
      if (!texts.ok()) {
        return {texts.status().code(), "error   : " + name + ": " + texts.status().message()};
      }
      out->push_back({name, texts.value().front()});
    }
    const size_t step =
        (container->size() + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
    section = section.subspan(std::min(step, section.size()));
  }
  return {};
}

Status read_object(const std::string& name, Bytes file, uint32_t capability, Objects* out) {
  const Result<Elf64_Ehdr> header = cuda::read_elf_header(file);
  if (!header.ok() || !begins_with(file, ELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_ident[EI_DATA] != ELFDATA2LSB) {
    return damaged(name, "not an object");
  }
  if (header->e_machine == EM_CUDA) {
    return {CUDA_ERROR_NO_BINARY_FOR_GPU,
            "error   : " + name + ": machine code (a cubin) can't be linked on this device"};
  }
  const Result<std::vector<cuda::ElfSection>> sections = cuda::read_named_sections(file);
  if (!sections.ok()) return damaged(name, sections.status().message());
  for (const cuda::ElfSection& section : *sections) {
    if (std::find(std::begin(kSections), std::end(kSections), section.name) ==
        std::end(kSections)) {
      continue;
    }
    if (section.contents.empty()) return damaged(name, "a cut section");
    OPENMPS_RETURN_IF_ERROR(read_containers(name, section.contents, capability, out));
  }
  return {};
}

// The members of an archive; those that are no objects (its index, its table of names) have no name
// of their own, or are of no interest.
Status read_archive(const std::string& name, Bytes file, uint32_t capability, Objects* out) {
  uint64_t at = SARMAG;
  ar_hdr header;
  while (at < file.size()) {
    if (file.size() - at < sizeof header) return damaged(name, "a damaged archive");
    std::memcpy(&header, file.data() + at, sizeof header);
    if (std::memcmp(header.ar_fmag, ARFMAG, sizeof header.ar_fmag) != 0) {
      return damaged(name, "a damaged archive");
    }
    const std::string digits(header.ar_size, sizeof header.ar_size);
    const uint64_t size = strtoull(digits.c_str(), nullptr, 10);
    at += sizeof header;
    if (size > file.size() - at) return damaged(name, "a cut archive");
    const Bytes member = file.subspan(at, size);
    const std::string_view padded(header.ar_name, sizeof header.ar_name);
    const std::string title(padded.substr(0, padded.find_first_of("/ ")));
    if (begins_with(member, ELFMAG)) {
      OPENMPS_RETURN_IF_ERROR(read_object(name + ":" + title, member, capability, out));
    }
    at += size + size % 2;
  }
  return {};
}

}  // namespace

Result<std::vector<ObjectText>> extract_objects(const std::string& name, const void* data,
                                                size_t size, uint32_t compute_capability) {
  const Bytes file(static_cast<const unsigned char*>(data), size);
  Objects objects;
  OPENMPS_RETURN_IF_ERROR(begins_with(file, ARMAG)
                              ? read_archive(name, file, compute_capability, &objects)
                              : read_object(name, file, compute_capability, &objects));
  return objects;
}

}  // namespace openmps::softgpu::fatbin
