// SPDX-License-Identifier: Apache-2.0
// See graph_params.h.
#include "client/session/graph_params.h"

#include <utility>

#include "client/context/work_check.h"
#include "client/session/launch_check.h"
#include "client/session/session.h"
#include "cuda/copies.h"
#include "cuda/versions.h"

namespace openmps::client {
CUresult read_node(Session& session, Context& current, const CUDA_KERNEL_NODE_PARAMS* parameters,
                   Work* work) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = &current;
  if (parameters->ctx != nullptr) {
    OPENMPS_CUDA_CHECK(session.contexts.look_up(parameters->ctx, &context));
  }
  const CUfunction handle = parameters->func != nullptr
                                ? parameters->func
                                : reinterpret_cast<CUfunction>(parameters->kern);
  const Function* function = session.modules.functions.find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A kernel of a library runs in the context that the parameters name. A function runs in the
  // current context if its module is of that context's device: an H200's driver ignores the named
  // context.
  if (parameters->func != nullptr) {
    Context* const owner = function->module->context;
    context = owner != nullptr && owner != current.owner() ? owner : &current;
  }
  // Only launches are told of clusters that the program has set as the function's own.
  for (const uint32_t blocks : set_clusters(*function)) {
    if (blocks > 1) return CUDA_ERROR_NOT_SUPPORTED;
  }
  const LaunchConfiguration config{
      {{parameters->gridDimX, parameters->gridDimY, parameters->gridDimZ},
       {parameters->blockDimX, parameters->blockDimY, parameters->blockDimZ},
       parameters->sharedMemBytes}};
  OPENMPS_CUDA_CHECK(check_launch(session, *context, *function, config));
  LaunchParameters packed;
  OPENMPS_CUDA_CHECK(
      choose_parameters(*function, parameters->kernelParams, parameters->extra, &packed));
  *work = kernel_work(*function, *context, config, packed);
  return CUDA_SUCCESS;
}

CUresult check_kernel_attribute(Session& session, const KernelWork& work,
                                const CUlaunchAttribute& attribute) {
  const Function* function = session.modules.functions.find(work.function);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(session.contexts.look_up(work.context, &context));
  LaunchConfiguration config{work.shape, {&attribute, 1}};
  config.flags = 0;
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
    const auto& cluster = attribute.value.clusterDim;
    config.cluster = {cluster.x, cluster.y, cluster.z};
  }
  return check_launch(session, *context, *function, config);
}

CUresult read_node(Session& session, Context& context, const CUDA_MEMCPY3D* parameters,
                   Work* work) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyWork copy;
  copy.parameters = *parameters;
  OPENMPS_CUDA_CHECK(session.places.read(context, *parameters, &copy));
  if (copy.box.empty()) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(session.places.check(copy));
  *work = copy;
  return CUDA_SUCCESS;
}

CUresult read_node(Session& session, Context&, const CUDA_MEMSET_NODE_PARAMS* parameters,
                   Work* work) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(check_fill(session.places, *parameters));
  *work = FillWork{*parameters};
  return CUDA_SUCCESS;
}

