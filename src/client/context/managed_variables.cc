// SPDX-License-Identifier: Apache-2.0
// See managed_variables.h.
#include "client/context/managed_variables.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/mutex.h"
#include "client/check.h"
#include "client/debug.h"
#include "client/versions.h"

namespace openmps::client {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Of one copy back: small enough to be in a cache while it is compared.
constexpr size_t kFetchBytes = 4 << 20;

Side of_device(uint64_t address) { return {.address = address, .place = Place::kDevice}; }
Side here(const std::byte* bytes) {
  return {.address = reinterpret_cast<uint64_t>(bytes), .place = Place::kPageable};
}

}  // namespace

// Maps the pages that are not mapped yet: variables of one image may lie in the same page.
CUresult ManagedVariables::give_pages(Variable* variable) {
  const uint64_t end = variable->address + variable->known.size();
  uint64_t page = variable->address / kPageBytes * kPageBytes;
  const auto is_there = [this](uint64_t address) REQUIRES(lock_) {
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

CUresult ManagedVariables::own_stream(Stream** stream) {
  *stream = streams_.find(stream_);
  if (*stream != nullptr) return CUDA_SUCCESS;
  // The CUDA runtime looks variables up before it makes a context current.
  Context* context = nullptr;
  if (contexts_.current(&context) != CUDA_SUCCESS) context = contexts_.primary[0];
  OPENMPS_CUDA_CHECK(
      streams_.create(*context, wire::StreamKind::kNonBlocking, CU_STREAM_NON_BLOCKING, 0, stream));
  stream_ = (*stream)->handle;
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::add(const Module* module, uint64_t address, uint64_t bytes) {
  const MutexLock lock(lock_);
  for (const Variable& variable : variables_) {
    if (variable.address == address) return CUDA_SUCCESS;
  }
  Variable variable{module, address, std::vector<std::byte>(bytes), {}};
  OPENMPS_CUDA_CHECK(give_pages(&variable));
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(own_stream(&stream));
  OPENMPS_CUDA_CHECK(fetch_locked(*stream, variable));
  variables_.push_back(std::move(variable));
  any_.store(true, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

void ManagedVariables::remove(const Module* module) {
  if (!any()) return;
  const MutexLock lock(lock_);
  std::erase_if(variables_, [module](const Variable& one) { return one.module == module; });
  any_.store(!variables_.empty(), std::memory_order_relaxed);
}

bool ManagedVariables::contains(uint64_t address) const {
  if (!any()) return false;
  const MutexLock lock(lock_);
  return std::any_of(variables_.begin(), variables_.end(), [address](const Variable& variable) {
    return address >= variable.address && address - variable.address < variable.known.size();
  });
}

CUresult ManagedVariables::send(Stream& stream) {
  const MutexLock lock(lock_);
  for (Variable& variable : variables_) {
    std::byte* known = variable.known.data();
    for (const auto& [first, end] : changed_runs(variable.here(), known, variable.known.size())) {
      memcpy(known + first, variable.here() + first, end - first);
      OPENMPS_CUDA_CHECK(transfers_.copy(
          stream,
          {of_device(variable.address + first), here(known + first), {.width = end - first}},
          false));
    }
  }
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::fetch_locked(Stream& stream, Variable& variable) {
  const size_t bytes = variable.known.size();
  fresh_.resize(std::max(fresh_.size(), std::min(bytes, kFetchBytes)));
  for (size_t at = 0; at < bytes; at += kFetchBytes) {
    const size_t length = std::min(kFetchBytes, bytes - at);
    OPENMPS_CUDA_CHECK(transfers_.copy(
        stream, {here(fresh_.data()), of_device(variable.address + at), {.width = length}}, true));
    take_over(variable.here() + at, variable.known.data() + at, fresh_.data(), length);
  }
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::fetch() {
  const MutexLock lock(lock_);
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(own_stream(&stream));
  for (Variable& variable : variables_) {
    OPENMPS_CUDA_CHECK(fetch_locked(*stream, variable));
  }
  return CUDA_SUCCESS;
}

}  // namespace openmps::client
