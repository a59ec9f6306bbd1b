"""Two network namespaces, joined by a pair of virtual Ethernet interfaces, stand for two hosts."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.distributed.launch import ended, said, start


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """The names of two namespaces, with addresses 10.83.0.1 and 10.83.0.2 on an interface ``wire``."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip, of iproute2")
    names = [f"onehop-{os.getpid()}-{end}" for end in (1, 2)]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("link", "add", "wire", "netns", names[0], "type", "veth", "peer", "wire", "netns", names[1])
            for end, name in enumerate(names, 1):
                ip("-n", name, "addr", "add", f"10.83.0.{end}/24", "dev", "wire")
                ip("-n", name, "link", "set", "wire", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this system allows no network namespaces: {error.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_training_over_a_wire(hosts: list[str], alone: dict[str, list[float]]) -> None:
    prefixes = [["ip", "netns", "exec", name] for name in hosts]
    processes = start(
        "training_worker.py", 2, "together", prefixes=prefixes, address="10.83.0.1", interface="wire"
    )
    for report in ended(processes):
        for name, losses in said(report)["losses"].items():
            assert losses == pytest.approx(alone[name], rel=1e-9), name
