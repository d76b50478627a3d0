"""Hooks of mkdocs: pages for linked files outside docs/, the notebook, llms.txt, and a check of every link.

The site is complete without a forge: a link to a file of the repository leads to a page with its text.
"""

import json
import posixpath
import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"(^ *(`{3,}).*?^ *\2`*|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".smk": "python", "": "sh"}
LONGEST = 100_000  # characters of a file that its page shows
NOTEBOOK = "docs/notebooks/first-look.ipynb"
EXTERNAL: dict[str, set[str]] = defaultdict(set)  # pages by address
ORIGIN: dict[str, str] = {}  # path in the repository of each page


def on_files(files: Files, config) -> Files:
    """Add a page for each file or folder outside docs/ that a page links to, directly or by another such page."""
    for file in files.documentation_pages():
        ORIGIN[file.src_uri] = f"docs/{file.src_uri}"
    waiting = [*ORIGIN.values(), NOTEBOOK]
    add_page(files, config, NOTEBOOK)
    while waiting:
        for target in linked(waiting.pop()):
            if (ROOT / target).exists() and address(target) not in files.src_uris and needs_page(target):
                add_page(files, config, target)
                waiting.append(target)
    return files


def needs_page(target: str) -> bool:
    """Return whether a path of the repository becomes a page: mkdocs itself has the files of docs/."""
    return not target.startswith("docs/") or (ROOT / target).is_dir()


def linked(origin: str) -> set[str]:
    """Return the paths of the repository that a text links to."""
    path = ROOT / origin
    if path.suffix not in (".md", ".ipynb"):
        return set()
    text = notebook(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    links = [match[2] for match in LINK.finditer(CODE.sub("", text))]
    return {resolve(origin, link) for link in links if not urlsplit(link).scheme and link[0] != "#"}


def resolve(origin: str, link: str) -> str:
    """Return the path in the repository that a link in a file means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), unquote(urlsplit(link).path)))


def address(target: str) -> str:
    """Return the page of a path of the repository, relative to the site."""
    inner = target.removeprefix("docs/") if target.startswith("docs/") else f"source/{target.lstrip('.')}"
    if (ROOT / target).is_dir():
        return f"{inner}/index.md"
    if target.endswith(".ipynb"):
        return inner.replace(".ipynb", ".md")
    return inner if target.endswith(".md") or target.startswith("docs/") else f"{inner}.md"


def add_page(files: Files, config, target: str) -> None:
    """Add the page of a file or folder of the repository."""
    path, uri = ROOT / target, address(target)
    if path.is_dir():
        names = sorted(each.name + "/" * each.is_dir() for each in path.iterdir() if each.name[0] not in "._")
        shown = [
            f"[{name}]({name})" if (path / name).suffix == ".md" and target[:5] == "docs/" else f"`{name}`"
            for name in names
        ]
        text = f"# {target}\n\n" + "".join(f"- {name}\n" for name in shown)
    elif path.suffix == ".ipynb":
        text = notebook(path)
    elif path.suffix == ".md":
        text = path.read_text(encoding="utf-8")
    else:
        whole = path.read_text(encoding="utf-8")
        cut = "" if len(whole) <= LONGEST else f"\n\nThe first {LONGEST:,} of {len(whole):,} characters.\n"
        fence = "`" * 4
        text = f"# {target}{cut}\n\n{fence} {LANGUAGES.get(path.suffix, 'text')}\n{whole[:LONGEST]}\n{fence}\n"
    ORIGIN[uri] = f"{target}/" if path.is_dir() else target
    files.append(File.generated(config, uri, content=text))


def notebook(path: Path) -> str:
    """Return a notebook as Markdown: texts, code, and the text of outputs."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            text = "".join(output.get("text") or output["data"]["text/plain"])
            parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page, config, files: Files) -> str:
    """Return a page whose links lead to pages of the site, and note external ones."""
    uri = page.file.src_uri
    origin = ORIGIN[uri]

    def rewrite(match: re.Match) -> str:
        parts = urlsplit(match[2])
        if parts.scheme:
            EXTERNAL[match[2]].add(uri)
        if parts.scheme or not parts.path:
            return match[0]
        target = resolve(origin, match[2])
        place = posixpath.relpath(address(target), posixpath.dirname(uri) or ".")
        return f"{match[1]}{place}{'#' * bool(parts.fragment)}{parts.fragment}{match[3]}"

    pieces = CODE.split(markdown)[::3]  # between them are code and its fence
    codes = [match[0] for match in CODE.finditer(markdown)]
    texts = [LINK.sub(rewrite, piece) for piece in pieces]
    return "".join(text + code for text, code in zip(texts, [*codes, ""], strict=True))


class Page(HTMLParser):
    """The links and anchors of a built page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()  # scripts and styles
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.links |= {named[key] for key in ("href", "src") if named.get(key)}
        if tag in ("script", "link") and named.get("rel") != "canonical":
            self.loaded |= {named[key] for key in ("href", "src") if named.get(key)}
        self.anchors |= {named[key] for key in ("id", "name") if named.get(key)}


def on_post_build(config) -> None:
    """Write llms.txt and the list of external links; raise PluginError for links to nothing."""
    site = Path(config["site_dir"])
    (site / "llms.txt").write_text(llms(config, site), encoding="utf-8")
    lines = [f"{link}  {', '.join(sorted(pages))}" for link, pages in sorted(EXTERNAL.items())]
    (site.parent / "external-links.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    faults = sorted(fault for path, page in pages.items() for fault in broken(path, page, pages, site))
    if faults:
        raise PluginError("links to nothing:\n" + "\n".join(faults))


def broken(path: Path, page: Page, pages: dict[Path, Page], site: Path) -> list[str]:
    """Return the links of a built page whose file or anchor does not exist, and scripts of other hosts."""
    faults = [f"{path.relative_to(site)}: loads {link}" for link in page.loaded if urlsplit(link).netloc]
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme or link.startswith("//"):
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        known = pages.get(target)
        if not target.is_file() or (parts.fragment and known and unquote(parts.fragment) not in known.anchors):
            faults.append(f"{path.relative_to(site)}: {link}")
    return faults


def llms(config, site: Path) -> str:
    """Return llms.txt: the pages of the navigation, with their first sentence; write each page's Markdown next to it."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}"]
    for section in config["nav"]:
        ((title, entries),) = section.items()
        lines += ["", f"## {title}", ""]
        for entry in entries:
            uri = entry if isinstance(entry, str) else next(iter(entry.values()))
            origin = ROOT / next(path for page, path in ORIGIN.items() if page == uri)
            text = notebook(origin) if origin.suffix == ".ipynb" else origin.read_text(encoding="utf-8")
            (site / uri).parent.mkdir(parents=True, exist_ok=True)
            (site / uri).write_text(text, encoding="utf-8")
            heading, _, rest = text.partition("\n")
            prose = [block for block in rest.split("\n\n") if not re.match(r"\s*(```|[#|>!-]|$)", block)]
            first = re.split(r"(?<=[.?]) ", " ".join(prose[0].split()))[0] if prose else ""
            lines.append(f"- [{heading.lstrip('# ')}]({uri}): {first}")
    return "\n".join(lines) + "\n"
