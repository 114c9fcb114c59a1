// SPDX-License-Identifier: Apache-2.0
// The shared device segment: layout, robust locking, reclaiming of dead processes, hand-over of the
// right to run kernels. Threads: any.
#include "softgpu/device/machine/segment.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "base/clock.h"
#include "base/futex.h"
#include "base/shared_memory.h"
#include "base/unique_fd.h"

namespace openmps::softgpu {
namespace {

constexpr uint64_t kMagic = 0x5546504754465302;  // layout version in the low byte
constexpr int32_t kMaxProcesses = 1024;  // ten times the clients that the acceptance tests start
constexpr int32_t kMaxContexts = 4096;
constexpr uint64_t kKeptFaults = 64;  // a reader looks every few milliseconds
constexpr int32_t kNobody = -1;

struct ProcessSlot {
  int32_t pid;  // 0: free
  uint32_t waiting;
  uint64_t start_time;  // clock ticks after boot: tells a reused pid from the old process
  uint64_t memory_bytes;
  uint64_t slices;
  std::atomic<uint32_t> doorbell;
};

struct ContextSlot {
  int32_t process;  // index of a ProcessSlot, kNobody: free
  ContextKind kind;
  uint64_t id;
};

}  // namespace

// All fields but the doorbells, `waiters` and the faults are guarded by `mutex`; faults are written
// under it and read without. Plain scalars without
// invariants between them that matter half-done, so the death of a holder needs no repair beyond
// recounting `waiters`. The mutex is shared by processes and robust, which base/mutex.h is not.
struct SegmentLayout {
  uint64_t magic;
  uint64_t memory_total;
  pthread_mutex_t mutex;
  int32_t owner;
  std::atomic<uint32_t> waiters;
  std::atomic<uint64_t> faults;             // so many have been noted
  std::atomic<uint32_t> xids[kKeptFaults];  // fault n is in xids[n % kKeptFaults]
  ProcessSlot processes[kMaxProcesses];
  ContextSlot contexts[kMaxContexts];
};

namespace {

struct ProcessFacts {
  bool alive = false;
  uint64_t start_time = 0;
};

// A zombie counts as dead: it will never run or free anything again.
ProcessFacts process_facts(int32_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  ssize_t length = fd.valid() ? read(fd.get(), text, sizeof text - 1) : -1;
  if (length <= 0) return {};
  text[length] = '\0';
  const char* after_name = strrchr(text, ')');  // the name may contain anything
  if (after_name == nullptr) return {};
  char state = '\0';
  unsigned long long start = 0;
  // Fields 3 (state) and 22 (start time) of proc(5).
  int fields = sscanf(after_name + 1,
                      " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                      "%llu",
                      &state, &start);
  if (fields != 2 || state == 'Z' || state == 'X') return {};
  return {true, start};
}

void ring_slot(ProcessSlot& slot) {
  slot.doorbell.fetch_add(1, std::memory_order_release);
  futex_wake(&slot.doorbell, 1);
}

// Holds the segment's mutex; repairs after a holder's death.
class SegmentLock {
 public:
  explicit SegmentLock(SegmentLayout* layout) : layout_(layout) {
    if (pthread_mutex_lock(&layout_->mutex) != EOWNERDEAD) return;
    pthread_mutex_consistent(&layout_->mutex);
    uint32_t waiters = 0;
    for (const ProcessSlot& slot : layout_->processes) {
      if (slot.pid != 0 && slot.waiting != 0) ++waiters;
    }
    layout_->waiters.store(waiters, std::memory_order_relaxed);
  }
  SegmentLock(const SegmentLock&) = delete;
  SegmentLock& operator=(const SegmentLock&) = delete;
  ~SegmentLock() { pthread_mutex_unlock(&layout_->mutex); }

