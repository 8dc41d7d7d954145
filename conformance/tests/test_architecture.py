"""The architecture page shows the packages as the import contracts have them, and names files that exist."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PACKAGES = {
    "harmony_conformance": ROOT / "conformance" / "harmony_conformance",
    "harmony_proxy": ROOT / "proxy" / "harmony_proxy",
    "harmony_ref": ROOT / "harmony_ref" / "harmony_ref",
}
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]


def levels(rows):
    return [frozenset(row.split(" | ")) for row in rows]


def picture(package):
    block = re.search(rf"^{package}\n((?:  .*\n)+)", PAGE, re.MULTILINE)
    return levels(re.split(r"\s{2,}", line.strip())[0] for line in block.group(1).splitlines())


@pytest.mark.parametrize("package", PACKAGES)
def test_the_picture_shows_the_levels_of_the_contract(package):
    (contract,) = [one for one in CONTRACTS if one.get("containers") == [package]]
    assert contract["exhaustive"] is True
    assert picture(package) == levels(contract["layers"])


@pytest.mark.parametrize("package", PACKAGES)
def test_the_picture_shows_every_package_and_root_module(package):
    folder = PACKAGES[package]
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert frozenset().union(*picture(package)) == modules | packages


def listed_subpackages(package):
    """The subpackages that the page lists."""
    section = PAGE.partition("## Subpackages\n")[2].partition("\n## ")[0]
    block = re.search(rf"^{package}\n((?:  .*\n)+)", section, re.MULTILINE)
    return [line.split()[0] for line in block.group(1).splitlines()] if block else []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_lists_every_subpackage(package):
    folder = PACKAGES[package]
    names = (path.parent.relative_to(folder).as_posix() for path in folder.rglob("__init__.py"))
    assert listed_subpackages(package) == sorted(name for name in names if "/" in name)


def test_at_most_six_modules_beside_the_packages():
    modules = {path.name for path in PACKAGES["harmony_conformance"].glob("*.py")} - {"__init__.py", "__main__.py"}
    assert len(modules) <= 6, sorted(modules)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE))))
def test_a_file_that_the_page_names_exists(name):
    found = [path for folder in PACKAGES.values() for path in folder.rglob(Path(name).name)]
    places = [*found, *(ROOT / "tools").glob("*.py")]
    assert any(path.as_posix().endswith(f"/{name.removeprefix('harmony_proxy/')}") for path in places)


TABLES = [
    readme
    for folder in PACKAGES.values()
    for readme in folder.rglob("README.md")
    if "| module | content |" in readme.read_text("utf-8")
]


@pytest.mark.parametrize("readme", TABLES, ids=lambda readme: readme.parent.name)
def test_a_table_of_modules_has_every_module(readme):
    named = {Path(name).name for name in re.findall(r"`([\w/]+\.py)`", readme.read_text("utf-8"))}
    assert {module.name for module in readme.parent.glob("*.py")} - {"__init__.py"} - named == set()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+/)`", PAGE))))
def test_a_folder_that_the_page_names_exists(name):
    assert [folder for folder in (ROOT, *PACKAGES.values()) if (folder / name).is_dir()]
