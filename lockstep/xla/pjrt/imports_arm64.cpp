#include <algorithm>
#include <atomic>
#include <cstdint>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/xla/pjrt/imports.h"

namespace lockstep::xla {
namespace {

/// The pages that the loader made read-only after relocation (RELRO).
struct ReadOnly {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

/// The dynamic tables of one shared object.
struct Tables {
  ElfW(Addr) base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::span<const ElfW(Rela)> of_calls;
  std::span<const ElfW(Rela)> of_data;
  ReadOnly read_only;
};

uintptr_t page_of(uintptr_t address) { return address & ~(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)) - 1); }

/// Returns the RELRO range of the object that is loaded at this address, from `dl_iterate_phdr`.
ReadOnly find_read_only(ElfW(Addr) base) {
  struct Wanted {
    ElfW(Addr) base;
    ReadOnly found;
  } wanted{base, {}};
  const auto look = [](dl_phdr_info* info, size_t, void* argument) {
    auto& sought = *static_cast<Wanted*>(argument);
    if (info->dlpi_addr != sought.base) return 0;
    for (const auto& segment : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
      if (segment.p_type != PT_GNU_RELRO) continue;
      const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
      sought.found = {page_of(begin), page_of(begin + segment.p_memsz)};
    }
    return 1;
  };
  dl_iterate_phdr(look, &wanted);
  return wanted.found;
}

Tables read_tables(const link_map& object) {
  Tables tables;
  tables.base = object.l_addr;
  const auto address = [&](const ElfW(Dyn) & entry) {
    // glibc has relocated these addresses, other C libraries have not.
    const ElfW(Addr) value = entry.d_un.d_ptr;
    return value < object.l_addr ? object.l_addr + value : value;
  };
  const ElfW(Rela)* of_calls = nullptr;
  const ElfW(Rela)* of_data = nullptr;
  size_t call_bytes = 0;
  size_t data_bytes = 0;
  for (const auto* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address(*entry));
        break;
      case DT_STRTAB:
        tables.names = reinterpret_cast<const char*>(address(*entry));
        break;
      case DT_JMPREL:
        of_calls = reinterpret_cast<const ElfW(Rela)*>(address(*entry));
        break;
      case DT_PLTRELSZ:
        call_bytes = entry->d_un.d_val;
        break;
      case DT_RELA:
        of_data = reinterpret_cast<const ElfW(Rela)*>(address(*entry));
        break;
      case DT_RELASZ:
        data_bytes = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  if (of_calls != nullptr) tables.of_calls = {of_calls, call_bytes / sizeof(*of_calls)};
  if (of_data != nullptr) tables.of_data = {of_data, data_bytes / sizeof(*of_data)};
  tables.read_only = find_read_only(tables.base);
  return tables;
}

bool holds_address(const ElfW(Rela) & relocation) {
  const auto type = ELF64_R_TYPE(relocation.r_info);
  return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_ABS64;
}

/// Writes a slot and restores the protection of its page. Returns false if the system does not allow it.
bool write_slot(uintptr_t slot, void* value, const ReadOnly& read_only) {
  const bool is_protected = slot >= read_only.begin && slot < read_only.end;
  void* const page = reinterpret_cast<void*>(page_of(slot));
  const auto page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (is_protected && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) return false;
  std::atomic_ref(*reinterpret_cast<void**>(slot)).store(value, std::memory_order_release);
  if (is_protected) mprotect(page, page_size, PROT_READ);
  return true;
}

}  // namespace

size_t redirect_imports(void* module, std::span<const Redirection> redirections) {
  link_map* object = nullptr;
  if (dlinfo(module, RTLD_DI_LINKMAP, &object) != 0) return 0;
  const Tables tables = read_tables(*object);
  if (tables.symbols == nullptr || tables.names == nullptr) return 0;
  size_t changed = 0;
  for (const auto relocations : {tables.of_calls, tables.of_data}) {
    for (const auto& relocation : relocations) {
      const auto symbol = ELF64_R_SYM(relocation.r_info);
      if (symbol == 0 || !holds_address(relocation)) continue;
      const std::string_view name = tables.names + tables.symbols[symbol].st_name;
      const auto found = std::find_if(redirections.begin(), redirections.end(),
                                      [&](const Redirection& one) { return one.name == name; });
      if (found == redirections.end()) continue;
      if (write_slot(tables.base + relocation.r_offset, found->replacement, tables.read_only)) ++changed;
    }
  }
  return changed;
}

}  // namespace lockstep::xla
