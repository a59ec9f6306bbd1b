"""The compiled extension: works beside any torch, because it knows none."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from onehop import native
from onehop.machines import native as machines

MODULES = {"kernels": native.extension, "machines": machines.extension}
# Torch's C++ (namespaces torch, at, c10, caffe2, and its own C functions), mangled or not.
TORCH_SYMBOL = re.compile(r"^_Z\w*?(5torch|2at|3c10|6caffe2)|^(THP|aoti_|torch_|at_|c10_)")
# What a Linux system has anyway.
SYSTEM = {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "libdl.so.2", "libpthread.so.0"}


@pytest.fixture(scope="module", params=MODULES)
def extension(request: pytest.FixtureRequest) -> Iterator[ELFFile]:
    path = MODULES[request.param].__file__
    assert path is not None
    with Path(path).open("rb") as file:
        yield ELFFile(file)


def undefined_symbols(elf: ELFFile) -> set[str]:
    table = elf.get_section_by_name(".dynsym")
    assert isinstance(table, SymbolTableSection)
    return {
        symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name
    }


def needed_libraries(elf: ELFFile) -> set[str]:
    section = elf.get_section_by_name(".dynamic")
    assert isinstance(section, DynamicSection)
    return {tag.needed for tag in section.iter_tags("DT_NEEDED")}


@pytest.mark.parametrize(
    "symbol",
    ["_ZN5torch4onesEv", "_ZNK2at6Tensor4sizeEl", "_ZN3c106detail10ErrorE", "_ZTIN3c1010TensorImplE"],
)
def test_the_pattern_knows_torch(symbol: str) -> None:
    assert TORCH_SYMBOL.search(symbol)


def test_no_symbol_of_torch_is_needed(extension: ELFFile) -> None:
    undefined = undefined_symbols(extension)
    assert any(name.startswith("Py") for name in undefined)  # the table was read
    assert {name for name in undefined if TORCH_SYMBOL.search(name)} == set()


def test_no_openmp_symbol_is_needed(extension: ELFFile) -> None:
    runtimes = ("GOMP_", "omp_", "__kmpc_")
    assert {name for name in undefined_symbols(extension) if name.startswith(runtimes)} == set()


def test_only_the_systems_libraries_are_linked(extension: ELFFile) -> None:
    loader = {name for name in needed_libraries(extension) if name.startswith("ld-linux")}
    assert needed_libraries(extension) - loader <= SYSTEM


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_the_stub_names_what_the_extension_has(module: ModuleType) -> None:
    import onehop

    stub = (Path(onehop.__file__).parent / f"{module.__name__.rpartition('.')[2]}.pyi").read_text()
    written = set(re.findall(r"^(?:def |class )?([A-Za-z]\w*)(?=[(:])", stub, flags=re.MULTILINE))
    assert written == {name for name in dir(module) if not name.startswith("_")}
