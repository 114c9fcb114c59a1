// SPDX-License-Identifier: Apache-2.0
// Two processes, behind one server if any, that share memory and events: an exporter and an
// importer, made by fork() before cuInit and connected by a socket. Run by run_e2e.py. usage:
// drv_ipc
// memory|free|killed|events|distant_events|graphs|descriptor|descriptor_killed|pool|errors|limit
// [DOMAIN of the importer]
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGranule = 2 * kMiB;
constexpr size_t kWords = 3 * kMiB / 4;

// One end of the socket between the two processes.
class Peer {
 public:
  explicit Peer(int socket) : socket_(socket) {}

  template <typename T>
  void send(const T& value, int descriptor = -1) const {
    iovec part{const_cast<T*>(&value), sizeof(T)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    if (sendmsg(socket_, &message, 0) != static_cast<ssize_t>(sizeof(T))) exit(3);
  }
  template <typename T>
  T receive(int* descriptor = nullptr) const {
    T value{};
    iovec part{&value, sizeof(T)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(socket_, &message, 0) != static_cast<ssize_t>(sizeof(T))) exit(4);
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (descriptor != nullptr && header != nullptr) {
      memcpy(descriptor, CMSG_DATA(header), sizeof(int));
    }
    return value;
  }
  // Waits until the other process has reached this point, too.
  void meet() const {
    send('m');
    static_cast<void>(receive<char>());
  }

 private:
  int socket_;
};

std::vector<uint32_t> pattern(size_t words, uint32_t key) {
  std::vector<uint32_t> data(words);
  for (size_t i = 0; i < words; ++i) data[i] = static_cast<uint32_t>(i) * 2654435761u + key;
  return data;
}

std::vector<uint32_t> read_words(CUdeviceptr address, size_t words) {
  std::vector<uint32_t> data(words);
  CHECK_CU(cuMemcpyDtoH_v2(data.data(), address, words * 4));
  return data;
}

void mix(const e2e::Session& session, CUdeviceptr address, size_t words, uint32_t key) {
  e2e::launch(session.function("mix"), e2e::blocks_for(words, 128), 128, 0, nullptr, address,
              static_cast<uint32_t>(words), key);
  CHECK_CU(cuCtxSynchronize());
}

// Needed before another process reads copied data: a copy from pageable memory returns once its
// source may be reused, and only later work of its own context waits for it.
void publish() { CHECK_CU(cuCtxSynchronize()); }

CUdeviceptr open_memory(const CUipcMemHandle& handle) {
  CUdeviceptr address = 0;
  CHECK_CU(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return address;
}

// ---- Memory: a large allocation and a small one ------------------------------------------------

void memory_exporter(const e2e::Session& session, const Peer& peer) {
  e2e::Buffer<uint32_t> large(pattern(kWords, 1));
  e2e::Buffer<uint32_t> small(pattern(300, 2));
  publish();
  for (const e2e::Buffer<uint32_t>* buffer : {&large, &small}) {
    CUipcMemHandle handle;
    CUipcMemHandle again;
    CHECK_CU(cuIpcGetMemHandle(&handle, buffer->address));
    CHECK_CU(cuIpcGetMemHandle(&again, buffer->address));
    expect(memcmp(&handle, &again, sizeof(handle)) == 0, "the handle stays the same");
    peer.send(handle);
  }
  peer.meet();  // the importer has changed both
  std::vector<uint32_t> expected = pattern(kWords, 1);
  e2e::mix_on_host(expected, 77);
  expect(large.get() == expected, "the exporter sees what the importer's kernel wrote");
  expect(small.get() == pattern(300, 5), "and what its copy wrote");
  mix(session, large.address, kWords, 78);
  peer.meet();
  peer.meet();  // closed
}

void memory_importer(const e2e::Session& session, const Peer& peer) {
  const auto large_handle = peer.receive<CUipcMemHandle>();
  const auto small_handle = peer.receive<CUipcMemHandle>();
  const CUdeviceptr large = open_memory(large_handle);
  const CUdeviceptr small = open_memory(small_handle);
  expect(read_words(large, kWords) == pattern(kWords, 1), "the large allocation's contents");
  expect(read_words(small, 300) == pattern(300, 2), "the small allocation's contents");
  expect(open_memory(large_handle) == large, "opened again it is at the same address");
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CHECK_CU(cuMemGetAddressRange_v2(&base, &bytes, large + 400));
  expect(base == large && bytes == kWords * 4, "its range is the allocation's");
  expect_result("a copy beyond it", cuMemsetD32_v2(small, 0, 301), CUDA_ERROR_INVALID_VALUE);
  expect_result("cuMemFree of it", cuMemFree_v2(large), CUDA_ERROR_INVALID_VALUE);
  mix(session, large, kWords, 77);
  const std::vector<uint32_t> changed = pattern(300, 5);
  CHECK_CU(cuMemcpyHtoD_v2(small, changed.data(), 1200));
  publish();
  peer.meet();
  peer.meet();  // the exporter has changed it back
  std::vector<uint32_t> expected = pattern(kWords, 1);
  e2e::mix_on_host(expected, 77);
  e2e::mix_on_host(expected, 78);
  expect(read_words(large, kWords) == expected, "the importer sees what the exporter wrote");
  CHECK_CU(cuIpcCloseMemHandle(large));
  expect(read_words(large, 1)[0] == expected[0], "still open once");
  CHECK_CU(cuIpcCloseMemHandle(large));
  uint32_t word = 0;
  expect_result("read what is closed", cuMemcpyDtoH_v2(&word, large, 4), CUDA_ERROR_INVALID_VALUE);
  expect_result("close it again", cuIpcCloseMemHandle(large), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuIpcCloseMemHandle(small));
  peer.meet();
}

// ---- The importer keeps the memory when the exporter frees it or dies --------------------------

void free_exporter(const e2e::Session&, const Peer& peer) {
  CUipcMemHandle handle;
  {
    e2e::Buffer<uint32_t> buffer(pattern(kWords, 3));
    publish();
    CHECK_CU(cuIpcGetMemHandle(&handle, buffer.address));
    peer.send(handle);
    peer.meet();  // the importer has opened the memory
  }
  e2e::Buffer<uint32_t> next(pattern(kWords, 4));  // must not get the memory that the importer uses
  peer.send(handle);
  peer.meet();
}

void free_importer(const e2e::Session& session, const Peer& peer) {
  const CUdeviceptr address = open_memory(peer.receive<CUipcMemHandle>());
  peer.meet();
  const auto stale = peer.receive<CUipcMemHandle>();
  expect(read_words(address, kWords) == pattern(kWords, 3), "freed by its owner, still there");
  mix(session, address, kWords, 1);
  CHECK_CU(cuIpcCloseMemHandle(address));
  CUdeviceptr again = 0;
  expect_result("open what was freed",
                cuIpcOpenMemHandle_v2(&again, stale, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                CUDA_ERROR_INVALID_HANDLE);
  peer.meet();
}

// The exporter waits to be killed.
void killed_exporter(const e2e::Session&, const Peer& peer) {
  e2e::Buffer<uint32_t> buffer(pattern(kWords, 6));
  publish();
  CUipcMemHandle handle;
  CHECK_CU(cuIpcGetMemHandle(&handle, buffer.address));
  peer.send(handle);
  for (;;) pause();
}

void kill_exporter(pid_t exporter) {
  kill(exporter, SIGKILL);
  int status = 0;
  waitpid(exporter, &status, 0);
}

void killed_importer(const e2e::Session& session, const Peer& peer, pid_t exporter) {
  const auto handle = peer.receive<CUipcMemHandle>();
  const CUdeviceptr address = open_memory(handle);
  kill_exporter(exporter);
  // The exporter's session ends some time after the process. From then on the handle can't be
  // opened any more; until then it opens memory that still exists.
  expect(read_words(address, kWords) == pattern(kWords, 6), "its owner is dead, still there");
  for (int round = 0; round < 20; ++round) {
    e2e::Buffer<uint32_t> other(pattern(kWords, 9));
    mix(session, address, kWords, static_cast<uint32_t>(round));
    usleep(20'000);
  }
  std::vector<uint32_t> expected = pattern(kWords, 6);
  for (uint32_t round = 0; round < 20; ++round) e2e::mix_on_host(expected, round);
  expect(read_words(address, kWords) == expected, "and works on while the owner's session ends");
  CHECK_CU(cuIpcCloseMemHandle(address));
}

// ---- Events ------------------------------------------------------------------------------------

void events_exporter(const e2e::Session& session, const Peer& peer) {
  e2e::Buffer<uint32_t> words(pattern(kWords, 1));
  e2e::Buffer<uint32_t> busy(1);
  publish();
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent ready = nullptr;
  CHECK_CU(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  CUipcEventHandle event_handle;
  CUipcMemHandle memory_handle;
  CHECK_CU(cuIpcGetEventHandle(&event_handle, ready));
  CHECK_CU(cuIpcGetMemHandle(&memory_handle, words.address));
  peer.send(event_handle);
  peer.send(memory_handle);
  for (uint32_t round = 0; round < 5; ++round) {
    peer.meet();
    e2e::launch(session.function("spin"), 1, 32, 0, stream, busy.address, 200000u);
    e2e::launch(session.function("mix"), e2e::blocks_for(kWords, 128), 128, 0, stream,
                words.address, static_cast<uint32_t>(kWords), round);
    CHECK_CU(cuEventRecord(ready, stream));
    peer.meet();  // recorded; the importer's work waits for it
    peer.meet();  // the importer has recorded the event itself
    CHECK_CU(cuEventSynchronize(ready));
    expect(cuEventQuery(ready) == CUDA_SUCCESS, "the exporter waits for the importer's record");
    std::vector<uint32_t> got = words.get();
    std::vector<uint32_t> expected = pattern(kWords, 1);
    for (uint32_t i = 0; i <= round; ++i) {
      e2e::mix_on_host(expected, i);
      e2e::mix_on_host(expected, 100 + i);
    }
    expect(got == expected, "round %u in order", round);
  }
  peer.meet();
  CHECK_CU(cuEventDestroy_v2(ready));
  CHECK_CU(cuStreamDestroy_v2(stream));
}

// `mix` is the kernel of the current device.
void events_importer(CUfunction mix, const Peer& peer) {
  CUevent ready = nullptr;
  CHECK_CU(cuIpcOpenEventHandle(&ready, peer.receive<CUipcEventHandle>()));
  const CUdeviceptr words = open_memory(peer.receive<CUipcMemHandle>());
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (uint32_t round = 0; round < 5; ++round) {
    peer.meet();
    peer.meet();
    CHECK_CU(cuStreamWaitEvent(stream, ready, 0));
    e2e::launch(mix, e2e::blocks_for(kWords, 128), 128, 0, stream, words,
                static_cast<uint32_t>(kWords), 100 + round);
    CHECK_CU(cuEventRecord(ready, stream));
    peer.meet();
  }
  CUipcEventHandle handle;
  float ms = 0;
  expect_result("time between events without times", cuEventElapsedTime_v2(&ms, ready, ready),
                CUDA_ERROR_INVALID_HANDLE);
  expect_result("the handle of an opened event", cuIpcGetEventHandle(&handle, ready),
                {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE});
  CHECK_CU(cuEventDestroy_v2(ready));
  CHECK_CU(cuStreamDestroy_v2(stream));
  CHECK_CU(cuIpcCloseMemHandle(words));
  peer.meet();
}

// The event was created on another device, and is recorded on this one as well.
void distant_events_importer(const Peer& peer) {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction mix = nullptr;
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 1));
  CHECK_CU(cuCtxPushCurrent_v2(context));
  CHECK_CU(cuModuleLoadData(&module, e2e::kernels_ptx()));
  CHECK_CU(cuModuleGetFunction(&mix, module, "mix"));
  events_importer(mix, peer);
  CHECK_CU(cuModuleUnload(module));
  CHECK_CU(cuCtxPopCurrent_v2(&context));
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(1));
}

// ---- Events in graphs --------------------------------------------------------------------------

constexpr uint32_t kGraphRounds = 5;

// A graph of the work that `work` gives a capturing stream.
template <typename Work>
CUgraphExec captured(CUstream stream, Work&& work) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  work();
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CU(cuGraphDestroy(graph));
  return exec;
}

// Each launch of the exporter's graph runs `mix` and records the event; each launch of the
// importer's graph waits for the event and runs `mix`.
void graphs_exporter(const e2e::Session& session, const Peer& peer) {
  e2e::Buffer<uint32_t> words(pattern(kWords, 1));
  e2e::Buffer<uint32_t> busy(1);
  publish();
  CUstream stream = nullptr;
  CUevent ready = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  CUipcEventHandle event_handle;
  CUipcMemHandle memory_handle;
  CHECK_CU(cuIpcGetEventHandle(&event_handle, ready));
  CHECK_CU(cuIpcGetMemHandle(&memory_handle, words.address));
  peer.send(event_handle);
  peer.send(memory_handle);
  const CUgraphExec exec = captured(stream, [&] {
    e2e::launch(session.function("spin"), 1, 32, 0, stream, busy.address, 200000u);
    e2e::launch(session.function("mix"), e2e::blocks_for(kWords, 128), 128, 0, stream,
                words.address, static_cast<uint32_t>(kWords), 7u);
    CHECK_CU(cuEventRecordWithFlags(ready, stream, CU_EVENT_RECORD_EXTERNAL));
  });
  std::vector<uint32_t> expected = pattern(kWords, 1);
  for (uint32_t round = 0; round < kGraphRounds; ++round) {
    CHECK_CU(cuGraphLaunch(exec, stream));
    peer.meet();  // launched; the importer's work waits for it
    peer.meet();  // the importer is done
    e2e::mix_on_host(expected, 7);
    e2e::mix_on_host(expected, 9);
    expect(words.get() == expected, "round %u in order", round);
  }
  // A record of all streams of the context, for which all streams of the importer's context wait.
  e2e::launch(session.function("spin"), 1, 32, 0, stream, busy.address, 200000u);
  e2e::launch(session.function("mix"), e2e::blocks_for(kWords, 128), 128, 0, stream, words.address,
              static_cast<uint32_t>(kWords), 8u);
  CHECK_CU(cuCtxRecordEvent(session.context, ready));
  peer.meet();
  peer.meet();
  e2e::mix_on_host(expected, 8);
  e2e::mix_on_host(expected, 10);
  expect(words.get() == expected, "contexts in order");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuEventDestroy_v2(ready));
  CHECK_CU(cuStreamDestroy_v2(stream));
}

