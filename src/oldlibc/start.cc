// SPDX-License-Identifier: Apache-2.0
// The start of a program: glibc runs a program's constructors by itself only since 2.34, whose
// compilers leave out what older ones have to be told. On the main thread, before anything else.
#include <cstddef>

extern "C" {

using Main = int (*)(int, char**, char**);
using Constructor = void (*)(int, char**, char**);

// The linker's and the compiler's.
extern const Constructor __init_array_start[] __attribute__((visibility("hidden")));
extern const Constructor __init_array_end[] __attribute__((visibility("hidden")));
void _init();

int old_start_main(Main main, int argc, char** argv, Constructor construct, void (*destroy)(),
                   void (*end_of_loader)(), void* stack_end);
__asm__(".symver old_start_main, __libc_start_main@GLIBC_2.2.5");

static void run_constructors(int argc, char** argv, char** environment) {
  _init();
  for (const Constructor* each = __init_array_start; each != __init_array_end; ++each) {
    (*each)(argc, argv, environment);
  }
}

// glibc's, of every version, runs `construct` in place of what it would do by itself.
int __libc_start_main(Main main, int argc, char** argv, Constructor construct, void (*destroy)(),
                      void (*end_of_loader)(), void* stack_end) {
  return old_start_main(main, argc, argv, construct != nullptr ? construct : run_constructors,
                        destroy, end_of_loader, stack_end);
}

}  // extern "C"
