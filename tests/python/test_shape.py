"""tests/shape.py finds what is planted in a small crate and a small package, and nothing in them without it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("shape", Path(__file__).parents[1] / "shape.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHAPE = script()

MANIFEST = """[package]
name = "sound"

[dependencies]
bytes = "1"
log = "0.4"

[dev-dependencies]
tempfile = "3"
"""

FILES = {
    "Cargo.toml": MANIFEST,
    "src/lib.rs": "pub mod first;\npub mod part;\nmod second;\n",
    "src/first.rs": 'use crate::second::Two;\nuse bytes::Bytes;\n\npub fn say(b: Bytes) -> Two {\n    log::info!("}");\n    Two\n}\n',
    "src/second.rs": "//! [`crate::first`] uses this, and a comment is no import.\npub struct Two;\n",
    "src/part/mod.rs": "mod inner;\npub use inner::Inner;\npub struct Outer;\n",
    "src/part/inner.rs": "use super::Outer;\npub struct Inner(Outer);\n",
    "python/criticd/_one.py": "from __future__ import annotations\n\nimport criticd._two\nfrom criticd import _two as two\n",
    "python/criticd/_two.py": '"""from criticd import _one"""\n\nimport os\nfrom typing import TYPE_CHECKING\n',
    "tests/whole.rs": "#[test]\nfn whole() {\n    tempfile::tempdir().unwrap();\n}\n",
}


def faults(folder: Path, **changes: str) -> list[str]:
    """What is found in the sound crate with other texts in some of its files; `__` in a name is a slash."""
    texts = FILES | {name.replace("__", "/").replace("_rs", ".rs"): text for name, text in changes.items()}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found: list[str] = SHAPE.faults(folder)
    return found


def lines(count: int) -> str:
    """A function of so many lines."""
    return "pub fn long(\n    of: [u8; 3],\n) -> u8 {\n" + "    let _ = 1;\n" * (count - 5) + "    of[0]\n}\n"


def test_a_sound_crate_has_no_faults(tmp_path: Path) -> None:
    assert faults(tmp_path) == []


def test_a_circle_between_files_is_found(tmp_path: Path) -> None:
    second = "use crate::{\n    part::{Inner, self as other},\n    first::say as speak,\n};\npub struct Two;\n"
    found = faults(tmp_path, src__second_rs=second)
    assert found[0] == "files that use one another: src/first.rs, src/second.rs"
    assert "    src/second.rs -> src/first.rs" in found and "    src/first.rs -> src/second.rs" in found


@pytest.mark.parametrize("path", ["crate::first::say(b)", "super::first::say(b)"])
def test_a_path_without_an_import_closes_a_circle_too(tmp_path: Path, path: str) -> None:
    second = f"pub struct Two;\npub fn back(b: bytes::Bytes) -> Two {{\n    {path}\n}}\n"
    assert faults(tmp_path, src__second_rs=second)[0] == "files that use one another: src/first.rs, src/second.rs"


@pytest.mark.parametrize("planted", ["criticd fit walk.csv --out walk.msgpack", "return sd", "± 0.2 (1 sd)"])
def test_another_spelling_is_found_where_users_read(tmp_path: Path, planted: str) -> None:
    found = faults(tmp_path, **{"docs/recipes/one.md": f"# One\n\n{planted}\n"})
    assert len(found) == 1 and found[0].startswith("docs/recipes/one.md:3: "), found
    assert faults(tmp_path, **{"docs/recipes/one.md": "the key std of walk.model, as import msgpack reads it\n"}) == []


@pytest.mark.parametrize("planted", ["/// Bytes, those\n/// of a row.\nstruct A;\n", "const ROWS: usize = 1;\n"])
def test_words_in_the_place_of_a_noun_may_not_become_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    monkeypatch.setattr(SHAPE, "RATCHET", dict.fromkeys(SHAPE.RATCHET, 0))
    assert faults(tmp_path) == []
    assert len(faults(tmp_path, src__second_rs=planted + FILES["src/second.rs"])) == 1


def test_a_circle_of_unit_tests_is_none(tmp_path: Path) -> None:
    second = "pub struct Two;\n\n#[cfg(test)]\nmod tests {\n    use crate::first::say;\n}\n"
    assert faults(tmp_path, src__second_rs=second) == []


@pytest.mark.parametrize(
    "planted",
    [
        "import criticd._one\n",
        "from criticd import _one\n",
        "from . import _one\n",
        "from criticd._one import One\n",
        "if TYPE_CHECKING:\n    from criticd._one import One\n",
        "def later() -> None:\n    from criticd._one import One\n",
    ],
)
def test_a_circle_between_files_of_the_package_is_found(tmp_path: Path, planted: str) -> None:
    found = faults(tmp_path, **{"python/criticd/_two.py": FILES["python/criticd/_two.py"] + planted})
    assert found[0] == "Python files that use one another: criticd/_one.py, criticd/_two.py"


def test_a_circle_between_folders_is_found_where_files_have_none(tmp_path: Path) -> None:
    outer = "mod inner;\nmod other;\npub use inner::Inner;\npub struct Outer;\n"
    other = "use crate::first::say;\n"
    first = FILES["src/first.rs"] + "use crate::part::inner::Inner;\n"
    changes = {"src__part__mod_rs": outer, "src__part__other_rs": other, "src__first_rs": first}
    found = faults(tmp_path, **changes)
    assert found[0] == "folders that use one another: sound/first, sound/part"
    assert not any(fault.startswith("files") for fault in found)


def test_what_a_document_names_is_there(tmp_path: Path) -> None:
    sound = "`src/part/`, `part/{mod,inner}.rs`, `src/*.rs`, `journal.sqlite` and `python/criticd/_two.py`\n"
    sound += "`tests/whole.rs::whole`, `src/first.rs::say`, `Inner::Outer`\n"
    assert faults(tmp_path, **{"ARCHITECTURE.md": sound}) == []
    planted = "`src/parts/`, `part/{mod,outer}.rs` and `third.rs`\n`src/first.rs::say`, `::whole`, `Inner::Two`, `Third::new()`\n"
    names = ["Inner::Two", "Third::new", "part/outer.rs", "src/first.rs::whole", "src/parts", "third.rs"]
    found = [f"ARCHITECTURE.md: there is no {name}" for name in names]
    assert sorted(faults(tmp_path, **{"ARCHITECTURE.md": planted})) == found


def test_long_functions_long_files_and_wide_structs_are_found(tmp_path: Path) -> None:
    assert faults(tmp_path, src__second_rs="pub struct Two;\n" + lines(80)) == []
    found = faults(tmp_path, src__second_rs="pub struct Two;\n" + lines(81))
    assert found == ["src/second.rs long: 81 lines of a function, at most 80"]
    short = "pub struct Two;\n" + "pub fn f() {}\n" * 799
    assert faults(tmp_path, src__second_rs=short) == []
    assert faults(tmp_path, src__second_rs=short + "const A: u8 = 1;\n") == ["src/second.rs: 801 lines, at most 800"]
    for count, wanted in [(20, []), (21, ["src/second.rs Two: 21 fields, at most 20"])]:
        fields = "".join(f"    /// x: y\n    pub(crate) f{k}: std::vec::Vec<u8>,\n" for k in range(count))
        assert faults(tmp_path, src__second_rs=f"pub struct Two {{\n{fields}}}\n") == wanted


def test_a_dependency_that_nothing_names_is_found(tmp_path: Path) -> None:
    planted = MANIFEST.replace("[dev-", 'left-pad = "1"\n\n[dev-')
    found = faults(tmp_path, **{"Cargo.toml": planted})
    assert found == ["Cargo.toml: nothing names the dependency left-pad"]
    # A comment, a string or a variable of that name does not use it.
    second = '//! left_pad::pad\npub struct Two;\npub fn f(left_pad: &str) -> usize {\n    "left_pad::x".len() + left_pad.len()\n}\n'
    assert faults(tmp_path, **{"Cargo.toml": planted}, src__second_rs=second) == found
    named = "pub struct Two;\npub fn f() -> left_pad::Padded {\n    left_pad::pad()\n}\n"
    assert faults(tmp_path, **{"Cargo.toml": planted}, src__second_rs=named) == []


def test_a_dependency_of_tests_alone_belongs_to_tests(tmp_path: Path) -> None:
    whole = FILES["tests/whole.rs"].replace("tempfile::", "bytes::Bytes::new();\n    tempfile::")
    first = FILES["src/first.rs"].replace("use bytes::Bytes;\n", "").replace("b: Bytes", "b: u8")
    found = faults(tmp_path, src__first_rs=first, tests__whole_rs=whole)
    assert found == ["Cargo.toml: nothing names the dependency bytes"]


def test_crates_of_a_workspace_are_drawn_apart_with_their_imports(tmp_path: Path) -> None:
    manifest = '[package]\nname = "sound-inner"\n'
    inner = {"crates__inner__Cargo.toml": manifest, "crates__inner__src__lib_rs": "pub mod deep;\n"}
    deep = {"crates__inner__src__deep_rs": "pub struct Deep;\n"}
    second = "use sound_inner::deep::Deep;\npub struct Two;\n"
    assert faults(tmp_path, **inner, **deep, src__second_rs=second) == []
    drawn = SHAPE.drawing(tmp_path)
    assert 'subgraph "cluster_sound_inner"' in drawn and 'subgraph "cluster_sound"' in drawn
    assert '"sound/second" -> "sound_inner/deep";' in drawn and '"sound/first" -> "sound/second";' in drawn
