"""Kernels for one width, dtype and graph: generated, compiled, tested and cached on this machine."""

from onehop.tuner.codegen.builder import build
from onehop.tuner.codegen.compiler import CodegenError, Compiler, find_compiler
from onehop.tuner.codegen.spec import Spec

__all__ = ["CodegenError", "Compiler", "Spec", "build", "find_compiler"]