CUresult read_node(Session&, Context&, const CUDA_HOST_NODE_PARAMS* parameters, Work* work) {
  if (parameters == nullptr || parameters->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *work = HostWork{*parameters};
  return CUDA_SUCCESS;
}

namespace {

template <typename EventWork>
CUresult read_event(const Session& session, const EventWork& named, Work* work) {
  if (named.event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (session.events.find(named.event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *work = named;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult read_node(Session& session, Context&, const CUDA_EVENT_RECORD_NODE_PARAMS* parameters,
                   Work* work) {
  return read_event(session, RecordWork{parameters->event}, work);
}

CUresult read_node(Session& session, Context&, const CUDA_EVENT_WAIT_NODE_PARAMS* parameters,
                   Work* work) {
  return read_event(session, WaitWork{parameters->event}, work);
}

CUresult read_node(Session&, Context&, const CUDA_MEM_FREE_NODE_PARAMS* parameters, Work* work) {
  *work = FreeWork{parameters->dptr};
  return CUDA_SUCCESS;
}

CUresult read_node(Session&, Context&, const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters,
                   Work* work) {
  if (parameters == nullptr || parameters->ctx == nullptr ||
      (parameters->count != 0 && parameters->paramArray == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const ValueOperations operations(parameters->paramArray, parameters->count);
  OPENMPS_CUDA_CHECK(check_values(operations, parameters->flags));
  *work = WordsWork{parameters->ctx, {operations.begin(), operations.end()}, 0};
  return CUDA_SUCCESS;
}

CUresult read_node(Session& session, Context&, CUDA_MEM_ALLOC_NODE_PARAMS* parameters, Work* work) {
  if (parameters == nullptr || parameters->bytesize == 0 ||
      parameters->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      parameters->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // CUDA documents that memory of graphs can't be exported.
  if (parameters->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  const CUdevice device = parameters->poolProps.location.id;
  if (!session.valid_device(device)) return CUDA_ERROR_INVALID_VALUE;
  AllocationWork allocation;
  OPENMPS_CUDA_CHECK(session.graph_memory.allocate(*session.contexts.primary[device],
                                                   parameters->bytesize, &allocation.block));
  parameters->dptr = allocation.block->entry.base;
  allocation.parameters = *parameters;
  allocation.parameters.accessDescs = nullptr;  // the program's array
  allocation.parameters.accessDescCount = 0;
  *work = std::move(allocation);
  return CUDA_SUCCESS;
}

CUresult read_node(Session& session, Context& context, CUgraphNodeParams* parameters, Work* work) {
  const auto read = [&](const auto& node) { return read_node(session, context, &node, work); };
  switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return read(cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(parameters->kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY: return read(parameters->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return read(cuda::as_version<CUDA_MEMSET_NODE_PARAMS>(parameters->memset));
    case CU_GRAPH_NODE_TYPE_HOST:
      return read(cuda::as_version<CUDA_HOST_NODE_PARAMS>(parameters->host));
    case CU_GRAPH_NODE_TYPE_EMPTY: *work = Work(); return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return read(parameters->eventRecord);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return read(parameters->eventWait);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return read(cuda::as_version<CUDA_BATCH_MEM_OP_NODE_PARAMS>(parameters->memOp));
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      auto allocation = cuda::as_version<CUDA_MEM_ALLOC_NODE_PARAMS>(parameters->alloc);
      OPENMPS_CUDA_CHECK(read_node(session, context, &allocation, work));
      parameters->alloc.dptr = allocation.dptr;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return read(parameters->free);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// ---- Conversions after the checks ---------------------------------------------------------------

KernelWork kernel_work(const Function& function, const Context& context,
                       const LaunchConfiguration& config, const LaunchParameters& parameters) {
  KernelWork kernel;
  kernel.function = function.as<CUfunction>();
  kernel.context = context.as<CUcontext>();
  kernel.shape = static_cast<const LaunchShape&>(config);
  kernel.parameters.resize(parameters.bytes);
  pack_parameters(function, parameters, reinterpret_cast<unsigned char*>(kernel.parameters.data()));
  for (const CUlaunchAttribute& attribute : config.attributes) {
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      kernel.attributes.push_back(attribute);
    } else if (attribute.value.programmaticStreamSerializationAllowed != 0) {
      kernel.programmatic = true;
    }
  }
  return kernel;
}

CopyWork copy_work(const Copy& copy) {
  const Box& box = copy.box;
  const auto named = [&box](const Side& side) {
    cuda::CopySide made{
        .pitch = box.height > 1 || box.depth > 1 ? side.pitch : 0,
        .rows = box.depth > 1 && side.pitch != 0 ? side.slice / side.pitch : box.height};
    if (side.place == Place::kArray) {
      made.type = CU_MEMORYTYPE_ARRAY;
      made.array = side.array->as<CUarray>();
      made.x = side.x;
      made.y = side.y;
      made.z = side.z;
    } else {
      made.type = side.place == Place::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      made.address = side.address;
    }
    return made;
  };
  return {copy, cuda::copy_between(named(copy.destination), named(copy.source),
                                   {box.width, box.height, box.depth})};
}

void write_kernel(const Session& session, KernelWork& work, CUDA_KERNEL_NODE_PARAMS* parameters) {
  work.pointers.clear();
  *parameters = CUDA_KERNEL_NODE_PARAMS{};
  parameters->func = work.function;
  if (const Function* function = session.modules.functions.find(work.function)) {
    for (const wire::ParameterLayout& parameter : function->parameters) {
      work.pointers.push_back(work.parameters.data() + parameter.offset);
    }
    // As on an H200, a kernel of a library has both handles, however the node was made: the CUDA
    // runtime knows functions by their CUkernel.
    if (function->module->kind == wire::ModuleKind::kLibrary) {
      parameters->kern = function->as<CUkernel>();
    }
  }
  parameters->ctx = work.context;
  const LaunchShape& shape = work.shape;
  parameters->gridDimX = shape.grid[0];
  parameters->gridDimY = shape.grid[1];
  parameters->gridDimZ = shape.grid[2];
  parameters->blockDimX = shape.block[0];
  parameters->blockDimY = shape.block[1];
  parameters->blockDimZ = shape.block[2];
  parameters->sharedMemBytes = shape.shared_bytes;
  parameters->kernelParams = work.pointers.empty() ? nullptr : work.pointers.data();
}

}  // namespace openmps::client