 private:
  SegmentLayout* layout_;
};

void stop_waiting_locked(SegmentLayout* layout, ProcessSlot& slot) {
  if (slot.waiting == 0) return;
  slot.waiting = 0;
  layout->waiters.fetch_sub(1, std::memory_order_relaxed);
}

// Round robin after `from`: each process in line gets a slice before any gets a second one.
void pass_on_locked(SegmentLayout* layout, int32_t from) {
  layout->owner = kNobody;
  if (layout->waiters.load(std::memory_order_relaxed) == 0) return;
  for (int32_t step = 1; step <= kMaxProcesses; ++step) {
    int32_t index = (from + step) % kMaxProcesses;
    ProcessSlot& slot = layout->processes[index];
    if (slot.pid == 0 || slot.waiting == 0) continue;
    layout->owner = index;
    stop_waiting_locked(layout, slot);
    ring_slot(slot);
    return;
  }
}

void free_slot_locked(SegmentLayout* layout, int32_t index) {
  ProcessSlot& slot = layout->processes[index];
  stop_waiting_locked(layout, slot);
  for (ContextSlot& context : layout->contexts) {
    if (context.process == index) context.process = kNobody;
  }
  slot.pid = 0;
  slot.memory_bytes = 0;
  slot.slices = 0;
  if (layout->owner == index) pass_on_locked(layout, index);
}

// How many processes are left.
int32_t reclaim_dead_locked(SegmentLayout* layout) {
  int32_t alive = 0;
  for (int32_t i = 0; i < kMaxProcesses; ++i) {
    ProcessSlot& slot = layout->processes[i];
    if (slot.pid == 0) continue;
    ProcessFacts facts = process_facts(slot.pid);
    if (facts.alive && facts.start_time == slot.start_time) {
      ++alive;
    } else {
      free_slot_locked(layout, i);
    }
  }
  return alive;
}

uint64_t used_memory_locked(const SegmentLayout* layout) {
  uint64_t used = 0;
  for (const ProcessSlot& slot : layout->processes) {
    if (slot.pid != 0) used += slot.memory_bytes;
  }
  return used;
}

void initialise(SegmentLayout* layout, uint64_t memory_bytes) {
  memset(static_cast<void*>(layout), 0, sizeof *layout);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&layout->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  layout->memory_total = memory_bytes;
  layout->owner = kNobody;
  for (ContextSlot& context : layout->contexts) context.process = kNobody;
  layout->magic = kMagic;
}

Status system_error(const std::string& what) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, what + ": " + strerror(errno));
}

// A flocked file. Unlocked by hand: a mapping keeps the open file, and with it the lock, alive.
class LockedFile {
 public:
  explicit LockedFile(UniqueFd fd) : fd_(std::move(fd)) {}
  LockedFile(LockedFile&&) = default;
  LockedFile& operator=(LockedFile&&) = default;
  ~LockedFile() {
    if (fd_.valid()) flock(fd_.get(), LOCK_UN);
  }
  [[nodiscard]] int get() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// The file behind `path`, exclusively flocked: joining, leaving and inspecting exclude each other.
// A file that was unlinked between open and flock is the one of users that have left: try again.
// A file of another user is refused: that user could change what this process reads in it.
Result<LockedFile> open_locked(const std::string& path, int flags) {
  for (;;) {
    UniqueFd fd(open(path.c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) {
      if (errno == ENOENT) return Status(CUDA_ERROR_NOT_FOUND, path + " does not exist");
      return system_error("cannot open " + path);
    }
    struct stat facts {};
    if (fstat(fd.get(), &facts) != 0) return system_error("cannot stat " + path);
    if (facts.st_uid != geteuid()) {
      return Status(CUDA_ERROR_NOT_PERMITTED,
                    path + " is user " + std::to_string(facts.st_uid) + "'s, not this process's");
    }
    while (flock(fd.get(), LOCK_EX) != 0) {
      if (errno != EINTR) return system_error("cannot lock " + path);
    }
    if (fstat(fd.get(), &facts) != 0) return system_error("cannot stat " + path);
    if (facts.st_nlink > 0) return LockedFile(std::move(fd));
  }
}

// Null if the file is not one of ours (another version, half-initialised by a killed process).
SegmentLayout* map_layout(int fd) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0 || static_cast<uint64_t>(facts.st_size) != sizeof(SegmentLayout)) {
    return nullptr;
  }
  void* address = mmap(nullptr, sizeof(SegmentLayout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return nullptr;
  keep_from_dumps(reinterpret_cast<uint64_t>(address), sizeof(SegmentLayout));
  return static_cast<SegmentLayout*>(address);
}

std::string segment_path(const std::string& name) { return "/dev/shm/" + name; }

}  // namespace

Result<std::unique_ptr<DeviceSegment>> DeviceSegment::attach(const std::string& name,
                                                             uint64_t memory_bytes) {
  std::string path = segment_path(name);
  Result<LockedFile> file = open_locked(path, O_CREAT);
  if (!file.ok()) return file.status();
  // With its pages: one that /dev/shm has no room for would end the process when it is touched.
  if (const int error = posix_fallocate(file->get(), 0, sizeof(SegmentLayout)); error != 0) {
    struct stat facts {};
    const bool is_new = fstat(file->get(), &facts) == 0 && facts.st_blocks == 0;
    if (is_new) unlink(path.c_str());
    errno = error;
    return system_error("cannot make " + path + " of " + std::to_string(sizeof(SegmentLayout)) +
                        " bytes");
  }
  SegmentLayout* layout = map_layout(file->get());
  if (layout == nullptr) return system_error("cannot map " + path);

  // No process is alive: the segment starts from nothing, whatever the last one left, a held mutex
  // included. Processes are looked up without the mutex here: the flock keeps others from joining.
  bool in_use = false;
  if (layout->magic == kMagic) {
    for (const ProcessSlot& slot : layout->processes) {
      if (slot.pid == 0) continue;
      ProcessFacts facts = process_facts(slot.pid);
      in_use = in_use || (facts.alive && facts.start_time == slot.start_time);
    }
  }
  if (!in_use) initialise(layout, memory_bytes);

  std::unique_ptr<DeviceSegment> segment(new DeviceSegment);
  segment->layout_ = layout;
  segment->path_ = path;
  SegmentLock lock(layout);
  reclaim_dead_locked(layout);
  for (int32_t i = 0; i < kMaxProcesses && segment->slot_ == kNobody; ++i) {
    ProcessSlot& slot = layout->processes[i];
    if (slot.pid != 0) continue;
    slot.start_time = process_facts(getpid()).start_time;
    slot.memory_bytes = 0;
    slot.slices = 0;
    slot.waiting = 0;
    slot.pid = getpid();
    segment->slot_ = i;
    segment->attached_ = true;
  }
  if (segment->slot_ == kNobody) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, path + " is full: too many processes");
  }
  return segment;
}

