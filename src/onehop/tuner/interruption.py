"""Interruption of tuning by Ctrl-C."""

from onehop.tuner.result import TuningResult


class TuningInterrupted(KeyboardInterrupt):
    """Tuning was interrupted; confirmed results are kept.

    Args:
        result: The results so far.
        on_disk: Whether they are kept for later processes, too.

    Attributes:
        result: The confirmed results.
    """

    def __init__(self, result: TuningResult, on_disk: bool) -> None:
        confirmed = result.confirmed
        self.result = TuningResult(result.op, result.reduce, confirmed, result.machine, result.seconds)
        if confirmed:
            kept = "kept" if on_disk else "used until this process ends"
            plans = "plan was" if len(confirmed) == 1 else "plans were"
            outcome = (
                f"{len(confirmed)} {plans} confirmed and {'is' if len(confirmed) == 1 else 'are'} {kept}"
            )
        else:
            outcome = "no plan was confirmed, the default plans are used"
        super().__init__(f"onehop.tune: interrupted; {outcome}. Tune again to continue.")
