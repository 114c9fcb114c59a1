// SPDX-License-Identifier: Apache-2.0
// libsoftgpu-ptx.so, for LD_PRELOAD: programs that have NVRTC or nvJitLink make machine code for
// the device at hand get PTX instead, which softgpu runs. The same compiler is asked for it, so a
// program goes on as before: drivers load either by the same call. A device that is newer than all
// that NVRTC knows (SOFTGPU_CC=13.0) becomes the newest that it knows. What was asked for
// otherwise, and what fails, is passed on as it is. Called on the program's threads; keeps nothing.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {

// NVRTC_ERROR_INTERNAL_ERROR and NVJITLINK_ERROR_INTERNAL, for a compiler that is not there.
constexpr int kNoNvrtc = 11;
constexpr int kNoNvJitLink = 6;

// The function of that name behind this library; null if there is none.
template <class F>
F* behind(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

// As a C array of strings, for as long as `owner` lives.
std::vector<const char*> pointers_to(const std::vector<std::string>& owner) {
  std::vector<const char*> pointers;
  pointers.reserve(owner.size());
  for (const std::string& text : owner) pointers.push_back(text.c_str());
  return pointers;
}

bool names_architecture(std::string_view option) {
  return option == "--gpu-architecture" || option == "-arch";
}

// Link-time optimisation makes neither PTX nor machine code.
bool asks_for_intermediate_code(std::string_view option) {
  return option == "-dlto" || option == "--dlink-time-opt";
}

// 10 * major + minor; 0: NVRTC does not say.
int newest_architecture() {
  auto* count_of = behind<int(int*)>("nvrtcGetNumSupportedArchs");
  auto* list = behind<int(int*)>("nvrtcGetSupportedArchs");
  int count = 0;
  if (count_of == nullptr || list == nullptr || count_of(&count) != 0 || count <= 0) return 0;
  std::vector<int> known(static_cast<size_t>(count));
  return list(known.data()) == 0 ? *std::max_element(known.begin(), known.end()) : 0;
}

// "sm_90a" becomes "compute_90a"; what is newer than all that NVRTC knows, its newest.
std::string virtual_architecture(std::string name) {
  constexpr std::string_view kReal = "sm_", kVirtual = "compute_";
  if (name.compare(0, kReal.size(), kReal) == 0) name.replace(0, kReal.size(), kVirtual);
  int number = 0;
  if (sscanf(name.c_str(), "compute_%d", &number) != 1) return name;
  const int newest = newest_architecture();
  return newest != 0 && number > newest ? std::string(kVirtual) + std::to_string(newest) : name;
}

// "-arch=sm_90a" becomes "-arch=compute_90a", also where the value is an option of its own.
std::vector<std::string> with_virtual_architecture(int count, const char* const* options) {
  std::vector<std::string> all;
  bool value_follows = false;
  for (int i = 0; i < count; ++i) {
    all.emplace_back(options[i] == nullptr ? "" : options[i]);
    std::string& option = all.back();
    const size_t equals = option.find('=');
    const bool inside = equals != std::string::npos &&
                        names_architecture(std::string_view(option).substr(0, equals));
    const size_t value = inside ? equals + 1 : 0;
    if (inside || value_follows) {
      option.replace(value, std::string::npos, virtual_architecture(option.substr(value)));
    }
    value_follows = names_architecture(option);
  }
  for (const std::string& option : all) {
    if (asks_for_intermediate_code(option)) return {options, options + count};
  }
  return all;
}

// Machine code's size, by `name`; else that of the PTX, by `ptx_name`. Both libraries have such a
// pair.
template <class Handle>
int size_of_code(Handle handle, size_t* size, const char* name, const char* ptx_name, int missing) {
  auto* real = behind<int(Handle, size_t*)>(name);
  auto* ptx = behind<int(Handle, size_t*)>(ptx_name);
  if (real == nullptr || ptx == nullptr) return missing;
  const int result = real(handle, size);
  if (size == nullptr || (result == 0 && *size != 0)) return result;
  return ptx(handle, size) == 0 ? 0 : result;
}

template <class Handle>
int copy_code(Handle handle, char* code, const char* size_name, const char* name,
              const char* ptx_name, int missing) {
  auto* real_size = behind<int(Handle, size_t*)>(size_name);
  auto* real = behind<int(Handle, char*)>(name);
  auto* ptx = behind<int(Handle, char*)>(ptx_name);
  if (real_size == nullptr || real == nullptr || ptx == nullptr) return missing;
  size_t size = 0;
  if (real_size(handle, &size) == 0 && size != 0) return real(handle, code);
  return ptx(handle, code);
}

// A linker that optimises can stop at PTX.
int create_linker(void** handle, unsigned count, const char** options, const char* name) {
  auto* real = behind<int(void**, unsigned, const char**)>(name);
  if (real == nullptr) return kNoNvJitLink;
  std::vector<std::string> all(options, options + count);
  bool optimises = false, has_ptx = false;
  for (const std::string& option : all) {
    optimises |= option == "-lto";
    has_ptx |= option == "-ptx";
  }
  if (!optimises || has_ptx) return real(handle, count, options);
  all.emplace_back("-ptx");
  std::vector<const char*> pointers = pointers_to(all);
  return real(handle, static_cast<unsigned>(pointers.size()), pointers.data());
}

}  // namespace