DeviceSegment::~DeviceSegment() { detach(); }

void DeviceSegment::detach() {
  if (!attached_.exchange(false)) return;
  Result<LockedFile> file = open_locked(path_, 0);
  {
    SegmentLock lock(layout_);
    free_slot_locked(layout_, slot_);
    if (file.ok() && reclaim_dead_locked(layout_) == 0) unlink(path_.c_str());
  }
  // The segment is not unmapped: a worker thread may be about to look at it while the process
  // exits.
}

Result<SegmentReport> DeviceSegment::inspect(const std::string& name) {
  Result<LockedFile> file = open_locked(segment_path(name), 0);
  if (!file.ok()) return file.status();
  SegmentLayout* layout = map_layout(file->get());
  if (layout == nullptr || layout->magic != kMagic) {
    if (layout != nullptr) munmap(layout, sizeof *layout);
    return Status(CUDA_ERROR_NOT_FOUND, name + " is not a softgpu device segment");
  }
  SegmentReport report;
  {
    SegmentLock lock(layout);
    reclaim_dead_locked(layout);
    report.memory_total = layout->memory_total;
    report.memory_used = used_memory_locked(layout);
    if (layout->owner != kNobody) report.running_pid = layout->processes[layout->owner].pid;
    for (const ProcessSlot& slot : layout->processes) {
      if (slot.pid != 0) report.processes.push_back({slot.pid, slot.memory_bytes, slot.slices});
    }
    for (const ContextSlot& context : layout->contexts) {
      if (context.process != kNobody) {
        report.contexts.push_back(
            {layout->processes[context.process].pid, context.id, context.kind});
      }
    }
  }
  munmap(layout, sizeof *layout);
  return report;
}

Status DeviceSegment::reserve_memory(uint64_t bytes) {
  SegmentLock lock(layout_);
  uint64_t total = layout_->memory_total;
  uint64_t used = used_memory_locked(layout_);
  if (bytes > total || used > total - bytes) {
    reclaim_dead_locked(layout_);
    used = used_memory_locked(layout_);
  }
  if (bytes > total || used > total - bytes) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, std::to_string(bytes) + " bytes asked, " +
                                                std::to_string(total - used) + " free");
  }
  layout_->processes[slot_].memory_bytes += bytes;
  return Status();
}

void DeviceSegment::return_memory(uint64_t bytes) {
  if (!attached_) return;
  SegmentLock lock(layout_);
  layout_->processes[slot_].memory_bytes -= bytes;
}

void DeviceSegment::memory_info(uint64_t* free_bytes, uint64_t* total_bytes) {
  SegmentLock lock(layout_);
  reclaim_dead_locked(layout_);
  *total_bytes = layout_->memory_total;
  *free_bytes = layout_->memory_total - used_memory_locked(layout_);
}

