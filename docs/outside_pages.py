"""Pages of the site that lie outside docs/, and links that lead out of it.

The documents link to each other and to files of the repository by relative paths, as a reader of
the repository needs them. The site has the pages below, too; links to other files lead to the
repository. MkDocs calls the functions (mkdocs.yml, `hooks`).
"""

from __future__ import annotations

import logging
import posixpath
import re
import tomllib
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
# Path in the repository -> path in the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
log = logging.getLogger(f"mkdocs.hooks.{__name__}")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Link to the repository in the footer."""
    # With `repo_url` the pages would ask GitHub for the number of stars.
    config.extra["social"] = [{"icon": "fontawesome/solid/code", "link": REPOSITORY}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Redirect links that lead out of docs/; warn of those to files that do not exist."""
    here = page.file.src_uri
    sources = {site: source for source, site in PAGES.items()}
    folder = posixpath.dirname(sources.get(here, f"docs/{here}"))

    def redirected(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link["path"]))
        if target.startswith("docs/") or target in PAGES:
            # MkDocs reports a page of docs/ that does not exist.
            site = PAGES.get(target, target.removeprefix("docs/"))
            return posixpath.relpath(site, posixpath.dirname(here)) + (link["anchor"] or "")
        if not (ROOT / target).exists():
            log.warning("%s: link to %s, which does not exist", here, target)
        return f"{REPOSITORY}/blob/main/{target}{link['anchor'] or ''}"

    return LINK.sub(redirected, markdown)
