// Kernels that were generated at run time: their source templates, and the loading of their libraries.
#include "../kernels/generated.hpp"

#include <dlfcn.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "arguments.hpp"
#include "templates.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_generated(nb::module_& m) {
  m.def("kernel_templates", [] {
    std::vector<std::pair<std::string, std::string>> files;
    for (const auto& file : onehop::kTemplates) files.emplace_back(file.name, file.text);
    return files;
  });
  // The address of the kernel's table, and an error: 0 and the reason, or an address and an empty string. Libraries
  // stay loaded, since tables are used until the process ends.
  m.def(
      "load_generated",
      [](const std::string& path) -> std::pair<Address, std::string> {
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return {0, dlerror()};
        const auto* table = static_cast<const onehop::Generated*>(dlsym(library, "onehop_generated"));
        if (table == nullptr) return {0, "it offers no kernel"};
        if (table->version != onehop::kGeneratedVersion) return {0, "it is of another version of onehop"};
        return {reinterpret_cast<Address>(table), ""};
      },
      "path"_a);
}
