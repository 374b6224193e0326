"""Go-style durations: read, refused, and written so that they read back."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from srtm.text.duration import format_duration, parse_duration
from srtm.text.fields import Duration

TEN_YEARS = 10 * 365 * 86_400.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("0", 0.0, id="nothing-without-a-unit"),
        pytest.param("0s", 0.0, id="nothing"),
        pytest.param("250ms", 0.25, id="milliseconds"),
        pytest.param("1h", 3600.0, id="hours"),
        pytest.param("1m", 60.0, id="minutes"),
        pytest.param("1ms", 0.001, id="ms-is-no-minutes"),
        pytest.param("1m30s", 90.0, id="two-parts"),
        pytest.param("1h0m1s", 3601.0, id="three-parts"),
        pytest.param("1h1m1s1ms1us1ns", 3661.001001001, id="every-unit"),
        pytest.param("1s1s", 2.0, id="one-unit-twice-as-Go-has-it"),
        pytest.param("1.5h", 5400.0, id="a-fraction"),
        pytest.param("1.s", 1.0, id="a-dot-behind"),
        pytest.param(".5s", 0.5, id="a-dot-before"),
        pytest.param("10us", 1e-5, id="microseconds"),
        pytest.param("10\u00b5s", 1e-5, id="microseconds-by-the-micro-sign"),
        pytest.param("10\u03bcs", 1e-5, id="microseconds-by-the-Greek-letter"),
        pytest.param("7ns", 7e-9, id="nanoseconds"),
        pytest.param(" 5s\n", 5.0, id="space-around"),
        pytest.param("87600h", TEN_YEARS, id="ten-years"),
        pytest.param("1.0000000004s", 1.0, id="rounded-to-a-nanosecond"),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("5", id="no-unit"),
        pytest.param("s", id="no-number"),
        pytest.param(".s", id="a-dot-alone"),
        pytest.param("5 s", id="a-space-between"),
        pytest.param("5s 5ms", id="a-space-between-parts"),
        pytest.param("-5s", id="negative"),
        pytest.param("+5s", id="a-plus"),
        pytest.param("1e3s", id="an-exponent"),
        pytest.param("1_000s", id="an-underscore"),
        pytest.param("1,5s", id="a-comma"),
        pytest.param("5S", id="a-capital"),
        pytest.param("5d", id="days-that-Go-does-not-know"),
        pytest.param("5sec", id="a-word"),
        pytest.param("1.2.3s", id="two-dots"),
        pytest.param("infs", id="infinite"),
        pytest.param("nans", id="not-a-number"),
        pytest.param("\u0663s", id="an-Arabic-digit"),
        pytest.param("5s\0", id="a-zero-byte"),
        pytest.param(5, id="a-number"),
        pytest.param(5.0, id="a-float"),
        pytest.param(None, id="none"),
        pytest.param(True, id="true"),
        pytest.param(["5s"], id="a-list"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_right_form(text: object) -> None:
    with pytest.raises(ValueError, match=r"a unit \(h, m, s, ms, us or ns\), such as 250ms or 24h"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["87601h", "9" * 400 + "h", "87600h1us", "9" * 5000 + "ns"])
def test_more_than_ten_years_is_a_slip(text: str) -> None:
    with pytest.raises(ValueError, match="longer than ten years"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(0.0, "0s", id="nothing"),
        pytest.param(0.25, "250ms", id="milliseconds"),
        pytest.param(90.0, "1.5m", id="a-minute-and-a-half"),
        pytest.param(90.5, "90.5s", id="a-minute-and-more"),
        pytest.param(3601.0, "3601s", id="an-hour-and-a-second-is-not-an-hour"),
        pytest.param(3600.0, "1h", id="an-hour"),
        pytest.param(TEN_YEARS, "87600h", id="ten-years-without-an-exponent"),
        pytest.param(0.001, "1ms", id="a-millisecond"),
        pytest.param(1e-6, "1us", id="a-microsecond"),
        pytest.param(1e-9, "1ns", id="a-nanosecond"),
        pytest.param(0.1 + 0.2, "300ms", id="a-float-that-is-not-quite"),
        pytest.param(0.001234568, "1234.568us", id="many-digits"),
    ],
)
def test_durations_as_text(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 10**15))
@example(999_999_999_999_500)
def test_what_is_written_reads_back(nanoseconds: int) -> None:
    """To the nanosecond, up to the 11 days in which a float can tell one from the next."""
    seconds = round(nanoseconds / 1e9, 9)
    assert parse_duration(format_duration(seconds)) == seconds
    assert format_duration(-seconds) == ("-" if seconds else "") + format_duration(seconds)


@given(st.floats(0, TEN_YEARS))
def test_any_duration_reads_back_as_nearly_the_same(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(
        seconds, rel=1e-15, abs=5.1e-10
    )


@given(st.text("0123456789.hmsun \u00b5", max_size=12))
def test_what_is_read_is_written_the_same(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-15, abs=1e-12)


class Settings(BaseModel):
    wait: Duration = 1.0


@pytest.mark.parametrize("value", ["1.5s", 1.5])
def test_a_field_takes_text_and_seconds(value: object) -> None:
    settings = Settings.model_validate({"wait": value})
    assert settings.wait == 1.5
    assert settings.model_dump(mode="json") == {"wait": "1.5s"}
    assert settings.model_dump() == {"wait": 1.5}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(5, id="a-whole-number-has-no-unit"),
        pytest.param(-1.0, id="negative"),
        pytest.param(float("nan"), id="nan"),
        pytest.param(float("inf"), id="infinite"),
        pytest.param(TEN_YEARS + 1, id="more-than-ten-years"),
        pytest.param(True, id="true"),
        pytest.param(None, id="none"),
    ],
)
def test_a_field_refuses_what_is_no_time(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Duration).validate_python(value)
