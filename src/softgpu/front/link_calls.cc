// SPDX-License-Identifier: Apache-2.0
// cuLink*: PTX inputs, alone, in fatbins or in objects and libraries of the host, become one PTX
// module (ptx/linker.h), which is returned where a GPU's linker returns a cubin. Any thread.
#include <algorithm>
#include <cstring>

#include "softgpu/device/link.h"
#include "softgpu/fatbin/fatbin.h"
#include "softgpu/fatbin/host_object.h"
#include "softgpu/front/front.h"
#include "softgpu/front/image_arguments.h"
#include "softgpu/ptx/parser.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// `body(driver, link)` with the link's mutex held. Clang takes `driver` for the lambda's `link`.
template <typename Body>
CUresult with_link(CUlinkState handle, Body&& body) {
  return with_driver([&](Driver& driver) NO_THREAD_SAFETY_ANALYSIS -> Status {
    std::shared_ptr<Link> link = driver.links.find(handle);
    if (link == nullptr) return invalid_handle("not a link");
    const MutexLock lock(link->mutex);
    Status status = body(driver, *link);
    fill_log(link->logs.error, link->logs.error_size, link->logs.error_filled,
             status.ok() ? std::string() : status.message());
    return status;
  });
}

using Texts = std::vector<fatbin::ObjectText>;

// The PTX of an input; what is no PTX has none for this device.
Result<Texts> texts_of(Driver& driver, CUjitInputType type, const std::string& name,
                       const void* data, size_t size) {
  const uint32_t capability = driver.config.compute_capability;
  const auto* bytes = static_cast<const char*>(data);
  if (type == CU_JIT_INPUT_PTX) {
    OPENMPS_RETURN_IF_ERROR(fatbin::check_ptx());
    std::string text(bytes, strnlen(bytes, size));
    if (!fatbin::is_ptx(text)) {
      return Status(CUDA_ERROR_INVALID_IMAGE, "error   : " + name + ": not PTX");
    }
    return Texts{{name, std::move(text)}};
  }
  if (type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY) {
    return fatbin::extract_objects(name, data, size, capability);
  }
  Result<std::vector<std::string>> texts = fatbin::extract_ptx(data, size, capability);
  if (!texts.ok()) {
    return Status(texts.status().code(), "error   : " + name + ": " + texts.status().message());
  }
  // A wrapper with several has no place in a file.
  return Texts{{name, std::move(texts.value().front())}};
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  return with_context([&](Caller& caller) -> Status {
    if (stateOut == nullptr) return no_result();
    JitLogs logs;
    OPENMPS_RETURN_IF_ERROR(read_jit_options(numOptions, options, optionValues, &logs));
    fill_log(logs.info, logs.info_size, logs.info_filled, "");
    *stateOut = caller.driver.links.add(std::make_shared<Link>(logs));
    return *stateOut == nullptr ? Status(CUDA_ERROR_OUT_OF_MEMORY, "too many links") : Status();
  });
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  return with_link(state, [&](Driver& driver, Link& link) REQUIRES(link.mutex) -> Status {
    if (data == nullptr || size == 0 || type < 0 || type >= CU_JIT_NUM_INPUT_TYPES) {
      return invalid_value("an empty input, or one of no known type");
    }
    if (!link.result.empty()) return invalid_value("the link is complete");
    JitLogs logs;
    OPENMPS_RETURN_IF_ERROR(read_jit_options(numOptions, options, optionValues, &logs));
    const std::string called = name != nullptr && *name != '\0' ? name : "an unnamed input";
    Result<Texts> texts = texts_of(driver, type, called, data, size);
    if (!texts.ok()) return texts.status();
    for (const fatbin::ObjectText& object : *texts) {
      const Result<std::shared_ptr<const ptx::Module>> parsed = ptx::parse(object.text);
      if (!parsed.ok()) return parsed.status();
    }
    for (fatbin::ObjectText& object : *texts) {
      link.inputs.push_back({std::move(object.name), std::move(object.text)});
    }
    return Status();
  });
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult known = with_link(state, [](Driver&, Link&) { return Status(); });
  if (known != CUDA_SUCCESS) return known;
  Result<std::vector<char>> contents = read_image_file(path);
  if (!contents.ok()) return report(contents.status());
  // The NUL behind the file is not its own.
  return cuLinkAddData_v2(state, type, contents->data(), contents->size() - 1, path, numOptions,
                          options, optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  return with_link(state, [&](Driver&, Link& link) REQUIRES(link.mutex) -> Status {
    if (cubinOut == nullptr) return no_result();
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