Status DeviceSegment::add_context(uint64_t id, ContextKind kind, bool exclusive) {
  if (exclusive) reclaim_dead();
  SegmentLock lock(layout_);
  const auto is_others = [this](const ContextSlot& context) {
    return context.process != kNobody && context.process != slot_;
  };
  if (exclusive &&
      std::any_of(std::begin(layout_->contexts), std::end(layout_->contexts), is_others)) {
    return Status(CUDA_ERROR_DEVICE_UNAVAILABLE,
                  "the device is in exclusive process mode, and another process has it");
  }
  for (ContextSlot& context : layout_->contexts) {
    if (context.process != kNobody) continue;
    context.id = id;
    context.kind = kind;
    context.process = slot_;
    return Status();
  }
  return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many contexts on the device");
}

void DeviceSegment::remove_context(uint64_t id) {
  if (!attached_) return;
  SegmentLock lock(layout_);
  for (ContextSlot& context : layout_->contexts) {
    if (context.process == slot_ && context.id == id) context.process = kNobody;
  }
}

bool DeviceSegment::try_acquire() {
  if (!attached_) return false;
  SegmentLock lock(layout_);
  ProcessSlot& mine = layout_->processes[slot_];
  if (layout_->owner == kNobody) layout_->owner = slot_;
  if (layout_->owner == slot_) {
    stop_waiting_locked(layout_, mine);
    ++mine.slices;
    acquired_ns_ = now_ns();
    return true;
  }
  if (mine.waiting == 0) {
    mine.waiting = 1;
    layout_->waiters.fetch_add(1, std::memory_order_relaxed);
    ring_slot(layout_->processes[layout_->owner]);
  }
  return false;
}

void DeviceSegment::release() {
  if (!attached_) return;
  SegmentLock lock(layout_);
  stop_waiting_locked(layout_, layout_->processes[slot_]);
  if (layout_->owner == slot_) pass_on_locked(layout_, slot_);
}

bool DeviceSegment::contended() const {
  return layout_->waiters.load(std::memory_order_relaxed) != 0;
}

void DeviceSegment::reclaim_dead() {
  SegmentLock lock(layout_);
  reclaim_dead_locked(layout_);
}

void DeviceSegment::note_fault(uint32_t xid) {
  if (!attached_) return;
  SegmentLock lock(layout_);
  const uint64_t number = layout_->faults.load(std::memory_order_relaxed);
  layout_->xids[number % kKeptFaults].store(xid, std::memory_order_relaxed);
  layout_->faults.store(number + 1, std::memory_order_release);
}

std::atomic<uint32_t>* DeviceSegment::doorbell() { return &layout_->processes[slot_].doorbell; }

void DeviceSegment::ring() { ring_slot(layout_->processes[slot_]); }

FaultReader::FaultReader(const std::string& segment_name) : path_(segment_path(segment_name)) {
  follow();
  if (layout_ != nullptr) read_ = layout_->faults.load(std::memory_order_acquire);
}

FaultReader::~FaultReader() { unmap(); }

void FaultReader::unmap() {
  if (layout_ == nullptr) return;
  munmap(const_cast<SegmentLayout*>(layout_), sizeof *layout_);
  layout_ = nullptr;
  read_ = 0;
}

void FaultReader::follow() {
  struct stat facts {};
  const bool exists = stat(path_.c_str(), &facts) == 0;
  if (layout_ != nullptr && exists && facts.st_ino == inode_) return;
  if (!exists) return;  // what was noted before the file was removed can still be read
  const Result<LockedFile> file = open_locked(path_, 0);
  if (!file.ok() || fstat(file->get(), &facts) != 0) return;
  const SegmentLayout* layout = map_layout(file->get());
  if (layout == nullptr || layout->magic != kMagic) {
    if (layout != nullptr) munmap(const_cast<SegmentLayout*>(layout), sizeof *layout);
    return;
  }
  unmap();
  layout_ = layout;
  inode_ = facts.st_ino;
}

std::optional<uint32_t> FaultReader::next() {
  for (int look = 0; look < 2; ++look) {
    if (layout_ != nullptr) {
      const uint64_t noted = layout_->faults.load(std::memory_order_acquire);
      if (noted < read_) read_ = 0;  // the device was started anew in the same file
      if (noted > read_ + kKeptFaults) read_ = noted - kKeptFaults;
      if (noted > read_) {
        return layout_->xids[read_++ % kKeptFaults].load(std::memory_order_relaxed);
      }
    }
    follow();  // first all of the old file
  }
  return std::nullopt;
}

}  // namespace openmps::softgpu
