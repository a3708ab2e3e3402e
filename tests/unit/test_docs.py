"""The documentation is true: its code runs, the commands and files that it names exist, its links lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from headrace.cli.main import app

PROJECT = Path(__file__).parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])
RUN_BLOCKS = """
import json, sys
import headrace as hr
from headrace.pipeline.draw import describe

described = []
for name, code in json.load(sys.stdin):
    names = {"__name__": "docs"}
    exec(compile(code, name, "exec"), names)
    pipelines = [value for value in names.values() if isinstance(value, hr.Pipeline)]
    assert pipelines, f"{name} declares no pipeline at its top level"
    for pipeline in pipelines:
        pipeline.check()
        described.append(describe(pipeline))
json.dump(described, sys.stdout)
"""


class Block(NamedTuple):
    """A block of code in a page."""

    place: str
    language: str
    text: str


def name_of(page: Path) -> str:
    return page.relative_to(PROJECT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, found.start()) + 2
        yield Block(f"{name_of(page)}:{line}", found[2], found[3])


def prose(page: Path) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def code(page: Path) -> Iterator[tuple[str, str]]:
    """Each piece of code with its place: the lines of blocks that are no Python, and what stands in backticks."""
    for block in blocks(page):
        if block.language != "python":
            yield from ((block.place, line) for line in block.text.splitlines())
    yield from ((name_of(page), span) for span in re.findall(r"`([^`\n]+)`", prose(page)))


def run_blocks(found: list[Block]) -> list[dict[str, object]]:
    """Declares and checks the pipelines in a fresh interpreter, where no Spark session is; says what they are."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_BLOCKS],
        input=json.dumps([(block.place, block.text) for block in found]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=PROJECT,
    )
    assert done.returncode == 0, done.stderr
    described = json.loads(done.stdout)
    assert isinstance(described, list)
    return described


def test_all_code_is_python_that_compiles() -> None:
    found = [block for page in PAGES for block in blocks(page) if block.language == "python"]
    assert found
    for block in found:
        compile(block.text, block.place, "exec")


def test_the_pipelines_in_the_documentation_pass_their_checks() -> None:
    found = [block for page in PAGES for block in blocks(page) if block.language == "python"]
    pipelines = [block for block in found if "hr.Pipeline(" in block.text]
    assert len({block.place.split(":")[0] for block in pipelines}) >= 3
    run_blocks(pipelines)


def test_the_pipeline_in_the_readme_is_the_example() -> None:
    (shown,) = [block for block in blocks(PROJECT / "README.md") if block.language == "python"]
    example = PROJECT / "examples" / "fraud" / "pipeline.py"
    described = run_blocks([shown, Block(name_of(example), "python", example.read_text(encoding="utf-8"))])
    for pipeline in described:
        nodes = pipeline["nodes"]
        assert isinstance(nodes, list)
        for node in nodes:
            del node["location"]  # the comments differ
    assert described[0] == described[1]


def subcommands(command: Any) -> dict[str, Any]:
    """By name; none if it is no group. Without naming click's types: which click that is depends on typer's version."""
    return getattr(command, "commands", {})


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts if option.startswith("-")}


def commands() -> list[tuple[str, list[str]]]:
    """Every use of the command line in the documentation, as words."""
    uses = []
    for page in PAGES:
        for place, text in code(page):
            command, _, _ = text.partition("#")
            found = re.match(r"\s*(?:\S*/)?headrace ((?:[a-z]|--).*)", command)
            if found:
                uses.append((place, found[1].split()))
    return uses


def test_the_commands_and_options_in_the_documentation_exist() -> None:
    uses = commands()
    assert len(uses) > 10
    for place, words in uses:
        command: Any = typer.main.get_command(app)
        known, rest = options(command), list(words)
        while rest and subcommands(command) and not rest[0].startswith("-"):
            name = rest.pop(0)
            assert name in subcommands(command), f"{place}: headrace {' '.join(words)}: there is no `{name}`"
            command = subcommands(command)[name]
            known |= options(command)
        for word in rest:
            if word.startswith("--"):
                option = word.partition("=")[0]
                assert option in known, f"{place}: headrace {' '.join(words)}: there is no `{option}`"


