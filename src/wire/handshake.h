// SPDX-License-Identifier: Apache-2.0
// The messages that are exchanged over sockets, one struct per packet, before and beside the ring:
//
//   client -> daemon -> server : Hello   (the daemon passes the connection on, with the credentials
//                                         that the kernel reports, and takes no further part)
//   server -> client           : Welcome (+ host file, facts file) or the reason why not
//   server <-> worker          : WorkerReady, OpenSession, SessionReady, ChangeSession,
//                                ChangeGroup, Reserve, Reserved, CloseSession, SessionClosed,
//                                SessionFault, DescriptorTaken, WorkerLost, LeaveSession,
//                                HandedOver, Keep, Forget, Forgotten, Give,
//                                ShareMemory, FindMemory, SuspendSession, SessionSuspended,
//                                MemoryShort
//   client <-> worker          : PassDescriptor (through the server)
//   server <-> daemon          : Admit, SetGroup, ServerReady, Query, Answer, Shutdown,
//                                ShutdownRefused, Rejoin, Totals, Event
//   shell <-> daemon           : UiCommand, UiReply
//
// All begin with MessageHeader. The reader checks kind, version and exact size.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/abi.h"
#include "wire/build.h"
#include "wire/client_limits.h"
#include "wire/layout.h"
#include "wire/usage.h"

