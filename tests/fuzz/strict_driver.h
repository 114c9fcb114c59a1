// SPDX-License-Identifier: Apache-2.0
// A driver that checks every call: the fake driver of the worker's unit tests, extended to abort
// the process when a call names an object that does not exist, or memory that is not mapped for the
// session that acts. On a GPU such a call would fault the context of all sessions. For
// session_fuzz: one instance at a time, on one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fake_driver.h"

namespace openmps::worker {

class StrictDriver {
 public:
  StrictDriver();
  ~StrictDriver();
  StrictDriver(const StrictDriver&) = delete;
  StrictDriver& operator=(const StrictDriver&) = delete;

  [[nodiscard]] const DriverTable& table() const { return table_; }

  // The session whose calls follow.
  void act_for(uint32_t session) { session_ = session; }
  // `more` calls succeed, and the next one fails.
  void fail_after(uint32_t more) { fake_.fail_after(more, CUDA_ERROR_OUT_OF_MEMORY); }
  // Called after the end of all sessions. Aborts the process if an object is left.
  void must_be_empty();

  // ---- For the functions of the table.
  struct Mapping {
    uint64_t end = 0;
    uint32_t session = 0;
    uint64_t physical = 0;                    // 0: host memory
    std::vector<CUmemAccess_flags> access{};  // by device
  };
  struct Operand {
    uint64_t address = 0;
    uint64_t bytes = 0;
    bool writes = false;
  };
  struct Node {
    const char* kind = "";
    uint64_t function = 0;
    uint64_t event = 0;
    std::vector<Operand> operands{};
    std::vector<CUgraph> bodies{};  // of a conditional node
  };
  struct Link {
    std::vector<std::pair<char*, size_t>> logs;
    std::vector<unsigned char> result;
  };

  static StrictDriver& current();
  // Aborts unless the operand is mapped for the session, with its access for at least one device.
  void must_own(const Operand& operand);
  void must_run(const Node& node);
  void must_be_function(uint64_t function);
  // A function or kernel of the module or library.
  uint64_t make_function(const char* kind, uint64_t module);
  void must_be_array(CUarray array);
  // A level or plane.
  CUarray make_part(const char* kind, uint64_t whole);
  // Records the array of a texture or surface, which must outlive it.
  void show(uint64_t image, const CUDA_RESOURCE_DESC& resource);
  CUresult destroy_array(const char* kind, uint64_t array);

  std::map<uint64_t, uint64_t> reserved;                    // begin -> end
  std::map<uint64_t, Mapping> mapped;                       // by begin
  std::map<uint64_t, uint64_t> physical;                    // handle -> bytes; 0: imported
  std::map<uint64_t, std::vector<uint64_t>> graphs;         // their nodes, in order
  std::map<uint64_t, Node> nodes;                           // by handle
  std::map<uint64_t, std::map<uint64_t, Node>> executable;  // by executable graph and node
  std::map<uint64_t, std::vector<uint64_t>> order;          // nodes of executable graphs
  std::map<uint64_t, uint64_t> roots;                       // of bodies: the graph around
  std::map<uint64_t, uint64_t> conditions;  // handles without node yet -> their graph
  uint64_t last_condition = 0x7000;
  std::map<uint64_t, Link> links;
  std::map<uint64_t, uint32_t> owners;                         // of modules: sessions
  std::map<uint64_t, std::pair<const char*, uint64_t>> shown;  // by image: kind and array
  uint32_t session() const { return session_; }
  FakeDriver& fake() { return fake_; }

 private:
  struct Part {
    const char* kind;
    uint64_t whole;
  };
  FakeDriver fake_;
  DriverTable table_;
  uint32_t session_ = 0;
  uint64_t next_handle_ = 1000;  // for kinds of objects that the fake driver does not number
  std::map<uint64_t, Part> functions_;
  std::map<uint64_t, Part> parts_;
};

// Address of the globals of modules and libraries; each is kFakeGlobalBytes long.
inline constexpr uint64_t kStrictGlobals = kFakeGlobal;
inline constexpr uint64_t kStrictGlobalStride = 4096;

}  // namespace openmps::worker
