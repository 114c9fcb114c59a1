// SPDX-License-Identifier: Apache-2.0
// See fuse.h.
#include "softgpu/ir/fuse.h"

#include <algorithm>

#include "softgpu/ir/frame.h"

namespace openmps::softgpu::ir {
namespace {

class Fuser {
 public:
  Fuser(DraftFunction& function, const Flow& flow) : function_(function), flow_(flow) {}
  void run() {
    count_accesses();
    share_narrowed_addresses();
    fold_products();
    join_shared_loads();
    join_inner_products();
  }

 private:
  void count_accesses();
  void share_narrowed_addresses();
  bool element_op(const Draft& product, IrOp* op) const;
  void fold_products();
  void join_shared_loads();
  void join_inner_products();

  DraftFunction& function_;
  const Flow& flow_;
  // Of each value: the only draft that writes or reads it; -1: none, -2: several.
  std::vector<int32_t> only_writer_, only_reader_;
};

void Fuser::count_accesses() {
  only_writer_.assign(function_.values.size(), -1);
  only_reader_.assign(function_.values.size(), -1);
  auto note = [](int32_t* at, size_t draft) { *at = *at == -1 ? static_cast<int32_t>(draft) : -2; };
  std::vector<int32_t> list;
  for (size_t i = 0; i < function_.drafts.size(); ++i) {
    uses_of(function_.drafts[i], &list);
    for (int32_t v : list) note(&only_reader_[v], i);
    results_of(function_.drafts[i], &list);
    for (int32_t v : list) note(&only_writer_[v], i);
  }
}

// Shared addresses in 64-bit registers, as NVRTC has them: they are cut off to 32 bits for each
// access. Once is enough while the register does not change; then the loads have one register
// again.
void Fuser::share_narrowed_addresses() {
  std::vector<int32_t> instead(function_.values.size(), -1);
  std::vector<std::pair<int32_t, int32_t>> known;  // register, what it was cut off to
  std::vector<int32_t> list;
  const auto replace = [&](int32_t* value) {
    if (*value >= 0 && instead[*value] >= 0) *value = instead[*value];
  };
  for (const BasicBlock& block : flow_.blocks) {
    known.clear();
    for (uint32_t i = block.begin; i < block.end; ++i) {
      Draft& draft = function_.drafts[i];
      if (draft.op == IrOp::k_resize_u32_u64 && !draft.partial &&
          only_writer_[draft.d] == static_cast<int32_t>(i)) {
        const auto before = std::find_if(known.begin(), known.end(),
                                         [&](const auto& pair) { return pair.first == draft.a; });
        if (before == known.end()) {
          known.emplace_back(draft.a, draft.d);
        } else {
          instead[draft.d] = before->second;
          draft.folded = true;
        }
        continue;
      }
      results_of(draft, &list);
      for (int32_t v : list) {
        std::erase_if(known, [v](const auto& pair) { return pair.first == v; });
      }
    }
  }
  for (Draft& draft : function_.drafts) {
    for (int32_t* value : {&draft.a, &draft.b, &draft.c, &draft.e}) replace(value);
    for (int32_t& value : draft.extra_values) replace(&value);
  }
  count_accesses();
}

// The op for base + index * size, if there is one.
bool Fuser::element_op(const Draft& product, IrOp* op) const {
  constexpr IrOp kSigned[] = {IrOp::k_element2_s32, IrOp::k_element4_s32, IrOp::k_element8_s32,
                              IrOp::k_element16_s32};
  constexpr IrOp kUnsigned[] = {IrOp::k_element2_u32, IrOp::k_element4_u32, IrOp::k_element8_u32,
                                IrOp::k_element16_u32};
  const bool is_signed = product.op == IrOp::k_mul_wide_s32;
  if (product.partial || (!is_signed && product.op != IrOp::k_mul_wide_u32)) return false;
  const Value& size = function_.values[product.b];
  if (size.kind != Value::Kind::kConstant) return false;
  for (uint32_t i = 0; i < std::size(kSigned); ++i) {
    if (size.bits == uint64_t{2} << i) {
      *op = is_signed ? kSigned[i] : kUnsigned[i];
      return true;
    }
  }
  return false;
}

// The address of an array's element, mul.wide and add: one op if nothing else reads the product.
void Fuser::fold_products() {
  std::vector<int32_t> list;
  for (size_t i = 0; i < function_.drafts.size(); ++i) {
    Draft& sum = function_.drafts[i];
    if (sum.op != IrOp::k_add_b64 || sum.partial) continue;
    for (auto [product, base] : {std::pair{sum.a, sum.b}, std::pair{sum.b, sum.a}}) {
      const int32_t at = only_writer_[product];
      if (at < 0 || static_cast<size_t>(at) > i || flow_.block_of[at] != flow_.block_of[i] ||
          only_reader_[product] != static_cast<int32_t>(i)) {
        continue;
      }
      Draft& factor = function_.drafts[at];
      IrOp op;
      if (!element_op(factor, &op)) continue;
      bool overwritten = false;  // the index, in between
      for (size_t j = static_cast<size_t>(at) + 1; j < i; ++j) {
        results_of(function_.drafts[j], &list);
        overwritten |= std::find(list.begin(), list.end(), factor.a) != list.end();
      }
      if (overwritten) continue;
      factor.folded = true;
      sum.op = op;
      sum.a = factor.a;
      sum.b = base;
      break;
    }
  }
}

// Loads of shared words whose addresses are one register plus constants: see ld_shared_keep. A run
// ends where the register changes or at an op other than arithmetic, a load or a store.
void Fuser::join_shared_loads() {
  struct Run {
    int32_t address = -1;
    std::vector<Draft*> loads;
  };
  Run runs[kKeptWindows];
  auto close = [&](Run& run) {
    if (run.loads.size() > 1) {
      Draft& first = *run.loads.front();
      first.lowest = first.highest = static_cast<int32_t>(first.imm);
      for (Draft* load : run.loads) {
        load->op = IrOp::k_ld_shared_kept;
        load->window = static_cast<int32_t>(&run - runs);
        first.lowest = std::min(first.lowest, static_cast<int32_t>(load->imm));
        first.highest = std::max(first.highest, static_cast<int32_t>(load->imm));
      }
      first.op = IrOp::k_ld_shared_keep;
    }
    run = {};
  };
  std::vector<int32_t> list;
  size_t oldest = 0;
  for (const BasicBlock& block : flow_.blocks) {
    for (uint32_t i = block.begin; i < block.end; ++i) {
      Draft& draft = function_.drafts[i];
      if (is_plain(draft.op)) {
        for (Run& run : runs) close(run);
      }
      if (draft.op == IrOp::k_ld_shared_u32_u32 && draft.aux == 1 && draft.imm % 4 == 0) {
        auto* run = std::find_if(std::begin(runs), std::end(runs),
                                 [&](const Run& r) { return r.address == draft.a; });
        if (run == std::end(runs)) {
          run = &runs[oldest];
          oldest = (oldest + 1) % kKeptWindows;
          close(*run);
          run->address = draft.a;
        }
        run->loads.push_back(&draft);
      }
      results_of(draft, &list);
      for (int32_t v : list) {
        for (Run& run : runs) {
          if (run.address == v) close(run);
        }
      }
    }
    for (Run& run : runs) close(run);
  }
}

// d = x * y + c of two words just loaded and used nowhere else, and how many such steps follow each
// other with d as the next one's c: the inner loop of matrix products and convolutions.
void Fuser::join_inner_products() {
  auto only_for = [&](int32_t value, size_t writer, size_t reader) {
    return only_writer_[value] == static_cast<int32_t>(writer) &&
           only_reader_[value] == static_cast<int32_t>(reader);
  };
  std::vector<size_t> emitted;
  for (size_t i = 0; i < function_.drafts.size(); ++i) {
    if (!function_.drafts[i].folded) emitted.push_back(i);
  }
  size_t last = SIZE_MAX;  // the multiply-add of the step before
  for (size_t i = 0; i + 2 < emitted.size(); ++i) {
    const size_t at_x = emitted[i], at_y = emitted[i + 1], at_sum = emitted[i + 2];
    Draft &x = function_.drafts[at_x], &y = function_.drafts[at_y], &sum = function_.drafts[at_sum];
    if (x.op != IrOp::k_ld_shared_kept || y.op != IrOp::k_ld_shared_kept ||
        sum.op != IrOp::k_fma_f32 || sum.partial ||
        flow_.block_of[at_x] != flow_.block_of[at_sum] || !only_for(x.d, at_x, at_sum) ||
        !only_for(y.d, at_y, at_sum) || sum.c == x.d || sum.c == y.d) {
      continue;
    }
    x.op = IrOp::k_ld_shared_fma;  // not the first of its block: that one keeps the window
    if (last + 1 == i && function_.drafts[emitted[last]].d == sum.c) {
      function_.drafts[emitted[last]].aux = 1;
    }
    last = i + 2;
    i += 2;
  }
}

}  // namespace

void fuse(DraftFunction& function, const Flow& flow) { Fuser(function, flow).run(); }

}  // namespace openmps::softgpu::ir
