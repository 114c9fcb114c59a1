// SPDX-License-Identifier: Apache-2.0
// The cases of matrices in memory: wmma, which loads from and stores to memory, since PTX does not
// define the order of a fragment's elements, and wgmma, whose factors are in shared memory. See
// kernels.cc for the names, rows.h for the notation.
#include "rows.h"

namespace conformance {
namespace {

// A wmma product: the matrices are loaded from memory, and the result is stored there.
struct TileRow {
  int m, n, k;
  const char *factor, *factor_b, *sum, *result;  // types
  int a, b, c, d;                                // how many registers
  const char* mma;                               // up to its first modifier
  const char* layouts;                           // of A and B
};
// clang-format off
const TileRow kTileRows[] = {
    {16, 16, 16, "f16", "f16", "f32", "f32", 8, 8, 8, 8, "wmma.mma", "{row,col}.{row,col}"},
    {16, 16, 16, "f16", "f16", "f16", "f16", 8, 8, 4, 4, "wmma.mma", "{row,col}.col"},
    {16, 16, 16, "f16", "f16", "f16", "f32", 8, 8, 4, 8, "wmma.mma", "row.col"},
    {16, 16, 16, "f16", "f16", "f32", "f16", 8, 8, 8, 4, "wmma.mma", "row.row"},
    {32, 8, 16, "f16", "f16", "f32", "f32", 8, 8, 8, 8, "wmma.mma", "row.{row,col}"},
    {8, 32, 16, "f16", "f16", "f32", "f32", 8, 8, 8, 8, "wmma.mma", "{row,col}.col"},
    {32, 8, 16, "f16", "f16", "f16", "f16", 8, 8, 4, 4, "wmma.mma", "row.col"},
    {8, 32, 16, "f16", "f16", "f16", "f16", 8, 8, 4, 4, "wmma.mma", "row.col"},
    {16, 16, 16, "bf16", "bf16", "f32", "f32", 4, 4, 8, 8, "wmma.mma", "{row,col}.{row,col}"},
    {32, 8, 16, "bf16", "bf16", "f32", "f32", 8, 2, 8, 8, "wmma.mma", "row.col"},
    {8, 32, 16, "bf16", "bf16", "f32", "f32", 2, 8, 8, 8, "wmma.mma", "row.col"},
    {16, 16, 8, "tf32", "tf32", "f32", "f32", 4, 4, 8, 8, "wmma.mma", "{row,col}.{row,col}"},
    {16, 16, 16, "u8", "u8", "s32", "s32", 2, 2, 8, 8, "wmma.mma", "{row,col}.{row,col}"},
    {16, 16, 16, "s8", "s8", "s32", "s32", 2, 2, 8, 8, "wmma.mma", "row.col"},
    {32, 8, 16, "s8", "s8", "s32", "s32", 4, 1, 8, 8, "wmma.mma", "row.col"},
    {8, 32, 16, "u8", "u8", "s32", "s32", 1, 4, 8, 8, "wmma.mma", "row.col"},
    {8, 8, 32, "s4", "s4", "s32", "s32", 1, 1, 2, 2, "wmma.mma", "row.col"},
    {8, 8, 32, "u4", "u4", "s32", "s32", 1, 1, 2, 2, "wmma.mma", "row.col"},
    {8, 8, 128, "b1", "b1", "s32", "s32", 1, 1, 2, 2, "wmma.mma.{xor,and}.popc", "row.col"},
    {8, 8, 4, "f64", "f64", "f64", "f64", 1, 1, 2, 2, "wmma.mma", "{row,col}.{row,col}"},
};
// clang-format on

std::string number(int value) { return std::to_string(value); }

std::string registers(const char* name, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + (name + number(i));
  return text + "}";
}

// A, B, C and D follow each other from the first thread's memory on, with 1024 bytes each.
constexpr int kPartBytes = 1024;

// The code of a row. The sums are in the upper half of the warp's memory, see inputs.cc.
std::string tile_code(const TileRow& row, const std::string& space, const std::string& form) {
  const std::string shape = ".m" + number(row.m) + "n" + number(row.n) + "k" + number(row.k);
  const std::string a = form.substr(0, 3), b = form.substr(4, 3);
  const std::string base = space == "shared" ? "tile" : "%gwarp";
  const auto at = [&](int part) { return "[" + base + "+" + number(part * kPartBytes) + "], "; };
  const std::string sums = a;  // C and D have the layout of A
  const int stride = sums == "row" ? row.n : row.m;
  const auto load = [&](const char* what, const std::string& layout, const char* type) {
    return std::string("wmma.load.") + what + ".sync.aligned." + layout + shape + "." + space +
           "." + type + " ";
  };
  const bool halves = std::string(row.factor) == "f16";
  return load("a", a, row.factor) + registers("%A", row.a) + ", " + at(0) +
         number(a == "row" ? row.k : row.m) + "; " + load("b", b, row.factor_b) +
         registers("%B", row.b) + ", " + at(1) + number(b == "row" ? row.n : row.k) + "; " +
         load("c", sums, row.sum) + registers("%C", row.c) + ", " + at(2) + number(stride) + "; " +
         row.mma + ".sync.aligned." + form + shape + "." + row.result +
         (halves ? "" : std::string(".") + row.factor + "." + row.factor_b) + "." + row.sum + " " +
         registers("%d", row.d) + ", " + registers("%A", row.a) + ", " + registers("%B", row.b) +
         ", " + registers("%C", row.c) + "; wmma.store.d.sync.aligned." + sums + shape + "." +
         space + "." + row.result + " [" + base + "+" + number(3 * kPartBytes) + "], " +
         registers("%d", row.d) + ", " + number(stride) + "; bar.warp.sync -1; " +
         "shl.b32 %r0, %lane, 5; " +
         (space == "shared" ? "mov.u32 %r1, tile; add.u32 %r1, %r1, %r0; "
                            : "cvt.u64.u32 %q0, %r0; add.u64 %q0, %gwarp, %q0; ") +
         "ld." + space + ".v2.b64 {%q2, %q3}, [" + (space == "shared" ? "%r1" : "%q0") +
         "+3088]; ld." + space + ".v2.b64 {%q0, %q1}, [" + (space == "shared" ? "%r1" : "%q0") +
         "+3072];";
}

struct GroupRow {
  const char *factor, *factor_b, *sum;
  int n, registers;          // of D
  const char* opcode;        // behind the shape's m64, up to the types
  const char* tail;          // operands behind scale-d, where both factors lie in memory
  const char* tail_of_half;  // and where A is in registers
};
// clang-format off
const GroupRow kGroupRows[] = {
    {"f16", "f16", "f32", 8, 4, "n8k16", ", {1,-1}, {1,-1}, {0,1}, {0,1}", ", {1,-1}, 1, {0,1}"},
    {"f16", "f16", "f32", 16, 8, "n16k16", ", 1, 1, {0,1}, {0,1}", ", 1, 1, 1"},
    {"f16", "f16", "f16", 8, 2, "n8k16", ", 1, 1, 0, {0,1}", ", 1, 1, 0"},
    {"f16", "f16", "f16", 32, 8, "n32k16", ", 1, 1, 1, 0", ", 1, -1, 1"},
    {"bf16", "bf16", "f32", 8, 4, "n8k16", ", 1, {1,-1}, 0, {0,1}", ", 1, 1, 0"},
    {"bf16", "bf16", "f32", 16, 8, "n16k16", ", 1, 1, 1, 0", ", 1, 1, 1"},
    {"tf32", "tf32", "f32", 8, 4, "n8k8", ", {1,-1}, 1", ", 1, 1"},
    {"tf32", "tf32", "f32", 16, 8, "n16k8", ", 1, 1", ", 1, 1"},
    {"e4m3", "e4m3", "f32", 8, 4, "n8k32", ", {1,-1}, 1", ", 1, 1"},
    {"e4m3", "e5m2", "f32", 16, 8, "n16k32", ", 1, 1", ", 1, 1"},
    {"e5m2", "e4m3", "f32", 8, 4, "n8k32", ", 1, 1", ", 1, 1"},
    {"e5m2", "e5m2", "f32", 16, 8, "n16k32", ", 1, 1", ", 1, 1"},
    {"e4m3", "e4m3", "f16", 8, 2, "n8k32", ", 1, 1", ", 1, 1"},
    {"e5m2", "e5m2", "f16", 16, 4, "n16k32", ", 1, 1", ", 1, 1"},
    {"s8", "s8", "s32", 8, 4, "n8k32{,.satfinite}", "", ""},
    {"u8", "s8", "s32", 16, 8, "n16k32", "", ""},
    {"s8", "u8", "s32", 8, 4, "n8k32", "", ""},
    {"u8", "u8", "s32", 16, 8, "n16k32{,.satfinite}", "", ""},
    {"b1", "b1", "s32", 8, 4, "n8k256", "", ""},
};
// clang-format on

// The matrix descriptor: 8 rows of 16 bytes are contiguous. The next such block in one direction is
// 128 bytes further, in the other direction 256 bytes further.
constexpr const char* kDescribe =
    "mov.u32 %r0, tile; shr.u32 %r0, %r0, 4; cvt.u64.u32 %q0, %r0; "
    "or.b64 %q0, %q0, 0x0000001000080000; add.u64 %q1, %q0, 256; fence.proxy.async; bar.sync 0; ";

std::string group_code(const GroupRow& row, const std::string& opcode, bool in_registers,
                       const std::string& tail) {
  const std::string d = registers("%d", row.registers);
  // The sums begin at the 17th thread's memory.
  std::string text = std::string(kDescribe) + "mov.u32 %r0, %tid.x; mul.lo.u32 %r0, %r0, " +
                     number(4 * row.registers) + "; and.b32 %r0, %r0, 2047; mov.u32 %r1, tile; " +
                     "add.u32 %r0, %r0, %r1; ";
  for (int i = 0; i < row.registers; ++i) {
    text += "ld.shared.b32 %d" + number(i) + ", [%r0+" + number(2048 + 4 * i) + "]; ";
  }
  if (in_registers) {
    text += "and.b32 %r0, %lane, 15; mad.lo.u32 %r0, %r0, 128, %r1; ";
    for (int i = 0; i < 4; ++i) {
      text += "ld.shared.b32 %A" + number(i) + ", [%r0+" + number(4 * i) + "]; ";
    }
  }
  const bool bits = std::string(row.factor) == "b1";
  return text +
         "setp.lt.u32 %p0, %warp, 12; wgmma.fence.sync.aligned; "
         "wgmma.mma_async.sync.aligned.m64" +
         opcode + "." + row.sum + "." + row.factor + "." + row.factor_b +
         (bits ? ".and.popc " : " ") + d + ", " +
         (in_registers ? registers("%A", 4) : std::string("%q0")) + ", %q1, %p0" + tail +
         "; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;";
}

}  // namespace

void add_tile_cases(std::vector<Case>* all) {
  Case like;
  like.memory = true;
  like.inputs = Inputs::kTile;
  for (const TileRow& row : kTileRows) {
    like.factor = row.factor;
    like.sum = row.sum;
    like.result = "%qs";
    for (const std::string& layouts : expanded(row.layouts)) {
      for (const std::string& mma : expanded(row.mma)) {
        TileRow one = row;
        one.mma = mma.c_str();
        for (const char* space : {"global", "shared"}) {
          like.code = tile_code(one, space, layouts);
          all->push_back(like);
        }
      }
    }
  }
  like.threads = 128;
  like.result = "%d";
  for (const GroupRow& row : kGroupRows) {
    like.factor = row.factor;
    like.sum = row.sum;
    like.matrix_registers = row.registers;
    for (const std::string& opcode : expanded(row.opcode)) {
      for (const bool in_registers : {false, true}) {
        for (const std::string& tail : expanded(in_registers ? row.tail_of_half : row.tail)) {
          like.code = group_code(row, opcode, in_registers, tail);
          all->push_back(like);
        }
      }
    }
  }
}

}  // namespace conformance