void graphs_importer(const e2e::Session& session, const Peer& peer) {
  CUevent ready = nullptr;
  CUstream stream = nullptr;
  CHECK_CU(cuIpcOpenEventHandle(&ready, peer.receive<CUipcEventHandle>()));
  const CUdeviceptr words = open_memory(peer.receive<CUipcMemHandle>());
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto mix_in_stream = [&](uint32_t key) {
    e2e::launch(session.function("mix"), e2e::blocks_for(kWords, 128), 128, 0, stream, words,
                static_cast<uint32_t>(kWords), key);
  };
  const CUgraphExec exec = captured(stream, [&] {
    CHECK_CU(cuStreamWaitEvent(stream, ready, CU_EVENT_WAIT_EXTERNAL));
    mix_in_stream(9);
  });
  for (uint32_t round = 0; round < kGraphRounds; ++round) {
    peer.meet();
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    peer.meet();
  }
  peer.meet();
  CHECK_CU(cuCtxWaitEvent(session.context, ready));
  mix_in_stream(10);
  CHECK_CU(cuStreamSynchronize(stream));
  peer.meet();
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuEventDestroy_v2(ready));
  CHECK_CU(cuStreamDestroy_v2(stream));
  CHECK_CU(cuIpcCloseMemHandle(words));
}

