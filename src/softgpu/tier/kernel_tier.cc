// SPDX-License-Identifier: Apache-2.0
// See kernel_tier.h.
#include "softgpu/tier/kernel_tier.h"

#include <pthread.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/thread_signals.h"
#include "softgpu/interp/block.h"
#include "softgpu/interp/instruction_set.h"
#include "softgpu/tier/code_store.h"
#include "softgpu/tier/compiler.h"
#include "softgpu/tier/llvm_api.h"

namespace openmps::softgpu::tier {
namespace {

// Warp instructions after which a kernel is looked for on disk (some 2 ms of interpretation), and
// after which it is compiled (some 60 ms, a part of what compiling a small one takes).
constexpr uint64_t kWarm = 500'000;
constexpr uint64_t kHot = 20'000'000;
// Ops of a kernel that is compiled: LLVM's time grows faster than the kernel, and a program that
// ends waits for what is being compiled.
constexpr size_t kMostOps = 6000;
// Shapes of blocks that a kernel is compiled for; others are interpreted.
constexpr size_t kMostShapes = 3;
constexpr int kNice = 10;  // of the compiler's thread

// Asked where somebody wants compiled kernels. The first time it says on standard error why there
// are none.
bool can_compile() {
  static const bool can = [] {
    const char* missing = active_instruction_set() == InstructionSet::kBase ? "AVX2"
                          : load_llvm() == nullptr ? "LLVM's shared library, version 14 to 20"
                                                   : nullptr;
    if (missing != nullptr) {
      fprintf(stderr, "softgpu: kernels are interpreted, not compiled, without %s\n", missing);
    }
    return missing == nullptr;
  }();
  return can;
}

// One kernel for one shape. Shared with the compiler's thread.
struct Variant {
  enum class State : uint8_t { kCold, kAsked, kReady, kFailed };
  std::shared_ptr<const Code> code;
  LaunchShape shape;
  std::atomic<uint64_t> executed{0};
  std::atomic<bool> sought{false};  // on disk
  std::atomic<State> state{State::kCold};
  std::unique_ptr<InstalledKernel> installed;  // set before kReady

  bool load(const CodeStore& store) {
    CompiledImage image;
    return store.read(key_of(*code, shape), &image) && install(image);
  }
  void compile_if_worthwhile(const CodeStore& store) {
    if (is_worthwhile(*code)) {
      compile(store);
    } else {
      state.store(State::kFailed, std::memory_order_release);
    }
  }
  void compile(const CodeStore& store) {
    CompiledImage image;
    std::string why;
    if (!compile_kernel(*code, shape, &image, &why) || !install(image)) {
      state.store(State::kFailed, std::memory_order_release);
      return;
    }
    store.write(key_of(*code, shape), image);
  }

 private:
  bool install(const CompiledImage& image) {
    installed = install_kernel(*code, image);
    if (installed == nullptr) return false;
    // choose() acquires it.
    state.store(State::kReady, std::memory_order_release);
    return true;
  }
};

// The thread that reads and compiles. A program's end waits for it: LLVM must not run while the
// program's libraries are being ended.
class Compiler {
 public:
  void ask(std::shared_ptr<Variant> variant, bool compile) {
    const MutexLock lock(mutex_);
    if (ending_) return;
    if (!started_) {
      started_ = true;
      const HelperThreadSignals signals;
      std::thread thread([this] { run(); });
      pthread_setname_np(thread.native_handle(), "softgpu-tier");
      thread.detach();
    }
    jobs_.push_back({std::move(variant), compile});
    changed_.notify_all();
  }
  static Compiler& compiler() {
    static auto* const made = new Compiler;  // immortal: its thread is
    return *made;
  }
  const CodeStore& store() const { return store_; }

 private:
  struct Job {
    std::shared_ptr<Variant> variant;
    bool compile;
  };

