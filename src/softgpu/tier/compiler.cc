// SPDX-License-Identifier: Apache-2.0
// See compiler.h.
#include "softgpu/tier/compiler.h"

#include "softgpu/interp/handlers.h"
#include "softgpu/interp/instruction_set.h"
#include "softgpu/tier/emitter.h"

namespace openmps::softgpu::tier {
namespace {

constexpr char kFunctionName[] = "run";
constexpr char kTriple[] = "x86_64-unknown-linux-gnu";
// x86-64-v4 and v3 without a processor's own habits: LLVM 14 does not know the newest, and 512 bits
// are what the interpreter's instruction sets have been chosen for.
constexpr char kAvx512Features[] =
    "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx512cd,+avx2,+fma,+bmi,+bmi2,+popcnt,+lzcnt,"
    "-prefer-256-bit";
constexpr char kAvx2Features[] = "+avx2,+fma,+bmi,+bmi2,+popcnt,+lzcnt";
constexpr char kPasses[] =
    "function(sroa,early-cse,instcombine,simplifycfg,gvn,instcombine,loop-mssa(licm),"
    "simplifycfg,instcombine,dse,simplifycfg)";
// LLVM's enumerations.
constexpr int kOptimiseDefault = 2, kRelocatable = 2, kDefaultCodeModel = 0, kObjectFile = 1,
              kReturnStatus = 2;

// What LLVM gives has to be given back in this order.
class Session {
 public:
  explicit Session(const Llvm& functions) : llvm(functions), context(llvm.ContextCreate()) {
    module = llvm.ModuleCreateWithNameInContext("kernel", context);
    builder = llvm.CreateBuilderInContext(context);
    const bool avx512 = active_instruction_set() == InstructionSet::kAvx512;
    LlvmTarget* target = nullptr;
    char* error = nullptr;
    if (llvm.GetTargetFromTriple(kTriple, &target, &error) != 0) {
      llvm.DisposeMessage(error);
      return;
    }
    llvm.SetTarget(module, kTriple);
    machine = llvm.CreateTargetMachine(target, kTriple, "x86-64",
                                       avx512 ? kAvx512Features : kAvx2Features, kOptimiseDefault,
                                       kRelocatable, kDefaultCodeModel);
  }
  ~Session() {
    if (machine != nullptr) llvm.DisposeTargetMachine(machine);
    llvm.DisposeBuilder(builder);
    llvm.DisposeModule(module);
    llvm.ContextDispose(context);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool optimise() {
    LlvmPassOptions* options = llvm.CreatePassBuilderOptions();
    LlvmError* error = llvm.RunPasses(module, kPasses, machine, options);
    llvm.DisposePassBuilderOptions(options);
    if (error != nullptr) llvm.ConsumeError(error);
    return error == nullptr;
  }
  // LLVM ends the process over code that is wrong.
  bool verify(std::string* why) {
    char* text = nullptr;
    const bool good = llvm.VerifyModule(module, kReturnStatus, &text) == 0;
    if (!good) *why = std::string("LLVM refuses it: ") + text;
    llvm.DisposeMessage(text);
    return good;
  }
  bool to_object(std::string* object) {
    LlvmBuffer* buffer = nullptr;
    char* error = nullptr;
    if (llvm.TargetMachineEmitToMemoryBuffer(machine, module, kObjectFile, &error, &buffer) != 0) {
      llvm.DisposeMessage(error);
      return false;
    }
    object->assign(llvm.GetBufferStart(buffer), llvm.GetBufferSize(buffer));
    llvm.DisposeMemoryBuffer(buffer);
    return true;
  }

  const Llvm& llvm;
  Context context;
  Module module = nullptr;
  BuilderRef builder = nullptr;
  LlvmMachine* machine = nullptr;
};

Val make_function(Session& session, const LaneBuilder& lanes) {
  const Type bytes = lanes.pointer(lanes.integer(8)), number = lanes.integer(32);
  Type types[] = {bytes, bytes, bytes, bytes, number};
  return session.llvm.AddFunction(session.module, kFunctionName,
                                  session.llvm.FunctionType(number, types, 5, 0));
}

}  // namespace

bool compile_kernel(const Code& code, const LaunchShape& shape, CompiledImage* image,
                    std::string* why) {
  const Llvm* llvm = load_llvm();
  const auto fail = [why](const char* text) {
    *why = text;
    return false;
  };
  if (llvm == nullptr) return fail("there is no LLVM");
  if (active_instruction_set() == InstructionSet::kBase) return fail("the processor has no AVX2");
  Session session(*llvm);
  if (session.machine == nullptr) return fail("LLVM has no code for x86-64");
  const Graph graph(code);
  const Ssa ssa = analyse(graph, shape);
  LaneBuilder lanes(*llvm, session.context, session.module, session.builder);
  const EmitOptions options{active_instruction_set() == InstructionSet::kAvx512};
  lanes.has_estimates = options.avx512;
  Emitter emitter(ssa, lanes, make_function(session, lanes), options);
  emitter.emit();
  if (!session.verify(why)) return false;
  if (!session.optimise()) return fail("LLVM could not optimise it");
  std::string object;
  if (!session.to_object(&object)) return fail("LLVM could not make code of it");
  if (!flatten_object(object, kFunctionName, &image->code)) return fail("its code is not whole");
  image->entries = emitter.entries();
  image->state_bytes = emitter.state_bytes();
  return true;
}

// A call of a handler writes its operands to the frame and reads its results from there, which
// costs more than the interpreter's jump to it. cuBLAS's product of bf16, which is made of such ops
// (mma, ldmatrix, cp.async), took 1.5 times as long compiled; kernels with some atomics gain.
constexpr size_t kHandlerShare = 16;

bool is_worthwhile(const Code& code) {
  const Graph graph(code);
  size_t all = 0, by_handlers = 0;
  for (int32_t b : graph.order) {
    const GraphBlock& block = graph.blocks[static_cast<size_t>(b)];
    for (uint32_t i = block.begin; i < block.end; ++i) {
      const Role role = graph.facts[i].role;
      all += role != Role::kNothing;
      by_handlers += role == Role::kHandler || role == Role::kSuspend;
    }
  }
  return by_handlers * kHandlerShare <= all;
}

std::unique_ptr<Code> copy_code(const Code& code) {
  auto copy = std::make_unique<Code>(code);
  copy->tier.reset();
  for (Op& op : copy->ops) {
    if (op.extra) op.extra = copy->extras.data() + (op.extra - code.extras.data());
    const bool branches =
        is_conditional_branch(op.code) || op.code == IrOp::k_bra || op.code == IrOp::k_bra_back;
    if (branches) op.target = copy->ops.data() + (op.target - code.ops.data());
  }
  for (auto& table : copy->jump_tables) {
    for (const Op*& target : table) target = copy->ops.data() + (target - code.ops.data());
  }
  return copy;
}

std::unique_ptr<InstalledKernel> install_kernel(const Code& code, const CompiledImage& image) {
  auto made = std::make_unique<InstalledKernel>(image);
  if (made->executable.entry() == nullptr) return nullptr;
  for (uint32_t entry : image.entries) {
    if (entry >= code.ops.size()) return nullptr;
  }
  made->code = copy_code(code);
  Code& copy = *made->code;
  copy.compiled = &made->compiled;
  CompiledKernel& compiled = made->compiled;
  compiled.function =
      reinterpret_cast<CompiledFunction>(const_cast<void*>(made->executable.entry()));
  compiled.state_bytes = image.state_bytes;
  const HandlerTable& handlers = active_handlers();
  for (const Op& op : copy.ops) {
    compiled.handlers.push_back(op.handler);
    Op alone = op;
    // What a run of loads has found out is the interpreter's.
    if (op.code >= IrOp::k_ld_shared_keep && op.code <= IrOp::k_ld_shared_fma) {
      alone.handler = handlers.handlers[static_cast<size_t>(IrOp::k_ld_shared_u32_u32)];
    }
    compiled.single.push_back(alone);
    Op end;
    end.handler = return_to_compiled;
    compiled.single.push_back(end);
  }
  for (uint32_t entry : image.entries) copy.ops[entry].handler = enter_compiled;
  return made;
}

}  // namespace openmps::softgpu::tier
