"""Recordings of what patched layers do, and one log line for what they refuse."""

import logging

from onehop.integrations import reports, session


class Layer:
    pass


def test_nothing_is_recorded_outside_a_recording():
    call = reports.Call(Layer(), None)
    assert reports.recording() is False
    reports.record(call)
    with reports.recorded() as calls:
        assert reports.recording() is True
        reports.record(call)
    assert reports.recording() is False
    assert calls == [call]


def test_recordings_nest():
    layer = Layer()
    with reports.recorded() as outer:
        reports.refuse(layer, "first")
        with reports.recorded() as inner:
            reports.refuse(layer, "second")
        reports.refuse(layer, "third")
    assert [call.reason for call in outer] == ["first", "third"]
    assert [call.reason for call in inner] == ["second"]
    assert outer[0].layer is layer


def test_one_line_for_each_class_and_reason(caplog, monkeypatch):
    monkeypatch.setattr(session, "now", session.Session())
    with caplog.at_level(logging.INFO, logger="onehop"):
        for _ in range(2):
            reports.refuse(Layer(), "it is odd")
        reports.refuse(Layer(), "it is even")
        with reports.recorded():
            reports.refuse(Layer(), "it is recorded")
    name = f"{__name__}.Layer runs its framework's own code"
    assert caplog.messages == [f"{name}: it is odd.", f"{name}: it is even."]