// ---- Physical memory as a descriptor -----------------------------------------------------------

CUmemAllocationProp exportable() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return prop;
}

CUdeviceptr map_whole(CUmemGenericAllocationHandle handle, size_t bytes) {
  CUdeviceptr address = 0;
  CHECK_CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK_CU(cuMemMap(address, bytes, 0, handle, 0));
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK_CU(cuMemSetAccess(address, bytes, &access, 1));
  return address;
}

void unmap_whole(CUdeviceptr address, size_t bytes) {
  CHECK_CU(cuMemUnmap(address, bytes));
  CHECK_CU(cuMemAddressFree(address, bytes));
}

// Sends several descriptors, so that a mix-up between them is noticed.
constexpr uint32_t kObjects = 6;

void descriptor_exporter(const e2e::Session&, const Peer& peer, bool waits_for_death) {
  for (uint32_t i = 0; i < kObjects; ++i) {
    const CUmemAllocationProp prop = exportable();
    CUmemGenericAllocationHandle handle = 0;
    CHECK_CU(cuMemCreate(&handle, 2 * kGranule, &prop, 0));
    const CUdeviceptr address = map_whole(handle, 2 * kGranule);
    const std::vector<uint32_t> data = pattern(kWords, i);
    CHECK_CU(cuMemcpyHtoD_v2(address, data.data(), data.size() * 4));
    publish();
    int descriptor = -1;
    CHECK_CU(cuMemExportToShareableHandle(&descriptor, handle,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    peer.send(i, descriptor);
    close(descriptor);
    CHECK_CU(cuMemRelease(handle));
    unmap_whole(address, 2 * kGranule);
  }
  if (waits_for_death) {
    for (;;) pause();
  }
  peer.meet();
}

void descriptor_importer(const e2e::Session& session, const Peer& peer, pid_t victim) {
  int descriptors[kObjects];
  for (int& descriptor : descriptors) static_cast<void>(peer.receive<uint32_t>(&descriptor));
  if (victim != 0) kill_exporter(victim);
  for (uint32_t i = 0; i < kObjects; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    CHECK_CU(cuMemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptors[i])),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptors[i]);
    const CUdeviceptr address = map_whole(handle, 2 * kGranule);
    CHECK_CU(cuMemRelease(handle));
    std::vector<uint32_t> expected = pattern(kWords, i);
    expect(read_words(address, kWords) == expected, "memory %u came with its contents", i);
    mix(session, address, kWords, i);
    e2e::mix_on_host(expected, i);
    expect(read_words(address, kWords) == expected, "memory %u computes", i);
    unmap_whole(address, 2 * kGranule);
  }
  if (victim == 0) peer.meet();
}

