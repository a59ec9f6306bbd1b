"""Numbers that tell contents apart, in every process alike."""

import hashlib

from torch import Tensor

from onehop import native


def fingerprint(*tensors: Tensor) -> int:
    """[0, 2^63): a number that other contents or shapes would hardly have; the same in every process."""
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.contiguous()
        contents = native.extension.fingerprint(native.address(plain), plain.nbytes, native.threads())
        digest.update(f"{tuple(plain.shape)} {plain.dtype} {contents};".encode())
    return int.from_bytes(digest.digest()[:8], "little") >> 1
