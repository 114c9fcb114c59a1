// SPDX-License-Identifier: Apache-2.0
// cuLink*: the driver in the worker links; inputs travel as images do, the result comes back into
// memory of the link state. Implementations behind the generated entry points, on the program's
// threads.

#include <algorithm>
#include <cstring>
#include <string>

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/context/module.h"
#include "client/session/context.h"
#include "client/session/enter.h"

namespace openmps::client {
namespace {

// NVIDIA's driver also links a cubin that the caller declares as PTX (measured on an H100).
constexpr unsigned char kElfStart = 0x7f;

// The logs are the program's for as long as the link lives: written after each step.
template <typename Command>
void copy_logs(const Link& link, const wire::ReplyOf<Command>& reply) REQUIRES(link.lock) {
  const auto [info, error] = reply.tail();
  copy_jit_logs(link.options, info, error);
}

CUresult add_input(Session& session, Link& link, uint32_t type, const Image& image,
                   const std::string& name, const JitOptions& options) {
  const MutexLock guard(link.lock);
  if (!link.result.empty()) return CUDA_ERROR_INVALID_VALUE;  // completed
  OPENMPS_CUDA_CHECK(check_code_of(image, session.devices.capabilities()));
  wire::Id blob = 0;
  OPENMPS_CUDA_CHECK(session.modules.send_image(SentImage(image), &blob));
  wire::ReplyOf<wire::LinkAdd> reply;
  const CUresult result = session.channel.call(
      wire::LinkAdd{.link = link.id, .blob = blob, .type = type},
      {options.scalars, std::string_view(name).substr(0, wire::kMaxNameBytes)}, &reply);
  copy_logs(link, reply);
  return result;
}

CUresult read_result(Session& session, Link& link, uint64_t bytes) REQUIRES(link.lock) {
  if (bytes == 0 || bytes > cuda::kMostImageBytes) return CUDA_ERROR_MPS_RPC_FAILURE;
  std::vector<unsigned char> result(bytes);
  for (uint64_t offset = 0; offset < bytes;) {
    Staging::Piece piece;
    const uint64_t part = std::min(bytes - offset, kLargePieceBytes);
    OPENMPS_CUDA_CHECK(session.staging.acquire(part, &piece));
    const CUresult read = session.channel.call(
        wire::LinkRead{link.id, static_cast<uint32_t>(part), offset, piece.address()});
    if (read == CUDA_SUCCESS) memcpy(result.data() + offset, piece.data, part);
    session.staging.release(piece);
    OPENMPS_CUDA_CHECK(read);
    offset += part;
  }
  link.result.swap(result);
  return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuLinkCreate_v2(Session& session, Context& context, unsigned int numOptions,
                         CUjit_option* options, void** optionValues, CUlinkState* stateOut) {
  JitOptions jit;
  OPENMPS_CUDA_CHECK(parse_jit_options(numOptions, options, optionValues, &jit));
  return session.links.make(stateOut, [&](Link& link) {
    const wire::LinkCreate command{.link = link.id,
                                   .device = context.wire_device,
                                   .log_bytes = std::max(jit.info_bytes, jit.error_bytes)};
    OPENMPS_CUDA_CHECK(session.channel.call(command, {jit.scalars}));
    const MutexLock guard(link.lock);
    link.options = std::move(jit);
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkAddData_v2(Session& session, Link& link, CUjitInputType type, void* data,
                          size_t size, const char* name, unsigned int numOptions,
                          CUjit_option* options, void** optionValues) {
  if (data == nullptr || size == 0 || size > cuda::kMostImageBytes || type < 0 ||
      type >= CU_JIT_NUM_INPUT_TYPES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  JitOptions jit;
  OPENMPS_CUDA_CHECK(parse_jit_options(numOptions, options, optionValues, &jit));
  Image image{static_cast<const unsigned char*>(data), size};
  if (type == CU_JIT_INPUT_PTX && *image.data != kElfStart) {
    // With or without its NUL: the worker adds one.
    image.bytes = strnlen(static_cast<const char*>(data), size);
  } else if (type == CU_JIT_INPUT_FATBINARY) {
    // A wrapper holds a pointer into this process.
    Result<Image> found = find_image(data);
    if (!found.ok()) return found.status().code();
    image = *found;
    image.inputs.clear();  // linking is what this call is about
  }
  if (image.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return add_input(session, link, static_cast<uint32_t>(type), image, name != nullptr ? name : "",
                   jit);
}

CUresult cuLinkAddFile_v2(Session& session, Link& link, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  std::vector<std::byte> contents;
  OPENMPS_CUDA_CHECK(read_image_file(path, &contents));
  return impl::cuLinkAddData_v2(session, link, type, contents.data(), contents.size(), path,
                                numOptions, options, optionValues);
}

CUresult cuLinkComplete(Session& session, Link& link, void** cubinOut, size_t* sizeOut) {
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock guard(link.lock);
  if (link.result.empty()) {
    wire::ReplyOf<wire::LinkComplete> reply;
    const CUresult result = session.channel.call(wire::LinkComplete{link.id}, {}, &reply);
    copy_logs(link, reply);
    OPENMPS_CUDA_CHECK(result);
    OPENMPS_CUDA_CHECK(read_result(session, link, reply->bytes));
  }
  *cubinOut = link.result.data();
  if (sizeOut != nullptr) *sizeOut = link.result.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(Session& session, Link& link) {
  if (!session.links.retire(&link)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = session.channel.push(wire::LinkDestroy{link.id});
  session.links.recycle(&link);
  return result;
}

}  // namespace impl
}  // namespace openmps::client
