// SPDX-License-Identifier: Apache-2.0
// Which namespaces of shares have lost their container. Allocate tells no pod, and nobody tells a
// device plugin that a pod has ended; the kubelet's list of pods and their devices shows it after
// the event. Pure, its owner locks it. Times are of base/clock.h.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace openmps::kubernetes {

class Garbage {
 public:
  // A namespace that the kubelet has listed is garbage when it has not been listed for that long.
  // One that it has never listed may be that of an init container, which the list leaves out, and
  // is given `never_listed_ns`.
  Garbage(uint64_t listed_ns, uint64_t never_listed_ns)
      : listed_ns_(listed_ns), never_listed_ns_(never_listed_ns) {}

  // It has been made, or a container is to use it from now on, which may be another one than
  // before.
  void use(const std::string& name, uint64_t now);
  // What the daemon has: others are forgotten, and new ones used now.
  void set(const std::vector<std::string>& names, uint64_t now);
  // What the kubelet has listed.
  void list(const std::set<std::string>& names, uint64_t now);
  // It can't be removed: it is not found again before its time has passed once more.
  void postpone(const std::string& name, uint64_t now) { known_[name].last_ns = now; }
  void forget(const std::string& name) { known_.erase(name); }
  [[nodiscard]] std::vector<std::string> find(uint64_t now) const;

 private:
  struct Known {
    uint64_t last_ns = 0;
    bool is_listed = false;  // once at least
  };
  const uint64_t listed_ns_;
  const uint64_t never_listed_ns_;
  std::map<std::string, Known> known_;
};

}  // namespace openmps::kubernetes
