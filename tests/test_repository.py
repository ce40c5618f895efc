"""What stands beside the code: workflows that call make, forms, the security page, the citation, release notes."""

from __future__ import annotations

import dataclasses
import doctest
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tersely import __version__
from tersely.engines.cpu import CLASSES
from tersely.models.families import FAMILIES
from tersely.serve.server_options import DEEPEST, MAX_HEAD, Limits

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.y*ml"))
FORMS = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.y*ml")) if path.stem != "config"]
PROSE = [ROOT / "SECURITY.md", ROOT / "CITATION.cff", *(path for path in sorted(GITHUB.rglob("*")) if path.is_file())]
CALL = re.compile(r"make(?: [a-z][a-z-]*)+")
OFFICIAL = re.compile(r"actions/[a-z-]+@v[1-9][0-9]*")

by_name = pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)


def read_yaml(path: Path) -> dict[Any, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict), path.name
    return content


def steps_of(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read_yaml(workflow)["jobs"].values() for step in job["steps"]]


def targets() -> set[str]:
    """What `make` can be asked for by name: rules that .PHONY lists."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    listed = {name for line in re.findall(r"(?m)^\.PHONY:(.*)$", text) for name in line.split()}
    return listed & set(re.findall(r"(?m)^([a-z][a-z-]*):(?!=)", text))


def test_there_are_workflows_and_forms():
    assert {"check.yml", "release.yml"} <= {path.name for path in WORKFLOWS}
    assert {path.name for path in FORMS} == {"bug.yml", "feature.yml"}


@by_name
def test_workflows_run_nothing_but_make(workflow):
    runs = [step["run"] for step in steps_of(workflow) if "run" in step]
    assert runs
    for run in runs:
        assert CALL.fullmatch(run.strip()), run
        assert set(run.split()[1:]) <= targets(), run


@by_name
def test_actions_are_official_ones_by_major_tag(workflow):
    used = [step["uses"] for step in steps_of(workflow) if "uses" in step]
    assert used
    assert not [name for name in used if not OFFICIAL.fullmatch(name)]


@by_name
def test_workflows_may_only_read_and_end_in_time(workflow):
    content = read_yaml(workflow)
    assert content["permissions"] == {"contents": "read"}
    assert content["concurrency"]["cancel-in-progress"] is True
    for name, job in content["jobs"].items():
        assert "permissions" not in job, name
        assert 0 < job["timeout-minutes"] <= 120, name


@by_name
def test_what_is_uploaded_is_what_make_writes(workflow):
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    uploads = [
        step["with"] for step in steps_of(workflow) if step.get("uses", "").startswith("actions/upload-artifact")
    ]
    assert uploads
    for upload in uploads:
        path = upload["path"].rstrip("/")
        assert re.search(rf"(?<![\w/]){re.escape(path)}(?![\w/])", text), path
        assert upload["if-no-files-found"] == "error", path


def test_tests_run_on_every_python_that_the_package_names():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    tested = read_yaml(GITHUB / "workflows" / "check.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert named
    assert tested == named
    oldest = re.search(r'requires-python = ">=(3\.\d+)"', text)
    assert oldest is not None
    assert tested[0] == oldest[1]


def test_dependabot_looks_after_the_actions():
    updates = read_yaml(GITHUB / "dependabot.yml")["updates"]
    assert [(update["package-ecosystem"], update["schedule"]["interval"]) for update in updates] == [
        ("github-actions", "weekly")
    ]


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_forms_are_as_the_host_wants_them(form):
    content = read_yaml(form)
    assert {"name", "description", "body"} <= set(content)
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names) > 0
    for field in fields:
        assert field["type"] in ("input", "textarea", "dropdown")
        assert field["attributes"]["label"]
        if field["type"] == "dropdown":
            options = field["attributes"]["options"]
            assert all(isinstance(option, str) for option in options)  # a bare yes is a truth value, which is refused
            assert len(set(options)) == len(options)


def test_the_bug_form_knows_the_families_and_cpu_classes():
    fields = {field.get("id"): field for field in read_yaml(GITHUB / "ISSUE_TEMPLATE" / "bug.yml")["body"]}
    assert {"command", "message", "info", "family", "task", "strategy", "cpu_class"} <= set(fields)
    assert set(FAMILIES) <= set(fields["family"]["attributes"]["options"])
    assert tuple(fields["cpu_class"]["attributes"]["options"]) == CLASSES


def test_blank_issues_are_off():
    assert read_yaml(GITHUB / "ISSUE_TEMPLATE" / "config.yml") == {"blank_issues_enabled": False}


def test_the_pull_request_template_asks_for_what_contributing_asks_for():
    text = (GITHUB / "pull_request_template.md").read_text(encoding="utf-8")
    for wanted in ("make check", "CHANGELOG.md", "test", "docs"):
        assert wanted in text


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_address_is_invented(path):
    text = path.read_text(encoding="utf-8")
    assert text.strip()
    assert not re.search(r"https?:|www\.|[\w.]+@[\w-]+\.\w+", text)


def test_the_security_page_says_the_limits_that_the_server_has():
    page = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    said = {
        "max_body": "a body of {} MiB",
        "max_texts": "{} texts of",
        "max_text_length": "texts of {} characters",
        "max_queue": "{} waiting texts",
        "max_connections": "{} connections",
        "timeout": "{} seconds of waiting",
        "client_timeout": "{} seconds to send a request",
    }
    assert set(said) == {field.name for field in dataclasses.fields(Limits)}
    values = {**dataclasses.asdict(Limits()), "max_body": Limits().max_body / 2**20}
    for name, words in said.items():
        number = f"{values[name]:_g}".replace("_", " ") if values[name] >= 10_000 else f"{values[name]:g}"
        assert words.format(number) in page, name
    assert f"JSON {DEEPEST} levels deep" in page
    assert f"a request line with its headers of {MAX_HEAD >> 10} KiB" in page


def test_the_security_page_supports_this_version():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert re.search(rf"(?m)^\| {re.escape('.'.join(__version__.split('.')[:2]))} \| yes \|$", page)


def test_the_citation_has_what_its_format_wants_and_no_version():
    content = read_yaml(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(content)
    assert (content["cff-version"], content["title"], content["type"]) == ("1.2.0", "Tersely", "software")
    assert content["authors"] == [{"name": "The Tersely developers"}]
    assert f'license = "{content["license"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    # The version stands in the package alone; there is no public address yet.
    assert not {"version", "date-released", "url", "repository-code", "doi"} & set(content)


def notes(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "docs" / "release_notes.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


@pytest.mark.parametrize("words", [(), (__version__,), (f"v{__version__}",)], ids=["none", "version", "tag"])
def test_release_notes_are_lines_of_the_changelog_in_order(words):
    done = notes(*words)
    assert (done.returncode, done.stderr) == (0, "")
    heading, *lines = done.stdout.splitlines()
    assert re.match(rf"## \[?({re.escape(__version__)}|Unreleased)\b", heading)
    assert any(line.startswith("- ") for line in lines)
    assert not [line for line in lines if line.startswith("## ")]
    left = iter((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines())
    assert all(line in left for line in (heading, *lines))


@pytest.mark.parametrize("words", [("9.9.9",), ("v9.9.9",), ("",), ("--help",), ("0.2.0", "0.1.0")])
def test_release_notes_of_an_unknown_version_fail_in_one_line(words):
    done = notes(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_release_notes_take_a_section_whole_and_alone(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import release_notes

    assert doctest.testmod(release_notes).failed == 0
    parts = {
        "Unreleased": "## Unreleased\n\n### Added\n- Later.\n",
        "0.2.0": "## 0.2.0\n\n### Fixed\n- One\n  line.\n\n### Added\n- Two.\n",
        "0.2.0rc1": "## [0.2.0rc1] - 2030-01-31\n- Three.\n",
        "0.1.0": "## 0.1.0 (2029)\n- Four.",
    }
    text = "# Changelog\n\nWords before.\n\n" + "\n".join(parts.values())
    for version, section in parts.items():
        assert release_notes.release_notes(text, version, current="0.3.0") == section.rstrip() + "\n"
    assert release_notes.release_notes(text, "0.3.0", current="0.3.0") == parts["Unreleased"]
    assert release_notes.release_notes(text, "0.2", current="0.3.0") is None  # no prefix of another version
    assert release_notes.release_notes("# Changelog\n\n## Unreleased\n", "0.3.0", current="0.3.0") is None


def test_installing_is_told_in_one_place_and_names_no_index() -> None:
    """To be changed at the first release: the page on installing, and the line of each README."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    lines = {
        (path.relative_to(ROOT).as_posix(), line)
        for path in pages
        if path.name != "CHANGELOG.md"
        for line in re.findall(r"pip install[^`\n]*", path.read_text(encoding="utf-8"))
        if re.search(r"""install ["']?(\.|tersely)""", line)
    }
    assert {name for name, _ in lines} == {"README.md", "README.zh.md", "docs/how_to/install.md", "examples/README.md"}
    assert not [line for _, line in lines if re.search(r"""install ["']?tersely(?!-[\d.]+-py3-none-any\.whl)""", line)]


def test_installing_names_the_wheel_of_this_version() -> None:
    page = (ROOT / "docs" / "how_to" / "install.md").read_text(encoding="utf-8")
    assert f'"tersely-{__version__}-py3-none-any.whl[' in page
