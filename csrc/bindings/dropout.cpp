// Dropout with the numbers of torch's CPU generator.
#include "onehop/dropout.hpp"

#include "arguments.hpp"
#include "calls.hpp"

void bind_dropout(nanobind::module_& m) {
  using onehop::DropoutArgs;
  Call<DropoutArgs>(m, "DropoutCall")
      .field<&DropoutArgs::dtype>("dtype")
      .field<&DropoutArgs::threads>("threads")
      .field<&DropoutArgs::nontemporal>("nontemporal")
      .field<&DropoutArgs::count>("count")
      .field<&DropoutArgs::share>("share")
      .field<&DropoutArgs::bound>("bound")
      .field<&DropoutArgs::scale>("scale")
      .field<&DropoutArgs::x>("x")
      .field<&DropoutArgs::out>("out")
      .field<&DropoutArgs::kept>("kept")
      .field<&DropoutArgs::state>("state")
      .field<&DropoutArgs::state_bytes>("state_bytes");
  m.def("draw_dropout", &onehop::draw_dropout, Released());
  m.def("apply_dropout", &onehop::apply_dropout, Released());
}
