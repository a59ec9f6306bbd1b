import pytest

from onehop.errors import ArgumentError
from onehop.plans import NdpPlan


def test_plans_survive_json():
    plan = NdpPlan("2-channel", tile=64, retile="ranks", batch=512, broadcast=False, host_order="ahead")
    assert NdpPlan.from_json(plan.to_json()) == plan
    assert NdpPlan.from_json(NdpPlan().to_json()) == NdpPlan(batch=None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mapping": "bank"},
        {"retile": "yes"},
        {"tile": 0},
        {"tile": 1.5},
        {"batch": 0},
        {"broadcast": 1},
        {"host_order": "before"},
    ],
    ids=str,
)
def test_wrong_plans_are_refused(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        NdpPlan(**wrong)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON"), ("[]", "object"), ('{"tiles": 4}', "tiles")]
)
def test_wrong_texts_are_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        NdpPlan.from_json(text)
