"""Site profiles: what is read, and what is refused in one line that says how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.slurm.profile import Profile, parse_profile, read_profile

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", sorted((ROOT / "slurm" / "profiles").glob("*.toml")), ids=lambda path: path.stem)
def test_every_profile_that_comes_along_is_valid(path: Path) -> None:
    assert read_profile(str(path)).name == path.stem


def test_the_template_shows_every_key() -> None:
    template = read_profile("template")
    left_out = [key for key in Profile.model_fields if getattr(template, key) in (None, (), {})]
    assert left_out == ["gpus"], "which goes in the place of gpus_per_node, and is shown there"
    assert "gpus = 12" in (ROOT / "slurm" / "profiles" / "template.toml").read_text()
    assert template.container is not None and template.container.mounts


def test_a_name_is_looked_for_in_the_profiles_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_profile("virtual").environment == {"GLOO_SOCKET_IFNAME": "eth0"}
    own = tmp_path / "slurm" / "profiles"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text('partition = "p"\n')
    assert read_profile("mine").partition == "p"
    with pytest.raises(UsageError, match=r"unknown profile 'other'; choose one of: mine, template, virtual"):
        read_profile("other")
    with pytest.raises(UsageError, match=r"no profile here/x\.toml; give a TOML file"):
        read_profile("here/x.toml")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"partion": "p"},
            r"unknown key 'partion' \(did you mean 'partition'\?\); valid keys: name, partition, account",
        ),
        ({"container": {"runtime": "pyxis", "image": "i", "mount": []}}, r"unknown key 'container\.mount' .*'mounts'"),
        ({"container": {"runtime": "podman", "image": "i"}}, r"container\.runtime: .*'apptainer' or 'pyxis'"),
        ({"gpus_per_node": 4, "gpus": 6}, r"gpus: gpus_per_node says how many already; leave one of the two out"),
        ({"time_min": 0}, r"time_min: .*greater than or equal to 1"),
        ({"exclusive": "perhaps"}, r"exclusive: .*boolean"),
        ({"environment": {"A B": "x"}}, r"environment: 'A B' is no name of a variable"),
        ({"directives": {"--qos": "x"}}, r"directives: '--qos' is no option of sbatch"),
        ({"directives": {"nodes": 3}}, r"directives: 'nodes' is decided by meshsweep"),
        ({"comment": "a\0b"}, r"comment holds a NUL character"),
    ],
)
def test_what_is_wrong_is_named_with_the_remedy(data: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_profile(data, "site.toml")
    assert "site.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("partition = main\n")
    with pytest.raises(UsageError, match=r"bad\.toml is not TOML: .*template\.toml"):
        read_profile(str(path))
