"""Settings of a patch, from the arguments of ``patch()`` and from the environment."""

from dataclasses import dataclass, replace

from onehop import config
from onehop.errors import ArgumentError

TUNE_MODES = ("auto", "never")


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices of a patch.

    Attributes:
        keep_memory: Whether torch's large tensors take their memory from the pool.
        reuse: Whether aggregates of constant features are kept.
        associate: Whether layers take the cheaper order of linear step and aggregation.
        tune: "auto" or "never".
        dropout: Whether torch's dropout is replaced.
        products: Whether the products of linear steps go to the fastest library.
        sampler: Whether PyG's loaders draw neighbours with onehop's sampler; None means where PyG has neither
            pyg-lib nor torch-sparse to draw with.
        backend: The machine that sums and means run on, or the backend that everything runs on, by name;
            empty means the first that takes the tensors.
    """

    keep_memory: bool = False
    reuse: bool = False
    associate: bool = False
    tune: str = "never"
    dropout: bool = False
    products: bool = False
    sampler: bool | None = None
    backend: str = ""


OFF = Settings()
"""The settings without a patch."""


def from_environment() -> Settings:
    """The settings of a patch without arguments."""
    return Settings(
        keep_memory=config.keep_memory(),
        reuse=config.reuse(),
        associate=config.associate(),
        dropout=config.dropout(),
        products=config.products(),
        sampler=config.sampler(),
    )


def settled(
    before: Settings,
    *,
    keep_memory: bool | None = None,
    reuse: bool | None = None,
    associate: bool | None = None,
    tune: str | None = None,
    dropout: bool | None = None,
    products: bool | None = None,
    sampler: bool | None = None,
    with_machine: bool = False,
) -> Settings:
    """The settings after a call of ``patch()``; None leaves a setting as it was.

    With a machine, ``reuse`` and ``associate`` are off unless given, so that it runs every aggregation at the
    model's width.

    Raises:
        ArgumentError: ``tune`` is no such mode, or ``reuse`` is set with a machine.
    """
    if tune is not None and tune not in TUNE_MODES:
        raise ArgumentError(f"tune: expected one of {', '.join(TUNE_MODES)}, got {tune!r}.")
    if with_machine:
        if reuse:
            raise ArgumentError(
                "reuse: aggregates that are kept would not be counted on the machine; omit reuse."
            )
        before = replace(before, reuse=False, associate=False)
    given = {
        "keep_memory": keep_memory,
        "reuse": reuse,
        "associate": associate,
        "tune": tune,
        "dropout": dropout,
        "products": products,
        "sampler": sampler,
    }
    return replace(before, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
