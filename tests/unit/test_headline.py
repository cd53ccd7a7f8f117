"""The sentence that opens a report and a recommendation."""

from __future__ import annotations

from harness.compare.headline import Rival, headline
from harness.stats import Ratio


def lead(value: float, low: float, high: float, samples: int = 60) -> Ratio:
    return Ratio(ratio=value, low=low, high=high, rounds=3, samples=samples, paired=True, one_round=samples == 1)


AHEAD = Rival(label="fsdp s4", lead=lead(1.14, 1.09, 1.18))
TIE = Rival(label="hsdp r2s2", lead=lead(1.02, 0.99, 1.05), tie=True)
ONCE = Rival(label="tp t4", lead=lead(1.3, 1.2, 1.4), tie=True, undecided=True)
HEAD = "Train with ddp r4: 10 tokens/s"


def said(*rivals: Rival, good: str = "fast") -> str:
    text = headline("ddp r4", "10 tokens/s", rivals, good)
    assert text.startswith(HEAD) and text.endswith(".")
    return text.removeprefix(HEAD)[:-1]


def test_each_case_has_its_words() -> None:
    assert said() == "; there is no other layout to compare it with"
    assert said(AHEAD) == ", 14% [9, 18] ahead of fsdp s4"
    assert said(TIE, AHEAD) == ", 14% [9, 18] ahead of fsdp s4; hsdp r2s2 cannot be told from it"
    assert said(AHEAD, ONCE) == ", 14% [9, 18] ahead of fsdp s4; one round cannot tell it from tp t4"
    assert said(TIE) == ", only 2% [-1, 5] ahead of hsdp r2s2, which cannot be told from it"
    both = (TIE, TIE.model_copy(update={"label": "ddp_tp r2t2"}))
    assert said(*both) == ", only 2% [-1, 5] ahead of hsdp r2s2; hsdp r2s2 and ddp_tp r2t2 cannot be told from it"
    alone = ", 30% [20, 40] ahead of tp t4 in the only round; one round cannot tell it from tp t4, run at least 3"
    assert said(ONCE) == f"{alone} (--rounds 3)"
    assert said(ONCE, TIE) == (
        ", only 2% [-1, 5] ahead of hsdp r2s2, which cannot be told from it; one round cannot tell it from tp t4"
    )


def test_a_great_lead_is_told_in_times_and_single_values_without_an_interval() -> None:
    assert said(Rival(label="fsdp s4", lead=lead(5, 4.5, 5.5))) == ", 5x [4.5, 5.5] as fast as fsdp s4"
    assert said(Rival(label="fsdp s4", lead=lead(4, 4, 4, 1)), good="quick") == ", 4x as quick as fsdp s4"
    assert said(Rival(label="fsdp s4", lead=lead(2, 2, 2, 1))) == ", 100% ahead of fsdp s4"