  void run() {
    setpriority(PRIO_PROCESS, 0, kNice);  // of this thread
    MutexLock lock(mutex_);
    for (;;) {
      while (jobs_.empty()) changed_.wait(mutex_);
      if (ending_) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      if (job.compile && !ends_) {
        // Handlers run in reverse order: this one before LLVM's own, which loading it registers.
        (void)can_compile();
        ends_ = std::atexit([] { compiler().end(); }) == 0;
      }
      if (job.compile) {
        if (!job.variant->load(store_)) job.variant->compile_if_worthwhile(store_);
      } else if (!job.variant->load(store_)) {
        job.variant->state.store(Variant::State::kCold, std::memory_order_release);
      }
      job = {};
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }
  void end() {
    MutexLock lock(mutex_);
    ending_ = true;
    jobs_.clear();
    while (busy_) changed_.wait(mutex_);
  }

  const CodeStore store_{cache_directory()};
  Mutex mutex_{LockRank::kSoftCompiler};
  CondVar changed_;
  bool ends_ = false;  // the thread's own: end() is called
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  bool started_ GUARDED_BY(mutex_) = false, busy_ GUARDED_BY(mutex_) = false,
                ending_ GUARDED_BY(mutex_) = false;
};

class Tier final : public KernelTier {
 public:
  Tier(const Code& kernel, bool at_once) : kernel_(kernel), at_once_(at_once) {}

  const Code* choose(const Block& block) override {
    Variant* variant = find(block, at_once_);
    if (variant == nullptr) return nullptr;
    return variant->state.load(std::memory_order_acquire) == Variant::State::kReady
               ? variant->installed->code.get()
               : nullptr;
  }

  void count(const Block& block, uint64_t warp_instructions) override {
    if (at_once_) return;
    Variant* variant = find(block, true);
    if (variant == nullptr) return;
    const uint64_t executed =
        variant->executed.fetch_add(warp_instructions, std::memory_order_relaxed) +
        warp_instructions;
    if (executed < kWarm) return;
    const bool compile = executed >= kHot;
    if (!compile && variant->sought.exchange(true, std::memory_order_relaxed)) return;
    auto cold = Variant::State::kCold;
    if (variant->state.compare_exchange_strong(cold, Variant::State::kAsked)) {
      Compiler::compiler().ask(shared(variant), compile);
    }
  }

 private:
  // The variant for the block's shape; null: there is none, or no room for it.
  Variant* find(const Block& block, bool make) {
    const LaunchShape shape = launch_shape(block.shape.block);
    for (auto& place : variants_) {
      Variant* variant = place.load(std::memory_order_acquire);
      if (variant == nullptr) break;
      if (variant->shape == shape) return variant;
    }
    return make ? add(shape) : nullptr;
  }

  Variant* add(const LaunchShape& shape) {
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < kMostShapes; ++i) {
      Variant* variant = variants_[i].load(std::memory_order_relaxed);
      if (variant != nullptr && variant->shape == shape) return variant;
      if (variant != nullptr) continue;
      // The compiler's thread may outlive the program's code.
      if (code_ == nullptr) code_ = copy_code(kernel_);
      owned_[i] = std::make_shared<Variant>();
      owned_[i]->code = code_;
      owned_[i]->shape = shape;
      if (at_once_) owned_[i]->compile(CodeStore(""));
      // find() acquires it.
      variants_[i].store(owned_[i].get(), std::memory_order_release);
      return owned_[i].get();
    }
    return nullptr;
  }

  std::shared_ptr<Variant> shared(const Variant* variant) {
    const MutexLock lock(mutex_);
    for (const auto& owned : owned_) {
      if (owned.get() == variant) return owned;
    }
    return nullptr;
  }

  const Code& kernel_;
  const bool at_once_;
  Mutex mutex_{LockRank::kSoftKernelTier};
  std::shared_ptr<const Code> code_ GUARDED_BY(mutex_);
  std::array<std::shared_ptr<Variant>, kMostShapes> owned_ GUARDED_BY(mutex_);
  std::array<std::atomic<Variant*>, kMostShapes> variants_{};
};

}  // namespace

std::shared_ptr<KernelTier> make_tier(const Code& kernel) {
  const bool at_once = perf_asks("compile_all");
  if ((!at_once && !perf_asks("compiler")) || !perf_allows("compiler")) return nullptr;
  // LLVM is loaded when the first kernel is hot.
  const bool asks_now = at_once || active_instruction_set() == InstructionSet::kBase;
  if ((asks_now && !can_compile()) || kernel.ops.size() > kMostOps) return nullptr;
  return std::make_shared<Tier>(kernel, at_once);
}

}  // namespace openmps::softgpu::tier
