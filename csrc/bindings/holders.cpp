// The names by which modules hold certain objects: a search of all their attributes, by identity.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace {

// For each attribute in `names`, a list of dictionaries, that is one of `objects`: the places of the dictionary
// and of the object, and the name. Runs no code of the attributes.
nb::list holders(const nb::list& names, const nb::list& objects) {
  std::vector<std::pair<PyObject*, size_t>> wanted;
  for (size_t place = 0; place < objects.size(); ++place) wanted.emplace_back(objects[place].ptr(), place);
  std::ranges::sort(wanted);
  nb::list found;
  for (size_t place = 0; place < names.size(); ++place) {
    const nb::dict one = nb::cast<nb::dict>(names[place]);
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t next = 0;
    while (PyDict_Next(one.ptr(), &next, &name, &value)) {
      const auto at = std::ranges::lower_bound(wanted, value, {}, &std::pair<PyObject*, size_t>::first);
      if (at != wanted.end() && at->first == value) {
        found.append(nb::make_tuple(place, at->second, nb::borrow(name)));
      }
    }
  }
  return found;
}

}  // namespace

void bind_holders(nb::module_& m) { m.def("holders", &holders, nb::arg("names"), nb::arg("objects")); }
