// SPDX-License-Identifier: Apache-2.0
// Which entry of a fatbin fits, and its text. See fatbin.h.
#include "softgpu/fatbin/fatbin.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/program_switches.h"
#include "cuda/unpack.h"
#include "softgpu/ptx/device_calls.h"

namespace openmps::softgpu::fatbin {
namespace {

using cuda::Bytes;
using cuda::FatbinEntry;
using Texts = Result<std::vector<std::string>>;

Status no_binary(const std::string& what, uint32_t capability) {
  constexpr uint32_t kOfLibraries = 130;  // for which they have no machine code
  return Status(
      CUDA_ERROR_NO_BINARY_FOR_GPU,
      what + ", and machine code can't run on this device" +
          (capability < kOfLibraries ? "; CUDA's libraries have PTX that runs with SOFTGPU_CC=13.0"
                                     : ""));
}

// The newest PTX that fits.
Result<std::optional<FatbinEntry>> newest_ptx(Bytes container, uint32_t capability) {
  std::optional<FatbinEntry> best;
  OPENMPS_RETURN_IF_ERROR(cuda::for_each_entry(container, [&](const FatbinEntry& entry) {
    const uint32_t target = entry.header.architecture;
    if (entry.header.kind == cuda::kPtxEntry && target <= capability &&
        (!best || target >= best->header.architecture)) {
      best = entry;
    }
    return Status();
  }));
  return best;
}

Result<std::string> text_of(const FatbinEntry& entry) {
  std::vector<unsigned char> buffer;
  const Result<Bytes> code = cuda::unpack(entry, &buffer);
  if (!code.ok()) return code.status();
  if (code->size() > kMaxTextBytes) {
    return Status(CUDA_ERROR_INVALID_IMAGE, "PTX of " + std::to_string(code->size()) + " bytes");
  }
  return std::string(code->begin(), std::find(code->begin(), code->end(), 0));
}

// PTX for "sm_90a" or "sm_100f" runs on that very architecture only.
bool is_family_specific(const std::string& text, uint32_t capability) {
  const size_t at = text.find(".target");
  if (at == std::string::npos) return false;
  const size_t name = text.find("sm_", at);
  if (name == std::string::npos || name > at + 64) return false;
  size_t end = name + 3;
  uint32_t value = 0;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9' && value < 10000) {
    value = 10 * value + static_cast<uint32_t>(text[end++] - '0');
  }
  return end < text.size() && (text[end] == 'a' || text[end] == 'f') && value != capability;
}

// The machine code that a GPU would take instead of the PTX counts as if it ran here.
Status check_switches(Bytes container, uint32_t capability) {
  const JitSwitches switches = jit_switches();
  if (!switches.any()) return Status();
  bool has_machine_code = false;
  bool has_ptx = false;
  OPENMPS_RETURN_IF_ERROR(cuda::for_each_entry(container, [&](const FatbinEntry& entry) {
    has_machine_code |= cuda::may_run(entry.header, cuda::kElfEntry, capability);
    has_ptx |= cuda::may_run(entry.header, cuda::kPtxEntry, capability);
    return Status();
  }));
  const CUresult left = check_code(switches, has_machine_code, has_ptx);
  return left == CUDA_SUCCESS ? Status() : Status(left, "the program's switches leave no code");
}

Result<std::string> from_container(const Result<Bytes>& container, uint32_t capability) {
  if (!container.ok()) return container.status();
  OPENMPS_RETURN_IF_ERROR(check_switches(*container, capability));
  // A family-specific entry turns up only after decompression: then the next older one is tried.
  for (uint32_t limit = capability;;) {
    const Result<std::optional<FatbinEntry>> best = newest_ptx(*container, limit);
    if (!best.ok()) return best.status();
    if (!best->has_value()) {
      return no_binary(
          "no PTX for compute capability " + std::to_string(capability) + " in the fatbin",
          capability);
    }
    Result<std::string> text = text_of(**best);
    if (!text.ok() || !is_family_specific(text.value(), capability)) return text;
    const uint32_t target = (*best)->header.architecture;
    if (target == 0) {
      return Status(CUDA_ERROR_NO_BINARY_FOR_GPU, "only PTX for one architecture in the fatbin");
    }
    limit = target - 1;
  }
}

Texts one_text(Result<std::string> text) {
  if (!text.ok()) return text.status();
  return std::vector<std::string>{std::move(text.value())};
}

// A prelinked wrapper has what the device linker made, and a list of what it made it of. The former
// is machine code, unless the program was built with PTX beside it.
Texts from_wrapper(const cuda::FatbinWrapper& wrapper, uint32_t capability) {
  Result<std::string> whole =
      wrapper.data != nullptr
          ? from_container(cuda::container_at(wrapper.data), capability)
          : Result<std::string>(Status(CUDA_ERROR_NO_BINARY_FOR_GPU, "an empty fatbin wrapper"));
  const bool only_code = !whole.ok() && whole.status().code() == CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (wrapper.version != cuda::kPrelinked || wrapper.extra == nullptr || !only_code) {
    return one_text(std::move(whole));
  }
  const Result<std::vector<Bytes>> inputs = cuda::inputs_of(wrapper);
  if (!inputs.ok()) return inputs.status();
  std::vector<std::string> texts;
  for (const Bytes input : *inputs) {
    if (is_runtime_library(input)) continue;
    Result<std::string> text = from_container(input, capability);
    if (!text.ok()) return text.status();
    texts.push_back(std::move(text.value()));
  }
  if (texts.empty()) return whole.status();
  return texts;
}

// What a program hands over with its size is checked against it.
Result<Bytes> bare_container(const void* image, size_t size) {
  if (size == SIZE_MAX) return cuda::container_at(image);
  return cuda::front_container({static_cast<const unsigned char*>(image), size});
}

}  // namespace

bool is_runtime_library(Bytes container) {
  const Result<std::string> text = from_container(container, UINT32_MAX);
  return text.ok() && ptx::is_device_runtime(*text);
}

bool is_ptx(const std::string& text) { return text.find(".version") != std::string::npos; }

Status check_ptx() {
  const CUresult left = check_code(jit_switches(), false, true);
  return left == CUDA_SUCCESS ? Status() : Status(left, "PTX is not to be compiled here");
}

Result<std::vector<std::string>> extract_ptx(const void* image, size_t size, uint32_t capability) {
  if (image == nullptr || size == 0) return Status(CUDA_ERROR_INVALID_IMAGE, "no image");
  switch (cuda::kind_of(image, size)) {
    case cuda::ImageKind::kWrapper:
      if (size < sizeof(cuda::FatbinWrapper)) {
        return Status(CUDA_ERROR_INVALID_IMAGE, "a fatbin wrapper that is cut");
      }
      return from_wrapper(cuda::read_wrapper(image), capability);
    case cuda::ImageKind::kContainer:
      return one_text(from_container(bare_container(image, size), capability));
    case cuda::ImageKind::kElf: return no_binary("the image is a cubin", capability);
    case cuda::ImageKind::kOther: break;
  }
  const size_t limit = std::min(size, kMaxTextBytes);
  const size_t length = strnlen(static_cast<const char*>(image), limit);
  if (length == kMaxTextBytes) return Status(CUDA_ERROR_INVALID_IMAGE, "PTX without an end");
  std::string text(static_cast<const char*>(image), length);
  if (!is_ptx(text)) {
    return Status(CUDA_ERROR_INVALID_IMAGE, "neither PTX nor a fatbin");
  }
  OPENMPS_RETURN_IF_ERROR(check_ptx());
  return one_text(std::move(text));
}

}  // namespace openmps::softgpu::fatbin
