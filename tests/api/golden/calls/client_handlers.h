// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// The handlers behind the implementations that begin as their description's `enter`
// says (client_calls.cc): written by hand in src/client, with what has been found and
// checked. Those with graphs, their nodes or executable graphs hold the lock of graphs,
// unless they have a stream.
#pragma once

#include "api/client_impl.h"

namespace openmps::client {

struct Array;
struct Context;
struct Event;
struct Function;
struct Graph;
struct GraphExec;
struct GraphNode;
struct GreenContext;
struct Link;
struct MemoryPool;
struct MipmappedArray;
struct Module;
struct PhysicalMemory;
struct Session;
struct Stream;
struct UserObject;

namespace impl {

CUresult cuEventElapsedTime(Session& session, float* pMilliseconds, Event& event, Event& hEnd);
CUresult cuGraphGetNodes(Session& session, Graph& hGraph, CUgraphNode after, CUgraphNode* nodes,
    size_t* numNodes);
CUresult cuGraphLaunch(Session& session, GraphExec& hGraph, Stream& hStream);
CUresult cuMemPoolTrimTo(Session& session, MemoryPool& pool, size_t minBytesToKeep);
CUresult cuMemPrefetchAsync(Session& session, CUdeviceptr devPtr, Stream& hStream);
CUresult cuMemcpyPeer(Session& session, Context& dstContext, Context& srcContext);
CUresult cuStreamCreateWithPriority(Session& session, Context& context, CUstream* phStream,
    unsigned int flags, int priority);

}  // namespace impl
}  // namespace openmps::client
