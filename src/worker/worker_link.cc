// SPDX-License-Identifier: Apache-2.0
// Linking for a session. See worker_link.h.
#include "worker/worker_link.h"

#include <string.h>

#include <string>
#include <utility>

#include "worker/driver_check.h"
#include "worker/image_bounds.h"

namespace openmps::worker {
namespace {

// Objects and libraries of the host's format the driver reads as files with an ELF image inside,
// whose bounds nobody has checked; NVVM is not taken any more.
bool is_known(uint32_t type) {
  return type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY ||
         type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY;
}

}  // namespace

Status Links::use(wire::Id id, Link** link) {
  OPENMPS_RETURN_IF_ERROR(links_.get(id, link));
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): get() succeeds with an object only.
  return core_.use((*link)->device);
}

Status Links::create(const wire::LinkCreate& command, wire::Variable options) {
  OPENMPS_RETURN_IF_ERROR(core_.check_device(command.device));
  OPENMPS_RETURN_IF_ERROR(links_.check_free(command.link));
  if (count_ == kMaxLinks) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, std::to_string(kMaxLinks) + " links are open");
  }
  auto link = std::make_unique<Link>();
  link->device = command.device;
  OPENMPS_RETURN_IF_ERROR(link->options.set(command.log_bytes, command.option_count, options));
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuLinkCreate_v2(link->options.count(), link->options.names(),
                                         link->options.values(), &link->state),
            "cuLinkCreate"));
  ++count_;
  return links_.insert(command.link, std::move(link));
}

Status Links::add(const wire::LinkAdd& command, wire::Variable variable, ReplyWriter& reply) {
  Link* link = nullptr;
  OPENMPS_RETURN_IF_ERROR(use(command.link, &link));
  ImageBytes image;
  OPENMPS_RETURN_IF_ERROR(modules_.take_blob(command.blob, &image));
  const std::string name(reinterpret_cast<const char*>(variable.data()), command.name_bytes);
  JitOptions options;
  OPENMPS_RETURN_IF_ERROR(
      options.set(0, command.option_count, variable.subspan(command.name_bytes)));
  if (!is_known(command.type)) {
    return Status(CUDA_ERROR_INVALID_VALUE, "link input of type " + std::to_string(command.type));
  }
  OPENMPS_RETURN_IF_ERROR(check_image_bounds(image));
  const size_t bytes = image.size();
  image.push_back(0);  // PTX is text that ends with NUL
  const size_t counted = command.type == CU_JIT_INPUT_PTX ? bytes + 1 : bytes;
  const CUresult result = core_.driver.cuLinkAddData_v2(
      link->state, static_cast<CUjitInputType>(command.type), image.data(), counted, name.c_str(),
      options.count(), options.names(), options.values());
  link->options.put_logs(reply);
  // The driver keeps a copy, whether or not it likes what it has been given.
  link->input_bytes += bytes;
  modules_.hold_image(bytes);
  return check(result, "cuLinkAddData");
}

Status Links::complete(wire::Id id, ReplyWriter& reply) {
  Link* link = nullptr;
  OPENMPS_RETURN_IF_ERROR(use(id, &link));
  void* cubin = nullptr;
  size_t bytes = 0;
  const CUresult result = core_.driver.cuLinkComplete(link->state, &cubin, &bytes);
  if (result == CUDA_SUCCESS) {
    link->result = static_cast<const unsigned char*>(cubin);
    link->result_bytes = bytes;
  }
  reply.put(wire::LinkCompleteReply{link->result_bytes});
  link->options.put_logs(reply);
  return check(result, "cuLinkComplete");
}

Status Links::read(const wire::LinkRead& command) {
  Link* link = nullptr;
  OPENMPS_RETURN_IF_ERROR(links_.get(command.link, &link));
  const uint64_t staging = core_.device_end() + wire::kStagingOffset;
  const bool staged = command.target >= staging && command.bytes <= wire::kStagingBytes &&
                      command.target - staging <= wire::kStagingBytes - command.bytes;
  if (!staged || command.offset > link->result_bytes ||
      command.bytes > link->result_bytes - command.offset) {
    return violation(std::to_string(command.bytes) + " bytes at " + std::to_string(command.offset) +
                     " of a link's result of " + std::to_string(link->result_bytes));
  }
  memcpy(core_.view.staging() + (command.target - staging), link->result + command.offset,
         command.bytes);
  return Status();
}

Status Links::destroy(wire::Id id) {
  Link* found = nullptr;
  OPENMPS_RETURN_IF_ERROR(use(id, &found));
  const std::unique_ptr<Link> link = links_.take(id);
  --count_;
  modules_.drop_image(link->input_bytes);
  return check(core_.driver.cuLinkDestroy(link->state), "cuLinkDestroy");
}

void Links::release_all() {
  while (const std::unique_ptr<Link> link = links_.take_any()) {
    static_cast<void>(core_.use(link->device).ok());
    core_.driver.cuLinkDestroy(link->state);
    modules_.drop_image(link->input_bytes);
  }
  count_ = 0;
}

}  // namespace openmps::worker
