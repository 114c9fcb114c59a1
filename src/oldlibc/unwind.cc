// SPDX-License-Identifier: Apache-2.0
// What an exception's way out asks: the unwind tables of the code at an address, by
// _dl_find_object() (glibc 2.35). Any thread.
#include <dlfcn.h>
#include <link.h>

#ifdef DLFO_STRUCT_HAS_EH_DBASE

namespace {

struct Search {
  uintptr_t address;
  dl_find_object* found;
};

// 1 when the object is the one that has the address.
int look(dl_phdr_info* object, size_t, void* argument) {
  const Search& search = *static_cast<Search*>(argument);
  uintptr_t begin = 0, end = 0, tables = 0;
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const uintptr_t start = object->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && search.address - start < part.p_memsz) {
      begin = start;
      end = start + part.p_memsz;
    }
    if (part.p_type == PT_GNU_EH_FRAME) tables = start;
  }
  if (begin == 0 || tables == 0) return 0;
  *search.found = {};
  search.found->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.found->dlfo_map_end = reinterpret_cast<void*>(end);
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(tables);
  return 1;
}

}  // namespace

extern "C" int _dl_find_object(void* address, dl_find_object* found) noexcept {
  Search search{reinterpret_cast<uintptr_t>(address), found};
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}

#endif
