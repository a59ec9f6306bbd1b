// x[index] of classes of tensors: a function that runs before their own code.
//
// Python's way, a method __getitem__, would fill two slots of the class: the one of subscripts and the one of
// items of sequences. With the second, every tensor passes for a sequence, and torch.tensor refuses a list of
// tensors that are numbers. So the slot of subscripts alone is replaced here.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <vector>

namespace nb = nanobind;

namespace {

// The first members of PyTypeObject, which the stable ABI hides, up to the slots of mappings.
struct ClassHead {
  PyVarObject head;
  void* before[11];
  void** of_mappings;  // length, subscript, assignment to a subscript
};

struct Replaced {
  PyTypeObject* kind;
  binaryfunc theirs;
};

std::vector<Replaced> replaced;
PyObject* body = nullptr;
PyTypeObject* index_kind = nullptr;

// Whether a class is where this file assumes its slots to be.
bool is_known(PyTypeObject* kind) {
  void* const* slots = reinterpret_cast<ClassHead*>(kind)->of_mappings;
  return slots != nullptr && slots[0] == PyType_GetSlot(kind, Py_mp_length) &&
         slots[1] == PyType_GetSlot(kind, Py_mp_subscript) && slots[2] == PyType_GetSlot(kind, Py_mp_ass_subscript);
}

binaryfunc& slot_of(PyTypeObject* kind) {
  return reinterpret_cast<binaryfunc&>(reinterpret_cast<ClassHead*>(kind)->of_mappings[1]);
}

bool has_index(PyObject* key) {
  if (Py_TYPE(key) == index_kind) return true;
  if (!PyTuple_CheckExact(key)) return false;
  for (Py_ssize_t i = 0, size = PyTuple_Size(key); i < size; ++i) {
    if (Py_TYPE(PyTuple_GetItem(key, i)) == index_kind) return true;
  }
  return false;
}

PyObject* subscript(PyObject* self, PyObject* key) {
  binaryfunc theirs = nullptr;
  for (const Replaced& each : replaced) {
    if (each.kind == Py_TYPE(self)) theirs = each.theirs;
  }
  // A class that was made while the slot was replaced may have inherited it.
  if (theirs == nullptr) return replaced.front().theirs(self, key);
  if (body != nullptr && has_index(key)) {
    const nb::object running = nb::borrow(body);
    PyObject* out = PyObject_CallFunctionObjArgs(running.ptr(), self, key, nullptr);
    if (out != Py_None) return out;  // null where it raised
    Py_DECREF(out);
  }
  return theirs(self, key);
}

// Runs `function` before the code of x[index] for tensors of exactly these classes, where index is a tensor of
// the first of them, or a tuple with one. None from it means that their own code runs. Returns whether this
// Python keeps slots where they are expected; if not, nothing was changed.
bool replace(const nb::list& kinds, nb::object function) {
  for (nb::handle kind : kinds) {
    if (!is_known(reinterpret_cast<PyTypeObject*>(kind.ptr()))) return false;
  }
  index_kind = reinterpret_cast<PyTypeObject*>(kinds[0].ptr());
  Py_XDECREF(body);
  body = function.release().ptr();
  for (nb::handle each : kinds) {
    auto* kind = reinterpret_cast<PyTypeObject*>(each.ptr());
    binaryfunc& slot = slot_of(kind);
    if (slot == subscript) continue;
    const auto known = std::ranges::find(replaced, kind, &Replaced::kind);
    if (known == replaced.end()) {
      each.inc_ref();
      replaced.push_back({kind, slot});
    } else {
      known->theirs = slot;
    }
    slot = subscript;
  }
  return true;
}

// Takes it back, where no other code has replaced the slot since.
void restore() {
  for (const Replaced& each : replaced) {
    binaryfunc& slot = slot_of(each.kind);
    if (slot == subscript) slot = each.theirs;
  }
  Py_CLEAR(body);
}

}  // namespace

void bind_subscript(nb::module_& m) {
  m.def("replace_subscripts", &replace, nb::arg("kinds"), nb::arg("function"));
  m.def("restore_subscripts", &restore);
}
