"""What the site does beyond MkDocs.

- Pages link to files of the repository (``../src/fixnorm/norm.py``), so that they can be read there
  as well. In the site each such file is a page; a link to a file that is not there fails the build.
- Docstrings have Sphinx's roles and ``::``; the site shows what they mean.
- No page loads anything from the net: one that would fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

_LINK = re.compile(r"\]\(\.\./([\w./-]+)\)")
_ROLE = re.compile(r":(?:func|class|data|meth|mod):(?=<code>)")
_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\s>]*"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|pre))[^>]*\bhref=[\"']?(?:https?:)?//[^\s>]*"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file of the repository that a page links to."""
    root = Path(config.config_file_path).parent
    linked: set[str] = set()
    for page in files.documentation_pages():
        linked.update(_LINK.findall(page.content_string))
    for target in sorted(linked):
        if not (root / target).exists():
            raise PluginError(f"a page links to ../{target}, which the repository has not")
        files.append(File.generated(config, _page(target), content=_shown(root, target)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to files of the repository to their pages."""
    return _LINK.sub(lambda link: f"]({_page(link[1])})", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Take Sphinx's marks out of docstrings."""
    return _ROLE.sub("", html).replace("::</p>", ":</p>")


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Refuse a page that loads from the net."""
    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from the net: {found[0]}")
    return output


def _page(target: str) -> str:
    return f"source/{target.rstrip('/')}.md"


def _shown(root: Path, target: str) -> str:
    """The file as it is, or what a folder holds."""
    path = root / target
    if path.is_dir():
        names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*.*"))
        return "\n".join([f"# {target}", "", *(f"- `{name}`" for name in names)])
    kind = {".py": "python", ".json": "json", ".md": "markdown", ".cff": "yaml"}.get(path.suffix)
    return f"# {target}\n\n~~~~~~{kind or 'text'}\n{path.read_text()}\n~~~~~~\n"
