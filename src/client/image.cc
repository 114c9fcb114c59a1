// SPDX-License-Identifier: Apache-2.0
// Image lengths from headers. See image.h.
#include "client/image.h"

#include <string>

#include "cuda/elf.h"

namespace openmps::client {
namespace {

using cuda::Bytes;
using cuda::ImageKind;

Status bad(const std::string& why) { return Status(CUDA_ERROR_INVALID_IMAGE, why); }

Result<Image> whole(Result<Bytes> bytes) {
  if (!bytes.ok()) return bytes.status();
  return Image{bytes->data(), bytes->size()};
}

// PTX is text: printable, or white space. Its first bytes tell it from binary rubbish. `available`:
// how many bytes there are, SIZE_MAX if the program vouches.
Result<Image> ptx(const unsigned char* data, uint64_t available) {
  constexpr uint64_t kLooked = 16;
  uint64_t length = 0;
  while (length < available && length <= cuda::kMostImageBytes && data[length] != 0) {
    const unsigned char c = data[length];
    const bool text = c >= 0x20 || (c >= '\t' && c <= '\r');
    if (length < kLooked && (!text || c == 0x7f || c >= 0x80)) {
      return bad("neither a fatbin, nor a cubin, nor PTX");
    }
    ++length;
  }
  if (length == 0) return bad("an empty image");
  if (length > cuda::kMostImageBytes) return bad("PTX without an end");
  // The NUL goes along; at the end of a file that has none the sender adds it.
  const bool ends = length == available;
  return Image{data, ends ? length : length + 1, ends};
}

// Behind a bare pointer: as far as the headers say.
Result<Image> image_at(const void* pointer) {
  const auto* data = static_cast<const unsigned char*>(pointer);
  switch (cuda::kind_of(pointer)) {
    case ImageKind::kContainer: return whole(cuda::container_at(pointer));
    case ImageKind::kElf: {
      const Result<uint64_t> bytes =
          cuda::cubin_bytes(*cuda::read_elf_header({data, sizeof(Elf64_Ehdr)}));
      if (!bytes.ok()) return bytes.status();
      return Image{data, *bytes};
    }
    default: return ptx(data, SIZE_MAX);
  }
}

Result<Image> cubin_of(Bytes file) {
  const Result<Elf64_Ehdr> header = cuda::read_elf_header(file);
  if (!header.ok()) return header.status();
  const Result<uint64_t> bytes = cuda::cubin_bytes(*header);
  if (!bytes.ok()) return bytes.status();
  if (*bytes > file.size()) return bad("an ELF file that ends before its tables");
  return Image{file.data(), *bytes};
}

// A prelinked wrapper names the linked code of the whole program, and behind it a list of what went
// into it, one container of each object file.
Result<Image> prelinked(const cuda::FatbinWrapper& wrapper) {
  if (wrapper.data == nullptr) return bad("a prelinked fatbin without linked code");
  Result<Image> image = whole(cuda::container_at(wrapper.data));
  if (!image.ok()) return image;
  Result<std::vector<Bytes>> inputs = cuda::inputs_of(wrapper);
  if (!inputs.ok()) return inputs.status();
  image->inputs = std::move(*inputs);
  if (image->inputs.size() + 1 > wire::kMaxContainers) {
    return bad("a prelinked fatbin of more than " + std::to_string(wire::kMaxContainers));
  }
  uint64_t bytes = Image::padded(image->bytes);
  for (const Bytes input : image->inputs) bytes += Image::padded(input.size());
  if (bytes > cuda::kMostImageBytes) {
    return bad("a prelinked fatbin that is too large");
  }
  return image;
}

}  // namespace

Result<Image> find_image(const void* image) {
  if (image == nullptr) return Status(CUDA_ERROR_INVALID_VALUE, "a null image");
  if (cuda::kind_of(image) != ImageKind::kWrapper) return image_at(image);
  const cuda::FatbinWrapper wrapper = cuda::read_wrapper(image);
  if (wrapper.version == cuda::kPrelinked) return prelinked(wrapper);
  if (wrapper.version != 1 || wrapper.data == nullptr) {
    return bad("a fatbin wrapper of version " + std::to_string(wrapper.version));
  }
  return image_at(wrapper.data);
}

Result<Image> find_image(std::span<const std::byte> file) {
  const Bytes bytes(reinterpret_cast<const unsigned char*>(file.data()), file.size());
  switch (cuda::kind_of(bytes.data(), bytes.size())) {
    // It holds pointers: it makes no sense in a file.
    case ImageKind::kWrapper: return bad("a fatbin wrapper in a file");
    case ImageKind::kContainer: return whole(cuda::front_container(bytes));
    case ImageKind::kElf: return cubin_of(bytes);
    default: return ptx(bytes.data(), bytes.size());
  }
}

}  // namespace openmps::client
