// SPDX-License-Identifier: Apache-2.0
// Generated messages end to end: the client's function packs a request, the worker's dispatcher
// unpacks it, calls a driver table of fakes and packs the reply. Also what a hostile client sends.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/client_impl.h"
#include "api/messages.h"
#include "api/worker_dispatch.h"

namespace openmps {
namespace {

// Driver handles of the fake session are the ids shifted, so that a mix-up shows.
template <typename Handle>
Handle driver_handle(uint32_t id) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(id) << 8);
}

class FakeSession : public HandleResolver {
 public:
  CUresult resolve(HandleType type, uint32_t id, void** handle) override {
    const auto found = objects.find({type, id});
    if (found == objects.end()) return CUDA_ERROR_INVALID_HANDLE;
    *handle = found->second;
    return CUDA_SUCCESS;
  }
  CUresult bind(HandleType type, uint32_t id, void* handle) override {
    return objects.emplace(std::pair{type, id}, handle).second ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_HANDLE;
  }
  void release(HandleType type, uint32_t id) override { objects.erase({type, id}); }
  CUresult resolve_device(uint32_t id, CUdevice* device) override {
    if (id != 7) return CUDA_ERROR_INVALID_DEVICE;
    *device = 1;
    return CUDA_SUCCESS;
  }

  template <typename Handle>
  void add(HandleType type, uint32_t id) {
    objects[{type, id}] = driver_handle<Handle>(id);
  }

  std::map<std::pair<HandleType, uint32_t>, void*> objects;
};

// What both ends of the test share; the hooks below are free functions.
struct World {
  FakeSession session;
  DriverTable driver = {};
  std::vector<unsigned char> last_request;
  uint16_t last_opcode = 0;
  DispatchOutcome outcome;
  CUresult transport = CUDA_SUCCESS;
  size_t cut_reply = 0;  // bytes that the transport loses at the end
  uint32_t next_id = 100;
  std::vector<void*> dropped;
};
World* g_world = nullptr;

alignas(kMessageAlignment) unsigned char g_reply[kMaxMessageBytes];

DispatchOutcome deliver(uint16_t opcode, const void* request, size_t bytes) {
  return dispatch_generated(g_world->driver, g_world->session, opcode, request, bytes, g_reply);
}

}  // namespace

namespace client {

CUresult remote_call(uint16_t opcode, const void* request, size_t request_bytes, void* reply,
                     size_t reply_capacity, size_t* reply_bytes) {
  const auto* bytes = static_cast<const unsigned char*>(request);
  g_world->last_request.assign(bytes, bytes + request_bytes);
  g_world->last_opcode = opcode;
  if (g_world->transport != CUDA_SUCCESS) return g_world->transport;
  g_world->outcome = deliver(opcode, request, request_bytes);
  EXPECT_EQ(g_world->outcome.violation, nullptr) << g_world->outcome.violation;
  EXPECT_LE(g_world->outcome.reply_bytes, reply_capacity);
  *reply_bytes = g_world->outcome.reply_bytes - g_world->cut_reply;
  memcpy(reply, g_reply, *reply_bytes);
  return CUDA_SUCCESS;
}

CUresult remote_device_call(uint16_t opcode, const void* request, size_t request_bytes, void* reply,
                            size_t reply_capacity, size_t* reply_bytes) {
  return remote_call(opcode, request, request_bytes, reply, reply_capacity, reply_bytes);
}

CUresult remote_post(uint16_t opcode, const void* request, size_t request_bytes) {
  g_world->last_opcode = opcode;
  g_world->outcome = deliver(opcode, request, request_bytes);
  EXPECT_EQ(g_world->outcome.violation, nullptr) << g_world->outcome.violation;
  return CUDA_SUCCESS;
}

CUresult device_to_wire(CUdevice device, uint32_t* id) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *id = 7;
  return CUDA_SUCCESS;
}

// Client handles of the test are their ids.
#define OPENMPS_FAKE_HANDLE(handle, name)                            \
  CUresult handle_to_wire(handle value, uint32_t* id) {              \
    *id = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(value)); \
    return *id == 666 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;    \
  }                                                                  \
  CUresult mint_handle(handle* value, uint32_t* id) {                \
    *id = g_world->next_id++;                                        \
    *value = reinterpret_cast<handle>(static_cast<uintptr_t>(*id));  \
    return CUDA_SUCCESS;                                             \
  }                                                                  \
  void drop_handle(handle value) { g_world->dropped.push_back(value); }