def test_the_reference_lists_all_commands_and_the_options_of_run() -> None:
    reference = (PROJECT / "docs" / "reference.md").read_text(encoding="utf-8")
    top = subcommands(typer.main.get_command(app))
    for name, command in top.items():
        names = [f"{name} {verb}" for verb in subcommands(command)] or [name]
        assert [each for each in names if f"headrace {each}" not in reference] == []
    assert [option for option in sorted(options(top["run"])) if option not in reference] == []


def test_the_make_targets_in_the_documentation_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    uses = [
        (place, found[1]) for page in PAGES for place, text in code(page) if (found := re.match(r"make ([a-z]+)", text))
    ]
    assert uses
    assert [use for use in uses if use[1] not in targets] == []


def test_the_environment_variables_in_the_documentation_are_read_by_the_code() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in PROJECT.glob("src/headrace/**/*.py"))
    named = {name for page in PAGES for name in re.findall(r"HEADRACE_[A-Z_]*[A-Z]", page.read_text(encoding="utf-8"))}
    assert named
    assert [name for name in sorted(named) if f'"{name}"' not in sources] == []


def recipe() -> str:
    """How to add a kernel operator."""
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition("## Add a kernel operator")[2].partition("\n## ")[0]


def test_the_recipe_for_an_operator_names_the_methods_of_a_stage_as_they_are() -> None:
    source = (PROJECT / "src" / "headrace" / "kernel" / "scala" / "Stage.scala").read_text(encoding="utf-8")
    trait = source.partition("trait Stage ")[2].partition("\n}\n")[0]
    methods = re.findall(r"^  def (\w+(?:\(.*?\))?): \w+( =)?", trait, re.MULTILINE)
    written = {re.sub(r": [\w\[\]]+", "", method): bool(default) for method, default in methods}  # without the types
    named = re.findall(r"^ *\| `([^`]+)` \|", recipe(), re.MULTILINE)
    assert [method for method in named if method not in written] == []
    assert [method for method, default in written.items() if not default and method not in named] == []


def test_the_recipe_for_an_operator_names_functions_that_are_in_the_files_that_it_names() -> None:
    files = [PROJECT / "src" / "headrace" / file for file in re.findall(r"`(\w+/\w+\.py)`", recipe())]
    sources = "\n".join(file.read_text(encoding="utf-8") for file in files)
    named = set(re.findall(r"`(_\w+)`", recipe()))
    assert len(named) > 5
    assert [name for name in sorted(named) if not re.search(rf"^(def )?{name}\b", sources, re.MULTILINE)] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(file), f"{name_of(page)} links to {target}, and there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_in_backticks_exist(page: Path) -> None:
    """Files of this repository that a page names, as `src/...` or as a path under the package."""
    for span in re.findall(r"`([\w./-]+\.(?:py|scala|toml|md))`", prose(page)):
        if span.startswith(("jobs/", "path/")) or "/" not in span:
            continue
        places = [PROJECT, PROJECT / "src" / "headrace", page.parent]
        assert any((place / span).exists() for place in places), f"{name_of(page)} names {span}, which is not there"


@pytest.mark.parametrize("page", [*PAGES, PROJECT / "Makefile", PROJECT / ".ci" / "run"], ids=name_of)
def test_nothing_of_one_machine_is_in_it(page: Path) -> None:
    """Paths of somebody's machine, and the hosts of package registries: tools know their own defaults."""
    text = page.read_text(encoding="utf-8")
    registries = r"pypi\.org|pythonhosted|repo1?\.maven|maven\.org|repository\.apache|mvnrepository"
    assert re.findall(registries, text, re.IGNORECASE) == []
    assert re.findall(r"(?<![\w.~$}])/(?:tmp|home|root|Users|work|opt|var)/\S*", text) == []
