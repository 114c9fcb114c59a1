// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// Worker side of the generated messages: one function per message, always the same
// steps: decode, check, resolve handles, call the driver, encode the reply.

#include "api/worker_dispatch.h"

#include <cstring>
#include <iterator>

namespace openmps {
namespace {

// One message on its way through the five steps.
struct Call {
  const DriverTable& driver;
  HandleResolver& session;
  MessageReader request;
  unsigned char* reply;
};

DispatchOutcome violation(const char* what) { return {what, CUDA_ERROR_INVALID_VALUE, 0}; }

// The answer of a call that did not reach the driver: the reply's first member is the result.
[[maybe_unused]] DispatchOutcome refuse(Call& call, CUresult result, size_t reply_size) {
  const size_t reply_bytes = align_message(reply_size);
  if (reply_bytes != 0) {
    memset(call.reply, 0, reply_bytes);
    memcpy(call.reply, &result, sizeof(result));
  }
  return {nullptr, result, reply_bytes};
}

template <typename Handle>
[[maybe_unused]] CUresult resolve(Call& call, HandleType type, uint32_t id, Handle* handle) {
  void* found = nullptr;
  const CUresult result = call.session.resolve(type, id, &found);
  *handle = static_cast<Handle>(found);
  return result;
}

DispatchOutcome run_cuFuncGetAttribute(Call& call) {
  messages::cuFuncGetAttribute_request fixed;
  if (!call.request.read_fixed(&fixed)) return violation("request too short");
  if (!call.request.at_end()) return violation("request too long");
  CUfunction h_hfunc = nullptr;
  if (CUresult error =
          resolve(call, HandleType::function, fixed.hfunc, &h_hfunc))
    return refuse(call, error, sizeof(messages::cuFuncGetAttribute_reply));
  messages::cuFuncGetAttribute_reply answer;
  memset(&answer, 0, sizeof(answer));
  size_t reply_bytes = align_message(sizeof(answer));
  if (call.driver.cuFuncGetAttribute == nullptr)
    return refuse(call, CUDA_ERROR_NOT_SUPPORTED, sizeof(messages::cuFuncGetAttribute_reply));
  const CUresult result = call.driver.cuFuncGetAttribute(&answer.pi, fixed.attrib, h_hfunc);
  answer.result = result;
  memcpy(call.reply, &answer, sizeof(answer));
  return {nullptr, result, reply_bytes};
}

DispatchOutcome run_cuGraphAddThings(Call& call) {
  messages::cuGraphAddThings_request fixed;
  if (!call.request.read_fixed(&fixed)) return violation("request too short");
  size_t n_before = 0;
  if (!message_length(static_cast<int64_t>(fixed.count), 1, 0, &n_before))
    return violation("length out of range");
  const uint32_t* a_before = nullptr;
  if ((fixed.present & (1u << 2)) != 0 &&
      !call.request.read_array(n_before, &a_before))
    return violation("array too short");
  const char* s_label = nullptr;
  if (!call.request.read_string(fixed.label, &s_label))
    return violation("string too short or not terminated");
  size_t n_text = 0;
  if (!message_length(static_cast<int64_t>(fixed.bytes), 1, 0, &n_text))
    return violation("length out of range");
  size_t n_pairs = 0;
  if (!message_length(static_cast<int64_t>(fixed.count), 2, 0, &n_pairs))
    return violation("length out of range");
  const size_t n_tag = 4;
  if (!call.request.at_end()) return violation("request too long");
  CUgraphNode h_node = nullptr;
  CUgraph h_graph = nullptr;
  if (CUresult error =
          resolve(call, HandleType::graph, fixed.graph, &h_graph))
    return refuse(call, error, sizeof(messages::cuGraphAddThings_reply));
  MessageBuffer handles_before(n_before * sizeof(CUgraphNode));
  if (handles_before.status() != CUDA_SUCCESS)
    return refuse(call, handles_before.status(), sizeof(messages::cuGraphAddThings_reply));
  auto* h_before = reinterpret_cast<CUgraphNode*>(handles_before.data());
  for (size_t i = 0; a_before != nullptr && i < n_before; ++i)
    if (CUresult error =
            resolve(call, HandleType::graph_node, a_before[i], &h_before[i]))
      return refuse(call, error, sizeof(messages::cuGraphAddThings_reply));
  CUdevice d_dev = 0;
  if (CUresult error = call.session.resolve_device(fixed.dev, &d_dev))
    return refuse(call, error, sizeof(messages::cuGraphAddThings_reply));
  messages::cuGraphAddThings_reply answer;
  memset(&answer, 0, sizeof(answer));
  size_t reply_bytes = align_message(sizeof(answer));
  char* o_text = nullptr;
  {
    static_assert(alignof(char) <= kMessageAlignment);
    if (n_text * sizeof(char) > kMaxMessageBytes - reply_bytes)
      return violation("reply too long");
    o_text = reinterpret_cast<char*>(call.reply + reply_bytes);
    memset(o_text, 0, n_text * sizeof(char));
    reply_bytes += align_message(n_text * sizeof(char));
  }
  answer.state = fixed.state;
  float* o_pairs = nullptr;
  if ((fixed.present & (1u << 9)) != 0) {
    static_assert(alignof(float) <= kMessageAlignment);
    if (n_pairs * sizeof(float) > kMaxMessageBytes - reply_bytes)
      return violation("reply too long");
    o_pairs = reinterpret_cast<float*>(call.reply + reply_bytes);
    memset(o_pairs, 0, n_pairs * sizeof(float));
    reply_bytes += align_message(n_pairs * sizeof(float));
  }
  unsigned char* o_tag = nullptr;
  {
    static_assert(alignof(unsigned char) <= kMessageAlignment);
    if (n_tag * sizeof(unsigned char) > kMaxMessageBytes - reply_bytes)
      return violation("reply too long");
    o_tag = reinterpret_cast<unsigned char*>(call.reply + reply_bytes);
    memset(o_tag, 0, n_tag * sizeof(unsigned char));
    reply_bytes += align_message(n_tag * sizeof(unsigned char));
  }
  if (call.driver.cuGraphAddThings == nullptr)
    return refuse(call, CUDA_ERROR_NOT_SUPPORTED, sizeof(messages::cuGraphAddThings_reply));
  CUresult result = call.driver.cuGraphAddThings(&h_node, h_graph,
      a_before != nullptr ? h_before : nullptr, fixed.count,
      (fixed.present & (1u << 4)) != 0 ? &fixed.fill : nullptr, s_label, o_text, fixed.bytes,
      &answer.state, o_pairs, reinterpret_cast<void*>(fixed.place), d_dev, o_tag);
  if (result == CUDA_SUCCESS)
    result = call.session.bind(HandleType::graph_node, fixed.node, h_node);
  answer.result = result;
  memcpy(call.reply, &answer, sizeof(answer));
  return {nullptr, result, reply_bytes};
}

DispatchOutcome run_cuGraphDropThings(Call& call) {
  messages::cuGraphDropThings_request fixed;
  if (!call.request.read_fixed(&fixed)) return violation("request too short");
  if (!call.request.at_end()) return violation("request too long");
  CUgraphNode h_node = nullptr;
  if (CUresult error =
          resolve(call, HandleType::graph_node, fixed.node, &h_node))
    return refuse(call, error, 0);
  if (call.driver.cuGraphDropThings == nullptr)
    return refuse(call, CUDA_ERROR_NOT_SUPPORTED, 0);
  const CUresult result = call.driver.cuGraphDropThings(h_node);
  if (result == CUDA_SUCCESS)
    call.session.release(HandleType::graph_node, fixed.node);
  return {nullptr, result, 0};
}

constexpr struct {
  const char* name;
  DispatchOutcome (*run)(Call& call);
} kHandlers[] = {
    {"cuFuncGetAttribute", run_cuFuncGetAttribute},
    {"cuGraphAddThings", run_cuGraphAddThings},
    {"cuGraphDropThings", run_cuGraphDropThings},
};

}  // namespace

DispatchOutcome dispatch_generated(const DriverTable& driver, HandleResolver& session,
                                   uint16_t opcode, const void* request, size_t request_bytes,
                                   void* reply) {
  if (generated_opcode_name(opcode) == nullptr) return violation("unknown opcode");
  Call call{driver, session, MessageReader(request, request_bytes),
            static_cast<unsigned char*>(reply)};
  return kHandlers[opcode - kFirstGeneratedOpcode].run(call);
}

const char* generated_opcode_name(uint16_t opcode) {
  if (opcode < kFirstGeneratedOpcode) return nullptr;
  const size_t index = opcode - kFirstGeneratedOpcode;
  return index < std::size(kHandlers) ? kHandlers[index].name : nullptr;
}

}  // namespace openmps
