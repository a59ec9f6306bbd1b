#include "interface.hpp"

#include <dlfcn.h>

#include <new>

namespace onehop::torch_side {
namespace {

Interface loaded;

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// A handle of the same tensor, with an owner more.
Tensor* handle_of(const Tensor& tensor) {
  Tensor* handle = nullptr;
  if (loaded.new_handle(&handle) != 0 || loaded.assign(&tensor, handle) != 0) throw std::bad_alloc();
  return handle;
}

}  // namespace

bool load_interface(const char* cpu, const char* python) {
  void* of_cpu = dlopen(cpu, RTLD_LAZY | RTLD_NOLOAD);
  void* of_python = dlopen(python, RTLD_LAZY | RTLD_NOLOAD);
  if (of_cpu == nullptr || of_python == nullptr) return false;
  find(of_cpu, "aoti_torch_get_layout", loaded.get_layout);
  // c10::TensorImpl::requires_grad() const
  find(of_cpu, "_ZNK3c1010TensorImpl13requires_gradEv", loaded.requires_grad);
  // at::_ops::_nnz::call(const at::Tensor&)
  find(of_cpu, "_ZN2at4_ops4_nnz4callERKNS_6TensorE", loaded.get_entries);
  return find(of_cpu, "aoti_torch_get_numel", loaded.get_numel) && find(of_cpu, "aoti_torch_get_dim", loaded.get_dim) &&
         find(of_cpu, "aoti_torch_get_size", loaded.get_size) &&
         find(of_cpu, "aoti_torch_get_dtype", loaded.get_dtype) &&
         find(of_cpu, "aoti_torch_new_uninitialized_tensor", loaded.new_handle) &&
         find(of_cpu, "aoti_torch_assign_tensors", loaded.assign) &&
         find(of_cpu, "aoti_torch_delete_tensor_object", loaded.delete_handle) &&
         find(of_cpu, "aoti_torch_grad_mode_is_enabled", loaded.grad_is_enabled) &&
         find(of_cpu, "aoti_torch_grad_mode_set_enabled", loaded.enable_grad) &&
         // c10::Dispatcher::realSingleton() and findSchemaOrThrow(const char*, const char*)
         find(of_cpu, "_ZN3c1010Dispatcher13realSingletonEv", loaded.dispatcher) &&
         find(of_cpu, "_ZN3c1010Dispatcher17findSchemaOrThrowEPKcS2_", loaded.find_operator) &&
         // c10::impl::OperatorEntry::kernelForDispatchKey(c10::DispatchKey) const
         find(of_cpu, "_ZNK3c104impl13OperatorEntry20kernelForDispatchKeyENS_11DispatchKeyE", loaded.registered) &&
         // c10::UndefinedTensorImpl::_singleton
         find(of_cpu, "_ZN3c1019UndefinedTensorImpl10_singletonE", loaded.undefined) &&
         // THPVariable_Wrap(const at::TensorBase&), and (at::TensorBase) in older releases
         (find(of_python, "_Z16THPVariable_WrapRKN2at10TensorBaseE", loaded.wrap) ||
          find(of_python, "_Z16THPVariable_WrapN2at10TensorBaseE", loaded.wrap));
}

const Interface& interface() { return loaded; }

Object* wrap(const Tensor& tensor) {
  // Of a handle, because a function that takes a tensor by its value may leave nothing behind.
  Tensor* handle = handle_of(tensor);
  Object* made = reinterpret_cast<Object* (*)(Tensor*)>(loaded.wrap)(handle);
  loaded.delete_handle(handle);
  return made;
}

void* share(uint64_t cdata) {
  const Tensor borrowed(reinterpret_cast<void*>(cdata));
  Tensor* handle = handle_of(borrowed);
  void* object = handle->object;
  // The memory of the handle alone: its owner is the caller's now.
  ::operator delete(static_cast<void*>(handle));
  return object;
}

}  // namespace onehop::torch_side