// ---- Pools -------------------------------------------------------------------------------------

void pool_exporter(const e2e::Session&, const Peer& peer) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CHECK_CU(cuMemPoolCreate(&pool, &props));
  int descriptor = -1;
  CHECK_CU(cuMemPoolExportToShareableHandle(&descriptor, pool,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr words = 0;
  CHECK_CU(cuMemAllocFromPoolAsync(&words, kWords * 4, pool, stream));
  const std::vector<uint32_t> data = pattern(kWords, 12);
  CHECK_CU(cuMemcpyHtoDAsync_v2(words, data.data(), kWords * 4, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  CUmemPoolPtrExportData pointer;
  CHECK_CU(cuMemPoolExportPointer(&pointer, words));
  peer.send(pointer, descriptor);
  close(descriptor);
  CUmemoryPool other = nullptr;
  CHECK_CU(cuMemPoolCreate(&other, &props));
  CHECK_CU(cuMemPoolExportToShareableHandle(&descriptor, other,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  peer.send(pointer, descriptor);
  close(descriptor);
  peer.meet();
  std::vector<uint32_t> expected = pattern(kWords, 12);
  e2e::mix_on_host(expected, 3);
  expect(read_words(words, kWords) == expected, "the exporter sees what the importer wrote");
  CHECK_CU(cuMemFreeAsync(words, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuMemPoolDestroy(other));
  CHECK_CU(cuMemPoolDestroy(pool));
  CHECK_CU(cuStreamDestroy_v2(stream));
}

// Receives the pool's descriptor and the data of an exported pointer.
CUmemoryPool receive_pool(const Peer& peer, CUmemPoolPtrExportData* pointer) {
  int descriptor = -1;
  *pointer = peer.receive<CUmemPoolPtrExportData>(&descriptor);
  CUmemoryPool pool = nullptr;
  CHECK_CU(cuMemPoolImportFromShareableHandle(
      &pool, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(descriptor);
  return pool;
}

void pool_importer(const e2e::Session& session, const Peer& peer) {
  CUmemPoolPtrExportData pointer;
  const CUmemoryPool pool = receive_pool(peer, &pointer);
  const CUmemoryPool other = receive_pool(peer, &pointer);
  CUdeviceptr words = 0;
  expect_result("import from another pool", cuMemPoolImportPointer(&words, other, &pointer),
                CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemPoolImportPointer(&words, pool, &pointer));
  expect(read_words(words, kWords) == pattern(kWords, 12), "the imported allocation's contents");
  mix(session, words, kWords, 3);
  CUdeviceptr none = 0;
  expect_result("allocate from an imported pool",
                cuMemAllocFromPoolAsync(&none, 100, pool, nullptr), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemFreeAsync(words, nullptr));
  CHECK_CU(cuMemPoolDestroy(other));
  CHECK_CU(cuMemPoolDestroy(pool));
  peer.meet();
}

// ---- Errors ------------------------------------------------------------------------------------

void errors_exporter(const e2e::Session&, const Peer& peer) {
  e2e::Buffer<uint32_t> buffer(pattern(kWords, 1));
  publish();
  CUipcMemHandle handle;
  CUdeviceptr address = 0;
  CHECK_CU(cuIpcGetMemHandle(&handle, buffer.address));
  expect_result("open one's own memory",
                cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                CUDA_ERROR_INVALID_CONTEXT);
  expect_result("the handle of no allocation", cuIpcGetMemHandle(&handle, 0x1234),
                CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr pooled = 0;
  CHECK_CU(cuMemAllocAsync(&pooled, kMiB, nullptr));
  CUipcMemHandle none;
  expect_result("the handle of a pool's allocation", cuIpcGetMemHandle(&none, pooled),
                CUDA_ERROR_INVALID_VALUE);
  CUmemPoolPtrExportData data;
  expect_result("export from a pool that is not for it", cuMemPoolExportPointer(&data, pooled),
                CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemFreeAsync(pooled, nullptr));
  CUevent plain = nullptr;
  CUevent event = nullptr;
  CUipcEventHandle event_handle;
  CHECK_CU(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  expect_result("the handle of a plain event", cuIpcGetEventHandle(&event_handle, plain),
                {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE});
  expect_result("an event for processes with times", cuEventCreate(&event, CU_EVENT_INTERPROCESS),
                CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuEventDestroy_v2(plain));
  peer.send(handle);
  peer.meet();
}

void errors_importer(const e2e::Session&, const Peer& peer) {
  const auto good = peer.receive<CUipcMemHandle>();
  CUdeviceptr address = 0;
  expect_result("open without the flag", cuIpcOpenMemHandle_v2(&address, good, 0),
                CUDA_ERROR_INVALID_VALUE);
  // Changes bytes at random: a forged handle opens nothing.
  e2e::Random random(1);
  for (int round = 0; round < 200; ++round) {
    CUipcMemHandle forged = good;
    auto* bytes = reinterpret_cast<unsigned char*>(&forged);
    bytes[16 + random.below(16)] ^= static_cast<unsigned char>(1 + random.below(255));
    if (round % 2 == 1) {
      bytes[random.below(64)] ^= static_cast<unsigned char>(1 + random.below(255));
    }
    const CUresult result =
        cuIpcOpenMemHandle_v2(&address, forged, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result == CUDA_SUCCESS) expect(false, "forged handle %d opens", round);
  }
  CUipcEventHandle no_event;
  memset(&no_event, 0x5a, sizeof(no_event));
  CUevent event = nullptr;
  expect_result("open garbage as an event", cuIpcOpenEventHandle(&event, no_event),
                CUDA_ERROR_INVALID_HANDLE);
  expect_result("close what was never opened", cuIpcCloseMemHandle(0x1234000),
                CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr opened = open_memory(good);
  expect(read_words(opened, kWords) == pattern(kWords, 1), "the good handle opens");
  peer.meet();  // the memory is left open; the end of the process closes it
}

// ---- The importer's memory limit ----------------------------------------------------------------

constexpr size_t kOwnLimit = 66 * kMiB;  // includes the variables of the session's kernels
constexpr size_t kOffered = 32 * kMiB;

size_t free_bytes() {
  size_t free = 0;
  size_t total = 0;
  CHECK_CU(cuMemGetInfo_v2(&free, &total));
  return free;
}

void limit_exporter(const e2e::Session&, const Peer& peer) {
  const CUmemAllocationProp prop = exportable();
  CUmemGenericAllocationHandle handle = 0;
  int descriptor = -1;
  CHECK_CU(cuMemCreate(&handle, kOffered, &prop, 0));
  CHECK_CU(cuMemExportToShareableHandle(&descriptor, handle,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  peer.send('d', descriptor);
  close(descriptor);
  CUdeviceptr large = 0;
  CUipcMemHandle opened;
  CHECK_CU(cuMemAlloc_v2(&large, 2 * kOffered));
  CHECK_CU(cuIpcGetMemHandle(&opened, large));
  peer.send(opened);
  peer.meet();
  CHECK_CU(cuMemFree_v2(large));
  CHECK_CU(cuMemRelease(handle));
  peer.meet();
}

// Memory of other processes that a process has opened counts for it as for its owner, and only
// once, however often it is mapped.
void limit_importer(const e2e::Session&, const Peer& peer) {
  int descriptor = -1;
  static_cast<void>(peer.receive<char>(&descriptor));
  const auto large = peer.receive<CUipcMemHandle>();
  const size_t before = free_bytes();
  CUmemGenericAllocationHandle handle = 0;
  CHECK_CU(cuMemImportFromShareableHandle(
      &handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  const CUdeviceptr first = map_whole(handle, kOffered);
  const CUdeviceptr second = map_whole(handle, kOffered);
  expect(free_bytes() == before - kOffered, "a descriptor's memory counts once");
  CUdeviceptr address = 0;
  expect_result("more than is left",
                cuIpcOpenMemHandle_v2(&address, large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                CUDA_ERROR_OUT_OF_MEMORY);
  unmap_whole(first, kOffered);
  CHECK_CU(cuMemRelease(handle));
  expect(free_bytes() == before - kOffered, "as long as it is mapped");
  unmap_whole(second, kOffered);
  expect(free_bytes() == before, "and no longer");
  CHECK_CU(cuMemAlloc_v2(&address, kOffered));
  CHECK_CU(cuMemFree_v2(address));  // is kept for reuse, and released when memory is needed
  address = open_memory(large);
  expect(open_memory(large) == address && free_bytes() == before - 2 * kOffered,
         "opened twice, it counts once");
  peer.meet();  // the owner has freed it
  peer.meet();
  expect(free_bytes() == before - 2 * kOffered, "its owner's end changes nothing");
  CUdeviceptr refused = 0;
  expect_result("a piece of its own", cuMemAlloc_v2(&refused, kGranule), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_CU(cuIpcCloseMemHandle(address));
  CHECK_CU(cuIpcCloseMemHandle(address));
  expect(free_bytes() == before, "closed, it is free");
}

int run_exporter(const std::string& group, const Peer& peer) {
  e2e::Session session;
  if (group == "memory") memory_exporter(session, peer);
  if (group == "free") free_exporter(session, peer);
  if (group == "killed") killed_exporter(session, peer);
  if (group == "events" || group == "distant_events") events_exporter(session, peer);
  if (group == "graphs") graphs_exporter(session, peer);
  if (group == "descriptor") descriptor_exporter(session, peer, false);
  if (group == "descriptor_killed") descriptor_exporter(session, peer, true);
  if (group == "pool") pool_exporter(session, peer);
  if (group == "errors") errors_exporter(session, peer);
  if (group == "limit") limit_exporter(session, peer);
  return e2e::failures() == 0 ? 0 : 1;
}

bool run_importer(const std::string& group, const Peer& peer, pid_t exporter) {
  if (group == "limit") {
    setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
           ("0=" + std::to_string(kOwnLimit / kMiB) + "M").c_str(), 1);
  }
  e2e::Session session;
  if (group == "memory") {
    memory_importer(session, peer);
  } else if (group == "free") {
    free_importer(session, peer);
  } else if (group == "killed") {
    killed_importer(session, peer, exporter);
  } else if (group == "events") {
    events_importer(session.function("mix"), peer);
  } else if (group == "distant_events") {
    distant_events_importer(peer);
  } else if (group == "graphs") {
    graphs_importer(session, peer);
  } else if (group == "descriptor") {
    descriptor_importer(session, peer, 0);
  } else if (group == "descriptor_killed") {
    descriptor_importer(session, peer, exporter);
  } else if (group == "pool") {
    pool_importer(session, peer);
  } else if (group == "errors") {
    errors_importer(session, peer);
  } else if (group == "limit") {
    limit_importer(session, peer);
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 2;
  const pid_t exporter = fork();
  if (exporter < 0) return 2;
  if (exporter == 0) {
    close(ends[0]);
    // Only the importer writes to standard output. The exporter reports failures by its exit code
    // and on standard error.
    dup2(STDERR_FILENO, STDOUT_FILENO);
    const int code = run_exporter(group, Peer(ends[1]));
    fflush(stdout);
    _exit(code);
  }
  close(ends[1]);
  if (argc > 2) setenv("OPENMPS_DOMAIN", argv[2], 1);
  if (!run_importer(group, Peer(ends[0]), exporter)) return 2;
  if (group != "killed" && group != "descriptor_killed") {
    int status = 0;
    waitpid(exporter, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the exporter found all well");
  }
  return e2e::finish();
}