OPENMPS_HANDLE_TYPES(OPENMPS_FAKE_HANDLE)
#undef OPENMPS_FAKE_HANDLE

}  // namespace client

namespace {

class Remoting : public ::testing::Test {
 protected:
  Remoting() { g_world = &world_; }
  ~Remoting() override { g_world = nullptr; }

  template <typename Handle>
  static Handle client_handle(uint32_t id) {
    return reinterpret_cast<Handle>(static_cast<uintptr_t>(id));
  }

  World world_;
};

TEST_F(Remoting, ScalarsHandlesAndOutputs) {
  world_.session.add<CUfunction>(HandleType::function, 5);
  world_.driver.cuFuncGetAttribute = [](int* pi, CUfunction_attribute attribute, CUfunction f) {
    EXPECT_EQ(attribute, CU_FUNC_ATTRIBUTE_NUM_REGS);
    EXPECT_EQ(f, driver_handle<CUfunction>(5));
    *pi = 42;
    return CUDA_SUCCESS;
  };
  int value = -1;
  EXPECT_EQ(client::impl::cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS,
                                             client_handle<CUfunction>(5)),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 42);
}

TEST_F(Remoting, FailureLeavesOutputsAlone) {
  int value = -1;
  const auto call = [&](uint32_t function) {
    return client::impl::cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS,
                                            client_handle<CUfunction>(function));
  };
  world_.session.add<CUfunction>(HandleType::function, 5);
  EXPECT_EQ(call(5), CUDA_ERROR_NOT_SUPPORTED) << "the driver below lacks the symbol";
  world_.driver.cuFuncGetAttribute = [](int* pi, CUfunction_attribute, CUfunction) {
    *pi = 1;
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(call(5), CUDA_ERROR_INVALID_VALUE) << "the driver's error";
  EXPECT_EQ(call(6), CUDA_ERROR_INVALID_HANDLE) << "unknown to the session";
  EXPECT_EQ(call(666), CUDA_ERROR_INVALID_HANDLE) << "unknown to the client";
  world_.transport = CUDA_ERROR_MPS_RPC_FAILURE;
  EXPECT_EQ(call(5), CUDA_ERROR_MPS_RPC_FAILURE) << "the session is lost";
  EXPECT_EQ(client::impl::cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS,
                                             client_handle<CUfunction>(5)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(value, -1);
}

TEST_F(Remoting, ShortReplyIsAnError) {
  world_.session.add<CUfunction>(HandleType::function, 5);
  world_.driver.cuFuncGetAttribute = [](int* pi, CUfunction_attribute, CUfunction) {
    *pi = 42;
    return CUDA_SUCCESS;
  };
  world_.cut_reply = 8;
  int value = -1;
  EXPECT_EQ(client::impl::cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS,
                                             client_handle<CUfunction>(5)),
            CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_EQ(value, -1);
}

TEST_F(Remoting, ArraysInBothDirectionsAndDevices) {
  world_.driver.cuDeviceGetHostAtomicCapabilities = [](unsigned int* capabilities,
                                                       const CUatomicOperation* operations,
                                                       unsigned int count, CUdevice device) {
    EXPECT_EQ(device, 1) << "the worker's number of client device 0";
    for (unsigned int i = 0; i < count; ++i) capabilities[i] = operations[i] * 10 + i;
    return CUDA_SUCCESS;
  };
  const CUatomicOperation operations[] = {CU_ATOMIC_OPERATION_INTEGER_MIN,
                                          CU_ATOMIC_OPERATION_EXCHANGE,
                                          CU_ATOMIC_OPERATION_INTEGER_ADD};
  unsigned int capabilities[4] = {9, 9, 9, 9};
  EXPECT_EQ(client::impl::cuDeviceGetHostAtomicCapabilities(capabilities, operations, 3, 0),
            CUDA_SUCCESS);
  for (unsigned int i = 0; i < 3; ++i) EXPECT_EQ(capabilities[i], operations[i] * 10 + i);
  EXPECT_EQ(capabilities[3], 9u) << "nothing past the end";
  EXPECT_EQ(client::impl::cuDeviceGetHostAtomicCapabilities(capabilities, operations, 3, 4),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(client::impl::cuDeviceGetHostAtomicCapabilities(capabilities, operations,
                                                            kMaxMessageBytes + 1, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Remoting, ComputedLengthsAddressesAndAlignedStructures) {
  world_.driver.cuTensorMapEncodeTiled =
      [](CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address,
         const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
         const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
         CUtensorMapFloatOOBfill fill) {
        EXPECT_EQ(rank, 2u);
        EXPECT_EQ(fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(map) % alignof(CUtensorMap), 0u);
        map->opaque[0] = reinterpret_cast<uintptr_t>(address);
        map->opaque[1] = dims[0] + dims[1];
        map->opaque[2] = strides[0];
        map->opaque[3] = box[1] * 100 + steps[1];
        map->opaque[15] = 15;
        return CUDA_SUCCESS;
      };
  const cuuint64_t dims[] = {64, 32};
  const cuuint64_t strides[] = {256};
  const cuuint32_t box[] = {8, 9};
  const cuuint32_t steps[] = {1, 2};
  CUtensorMap map = {};
  const auto encode = [&](cuuint32_t rank) {
    return client::impl::cuTensorMapEncodeTiled(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, reinterpret_cast<void*>(0x7000), dims, strides,
        box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
  };
  EXPECT_EQ(encode(2), CUDA_SUCCESS);
  EXPECT_EQ(map.opaque[0], 0x7000u);
  EXPECT_EQ(map.opaque[1], 96u);
  EXPECT_EQ(map.opaque[2], 256u);
  EXPECT_EQ(map.opaque[3], 902u);
  EXPECT_EQ(map.opaque[15], 15u);
  EXPECT_EQ(encode(0), CUDA_ERROR_INVALID_VALUE) << "rank - 1 is negative";
}

TEST_F(Remoting, OptionalOutputs) {
  world_.session.add<CUfunction>(HandleType::function, 5);
  world_.driver.cuFuncGetParamInfo = [](CUfunction, size_t index, size_t* offset, size_t* size) {
    *offset = index * 8;
    if (size != nullptr) *size = 4;
    return size == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  size_t offset = 0, size = 77;
  EXPECT_EQ(client::impl::cuFuncGetParamInfo(client_handle<CUfunction>(5), 3, &offset, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(offset, 24u);
  EXPECT_EQ(client::impl::cuFuncGetParamInfo(client_handle<CUfunction>(5), 3, &offset, &size),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(size, 77u);
}

TEST_F(Remoting, HandlesAreMintedBoundAndReleased) {
  world_.driver.cuGraphCreate = [](CUgraph* graph, unsigned int) {
    *graph = driver_handle<CUgraph>(1);
    return CUDA_SUCCESS;
  };
  CUgraph graph = nullptr;
  ASSERT_EQ(client::impl::cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(graph, client_handle<CUgraph>(100));
  EXPECT_EQ(world_.session.objects.at({HandleType::graph, 100}), driver_handle<CUgraph>(1));

  world_.session.add<CUgraphNode>(HandleType::graph_node, 11);
  world_.session.add<CUgraphNode>(HandleType::graph_node, 12);
  world_.driver.cuGraphAddEmptyNode = [](CUgraphNode* node, CUgraph, const CUgraphNode* before,
                                         size_t count) {
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(before[0], driver_handle<CUgraphNode>(11));
    EXPECT_EQ(before[1], driver_handle<CUgraphNode>(12));
    *node = driver_handle<CUgraphNode>(2);
    return CUDA_SUCCESS;
  };
  const CUgraphNode before[] = {client_handle<CUgraphNode>(11), client_handle<CUgraphNode>(12)};
  CUgraphNode node = nullptr;
  ASSERT_EQ(client::impl::cuGraphAddEmptyNode(&node, graph, before, 2), CUDA_SUCCESS);
  EXPECT_EQ(node, client_handle<CUgraphNode>(101));

  world_.driver.cuGraphDestroyNode = [](CUgraphNode n) {
    EXPECT_EQ(n, driver_handle<CUgraphNode>(2));
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(client::impl::cuGraphDestroyNode(node), CUDA_SUCCESS);
  EXPECT_EQ(world_.session.objects.count({HandleType::graph_node, 101}), 0u);
  EXPECT_EQ(world_.dropped, std::vector<void*>{node});
}

TEST_F(Remoting, FailedCreationDropsTheMintedHandle) {
  world_.driver.cuGraphCreate = [](CUgraph*, unsigned int) { return CUDA_ERROR_OUT_OF_MEMORY; };
  CUgraph graph = nullptr;
  EXPECT_EQ(client::impl::cuGraphCreate(&graph, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(world_.dropped, std::vector<void*>{client_handle<CUgraph>(100)});
}

TEST_F(Remoting, AsyncFunctionsHaveNoReply) {
  world_.session.add<CUfunction>(HandleType::function, 5);
  world_.driver.cuFuncSetCacheConfig = [](CUfunction, CUfunc_cache config) {
    return config == CU_FUNC_CACHE_PREFER_L1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  const auto set = [&](CUfunc_cache config) {
    return client::impl::cuFuncSetCacheConfig(client_handle<CUfunction>(5), config);
  };
  EXPECT_EQ(set(CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
  EXPECT_EQ(world_.outcome.reply_bytes, 0u);
  EXPECT_EQ(world_.outcome.result, CUDA_SUCCESS);
  EXPECT_EQ(set(CU_FUNC_CACHE_PREFER_SHARED), CUDA_SUCCESS);
  EXPECT_EQ(world_.outcome.result, CUDA_ERROR_INVALID_VALUE) << "for a later call to report";
}

TEST_F(Remoting, MalformedRequestsAreViolations) {
  world_.driver.cuDeviceGetHostAtomicCapabilities = [](unsigned int*, const CUatomicOperation*,
                                                       unsigned int, CUdevice) {
    ADD_FAILURE() << "reached the driver";
    return CUDA_SUCCESS;
  };
  messages::cuDeviceGetHostAtomicCapabilities_request fixed = {};
  fixed.dev = 7;
  const auto send = [&](unsigned int count, size_t bytes) {
    alignas(kMessageAlignment) unsigned char request[256] = {};
    fixed.count = count;
    memcpy(request, &fixed, sizeof(fixed));
    const auto opcode = static_cast<uint16_t>(GeneratedOpcode::cuDeviceGetHostAtomicCapabilities);
    return std::string(deliver(opcode, request, bytes).violation);
  };
  const size_t fixed_bytes = align_message(sizeof(fixed));
  EXPECT_EQ(send(2, 0), "request too short");
  EXPECT_EQ(send(2, fixed_bytes - 1), "request too short");
  EXPECT_EQ(send(2, fixed_bytes), "array too short");
  EXPECT_EQ(send(3, fixed_bytes + 8), "array too short");
  EXPECT_EQ(send(2, fixed_bytes + 16), "request too long");
  EXPECT_EQ(send(0xFFFFFFFFu, fixed_bytes + 8), "length out of range");

  alignas(kMessageAlignment) unsigned char any[64] = {};
  EXPECT_STREQ(deliver(255, any, 64).violation, "unknown opcode");
  EXPECT_STREQ(deliver(0xFFFF, any, 64).violation, "unknown opcode");
  EXPECT_EQ(generated_opcode_name(255), nullptr);
  EXPECT_STREQ(generated_opcode_name(world_.last_opcode = kFirstGeneratedOpcode),
               "cuCtxResetPersistingL2Cache");
}

TEST_F(Remoting, EveryTruncationOfARealRequestIsRefused) {
  world_.driver.cuTensorMapEncodeTiled =
      [](CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
         const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
         CUtensorMapL2promotion, CUtensorMapFloatOOBfill) { return CUDA_SUCCESS; };
  const cuuint64_t dims[5] = {}, strides[4] = {};
  const cuuint32_t box[5] = {}, steps[5] = {};
  CUtensorMap map;
  ASSERT_EQ(client::impl::cuTensorMapEncodeTiled(
                &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 5, nullptr, dims, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            CUDA_SUCCESS);
  const std::vector<unsigned char> whole = world_.last_request;
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    // An allocation of exactly this size, so that a sanitizer sees reads beyond it.
    std::vector<unsigned char> part(whole.begin(), whole.begin() + static_cast<long>(bytes));
    EXPECT_NE(deliver(world_.last_opcode, part.data(), bytes).violation, nullptr) << bytes;
  }
}

}  // namespace
}  // namespace openmps
