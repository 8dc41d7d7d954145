"""The versions that the locks and the floors of `pyproject.toml` permit have none of the vulnerabilities listed here."""

import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
SAFE = {
    "aiohttp": ("3.14.1", "CVE-2026-54273 and others"),
    "brotli": ("1.2", "CVE-2025-6176"),
    "certifi": ("2024.7.4", "CVE-2024-39689"),
    "cryptography": ("46.0.7", "CVE-2026-39892"),
    "deepdiff": ("8.6.2", "CVE-2025-58367, CVE-2026-33155"),
    "filelock": ("3.20.3", "CVE-2025-68146, CVE-2026-22701"),
    "flask": ("3.1.1", "CVE-2025-47278"),
    "h11": ("0.16", "CVE-2025-43859"),
    "h2": ("4.3", "CVE-2025-57804"),
    "hpack": ("4.2", "CVE-2026-59980"),
    "idna": ("3.15", "CVE-2026-45409"),
    "jinja2": ("3.1.6", "CVE-2025-27516"),
    "mitmproxy": ("12.2.2", "CVE-2026-40606"),
    "pydantic": ("2.4", "CVE-2024-3772"),
    "pytest": ("9.0.3", "CVE-2025-71176"),
    "requests": ("2.33", "CVE-2026-25645"),
    "starlette": ("1.3.1", "CVE-2025-62727, CVE-2026-48710 and others"),
    "tornado": ("6.5", "CVE-2025-47287"),
    "urllib3": ("2.7", "CVE-2026-44431, CVE-2026-44432"),
}
"""The first version without the known vulnerabilities, and some of these."""
HOSTS = ("http://", "https://", "--index-url", "--extra-index-url", "--find-links")


def pins(lock):
    for line in lock.read_text("utf-8").splitlines():
        if "==" in line and not line.startswith((" ", "#")):
            yield Requirement(line.removesuffix("\\"))


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.lock")), ids=lambda lock: lock.stem)
def test_no_lock_has_a_version_with_a_known_vulnerability(lock):
    found = {
        f"{pin.name} {version}: {SAFE[name][1]}"
        for pin in pins(lock)
        if (name := canonicalize_name(pin.name)) in SAFE
        and Version(version := next(iter(pin.specifier)).version) < Version(SAFE[name][0])
    }
    assert found == set()
    assert not any(word in lock.read_text("utf-8") for word in HOSTS)


def test_no_floor_permits_a_version_with_a_known_vulnerability():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = [
        Requirement(line)
        for lines in (
            project["project"]["dependencies"],
            *project["project"]["optional-dependencies"].values(),
            [line for line in project["dependency-groups"]["dev"] if isinstance(line, str)],
        )
        for line in lines
    ]
    found = {
        str(one)
        for one in wanted
        if (name := canonicalize_name(one.name)) in SAFE
        and not any(part.operator == ">=" and Version(part.version) >= Version(SAFE[name][0]) for part in one.specifier)
    }
    assert found == set()


def test_an_audit_without_advisories_is_not_reported_as_clean(tmp_path):
    (silent := tmp_path / "pip-audit").write_text(
        f'#!{sys.executable}\nprint(\'{{"dependencies": [{{"name": "h11", "skip_reason": "not found"}}]}}\')\n'
    )
    silent.chmod(0o755)
    command = [sys.executable, ROOT / "tools" / "audit_dependencies.py", silent, ROOT / "requirements" / "dev.lock"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "audit-dependencies: not audited: pip-audit reaches no advisories from here\n"


def test_a_vulnerable_version_is_reported_with_its_fix(tmp_path):
    (audit := tmp_path / "pip-audit").write_text(
        f"#!{sys.executable}\n"
        "import json\n"
        "advisory = {'id': 'PYSEC-1', 'aliases': ['CVE-1'], 'fix_versions': ['0.16.0']}\n"
        "print(json.dumps({'dependencies': [{'name': 'h11', 'version': '0.14.0', 'vulns': [advisory]}]}))\n"
    )
    audit.chmod(0o755)
    command = [sys.executable, ROOT / "tools" / "audit_dependencies.py", audit, "a.lock"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "a.lock: h11==0.14.0: PYSEC-1, CVE-1; fixed in 0.16.0\n")


def test_a_lock_that_pip_audit_does_not_read_is_not_reported_as_clean(tmp_path):
    (audit := tmp_path / "pip-audit").write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "if not sys.argv[-1].endswith('control.txt'):\n"
        "    sys.exit('ERROR:no such lock')\n"
        "advisory = {'id': 'PYSEC-1', 'aliases': ['CVE-1'], 'fix_versions': ['0.16.0']}\n"
        "print(json.dumps({'dependencies': [{'name': 'h11', 'version': '0.14.0', 'vulns': [advisory]}]}))\n"
    )
    audit.chmod(0o755)
    command = [sys.executable, ROOT / "tools" / "audit_dependencies.py", audit, "a.lock"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "a.lock: not audited: ERROR:no such lock\n")


def test_a_bill_of_materials_keeps_the_package_urls_and_drops_the_web_addresses():
    spec = importlib.util.spec_from_file_location("write_sbom", ROOT / "tools" / "write_sbom.py")
    (module := importlib.util.module_from_spec(spec)).__loader__.exec_module(module)
    part = {"name": "h11", "purl": "pkg:pypi/h11@0.16.0", "externalReferences": [{"url": "https://example.org"}]}
    bom = module.without_references(json.dumps({"metadata": {"component": {}}, "components": [part]}))
    assert bom["components"] == [{"name": "h11", "purl": "pkg:pypi/h11@0.16.0"}]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {extra for extra in module.EXTRAS if extra} == set(extras)
