// SPDX-License-Identifier: Apache-2.0
// A client beside others that fault. It works in rounds, each of which makes new words in device
// memory from those of the round before, and compares every word with what the host computes. After
// an error it synchronises the context, does the round again and goes on; if that is refused a few
// times, it is lost. It prints "ready" after the first round; then, for each line on standard
// input, one line of JSON about the time since the last one; at the end of input it ends. Run by
// bench/faults.py and scenarios. `ipc`: a second process opens the memory and reads each round's
// words; its errors count as the first one's. `variables`: its code has variables in device memory.
// `registered`: its kernels work on memory of its own that it has registered.
// usage: drv_bystander idle|requests|long|copies|graphs|hosts|pools|ipc|variables|registered [SEED]
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "driver.h"

namespace {

constexpr const char* kModes[] = {"idle",  "requests", "long", "copies",    "graphs",
                                  "hosts", "pools",    "ipc",  "variables", "registered"};
constexpr uint32_t kWords = 4096;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr unsigned kBlock = 128;
constexpr uint32_t kLongSpins = 1 << 20;  // some 10 ms of one thread, on a GPU and on softgpu
constexpr int kTries = 3;                 // synchronisations that fail before it is lost
constexpr auto kPause = std::chrono::milliseconds(3);  // between two requests

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Failed {
  CUresult code;
  std::string call;
};

// Within Bystander::round(): the first call that fails ends the round.
#define TRY(call)                                                                  \
  do {                                                                             \
    const CUresult try_result = (call);                                            \
    if (try_result != CUDA_SUCCESS) throw Failed{try_result, name_of_call(#call)}; \
  } while (0)

std::string name_of_call(const char* text) { return std::string(text, strcspn(text, "(")); }

std::string escaped(const char* text) {
  std::string out;
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') out += '\\';
    out += *text == '\n' ? ' ' : *text;
  }
  return out;
}

// What a program is told: the texts are asked at once, since they may name the culprit.
std::string json_of(const Failed& failed, bool went_on) {
  const char* text = nullptr;
  if (cuGetErrorString(failed.code, &text) != CUDA_SUCCESS) text = "";
  return "{\"code\":" + std::to_string(failed.code) + ",\"call\":\"" + failed.call +
         "\",\"text\":\"" + escaped(text) + "\",\"went_on\":" + (went_on ? "true" : "false") + "}";
}

void count_up(void* counter) { ++*static_cast<std::atomic<uint32_t>*>(counter); }

bool send_all(int socket, const void* data, size_t bytes) {
  return send(socket, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}
bool receive_all(int socket, void* data, size_t bytes) {
  return recv(socket, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

// The second process of `ipc`: for each number that comes, it sends the words of that memory.
struct Answer {
  CUresult errors[kTries + 1];  // those that came before it could read them
  uint32_t error_count;
  uint32_t words[kWords];
};

[[noreturn]] void read_for(int socket) {
  CUipcMemHandle handles[2];
  CUdeviceptr memory[2];
  if (!receive_all(socket, handles, sizeof handles)) exit(0);
  static e2e::Session session(e2e::stateless_kernels_ptx());
  for (int i = 0; i < 2; ++i) {
    CHECK_CU(cuIpcOpenMemHandle_v2(&memory[i], handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  }
  static Answer answer;
  for (uint32_t which = 0; receive_all(socket, &which, sizeof which);) {
    answer.error_count = 0;
    const auto read = [&] { return cuMemcpyDtoH_v2(answer.words, memory[which % 2], kBytes); };
    for (CUresult result = read(); result != CUDA_SUCCESS && answer.error_count <= kTries;) {
      answer.errors[answer.error_count++] = result;
      result = cuCtxSynchronize();
      if (result == CUDA_SUCCESS) result = read();
    }
    if (!send_all(socket, &answer, sizeof answer)) exit(0);
  }
  exit(0);
}

// Before the first call of CUDA: the other end of a process that runs read_for().
int start_reader() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) exit(2);
  if (fork() == 0) {
    close(ends[0]);
    read_for(ends[1]);
  }
  close(ends[1]);
  return ends[0];
}

class Bystander {
 public:
  Bystander(std::string mode, uint32_t seed)
      : mode_(std::move(mode)),
        seed_(seed),
        expected_(kWords),
        reader_(mode_ == "ipc" ? start_reader() : -1),
        session_(*new e2e::Session(mode_ == "variables" ? e2e::kernels_ptx()
                                                        : e2e::stateless_kernels_ptx())) {
    e2e::Random random(seed);
    for (uint32_t& word : expected_) word = static_cast<uint32_t>(random.next());
    mix_ = session_.function("mix");
    where_ = session_.function("where");
    for (CUdeviceptr* memory : {&state_, &next_, &busy_}) CHECK_CU(cuMemAlloc_v2(memory, kBytes));
    void* pinned = nullptr;
    if (mode_ == "registered") {
      pinned = aligned_alloc(4096, kBytes);
      CHECK_CU(cuMemHostRegister_v2(pinned, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
      CHECK_CU(cuMemHostGetDevicePointer_v2(&mapped_, pinned, 0));
    } else {
      CHECK_CU(cuMemAllocHost_v2(&pinned, kBytes));
    }
    pinned_ = static_cast<uint32_t*>(pinned);
    CHECK_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemcpyHtoD_v2(state_, expected_.data(), kBytes));
    CHECK_CU(cuCtxSynchronize());
    if (reader_ < 0) return;
    CUipcMemHandle handles[2];
    CHECK_CU(cuIpcGetMemHandle(&handles[0], state_));
    CHECK_CU(cuIpcGetMemHandle(&handles[1], next_));
    if (!send_all(reader_, handles, sizeof handles)) exit(2);
  }

  // False: it is lost.
  bool work() {
    const uint32_t key = seed_ * 31 + number_;
    for (;;) {
      try {
        round(key);
        break;
      } catch (const Failed& failed) {
        if (!recover(failed)) return false;
      }
    }
    e2e::mix_on_host(expected_, key);
    if (reader_ >= 0 && !read_by_other()) return false;
    for (uint32_t i = 0; i < kWords; ++i) wrong_ += got_[i] != expected_[i] ? 1 : 0;
    std::swap(state_, next_);
    ++number_;
    ++rounds_;
    longest_ = std::max(longest_, ms_since(last_));
    last_ = Clock::now();
    return true;
  }

  // The idle one's pauses are those of its rounds alone.
  void begin_anew() { last_ = Clock::now(); }

  void report() {
    printf(
        "{\"mode\":\"%s\",\"pid\":%d,\"rounds\":%u,\"wrong\":%llu,\"longest_ms\":%.3f,"
        "\"lost\":%s,\"errors\":[%s]}\n",
        mode_.c_str(), getpid(), rounds_, static_cast<unsigned long long>(wrong_), longest_,
        lost_ ? "true" : "false", errors_.c_str());
    fflush(stdout);
    rounds_ = 0;
    wrong_ = 0;
    longest_ = 0;
    errors_.clear();
  }

  [[nodiscard]] bool is_lost() const { return lost_; }
  [[nodiscard]] const std::string& mode() const { return mode_; }

 private:
  void note(const Failed& failed, bool went_on) {
    if (!errors_.empty()) errors_ += ",";
    errors_ += json_of(failed, went_on);
  }

  bool recover(Failed failed) {
    for (int i = 0; i < kTries; ++i) {
      const CUresult result = cuCtxSynchronize();
      note(failed, result == CUDA_SUCCESS);
      if (result == CUDA_SUCCESS) return true;
      failed = {result, "cuCtxSynchronize"};
    }
    lost_ = true;
    return false;
  }

  void mix(CUdeviceptr words, uint32_t key, CUstream stream) {
    TRY(e2e::try_launch(mix_, e2e::blocks_for(kWords, kBlock), kBlock, 0, stream, words, kWords,
                        key));
  }

  // The words of this round as the other process sees them. False: it is lost.
  bool read_by_other() {
    const uint32_t which = number_ % 2 == 0 ? 1 : 0;  // next_ is the second at first
    static Answer answer;
    if (!send_all(reader_, &which, sizeof which) || !receive_all(reader_, &answer, sizeof answer)) {
      note({CUDA_ERROR_UNKNOWN, "the other process has ended"}, false);
      lost_ = true;
      return false;
    }
    for (uint32_t i = 0; i < answer.error_count; ++i) {
      note({answer.errors[i], "the other's"}, answer.error_count <= kTries);
    }
    lost_ = answer.error_count > kTries;
    got_.assign(answer.words, answer.words + kWords);
    return !lost_;
  }

  // From state_ to next_ and got_. It may be done again after an error in its middle, and what
  // comes between two synchronisations may be executed again (OPENMPS_REPLAY=always).
  void round(uint32_t key) {
    got_.assign(kWords, 0);
    if (mode_ == "copies") {
      // Through pageable memory, and back through pinned.
      std::vector<uint32_t> pageable(kWords);
      TRY(cuMemcpyDtoH_v2(pageable.data(), state_, kBytes));
      TRY(cuMemcpyHtoDAsync_v2(next_, pageable.data(), kBytes, stream_));
      mix(next_, key, stream_);
      TRY(cuMemcpyDtoHAsync_v2(pinned_, next_, kBytes, stream_));
      TRY(cuStreamSynchronize(stream_));
      TRY(cuMemcpyHtoDAsync_v2(busy_, pinned_, kBytes, stream_));
      TRY(cuMemcpyDtoHAsync_v2(got_.data(), busy_, kBytes, stream_));
      TRY(cuStreamSynchronize(stream_));
      return;
    }
    if (mode_ == "graphs") {
      graph_round(key);
    } else if (mode_ == "pools") {
      CUdeviceptr scratch = 0;
      TRY(cuMemAllocAsync(&scratch, kBytes, stream_));
      TRY(cuMemcpyDtoDAsync_v2(scratch, state_, kBytes, stream_));
      mix(scratch, key, stream_);
      TRY(cuMemcpyDtoDAsync_v2(next_, scratch, kBytes, stream_));
      TRY(cuMemFreeAsync(scratch, stream_));
    } else if (mode_ == "registered") {
      TRY(cuMemcpyDtoHAsync_v2(pinned_, state_, kBytes, stream_));
      mix(mapped_, key, stream_);
      TRY(cuMemcpyHtoDAsync_v2(next_, pinned_, kBytes, stream_));
    } else {
      if (mode_ == "long") {
        TRY(e2e::try_launch(where_, 1, 32, 0, stream_, busy_, kLongSpins));
      }
      TRY(cuMemcpyDtoDAsync_v2(next_, state_, kBytes, stream_));
      mix(next_, key, stream_);
    }
    std::atomic<uint32_t>* const calls = mode_ == "hosts" ? new std::atomic<uint32_t>{0} : nullptr;
    // After an error nobody knows whether the function still runs: its counter is not given back.
    if (calls != nullptr) TRY(cuLaunchHostFunc(stream_, count_up, calls));
    TRY(cuMemcpyDtoHAsync_v2(pinned_, next_, kBytes, stream_));
    TRY(cuStreamSynchronize(stream_));
    if (calls != nullptr) {
      if (*calls != 1) ++wrong_;
      delete calls;
    }
    got_.assign(pinned_, pinned_ + kWords);
  }

  // The same as a graph that is made for this round.
  void graph_round(uint32_t key) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    if (exec_ != nullptr) TRY(cuGraphExecDestroy(std::exchange(exec_, nullptr)));
    TRY(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    try {
      TRY(cuMemcpyDtoDAsync_v2(next_, state_, kBytes, stream_));
      mix(next_, key, stream_);
    } catch (const Failed&) {
      static_cast<void>(cuStreamEndCapture(stream_, &graph));
      if (graph != nullptr) static_cast<void>(cuGraphDestroy(graph));
      throw;
    }
    TRY(cuStreamEndCapture(stream_, &graph));
    const CUresult made = cuGraphInstantiateWithFlags(&exec, graph, 0);
    TRY(cuGraphDestroy(graph));
    if (made != CUDA_SUCCESS) throw Failed{made, "cuGraphInstantiateWithFlags"};
    exec_ = exec;
    TRY(cuGraphLaunch(exec, stream_));
  }

  const std::string mode_;
  const uint32_t seed_;
  std::vector<uint32_t> expected_;  // what state_ has
  const int reader_;                // socket of the second process; -1: none
  e2e::Session& session_;           // never ended: its context may have failed
  CUfunction mix_ = nullptr, where_ = nullptr;
  CUdeviceptr state_ = 0, next_ = 0, busy_ = 0;
  uint32_t* pinned_ = nullptr;
  CUdeviceptr mapped_ = 0;  // registered memory as kernels see it
  CUstream stream_ = nullptr;
  CUgraphExec exec_ = nullptr;  // of the last round
  std::vector<uint32_t> got_;
  uint32_t number_ = 0;  // of the round

  // Since the last report.
  uint32_t rounds_ = 0;
  uint64_t wrong_ = 0;
  double longest_ = 0;  // between the ends of two rounds, ms
  std::string errors_;
  bool lost_ = false;
  Clock::time_point last_ = Clock::now();
};

// Whether there is a line or the end of input, after at most `ms`; -1: for ever.
bool asked(int ms) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, ms) == 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  bool known = false;
  for (const char* one : kModes) {
    known = known || mode == one;
  }
  if (!known) {
    fprintf(stderr,
            "usage: drv_bystander idle|requests|long|copies|graphs|hosts|pools|ipc|"
            "variables|registered [SEED]\n");
    return 2;
  }
  setvbuf(stdin, nullptr, _IONBF, 0);  // poll() sees all that was not read
  Bystander& bystander =
      *new Bystander(mode, static_cast<uint32_t>(e2e::argument(argc, argv, 2, 1)));
  if (!bystander.work()) {
    bystander.report();
    exit(1);
  }
  printf("ready\n");
  fflush(stdout);
  for (;;) {
    const bool waits = bystander.is_lost() || mode == "idle";
    if (asked(waits ? -1 : 0)) {
      const int c = getchar();
      if (c == EOF) break;
      if (c != '\n') continue;
      if (mode == "idle" && !bystander.is_lost()) {
        bystander.begin_anew();
        bystander.work();
      }
      bystander.report();
    } else {
      bystander.work();
      if (mode == "requests") std::this_thread::sleep_for(kPause);
    }
  }
  exit(0);
}
