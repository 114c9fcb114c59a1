// SPDX-License-Identifier: Apache-2.0
// See linker.h.
#include "worker/code/linker.h"

#include <cstring>
#include <string>
#include <utility>

#include "worker/device/driver_check.h"
#include "worker/images/image_bounds.h"

namespace openmps::worker {
namespace {

// The driver reads objects and libraries of the host's format as files with an ELF image inside,
// whose bounds are not checked; it does not take NVVM any more.
bool is_known(uint32_t type) {
  return type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY ||
         type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY;
}

}  // namespace

Status Links::handle(const wire::LinkCreate& command, const wire::LinkCreate::Tail& tail) {
  if (links_.live() == kMaxLinks) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, std::to_string(kMaxLinks) + " links are open");
  }
  auto link = std::make_unique<Link>();
  link->device = command.device;
  OPENMPS_RETURN_IF_ERROR(link->options.set(command.log_bytes, tail.options));
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuLinkCreate_v2(link->options.count(), link->options.names(),
                                         link->options.values(), &link->state),
            "cuLinkCreate"));
  return links_.insert(command.link, std::move(link));
}

Status Links::handle(const wire::LinkAdd& command, Link& link, const wire::LinkAdd::Tail& tail,
                     ReplyTo<wire::LinkAdd> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(link.device));
  ImageBytes image;
  OPENMPS_RETURN_IF_ERROR(modules_.take_blob(command.blob, &image));
  const std::string name(tail.name);
  JitOptions options;
  OPENMPS_RETURN_IF_ERROR(options.set(0, tail.options));
  if (!is_known(command.type)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "link input of type " + std::to_string(command.type));
  }
  OPENMPS_RETURN_IF_ERROR(check_image_bounds(image));
  const size_t bytes = image.size();
  image.push_back(0);  // PTX is text that ends with NUL
  const size_t counted = command.type == CU_JIT_INPUT_PTX ? bytes + 1 : bytes;
  const CUresult result = core_.driver.cuLinkAddData_v2(
      link.state, static_cast<CUjitInputType>(command.type), image.data(), counted, name.c_str(),
      options.count(), options.names(), options.values());
  reply.put({}, link.options.logs<wire::LinkAdd::ReplyTail>());
  // The driver keeps a copy, also of an input that it refuses.
  link.input_bytes += bytes;
  modules_.hold_image(bytes);
  return check(result, "cuLinkAddData");
}

Status Links::handle(const wire::LinkComplete&, Link& link, ReplyTo<wire::LinkComplete> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(link.device));
  void* cubin = nullptr;
  size_t bytes = 0;
  const CUresult result = core_.driver.cuLinkComplete(link.state, &cubin, &bytes);
  if (result == CUDA_SUCCESS) {
    link.result = static_cast<const unsigned char*>(cubin);
    link.result_bytes = bytes;
  }
  reply.put({.bytes = link.result_bytes}, link.options.logs<wire::LinkComplete::ReplyTail>());
  return check(result, "cuLinkComplete");
}

Status Links::handle(const wire::LinkRead& command, Link& link) {
  unsigned char* target = core_.staged(command.target, command.bytes);
  if (target == nullptr || command.offset > link.result_bytes ||
      command.bytes > link.result_bytes - command.offset) {
    return violation(std::to_string(command.bytes) + " bytes at " + std::to_string(command.offset) +
                     " of a link's result of " + std::to_string(link.result_bytes));
  }
  memcpy(target, link.result + command.offset, command.bytes);
  return Status();
}

Status Links::handle(const wire::LinkDestroy& command) {
  const std::unique_ptr<Link> link = links_.take(command.link);
  OPENMPS_RETURN_IF_ERROR(core_.use(link->device));
  modules_.drop_image(link->input_bytes);
  return check(core_.driver.cuLinkDestroy(link->state), "cuLinkDestroy");
}

void Links::release_all() {
  while (const std::unique_ptr<Link> link = links_.take_any()) {
    static_cast<void>(core_.use(link->device).ok());
    core_.driver.cuLinkDestroy(link->state);
    modules_.drop_image(link->input_bytes);
  }
}

}  // namespace openmps::worker
