// SPDX-License-Identifier: Apache-2.0
// See reserve.h.
#include "client/session/reserve.h"

#include <atomic>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "api/client_hooks.h"
#include "client/debug.h"
#include "client/link/host_function.h"

namespace openmps::client {

namespace {

constinit std::atomic<void*> g_for_calls{nullptr};
constinit std::atomic<void*> g_for_returns{nullptr};
// The call that this thread executes releases memory.
constinit thread_local bool t_returns = false;

bool give_up(std::atomic<void*>& piece) {
  void* given = piece.exchange(nullptr, std::memory_order_acq_rel);
  free(given);
  return given != nullptr;
}

// The new handler: operator new calls it when malloc has failed, and tries again when it returns.
void out_of_memory() {
  g_attention.fetch_or(kMemoryIsShort, std::memory_order_relaxed);
  if (give_up(g_for_calls)) return;
  if (t_returns && give_up(g_for_returns)) return;
  throw std::bad_alloc();
}

bool set_aside(std::atomic<void*>& piece) {
  if (piece.load(std::memory_order_acquire) != nullptr) return true;
  // Not by operator new, whose handler would free the other block for it.
  void* made = malloc(kReserveBytes);
  if (made == nullptr) return false;
  void* none = nullptr;
  if (!piece.compare_exchange_strong(none, made, std::memory_order_acq_rel)) free(made);
  return true;
}

// Calls that destroy or free something, and calls by which a program reports an error. They need
// little memory or none.
constexpr std::string_view kReleasing[] = {"cuArrayDestroy",
                                           "cuCtxDestroy",
                                           "cuCtxDestroy_v2",
                                           "cuCtxDetach",
                                           "cuDevicePrimaryCtxRelease",
                                           "cuDevicePrimaryCtxRelease_v2",
                                           "cuDevicePrimaryCtxReset",
                                           "cuDevicePrimaryCtxReset_v2",
                                           "cuEventDestroy",
                                           "cuEventDestroy_v2",
                                           "cuGetErrorName",
                                           "cuGetErrorString",
                                           "cuGraphDestroy",
                                           "cuGraphDestroyNode",
                                           "cuGraphExecDestroy",
                                           "cuGraphReleaseUserObject",
                                           "cuGreenCtxDestroy",
                                           "cuIpcCloseMemHandle",
                                           "cuLibraryUnload",
                                           "cuLinkDestroy",
                                           "cuMemAddressFree",
                                           "cuMemFree",
                                           "cuMemFree_v2",
                                           "cuMemFreeAsync",
                                           "cuMemFreeHost",
                                           "cuMemHostUnregister",
                                           "cuMemPoolDestroy",
                                           "cuMemRelease",
                                           "cuMemUnmap",
                                           "cuMipmappedArrayDestroy",
                                           "cuModuleUnload",
                                           "cuStreamDestroy",
                                           "cuStreamDestroy_v2",
                                           "cuSurfObjectDestroy",
                                           "cuTexObjectDestroy",
                                           "cuUserObjectRelease"};

}  // namespace

void set_memory_aside() {
  if (!set_aside(g_for_calls) || !set_aside(g_for_returns)) {
    g_attention.fetch_or(kMemoryIsShort, std::memory_order_relaxed);
  }
  std::set_new_handler(out_of_memory);
}

// ---- Hooks --------------------------------------------------------------------------------------

CUresult before_call(DriverSymbol symbol) {
  t_returns = false;
  const uint32_t attention = g_attention.load(std::memory_order_relaxed);
  if ((attention & kExiting) != 0) return CUDA_ERROR_DEINITIALIZED;
  if (const CUresult result = check_host_function(symbol); result != CUDA_SUCCESS) return result;
  if ((attention & kMemoryIsShort) == 0) return CUDA_SUCCESS;
  if (set_aside(g_for_calls) && set_aside(g_for_returns)) {
    g_attention.fetch_and(~static_cast<uint32_t>(kMemoryIsShort), std::memory_order_relaxed);
    return CUDA_SUCCESS;
  }
  t_returns = is_any_of(symbol, kReleasing);
  if (t_returns) return CUDA_SUCCESS;
  explain_failure("this process has no memory left");
  call_failed(symbol, CUDA_ERROR_OUT_OF_MEMORY);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult result_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::length_error&) {  // a container larger than the address space
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::system_error&) {  // a mutex or a thread
    return CUDA_ERROR_OPERATING_SYSTEM;
  } catch (...) {  // of a function of the program's
    return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace openmps::client
