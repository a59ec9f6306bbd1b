// Redirection of the calls that one loaded library makes into others.
#pragma once

#include <initializer_list>

namespace onehop {

// A function of the C library, by name, and what is called in its place: a function of the same type.
struct Redirection {
  const char* name;
  void* replacement;
};

// Redirects a loaded library's own calls of functions of the C library; calls by other libraries stay as they are.
// False, and nothing is changed, if the library is not loaded, does not import all of these functions, or calls
// something other than the C library already: another allocator, a sanitizer, a profiler of memory.
bool redirect_imports(const char* library, std::initializer_list<Redirection> redirections);

}  // namespace onehop
