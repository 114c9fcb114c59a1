// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// Client side of the generated messages: checks pointers, writes the request, waits
// for the reply, copies outputs. Outputs are untouched on failure. Any thread.

#include <cstring>

#include "api/client_impl.h"
#include "api/messages.h"

namespace openmps::client::impl {

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  messages::cuFuncGetAttribute_request fixed;
  memset(&fixed, 0, sizeof(fixed));
  fixed.attrib = attrib;
  if (CUresult error = handle_to_wire(hfunc, &fixed.hfunc))
    return error;
  MessageBuffer request(message_bytes({sizeof(fixed)}));
  if (request.status() != CUDA_SUCCESS) return request.status();
  MessageWriter writer(request.data());
  writer.append(&fixed, sizeof(fixed));
  constexpr auto kOpcode = static_cast<uint16_t>(GeneratedOpcode::cuFuncGetAttribute);
  MessageBuffer reply(message_bytes({sizeof(messages::cuFuncGetAttribute_reply)}));
  CUresult result = reply.status();
  size_t reply_bytes = 0;
  if (result == CUDA_SUCCESS)
    result = remote_call(kOpcode, request.data(), request.size(), reply.data(),
                         reply.size(), &reply_bytes);
  messages::cuFuncGetAttribute_reply answer;
  memset(&answer, 0, sizeof(answer));
  MessageReader reader(reply.data(), reply_bytes);
  if (result == CUDA_SUCCESS) {
    result = reader.read_fixed(&answer) ? answer.result : CUDA_ERROR_MPS_RPC_FAILURE;
  }
  if (result == CUDA_SUCCESS) {
    *pi = answer.pi;
  }
  return result;
}

CUresult cuGraphAddThings(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, const char* label, char* text, int bytes,
    int* state, float* pairs, void* place, CUdevice dev, unsigned char* tag) {
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (label == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t n_before = 0;
  if (!message_length(static_cast<int64_t>(count), 1, 0, &n_before))
    return CUDA_ERROR_INVALID_VALUE;
  size_t n_text = 0;
  if (!message_length(static_cast<int64_t>(bytes), 1, 0, &n_text))
    return CUDA_ERROR_INVALID_VALUE;
  if (text == nullptr && n_text != 0)
    return CUDA_ERROR_INVALID_VALUE;
  size_t n_pairs = 0;
  if (!message_length(static_cast<int64_t>(count), 2, 0, &n_pairs))
    return CUDA_ERROR_INVALID_VALUE;
  const size_t n_tag = 4;
  if (tag == nullptr && n_tag != 0)
    return CUDA_ERROR_INVALID_VALUE;
  messages::cuGraphAddThings_request fixed;
  memset(&fixed, 0, sizeof(fixed));
  if (CUresult error = handle_to_wire(graph, &fixed.graph))
    return error;
  if (before != nullptr) fixed.present |= 1u << 2;
  fixed.count = count;
  if (fill != nullptr) fixed.present |= 1u << 4;
  if (fill != nullptr) fixed.fill = *fill;
  fixed.label =
      static_cast<uint32_t>(strnlen(label, kMaxMessageBytes) + 1);
  fixed.bytes = bytes;
  fixed.state = *state;
  if (pairs != nullptr) fixed.present |= 1u << 9;
  fixed.place = reinterpret_cast<uint64_t>(place);
  if (CUresult error = device_to_wire(dev, &fixed.dev))
    return error;
  MessageBuffer request(message_bytes({sizeof(fixed),
      before == nullptr ? 0 : n_before * sizeof(uint32_t), fixed.label}));
  if (request.status() != CUDA_SUCCESS) return request.status();
  MessageWriter writer(request.data());
  writer.append(&fixed, sizeof(fixed));
  if (before != nullptr) {
    MessageBuffer ids(n_before * sizeof(uint32_t));
    if (ids.status() != CUDA_SUCCESS) return ids.status();
    auto* id = reinterpret_cast<uint32_t*>(ids.data());
    for (size_t i = 0; i < n_before; ++i)
      if (CUresult error = handle_to_wire(before[i], &id[i])) return error;
    writer.append(ids.data(), ids.size());
  }
  writer.append(label, fixed.label);
  CUgraphNode minted = nullptr;
  if (CUresult error = mint_handle(&minted, &fixed.node))
    return error;
  memcpy(request.data(), &fixed, sizeof(fixed));
  constexpr auto kOpcode = static_cast<uint16_t>(GeneratedOpcode::cuGraphAddThings);
  MessageBuffer reply(message_bytes({sizeof(messages::cuGraphAddThings_reply),
      n_text * sizeof(char), pairs == nullptr ? 0 : n_pairs * sizeof(float),
      n_tag * sizeof(unsigned char)}));
  CUresult result = reply.status();
  size_t reply_bytes = 0;
  if (result == CUDA_SUCCESS)
    result = remote_device_call(kOpcode, request.data(), request.size(), reply.data(),
                                reply.size(), &reply_bytes);
  messages::cuGraphAddThings_reply answer;
  memset(&answer, 0, sizeof(answer));
  MessageReader reader(reply.data(), reply_bytes);
  if (result == CUDA_SUCCESS) {
    result = reader.read_fixed(&answer) ? answer.result : CUDA_ERROR_MPS_RPC_FAILURE;
  }
  const char* r_text = nullptr;
  if (result == CUDA_SUCCESS &&
      !reader.read_array(n_text, &r_text))
    result = CUDA_ERROR_MPS_RPC_FAILURE;
  const float* r_pairs = nullptr;
  if (result == CUDA_SUCCESS && pairs != nullptr &&
      !reader.read_array(n_pairs, &r_pairs))
    result = CUDA_ERROR_MPS_RPC_FAILURE;
  const unsigned char* r_tag = nullptr;
  if (result == CUDA_SUCCESS &&
      !reader.read_array(n_tag, &r_tag))
    result = CUDA_ERROR_MPS_RPC_FAILURE;
  if (result == CUDA_SUCCESS) {
    if (n_text != 0) memcpy(text, r_text, n_text * sizeof(char));
    *state = answer.state;
    if (n_pairs != 0 && pairs != nullptr) memcpy(pairs, r_pairs, n_pairs * sizeof(float));
    if (n_tag != 0) memcpy(tag, r_tag, n_tag * sizeof(unsigned char));
  }
  if (result != CUDA_SUCCESS) {
    drop_handle(minted);
    return result;
  }
  *node = minted;
  return result;
}

CUresult cuGraphDropThings(CUgraphNode node) {
  messages::cuGraphDropThings_request fixed;
  memset(&fixed, 0, sizeof(fixed));
  if (CUresult error = handle_to_wire(node, &fixed.node))
    return error;
  MessageBuffer request(message_bytes({sizeof(fixed)}));
  if (request.status() != CUDA_SUCCESS) return request.status();
  MessageWriter writer(request.data());
  writer.append(&fixed, sizeof(fixed));
  constexpr auto kOpcode = static_cast<uint16_t>(GeneratedOpcode::cuGraphDropThings);
  const CUresult result = remote_post(kOpcode, request.data(), request.size());
  if (result == CUDA_SUCCESS) drop_handle(node);
  return result;
}

}  // namespace openmps::client::impl