#define SOFTGPU_PRELOADED extern "C" __attribute__((visibility("default"))) int

SOFTGPU_PRELOADED nvrtcCompileProgram(void* program, int count, const char* const* options) {
  auto* real = behind<int(void*, int, const char* const*)>("nvrtcCompileProgram");
  if (real == nullptr) return kNoNvrtc;
  if (count <= 0 || options == nullptr) return real(program, count, options);
  const std::vector<std::string> all = with_virtual_architecture(count, options);
  return real(program, count, pointers_to(all).data());
}

SOFTGPU_PRELOADED nvrtcGetCUBINSize(void* program, size_t* size) {
  return size_of_code(program, size, "nvrtcGetCUBINSize", "nvrtcGetPTXSize", kNoNvrtc);
}

SOFTGPU_PRELOADED nvrtcGetCUBIN(void* program, char* code) {
  return copy_code(program, code, "nvrtcGetCUBINSize", "nvrtcGetCUBIN", "nvrtcGetPTX", kNoNvrtc);
}

// nvJitLink.h gives each of its functions the name of its version: CUDA 12.0 to 13.9.
#define SOFTGPU_LINKER(version)                                                                   \
  SOFTGPU_PRELOADED __nvJitLinkCreate_##version(void** handle, unsigned count,                    \
                                                const char** options) {                           \
    return create_linker(handle, count, options, "__nvJitLinkCreate_" #version);                  \
  }                                                                                               \
  SOFTGPU_PRELOADED __nvJitLinkGetLinkedCubinSize_##version(void* handle, size_t* size) {         \
    return size_of_code(handle, size, "__nvJitLinkGetLinkedCubinSize_" #version,                  \
                        "__nvJitLinkGetLinkedPtxSize_" #version, kNoNvJitLink);                   \
  }                                                                                               \
  SOFTGPU_PRELOADED __nvJitLinkGetLinkedCubin_##version(void* handle, void* code) {               \
    return copy_code(handle, static_cast<char*>(code), "__nvJitLinkGetLinkedCubinSize_" #version, \
                     "__nvJitLinkGetLinkedCubin_" #version, "__nvJitLinkGetLinkedPtx_" #version,  \
                     kNoNvJitLink);                                                               \
  }
// clang-format off
SOFTGPU_LINKER(12_0) SOFTGPU_LINKER(12_1) SOFTGPU_LINKER(12_2) SOFTGPU_LINKER(12_3)
SOFTGPU_LINKER(12_4) SOFTGPU_LINKER(12_5) SOFTGPU_LINKER(12_6) SOFTGPU_LINKER(12_7)
SOFTGPU_LINKER(12_8) SOFTGPU_LINKER(12_9) SOFTGPU_LINKER(13_0) SOFTGPU_LINKER(13_1)
SOFTGPU_LINKER(13_2) SOFTGPU_LINKER(13_3) SOFTGPU_LINKER(13_4) SOFTGPU_LINKER(13_5)
SOFTGPU_LINKER(13_6) SOFTGPU_LINKER(13_7) SOFTGPU_LINKER(13_8) SOFTGPU_LINKER(13_9)
    // clang-format on