namespace openmps::wire {

// Name of the daemon's socket in CUDA_MPS_PIPE_DIRECTORY. NVIDIA's client tries no such name.
inline constexpr const char* kControlSocketName = "openmps.control";
inline constexpr const char* kDefaultLogDirectory = "/var/log/nvidia-mps";

inline constexpr uint32_t kReasonBytes = 256;  // one sentence
// The name of a server, with a terminating zero: 64 characters as in NVIDIA's interface v3.
inline constexpr uint32_t kServerNameBytes = 65;
// The name of a group with a terminating zero: a word, or a word, a colon and the path of a cgroup.
// The longest path that was seen, of Kubernetes in a container, has 301 characters.
inline constexpr uint32_t kGroupNameBytes = 384;
// The name of a fault domain with a terminating zero.
inline constexpr uint32_t kDomainNameBytes = 32;
// That of all clients that are in no other one.
inline constexpr std::string_view kCommonDomain = "common";
inline constexpr uint32_t kMaxSmGroups = 128;  // of a device: more than any GPU has
// The largest packet of these messages; receive_packet's bound.
inline constexpr uint32_t kMaxMessageBytes = 64 * 1024;

enum class MessageKind : uint32_t {
  kHello = 1,
  kWelcome = 2,
  kUiCommand = 3,  // control shell -> daemon: text of one command line
  kUiReply = 4,    // daemon -> control shell: UiReply + text
  kAdmit = 10,
  kServerReady = 11,
  kQuery = 12,
  kAnswer = 13,
  kShutdown = 14,
  kShutdownRefused = 15,
  kRejoin = 16,
  kTotals = 17,
  kEvent = 18,
  kWorkerReady = 20,
  kOpenSession = 21,
  kSessionReady = 22,
  kCloseSession = 23,
  kSessionClosed = 24,
  kSessionFault = 25,
  kWindowFree = 26,
  kChangeSession = 27,
  kReserve = 28,
  kReserved = 29,
  kPassDescriptor = 30,
  kDescriptorTaken = 31,
  kSetGroup = 32,
  kChangeGroup = 33,
  kProbe = 34,
  kAlive = 35,
  kWorkerLost = 36,
  kHandedOver = 37,
  kKeep = 38,
  kForget = 39,
  kForgotten = 40,
  kGive = 41,
  kLeaveSession = 42,
  kShareMemory = 43,
  kFindMemory = 44,
  kSuspendSession = 45,
  kSessionSuspended = 46,
  kMemoryShort = 47,
};

struct MessageHeader {
  uint32_t magic = kMagic;
  uint32_t version = kProtocolVersion;
  MessageKind kind;
  uint32_t bytes;  // of the whole message
};

// A part of the answer to a command: text follows. The last part has more = 0.
struct UiReply {
  MessageHeader header{.kind = MessageKind::kUiReply, .bytes = sizeof(UiReply)};  // + text
  uint32_t exit_status = 0;                                                       // for the shell
  uint32_t more = 0;
  uint64_t build = kBuildHash;  // for `openmps doctor`; commands are text, of any build
};

// How a client wants to be scheduled beside others (OPENMPS_QOS).
enum class Quality : uint32_t {
  kUnset = 0,
  kLatency = 1,     // "latency": goes first
  kNormal = 2,      // "normal"
  kBestEffort = 3,  // "best-effort": comes last, as with MPS's priority 1
  kUnknown = 4,     // something else
};
// `text` null: the program says nothing.
inline Quality quality_of(const char* text) {
  if (text == nullptr) return Quality::kUnset;
  const std::string_view said(text);
  if (said == "latency") return Quality::kLatency;
  if (said == "normal") return Quality::kNormal;
  return said == "best-effort" ? Quality::kBestEffort : Quality::kUnknown;
}

// The quality of a client: what the program says, else what its priority means.
inline Quality settled_quality(Quality said, uint32_t client_priority) {
  if (said == Quality::kLatency || said == Quality::kNormal || said == Quality::kBestEffort) {
    return said;
  }
  return client_priority == kLowestPriority ? Quality::kBestEffort : Quality::kNormal;
}

// What of a program's work may be given again if it was under way when its worker was lost, so that
// nothing is lost (OPENMPS_REPLAY).
enum class Replay : uint32_t {
  kCopies = 0,   // "copies", and nothing said: copies and fills
  kAlways = 1,   // "always": all that streams were given since their last fence that was reached
  kNever = 2,    // "never": nothing
  kUnknown = 3,  // something else
};
inline Replay replay_of(const char* text) {
  const std::string_view said(text == nullptr ? "copies" : text);
  if (said == "copies") return Replay::kCopies;
  if (said == "always") return Replay::kAlways;
  return said == "never" ? Replay::kNever : Replay::kUnknown;
}

// A fault domain of a server: a word of letters, digits, "_", "-" and ".".
inline bool is_domain_name(std::string_view name) {
  constexpr std::string_view kAll =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.";
  return !name.empty() && name.size() < kDomainNameBytes &&
         name.find_first_not_of(kAll) == std::string_view::npos;
}

// A static partition: groups of SMs ("chunks") of one device that only the clients which name the
// partition use. The daemon has the partitions of all users; servers and workers have those in use.
struct StaticPartition {
  uint32_t device = 0;
  uint32_t sms = 0;  // in these groups, which is what its clients are told; 0: no partition
  uint64_t groups[kMaxSmGroups / 64] = {};
  uint32_t lends = 0;     // 1: others may use the SMs while its clients have no work
  uint32_t most_sms = 0;  // that its clients may use while others lend theirs; 0: `sms`
  bool operator==(const StaticPartition&) const = default;
};

// What a program states about itself. Its limits may only lower what the server grants.
struct Hello {
  MessageHeader header{.kind = MessageKind::kHello, .bytes = sizeof(Hello)};
  uint32_t pid = 0;  // in the client's namespace, for its own messages only
  uint32_t namespace_inode = 0;
  Quality quality = Quality::kUnset;
  Replay replay = Replay::kCopies;
  uint64_t build = kBuildHash;
  ClientLimits limits;             // of its environment; a percentage of 0: unset
  char visible_devices[256] = {};  // CUDA_VISIBLE_DEVICES, "\x01" in front if it is set
  char command[256] = {};          // argv[0] and what fits
  // OPENMPS_GROUP. Longer than the name of a group may be, so a truncated name is no valid one.
  char group[72] = {};
  char sm_partition[96] = {};  // CUDA_MPS_SM_PARTITION: a UUID of 40 characters, "/" and a name
  // OPENMPS_DOMAIN; "": "common". Longer than the name of a domain may be, as above.
  char domain[kDomainNameBytes + 8] = {};
};

struct Welcome {
  MessageHeader header{.kind = MessageKind::kWelcome, .bytes = sizeof(Welcome)};
  uint32_t result = CUDA_SUCCESS;  // else that of cuInit: no other field but the reason counts
  uint32_t session = 0;
  uint64_t build = kBuildHash;
  uint64_t window_base = 0;
  uint32_t server_pid = 0;
  uint32_t spin_us = 0;   // how long to spin before sleeping, chosen by the worker for this machine
  ClientLimits limits;    // granted to the client alone
  uint32_t in_group = 0;  // 1: other members of its group wait for the memory that it frees
  uint32_t reserved = 0;
  ClientLimits group_limits;  // of all members of the client's group together
  StaticPartition partition;  // if it has SMs, the client sees no other device
  char reason[kReasonBytes] = {};
  // Descriptors, in this order, with CUDA_SUCCESS: host file, facts file (device_facts.h).
};

struct WorkerReady {
  MessageHeader header{.kind = MessageKind::kWorkerReady, .bytes = sizeof(WorkerReady)};
  uint32_t result = CUDA_SUCCESS;  // an error: the worker can't work, for the reason below
  uint32_t spin_us = 0;
  uint64_t build = kBuildHash;
  char reason[kReasonBytes] = {};
  // Descriptors: facts file, table of usage (usage.h) if there is one.
};

// What a session is granted.
struct Grant {
  ClientLimits limits;
  Quality quality = Quality::kUnset;
  uint32_t reservation = 0;  // the number of the reservation (Reserve) that it uses; 0: none
  uint32_t group = 0;        // its group, from its start to its end; 0: none
  Replay replay = Replay::kCopies;
};

// What a session has been before.
enum class Adoption : uint32_t {
  kNone = 0,
  // Another worker's, which has handed it over. It is made again from its journal, and what the
  // server has kept for it has been given (Give) before.
  kHandedOver = 1,
  // The same, of a worker that has died or whose thread could not be asked: what streams have been
  // given and is not known to have ended (GivenWork) is lost.
  kFound = 2,
};
// How much of a session's memory is on its devices.
enum class Residence : uint32_t {
  kDevice = 0,  // all of it
  kHost = 1,    // not all: the rest comes back before the session's next work
  kHeld = 2,    // the same, and the session executes nothing until it is resumed
};
struct OpenSession {
  MessageHeader header{.kind = MessageKind::kOpenSession, .bytes = sizeof(OpenSession)};
  uint32_t session = 0;
  uint32_t window = 0;  // index of the address window
  uint32_t client_pid = 0;
  Adoption adoption = Adoption::kNone;
  Grant grant;
  ClientLimits group_limits;  // of its group, as they are now
  char command[256] = {};
  Residence residence = Residence::kDevice;  // that the session is to have from its start on
  uint32_t reserved = 0;
  // Descriptors: host file, journal (journal.h).
};
// The grant from now on. Work that was submitted before is not affected.
struct ChangeSession {
  MessageHeader header{.kind = MessageKind::kChangeSession, .bytes = sizeof(ChangeSession)};
  uint32_t session = 0;
  uint32_t reserved = 0;
  Grant grant;
};

// The limits of all sessions of a group together (docs/decisions/0029) from now on. A priority is
// that of each of them.
struct ChangeGroup {
  MessageHeader header{.kind = MessageKind::kChangeGroup, .bytes = sizeof(ChangeGroup)};
  uint32_t group = 0;
  uint32_t reserved = 0;
  ClientLimits limits;
};

// Keep at least so many SMs of a device for the sessions whose grant names this number, chosen by
// the server; 0 SMs: end the reservation. Answered by Reserved unless it ends. `groups`: exactly
// these groups of SMs, and no use of other devices by the sessions; none: the worker chooses.
// `most_sms`: of a reservation that lends: with SMs that are lent or reserved for nobody, while the
// sessions have work and nobody else has; 0: no others.
struct Reserve {
  MessageHeader header{.kind = MessageKind::kReserve, .bytes = sizeof(Reserve)};
  uint32_t number = 0;
  uint32_t device = 0;
  uint32_t sms = 0;
  uint32_t lends = 0;  // 1: others may use the SMs while these sessions have no work
  uint64_t groups[kMaxSmGroups / 64] = {};
  uint32_t most_sms = 0;
  uint32_t reserved = 0;
};
struct Reserved {
  MessageHeader header{.kind = MessageKind::kReserved, .bytes = sizeof(Reserved)};
  uint32_t number = 0;
  uint32_t result = CUDA_SUCCESS;
  uint32_t sms = 0;  // that are kept
  uint32_t reserved = 0;
};

// A `result` of CUDA_ERROR_MPS_SERVER_NOT_READY: the next worker may open the session.
struct SessionReady {
  MessageHeader header{.kind = MessageKind::kSessionReady, .bytes = sizeof(SessionReady)};
  uint32_t session = 0;
  uint32_t result = CUDA_SUCCESS;
  // Of work that was under way in the former worker: streams in which it is lost, and commands that
  // are given again.
  uint32_t lost_streams = 0;
  uint32_t given_again = 0;
  char reason[kReasonBytes] = {};
};

// Drain, free everything, then answer SessionClosed. `result` becomes the session's sticky status.
// A session that is not there: it has ended in another worker, if it was ever here.
// Session 0 closes none: the worker gets no new sessions, because the work of one that was closed
// does not end, and refuses what would wait for that work.
struct CloseSession {
  MessageHeader header{.kind = MessageKind::kCloseSession, .bytes = sizeof(CloseSession)};
  uint32_t session = 0;
  uint32_t result = CUDA_ERROR_MPS_RPC_FAILURE;
};

// `tainted`: the session has changed the shared contexts (the device's heap, limits); only a new
// worker has unchanged ones.
struct SessionClosed {
  MessageHeader header{.kind = MessageKind::kSessionClosed, .bytes = sizeof(SessionClosed)};
  uint32_t session = 0;
  uint32_t tainted = 0;
};

// The worker holds nothing more of the session that was opened with this window: sent once for each
// OpenSession, before or after SessionClosed. A session's releases may have to wait for the work of
// other sessions (docs/decisions/0013).
struct WindowFree {
  MessageHeader header{.kind = MessageKind::kWindowFree, .bytes = sizeof(WindowFree)};
  uint32_t window = 0;
  uint32_t reserved = 0;
};

// The worker ended a session by itself (violation), or the context is lost (fault): the server logs
// the reason. After a violation the worker drains and frees at once: SessionClosed follows without
// a CloseSession, and a CloseSession on its way is ignored.
struct SessionFault {
  MessageHeader header{.kind = MessageKind::kSessionFault, .bytes = sizeof(SessionFault)};
  uint32_t session = 0;  // 0: the whole context
  uint32_t result = CUDA_SUCCESS;
  char reason[kReasonBytes] = {};
};

// The worker's contexts are lost by a kernel's fault. Its sessions execute nothing more, and their
// clients have not been told. A HandedOver for each session follows.
struct WorkerLost {
  MessageHeader header{.kind = MessageKind::kWorkerLost, .bytes = sizeof(WorkerLost)};
  // 1: the driver has not told yet, and the GPU executes nothing for anybody until it does or the
  // worker has ended.
  uint32_t stands_still = 0;
  uint32_t result = CUDA_SUCCESS;  // the code of the fault
  char reason[kReasonBytes] = {};  // how the worker has noticed
};

// What becomes of a session whose worker is lost.
enum class Outcome : uint32_t {
  kMoved = 0,  // nothing was under way: the program notices a pause
  kTold = 1,   // work was under way: unless the next worker gives it again, the program gets one
               // error that is not sticky
  kLost = 2,   // it can't be made again: the program gets a sticky error
  // Not known yet: its memory is being exported, which takes a while, and another HandedOver
  // follows.
  kComing = 3,
  // It was to leave, and stays for the reason: it goes on here.
  kStays = 4,
};

// Another worker is to have the session, although this one is well: once nothing of it is under
// way, drain it, release all but what the server keeps for it and its journal, and answer
// HandedOver (kMoved, or kStays). No SessionClosed follows.
struct LeaveSession {
  MessageHeader header{.kind = MessageKind::kLeaveSession, .bytes = sizeof(LeaveSession)};
  uint32_t session = 0;
  uint32_t limit_ms = 0;  // what is under way then keeps the session here
};
// The session's thread executes nothing more, and the session's journal is complete.
struct HandedOver {
  MessageHeader header{.kind = MessageKind::kHandedOver, .bytes = sizeof(HandedOver)};
  uint32_t session = 0;
  Outcome outcome = Outcome::kMoved;
  uint32_t streams = 0;     // with work that is lost
  uint32_t has_kernel = 0;  // 1: a kernel of the session may have been running: it may be guilty
  uint32_t asserts = 0;     // 1: some of its kernels have assertions
  uint32_t still_ms = 0;    // for how long a stream with work had not moved then; 0: not known
  uint64_t stream = 0;      // of that kernel, as the client numbers it
  uint32_t grid[3] = {};    // of that kernel: blocks
  uint32_t block[3] = {};   // threads
  char kernel[kReasonBytes] = {};  // its name, cut
  char reason[kReasonBytes] = {};  // why it is lost, or what is lost
};

// What a descriptor that the server keeps is.
enum class Kept : uint32_t {
  kMemory = 0,  // physical memory of a device, of one session
  kImage = 1,   // an image in a sealed file, of all sessions of the server; `session` is 0
  kShared = 2,  // memory that a session shares: the answer to ShareMemory and FindMemory
  // The contents of memory of one session that is not on its device now, in a part of a file of the
  // worker's. It has the memory's number, and the two replace each other.
  kContents = 3,
};
// Worker to server: keep this descriptor for a next worker, until Forget or the session's end.
struct Keep {
  MessageHeader header{.kind = MessageKind::kKeep, .bytes = sizeof(Keep)};
  uint32_t session = 0;
  Kept what = Kept::kMemory;
  uint64_t number = 0;  // of memory: unique in the session; of an image: its hash
  uint64_t bytes = 0;   // of memory: 0: imported, its size is not known
  uint32_t device = 0;  // of memory
  uint32_t reserved = 0;
  uint64_t offset = 0;  // of contents: in the file
  uint64_t ticket = 0;  // of contents: that of a Forget of the memory; 0: no answer is needed
  // Descriptor.
};
// Worker to server: close it. The memory is free when the server has answered Forgotten with this
// or a later ticket. `number` 0: nothing but the answer.
struct Forget {
  MessageHeader header{.kind = MessageKind::kForget, .bytes = sizeof(Forget)};
  uint32_t session = 0;
  Kept what = Kept::kMemory;
  uint64_t number = 0;
  uint64_t ticket = 0;  // grows; 0: no answer is needed
};
struct Forgotten {
  MessageHeader header{.kind = MessageKind::kForgotten, .bytes = sizeof(Forgotten)};
  uint64_t ticket = 0;
};
// Server to worker, before the OpenSession that adopts the session (memory), as the answer to
// ShareMemory and FindMemory (shared), or at any time (images): what another worker has had the
// server keep.
struct Give {
  MessageHeader header{.kind = MessageKind::kGive, .bytes = sizeof(Give)};
  uint32_t session = 0;
  Kept what = Kept::kMemory;
  uint64_t number = 0;
  uint64_t bytes = 0;
  uint32_t device = 0;
  uint32_t is_shared = 0;  // 1: of memory: others may have it, too
  uint64_t offset = 0;     // of contents
  // Descriptor; none: the answer to ShareMemory; there is no such memory (shared); or the system
  // had none left.
};

// The random bytes of a wire::ShareKey (api/commands/memory.toml).
inline constexpr size_t kShareKeyBytes = 16;
// Worker to server: memory that the server keeps of this session can be had by this key from now
// on, until the session ends or the server is told to forget it. `number` 0: no longer. With a
// ticket it is answered by Give, with the ticket as its number: what another worker asks for may
// come before what this one has sent before that.
struct ShareMemory {
  MessageHeader header{.kind = MessageKind::kShareMemory, .bytes = sizeof(ShareMemory)};
  uint32_t session = 0;
  uint32_t has_no_key = 0;  // 1: others have got the memory in another way
  uint64_t number = 0;
  uint64_t ticket = 0;  // 0: no answer is needed
  unsigned char key[kShareKeyBytes] = {};
};
// Worker to server: give the memory that can be had by this key. Answered by Give, with the ticket
// as its number.
struct FindMemory {
  MessageHeader header{.kind = MessageKind::kFindMemory, .bytes = sizeof(FindMemory)};
  uint64_t ticket = 0;
  unsigned char key[kShareKeyBytes] = {};
};

// Server to worker: move the session's memory to the host once nothing of it is under way (kHost,
// kHeld), or let it go on (kDevice). Answered by SessionSuspended.
struct SuspendSession {
  MessageHeader header{.kind = MessageKind::kSuspendSession, .bytes = sizeof(SuspendSession)};
  uint32_t session = 0;
  Residence residence = Residence::kHost;
  uint32_t limit_ms = 0;  // what is under way then keeps the memory where it is
  uint32_t reserved = 0;
};
struct SessionSuspended {
  MessageHeader header{.kind = MessageKind::kSessionSuspended, .bytes = sizeof(SessionSuspended)};
  uint32_t session = 0;
  // CUDA_ERROR_NOT_READY: its work has not ended. CUDA_ERROR_OUT_OF_MEMORY: the host has no memory
  // for it. CUDA_ERROR_NOT_SUPPORTED: sessions' memory is not moved (OPENMPS_SUSPEND=off).
  uint32_t result = CUDA_SUCCESS;
  uint64_t moved = 0;  // bytes that have gone to the host now
  uint64_t stays = 0;  // bytes that stay on the devices: other sessions have the memory, too
};
// Worker to server, and server to its other workers: sessions there that borrow memory of a device
// and are idle move it to the host.
struct MemoryShort {
  MessageHeader header{.kind = MessageKind::kMemoryShort, .bytes = sizeof(MemoryShort)};
  uint32_t device = 0;
  uint32_t reserved = 0;
  uint64_t bytes = 0;
};

// A descriptor of device memory from a client to its session in the worker or back, through the
// server. It belongs to the command with this ticket. The worker confirms each, so that no client
// can fill the worker's socket.
struct PassDescriptor {
  MessageHeader header{.kind = MessageKind::kPassDescriptor, .bytes = sizeof(PassDescriptor)};
  uint32_t session = 0;  // the client need not fill it in
  uint32_t ticket = 0;
  // Descriptor: the memory or, with kRecordTicket, a SOCK_SEQPACKET connection into which the
  // session is to be recorded (cupti/recording.h).
};
inline constexpr uint32_t kRecordTicket = ~0u;
struct DescriptorTaken {
  MessageHeader header{.kind = MessageKind::kDescriptorTaken, .bytes = sizeof(DescriptorTaken)};
  uint32_t session = 0;
  uint32_t reserved = 0;
};
// Unconfirmed descriptors of one client, at most: the server reads no more of it until the worker
// has confirmed one.
inline constexpr uint32_t kMaxPassing = 4;

// The daemon asks a server to which it has passed a client, and a server a worker that has
// sessions, whether its main thread runs. And the answer.
struct Probe {
  MessageHeader header{.kind = MessageKind::kProbe, .bytes = sizeof(Probe)};
};
struct Alive {
  MessageHeader header{.kind = MessageKind::kAlive, .bytes = sizeof(Alive)};
};

// Daemon to server: a client, with its connection as descriptor.
struct Admit {
  MessageHeader header{.kind = MessageKind::kAdmit, .bytes = sizeof(Admit)};
  uint32_t pid = 0;  // SO_PEERCRED in the daemon's namespace; 0: the daemon can't see it
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t reserved = 0;
  ClientLimits default_limits;       // of this server's clients
  char group[kGroupNameBytes] = {};  // the client's group or namespace; "": none
  ClientLimits group_limits;         // as the daemon states them
  StaticPartition partition;         // that the client names, under a daemon with -S
  Hello hello;
};

// Daemon to server: the limits from now on of the group or namespace of that name, and of all
// groups whose name begins with it and a colon.
struct SetGroup {
  MessageHeader header{.kind = MessageKind::kSetGroup, .bytes = sizeof(SetGroup)};
  char group[kGroupNameBytes] = {};
  ClientLimits limits;
  uint32_t is_permanent = 0;  // 1: the group exists without members, too
  uint32_t reserved = 0;
};

struct ServerReady {
  MessageHeader header{.kind = MessageKind::kServerReady, .bytes = sizeof(ServerReady)};
  uint32_t result = CUDA_SUCCESS;
  uint32_t worker_pid = 0;
  uint64_t build = kBuildHash;
  char reason[kReasonBytes] = {};
};

// The first packet of a connection that a server with clients makes to the next daemon, after the
// daemon that started it has died. The next daemon adopts the server, or tells it to shut down.
struct Rejoin {
  MessageHeader header{.kind = MessageKind::kRejoin, .bytes = sizeof(Rejoin)};
  uint64_t build = kBuildHash;
  char server[kServerNameBytes] = {};  // its name
  char reserved[7] = {};
};

// What happens in a server (docs/decisions/0055).
enum class EventKind : uint32_t {
  kWorkerStarted = 0,  // a worker serves
  kWorkerDied = 1,     // a worker has ended by itself, or was killed
  kFault = 2,          // a worker has lost its contexts; the client is the culprit, if one is known
  kTakeover = 3,       // the clients of such a worker go on, or have lost their sessions
  kMoved = 4,          // a client has another worker
  kLost = 5,           // a client has lost its session, by the fault of another or its own
  kClientFailed = 6,   // a client is ended with an error that concerns nobody else
  kTerminated = 7,     // by command
  kQuarantined = 8,    // the program's next clients are kept apart
  kRefused = 9,        // a client has not been admitted
  kNumber = 10,
};
inline constexpr size_t kEventKinds = static_cast<size_t>(EventKind::kNumber);
// Server to daemon.
struct Event {
  MessageHeader header{.kind = MessageKind::kEvent, .bytes = sizeof(Event)};
  EventKind event = EventKind::kNumber;
  uint32_t result = CUDA_SUCCESS;  // the CUDA error
  uint32_t pid = 0;                // the client's, as in ClientRow; 0 with id 0: there is none
  uint32_t id = 0;
  uint64_t at_ns = 0;  // since 1970
  char command[256] = {};
  char group[kGroupNameBytes] = {};
  char domain[kDomainNameBytes] = {};
  char text[kReasonBytes] = {};  // one sentence
};

// Daemon asks, server answers with Answer + ClientRow[rows] (kClients: those with the lowest ids
// above `session`; `more`: ask again, above the last of them), GroupRow[rows] (kGroups: the same by
// number), TotalsRow[rows] (kTotals: likewise), for kDevices with text: a line "pci bus id \t uuid
// \t name \t SMs \t bytes of memory \t SMs of a group \t SMs of all groups \t compute capability
// (10 * major + minor) \t CUDA version of the driver (13000)" for each device, for kPartitions
// with StaticPartition[] that have clients in any state, and for kInspect with SessionReport +
// WaitRow[waits], or nothing if it has no such session. kTerminate is answered when nothing of the
// client is left, or its worker is retired with what is left, kChange when the worker has been
// told, kReserve when the worker has answered, kRenew and kMove when each session has moved or
// stays, kSuspend and kResume when the worker has answered, kTrace at once.
enum class QueryKind : uint32_t {
  kStatus = 0,
  kClients = 1,
  kDevices = 2,
  kInspect = 3,
  kTerminate = 4,  // ends the sessions of a client: they get CUDA_ERROR_MPS_CLIENT_TERMINATED
  kChange = 5,     // one limit of a client, or of a group
  kGroups = 6,
  kPartitions = 7,
  kReserve = 8,   // SMs of a device for a client or a program alone
  kRenew = 9,     // new workers take over the sessions of the present ones
  kMove = 10,     // a client goes on in another fault domain, of the name
  kSuspend = 11,  // a client's memory goes to the host
  kResume = 12,   // and the client goes on
  kTotals = 13,   // what the clients of each group have used
  // A client, or all of the server's, are recorded into the descriptor that comes with the query, a
  // SOCK_SEQPACKET connection, until nobody has its other end any more: in each of their workers,
  // and those that come later, too.
  kTrace = 14,
};
struct Change {
  Limit limit = Limit::kPercentage;  // kChange, with its value
  uint32_t device = 0;
  LimitValue value = 0;
  uint32_t sms = 0;                        // kReserve; 0: no longer
  uint32_t lends = 0;                      // kReserve: others may use them while it has no work
  Residence residence = Residence::kHost;  // kSuspend: kHost or kHeld
  uint32_t reserved = 0;
  // Without a PID and an id: of the clients' program (kReserve), or of the group. kMove: of the
  // domain.
  char name[kGroupNameBytes] = {};
};
struct Query {
  MessageHeader header{.kind = MessageKind::kQuery, .bytes = sizeof(Query)};
  QueryKind query = QueryKind::kStatus;
  uint32_t ticket = 0;  // echoed
  uint32_t session =
      0;            // kInspect: its id, or its client's PID; kTerminate, kChange, kReserve,
                    // kMove, kSuspend, kResume, kTrace: the PID; kClients, kGroups, kTotals: above
  uint32_t id = 0;  // the session's id, if the query means a client without a PID
  Change change = {};
};
enum class ServerState : uint32_t { kInitializing = 0, kActive = 1, kFault = 2 };
// The reason for which a session can't move (journal.h), with a terminating zero.
inline constexpr uint32_t kStaysBytes = 120;
struct ClientRow {
  uint32_t pid = 0;  // Admit's
  uint32_t id = 0;   // unique within the server
  uint32_t device = 0;
  uint32_t namespace_inode = 0;
  uint32_t ending = 0;  // 1: the program has gone or is cut off, and its work has not ended yet
  float active_thread_percentage = 100;  // granted, or its group's if that is less
  Quality quality = Quality::kNormal;    // settled
  uint32_t silent = 0;                   // 1: its worker is stopped or hangs, and does not answer
  uint32_t claimed_pid = 0;              // the PID that the client states
  uint32_t moves = 0;                    // how often it has moved to another worker
  Residence residence = Residence::kDevice;
  uint32_t reserved = 0;
  // Why it could not move if its worker were lost now; "": it could.
  char stays[kStaysBytes] = {};
  char device_uuid[48] = {};  // "GPU-xxxxxxxx-...": the shell cuts it
  char command[256] = {};
  char group[kGroupNameBytes] = {};  // "": none
  char domain[kDomainNameBytes] = {};
  StaticPartition partition;  // no SMs: in none
  Usage usage;
};
struct GroupRow {
  uint32_t number = 0;  // unique within the server
  uint32_t members = 0;
  char name[kGroupNameBytes] = {};
  ClientLimits limits;
  uint64_t memory[kMaxDevices] = {};  // bytes that its members hold
};
// What the clients of one group have used since the server has started (docs/decisions/0055).
struct TotalsRow {
  uint32_t number = 0;               // unique within the server
  uint32_t open = 0;                 // sessions that are there
  uint64_t sessions = 0;             // those, and those that have ended
  char group[kGroupNameBytes] = {};  // "": clients in no group, and of groups that are forgotten
  Usage usage;
};
// Server to daemon, when a session has ended, and for all groups behind Rejoin: the figures of the
// group's sessions that have ended. Without sessions: the group is forgotten, and its figures are
// those of the group "" from now on.
struct Totals {
  MessageHeader header{.kind = MessageKind::kTotals, .bytes = sizeof(Totals)};
  TotalsRow row;
};
struct Answer {
  MessageHeader header{.kind = MessageKind::kAnswer, .bytes = sizeof(Answer)};  // + rows
  QueryKind query = QueryKind::kStatus;
  uint32_t ticket = 0;
  ServerState state = ServerState::kInitializing;
  uint32_t rows = 0;
  uint32_t more = 0;
  // kRenew: CUDA_ERROR_MPS_SERVER_NOT_READY: there is no worker, or the new one does not start;
  // CUDA_ERROR_NOT_PERMITTED: there would be too many. kMove: CUDA_ERROR_NOT_PERMITTED: SMs are
  // reserved for the client, or other members of its group are there;
  // CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: there are too many domains.
  // kSuspend, kResume: as SessionSuspended. kTerminate, kChange, kReserve, kMove, kSuspend,
  // kResume: CUDA_ERROR_INVALID_VALUE: there is no such client.
  // kChange, kReserve: CUDA_ERROR_INVALID_DEVICE. kReserve:
  // CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: the others would keep too few SMs;
  // CUDA_ERROR_ALREADY_ACQUIRED: it has some reserved already.
  uint32_t result = CUDA_SUCCESS;
  uint32_t amount = 0;  // kReserve: SMs that are kept; kChange of a group: its members; kRenew,
                        // kMove: sessions that have moved; kTrace: sessions that are recorded
  uint32_t stayed = 0;  // kRenew, kMove: sessions that could not
  uint64_t moved_bytes = 0;   // kSuspend: SessionSuspended::moved
  uint64_t stayed_bytes = 0;  // kSuspend: SessionSuspended::stays
};
inline constexpr uint32_t kMaxClientRows = (kMaxMessageBytes - sizeof(Answer)) / sizeof(ClientRow);
inline constexpr uint32_t kMaxGroupRows = (kMaxMessageBytes - sizeof(Answer)) / sizeof(GroupRow);
inline constexpr uint32_t kMaxTotalsRows = (kMaxMessageBytes - sizeof(Answer)) / sizeof(TotalsRow);
// The state of a session as its channel shows it (wire/layout.h), and what waits in it.
struct SessionReport {
  uint32_t pid = 0;
  uint32_t id = 0;
  uint32_t ending = 0;
  uint32_t status = CUDA_SUCCESS;
  uint32_t async_error = CUDA_SUCCESS;
  uint32_t sleeping = 0;  // 1: the executor sleeps, without commands
  uint64_t ring_bytes = 0;
  uint64_t executed = 0;  // commands
  uint32_t opcode = 0;    // being executed; 0: none
  uint32_t later = 0;
  ExecutorWait wait = ExecutorWait::kNone;
  uint32_t waiters = 0;  // threads of the client that sleep
  uint64_t wait_ns = 0;
  uint32_t waits = 0;
  uint32_t more_waits = 0;  // that do not fit into the report
  // The executor's counts, of which there may be fewer rows.
  uint32_t value_waits = 0;
  uint32_t returns = 0;
  uint64_t value_waits_age_ns = 0;  // since the executor last looked which are open
  uint32_t held = 0;                // pieces of work that are held
  uint32_t unused = 0;
};
enum class WaitKind : uint32_t {
  kQueued = 0,        // `have` commands `number` (an opcode) are in the ring
  kReply = 1,         // a thread of the client waits for reply slot `number`
  kFence = 2,         // of `stream`: the GPU has brought slot `number` to `have` of `want`
  kHostFunction = 3,  // a stream waits until the client has run the function of slot `number`
  // Session `number` (0: the worker) of process `want` (0: unknown) keeps the executor waiting, by
  // `how` (Hindrance) of its `stream`.
  kHindrance = 4,
  // `stream` waits (`number` 1), or will (0), for `want` at `address`; `how` is ValueWait's.
  kValue = 5,
  // `number` (ReturnKind), `have` bytes at `address`, is given back later: `how` says when
  // (ReturnWait), behind `stream`.
  kReturn = 6,
};
struct WaitRow {
  WaitKind kind = WaitKind::kQueued;
  uint32_t number = 0;
  uint32_t stream = 0;
  uint32_t how = 0;
  uint64_t have = 0;
  uint64_t want = 0;
  uint64_t address = 0;
  uint64_t age_ns = 0;  // of a value's wait and of a return
};
inline constexpr uint32_t kMaxWaitRows = 512;
static_assert(sizeof(Answer) + sizeof(SessionReport) + kMaxWaitRows * sizeof(WaitRow) <=
              kMaxMessageBytes);

// Stop when the last client has gone (force 0: the server refuses while it has clients, with
// ShutdownRefused), or at once (force 1: clients get CUDA_ERROR_MPS_RPC_FAILURE).
struct Shutdown {
  MessageHeader header{.kind = MessageKind::kShutdown, .bytes = sizeof(Shutdown)};
  uint32_t force = 0;
  uint32_t reserved = 0;
};
struct ShutdownRefused {
  MessageHeader header{.kind = MessageKind::kShutdownRefused, .bytes = sizeof(ShutdownRefused)};
  uint32_t active_clients = 0;
  uint32_t reserved = 0;
};

}  // namespace openmps::wire
