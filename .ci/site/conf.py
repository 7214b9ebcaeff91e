"""What Sphinx reads. docs.py lays out the sources beside a copy of this file."""

from pathlib import Path

import api_words

import npformer

project, author = "npformer", "The npformer authors"
project_copyright = "The npformer authors, MIT licence"
version = release = npformer.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "api_words",
    "myst_nb",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
]

autodoc_typehints, autodoc_preserve_defaults, autodoc_member_order = "none", True, "bysource"
autodoc_default_options = {"ignore-module-all": True}  # a name stands where it is defined
autosummary_context = {"also": api_words.ALSO}
templates_path = [str(Path(api_words.__file__).parent / "api")]

nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath", "amsmath", "attrs_inline", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["mystnb.unknown_mime_type"]
smartquotes = False  # GELU'(z) keeps its mark
add_module_names = False  # npformer. stands once at the top of a page, not before each of its names
toc_object_entries_show_parents = "hide"
python_display_short_literal_types = True
python_maximum_signature_line_length = 200  # Sphinx folds into a list that axe calls none
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"  # 7 : 1
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True
copybutton_selector = "div:not(.output) > div.highlight pre"

html_theme = "furo"
html_title = "npformer"
html_static_path, html_favicon = ["_static"], "_static/favicon.svg"
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_copy_source = html_show_sourcelink = html_show_search_summary = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072b2", "color-brand-content": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
    "footer_icons": [],
}
mathjax_path = "mathjax.js"
mathjax3_config = {"options": {"menuOptions": {"settings": {"collapsible": False, "explorer": False}}}}
