// SPDX-License-Identifier: Apache-2.0
// See managed_variables.h.
#include "client/managed_variables.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "api/client_impl.h"
#include "client/debug.h"
#include "client/module.h"
#include "client/stream.h"
#include "client/thread_state.h"
#include "client/transfer.h"
#include "client/versions.h"

namespace openmps::client {
namespace {

constexpr uint64_t kPageBytes = 4096;
// What is read back at once: it stays in a cache while it is compared.
constexpr size_t kFetchBytes = 4 << 20;

// The copies below are made with what also calls send() and fetch().
class Inside {
 public:
  Inside() : before_(this_thread().in_managed_copy) { this_thread().in_managed_copy = true; }
  ~Inside() { this_thread().in_managed_copy = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const bool before_;
};

// A context for the copies if the thread has none: the runtime asks for variables before it has
// one.
class SomeContext {
 public:
  explicit SomeContext(Session& session) {
    Context* current = nullptr;
    if (current_context(session, &current) == CUDA_SUCCESS) return;
    result_ = impl::cuDevicePrimaryCtxRetain(&borrowed_, 0);
    if (result_ == CUDA_SUCCESS) result_ = impl::cuCtxPushCurrent_v2(borrowed_);
  }
  ~SomeContext() {
    if (borrowed_ == nullptr) return;
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) static_cast<void>(impl::cuCtxPopCurrent_v2(&popped));
    static_cast<void>(impl::cuDevicePrimaryCtxRelease_v2(0));
  }
  SomeContext(const SomeContext&) = delete;
  SomeContext& operator=(const SomeContext&) = delete;
  [[nodiscard]] CUresult result() const { return result_; }

 private:
  CUcontext borrowed_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
};

Side on_device(uint64_t address) { return {.address = address, .place = Place::kDevice}; }
Side here(const std::byte* bytes) {
  return {.address = reinterpret_cast<uint64_t>(bytes), .place = Place::kPageable};
}

}  // namespace

// Variables of one image share pages: the first one brings them.
CUresult ManagedVariables::give_pages(Variable* variable) {
  const uint64_t end = variable->address + variable->known.size();
  uint64_t page = variable->address / kPageBytes * kPageBytes;
  const auto is_there = [this](uint64_t address) {
    return std::any_of(variables_.begin(), variables_.end(), [address](const Variable& other) {
      return std::any_of(other.pages.begin(), other.pages.end(), [address](const Mapping& pages) {
        const auto begin = reinterpret_cast<uint64_t>(pages.address());
        return address >= begin && address - begin < pages.bytes();
      });
    });
  };
  while (page < end) {
    uint64_t run = 0;
    while (page + run < end && !is_there(page + run)) run += kPageBytes;
    if (run != 0) {
      Result<Mapping> pages = reserve_addresses(page, run);
      if (!pages.ok() || mprotect(pages->address(), run, PROT_READ | PROT_WRITE) != 0) {
        debug_line("a managed variable at %#lx: the address is in use in this process",
                   static_cast<unsigned long>(variable->address));
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
      variable->pages.push_back(std::move(pages).value());
    }
    page += run + kPageBytes;
  }
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::own_stream(Session& session, Stream** stream) {
  *stream = session.streams.find(stream_);
  if (*stream != nullptr) return CUDA_SUCCESS;
  OPENMPS_CUDA_CHECK(impl::cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  *stream = session.streams.find(stream_);
  return *stream != nullptr ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult ManagedVariables::add(Session& session, const Module* module, uint64_t address,
                               uint64_t bytes) {
  const Inside inside;
  const std::lock_guard lock(lock_);
  for (const Variable& variable : variables_) {
    if (variable.address == address) return CUDA_SUCCESS;
  }
  const SomeContext context(session);
  OPENMPS_CUDA_CHECK(context.result());
  Variable variable{module, address, std::vector<std::byte>(bytes), {}};
  OPENMPS_CUDA_CHECK(give_pages(&variable));
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(own_stream(session, &stream));
  OPENMPS_CUDA_CHECK(fetch_locked(session, *stream, variable));
  variables_.push_back(std::move(variable));
  any_.store(true, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

void ManagedVariables::remove(const Module* module) {
  if (!any()) return;
  const std::lock_guard lock(lock_);
  std::erase_if(variables_, [module](const Variable& one) { return one.module == module; });
  any_.store(!variables_.empty(), std::memory_order_relaxed);
}

bool ManagedVariables::contains(uint64_t address) const {
  if (!any()) return false;
  const std::lock_guard lock(lock_);
  return std::any_of(variables_.begin(), variables_.end(), [address](const Variable& variable) {
    return address >= variable.address && address - variable.address < variable.known.size();
  });
}

CUresult ManagedVariables::send(Session& session, Stream& stream) {
  if (this_thread().in_managed_copy) return CUDA_SUCCESS;
  const Inside inside;
  const std::lock_guard lock(lock_);
  for (Variable& variable : variables_) {
    std::byte* known = variable.known.data();
    for (const auto& [first, end] : changed_runs(variable.here(), known, variable.known.size())) {
      memcpy(known + first, variable.here() + first, end - first);
      OPENMPS_CUDA_CHECK(transfer(
          session, stream,
          {on_device(variable.address + first), here(known + first), {.width = end - first}},
          false));
    }
  }
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::fetch_locked(Session& session, Stream& stream, Variable& variable) {
  const size_t bytes = variable.known.size();
  fresh_.resize(std::max(fresh_.size(), std::min(bytes, kFetchBytes)));
  for (size_t at = 0; at < bytes; at += kFetchBytes) {
    const size_t length = std::min(kFetchBytes, bytes - at);
    OPENMPS_CUDA_CHECK(
        transfer(session, stream,
                 {here(fresh_.data()), on_device(variable.address + at), {.width = length}}, true));
    take_over(variable.here() + at, variable.known.data() + at, fresh_.data(), length);
  }
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::fetch(Session& session) {
  if (this_thread().in_managed_copy) return CUDA_SUCCESS;
  const Inside inside;
  const std::lock_guard lock(lock_);
  const SomeContext context(session);
  OPENMPS_CUDA_CHECK(context.result());
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(own_stream(session, &stream));
  for (Variable& variable : variables_) {
    OPENMPS_CUDA_CHECK(fetch_locked(session, *stream, variable));
  }
  return CUDA_SUCCESS;
}

CUresult synchronised(Session& session, CUresult result) {
  return session.managed.fetch_after(session, session.output.show(result));
}

}  // namespace openmps::client
