// SPDX-License-Identifier: Apache-2.0
// Which daemon a program trusts, by the user that the kernel names, and how a daemon proves itself
// where the kernel has no number for that user: docs/decisions/0050. Called by connect_to_daemon(),
// and by the daemon on its only thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>

#include "cuda/status.h"

namespace openmps::wire {

// How a process sees users.
struct Viewer {
  uid_t user = 0;  // its own effective one
  // The number of every user who has none in its user namespace.
  uid_t overflow = 0;
  // It is in a namespace in which all users have numbers, so `overflow` is one user as any other.
  bool sees_all = true;
};

enum class Trust {
  kGiven,
  kRefused,
  kNeedsProof,  // the daemon may be root's, but may be that of anybody outside the user namespace
};

// `daemon`: whose daemon it is, as the viewer sees it. `named`: OPENMPS_DAEMON_UID.
Trust trust_in(uid_t daemon, const Viewer& viewer, std::optional<uid_t> named);

// How this process sees users. Reads files of /proc; without them it is a process that does not see
// all.
Viewer this_viewer();

// The question, as a connection's first packet, and the answer: a packet that its sender states to
// be the asker's. The kernel lets only those say so who are the asker's user, or may become it.

// The program's half: asks the daemon at the other end, and waits for the answer. Errors:
// CUDA_ERROR_NOT_PERMITTED: it has proved nothing.
Status demand_proof(int socket, uid_t user);

// The daemon's half: whether a packet is the question, and the answer to it. `user`: the asker, as
// the kernel names it. Errors: those of send_packet_as().
bool is_demand_for_proof(std::span<const std::byte> packet);
Status give_proof(int socket, uid_t user);

}  // namespace openmps::wire
