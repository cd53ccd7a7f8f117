from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import TopologyError
from harness.topology.hostlist import MAX_HOSTS, compress, expand, expand_counts

HOSTS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "n", "gpu-", "r1c"]),
    st.integers(0, 120).map(str) | st.sampled_from(["01", "09", "010", "007", "0x1f"]),
    st.sampled_from(["", "b", "-ib0", ".c2.org"]),
)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("a[3,1-2]", ["a3", "a1", "a2"]),
        ("a[08-11]x", ["a08x", "a09x", "a10x", "a11x"]),
        ("a[9-11]", ["a9", "a10", "a11"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("a[1], b,c", ["a1", "b", "c"]),
        ("10.0.0.[7-8]", ["10.0.0.7", "10.0.0.8"]),
        ("(null)", []),
        ("", []),
    ],
)
def test_expand(text: str, hosts: list[str]) -> None:
    assert list(expand(text)) == hosts


@pytest.mark.parametrize(
    "text", ["a[1-2", "a]", "a[[1]]", "a[2-1]", "a[x]", "a[]", "a[1-999999999]", "a[0-999][0-999]"]
)
def test_expand_refuses(text: str) -> None:
    with pytest.raises(TopologyError):
        expand(text)


def test_compress_keeps_order_and_padding() -> None:
    assert compress(["n2", "n1", "n3"]) == "n[2,1,3]"
    assert compress(["n08", "n09", "n10", "n011"]) == "n[08-10,011]"
    assert compress(["gpu1.c2.org", "gpu2.c2.org", "login"]) == "gpu[1-2].c2.org,login"
    assert compress([]) == ""


@settings(max_examples=80)
@given(st.lists(HOSTS, max_size=12))
def test_compressed_lists_expand_to_the_same_hosts_in_the_same_order(hosts: list[str]) -> None:
    assert list(expand(compress(hosts))) == hosts


@settings(max_examples=60)
@given(st.integers(0, 90), st.integers(1, 40), st.integers(1, 3), st.booleans())
def test_runs_round_trip(first: int, count: int, width: int, backward: bool) -> None:
    hosts = [f"n{number:0{width}d}" for number in range(first, first + count)]
    hosts = hosts[::-1] if backward else hosts
    assert list(expand(compress(hosts))) == hosts


@pytest.mark.parametrize("host", ["", "a b", "a,b", "a[1]"])
def test_compress_refuses_what_is_no_host(host: str) -> None:
    with pytest.raises(TopologyError):
        compress([host])


def test_counts() -> None:
    assert expand_counts("2(x3),1") == (2, 2, 2, 1)
    for bad in ("", "2(x", "two", f"1(x{MAX_HOSTS + 1})"):
        with pytest.raises(TopologyError):
            expand_counts(bad)
