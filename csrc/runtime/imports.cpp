#include "onehop/imports.hpp"

#if defined(__linux__) && defined(__GLIBC__)

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace onehop {
namespace {

// The places where a library keeps the addresses of functions of other libraries are listed in its relocation tables:
// see "Relocation" in the ELF specification. R_*_JUMP_SLOT is a function's that is called, R_*_GLOB_DAT also one's
// whose address is taken.
#if defined(__x86_64__)
constexpr bool holds_function(uint64_t type) { return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT; }
#elif defined(__aarch64__)
constexpr bool holds_function(uint64_t type) { return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT; }
#else
constexpr bool holds_function(uint64_t) { return false; }
#endif

// A loaded library's tables, and the part of it that is read-only once it is loaded.
struct Library {
  const char* name;
  bool found = false;
  uintptr_t base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  struct Table {
    const ElfW(Rela) * begin;
    size_t bytes;
  } tables[2] = {{nullptr, 0}, {nullptr, 0}};
  uintptr_t protected_begin = 0, protected_end = 0;
};

int read(dl_phdr_info* info, size_t, void* out) {
  auto* library = static_cast<Library*>(out);
  const char* slash = std::strrchr(info->dlpi_name, '/');
  if (std::strcmp(slash == nullptr ? info->dlpi_name : slash + 1, library->name) != 0) return 0;
  library->found = true;
  library->base = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_RELRO) {
      library->protected_begin = begin;
      library->protected_end = begin + header.p_memsz;
    }
    if (header.p_type != PT_DYNAMIC) continue;
    for (auto* entry = reinterpret_cast<const ElfW(Dyn)*>(begin); entry->d_tag != DT_NULL; ++entry) {
      const auto address = entry->d_un.d_ptr;
      switch (entry->d_tag) {
        case DT_SYMTAB:
          library->symbols = reinterpret_cast<const ElfW(Sym)*>(address);
          break;
        case DT_STRTAB:
          library->strings = reinterpret_cast<const char*>(address);
          break;
        case DT_JMPREL:
          library->tables[0].begin = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_PLTRELSZ:
          library->tables[0].bytes = entry->d_un.d_val;
          break;
        case DT_RELA:
          library->tables[1].begin = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_RELASZ:
          library->tables[1].bytes = entry->d_un.d_val;
          break;
        default:
          break;
      }
    }
  }
  return 1;
}

const void* file_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

bool write(const Library& library, void** slot, void* value) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(slot);
  void* page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
  const bool read_only = address >= library.protected_begin && address < library.protected_end;
  if (read_only && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  // Other threads may be calling the function.
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  if (read_only) mprotect(page, page_bytes, PROT_READ);
  return true;
}

}  // namespace

bool redirect_imports(const char* name, std::initializer_list<Redirection> redirections) {
  Library library{name};
  dl_iterate_phdr(read, &library);
  if (!library.found || library.symbols == nullptr || library.strings == nullptr) return false;
  const void* c_library = file_of(reinterpret_cast<const void*>(&gnu_get_libc_version));
  std::vector<std::pair<void**, void*>> places;
  for (const Redirection& redirection : redirections) {
    const void* theirs = dlsym(RTLD_DEFAULT, redirection.name);
    if (theirs == nullptr || file_of(theirs) != c_library) return false;
    bool is_called = false;
    for (const Library::Table& table : library.tables) {
      for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
        const ElfW(Rela) & entry = table.begin[i];
        const char* imported = library.strings + library.symbols[ELF64_R_SYM(entry.r_info)].st_name;
        if (!holds_function(ELF64_R_TYPE(entry.r_info)) || std::strcmp(imported, redirection.name) != 0) continue;
        auto** slot = reinterpret_cast<void**>(library.base + entry.r_offset);
        // Before its first call, a function's place may lead to code of the library that looks it up.
        const void* file = file_of(*slot);
        if (*slot != theirs && file != reinterpret_cast<const void*>(library.base)) return false;
        places.emplace_back(slot, redirection.replacement);
        is_called = true;
      }
    }
    if (!is_called) return false;
  }
  for (const auto& [slot, replacement] : places) {
    if (!write(library, slot, replacement)) return false;
  }
  return true;
}

}  // namespace onehop

#else

namespace onehop {

bool redirect_imports(const char*, std::initializer_list<Redirection>) { return false; }

}  // namespace onehop

#endif
