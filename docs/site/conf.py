"""How Sphinx builds the site that `build.py` puts together."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import noetic_nb

project = "noetic_nb"
author = "The noetic_nb maintainers"
project_copyright = "2026, the noetic_nb maintainers"
release = version = noetic_nb.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
]
html_theme = "furo"
html_title = "noetic_nb"
html_copy_source = False
exclude_patterns = ["site", "**/.ipynb_checkpoints"]

# Pages are shown as they are kept: the suite runs each notebook and compares what it says.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_typehints = "none"  # numpydoc has them in the list of parameters
autodoc_member_order = "bysource"
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
suppress_warnings = ["mystnb.unknown_mime_type"]  # live views have a static form beside them
