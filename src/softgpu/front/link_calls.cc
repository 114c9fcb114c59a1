// SPDX-License-Identifier: Apache-2.0
// cuLink*: PTX inputs, alone or in fatbins, become one PTX module (ptx/linker.h), which stands for
// the cubin that a GPU's linker makes. Any thread.
#include <algorithm>
#include <cstring>

#include "softgpu/device/link.h"
#include "softgpu/fatbin/fatbin.h"
#include "softgpu/front/front.h"
#include "softgpu/front/image_arguments.h"
#include "softgpu/ptx/parser.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: the same

namespace {

template <typename Body>
CUresult with_link(CUlinkState handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Link> link = driver.links.find(handle);
    if (link == nullptr) return invalid_handle("not a link");
    std::lock_guard lock(link->mutex);
    Status status = body(driver, *link);
    fill_log(link->error, link->error_size, link->error_filled,
             status.ok() ? std::string() : status.message());
    return status;
  });
}

// The PTX of an input; what is no PTX has none for this device.
Result<std::string> text_of(Driver& driver, CUjitInputType type, const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  if (type == CU_JIT_INPUT_PTX) return std::string(bytes, strnlen(bytes, size));
  if (type == CU_JIT_INPUT_FATBINARY) {
    Result<std::vector<std::string>> texts =
        fatbin::extract_ptx(data, size, driver.config.compute_capability);
    if (!texts.ok()) return texts.status();
    return std::move(texts.value().front());  // a wrapper with several has no place in a file
  }
  return Status(CUDA_ERROR_NO_BINARY_FOR_GPU, "error   : machine code can't be linked here");
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  return with_context([&](Caller& caller) -> Status {
    if (stateOut == nullptr) return invalid_value("no place for the result");
    JitLogs logs;
    OPENMPS_RETURN_IF_ERROR(read_jit_options(numOptions, options, optionValues, &logs));
    auto link = std::make_shared<Link>();
    link->info = logs.info;
    link->info_size = logs.info_size;
    link->info_filled = logs.info_filled;
    link->error = logs.error;
    link->error_size = logs.error_size;
    link->error_filled = logs.error_filled;
    fill_log(link->info, link->info_size, link->info_filled, "");
    *stateOut = caller.driver.links.add(std::move(link));
    return *stateOut == nullptr ? Status(CUDA_ERROR_OUT_OF_MEMORY, "too many links") : Status();
  });
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  return with_link(state, [&](Driver& driver, Link& link) -> Status {
    if (data == nullptr || size == 0 || type < 0 || type >= CU_JIT_NUM_INPUT_TYPES)
      return invalid_value("an empty input, or one of no known type");
    if (!link.result.empty()) return invalid_value("the link is complete");
    JitLogs logs;
    OPENMPS_RETURN_IF_ERROR(read_jit_options(numOptions, options, optionValues, &logs));
    Result<std::string> text = text_of(driver, type, data, size);
    if (!text.ok()) return text.status();
    Result<std::shared_ptr<const ptx::Module>> parsed = ptx::parse(*text);
    if (!parsed.ok()) return parsed.status();
    link.inputs.push_back({name != nullptr ? name : "", *std::move(text)});
    return Status();
  });
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Result<std::vector<char>> contents = read_image_file(path);
  if (!contents.ok()) return report(contents.status());
  return cuLinkAddData_v2(state, type, contents->data(), contents->size(), path, numOptions,
                          options, optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  return with_link(state, [&](Driver&, Link& link) -> Status {
    if (cubinOut == nullptr) return invalid_value("no place for the result");
    if (link.result.empty()) {
      Result<std::string> linked = ptx::link(link.inputs);
      if (!linked.ok()) return linked.status();
      link.result = *std::move(linked);
      link.result.push_back('\0');
    }
    *cubinOut = link.result.data();
    if (sizeOut != nullptr) *sizeOut = link.result.size();
    return Status();
  });
}

CUresult cuLinkDestroy(CUlinkState state) {
  return with_driver([&](Driver& driver) -> Status {
    return driver.links.remove(state) == nullptr ? invalid_handle("not a link") : Status();
  });
}
